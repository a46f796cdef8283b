/* The index of a namespace where many keys want the same buckets (daemon/core/state/shared.h). */
#include "daemon/core/cache/pages.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/state/shared.h"
#include "tests/unit/shared-fixture.h"

static uint32_t bucket_of(const struct world *w, unsigned key, uint32_t n)
{
        uint8_t bytes[KEY_BYTES];

        make_keys(bytes, key, 1);
        return shm_bucket_index(shared_hash(&w->ns->shared, bytes), w->ns->shared.n_buckets, n);
}

/* The next key from *next on whose home it is. */
static unsigned find_key(const struct world *w, unsigned *next, uint32_t home)
{
        while (bucket_of(w, *next, 0) != home)
                (*next)++;
        return (*next)++;
}

static uint32_t bucket_with(const struct world *w, uint32_t page)
{
        const struct shared *s = &w->ns->shared;

        for (uint32_t i = 0; i < s->n_buckets * SHM_BUCKET_SLOTS; i++)
                if ((uint32_t)s->buckets[i / SHM_BUCKET_SLOTS].slots[i % SHM_BUCKET_SLOTS] ==
                        page + 1)
                        return i / SHM_BUCKET_SLOTS;
        return UINT32_MAX;
}

static unsigned count_used(const struct world *w, uint32_t bucket)
{
        unsigned n = 0;

        for (uint32_t i = 0; i < SHM_BUCKET_SLOTS; i++)
                n += w->ns->shared.buckets[bucket].slots[i] != 0;
        return n;
}

/* Both buckets full of findable pages: published, not found, freed after its last pin. */
TEST(test_page_without_a_slot)
{
        _Atomic uint64_t saved[2 * SHM_BUCKET_SLOTS];
        struct shm_bucket *home, *next;
        uint32_t page, child, filler;
        unsigned other = 100;
        uint8_t key[KEY_BYTES];
        struct world w;
        uint64_t hash;

        start(&w, 4);
        while (bucket_of(&w, other, 0) == bucket_of(&w, 2, 1))
                other++; /* it couldn't go anywhere else */
        filler = publish_root(&w, other);
        make_keys(key, 2, 1);
        hash = shared_hash(&w.ns->shared, key);
        home = &w.ns->shared.buckets[shm_bucket_index(hash, w.ns->shared.n_buckets, 0)];
        next = &w.ns->shared.buckets[shm_bucket_index(hash, w.ns->shared.n_buckets, 1)];
        for (int i = 0; i < SHM_BUCKET_SLOTS; i++) {
                saved[i] = home->slots[i];
                saved[SHM_BUCKET_SLOTS + i] = next->slots[i];
                home->slots[i] = next->slots[i] = shm_slot(0, filler);
        }
        page = lease_one(&w);
        pin(&w, page);
        submit_one(w.m, &w.chain,
                &(struct shm_submission){.op = SHM_OP_PUBLISH,
                        .flags = SHM_PUBLISH_ROOT,
                        .tokens = 1,
                        .ns_id = w.a->id,
                        .page = page,
                        .key = {3}},
                1, &(struct submit_result){0});
        for (int i = 0; i < SHM_BUCKET_SLOTS; i++) {
                home->slots[i] = saved[i];
                next->slots[i] = saved[SHM_BUCKET_SLOTS + i];
        }
        assert_int_equal(memcmp(key, (uint8_t[KEY_BYTES]){3}, KEY_BYTES), 0);
        assert_int_equal(w.f.store.counters.unindexed, 1);
        assert_int_equal(seen(&w, 2), PAGE_NONE);
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_DETACHED);
        /* Its children are no more findable than it is, and no failure either. */
        child = lease_one(&w);
        pin(&w, child);
        w.chain = (struct submit_chain){
                .ns_id = w.a->id, .page = page, .generation = ns_page(w.ns, page)->generation};
        assert_int_equal(submit(&w, publishing(child, 3, SHM_PUBLISH_CHAIN)).status, 0);
        assert_int_equal(w.f.store.counters.unindexed, 2);
        unpin(&w, page);
        unpin(&w, child);
        ns_look_again(w.ns, UINT32_MAX);
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_FREE);
        end(&w);
}

#define HALF     (SHM_BUCKET_SLOTS / 2)
#define MAX_KEYS (9 * HALF)
#define N_SETS   5 /* for one page more */

struct keys {
        unsigned keys[MAX_KEYS], n, next;
        uint32_t pages[MAX_KEYS];
};

/* Publishes so many keys with that home. All that were before are seen, too. */
static void publish_at(struct world *w, struct keys *k, uint32_t home, unsigned n)
{
        while (n-- > 0) {
                k->keys[k->n] = find_key(w, &k->next, home);
                k->pages[k->n] = publish_root(w, k->keys[k->n]);
                k->n++;
                for (unsigned i = 0; i < k->n; i++)
                        assert_int_equal(seen(w, k->keys[i]), k->pages[i]);
        }
}

/*
 * The buckets 1 to 4 are full: 1 of its own keys; 2 and 4 of their own and of those of 1 and 3; 3
 * of its own. The next key of 1 goes to 2, one of 2 to 3, one of 3 to 4, one of 4 to 5, until 2 has
 * none of its own any more.
 */
TEST(test_full_buckets_make_room)
{
        struct keys k = {.next = 1};
        struct world w;
        uint64_t n_pages;
        uint32_t page;

        start(&w, N_SETS);
        publish_at(&w, &k, 2, HALF);
        publish_at(&w, &k, 4, HALF);
        publish_at(&w, &k, 3, 3 * HALF);
        publish_at(&w, &k, 1, 3 * HALF);
        for (uint32_t b = 1; b <= 4; b++)
                assert_int_equal(count_used(&w, b), SHM_BUCKET_SLOTS);
        for (unsigned i = 0; i < HALF; i++) {
                assert_int_equal(bucket_with(&w, k.pages[i]), 2);
                assert_int_equal(bucket_with(&w, k.pages[HALF + i]), 4);
        }
        publish_at(&w, &k, 1, HALF);
        for (unsigned i = 0; i < HALF; i++) {
                assert_int_equal(bucket_with(&w, k.pages[i]), 3);
                assert_int_equal(bucket_with(&w, k.pages[HALF + i]), 5);
        }
        assert_int_equal(w.f.store.counters.unindexed, 0);
        /* Where a client wants more than there is: that key isn't found, all others are. */
        page = publish_root(&w, find_key(&w, &k.next, 1));
        assert_int_equal(w.f.store.counters.unindexed, 1);
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_DETACHED);
        for (unsigned i = 0; i < k.n; i++)
                assert_int_equal(seen(&w, k.keys[i]), k.pages[i]);
        fixture_check(&w.f);
        /* Moved entries are removed like all others. */
        unpin(&w, page);
        for (unsigned i = 0; i < k.n; i++)
                unpin(&w, k.pages[i]);
        assert_int_equal(ns_invalidate(w.ns, CAUSE_NAMESPACE, &n_pages), 0);
        end(&w);
}

/* Looks them all up over the socket. Returns how many are found, as they should be, and released.
 */
static uint32_t look_up(struct world *w, const struct keys *k)
{
        uint8_t bytes[MAX_KEYS * KEY_BYTES];
        uint32_t found[MAX_KEYS], n;
        uint64_t tokens;

        for (unsigned i = 0; i < k->n; i++)
                make_keys(bytes + (size_t)i * KEY_BYTES, k->keys[i], 1);
        if (lookup_pages(w->a, bytes, k->n, 0, 1, found, &n, &tokens, NULL) != 0)
                return 0;
        assert_int_equal(tokens, n * PAGE_TOKENS);
        assert_memory_equal(found, k->pages, n * sizeof(found[0]));
        assert_int_equal(w->m->n_pins, n);
        assert_int_equal(release_pages(w->a, found, n, 1, NULL), 0);
        assert_int_equal(w->m->n_pins, 0);
        return n;
}

/* Puts the page's slot at the end of its key's home bucket, which is free. A slot with the same tag
 * and another page takes its place. Returns the number of pages that are found. */
static uint32_t look_up_misled(
        struct world *w, const struct keys *k, uint32_t bucket, uint32_t at, uint32_t other)
{
        _Atomic uint64_t *slots = w->ns->shared.buckets[bucket].slots;
        uint64_t own = slots[at];
        uint32_t n;

        assert_int_equal(slots[SHM_BUCKET_SLOTS - 1], 0);
        slots[SHM_BUCKET_SLOTS - 1] = own;
        slots[at] = shm_slot(own, other);
        n = look_up(w, k);
        slots[at] = own;
        slots[SHM_BUCKET_SLOTS - 1] = 0;
        return n;
}

/* More keys than are looked for at a time, in both buckets; other pages where one's tag is, and
 * numbers that are no page's; and one of them that isn't cached. */
SHARED_SCENE(test_run_on_the_socket, N_SETS)
{
        struct keys k = {.next = 1};

        for (uint32_t home = 1; home <= 5; home += 2)
                publish_at(w, &k, home, SHM_BUCKET_SLOTS - 1);
        assert_int_equal(look_up(w, &k), k.n);
        for (uint32_t home = 1; home <= 5; home += 2) {
                assert_in_range(count_used(w, home), HALF, SHM_BUCKET_SLOTS - 1);
                for (uint32_t at = 0; at < HALF; at++) {
                        assert_int_equal(look_up_misled(w, &k, home, at, k.pages[9]), k.n);
                        assert_int_equal(look_up_misled(w, &k, home, at, PAGE_NONE - 1), k.n);
                }
        }
        for (unsigned i = 0; i < k.n; i++) {
                unsigned was = k.keys[i];

                k.keys[i] = k.next;
                assert_int_equal(look_up(w, &k), i);
                k.keys[i] = was;
        }
        for (unsigned i = 0; i < k.n; i++)
                unpin(w, k.pages[i]);
}
