#include "daemon/core/state/records.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fault-point.h"
#include "base/fd.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/state-root.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/nsset-keys.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"

/* The kernel's page size for giving memory back; larger pages do no harm. */
#define STEP UINT64_C(4096)

/* ---- the mapping ----------------------------------------------------------------------------- */

static uint64_t sets_bytes(const struct ns_geometry *g)
{
        return round_up_u64(g->n_set_slots * sizeof(struct set_record), STEP);
}

static uint64_t pages_bytes(const struct ns_geometry *g)
{
        return round_up_u64(g->capacity_pages * sizeof(struct page), STEP);
}

static uint64_t notes_bytes(const struct ns_geometry *g)
{
        return round_up_u64(g->capacity_pages * sizeof(struct page_note), STEP);
}

static uint64_t extras_bytes(const struct ns_geometry *g)
{
        return round_up_u64(g->capacity_pages * sizeof(struct page_extra), STEP);
}

static uint64_t all_bytes(const struct ns_geometry *g)
{
        return RECORDS_HEADER_BYTES + sets_bytes(g) + pages_bytes(g) + notes_bytes(g) +
               extras_bytes(g);
}

static void lay_out(struct records *r, const struct ns_geometry *g, void *base)
{
        uint8_t *at = base;

        r->bytes = all_bytes(g);
        r->header = base;
        at += RECORDS_HEADER_BYTES;
        r->sets = (struct set_record *)(void *)at;
        at += sets_bytes(g);
        r->pages = (struct page *)(void *)at;
        at += pages_bytes(g);
        r->notes = (struct page_note *)(void *)at;
        at += notes_bytes(g);
        r->extras = (struct page_extra *)(void *)at;
}

static bool is_number_used(struct store *s, uint32_t number)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (ns->records.number == number)
                                return true;
        return false;
}

static uint32_t next_number(struct store *s)
{
        uint32_t number;

        do
                number = (uint32_t)(state_next(&s->state->last_records) % KEEP_MAX_NUMBER);
        while (is_number_used(s, number));
        return number;
}

int records_new(struct store *s, const struct ns_geometry *g, struct records *ret_records)
{
        struct records r = {.fd = -1, .seed = hash_seed_random()};
        void *base;

        if (keep_is_on(&s->keep)) {
                r.fd = memfd_create_sized("kvlease-records", all_bytes(g));
                if (r.fd < 0)
                        return r.fd;
                r.number = next_number(s);
        }
        base = memory_map(r.fd, all_bytes(g));
        if (!base) {
                int error = -errno;

                fd_close(r.fd);
                return error;
        }
        lay_out(&r, g, base);
        *ret_records = r;
        return 0;
}

uint32_t records_identity_sum(const struct records_header *h)
{
        struct hash_seed seed = {RECORDS_MAGIC, sizeof(h->identity)};
        uint64_t sum = hash_bytes(seed, &h->identity, sizeof(h->identity));

        if (h->format.len > 0) {
                seed.k1 = sum;
                sum = hash_bytes(seed, &h->format, sizeof(h->format));
        }
        for (unsigned kind = 0; kind < TIER_COUNT; kind++)
                if (h->codecs[kind].n > 0) {
                        seed.k1 = sum;
                        sum = hash_bytes(seed, &h->codecs[kind], sizeof(h->codecs[kind]));
                }
        return (uint32_t)sum;
}

void records_layout(const struct records_header *h, const struct records_options *o,
        struct ns_layout *ret_layout)
{
        *ret_layout = (struct ns_layout){.format_len = h->format.len};
        memcpy(ret_layout, h->identity.layout, RECORDS_LAYOUT_BYTES);
        memcpy(ret_layout->version, o->version, sizeof(ret_layout->version));
        memcpy(ret_layout->format, h->format.bytes, sizeof(ret_layout->format));
}

int records_codecs(const struct records_header *h, struct page_codecs *ret_codecs)
{
        const struct ns_geometry *g = &h->identity.geometry;
        struct codec_layers tiers[TIER_COUNT];
        struct ns_layout layout = {0};
        int r;

        memcpy(&layout, h->identity.layout, RECORDS_LAYOUT_BYTES);
        if (ns_layout_check(&layout, NULL) < 0)
                return -EINVAL;
        for (unsigned kind = 0; kind < TIER_COUNT; kind++)
                tiers[kind] = g->tiers[kind].codec == CODEC_BY_LAYER
                                      ? h->codecs[kind]
                                      : codec_layers_all((enum codec)g->tiers[kind].codec);
        r = page_codecs_init(ret_codecs, &layout, tiers, NULL);
        for (unsigned kind = TIER_HOST; r == 0 && kind < TIER_COUNT; kind++)
                if (g->tiers[kind].n_sets > 0 &&
                        ret_codecs->stored_bytes[kind] > g->tiers[kind].stored_bytes)
                        r = -EINVAL;
        return r;
}

static bool is_header(const struct records_header *h)
{
        const struct records_identity *i = &h->identity;
        struct page_codecs codecs;
        struct ns_layout layout;

        memcpy(&layout, i->layout, RECORDS_LAYOUT_BYTES);
        return h->magic == RECORDS_MAGIC && h->version == STATE_LAYOUT_VERSION &&
               atomic_load_explicit(&h->live, memory_order_relaxed) == RECORDS_LIVE &&
               h->sum == records_identity_sum(h) && memchr(i->tenant, '\0', sizeof(i->tenant)) &&
               memchr(i->device, '\0', sizeof(i->device)) &&
               memchr(i->name, '\0', sizeof(i->name)) && memchr(i->nsset, '\0', sizeof(i->nsset)) &&
               ns_geometry_holds(&i->geometry, &layout) && records_codecs(h, &codecs) == 0;
}

/* Copies the header of a stored file. Returns 0; -ENOENT, -EINVAL. */
static int read_header(int fd, uint64_t bytes, struct records_header *ret_header)
{
        void *base = bytes >= RECORDS_HEADER_BYTES ? memory_map(fd, RECORDS_HEADER_BYTES) : NULL;
        bool is_right;

        if (!base)
                return -EINVAL;
        memcpy(ret_header, base, sizeof(*ret_header));
        munmap(base, RECORDS_HEADER_BYTES);
        if (atomic_load_explicit(&ret_header->live, memory_order_relaxed) == 0)
                return -ENOENT;
        is_right = is_header(ret_header) && all_bytes(&ret_header->identity.geometry) == bytes;
        return is_right ? 0 : -EINVAL;
}

int records_adopt(int fd, struct records *ret_records)
{
        struct records_header h;
        struct records r;
        struct stat st;
        void *base;
        int seals = fcntl(fd, F_GET_SEALS), error;

        if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return -EINVAL;
        error = read_header(fd, (uint64_t)st.st_size, &h);
        if (error < 0)
                return error;
        base = memory_map(fd, all_bytes(&h.identity.geometry));
        if (!base)
                return -errno;
        r = (struct records){.fd = fd,
                .number = h.identity.number,
                .seed = {h.identity.seed[0], h.identity.seed[1]}};
        lay_out(&r, &h.identity.geometry, base);
        *ret_records = r;
        return 0;
}

void records_close(struct records *r)
{
        if (r->header)
                munmap(r->header, r->bytes);
        fd_close(r->fd);
        *r = (struct records){.fd = -1};
}

/* ---- the namespace --------------------------------------------------------------------------- */

uint32_t records_options_sum(const struct records_header *h, const struct records_options *o)
{
        struct hash_seed seed = {h->identity.seed[0], h->identity.seed[1]};

        return (uint32_t)hash_bytes(seed, o, offsetof(struct records_options, sum));
}

const struct records_options *records_options(const struct records *r)
{
        uint64_t n = atomic_load_explicit(&r->header->selector, memory_order_acquire);
        const struct records_options *o = &r->header->options[n & 1];

        return n <= 1 && o->sum == records_options_sum(r->header, o) &&
                               memchr(o->version, '\0', sizeof(o->version))
                       ? o
                       : NULL;
}

void records_commit_options(struct ns *ns)
{
        struct records_header *h = ns->records.header;
        uint64_t n = atomic_load_explicit(&h->selector, memory_order_relaxed) ^ 1;
        struct records_options *o = &h->options[n];

        FAULT_POINT("options-before-copy");
        *o = (struct records_options){
                .version_epoch = ns->version_epoch, .expire_nsec = ns->catalog.expiry.after_nsec};
        memcpy(o->version, ns->layout.version, sizeof(o->version));
        o->sum = records_options_sum(h, o);
        FAULT_POINT("options-before-select");
        atomic_store_explicit(&h->selector, n, memory_order_release);
        FAULT_POINT("options-after-select");
}

void records_commit_epoch(struct ns *ns)
{
        FAULT_POINT("epoch-before-store");
        atomic_store_explicit(&ns->records.header->epoch, ns->epoch, memory_order_release);
        FAULT_POINT("epoch-after-store");
}

void records_commit_shared_epoch(struct ns *ns, const struct shared_epoch *epoch)
{
        struct records_shared_epoch *e = &ns->records.header->shared_epoch;

        if (epoch->must_change)
                atomic_store_explicit(&e->must_change, 1, memory_order_release);
        atomic_store_explicit(&e->number, 0, memory_order_release);
        atomic_store_explicit(&e->known_sec, epoch->known_sec, memory_order_release);
        atomic_store_explicit(&e->number, epoch->number, memory_order_release);
        if (!epoch->must_change)
                atomic_store_explicit(&e->must_change, 0, memory_order_release);
}

struct shared_epoch records_shared_epoch(const struct ns *ns)
{
        const struct records_shared_epoch *e = &ns->records.header->shared_epoch;

        return (struct shared_epoch){
                .must_change = atomic_load_explicit(&e->must_change, memory_order_relaxed) != 0,
                .number = atomic_load_explicit(&e->number, memory_order_relaxed),
                .known_sec =
                        (uint32_t)MIN(atomic_load_explicit(&e->known_sec, memory_order_relaxed),
                                (uint64_t)UINT32_MAX)};
}

static void fill_identity(const struct ns *ns, struct records_header *h)
{
        struct records_identity *i = &h->identity;
        struct ns_layout layout = ns->layout;

        memset(layout.version, 0, sizeof(layout.version));
        *i = (struct records_identity){
                .number = ns->records.number,
                .keep_page_zero = ns->sets.keep_page_zero,
                .ns_id = ns->id,
                .seed = {ns->records.seed.k0, ns->records.seed.k1},
                .address = ns->address,
                .geometry = ns->geometry,
        };
        memcpy(i->layout, &layout, RECORDS_LAYOUT_BYTES);
        h->format.len = layout.format_len;
        memcpy(h->format.bytes, layout.format, sizeof(h->format.bytes));
        for (unsigned kind = 0; kind < TIER_COUNT; kind++)
                if (ns->geometry.tiers[kind].codec == CODEC_BY_LAYER)
                        h->codecs[kind] = ns->codecs.of_pages.tiers[kind];
        memcpy(i->tenant, ns->tenant->name, strlen(ns->tenant->name));
        memcpy(i->device, ns->device.pool->props->name, strlen(ns->device.pool->props->name));
        memcpy(i->name, ns->name, sizeof(i->name));
        if (!ns->catalog.set)
                return;
        i->nsset_id = ns->catalog.set->id;
        i->nsset_size = ns->catalog.set->size;
        memcpy(i->nsset, ns->catalog.set->name, sizeof(i->nsset));
}

/* The records are stored first and dropped last: an index without records was a namespace's. */
static void drop_kept(const struct ns *ns)
{
        const struct keep *k = &ns->store->keep;

        keep_drop(k, KEEP_INDEX, ns->records.number);
        keep_drop(k, KEEP_INDEX_READER, ns->records.number);
        keep_drop(k, KEEP_SESSIONS, ns->records.number);
        keep_drop(k, KEEP_RECORDS, ns->records.number);
}

static int keep_all(const struct ns *ns, struct detail *d)
{
        const struct keep *k = &ns->store->keep;
        int r = keep_add(k, KEEP_RECORDS, ns->records.number, ns->records.fd, d);

        FAULT_POINT("records-between-keeps");
        if (r == 0)
                r = keep_add(k, KEEP_INDEX, ns->records.number, ns->shared.segment.fd, d);
        if (r == 0)
                r = keep_add(
                        k, KEEP_INDEX_READER, ns->records.number, ns->shared.segment.reader_fd, d);
        if (r < 0)
                drop_kept(ns);
        return r;
}

int records_begin(struct ns *ns, struct detail *d)
{
        struct records_header *h = ns->records.header;
        int r;

        if (ns->records.fd < 0)
                return 0;
        FAULT_POINT("records-before-keep");
        r = keep_all(ns, d);
        FAULT_POINT("records-after-keep");
        if (r < 0)
                return r;
        fill_identity(ns, h);
        FAULT_POINT("records-after-identity");
        h->sum = records_identity_sum(h);
        h->version = STATE_LAYOUT_VERSION;
        h->magic = RECORDS_MAGIC;
        records_commit_options(ns);
        records_commit_epoch(ns);
        FAULT_POINT("records-before-live");
        atomic_store_explicit(&h->live, RECORDS_LIVE, memory_order_release);
        FAULT_POINT("records-after-live");
        return 0;
}

void records_end(struct ns *ns)
{
        if (ns->records.fd < 0)
                return;
        FAULT_POINT("records-before-end");
        atomic_store_explicit(&ns->records.header->live, 0, memory_order_release);
        FAULT_POINT("records-after-end");
        drop_kept(ns);
}

/* ---- sets ------------------------------------------------------------------------------------ */

static uint64_t set_word(const struct extent_set *set)
{
        return (uint64_t)set->first_extent << 1 | SET_RECORD_BOUND;
}

void records_bind(struct extent_set *set)
{
        struct set_record *r = &set->ns->records.sets[set->index];

        FAULT_POINT("set-before-bind");
        atomic_store_explicit(&r->recall, 0, memory_order_relaxed);
        FAULT_POINT("set-between-bind");
        atomic_store_explicit(&r->word, set_word(set), memory_order_release);
        FAULT_POINT("set-after-bind");
}

void records_note_recall(struct extent_set *set)
{
        bool is_forced = set->recall.state != RECALL_NONE && set->recall.kind == RECALL_FORCED;

        FAULT_POINT("set-before-recall");
        atomic_store_explicit(&set->ns->records.sets[set->index].recall,
                is_forced ? MIN(set->recall.timeout_nsec, UINT64_MAX - 1) + 1 : 0,
                memory_order_release);
        FAULT_POINT("set-after-recall");
}

/* Is the set neither bound nor being made? */
static bool is_vacant(const struct ns *ns, uint64_t set)
{
        return set >= ns->geometry.n_set_slots || (!ns->sets.at[set] && !ns->sets.preparing[set]);
}

/* Do all sets with bytes in the kernel's page at `at` of an array say that they are vacant?
 * set_bytes: the array's bytes per set. */
static bool is_page_vacant(const struct ns *ns, uint64_t at, uint64_t set_bytes)
{
        for (uint64_t set = at / set_bytes; set * set_bytes < at + STEP; set++)
                if (!is_vacant(ns, set))
                        return false;
        return true;
}

static void give_back(const struct records *r, uint64_t offset, uint64_t len)
{
        uint8_t *at = (uint8_t *)r->header + offset;

        if (len == 0)
                return;
        if (r->fd >= 0 ? fd_punch_hole(r->fd, offset, len) < 0
                       : madvise(at, len, MADV_DONTNEED) < 0)
                memset(at, 0, len);
}

/* Zeroes the part of an array that belongs to vacant sets; begin, end: bytes in the array, which is
 * at `offset` of the mapping. */
static void wipe_vacant(
        const struct ns *ns, uint64_t offset, uint64_t set_bytes, uint64_t begin, uint64_t end)
{
        uint8_t *base = (uint8_t *)ns->records.header + offset;
        uint64_t low = begin / STEP * STEP, high = round_up_u64(end, STEP);

        if (low < begin && !is_page_vacant(ns, low, set_bytes))
                low += STEP;
        if (high > end && high > low && !is_page_vacant(ns, high - STEP, set_bytes))
                high -= STEP;
        if (low >= high) {
                memset(base + begin, 0, end - begin);
                return;
        }
        if (begin < low)
                memset(base + begin, 0, low - begin);
        give_back(&ns->records, offset + low, high - low);
        if (high < end)
                memset(base + high, 0, end - high);
}

void records_wipe(const struct ns *ns, uint32_t first, uint32_t n)
{
        uint64_t n_pages = ns->geometry.set_pages, begin = first * n_pages,
                 end = begin + n * n_pages;
        uint64_t offset = RECORDS_HEADER_BYTES + sets_bytes(&ns->geometry);

        wipe_vacant(ns, offset, n_pages * sizeof(struct page), begin * sizeof(struct page),
                end * sizeof(struct page));
        offset += pages_bytes(&ns->geometry);
        wipe_vacant(ns, offset, n_pages * sizeof(struct page_note),
                begin * sizeof(struct page_note), end * sizeof(struct page_note));
        offset += notes_bytes(&ns->geometry);
        wipe_vacant(ns, offset, n_pages * sizeof(struct page_extra),
                begin * sizeof(struct page_extra), end * sizeof(struct page_extra));
}

void records_unbind(struct ns *ns, uint32_t index)
{
        FAULT_POINT("set-before-unbind");
        atomic_store_explicit(&ns->records.sets[index].word, 0, memory_order_release);
        FAULT_POINT("set-after-unbind");
}

/* ---- pages ----------------------------------------------------------------------------------- */

uint32_t records_sum(const struct ns *ns, uint32_t page, uint64_t generation, uint32_t parent)
{
        const struct page *p = &ns->records.pages[page];
        const struct page_note *note = &ns->records.notes[page];
        struct sip s = sip_init(ns->records.seed);
        uint64_t key[KEY_BYTES / sizeof(uint64_t)];
        uint64_t sum;

        memcpy(key, p->key, sizeof(key));
        for (size_t i = 0; i < ARRAY_SIZE(key); i++)
                sip_word(&s, key[i]);
        sip_word(&s, (uint64_t)page << 32 | parent);
        sip_word(&s, generation);
        sip_word(&s, (uint64_t)p->epoch << 32 | p->tokens);
        sip_word(&s, (uint64_t)note->depth << 32 | p->end_token);
        if (tier_of_page(&ns->geometry, page) != TIER_DEVICE)
                sip_word(&s, ns_extra(ns, page)->content);
        sum = sip_end(&s);
        return (uint32_t)(sum ^ sum >> 32);
}

static void store_place(struct ns *ns, uint32_t page, uint64_t generation, uint32_t parent)
{
        union page_place place = {
                .parent = parent, .sum = records_sum(ns, page, generation, parent)};

        atomic_store_explicit(&ns->records.notes[page].place.word,
                atomic_load_explicit(&place.word, memory_order_relaxed), memory_order_release);
}

void records_seal(struct ns *ns, uint32_t page, uint64_t generation, uint32_t parent)
{
        FAULT_POINT("page-before-place");
        store_place(ns, page, generation, parent);
        FAULT_POINT("page-after-place");
}

void records_reparent(struct ns *ns, uint32_t page, uint32_t parent)
{
        FAULT_POINT("page-before-reparent");
        store_place(ns, page, ns->records.pages[page].generation, parent);
        FAULT_POINT("page-after-reparent");
}

bool records_page_holds(const struct ns *ns, uint32_t page)
{
        const union page_place *place = &ns->records.notes[page].place;

        return place->sum ==
               records_sum(ns, page, ns->records.pages[page].generation, place->parent);
}

/* ---- check ----------------------------------------------------------------------------------- */

static const char *check_set(const struct ns *ns, uint32_t index)
{
        const struct set_record *r = &ns->records.sets[index];
        uint64_t word = atomic_load_explicit(&r->word, memory_order_relaxed);
        uint64_t recall = atomic_load_explicit(&r->recall, memory_order_relaxed);
        const struct extent_set *set = ns->sets.at[index];
        bool is_forced =
                set && set->recall.state != RECALL_NONE && set->recall.kind == RECALL_FORCED;

        if (word != (set ? set_word(set) : 0))
                return "records that a set is bound that isn't, or with other extents";
        if (set && (recall > 0) != is_forced)
                return "records another recall of a set";
        return NULL;
}

const char *records_check(const struct ns *ns)
{
        const struct records *r = &ns->records;
        const struct records_options *o;

        if (r->fd < 0)
                return NULL;
        o = records_options(r);
        if (!is_header(r->header) || r->header->identity.ns_id != ns->id)
                return "its records aren't those of a living namespace";
        if (!o || o->version_epoch != ns->version_epoch ||
                o->expire_nsec != ns->catalog.expiry.after_nsec ||
                strcmp(o->version, ns->layout.version) != 0)
                return "records other options";
        if (atomic_load_explicit(&r->header->epoch, memory_order_relaxed) != ns->epoch)
                return "records another epoch";
        for (uint32_t i = 0; i < ns->geometry.n_set_slots; i++) {
                const char *why = check_set(ns, i);

                if (why)
                        return why;
        }
        return NULL;
}

const char *records_check_page(const struct ns *ns, uint32_t page)
{
        const struct page *p = &ns->records.pages[page];
        const struct page_note *note = &ns->records.notes[page];

        if (p->state == PAGE_FREE && note->has_extra)
                return "is free, and more is known of it";
        if (p->state != PAGE_SEALED && p->state != PAGE_DETACHED)
                return NULL;
        /* Damaged pages stay only for clients that pin them: recover-pages.c. */
        if (!records_page_holds(ns, page) &&
                (p->state == PAGE_SEALED || p->unindexed || ns_extra(ns, page)->n_windows > 0))
                return "its record's sum is wrong";
        if (p->state == PAGE_SEALED && !ns_page_is_stale(ns, p) &&
                note->place.parent != tree_parent(&ns->tree, page))
                return "is recorded to continue another page than in the tree";
        return NULL;
}
