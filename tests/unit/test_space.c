/* Pages on a disk below host memory, or below the device (daemon/core/moves/space.h), on real
 * files: they go down and come up, also where the file is damaged, emptied or full. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/moves/space.h"
#include "tests/unit/space-fixture.h"
#include "tests/unit/test-random.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/state/ns.h"

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
                idle_sets_drain(&w.store);
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

/* A namespace without a chunk has one from the namespace that needs least of its own, or that has
 * most of them. */
DISK_TEST(test_full_of_another)
{
        static const char *const others[] = {"2", "3", "4", "5"};
        struct tiers_want o = want(2);
        struct ns_layout l = toy_layout(TIER_PAGE_BYTES);
        unsigned n;
        struct tiers w;

        l.n_planes = o.n_planes;
        o.disk_bytes = 24 * MIB;
        tiers_open(&w, &o);
        for (unsigned key = 0; key < 500; key++)
                cache(&w, key, 1);
        n = count_in(&w, 500, TIER_DISK);
        for (unsigned i = 0; i < ARRAY_SIZE(others); i++) {
                assert_int_equal(attach_open_with(w.m, others[i], &l, &(struct attach_options){0},
                                         &w.attach, &w.d),
                        0);
                w.ns = w.attach->ns;
                await_space(&w);
                for (unsigned key = 0; key < 200; key++)
                        cache(&w, key, 1);
                assert_true(count_in(&w, 200, TIER_DISK) > 0);
        }
        w.attach = list_first(&w.m->attachments, struct attach, member_link);
        w.ns = w.attach->ns;
        assert_in_range(count_in(&w, 500, TIER_DISK), 1, n - 1);
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
        idle_sets_drain(&w->store);
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

/* Contents of a disk after the machine's start (daemon/core/moves/space.h), on real files: pages
 * that are recovered, and invalidated ones that aren't. */

/* Like restart(), with slices of a few entries: the disk's first ones have been read. */
static void restart_slowly(struct tiers *w, const struct tiers_want *o)
{
        tiers_end(w);
        tiers_open(w, o);
        w->store.drop_slice_pages = 4;
        for (unsigned i = 0; i < 1000 && !space_is_sorting(&w->ns->space); i++)
                reap_disk(w);
        assert_true(space_is_sorting(&w->ns->space) && w->ns->space.n_entries == 4);
        assert_false(space_takes(w->ns));
}

static void found_again(void (*start)(struct tiers *w, const struct tiers_want *o))
{
        const struct tiers_want o = want(2);
        unsigned n_disk, n_whole = 0, n_ends = 0;
        bool was[300];
        struct tiers w;

        tiers_open(&w, &o);
        n_disk = fill(&w, 150);
        for (unsigned key = 0; key < 300; key++)
                was[key] = tier_of(&w, key) == TIER_DISK;
        start(&w, &o);
        for (unsigned i = 0; i < 150; i++) {
                n_whole += was[2 * i] && was[2 * i + 1];
                n_ends += !was[2 * i] && was[2 * i + 1];
        }
        assert_true(n_whole > 20 && n_ends > 0);
        assert_int_equal(count_in(&w, 300, TIER_DISK), 2 * n_whole);
        assert_int_equal(w.ns->space.n_left, n_ends);
        assert_int_equal(n_disk, 2 * n_whole + n_ends);
        for (unsigned key = 0; key < 300; key++)
                assert_int_equal(is_right(&w, key), was[key] && was[key / 2 * 2]);
        /* Their beginnings are published again: the ends are there. */
        for (unsigned i = 0; i < 150; i++) {
                if (was[2 * i] || !was[2 * i + 1])
                        continue;
                assert_true(tier_cache(&w, 2 * i, 1));
                tiers_settle(&w);
                assert_int_equal(count_hits(w.attach, 2 * i, 2), 2);
                assert_true(is_right(&w, 2 * i + 1));
        }
        assert_int_equal(w.ns->space.n_left, 0);
        tiers_end(&w);
}

/* Pages are those of the codecs that they were stored with: by layer, too. */
DISK_TEST(test_codecs_by_layer)
{
        struct tiers_want o = want(2);
        unsigned n;
        struct tiers w;

        o.disk_layers = "0:none,1:int8";
        tiers_open(&w, &o);
        for (unsigned key = 0; key < 200; key++)
                cache(&w, key, 1);
        n = count_in(&w, 200, TIER_DISK);
        assert_true(n > 20);
        o.disk_layers = "0:int8,1:none";
        restart(&w, &o);
        assert_int_equal(count_in(&w, 200, TIER_DISK), 0);
        o.disk_layers = "0:none,1:int8";
        restart(&w, &o);
        assert_int_equal(count_in(&w, 200, TIER_DISK), n);
        tiers_end(&w);
}

/* A page that continues page 0. */
static void cache_sibling(struct tiers *w, unsigned key)
{
        uint8_t keys[2 * KEY_BYTES];
        uint32_t page, sealed, n;
        struct publish p = {.pages = &page,
                .parent_key = keys,
                .keys = keys + KEY_BYTES,
                .n = 1,
                .last_tokens = w->ns->layout.page_tokens};

        make_keys(keys, 0, 1);
        make_keys(keys + KEY_BYTES, key, 1);
        assert_int_equal(lease_pages(w->attach, 1, w->now_nsec, &page, NULL), 0);
        tier_fill(w, page, key);
        assert_int_equal(publish_pages(w->attach, &p, w->now_nsec, &sealed, &n, NULL), 0);
        assert_int_equal(release_pages(w->attach, &sealed, 1, w->now_nsec, NULL), 0);
        assert_int_equal(use(w, key, 1), 1);
        tiers_settle(w);
}

/* Very many may continue one page: they are claimed with it, together. */
DISK_TEST(test_siblings)
{
        const struct tiers_want o = want(2);
        unsigned n_disk;
        struct tiers w;

        tiers_open(&w, &o);
        await_space(&w);
        cache(&w, 0, 1);
        for (unsigned key = 1; key < 40; key++) {
                cache_sibling(&w, key);
                (void)use(&w, 0, 1);
        }
        for (unsigned i = 0; i < 200; i++) {
                cache(&w, 1000 + i, 1);
                (void)use(&w, 0, 1);
        }
        assert_int_not_equal(tier_of(&w, 0), TIER_DISK);
        n_disk = count_in(&w, 40, TIER_DISK);
        assert_true(n_disk > 10);
        restart(&w, &o);
        assert_int_equal(count_in(&w, 40, TIER_DISK), 0);
        assert_int_equal(w.ns->space.n_left, n_disk);
        assert_true(tier_cache(&w, 0, 1));
        tiers_settle(&w);
        assert_int_equal(w.ns->space.n_left, 0);
        assert_int_equal(count_in(&w, 40, TIER_DISK), n_disk);
        for (unsigned key = 1; key < 40; key++)
                if (tier_find(&w, key) != PAGE_NONE)
                        assert_true(is_right(&w, key));
        tiers_end(&w);
}

static void restart_and_sort(struct tiers *w, const struct tiers_want *o)
{
        restart_slowly(w, o);
        tiers_settle(w);
        assert_true(space_takes(w->ns));
}

DISK_TEST(test_found_again)
{
        found_again(restart);
}

DISK_TEST(test_found_in_slices)
{
        found_again(restart_and_sort);
}

DISK_TEST(test_other_version)
{
        const struct tiers_want o = want(2);
        struct tiers w;

        tiers_open(&w, &o);
        assert_true(fill(&w, 150) > 50);
        attach_close(w.attach);
        tiers_open_ns(&w, &o, "v2");
        tiers_settle(&w);
        assert_int_equal(count_in(&w, 300, TIER_DISK), 0);
        restart(&w, &o);
        assert_int_equal(count_in(&w, 300, TIER_DISK), 0);
        tiers_end(&w);
}

/* Pages of other kernels aren't found again by a namespace that lays them out differently; those of
 * the same kernels are. */
DISK_TEST(test_other_format)
{
        struct tiers_want o = want(2);
        struct tiers w;

        o.format = "flash NHD";
        tiers_open(&w, &o);
        assert_true(fill(&w, 150) > 50);
        o.format = "flash HND";
        restart(&w, &o);
        assert_int_equal(count_in(&w, 300, TIER_DISK), 0);
        o.format = NULL;
        restart(&w, &o);
        assert_int_equal(count_in(&w, 300, TIER_DISK), 0);
        o.format = "flash NHD";
        restart(&w, &o);
        assert_true(count_in(&w, 300, TIER_DISK) > 50);
        tiers_end(&w);
}

/* ---- invalidated before ---------------------------------------------------------------------- */

static void invalidated(int (*fn)(struct tiers *w))
{
        const struct tiers_want o = want(2);
        struct tiers w;

        tiers_open(&w, &o);
        assert_true(fill(&w, 150) > 50);
        assert_int_equal(fn(&w), 0);
        restart(&w, &o);
        assert_int_equal(tier_find(&w, 0), PAGE_NONE);
        assert_int_equal(tier_find(&w, 1), PAGE_NONE);
        tiers_end(&w);
        remove_path(NULL);
}

static int forget_key(struct tiers *w)
{
        uint8_t key[KEY_BYTES];
        uint64_t n;

        make_keys(key, 0, 1);
        assert_int_equal(tier_of(w, 0), TIER_DISK);
        return invalidate_key(w->attach, key, &n, &w->d);
}

static int drop_ns(struct tiers *w)
{
        uint64_t n;

        return ns_invalidate(w->ns, CAUSE_NAMESPACE, &n);
}

static int purge(struct tiers *w)
{
        uint64_t n, n_kept;

        attach_close(w->attach);
        return store_purge(&w->store, w->a, NULL, true, &n, &n_kept);
}

DISK_TEST(test_invalidated)
{
        invalidated(forget_key);
        invalidated(drop_ns);
        invalidated(purge);
}

/* An invalidation also removes unclaimed entries, because their ancestors aren't known. */
DISK_TEST(test_invalidated_unclaimed)
{
        const struct tiers_want o = want(2);
        uint8_t key[KEY_BYTES];
        uint64_t n;
        struct tiers w;

        tiers_open(&w, &o);
        (void)fill(&w, 150);
        restart(&w, &o);
        assert_true(w.ns->space.n_left > 0);
        make_keys(key, 1000, 1);
        assert_int_equal(invalidate_key(w.attach, key, &n, &w.d), 0);
        assert_int_equal(w.ns->space.n_left, 0);
        n = count_in(&w, 300, TIER_DISK);
        restart(&w, &o);
        assert_int_equal(w.ns->space.n_left, 0);
        assert_int_equal(count_in(&w, 300, TIER_DISK), n);
        tiers_end(&w);
}

/* Before the disk was looked into: it isn't found when that is over, nor after the next start. */
DISK_TEST(test_invalidated_unread)
{
        const struct tiers_want o = want(2);
        uint8_t key[KEY_BYTES];
        uint64_t n;
        struct tiers w;

        tiers_open(&w, &o);
        assert_true(fill(&w, 150) > 50);
        assert_int_equal(tier_of(&w, 0), TIER_DISK);
        tiers_end(&w);
        tiers_open(&w, &o);
        assert_false(w.ns->space.is_ready);
        make_keys(key, 0, 1);
        assert_int_equal(invalidate_key(w.attach, key, &n, &w.d), 0);
        for (unsigned i = 0; i < 1000 && !w.ns->space.is_ready; i++)
                reap_disk(&w);
        tiers_settle(&w);
        assert_true(w.ns->space.is_ready);
        assert_int_equal(tier_find(&w, 0), PAGE_NONE);
        restart(&w, &o);
        assert_int_equal(tier_find(&w, 0), PAGE_NONE);
        tiers_end(&w);
}

/* While what it has is being looked at: then nothing of it is a page that isn't one yet. */
DISK_TEST(test_invalidated_unsorted)
{
        const struct tiers_want o = want(2);
        uint8_t key[KEY_BYTES];
        uint64_t n;
        struct tiers w;

        tiers_open(&w, &o);
        assert_true(fill(&w, 150) > 50);
        restart_slowly(&w, &o);
        make_keys(key, 0, 1);
        assert_int_equal(invalidate_key(w.attach, key, &n, &w.d), 0);
        assert_true(space_takes(w.ns));
        tiers_settle(&w);
        assert_int_equal(count_in(&w, 300, TIER_DISK), 0);
        restart(&w, &o);
        assert_int_equal(count_in(&w, 300, TIER_DISK), 0);
        tiers_end(&w);
}

/* ---- removed in slices ----------------------------------------------------------------------- */

/* Invalidates a key without a page, with unclaimed entries, of which each slice removes a few. */
static void begin_removing(struct tiers *w, const struct tiers_want *o)
{
        uint8_t key[KEY_BYTES];
        uint64_t n;

        tiers_open(w, o);
        (void)fill(w, 150);
        restart(w, o);
        assert_true(w->ns->space.n_left > 0);
        w->store.drop_slice_pages = 4;
        make_keys(key, 1000, 1);
        assert_int_equal(invalidate_key(w->attach, key, &n, &w->d), 0);
        assert_int_equal(w->ns->space.n_left, 0);
        assert_true(w->ns->space.removes_unknown);
        tiers_check(w);
}

static unsigned count_entries(const struct tiers *w)
{
        struct disk_space_info info;

        disk_space_info(w->ns->space.disk, &info);
        return (unsigned)info.n_pages;
}

/* The promise waits until the last of them is removed. */
DISK_TEST(test_removed_in_slices)
{
        const struct tiers_want o = want(2);
        unsigned n_slices = 0, n;
        int result = 1;
        struct tiers w;

        begin_removing(&w, &o);
        n = w.ns->tiers[TIER_DISK].n_pages[PAGE_SEALED];
        assert_int_equal(space_promise(&w.store, note_kept, &result), 0);
        for (; w.ns->space.removes_unknown; n_slices++) {
                assert_true(count_entries(&w) >= n);
                reap_disk(&w);
                assert_int_equal(result, 1);
                (void)space_work(&w.store, 4);
                tiers_check(&w);
        }
        assert_true(n_slices > 10);
        assert_int_equal(count_entries(&w), n);
        for (unsigned i = 0; i < 1000 && result > 0; i++)
                reap_disk(&w);
        assert_int_equal(result, 0);
        restart(&w, &o);
        assert_int_equal(w.ns->space.n_left, 0);
        assert_int_equal(w.ns->tiers[TIER_DISK].n_pages[PAGE_SEALED], n);
        tiers_end(&w);
}

/* A daemon that ends keeps no promise, and reports that to waiting callers. */
DISK_TEST(test_ends_while_removing)
{
        const struct tiers_want o = want(2);
        int result = 1;
        struct tiers w;

        begin_removing(&w, &o);
        assert_int_equal(space_promise(&w.store, note_kept, &result), 0);
        tiers_end(&w);
        assert_int_equal(result, -ECANCELED);
}

/* A namespace that goes meanwhile leaves nothing on the disk that was to go, and the rest. */
DISK_TEST(test_closes_while_removing)
{
        const struct tiers_want o = want(2);
        int result = 1;
        unsigned n;
        struct tiers w;

        begin_removing(&w, &o);
        n = count_in(&w, 300, TIER_DISK);
        assert_int_equal(space_promise(&w.store, note_kept, &result), 0);
        space_close(w.ns, false);
        (void)space_work(&w.store, 4);
        for (unsigned i = 0; i < 1000 && result > 0; i++)
                reap_disk(&w);
        assert_int_equal(result, 0);
        space_drop_missing(w.ns);
        restart(&w, &o);
        assert_int_equal(w.ns->space.n_left, 0);
        assert_int_equal(count_in(&w, 300, TIER_DISK), n);
        tiers_end(&w);
}
