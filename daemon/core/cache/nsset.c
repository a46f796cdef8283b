#include "daemon/core/cache/nsset.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/history.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/nsset-keys.h"

static uint64_t bit_of(const struct ns *ns)
{
        return UINT64_C(1) << ns->catalog.set_place;
}

/* ---- entries --------------------------------------------------------------------------------- */

static uint64_t hash_of(const struct nsset_keys *keys, const uint8_t *key)
{
        return hash_bytes(keys->seed, key, KEY_BYTES) >> 1; /* never MAP_KEY_NONE */
}

static struct nsset_key *first_of(const struct nsset_keys *keys, uint64_t hash)
{
        const uint64_t *value = map_find(&keys->by_hash, hash);

        return value ? (struct nsset_key *)(uintptr_t)*value : NULL;
}

static struct nsset_key *find_key(const struct nsset *set, const uint8_t *key)
{
        struct nsset_key *e = first_of(set->keys, hash_of(set->keys, key));

        while (e && memcmp(e->key, key, KEY_BYTES) != 0)
                e = e->same;
        return e;
}

static void put_first(struct nsset_keys *keys, uint64_t hash, const struct nsset_key *e)
{
        int r = map_put(&keys->by_hash, hash, (uintptr_t)e);

        assert(r == 0); /* memory was reserved */
        (void)r;
}

static struct nsset_key *add_key(struct nsset *set, const uint8_t *key)
{
        struct nsset_keys *keys = set->keys;
        struct nsset_key *e = list_first(&keys->spare, struct nsset_key, link);
        uint64_t hash = hash_of(keys, key);

        assert(e); /* memory was reserved */
        list_remove(&e->link);
        keys->n_used++;
        memcpy(e->key, key, KEY_BYTES);
        e->same = first_of(keys, hash);
        put_first(keys, hash, e);
        return e;
}

static void drop_key_entry(struct nsset *set, struct nsset_key *e)
{
        struct nsset_keys *keys = set->keys;
        uint64_t hash = hash_of(keys, e->key);
        struct nsset_key *first = first_of(keys, hash), *before = first;

        if (first == e && !e->same)
                map_remove(&keys->by_hash, hash);
        else if (first == e)
                put_first(keys, hash, e->same);
        else {
                while (before->same != e)
                        before = before->same;
                before->same = e->same;
        }
        list_append(&keys->spare, &e->link);
        keys->n_used--;
}

static bool is_complete(const struct nsset *set, uint64_t here)
{
        return (uint32_t)__builtin_popcountll(here) == set->size;
}

/* Changes where a key is; all code uses this function. Frees the entry of a key that is nowhere. */
static void update(
        struct nsset *set, struct nsset_key *e, uint64_t here, uint64_t doomed, uint64_t now_nsec)
{
        bool was_complete = is_complete(set, e->here), is_now_complete = is_complete(set, here);
        bool was_incomplete = e->here != 0 && !was_complete;
        bool is_incomplete = here != 0 && !is_now_complete;

        set->n_complete += (uint64_t)is_now_complete - was_complete;
        set->n_incomplete += (uint64_t)is_incomplete - was_incomplete;
        if (is_incomplete && !was_incomplete) {
                e->since_nsec = now_nsec;
                list_append(&set->keys->incomplete, &e->link);
        } else if (!is_incomplete) {
                e->is_given_up = false;
                list_remove(&e->link);
        }
        if (doomed == 0)
                list_remove(&e->doomed_link);
        else if (e->doomed == 0)
                list_append(&set->keys->doomed, &e->doomed_link);
        e->here = here;
        e->doomed = doomed;
        if ((here | doomed) == 0)
                drop_key_entry(set, e);
}

/* Lets an incomplete key stay. */
static void give_up(struct nsset_key *e)
{
        e->is_given_up = true;
        list_remove(&e->link);
}

/* Dooms the key wherever it is still cached. */
static void doom(struct nsset *set, struct nsset_key *e, uint64_t where, enum evict_reason why,
        enum drop_cause cause, uint64_t now_nsec)
{
        e->why = (uint8_t)why;
        e->cause = (uint8_t)cause;
        update(set, e, 0, e->doomed | where, now_nsec);
}

/* ---- sets ------------------------------------------------------------------------------------ */

static struct nsset *find_set(const struct tenant *t, const char *name)
{
        list_for_each (set, &t->nssets, struct nsset, link)
                if (strcmp(set->name, name) == 0)
                        return set;
        return NULL;
}

static struct nsset *set_new(struct tenant *t, const char *name, uint32_t size)
{
        struct nsset *set = calloc(1, sizeof(*set));
        struct nsset_keys *keys = set ? calloc(1, sizeof(*keys)) : NULL;

        if (!keys) {
                free(set);
                return NULL;
        }
        keys->seed = hash_seed_random();
        map_init(&keys->by_hash);
        list_init(&keys->chunks);
        list_init(&keys->spare);
        list_init(&keys->incomplete);
        list_init(&keys->doomed);
        set->keys = keys;
        set->id = state_next(&t->store->state->last_nsset_id);
        set->size = size;
        memcpy(set->name, name, strlen(name) + 1);
        list_append(&t->nssets, &set->link);
        return set;
}

static void set_free(struct nsset *set)
{
        list_for_each_safe (c, &set->keys->chunks, struct nsset_chunk, link)
                free(c);
        map_deinit(&set->keys->by_hash);
        free(set->keys);
        list_remove(&set->link);
        free(set);
}

static int check_size(const struct nsset *set, uint32_t size, struct detail *d)
{
        if (set->size != size)
                return detail_set(d, -EINVAL,
                        "set %s has %u namespaces when it is complete, not %u: all of them name the same set_size",
                        set->name, set->size, size);
        if (set->n_members == set->size)
                return detail_set(d, -EINVAL,
                        "set %s has its %u namespaces already; another needs a set of another name",
                        set->name, set->size);
        return 0;
}

int nsset_join(struct ns *ns, const char *name, uint32_t size, struct detail *d)
{
        struct nsset *set;
        int r;

        assert(!ns->catalog.set && ns_n_sets(ns) == 0);

        if (!ns_name_is_valid(name))
                return detail_set(d, -EINVAL,
                        "a set's name is 1 to %d of A-Z a-z 0-9 . _ - @ and starts with none of . - @",
                        NS_NAME_MAX);
        if (size < 2 || size > NSSET_MAX_SIZE)
                return detail_set(
                        d, -EINVAL, "set_size is %u: 2 to %d are allowed", size, NSSET_MAX_SIZE);
        set = find_set(ns->tenant, name);
        r = set ? check_size(set, size, d) : 0;
        if (r < 0)
                return r;
        if (!set)
                set = set_new(ns->tenant, name, size);
        if (!set)
                return detail_set(d, -ENOMEM, "no memory for set %s", name);
        while (set->members[ns->catalog.set_place])
                ns->catalog.set_place++;
        set->members[ns->catalog.set_place] = ns;
        set->n_members++;
        ns->catalog.set = set;
        return 0;
}

void nsset_leave(struct ns *ns)
{
        struct nsset *set = ns->catalog.set;

        if (!set)
                return;
        list_for_each (c, &set->keys->chunks, struct nsset_chunk, link)
                for (size_t i = 0; i < c->n; i++) {
                        struct nsset_key *e = &c->entries[i];

                        if ((e->here | e->doomed) & bit_of(ns))
                                update(set, e, e->here & ~bit_of(ns), e->doomed & ~bit_of(ns),
                                        ns->store->now_nsec);
                }
        set->members[ns->catalog.set_place] = NULL;
        ns->catalog.set = NULL;
        ns->catalog.set_place = 0;
        if (--set->n_members == 0)
                set_free(set);
}

/* ---- events of pages ------------------------------------------------------------------------- */

void nsset_sealed(struct ns *ns, uint32_t page)
{
        const uint8_t *key = ns_page(ns, page)->key;
        struct nsset_key *e;

        if (!ns->catalog.set)
                return;
        e = find_key(ns->catalog.set, key);
        if (!e)
                e = add_key(ns->catalog.set, key);
        /* No other page of this namespace had the key. */
        update(ns->catalog.set, e, e->here | bit_of(ns), e->doomed & ~bit_of(ns),
                ns->store->now_nsec);
}

void nsset_gone(struct ns *ns, uint32_t page, struct drop_reason reason)
{
        struct nsset_key *e =
                ns->catalog.set ? find_key(ns->catalog.set, ns_page(ns, page)->key) : NULL;
        struct store *s = ns->store;
        uint64_t bit, rest;

        if (!e)
                return;
        bit = bit_of(ns);
        rest = e->here & ~bit;
        if (e->doomed & bit) {
                update(ns->catalog.set, e, e->here, e->doomed & ~bit, s->now_nsec);
        } else if (reason.cause == CAUSE_SESSION) {
                /* Each rank gives up its own pages: the others' sessions still have theirs. */
                update(ns->catalog.set, e, rest, e->doomed, s->now_nsec);
                if (rest != 0)
                        give_up(e);
        } else if (e->here & bit) {
                doom(ns->catalog.set, e, rest, reason.why,
                        reason.cause ? reason.cause : CAUSE_INCOMPLETE, s->now_nsec);
                if (s->owner.on_work)
                        s->owner.on_work(s->owner.data);
        }
}

void nsset_swept(struct ns *ns, uint32_t page)
{
        const uint8_t *key = ns_page(ns, page)->key;
        struct nsset_key *e = ns->catalog.set ? find_key(ns->catalog.set, key) : NULL;

        /* Was the key published again since the namespace was invalidated? */
        if (!e || ns_find_page(ns, key) != PAGE_NONE)
                return;
        update(ns->catalog.set, e, e->here & ~bit_of(ns), e->doomed & ~bit_of(ns),
                ns->store->now_nsec);
}

void nsset_keep_incomplete(struct nsset *set)
{
        struct nsset_key *e;

        while ((e = list_first(&set->keys->incomplete, struct nsset_key, link)))
                give_up(e);
}

uint64_t nsset_where(const struct nsset *set, const uint8_t key[KEY_BYTES])
{
        const struct nsset_key *e = find_key(set, key);

        return e ? e->here : 0;
}

/* Is the key pinned in one of these namespaces? */
static bool is_pinned(const struct nsset *set, const struct nsset_key *e, uint64_t where)
{
        for (; where != 0; where &= where - 1) {
                const struct ns *ns = set->members[__builtin_ctzll(where)];
                uint32_t page = ns_find_page(ns, e->key);

                if (page != PAGE_NONE && ns_is_pinned(ns, page))
                        return true;
        }
        return false;
}

bool nsset_may_evict(const struct ns *ns, uint32_t page)
{
        const struct nsset_key *e =
                ns->catalog.set ? find_key(ns->catalog.set, ns_page(ns, page)->key) : NULL;

        return !e || !is_pinned(ns->catalog.set, e, e->here & ~bit_of(ns));
}

struct held {
        const struct ns *of, *in;
        void (*fn)(uint32_t page, void *data);
        void *data;
};

static void note_held(uint32_t page, void *data)
{
        const struct held *h = data;
        const struct page *p = ns_page(h->in, page);
        uint32_t same = p->state == PAGE_SEALED && !ns_page_is_stale(h->in, p)
                                ? ns_find_page(h->of, p->key)
                                : PAGE_NONE;

        if (same != PAGE_NONE)
                h->fn(same, h->data);
}

void nsset_find_held(const struct ns *ns, void (*fn)(uint32_t page, void *data), void *data)
{
        for (uint32_t i = 0; ns->catalog.set && i < ns->catalog.set->size; i++) {
                struct held held = {ns, ns->catalog.set->members[i], fn, data};

                if (held.in && held.in != ns)
                        ns_find_pinned(held.in, note_held, &held);
        }
}

/* ---- work ------------------------------------------------------------------------------------ */

static uint64_t next_deadline(const struct nsset *set)
{
        const struct nsset_key *e = list_first(&set->keys->incomplete, struct nsset_key, link);

        return e ? e->since_nsec + NSSET_GRACE_NSEC : UINT64_MAX;
}

/* Dooms old incomplete keys. A pinned key stays for another grace time. */
static void expire_incomplete(struct nsset *set, uint64_t now_nsec, uint32_t budget)
{
        for (; budget > 0 && next_deadline(set) <= now_nsec; budget--) {
                struct nsset_key *e = list_first(&set->keys->incomplete, struct nsset_key, link);

                if (is_pinned(set, e, e->here)) {
                        e->since_nsec = now_nsec;
                        list_remove(&e->link);
                        list_append(&set->keys->incomplete, &e->link);
                        continue;
                }
                set->n_dropped++;
                doom(set, e, e->here, EVICT_INVALIDATE, CAUSE_INCOMPLETE, now_nsec);
        }
}

/* Drops the key's page and all below it in one namespace: at most `budget` looks, and the rest in
 * tasks_work() while other keys come first. Returns the number of looks, > 0. */
static uint64_t drop_one(struct nsset *set, struct nsset_key *e, uint32_t budget)
{
        struct ns *ns = set->members[__builtin_ctzll(e->doomed)];
        uint32_t page = ns_find_page(ns, e->key);
        uint64_t n;

        if (page == PAGE_NONE) { /* a client removed its slot, or the page is stale */
                update(set, e, e->here, e->doomed & ~bit_of(ns), ns->store->now_nsec);
                return 1;
        }
        list_remove(&e->doomed_link);
        list_append(&set->keys->doomed, &e->doomed_link);
        n = drop_below_soon(
                ns, page, (struct drop_reason){.why = e->why, .cause = e->cause}, budget);
        return MAX(n, UINT64_C(1));
}

static bool work_on_set(struct nsset *set, uint64_t now_nsec, uint32_t budget)
{
        expire_incomplete(set, now_nsec, budget);
        while (budget > 0 && !list_is_empty(&set->keys->doomed))
                budget -= (uint32_t)drop_one(
                        set, list_first(&set->keys->doomed, struct nsset_key, doomed_link), budget);
        return !list_is_empty(&set->keys->doomed) || next_deadline(set) <= now_nsec;
}

bool nssets_work(struct store *s, uint32_t budget)
{
        bool more = false;

        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (set, &t->nssets, struct nsset, link)
                        more |= work_on_set(set, s->now_nsec, budget);
        return more;
}

uint64_t nssets_deadline(const struct store *s)
{
        uint64_t first = UINT64_MAX;

        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (set, &t->nssets, struct nsset, link)
                        first = MIN(first, next_deadline(set));
        return first;
}

/* ---- check ----------------------------------------------------------------------------------- */

static const char *check_entry(const struct nsset *set, const struct nsset_key *e)
{
        for (uint32_t i = 0; i < NSSET_MAX_SIZE; i++)
                if (((e->here | e->doomed) >> i & 1) && (i >= set->size || !set->members[i]))
                        return "has a key in a namespace that it doesn't have";
        if (e->here & e->doomed)
                return "has a key that is to stay and to go";
        if (find_key(set, e->key) != e)
                return "has a key that isn't found";
        if (list_is_empty(&e->doomed_link) != (e->doomed == 0))
                return "lists a doomed key wrong";
        if (list_is_empty(&e->link) !=
                (e->here == 0 || is_complete(set, e->here) || e->is_given_up))
                return "lists an incomplete key wrong";
        if (e->is_given_up && (e->here == 0 || is_complete(set, e->here)))
                return "has a key that is given up, and complete or nowhere";
        return NULL;
}

static const char *check_entries(const struct nsset *set)
{
        uint64_t n_complete = 0, n_incomplete = 0, n_used = 0, n = 0;
        const char *why = NULL;

        list_for_each (c, &set->keys->chunks, struct nsset_chunk, link)
                for (size_t i = 0; i < c->n && !why; i++, n++) {
                        const struct nsset_key *e = &c->entries[i];

                        if ((e->here | e->doomed) == 0)
                                continue;
                        n_used++;
                        n_complete += is_complete(set, e->here);
                        n_incomplete += e->here != 0 && !is_complete(set, e->here);
                        why = check_entry(set, e);
                }
        if (!why && (n != set->keys->n_entries || n_used != set->keys->n_used ||
                            n < nsset_count_pages(set)))
                why = "counts its keys, or the room for them, wrong";
        if (!why && (n_complete != set->n_complete || n_incomplete != set->n_incomplete))
                why = "counts complete or incomplete keys wrong";
        return why;
}

/* The set must know the namespace's findable pages, and may know others that wait for the sweep. */
static const char *check_member(const struct nsset *set, const struct ns *ns)
{
        uint32_t set_pages = ns->geometry.set_pages;
        uint64_t n = 0, n_listed = 0;

        ns_for_each_set (s, ns)
                for (uint32_t i = 0; i < set_pages; i++) {
                        const struct page *p = &s->pages[i];
                        const struct nsset_key *e;

                        if (p->state != PAGE_SEALED || ns_page_is_stale(ns, p))
                                continue;
                        e = find_key(set, p->key);
                        if (!e || !((e->here | e->doomed) & bit_of(ns)))
                                return "doesn't know a key that is cached";
                        n++;
                }
        list_for_each (c, &set->keys->chunks, struct nsset_chunk, link)
                for (size_t i = 0; i < c->n; i++)
                        n_listed += ((c->entries[i].here | c->entries[i].doomed) & bit_of(ns)) != 0;
        return n_listed >= n && n_listed <= n + ns->catalog.n_stale ? NULL
                                                                    : "has keys that aren't cached";
}

const char *nsset_check(const struct nsset *set)
{
        const char *why = check_entries(set);
        uint32_t n = 0;

        for (uint32_t i = 0; i < NSSET_MAX_SIZE && !why; i++) {
                const struct ns *ns = set->members[i];

                if (!ns)
                        continue;
                n++;
                why = ns->catalog.set == set && ns->catalog.set_place == i
                              ? check_member(set, ns)
                              : "has a namespace in another place";
        }
        return why || n == set->n_members ? why : "counts its namespaces wrong";
}
