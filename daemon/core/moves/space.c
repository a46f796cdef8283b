#include "daemon/core/moves/space.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/cache/tag.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/moves/copy-batch.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"

/* An entry that was found at the start. */
struct space_entry {
        uint64_t at;
        uint64_t parent; /* hash of its parent's key; 0: begins a text */
        uint32_t next;   /* 1 + the next entry of its chain: same parent, or single; 0: none */
        uint32_t chain;  /* first entry of a claimed chain: 1 + the next chain's first */
};

/* Belongs to the disk's callback; the namespace may be freed before. */
struct space_load {
        struct ns *ns; /* NULL: it was freed, or has another space now */
};

/* Callback for disk calls without a waiting caller; space_promise() waits for their result. */
static void space_on_durable(int result, void *data)
{
        (void)result;
        (void)data;
}

/* ---- identity -------------------------------------------------------------------------------- */

static int add_bytes(EVP_MD_CTX *md, const void *bytes, size_t n)
{
        uint64_t len = n;

        return EVP_DigestUpdate(md, &len, sizeof(len)) && EVP_DigestUpdate(md, bytes, n) ? 0 : -EIO;
}

static int add_text(EVP_MD_CTX *md, const char *text)
{
        return add_bytes(md, text, strlen(text));
}

/* Adds everything that defines the meaning of pages' bytes: each field with its length. */
static int add_identity(EVP_MD_CTX *md, const struct ns *ns)
{
        const struct ns_layout *l = &ns->layout;
        const uint64_t numbers[] = {l->dtype, l->n_layers, l->n_kv_heads, l->head_size,
                l->page_tokens, l->n_planes, l->plane_page_bytes, l->tp_rank, l->tp_size,
                l->layer_group, ns->geometry.tiers[TIER_DISK].codec,
                ns->geometry.tiers[TIER_DISK].stored_bytes};
        int r = add_text(md, ns->tenant->name);

        if (r == 0)
                r = add_text(md, ns->device.pool->props->name);
        if (r == 0)
                r = add_text(md, ns->name);
        if (r == 0)
                r = add_text(md, l->model);
        if (r == 0)
                r = add_text(md, l->version);
        if (r == 0)
                r = add_bytes(md, l->salt, l->salt_len);
        if (r == 0)
                r = add_bytes(md, numbers, sizeof(numbers));
        /* Layouts without a format keep the identity that they had before formats existed. */
        if (r == 0 && l->format_len > 0)
                r = add_bytes(md, l->format, l->format_len);
        /* One codec for all layers keeps the identity from before codecs by layer. */
        if (r == 0 && ns->geometry.tiers[TIER_DISK].codec == CODEC_BY_LAYER)
                r = add_bytes(
                        md, &ns->codecs.of_pages.tiers[TIER_DISK], sizeof(struct codec_layers));
        return r;
}

/* Computes the id of a namespace's space on a disk, the same for every daemon; ns NULL: the id of
 * the tenant that owns spaces. SHA-256, so that no client can choose a name with another's id.
 * Returns 0; -ENOMEM; -EIO. */
static int space_identify(
        const struct tenant *t, const struct ns *ns, uint8_t ret_id[DISK_ID_BYTES])
{
        EVP_MD_CTX *md = EVP_MD_CTX_new();
        int r = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) ? 0 : -ENOMEM;

        static_assert(DISK_ID_BYTES == 32, "what SHA-256 makes");
        if (r == 0)
                r = ns ? add_identity(md, ns) : add_text(md, t->name);
        if (r == 0 && !EVP_DigestFinal_ex(md, ret_id, NULL))
                r = -EIO;
        EVP_MD_CTX_free(md);
        return r;
}

static struct disk_file *disk_of(const struct ns *ns)
{
        const struct pool *pool = ns->tiers[TIER_DISK].pool;

        return pool ? pool->disk : NULL;
}

static uint64_t hash_of(const struct ns *ns, const uint8_t key[KEY_BYTES])
{
        return store_hash_key(ns->store, key) >> 1; /* a map's key isn't UINT64_MAX */
}

/* ---- entries without a page, and pages without an entry -------------------------------------- */

/* Removes an entry; the namespace has a space. */
static void space_remove_entry(struct ns *ns, uint64_t at, const uint8_t key[KEY_BYTES])
{
        struct disk_ref ref = {.at = at};

        memcpy(ref.key, key, KEY_BYTES);
        (void)disk_remove(ns->space.disk, &ref, 1, NULL, NULL); /* without callback: never fails */
}

/* Are the page's bytes at `at` of the disk? */
static bool space_is_at(const struct ns *ns, uint32_t page, uint64_t at)
{
        return page != PAGE_NONE && tier_of_page(&ns->geometry, page) == TIER_DISK &&
               ns_extra(ns, page)->content == at;
}

void space_forget(struct ns *ns, uint32_t page)
{
        uint64_t at = ns_extra(ns, page)->content;
        const uint8_t *key = ns_page(ns, page)->key;
        uint32_t other = ns_find_page(ns, key);

        /* The page was invalidated before it was FREE, and its place has another page with that key
         * now. */
        if (ns->space.disk && (other == page || !space_is_at(ns, other, at)))
                space_remove_entry(ns, at, key);
}

void space_discard(struct ns *ns, uint64_t at, const uint8_t key[KEY_BYTES])
{
        if (ns->space.disk)
                space_remove_entry(ns, at, key);
}

/* Drops a page that isn't on the disk, and all pages below it. */
static void space_drop_page(struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        if (p->state == PAGE_SEALED && !ns_page_is_stale(ns, p))
                (void)ns_drop_subtree(ns, page, (struct drop_reason){.why = EVICT_PRESSURE});
}

/* ---- removing in slices ---------------------------------------------------------------------- */

/* All entries were removed, or the space is closed. Idempotent. */
static void space_stop_removing(struct ns *ns)
{
        ns->store->moving.n_removing -= ns->space.removes_unknown;
        ns->space.removes_unknown = false;
}

static uint32_t remove_some_unknown(struct ns *ns, uint32_t budget)
{
        struct ns_space *s = &ns->space;
        const struct disk_page *p;
        uint32_t n = 0;
        uint64_t at;

        for (; n < budget; n++) {
                uint8_t key[KEY_BYTES];

                if (!disk_page_next(s->disk, &s->unknown_iter, &p, &at)) {
                        space_stop_removing(ns);
                        break;
                }
                if (space_is_at(ns, ns_find_page(ns, p->key), at))
                        continue;
                memcpy(key, p->key, KEY_BYTES); /* the disk's own is freed with its entry */
                space_remove_entry(ns, at, key);
        }
        return n;
}

static uint32_t drop_some_missing(struct ns *ns, uint32_t budget)
{
        uint32_t end =
                tier_first_page(&ns->geometry, TIER_DISK) + tier_n_pages(&ns->geometry, TIER_DISK);
        struct ns_space *s = &ns->space;
        uint32_t n = 0;

        for (; n < budget && s->missing_page < end; n++) {
                uint32_t page = s->missing_page++;
                const struct page *p = ns_page(ns, page);

                if (!p) /* nor is the rest of its set bound */
                        s->missing_page +=
                                ns->geometry.set_pages - page % ns->geometry.set_pages - 1;
                else if (p->state == PAGE_SEALED &&
                         !disk_page_at(s->disk, ns_extra(ns, page)->content, p->key))
                        space_drop_page(ns, page);
        }
        s->drops_missing = s->missing_page < end;
        return n;
}

/* Continues space_drop_missing() and space_remove_unknown(). Returns the number of entries and
 * pages looked at, at most `budget`. */
static uint32_t space_clean(struct ns *ns, uint32_t budget)
{
        uint32_t n = 0;

        if (ns->space.drops_missing)
                n = drop_some_missing(ns, budget);
        if (ns->space.removes_unknown && n < budget)
                n += remove_some_unknown(ns, budget - n);
        return n;
}

static void begin_cleaning(struct ns *ns)
{
        (void)space_clean(ns, ns->store->drop_slice_pages);
        if (space_is_cleaning(&ns->space))
                store_wake_transfers(ns->store);
}

void space_drop_missing(struct ns *ns)
{
        ns->space.drops_missing = true;
        ns->space.missing_page = tier_first_page(&ns->geometry, TIER_DISK);
        begin_cleaning(ns);
}

/* Removes entries that belong to no page: a first slice at once, the rest by space_clean(). May
 * remove an entry that is being written; its write then fails. */
static void space_remove_unknown(struct ns *ns)
{
        ns->store->moving.n_removing += !ns->space.removes_unknown;
        ns->space.removes_unknown = true;
        ns->space.unknown_iter = 0;
        begin_cleaning(ns);
}

/* ---- entries become pages -------------------------------------------------------------------- */

static void forget_entries(struct ns_space *s)
{
        free(s->entries);
        s->entries = NULL;
        s->n_entries = s->room = s->n_left = s->claimed = 0;
        map_deinit(&s->heads);
}

/* Frees the entries once all are pages or removed. */
static void forget_where_over(struct ns_space *s)
{
        if (s->is_ready && s->n_left == 0)
                forget_entries(s);
}

/* Entries found at the start won't become pages any more. */
static void stop_sorting(struct ns *ns)
{
        ns->space.is_ready |= space_is_sorting(&ns->space);
        forget_entries(&ns->space);
}

/* Claims a chain by its first entry, in constant time. */
static void claim(struct ns_space *s, uint32_t first)
{
        s->entries[first].chain = s->claimed;
        s->claimed = 1 + first;
}

static uint32_t take_claimed(struct ns_space *s)
{
        uint32_t entry = s->claimed - 1;
        const struct space_entry *e = &s->entries[entry];

        s->claimed = e->chain;
        if (e->next > 0)
                claim(s, e->next - 1);
        s->n_left--;
        return entry;
}

/* Claims all entries that continue the page with this key. */
static void claim_after(struct ns *ns, const uint8_t key[KEY_BYTES])
{
        struct ns_space *s = &ns->space;
        uint64_t hash = hash_of(ns, key);
        const uint64_t *head = map_find(&s->heads, hash);
        uint32_t first = head ? (uint32_t)*head : 0;

        if (first == 0)
                return;
        map_remove(&s->heads, hash);
        claim(s, first - 1);
}

static void leave_unclaimed(struct ns_space *s, uint32_t entry)
{
        struct space_entry *e = &s->entries[entry];
        const uint64_t *head = map_find(&s->heads, e->parent);
        int r;

        e->next = head ? (uint32_t)*head : 0;
        r = map_put(&s->heads, e->parent, 1 + entry);
        assert(r == 0); /* memory was reserved for all */
        (void)r;
}

/* Takes a MOVING page of the disk's tier. PAGE_NONE: the tenant can't have more. */
static uint32_t take_place(struct ns *ns)
{
        struct extent_set *set =
                list_first(&ns->tiers[TIER_DISK].sets_room, struct extent_set, room_link);

        if (!set && set_bind_in(ns, TIER_DISK, NULL, &set, NULL) != 0)
                return PAGE_NONE;
        return set_take_page(set, &(struct page_use){.state = PAGE_MOVING});
}

static void fill_record(
        struct ns *ns, uint32_t page, const struct disk_page *d, uint64_t at, uint32_t parent)
{
        struct page *p = ns_page(ns, page);
        struct page_note *note = ns_note(ns, page);

        memcpy(p->key, d->key, KEY_BYTES);
        p->tokens = (uint16_t)d->tokens;
        p->epoch = (uint32_t)ns->epoch;
        note->was_found = 1; /* that is why it was written to the disk */
        note->depth = parent == PAGE_NONE ? 1 : ns_note(ns, parent)->depth + 1;
        p->end_token = (uint32_t)d->end_token;
        ns_make_extra(ns, page)->content = at;
        tag_store(ns, page, d->tag);
}

/* Makes the entry a page. Returns false if it can't be: the entry isn't needed. */
static bool enter_page(struct ns *ns, const struct disk_page *d, uint64_t at, uint32_t parent)
{
        uint64_t hash = shared_hash(&ns->shared, d->key);
        uint32_t page;

        if (d->tokens == 0 || d->tokens > ns->layout.page_tokens || d->end_token < d->tokens ||
                d->end_token > TEXT_TOKENS_MAX || (d->tag != 0 && tag_reserve(ns) < 0))
                return false;
        page = take_place(ns);
        if (page == PAGE_NONE)
                return false;
        fill_record(ns, page, d, at, parent);
        records_seal(ns, page, ns_page(ns, page)->generation, parent);
        shared_describe(ns, page);
        if (!shared_insert(ns, hash, page)) {
                tag_store(ns, page, 0);
                ns_free_page(ns, page);
                return false;
        }
        ns_set_state(ns, page, PAGE_SEALED);
        ns_page(ns, page)->published_sec = store_now_sec(ns->store);
        ns_note_use(ns, page);
        if (d->tag != 0)
                tag_enter(ns, page);
        ns_enter_tree(ns, page, parent);
        ns->evict->insert(ns->policy, page,
                &(struct evict_insert){.id = store_hash_key(ns->store, d->key),
                        .tokens = d->tokens,
                        .depth = ns_note(ns, page)->depth},
                ns->store->now_nsec);
        ns->evict->idle(ns->policy, page, ns->store->now_nsec);
        nsset_sealed(ns, page);
        return true;
}

static void look_at(struct ns *ns, const struct space_entry *e)
{
        static const uint8_t none[KEY_BYTES];
        const struct disk_page *d = disk_page_at(ns->space.disk, e->at, NULL);
        uint32_t page, parent = PAGE_NONE;
        struct disk_page is;
        bool stays;

        if (!d)
                return;
        is = *d; /* the disk's own is freed with its entry */
        page = ns_find_page(ns, is.key);
        stays = space_is_at(ns, page, e->at);
        if (page == PAGE_NONE) {
                bool begins = memcmp(is.parent, none, KEY_BYTES) == 0;

                if (!begins)
                        parent = ns_find_page(ns, is.parent);
                stays = (begins || parent != PAGE_NONE) && enter_page(ns, &is, e->at, parent);
        }
        if (!stays)
                space_remove_entry(ns, e->at, is.key);
        if (ns_find_page(ns, is.key) != PAGE_NONE)
                claim_after(ns, is.key);
}

static uint32_t look_at_some(struct ns *ns, uint32_t budget)
{
        struct ns_space *s = &ns->space;
        uint32_t n = 0;

        for (; n < budget && s->claimed > 0; n++) {
                const struct space_entry e = s->entries[take_claimed(s)];

                look_at(ns, &e);
        }
        forget_where_over(s);
        return n;
}

void space_note_sealed(struct ns *ns, uint32_t page)
{
        if (ns->space.n_left == 0)
                return;
        claim_after(ns, ns_page(ns, page)->key);
        if (ns->space.claimed > 0)
                store_wake_transfers(ns->store);
}

void space_drop_unclaimed(struct ns *ns)
{
        struct ns_space *s = &ns->space;

        /* The entries aren't known before the space is loaded, so all are removed for good. Without
         * memory for that, they are only ignored until the machine stops. */
        if (s->load && space_raise(ns) < 0)
                s->is_kept = true;
        if (!s->entries)
                return;
        stop_sorting(ns);
        space_remove_unknown(ns);
}

/* Looks at up to `budget` entries and returns their number. Entries that begin a text, or continue
 * an existing page, can become pages at once. After the last entry, new pages may be written to the
 * disk. */
static uint32_t sort_some(struct ns *ns, uint32_t budget)
{
        static const uint8_t none[KEY_BYTES];
        struct ns_space *s = &ns->space;
        const struct disk_page *p;
        uint32_t n = 0;
        uint64_t at;

        for (; n < budget; n++) {
                bool begins;

                if (s->n_entries == s->room || !disk_page_next(s->disk, &s->sort_iter, &p, &at)) {
                        s->is_ready = true;
                        forget_where_over(s);
                        break;
                }
                begins = memcmp(p->parent, none, KEY_BYTES) == 0;
                s->entries[s->n_entries] = (struct space_entry){
                        .at = at, .parent = begins ? 0 : hash_of(ns, p->parent)};
                if (begins || ns_find_page(ns, p->parent) != PAGE_NONE)
                        claim(s, s->n_entries);
                else
                        leave_unclaimed(s, s->n_entries);
                s->n_entries++;
                s->n_left++;
        }
        return n;
}

/* Sorts the first entries; a disk may have very many, so space_work() does the rest. */
static void begin_sorting(struct ns *ns)
{
        struct ns_space *s = &ns->space;
        struct disk_space_info info;

        disk_space_info(s->disk, &info);
        forget_entries(s);
        map_init(&s->heads);
        s->entries = calloc(info.n_pages + 1, sizeof(s->entries[0]));
        if (!s->entries || map_reserve(&s->heads, info.n_pages) < 0) {
                forget_entries(s); /* the entries are unknown, so they are removed */
                s->is_ready = true;
                space_remove_unknown(ns);
                return;
        }
        s->room = (uint32_t)MIN(info.n_pages, UINT32_MAX - 1);
        s->sort_iter = 0;
        (void)sort_some(ns, ns->store->drop_slice_pages);
}

/* ---- open, loading, ready -------------------------------------------------------------------- */

static void become_ready(struct ns *ns)
{
        if (ns->space.is_kept) {
                ns->space.is_ready = true;
                space_drop_missing(ns);
                space_remove_unknown(ns);
        } else {
                begin_sorting(ns);
        }
        ns->demotion.may_be_due = true;
        store_wake_transfers(ns->store);
}

static void on_loaded(int result, void *data)
{
        struct space_load *load = data;

        if (load->ns) {
                load->ns->space.load = NULL;
                if (result == 0 || result == -ECANCELED)
                        become_ready(load->ns);
        }
        free(load);
}

static int begin_load(struct ns *ns)
{
        struct space_load *load = calloc(1, sizeof(*load));
        int r;

        if (!load)
                return -ENOMEM;
        load->ns = ns;
        r = disk_space_load(ns->space.disk, on_loaded, load);
        if (r == 0) {
                ns->space.load = load;
                return 0;
        }
        free(load);
        if (r != -EALREADY)
                return r;
        become_ready(ns); /* the namespace was freed and made again */
        return 0;
}

static void leave_disk(struct ns *ns)
{
        struct ns_space *s = &ns->space;

        if (s->load)
                s->load->ns = NULL;
        space_stop_removing(ns);
        forget_entries(s);
        *s = (struct ns_space){.is_kept = s->is_kept};
}

/* The namespace has no space: no page can be on the disk. */
static void have_none(struct ns *ns)
{
        leave_disk(ns);
        space_drop_missing(ns);
}

static int find_or_make(struct ns *ns)
{
        uint8_t id[DISK_ID_BYTES], owner[DISK_ID_BYTES];
        struct disk_file *d = disk_of(ns);
        int r = space_identify(ns->tenant, ns, id);

        if (r == 0)
                r = space_identify(ns->tenant, NULL, owner);
        if (r < 0)
                return r;
        ns->space.disk = disk_space_find(d, id);
        if (ns->space.disk)
                return 0;
        return disk_space_new(
                d, id, owner, 1, ns->geometry.tiers[TIER_DISK].stored_bytes, &ns->space.disk);
}

int space_open(struct ns *ns, bool is_kept)
{
        int r;

        ns->space = (struct ns_space){.is_kept = is_kept};
        if (!ns->tiers[TIER_DISK].pool)
                return 0;
        r = disk_of(ns) ? find_or_make(ns) : -ENODEV;
        if (r == 0)
                r = begin_load(ns);
        if (r < 0)
                have_none(ns);
        return r;
}

void space_close(struct ns *ns, bool is_kept)
{
        /* Finishes the removals now: no later code would remember them. */
        while (ns->space.removes_unknown && !is_kept)
                (void)space_clean(ns, UINT32_MAX);
        leave_disk(ns);
}

int space_erase(struct ns *ns)
{
        int r = ns->space.disk ? disk_drop(ns->space.disk, space_on_durable, NULL) : 0;

        if (r == 0)
                leave_disk(ns);
        return r;
}

void space_renew(struct ns *ns)
{
        leave_disk(ns); /* the old version's space was raised, so it is empty */
        (void)space_open(ns, false);
}

int space_raise(struct ns *ns)
{
        struct disk_space_info info;
        int r;

        if (!ns->space.disk)
                return 0;
        disk_space_info(ns->space.disk, &info);
        r = disk_raise(ns->space.disk, info.generation + 1, space_on_durable, NULL);
        if (r == 0) {
                stop_sorting(ns);
                space_stop_removing(ns);
        }
        return r;
}

/* ---- making space ---------------------------------------------------------------------------- */

static struct ns *find_ns(const struct store *s, const struct disk_space *space)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        if (ns->space.disk == space)
                                return ns;
        return NULL;
}

static bool has_owner(const struct disk_space *space, const uint8_t owner[DISK_ID_BYTES])
{
        struct disk_space_info info;

        disk_space_info(space, &info);
        return memcmp(info.owner, owner, DISK_ID_BYTES) == 0;
}

void space_erase_unopened(const struct tenant *t)
{
        uint8_t owner[DISK_ID_BYTES];

        if (space_identify(t, NULL, owner) < 0)
                return;
        list_for_each (pool, &t->store->lower_pools, struct pool, link) {
                struct disk_space *next, *s = pool->disk ? disk_space_next(pool->disk, NULL) : NULL;

                for (; s; s = next) {
                        next = disk_space_next(pool->disk, s);
                        if (has_owner(s, owner) && !find_ns(t->store, s))
                                (void)disk_drop(s, space_on_durable, NULL);
                }
        }
}

static bool is_somebodys(const struct store *s, const struct disk_space *space)
{
        list_for_each (t, &s->tenants, struct tenant, link) {
                uint8_t owner[DISK_ID_BYTES];

                if (space_identify(t, NULL, owner) < 0 || has_owner(space, owner))
                        return true;
        }
        return false;
}

void space_erase_strangers(const struct store *s)
{
        list_for_each (pool, &s->lower_pools, struct pool, link) {
                struct disk_space *next,
                        *each = pool->disk ? disk_space_next(pool->disk, NULL) : NULL;

                for (; each; each = next) {
                        next = disk_space_next(pool->disk, each);
                        if (!is_somebodys(s, each))
                                (void)disk_drop(each, space_on_durable, NULL);
                }
        }
}

/* Returns the slots of the space's chunks without a page of a namespace. */
static uint64_t slack_of(
        const struct ns *ns, const struct disk_space *space, const struct disk_space_info *info)
{
        uint64_t n_slots = (uint64_t)info->n_chunks * disk_space_chunk_slots(space);
        uint64_t n_pages = ns ? ns->tiers[TIER_DISK].n_pages[PAGE_SEALED] : 0;

        return n_slots - MIN(n_slots, n_pages);
}

struct gone {
        struct disk_ref *refs;
        uint32_t n, n_max;
};

static void note_gone(const struct disk_page *page, uint64_t at, void *data)
{
        struct gone *g = data;

        if (g->n == g->n_max)
                return;
        g->refs[g->n].at = at;
        memcpy(g->refs[g->n++].key, page->key, KEY_BYTES);
}

/* Gives back the space's least recently used chunk. */
static bool give_chunk(struct ns *ns, struct disk_space *space)
{
        struct gone g = {.n_max = disk_space_chunk_slots(space)};
        bool went;

        g.refs = calloc(g.n_max, sizeof(g.refs[0]));
        if (!g.refs)
                return false;
        went = disk_give_chunk(space, note_gone, &g) == 0;
        for (uint32_t i = 0; i < g.n; i++) {
                uint32_t page = ns_find_page(ns, g.refs[i].key);

                if (space_is_at(ns, page, g.refs[i].at))
                        space_drop_page(ns, page);
        }
        free(g.refs);
        return went;
}

static bool drop_victims(struct ns *ns, uint32_t n)
{
        uint32_t n_gone = 0;

        while (n_gone < n) {
                uint32_t page = ns_victim(ns, TIER_DISK, EVICT_DROP);

                if (page == NODE_NONE && ns_yield_expected(ns, TIER_DISK, EVICT_DROP))
                        continue;
                if (page == NODE_NONE)
                        break;
                n_gone += ns_evict_leaf(ns, page, NULL);
        }
        return n_gone == n;
}

/* Takes a chunk from a space that isn't opened, if there is one; else from the space with the most
 * chunks beyond its pages' needs. */
bool space_make_room(struct ns *ns, uint32_t n)
{
        struct store *store = ns->store;
        struct disk_file *d = disk_of(ns);
        struct disk_space *best = NULL, *unopened = NULL, *largest = NULL;
        uint64_t most = 0;
        uint32_t chunks = 1;

        for (struct disk_space *s = disk_space_next(d, NULL); s; s = disk_space_next(d, s)) {
                const struct ns *owner = find_ns(store, s);
                struct disk_space_info info;
                uint64_t slack;

                disk_space_info(s, &info);
                slack = slack_of(owner, s, &info) / disk_space_chunk_slots(s);
                if (!owner && info.n_chunks > 0)
                        unopened = s;
                if (owner && info.is_loaded && slack > most) {
                        most = slack;
                        best = s;
                }
                if (owner && info.is_loaded && info.n_chunks > chunks) {
                        chunks = info.n_chunks;
                        largest = s;
                }
        }
        if (unopened)
                return disk_drop(unopened, space_on_durable, NULL) == 0;
        if (best)
                return give_chunk(find_ns(store, best), best);
        if (drop_victims(ns, n))
                return true;
        return largest && give_chunk(find_ns(store, largest), largest);
}

/* ---- promises -------------------------------------------------------------------------------- */

struct promise {
        struct list_link link; /* store.promises, until no removal is under way */
        struct store *store;
        unsigned n_left; /* disks without an answer, and the caller itself */
        int result;
        space_fn done;
        void *data;
};

static void end_one(struct promise *p)
{
        if (--p->n_left > 0)
                return;
        p->done(p->result, p->data);
        free(p);
}

static void on_kept(int result, void *data)
{
        struct promise *p = data;

        if (result < 0)
                p->result = result;
        end_one(p);
}

/* Returns how many disks will answer; sets p->result if one won't. */
static unsigned ask_disks(struct promise *p)
{
        unsigned n = 0;

        batch_unwrite_gone(p->store);
        list_for_each (pool, &p->store->lower_pools, struct pool, link) {
                int r;

                if (!pool->disk || p->result < 0)
                        continue;
                p->n_left++;
                r = disk_remove_sync(pool->disk, on_kept, p);
                if (r < 0) {
                        p->n_left--;
                        p->result = r;
                } else {
                        n++;
                }
        }
        return n;
}

int space_promise(struct store *s, space_fn done, void *data)
{
        struct promise *p = calloc(1, sizeof(*p));

        if (!p)
                return -ENOMEM;
        *p = (struct promise){.store = s, .n_left = 1, .done = done, .data = data};
        if (s->moving.n_removing > 0) {
                list_append(&s->moving.promises, &p->link);
                return 0;
        }
        if (ask_disks(p) == 0) {
                int r = p->result;

                free(p);
                return r < 0 ? r : SPACE_KEPT;
        }
        end_one(p);
        return 0;
}

/* Begins the promises that waited for removals, if no removal is left. */
static void space_begin_promises(struct store *s)
{
        if (s->moving.n_removing > 0)
                return;
        list_for_each_safe (p, &s->moving.promises, struct promise, link) {
                list_remove(&p->link);
                (void)ask_disks(p);
                end_one(p);
        }
}

void space_cancel_promises(struct store *s)
{
        list_for_each_safe (p, &s->moving.promises, struct promise, link) {
                list_remove(&p->link);
                p->result = -ECANCELED;
                end_one(p);
        }
}

/* ---- work ------------------------------------------------------------------------------------ */

static bool work_on_space(struct ns *ns, uint32_t *budget)
{
        if (ns->space.disk && disk_state(disk_of(ns)) == DISK_OFF)
                have_none(ns);
        if (space_is_cleaning(&ns->space))
                *budget -= space_clean(ns, *budget);
        else if (space_is_sorting(&ns->space))
                *budget -= sort_some(ns, *budget);
        else if (ns->space.claimed > 0)
                *budget -= MIN(*budget, look_at_some(ns, *budget));
        return space_is_cleaning(&ns->space) || space_is_sorting(&ns->space) ||
               ns->space.claimed > 0;
}

bool space_work(struct store *s, uint32_t budget)
{
        bool more = false;

        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        more |= work_on_space(ns, &budget);
        space_begin_promises(s);
        if (more)
                store_wake_transfers(s);
        return more;
}

/* ---- check ----------------------------------------------------------------------------------- */

bool space_has(const struct ns *ns, uint32_t page)
{
        return !space_takes(ns) || ns->space.drops_missing ||
               ns_set_of(ns, page)->moving.n_busy > 0 ||
               disk_page_at(ns->space.disk, ns_extra(ns, page)->content, ns_page(ns, page)->key);
}
