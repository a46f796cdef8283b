/* Copies of some planes of pages (daemon/core/reclaim/fetch.h, moves/part-sums.h), on real memory:
 * what is copied, what is compared for it, and when all of a page is. */
#include <stdlib.h>

#include "daemon/core/clients/grants.h"
#include "daemon/core/moves/part-sums.h"
#include "tests/unit/space-fixture.h"
#include "tests/unit/transfer-fixture.h"

#define N_PLANES  4
#define UNTOUCHED 0x5a

static uint8_t *plane_at(const struct tiers *w, uint32_t page, uint32_t plane)
{
        return set_address(ns_set_of(w->ns, page), page, plane);
}

/* A leased page, whose bytes are no page's. */
static uint32_t lease_target(struct tiers *w)
{
        uint32_t page;

        assert_int_equal(lease_pages(w->attach, 1, w->now_nsec, &page, NULL), 0);
        for (uint32_t plane = 0; plane < w->n_planes; plane++)
                memset(plane_at(w, page, plane), UNTOUCHED, w->ns->layout.plane_page_bytes);
        return page;
}

static bool is_plane_filled(const struct tiers *w, uint32_t page, uint32_t plane, unsigned key)
{
        const uint8_t *at = plane_at(w, page, plane);

        for (uint64_t i = 0; i < w->ns->layout.plane_page_bytes; i += 8) {
                uint64_t word = (key * UINT64_C(0x9e3779b97f4a7c15)) ^ (i << 8 | plane);

                if (memcmp(at + i, &word, 8) != 0)
                        return false;
        }
        return true;
}

static bool is_plane_untouched(const struct tiers *w, uint32_t page, uint32_t plane)
{
        const uint8_t *at = plane_at(w, page, plane);

        for (uint64_t i = 0; i < w->ns->layout.plane_page_bytes; i++)
                if (at[i] != UNTOUCHED)
                        return false;
        return true;
}

/* Page `to` has the bytes of key's page in these planes, and nothing in the others. */
static void check_planes(const struct tiers *w, uint32_t to, struct plane_range r, unsigned key)
{
        for (uint32_t plane = 0; plane < w->n_planes; plane++)
                if (plane_range_has(r, plane))
                        assert_true(is_plane_filled(w, to, plane, key));
                else
                        assert_true(is_plane_untouched(w, to, plane));
}

/* Into a fresh target. What it was told. */
static int copy_planes(struct tiers *w, uint32_t page, struct plane_range r, unsigned key)
{
        uint32_t to = lease_target(w);
        struct told told;

        assert_int_equal(tier_copy(w, page, to, r, &told), 0);
        tiers_settle(w);
        assert_int_equal(told.n, 1);
        if (told.status == 0) {
                assert_int_equal(told.page, to);
                check_planes(w, to, r, key);
        }
        assert_int_equal(free_pages(w->attach, &to, 1, NULL), 0);
        return told.status;
}

static bool are_known(const struct tiers *w, uint32_t page)
{
        return part_sums_are_known(ns_set_of(w->ns, page), page);
}

static void flip_plane(struct tiers *w, uint32_t page, uint32_t plane)
{
        plane_at(w, page, plane)[4097] ^= 1;
}

/* ---- what is copied -------------------------------------------------------------------------- */

/* Each range, for the first time of its page and again. */
TIER_SCENE(test_ranges, &evict_lru, 2, 4, N_PLANES, CODEC_NONE)
{
        unsigned key;
        uint32_t page;

        for (uint32_t first = 0; first < N_PLANES; first++)
                for (uint32_t n = 1; first + n <= N_PLANES; n++) {
                        fill_device(w);
                        key = any_below(w);
                        page = tier_pin(w, key);
                        for (unsigned turn = 0; turn < 2; turn++)
                                assert_int_equal(
                                        copy_planes(w, page, (struct plane_range){first, n}, key),
                                        0);
                        assert_int_equal(tier_find(w, key), page);
                        tier_unpin(w, page);
                }
        assert_int_equal(w->store.counters.pages_damaged, 0);
}

/* The first copy compares all of the page; those after it what they copy, and nothing else. */
TIER_SCENE(test_compared, &evict_lru, 2, 4, N_PLANES, CODEC_NONE)
{
        unsigned key;
        uint32_t page;

        fill_device(w);
        key = any_below(w);
        page = tier_pin(w, key);
        assert_false(are_known(w, page));
        assert_int_equal(copy_planes(w, page, (struct plane_range){1, 1}, key), 0);
        assert_true(are_known(w, page));
        flip_plane(w, page, 3);
        assert_int_equal(copy_planes(w, page, (struct plane_range){0, 3}, key), 0);
        assert_int_equal(tier_find(w, key), page);
        assert_int_equal(copy_planes(w, page, (struct plane_range){2, 2}, key), -ENOENT);
        assert_int_equal(tier_find(w, key), PAGE_NONE);
        assert_int_equal(w->store.counters.pages_damaged, 1);
        tier_unpin(w, page);
}

TIER_SCENE(test_damaged_at_first, &evict_lru, 2, 4, N_PLANES, CODEC_NONE)
{
        unsigned key;
        uint32_t page;

        fill_device(w);
        key = any_below(w);
        page = tier_pin(w, key);
        flip_plane(w, page, 3);
        assert_int_equal(copy_planes(w, page, (struct plane_range){0, 1}, key), -ENOENT);
        assert_int_equal(tier_find(w, key), PAGE_NONE);
        assert_int_equal(w->store.counters.pages_damaged, 1);
        tier_unpin(w, page);
}

/* A copy of one plane, which has the bytes when its end is told. */
struct plane_copy {
        struct tiers *w;
        unsigned key;
        uint32_t plane;
        unsigned n_told;
};

static void check_told(struct fetch *f, int status, uint32_t page, void *data)
{
        struct plane_copy *copy = data;

        assert_int_equal(status, 0);
        assert_true(is_plane_filled(copy->w, page, copy->plane, copy->key));
        copy->n_told++;
}

/* Some ranges into one target at once are as many copies, each of which is told of its own end. */
TIER_SCENE(test_at_once, &evict_lru, 2, 4, N_PLANES, CODEC_NONE)
{
        struct plane_copy copies[3];
        uint32_t page, to;
        unsigned key;

        fill_device(w);
        key = any_below(w);
        page = tier_pin(w, key);
        to = lease_target(w);
        for (uint32_t i = 0; i < 3; i++) {
                const struct fetch_request rq = {.page = page,
                        .generation = (uint32_t)ns_page(w->ns, page)->generation,
                        .to = to,
                        .planes = {i, 1}};
                struct fetch *f;
                uint32_t unused;

                copies[i] = (struct plane_copy){w, key, i, 0};
                assert_int_equal(
                        fetch_begin(w->attach, &rq, check_told, &copies[i], &f, &unused, &w->d), 0);
        }
        tiers_settle(w);
        for (unsigned i = 0; i < 3; i++)
                assert_int_equal(copies[i].n_told, 1);
        check_planes(w, to, (struct plane_range){0, 3}, key);
        assert_int_equal(free_pages(w->attach, &to, 1, NULL), 0);
        tier_unpin(w, page);
}

/* A number below the device is another page's after a while: its sums are, too. */
TIER_SCENE(test_reused, &evict_lru, 2, 2, N_PLANES, CODEC_NONE)
{
        unsigned n_reused = 0;

        fill_device(w);
        for (unsigned key = N_DEVICE; key < 6 * N_DEVICE; key++) {
                unsigned below = key - N_DEVICE;
                uint32_t page;

                w->now_nsec += 1000;
                assert_true(tier_cache(w, key, 1));
                tiers_settle(w);
                if (tier_find(w, below) == PAGE_NONE || tier_of(w, below) != TIER_HOST)
                        continue;
                page = tier_pin(w, below);
                n_reused += ns_set_of(w->ns, page)->part_sums && !are_known(w, page);
                assert_int_equal(copy_planes(w, page, (struct plane_range){2, 1}, below), 0);
                assert_int_equal(copy_planes(w, page, (struct plane_range){1, 2}, below), 0);
                tier_unpin(w, page);
        }
        assert_true(n_reused > N_DEVICE);
        assert_int_equal(w->store.counters.pages_damaged, 0);
}

/* From a page that is on the device. */
TIER_SCENE(test_from_device, &evict_lru, 2, 4, N_PLANES, CODEC_NONE)
{
        uint32_t page;

        assert_true(tier_cache(w, 7, 1));
        page = tier_pin(w, 7);
        assert_int_equal(tier_of(w, 7), TIER_DEVICE);
        assert_int_equal(copy_planes(w, page, (struct plane_range){2, 1}, 7), 0);
        assert_int_equal(copy_planes(w, page, (struct plane_range){0, 3}, 7), 0);
        tier_unpin(w, page);
}

/* A disk has a page in one piece: all of it is read, and compared, for some of its planes. */
DISK_TEST(test_from_disk)
{
        struct tiers_want o = want(0);
        unsigned n = 0;
        struct tiers w;

        o.n_planes = N_PLANES;
        tiers_open(&w, &o);
        await_space(&w);
        for (unsigned key = 0; key < 150; key++)
                cache(&w, key, 1);
        for (unsigned key = 0; key < 150; key++) {
                uint32_t page;

                if (tier_of(&w, key) != TIER_DISK)
                        continue;
                page = tier_pin(&w, key);
                for (unsigned turn = 0; turn < 2; turn++)
                        assert_int_equal(
                                copy_planes(&w, page, (struct plane_range){key % N_PLANES, 1}, key),
                                0);
                assert_false(are_known(&w, page));
                tier_unpin(&w, page);
                n++;
        }
        assert_true(n > 20);
        tiers_end(&w);
}

/* ---- codecs ---------------------------------------------------------------------------------- */

static void cache_numbers(struct tiers *w, unsigned key)
{
        struct publish p = {.n = 1, .last_tokens = w->ns->layout.page_tokens};
        uint8_t keys[KEY_BYTES];
        uint32_t page, sealed, n;

        make_keys(keys, key, 1);
        p.pages = &page;
        p.keys = keys;
        assert_int_equal(lease_pages(w->attach, 1, 1, &page, NULL), 0);
        for (uint32_t plane = 0; plane < w->n_planes; plane++) {
                uint16_t *at = (uint16_t *)(void *)plane_at(w, page, plane);

                for (unsigned i = 0; i < TIER_PAGE_BYTES / 2; i++)
                        at[i] = (uint16_t)(0x3000 + (i * 37 + plane * 11 + key) % 0x800);
        }
        assert_int_equal(publish_pages(w->attach, &p, 1, &sealed, &n, NULL), 0);
        assert_int_equal(release_pages(w->attach, &sealed, 1, 1, NULL), 0);
}

/* Some planes are decoded to what they are in a copy of all of them, also where a plane has layers
 * with different codecs. */
TEST_BARE(test_codecs)
{
        static const struct {
                unsigned n_layers;
                const char *text;
        } cases[] = {{4, "int8"}, {4, "0:int4,1-2:none,3:int8"}, {8, "0-2:int8,3:none,4-:int4"}};

        for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
                const struct tiers_want o = {.evict = &evict_lru,
                        .n_device = 2,
                        .n_host = 4,
                        .n_planes = N_PLANES,
                        .n_layers = cases[i].n_layers,
                        .host_layers = cases[i].text};
                uint32_t page, whole, to;
                struct told told;
                struct tiers w;
                unsigned key;

                tiers_open(&w, &o);
                for (unsigned k = 0; k < N_DEVICE; k++)
                        cache_numbers(&w, k);
                tiers_settle(&w);
                key = any_below(&w);
                page = tier_pin(&w, key);
                whole = lease_target(&w);
                assert_int_equal(tier_fetch(&w, page, whole, &told), 0);
                tiers_settle(&w);
                assert_int_equal(told.status, 0);
                to = lease_target(&w);
                for (unsigned turn = 0; turn < 2; turn++)
                        for (uint32_t plane = 0; plane < N_PLANES; plane++) {
                                struct plane_range r = {plane, 1};

                                assert_int_equal(tier_copy(&w, page, to, r, &told), 0);
                                tiers_settle(&w);
                                assert_int_equal(told.status, 0);
                                assert_memory_equal(plane_at(&w, to, plane),
                                        plane_at(&w, whole, plane), TIER_PAGE_BYTES);
                                assert_true(plane + 1 == N_PLANES || turn > 0 ||
                                            is_plane_untouched(&w, to, plane + 1));
                        }
                assert_int_equal(free_pages(w.attach, &to, 1, NULL), 0);
                assert_int_equal(free_pages(w.attach, &whole, 1, NULL), 0);
                tier_unpin(&w, page);
                tiers_end(&w);
        }
}

/* ---- what is refused, and what isn't worth it ----------------------------------------------- */

TIER_SCENE(test_refused, &evict_lru, 2, 4, N_PLANES, CODEC_NONE)
{
        static const struct plane_range wrong[] = {{0, N_PLANES + 1}, {N_PLANES, 1}, {3, 2},
                {UINT32_MAX, 1}, {UINT32_MAX, 2}, {1, UINT32_MAX}, {2, 0}, {UINT32_MAX, 0},
                {0, UINT32_MAX}, {UINT32_MAX, UINT32_MAX}};
        struct told told;
        uint32_t page, to;
        unsigned key;

        fill_device(w);
        key = any_below(w);
        page = tier_pin(w, key);
        to = lease_target(w);
        for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
                assert_int_equal(tier_copy(w, page, to, wrong[i], &told), -EINVAL);
                assert_non_null(strstr(w->d.text, "planes 0 to 3"));
        }
        assert_int_equal(tier_copy(w, page, PAGE_NONE, (struct plane_range){1, 1}, &told), -EINVAL);
        assert_non_null(strstr(w->d.text, "moves as a whole"));
        tiers_settle(w);
        assert_int_equal(told.n, 0);
        assert_int_equal(tier_find(w, key), page);
        assert_int_equal(free_pages(w->attach, &to, 1, NULL), 0);
        tier_unpin(w, page);
}

/* Without a tier below any device nothing copies, which is said at once. */
TIER_SCENE(test_no_mover, &evict_lru, 2, 4, N_PLANES, CODEC_NONE)
{
        struct mover *mover;
        struct told told;
        uint32_t page, to;

        assert_true(tier_cache(w, 7, 1));
        page = tier_pin(w, 7);
        to = lease_target(w);
        mover = TAKE(w->store.moving.mover);
        assert_int_equal(tier_copy(w, page, to, (struct plane_range){0, 1}, &told), -EIO);
        w->store.moving.mover = mover;
        tiers_settle(w);
        assert_int_equal(told.n, 0);
        assert_int_equal(free_pages(w->attach, &to, 1, NULL), 0);
        tier_unpin(w, page);
}

/* Planes so small that sums would cost more than they save go with the others of their page. */
TEST_BARE(test_small)
{
        struct tiers_want o = {.evict = &evict_lru,
                .n_device = 1,
                .n_host = 1,
                .n_planes = N_PLANES,
                .plane_bytes = PART_SUMS_MIN_BYTES / 2};
        struct told told;
        struct tiers w;
        uint32_t page, to;

        tiers_open(&w, &o);
        assert_true(tier_cache(&w, 3, 1));
        page = tier_pin(&w, 3);
        assert_int_equal(tier_put(&w, page, &told), 0);
        tiers_settle(&w);
        tier_unpin(&w, page);
        page = tier_pin(&w, 3);
        assert_int_equal(tier_of(&w, 3), TIER_HOST);
        to = lease_target(&w);
        assert_int_equal(tier_copy(&w, page, to, (struct plane_range){1, 1}, &told), 0);
        tiers_settle(&w);
        assert_int_equal(told.status, 0);
        check_planes(&w, to, (struct plane_range){0, N_PLANES}, 3);
        assert_null(ns_set_of(w.ns, page)->part_sums);
        assert_int_equal(free_pages(w.attach, &to, 1, NULL), 0);
        tier_unpin(&w, page);
        tiers_end(&w);
}
