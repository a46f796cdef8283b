/* Pages on a disk below host memory, or below the device (daemon/core/moves/space.h), on real
 * files: they go down and come up, also where the file is damaged, emptied or full. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/core/memory/settle.h"
#include "daemon/core/moves/space.h"
#include "tests/unit/space-fixture.h"
#include "tests/unit/test-random.h"

/* ---- down and up ----------------------------------------------------------------------------- */

static void goes_down(struct tiers_want o, unsigned n_keys)
{
        struct tiers w;

        tiers_open(&w, &o);
        await_space(&w);
        for (unsigned key = 0; key < n_keys; key++)
                cache(&w, key, 1);
        assert_int_equal(w.store.counters.evictions, 0);
        assert_true(count_in(&w, n_keys, TIER_DISK) > n_keys / 4);
        for (unsigned key = 0; key < n_keys; key++)
                assert_true(is_right(&w, key));
        assert_int_equal(w.store.counters.pages_damaged, 0);
        tiers_end(&w);
}

DISK_TEST(test_below_host)
{
        goes_down(want(2), 240);
}

DISK_TEST(test_below_device)
{
        goes_down(want(0), 200);
}

DISK_TEST(test_planes)
{
        struct tiers_want o = want(2);

        o.n_planes = 3;
        o.evict = &evict_pgi;
        goes_down(o, 180);
        o.n_host = 0;
        o.evict = &evict_lru;
        goes_down(o, 150);
}

/* A page that wasn't requested again isn't worth a write; the end of a stored text is. */
DISK_TEST(test_admission)
{
        const struct tiers_want o = want(2);
        struct tiers w;

        tiers_open(&w, &o);
        for (unsigned key = 0; key < 200; key++) {
                w.now_nsec += 1000;
                assert_true(tier_cache(&w, key, 1));
                tiers_settle(&w);
        }
        assert_int_equal(count_in(&w, 200, TIER_DISK), 0);
        assert_true(w.store.counters.evictions > 40);
        tiers_end(&w);
        remove_path(NULL);
}

/* Stored alike it goes as it is, else it is opened between them. */
DISK_TEST(test_codecs)
{
        static const char *const codecs[][2] = {{"none", "int8"}, {"int8", "int8"},
                {"int8", "none"}, {"int8", "int4"}, {"0:none,1:int8", "0:none,1:int8"},
                {"0:none,1:int8", "0:int8,1:int4"}, {"none", "0:int4,1:none"}};

        for (unsigned i = 0; i < ARRAY_SIZE(codecs); i++) {
                struct tiers_want o = want(2);
                unsigned n_right = 0;
                struct tiers w;

                o.host_layers = codecs[i][0];
                o.disk_layers = codecs[i][1];
                tiers_open(&w, &o);
                for (unsigned key = 0; key < 300; key++) {
                        uint32_t page;

                        w.now_nsec += 1000;
                        assert_true(tier_cache(&w, key, 1));
                        page = tier_find(&w, key);
                        /* One value: what a codec makes of it is that again. */
                        memset(set_address(ns_set_of(w.ns, page), page, 0), 0x3c, TIER_PAGE_BYTES);
                        assert_int_equal(use(&w, key, 1), 1);
                        tiers_settle(&w);
                }
                assert_true(count_in(&w, 300, TIER_DISK) > 50);
                for (unsigned key = 0; key < 300; key++) {
                        uint32_t page = tier_find(&w, key);
                        struct told told;
                        const uint16_t *at;

                        if (tier_of(&w, key) != TIER_DISK)
                                continue;
                        assert_int_equal(tier_fetch(&w, page, PAGE_NONE, &told), 0);
                        tiers_settle(&w);
                        assert_int_equal(told.status, 0);
                        at = (const uint16_t *)set_address(
                                ns_set_of(w.ns, told.page), told.page, 0);
                        assert_in_range(at[0], 0x3c3c - 8, 0x3c3c + 8);
                        assert_in_range(at[TIER_PAGE_BYTES / 2 - 1], 0x3c3c - 8, 0x3c3c + 8);
                        n_right++;
                }
                assert_true(n_right > 50);
                assert_int_equal(w.store.counters.pages_damaged, 0);
                tiers_end(&w);
                remove_path(NULL);
        }
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void flip_everywhere(void)
{
        struct stat st;
        uint8_t block[4096];
        int fd = open(space_path(), O_RDWR);

        assert_true(fd >= 0 && fstat(fd, &st) == 0);
        for (off_t at = MIB; at < st.st_size; at += sizeof(block)) {
                assert_int_equal(pread(fd, block, sizeof(block), at), sizeof(block));
                block[100] ^= 1;
                assert_int_equal(pwrite(fd, block, sizeof(block), at), sizeof(block));
        }
        assert_int_equal(fsync(fd), 0);
        close(fd);
}

DISK_TEST(test_flipped)
{
        struct tiers_want o = want(2);
        unsigned n_wrong = 0;
        struct tiers w;

        tiers_open(&w, &o);
        for (unsigned key = 0; key < 300; key++)
                cache(&w, key, 1);
        flip_everywhere();
        for (unsigned key = 0; key < 300; key++)
                if (tier_find(&w, key) != PAGE_NONE && tier_of(&w, key) == TIER_DISK)
                        n_wrong += !is_right(&w, key);
        assert_true(n_wrong > 50);
        assert_int_equal(w.store.counters.pages_damaged, n_wrong);
        assert_int_equal(w.ns->tiers[TIER_DISK].n_damaged, n_wrong);
        tiers_end(&w);
}

/* The daemon goes on without it. */
DISK_TEST(test_off)
{
        const struct tiers_want o = want(2);
        int result = 1;
        struct tiers w;

        tiers_open(&w, &o);
        assert_true(fill(&w, 150) > 50);
        assert_int_equal(truncate(space_path(), 0), 0);
        assert_int_equal(space_promise(&w.store, note_kept, &result), 0);
        for (unsigned i = 0; i < 1000 && result > 0; i++)
                reap_disk(&w);
        for (unsigned key = 300; key < 700; key++)
                cache(&w, key, 1);
        assert_int_equal(result, 0); /* as the file is empty */
        assert_int_equal(disk_state(w.disk), DISK_OFF);
        assert_int_equal(count_in(&w, 700, TIER_DISK), 0);
        assert_int_equal(w.ns->tiers[TIER_DISK].n_sets, 0);
        assert_true(count_in(&w, 700, TIER_HOST) > 20);
        tiers_end(&w);
}

/* Its pages are removed in slices, and are misses meanwhile. */
DISK_TEST(test_off_in_slices)
{
        const struct tiers_want o = want(2);
        unsigned key = 0, n;
        struct told told;
        int result = 1;
        struct tiers w;

        tiers_open(&w, &o);
        assert_true(fill(&w, 150) > 50);
        n = count_in(&w, 300, TIER_DISK);
        w.store.drop_slice_pages = 4;
        assert_int_equal(truncate(space_path(), 0), 0);
        assert_int_equal(space_promise(&w.store, note_kept, &result), 0);
        for (unsigned i = 0; i < 1000 && result > 0; i++)
                reap_disk(&w);
        assert_int_equal(disk_state(w.disk), DISK_OFF);
        assert_int_equal(count_in(&w, 300, TIER_DISK), n);
        for (unsigned i = 0; i < 10; i++) {
                assert_true(space_work(&w.store, 4));
                settle_all(&w.store);
                assert_true(count_in(&w, 300, TIER_DISK) < n);
                n = count_in(&w, 300, TIER_DISK);
                tiers_check(&w);
        }
        while (tier_find(&w, key) == PAGE_NONE || tier_of(&w, key) != TIER_DISK)
                key++;
        assert_int_equal(tier_fetch(&w, tier_find(&w, key), PAGE_NONE, &told), 0);
        tiers_settle(&w);
        assert_int_equal(told.n, 1);
        assert_true(told.status < 0);
        assert_int_equal(count_in(&w, 300, TIER_DISK), 0);
        assert_int_equal(w.ns->tiers[TIER_DISK].n_sets, 0);
        tiers_end(&w);
}

DISK_TEST(test_full)
{
        struct tiers_want o = want(2);
        unsigned n;
        struct tiers w;

        o.disk_bytes = 24 * MIB;
        tiers_open(&w, &o);
        for (unsigned key = 0; key < 1000; key++)
                cache(&w, key, 1);
        n = count_in(&w, 1000, TIER_DISK);
        assert_in_range(n, 150, 24 * 16);
        for (unsigned key = 1000 - 64; key < 1000; key++)
                assert_true(is_right(&w, key));
        assert_int_equal(w.store.counters.pages_damaged, 0);
        tiers_end(&w);
}

/* ---- at random ------------------------------------------------------------------------------- */

#define N_KEYS 400

static void step(struct tiers *w)
{
        unsigned key = random_below(N_KEYS);
        uint32_t page = tier_find(w, key);
        static struct told told;

        w->now_nsec += 1000;
        switch (random_below(8)) {
        case 0:
        case 1:
        case 2:
                if (page == PAGE_NONE && tier_cache(w, key, 1))
                        (void)use(w, key, 1);
                break;
        case 3:
                if (page != PAGE_NONE && tier_of(w, key) != TIER_DEVICE)
                        (void)tier_fetch(w, page, PAGE_NONE, &told);
                break;
        case 4:
                (void)disk_reap(w->disk);
                break;
        case 5:
                (void)demote_turn(&w->store, w->now_nsec);
                break;
        case 6:
                (void)mover_reap(w->store.moving.mover);
                (void)transfer_work(&w->store);
                break;
        default:
                if (random_below(8) == 0)
                        tiers_settle(w);
                else if (random_below(32) == 0 && page != PAGE_NONE)
                        (void)tier_drop(w, page);
        }
        settle_all(&w->store);
        page = tier_find(w, key);
        if (page != PAGE_NONE && tier_of(w, key) != TIER_DISK)
                assert_true(tier_is_filled(w, page, key));
}

DISK_TEST(test_random)
{
        struct tiers_want o = want(3);
        struct tiers w;

        random_start("test_space");
        o.evict = &evict_pgi;
        o.disk_bytes = 24 * MIB;
        tiers_open(&w, &o);
        for (unsigned i = 0; i < 6000; i++) {
                step(&w);
                if (i % 64 == 0)
                        tiers_check(&w);
                if (i % 2000 == 1999)
                        restart(&w, &o);
        }
        tiers_settle(&w);
        for (unsigned key = 0; key < N_KEYS; key++)
                (void)is_right(&w, key);
        assert_int_equal(w.store.counters.pages_damaged, 0);
        tiers_end(&w);
}
