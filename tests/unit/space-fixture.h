/* Fixture of the tests of pages on a disk (daemon/core/moves/space.h): a store on a real file, on
 * top of tier-fixture.h. */
#ifndef KVL_TESTS_SPACE_FIXTURE_H
#define KVL_TESTS_SPACE_FIXTURE_H

#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/moves/space.h"
#include "tests/unit/tier-fixture.h"

/* The file of the test that runs; a row of a CMUnitTest table has it made and removed. */
const char *space_path(void);
int make_path(void **state);
int remove_path(void **state);

#define DISK_TEST(name) TEST_WITH(name, make_path, remove_path, NULL)

/* Two sets of the device, n_host of the host (0: none), a disk. */
static inline struct tiers_want want(unsigned n_host)
{
        return (struct tiers_want){.evict = &evict_lru,
                .n_device = 2,
                .n_host = n_host,
                .n_planes = 1,
                .disk = space_path(),
                .disk_bytes = 64 * MIB};
}

/* So that it counts as asked for again. */
static inline unsigned use(struct tiers *w, unsigned first, unsigned n)
{
        unsigned hits;

        w->now_nsec += NSEC_PER_SEC;
        store_set_now(&w->store, w->now_nsec);
        hits = count_hits(w->attach, first, n);
        return hits;
}

static inline void cache(struct tiers *w, unsigned first, unsigned n)
{
        w->now_nsec += 1000;
        assert_true(tier_cache(w, first, n));
        assert_int_equal(use(w, first, n), n);
        tiers_settle(w);
}

/* Brought up where it must be. False: it isn't there. */
static inline bool is_right(struct tiers *w, unsigned key)
{
        uint32_t page = tier_find(w, key);
        struct told told;

        if (page == PAGE_NONE)
                return false;
        if (tier_of(w, key) == TIER_DISK) {
                assert_int_equal(tier_fetch(w, page, PAGE_NONE, &told), 0);
                tiers_settle(w);
                assert_int_equal(told.n, 1);
                if (told.status != 0)
                        return false;
                page = tier_find(w, key);
                assert_int_equal(page, told.page);
        }
        assert_true(tier_is_filled(w, page, key));
        return true;
}

/* Counts the keys from 0 whose pages are in this tier. */
static inline unsigned count_in(struct tiers *w, unsigned n_keys, enum tier_kind kind)
{
        unsigned n = 0;

        for (unsigned key = 0; key < n_keys; key++)
                n += tier_find(w, key) != PAGE_NONE && tier_of(w, key) == kind;
        return n;
}

/* Until what was found on the disk is known: before, nothing goes there. */
static inline void await_space(struct tiers *w)
{
        struct pollfd fd = {.fd = disk_fd(w->disk), .events = POLLIN};

        while (!w->ns->space.is_ready) {
                assert_true(poll(&fd, 1, 10000) > 0);
                (void)disk_reap(w->disk);
        }
}

/* ---- another start ---- */

/* The beginnings of these texts are found again and again, and stay above. */
#define N_DEAR 8

/* Caches n texts of two pages, and others, so that many lie below. Returns how many pages of the
 * texts are on the disk. */
static inline unsigned fill(struct tiers *w, unsigned n)
{
        for (unsigned i = 0; i < n; i++) {
                cache(w, 2 * i, 2);
                for (unsigned k = n - 2 * N_DEAR; k < n - N_DEAR && k < i; k++)
                        (void)use(w, 2 * k, 1);
        }
        for (unsigned i = 0; i < 20 * N_DEAR; i++) {
                cache(w, 10000 + i, 1);
                for (unsigned k = n - 2 * N_DEAR; k < n - N_DEAR; k++)
                        (void)use(w, 2 * k, 1);
        }
        return count_in(w, 2 * n, TIER_DISK);
}

static inline void reap_disk(struct tiers *w)
{
        struct pollfd fd = {.fd = disk_fd(w->disk), .events = POLLIN};

        (void)poll(&fd, 1, 10);
        (void)disk_reap(w->disk);
}

/* The next daemon has nothing but the file; what it finds there is known when this returns. */
static inline void restart(struct tiers *w, const struct tiers_want *o)
{
        tiers_end(w);
        tiers_open(w, o);
        for (unsigned i = 0; i < 1000 && !w->ns->space.is_ready; i++) {
                reap_disk(w);
                tiers_check(w); /* half read, too */
                (void)space_work(&w->store, 256);
                idle_sets_drain(&w->store);
        }
        assert_true(w->ns->space.is_ready);
        tiers_settle(w);
}

/* A callback of space_promise(), with an int. */
static inline void note_kept(int result, void *data)
{
        *(int *)data = result;
}

#endif
