#include "daemon/core/state/shared.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fault-point.h"
#include "base/fd.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"

/* ---- index segment -------------------------------------------------------------------------- */

static uint32_t buckets_for(uint32_t capacity_pages)
{
        uint64_t n_slots = SHM_SLOTS_PER_PAGE * (uint64_t)capacity_pages;

        return (uint32_t)((n_slots + SHM_BUCKET_SLOTS - 1) / SHM_BUCKET_SLOTS);
}

static void fill_header(const struct shared *s, uint64_t ns_id, uint64_t boot_epoch)
{
        struct shm_index *h = s->header;

        h->header.magic = SHM_MAGIC;
        h->header.version = SHM_LAYOUT_VERSION;
        h->header.kind = SHM_INDEX;
        h->header.bytes = s->segment.bytes;
        h->header.boot_epoch = boot_epoch;
        h->header.owner = ns_id;
        h->capacity_pages = s->capacity_pages;
        h->n_buckets = s->n_buckets;
        h->buckets_offset = SHM_HEADER_BYTES;
        h->lines_offset = SHM_HEADER_BYTES + s->n_buckets * sizeof(struct shm_bucket);
        h->seed[0] = s->seed.k0;
        h->seed[1] = s->seed.k1;
}

static uint64_t segment_bytes(const struct shared *s)
{
        return SHM_HEADER_BYTES + s->n_buckets * sizeof(struct shm_bucket) +
               s->capacity_pages * sizeof(struct shm_line);
}

static void begin_shared(struct shared *s, uint32_t capacity_pages, struct hash_seed seed)
{
        assert(capacity_pages > 0 && capacity_pages <= SHARED_MAX_PAGES);

        *s = (struct shared){.segment.fd = -1,
                .segment.reader_fd = -1,
                .capacity_pages = capacity_pages,
                .n_buckets = buckets_for(capacity_pages),
                .seed = seed};
}

static void lay_out(struct shared *s, uint64_t ns_id, uint64_t boot_epoch)
{
        uint8_t *base = s->segment.base;

        s->header = s->segment.base;
        s->buckets = (struct shm_bucket *)(base + SHM_HEADER_BYTES);
        s->lines = (struct shm_line *)(base + SHM_HEADER_BYTES +
                                       s->n_buckets * sizeof(struct shm_bucket));
        fill_header(s, ns_id, boot_epoch);
}

int shared_init(struct shared *s, struct segment_room *room, uint32_t capacity_pages,
        struct hash_seed seed, uint64_t ns_id, uint64_t boot_epoch)
{
        int r;

        begin_shared(s, capacity_pages, seed);
        r = segment_new(room, "kvlease-index", segment_bytes(s), &s->segment);
        if (r < 0)
                return r;
        lay_out(s, ns_id, boot_epoch);
        return 0;
}

int shared_adopt(struct shared *s, int fd, int reader_fd, uint32_t capacity_pages,
        struct hash_seed seed, uint64_t ns_id, uint64_t boot_epoch)
{
        int r;

        begin_shared(s, capacity_pages, seed);
        r = segment_adopt(fd, reader_fd, segment_bytes(s), &s->segment);
        if (r < 0)
                return r;
        lay_out(s, ns_id, boot_epoch);
        return 0;
}

void shared_deinit(struct shared *s)
{
        segment_free(&s->segment);
}

/* Returns the n-th slot, of home bucket and next, for the key of this hash. */
#define N_SLOTS (2 * SHM_BUCKET_SLOTS)
static _Atomic uint64_t *slot_at(const struct shared *s, uint64_t hash, unsigned n)
{
        uint32_t bucket = shm_bucket_index(hash, s->n_buckets, n / SHM_BUCKET_SLOTS);

        return &s->buckets[bucket].slots[n % SHM_BUCKET_SLOTS];
}

static bool is_findable(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        return p && p->state == PAGE_SEALED && !ns_page_is_stale(ns, p);
}

static bool is_pending(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        return p && p->state == PAGE_GRANTED && p->announced && p->epoch == (uint32_t)ns->epoch;
}

static uint32_t find_page(const struct ns *ns, uint64_t hash, const uint8_t key[KEY_BYTES],
        bool (*is_it)(const struct ns *ns, uint32_t page))
{
        for (unsigned n = 0; n < N_SLOTS; n++) {
                uint64_t slot =
                        atomic_load_explicit(slot_at(&ns->shared, hash, n), memory_order_relaxed);
                uint32_t page = (uint32_t)slot - 1;

                if (slot == 0 || slot != shm_slot(hash, page))
                        continue;
                if (is_it(ns, page) && memcmp(ns_page(ns, page)->key, key, KEY_BYTES) == 0)
                        return page;
        }
        return PAGE_NONE;
}

uint32_t shared_find(const struct ns *ns, uint64_t hash, const uint8_t key[KEY_BYTES])
{
        return find_page(ns, hash, key, is_findable);
}

uint32_t shared_find_pending(const struct ns *ns, uint64_t hash, const uint8_t key[KEY_BYTES])
{
        return find_page(ns, hash, key, is_pending);
}

void shared_describe(struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);
        struct shm_line *line = &ns->shared.lines[page];

        if (!p->announced) {
                memcpy(line->key, p->key, KEY_BYTES);
                line->epoch = ns->epoch;
        }
        FAULT_POINT("line-half-described");
        line->tokens = p->tokens;
        line->tier = (uint8_t)tier_of_page(&ns->geometry, page);
}

/* Is the slot used by a page that isn't stale? */
static bool is_taken(const struct ns *ns, uint64_t slot)
{
        uint32_t page = (uint32_t)slot - 1;

        return slot != 0 && (is_findable(ns, page) || is_pending(ns, page));
}

/* Returns a slot of the bucket that is empty or stale; NULL: none. */
static _Atomic uint64_t *find_room(const struct ns *ns, uint32_t bucket)
{
        struct shm_bucket *b = &ns->shared.buckets[bucket];

        for (uint32_t i = 0; i < SHM_BUCKET_SLOTS; i++)
                if (!is_taken(ns, atomic_load_explicit(&b->slots[i], memory_order_relaxed)))
                        return &b->slots[i];
        return NULL;
}

/* Returns a slot of the full bucket whose key may be in the next bucket, too; NULL: none. */
static _Atomic uint64_t *find_movable(const struct ns *ns, uint32_t bucket)
{
        const struct shared *s = &ns->shared;

        for (uint32_t i = 0; i < SHM_BUCKET_SLOTS; i++) {
                _Atomic uint64_t *at = &s->buckets[bucket].slots[i];
                uint32_t page = (uint32_t)atomic_load_explicit(at, memory_order_relaxed) - 1;
                uint64_t hash = shared_hash(s, ns_page(ns, page)->key);

                if (shm_bucket_index(hash, s->n_buckets, 0) == bucket)
                        return at;
        }
        return NULL;
}

/*
 * Both buckets of the hash are full. Moves an entry of the second, its home, to the bucket after
 * it. If that is full, moves one of its entries on first, and so forth. Returns the slot of the
 * second bucket. It still names the moved page, which has two slots until this one is overwritten.
 * Entries move only from the home to the next bucket, and are written there first. So a reader,
 * which looks in that order, finds every key in one of the two. NULL: impossible, for example if a
 * client has chosen its keys so.
 */
static _Atomic uint64_t *make_room(struct ns *ns, uint64_t hash)
{
        struct shared *s = &ns->shared;
        _Atomic uint64_t *way[SHARED_MAX_MOVES], *room = NULL;
        uint32_t bucket = shm_bucket_index(hash, s->n_buckets, 1), n = 0;

        while (!room && n < SHARED_MAX_MOVES) {
                way[n] = find_movable(ns, bucket);
                if (!way[n++])
                        return NULL;
                bucket = bucket + 1 == s->n_buckets ? 0 : bucket + 1;
                room = find_room(ns, bucket);
        }
        if (!room)
                return NULL;
        s->n_indexed += atomic_load_explicit(room, memory_order_relaxed) == 0;
        for (; n > 0; room = way[n]) {
                n--;
                FAULT_POINT("slot-before-move");
                atomic_store_explicit(room, atomic_load_explicit(way[n], memory_order_relaxed),
                        memory_order_release);
                FAULT_POINT("slot-after-move");
        }
        return room;
}

/* Counts the used slots, stale ones included, in the n-th bucket of the hash, and returns the first
 * empty one. */
static uint32_t count_used(
        const struct ns *ns, uint64_t hash, uint32_t n, _Atomic uint64_t **ret_room)
{
        uint32_t n_used = 0;

        *ret_room = NULL;
        for (uint32_t i = 0; i < SHM_BUCKET_SLOTS; i++) {
                _Atomic uint64_t *at = slot_at(&ns->shared, hash, n * SHM_BUCKET_SLOTS + i);

                if (atomic_load_explicit(at, memory_order_relaxed) != 0)
                        n_used++;
                else if (!*ret_room)
                        *ret_room = at;
        }
        return n_used;
}

/* Returns an empty slot, of the emptier bucket if the home is nearly full; without one, a stale
 * slot. Stale slots come last, because checking one costs a cache miss for the page's record. */
static _Atomic uint64_t *find_slot(const struct ns *ns, uint64_t hash)
{
        _Atomic uint64_t *at, *next;
        uint32_t n_home = count_used(ns, hash, 0, &at);

        if (n_home >= SHM_HOME_SLOTS && count_used(ns, hash, 1, &next) < n_home)
                at = next;
        for (uint32_t n = 0; !at && n < 2; n++)
                at = find_room(ns, shm_bucket_index(hash, ns->shared.n_buckets, n));
        return at;
}

bool shared_insert(struct ns *ns, uint64_t hash, uint32_t page)
{
        _Atomic uint64_t *at = find_slot(ns, hash);

        if (at)
                ns->shared.n_indexed += atomic_load_explicit(at, memory_order_relaxed) == 0;
        else
                at = make_room(ns, hash);
        if (!at)
                return false;
        FAULT_POINT("slot-before-insert");
        atomic_store_explicit(at, shm_slot(hash, page), memory_order_release);
        FAULT_POINT("slot-after-insert");
        return true;
}

/* Returns the slot that names the page; NULL: none. */
static _Atomic uint64_t *slot_of(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);
        uint64_t hash = shared_hash(&ns->shared, p->key), wanted = shm_slot(hash, page);

        for (unsigned n = 0; n < N_SLOTS; n++) {
                _Atomic uint64_t *at = slot_at(&ns->shared, hash, n);

                if (atomic_load_explicit(at, memory_order_relaxed) == wanted)
                        return at;
        }
        return NULL;
}

bool shared_remove(struct ns *ns, uint32_t page)
{
        _Atomic uint64_t *at = slot_of(ns, page);

        if (!at)
                return false;
        FAULT_POINT("slot-before-remove");
        atomic_store_explicit(at, 0, memory_order_release);
        FAULT_POINT("slot-after-remove");
        ns->shared.n_indexed--;
        return true;
}

bool shared_replace(struct ns *ns, uint32_t page, uint32_t to)
{
        _Atomic uint64_t *at = slot_of(ns, page);
        uint64_t hash = shared_hash(&ns->shared, ns_page(ns, to)->key);

        if (!at)
                return false;
        FAULT_POINT("slot-before-replace");
        atomic_store_explicit(at, shm_slot(hash, to), memory_order_release);
        FAULT_POINT("slot-after-replace");
        return true;
}

bool shared_has(const struct ns *ns, uint32_t page)
{
        return slot_of(ns, page) != NULL;
}

static void show_state(struct ns *ns, uint32_t page, enum page_state state)
{
        const struct page *p = ns_page(ns, page);

        FAULT_POINT("line-before-state");
        atomic_store_explicit(&ns->shared.lines[page].state, page_word(p->generation, state),
                memory_order_release);
        FAULT_POINT("line-after-state");
}

void shared_show_state(struct ns *ns, uint32_t page)
{
        enum page_state s = (enum page_state)ns_page(ns, page)->state;

        show_state(ns, page, s == PAGE_SEALED || s == PAGE_DETACHED ? s : PAGE_FREE);
}

void shared_show_pending(struct ns *ns, uint32_t page)
{
        show_state(ns, page, PAGE_PENDING);
}

void shared_hide_pending(struct ns *ns, uint32_t page)
{
        struct page *p = ns_page(ns, page);

        page_turn(p, p->generation + 1, p->state);
        show_state(ns, page, PAGE_FREE);
}

void shared_show_epochs(struct ns *ns)
{
        struct shm_index *h = ns->shared.header;

        atomic_store_explicit(&h->epoch, ns->epoch, memory_order_release);
        atomic_store_explicit(&h->version_epoch, ns->version_epoch, memory_order_release);
}

/* No namespace has this epoch, so no client has opened one with it. */
#define NO_EPOCH UINT64_MAX

static void end_index(struct shm_index *h)
{
        atomic_store_explicit(&h->version_epoch, NO_EPOCH, memory_order_release);
        atomic_store_explicit(&h->epoch, NO_EPOCH, memory_order_release);
}

void shared_end(struct shared *s)
{
        end_index(s->header);
}

void shared_end_kept(int fd)
{
        struct stat st;
        void *base;

        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)SHM_HEADER_BYTES)
                return;
        base = memory_map(fd, SHM_HEADER_BYTES);
        if (!base)
                return;
        end_index(base);
        munmap(base, SHM_HEADER_BYTES);
}

/* ---- recovery ------------------------------------------------------------------------------- */

/* Returns the page's epoch, as far as 32 bits tell. It suffices that a stale page's epoch differs
 * from the header's. */
static uint64_t epoch_of(const struct ns *ns, const struct page *p)
{
        return p->epoch == (uint32_t)ns->epoch ? ns->epoch
                                               : (ns->epoch & ~UINT64_C(0xffffffff)) | p->epoch;
}

static bool is_described(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);
        const struct shm_line *line = &ns->shared.lines[page];

        return memcmp(line->key, p->key, KEY_BYTES) == 0 && line->tokens == p->tokens &&
               line->tier == tier_of_page(&ns->geometry, page) && line->epoch == epoch_of(ns, p);
}

bool shared_has_line(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);
        uint64_t is = atomic_load_explicit(&ns->shared.lines[page].state, memory_order_relaxed);

        return is == page_word(p->generation, p->state) && is_described(ns, page);
}

bool shared_correct_line(struct ns *ns, uint32_t page)
{
        struct page *p = ns_page(ns, page);
        struct shm_line *line = &ns->shared.lines[page];
        uint64_t is = atomic_load_explicit(&line->state, memory_order_relaxed);

        if (p->state != PAGE_SEALED && p->state != PAGE_DETACHED) {
                if ((is & 0xff) == PAGE_FREE)
                        return false;
                if ((is & 0xff) == PAGE_PENDING)
                        shared_hide_pending(ns, page);
                else
                        show_state(ns, page, PAGE_FREE);
                return true;
        }
        if (shared_has_line(ns, page))
                return false;
        /* Also describes detached pages: a client may hold one for long. */
        if (!is_described(ns, page)) {
                show_state(ns, page, PAGE_RETIRING);
                memcpy(line->key, p->key, KEY_BYTES);
                line->epoch = epoch_of(ns, p);
                line->tokens = p->tokens;
                line->tier = (uint8_t)tier_of_page(&ns->geometry, page);
        }
        shared_show_state(ns, page);
        return true;
}

void shared_prefetch(const struct shared *s, uint64_t hash)
{
        __builtin_prefetch(slot_at(s, hash, 0));
        __builtin_prefetch(slot_at(s, hash, SHM_BUCKET_SLOTS));
}

void shared_prefetch_home(const struct shared *s, uint64_t hash)
{
        __builtin_prefetch(slot_at(s, hash, 0));
}

uint32_t shared_guess(const struct shared *s, uint64_t hash)
{
        const struct shm_bucket *home = &s->buckets[shm_bucket_index(hash, s->n_buckets, 0)];

        for (unsigned i = 0; i < SHM_BUCKET_SLOTS; i++) {
                uint64_t slot = atomic_load_explicit(&home->slots[i], memory_order_relaxed);

                if (slot != 0 && slot >> 32 == hash >> 32)
                        return (uint32_t)slot - 1;
        }
        return PAGE_NONE;
}

uint32_t shared_find_guessed(
        const struct ns *ns, uint64_t hash, const uint8_t key[KEY_BYTES], uint32_t guess)
{
        if (is_findable(ns, guess) && memcmp(ns_page(ns, guess)->key, key, KEY_BYTES) == 0)
                return guess;
        return shared_find(ns, hash, key);
}

/* Looks at all slots for the key. Returns another findable page that has it, or PAGE_NONE. */
static uint32_t find_other(const struct ns *ns, uint64_t hash, uint32_t page, bool *ret_has_slot)
{
        const _Atomic uint64_t *slots[] = {
                slot_at(&ns->shared, hash, 0), slot_at(&ns->shared, hash, SHM_BUCKET_SLOTS)};

        *ret_has_slot = false;
        for (unsigned n = 0; n < N_SLOTS; n++) {
                uint64_t slot = atomic_load_explicit(
                        &slots[n / SHM_BUCKET_SLOTS][n % SHM_BUCKET_SLOTS], memory_order_relaxed);
                uint32_t other = (uint32_t)slot - 1;

                if ((slot ^ hash) >> 32 != 0)
                        continue;
                *ret_has_slot |= other == page;
                if (other != page && is_findable(ns, other) &&
                        memcmp(ns_page(ns, other)->key, ns_page(ns, page)->key, KEY_BYTES) == 0)
                        return other;
        }
        return PAGE_NONE;
}

bool shared_has_slot(const struct ns *ns, uint64_t hash, uint32_t page)
{
        bool has_slot;

        return find_other(ns, hash, page, &has_slot) == PAGE_NONE && has_slot;
}

enum shared_slot shared_correct_slot(
        struct ns *ns, uint64_t hash, uint32_t page, uint32_t *ret_other)
{
        bool has_slot;

        *ret_other = find_other(ns, hash, page, &has_slot);
        if (*ret_other != PAGE_NONE)
                return SHARED_SLOT_OTHER;
        if (has_slot)
                return SHARED_SLOT_HAD;
        return shared_insert(ns, hash, page) ? SHARED_SLOT_MADE : SHARED_SLOT_NONE;
}

/* Is it the only slot of a marked page? */
static bool is_right_slot(const struct ns *ns, const _Atomic uint64_t *at, uint64_t slot)
{
        uint32_t page = (uint32_t)slot - 1;
        const struct page *p = ns_page(ns, page);

        return p && p->mark && slot_of(ns, page) == at;
}

_Atomic uint64_t *shared_next_used(const struct shared *s, struct shared_walk *w)
{
        uint64_t first = SHM_HEADER_BYTES, end = first + s->n_buckets * sizeof(struct shm_bucket);

        for (;; w->at += sizeof(_Atomic uint64_t)) {
                _Atomic uint64_t *slot;

                if (w->at >= w->end) {
                        w->at = segment_next_part(&s->segment, MAX(w->end, first), &w->end);
                        w->end = MIN(w->end, end);
                }
                if (w->at >= end)
                        return NULL;
                slot = (_Atomic uint64_t *)(void *)((uint8_t *)s->segment.base + w->at);
                if (atomic_load_explicit(slot, memory_order_relaxed) == 0)
                        continue;
                w->at += sizeof(*slot);
                return slot;
        }
}

uint64_t shared_count_slots(struct ns *ns)
{
        struct shared_walk all = {0};

        ns->shared.n_indexed = 0;
        while (shared_next_used(&ns->shared, &all))
                ns->shared.n_indexed++;
        return ns->shared.n_indexed;
}

uint64_t shared_correct_rest(struct ns *ns, uint64_t n_marked)
{
        struct shared *s = &ns->shared;
        struct shared_walk all = {0};
        uint64_t n_fixed = 0;
        _Atomic uint64_t *at;

        while (s->n_indexed != n_marked && (at = shared_next_used(s, &all))) {
                if (is_right_slot(ns, at, atomic_load_explicit(at, memory_order_relaxed)))
                        continue;
                atomic_store_explicit(at, 0, memory_order_release);
                s->n_indexed--;
                n_fixed++;
        }
        return n_fixed;
}

/* ---- the evictor ---------------------------------------------------------------------------- */

/* Acquire: a reader's reads of a page come before its unpin (release), which comes before the
 * page's next use. */
bool shared_is_pinned(const struct ns *ns, uint32_t page)
{
        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                if (a->pins_lost || (pins_is_open(&a->share) && pins_count(&a->share, page) != 0))
                        return true;
        return false;
}

bool shared_run_is_pinned(const struct ns *ns, uint32_t page, uint32_t n_pages)
{
        uint32_t counters[SHARED_RUN_PAGES], sum;

        assert(n_pages <= SHARED_RUN_PAGES);

        list_for_each (a, &ns->clients.attachments, struct attach, ns_link) {
                if (a->pins_lost)
                        return true;
                if (!pins_is_open(&a->share))
                        continue;
                memcpy(counters, (const uint32_t *)a->share.counters + page,
                        n_pages * sizeof(counters[0]));
                sum = 0;
                for (uint32_t i = 0; i < n_pages; i++)
                        sum |= counters[i];
                if (sum != 0)
                        return true;
        }
        return false;
}

bool shared_withdraw(struct ns *ns, uint32_t page)
{
        show_state(ns, page, PAGE_RETIRING);
        atomic_thread_fence(memory_order_seq_cst);
        return !shared_is_pinned(ns, page);
}

bool shared_retire(struct ns *ns, uint32_t page)
{
        if (shared_is_pinned(ns, page))
                return false;
        if (shared_withdraw(ns, page))
                return true;
        show_state(ns, page, PAGE_SEALED);
        return false;
}

/* ---- pin segments --------------------------------------------------------------------------- */

#define MAGAZINE_BYTES (SHM_MAGAZINE_SLOTS * sizeof(uint32_t))

uint64_t pins_bytes(uint32_t capacity_pages)
{
        return SHM_HEADER_BYTES + MAGAZINE_BYTES + capacity_pages * (uint64_t)sizeof(uint32_t);
}

/* Takes the fd, on success only. */
static int map_pins(struct pins *p, const struct shared *shared, int fd)
{
        uint64_t bytes = pins_bytes(shared->capacity_pages);
        uint8_t *base = memory_map(fd, bytes);

        if (!base)
                return -errno;
        *p = (struct pins){
                .segment = {.fd = fd, .reader_fd = -1, .base = base, .bytes = bytes},
                .header = (struct shm_pins *)base,
                .magazine = (_Atomic uint32_t *)(base + SHM_HEADER_BYTES),
                .counters = (_Atomic uint32_t *)(base + SHM_HEADER_BYTES + MAGAZINE_BYTES),
                .capacity_pages = shared->capacity_pages,
        };
        return 0;
}

int pins_open(struct pins *p, const struct shared *shared, uint64_t client_id)
{
        int fd = memfd_create_sized("kvlease-pins", pins_bytes(shared->capacity_pages));
        int r = fd < 0 ? fd : map_pins(p, shared, fd);

        if (r < 0) {
                fd_close(fd);
                return r;
        }
        p->header->header = (struct shm_header){.magic = SHM_MAGIC,
                .version = SHM_LAYOUT_VERSION,
                .kind = SHM_PINS,
                .bytes = p->segment.bytes,
                .boot_epoch = shared->header->header.boot_epoch,
                .owner = client_id};
        p->header->capacity_pages = shared->capacity_pages;
        p->header->magazine_slots = SHM_MAGAZINE_SLOTS;
        p->header->magazine_offset = SHM_HEADER_BYTES;
        p->header->counters_offset = SHM_HEADER_BYTES + MAGAZINE_BYTES;
        return 0;
}

int pins_adopt(struct pins *p, const struct shared *shared, int fd)
{
        int r = map_pins(p, shared, fd);

        if (r < 0)
                return r;
        p->n_lookups = atomic_load_explicit(&p->header->n_lookups, memory_order_relaxed);
        p->n_keys = atomic_load_explicit(&p->header->n_keys, memory_order_relaxed);
        p->n_hits = atomic_load_explicit(&p->header->n_hits, memory_order_relaxed);
        return 0;
}

void pins_close(struct pins *p)
{
        segment_free(&p->segment);
}

void pins_add(struct pins *p, uint32_t page)
{
        FAULT_POINT("pins-before-add");
        atomic_fetch_add_explicit(&p->counters[page], 1, memory_order_seq_cst);
        FAULT_POINT("pins-after-add");
}
