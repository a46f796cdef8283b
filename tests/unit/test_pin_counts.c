#include "tests/unit/test-support.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/core/state/page.h"
#include "daemon/core/state/pin-counts.h"
#include "tests/unit/alloc-fail.h"

#define N_PAGES 100

TEST(test_counts)
{
        struct pin_counts c = {0};

        assert_int_equal(pin_counts_get(&c, 0), 0);
        pin_counts_prefetch(&c, 0);
        assert_int_equal(pin_counts_reserve(&c, N_PAGES), 0);
        pin_counts_add(&c, 7, 1);
        pin_counts_add(&c, 7, 2);
        pin_counts_add(&c, N_PAGES - 1, 1);
        assert_int_equal(c.n_pinned, 2);
        /* Once more: nothing is lost. */
        assert_int_equal(pin_counts_reserve(&c, N_PAGES), 0);
        assert_int_equal(pin_counts_get(&c, 7), 3);
        assert_int_equal(pin_counts_get(&c, N_PAGES), 0);
        assert_int_equal(pin_counts_get(&c, UINT32_MAX), 0);
        pin_counts_prefetch(&c, UINT32_MAX);
        pin_counts_drop(&c, 7, 1);
        assert_int_equal(pin_counts_get(&c, 7), 2);
        assert_int_equal(c.n_pinned, 2);
        pin_counts_drop(&c, 7, 2);
        assert_int_equal(pin_counts_get(&c, 7), 0);
        assert_int_equal(c.n_pinned, 1);
        pin_counts_deinit(&c);
        assert_int_equal(pin_counts_get(&c, N_PAGES - 1), 0);
}

/* A page with two pins can have two releases under way; both count until they end. */
TEST(test_release)
{
        struct pin_counts c = {0};

        assert_int_equal(pin_counts_reserve(&c, N_PAGES), 0);
        pin_counts_add(&c, 7, 2);
        assert_false(pin_counts_begin_release(&c, 6));
        assert_false(pin_counts_begin_release(&c, N_PAGES));
        assert_true(pin_counts_begin_release(&c, 7));
        assert_true(pin_counts_begin_release(&c, 7));
        assert_false(pin_counts_begin_release(&c, 7));
        assert_int_equal(pin_counts_get(&c, 7), 2);
        pin_counts_cancel_release(&c, 7);
        pin_counts_release(&c, 7);
        assert_int_equal(pin_counts_get(&c, 7), 1);
        assert_int_equal(c.n_pinned, 1);
        assert_true(pin_counts_begin_release(&c, 7));
        pin_counts_release(&c, 7);
        assert_int_equal(pin_counts_get(&c, 7), 0);
        assert_int_equal(c.n_pinned, 0);
        pin_counts_add(&c, 7, PAGE_MAX_CLIENT_PINS);
        for (uint32_t i = 0; i < PAGE_MAX_CLIENT_PINS; i++)
                assert_true(pin_counts_begin_release(&c, 7));
        assert_false(pin_counts_begin_release(&c, 7));
        pin_counts_deinit(&c);
}

#define KEPT_PAGES 10000

struct taken {
        uint32_t pages[4], counts[4], n;
};

/* The page 5000 isn't there any more. */
static uint32_t take(uint32_t page, uint32_t n, void *data)
{
        struct taken *t = data;

        t->pages[t->n] = page;
        t->counts[t->n++] = n;
        return page == 5000 ? 0 : n;
}

/* A daemon is killed while pins are released: the next one finds all that weren't, in a file whose
 * memory is as much as before. */
TEST(test_kept)
{
        int fd = memfd_create_sized("pins", pin_counts_bytes(KEPT_PAGES));
        struct pin_counts c = {0}, next = {0};
        struct taken t = {0};
        struct stat before, after;

        assert_true(fd >= 0);
        assert_int_equal(pin_counts_map(&c, fd, KEPT_PAGES), 0);
        pin_counts_add(&c, 3, 2);
        pin_counts_add(&c, 5000, 1);
        pin_counts_add(&c, KEPT_PAGES - 1, PAGE_MAX_CLIENT_PINS);
        assert_true(pin_counts_begin_release(&c, 3));
        assert_true(pin_counts_begin_release(&c, 5000));
        assert_int_equal(fstat(fd, &before), 0);
        assert_int_equal(pin_counts_adopt(&next, fd, KEPT_PAGES, take, &t), 0);
        assert_int_equal(fstat(fd, &after), 0);
        assert_int_equal(after.st_blocks, before.st_blocks);
        assert_int_equal(t.n, 3);
        assert_int_equal(t.pages[0], 3);
        assert_int_equal(t.counts[0], 2);
        assert_int_equal(t.pages[1], 5000);
        assert_int_equal(t.counts[1], 1);
        assert_int_equal(t.counts[2], PAGE_MAX_CLIENT_PINS);
        assert_int_equal(pin_counts_get(&next, 3), 2);
        assert_int_equal(pin_counts_get(&next, 5000), 0);
        assert_int_equal(next.n_pinned, 2);
        /* Nothing is about to be released any more. */
        pin_counts_drop(&next, 3, 2);
        assert_int_equal(next.n_pinned, 1);
        pin_counts_deinit(&next);
        pin_counts_deinit(&c);
        close(fd);
}
