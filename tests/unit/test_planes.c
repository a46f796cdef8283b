/* Copies of some planes of pages (daemon/core/reclaim/fetch.h, moves/part-sums.h), on real memory:
 * what is copied, what is compared for it, and when all of a page is. */

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

/* A copy of one plane, which has the bytes when its end is told. */
struct plane_copy {
        struct tiers *w;
        unsigned key;
        uint32_t plane;
        unsigned n_told;
};

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
