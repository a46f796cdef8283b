/* Page tables: both views against a naive array, groups that stay, bounds, and no memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/kvlease.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define MAX_PAGES 20000
#define N_STEPS   3000

struct model {
        uint32_t group_pages;
        uint32_t pages[MAX_PAGES], n_pages;
        const uint32_t *groups[MAX_PAGES / 16]; /* where each was when it was first seen */
        uint32_t n_groups;
};

/* Each view shows the model's pages, and groups that were seen are where they were. */
static void check(struct model *m, const struct kvl_page_table *t)
{
        const uint32_t *flat = kvl_page_table_flat(t);
        uint32_t n_groups = UINT32_MAX;
        const uint32_t *const *groups = kvl_page_table_groups(t, &n_groups);

        assert_int_equal(kvl_page_table_n_pages(t), m->n_pages);
        assert_int_equal(n_groups, (m->n_pages + m->group_pages - 1) / m->group_pages);
        assert_true((flat != NULL) == (m->n_pages > 0) && (groups != NULL) == (m->n_pages > 0));
        if (m->n_pages > 0)
                assert_memory_equal(flat, m->pages, m->n_pages * sizeof(*flat));
        for (uint32_t i = 0; i < n_groups; i++) {
                if (i >= m->n_groups)
                        m->groups[m->n_groups++] = groups[i];
                assert_ptr_equal(groups[i], m->groups[i]);
                for (uint32_t j = 0; j < m->group_pages; j++) {
                        uint32_t at = i * m->group_pages + j;

                        assert_int_equal(
                                groups[i][j], at < m->n_pages ? m->pages[at] : KVL_PAGE_NONE);
                }
        }
}

static void append(struct model *m, struct kvl_page_table *t, uint32_t n)
{
        uint32_t *pages = m->pages + m->n_pages;

        for (uint32_t i = 0; i < n; i++)
                pages[i] = (uint32_t)random_u64();
        assert_int_equal(kvl_page_table_append(t, pages, n), 0);
        m->n_pages += n;
}

static void truncate_both(struct model *m, struct kvl_page_table *t)
{
        uint32_t first = random_below(m->n_pages + 1);
        uint32_t last = random_below(m->n_pages - first + 1);

        assert_int_equal(kvl_page_table_truncate(t, first, last), 0);
        memmove(m->pages + first, m->pages + m->n_pages - last, last * sizeof(*m->pages));
        m->n_pages = first + last;
}

static void step(struct model *m, struct kvl_page_table *t)
{
        uint32_t n = random_below(random_below(20) == 0 ? 700 : 4), at;

        switch (random_below(8)) {
        case 0:
                if (random_below(20) == 0)
                        truncate_both(m, t);
                break;
        case 1:
                if (m->n_pages == 0)
                        break;
                at = random_below(m->n_pages);
                m->pages[at] = (uint32_t)random_u64();
                assert_int_equal(kvl_page_table_replace(t, at, m->pages[at]), 0);
                break;
        default:
                append(m, t, n <= MAX_PAGES - m->n_pages ? n : 0);
        }
}

TEST(test_random_against_model)
{
        static const uint32_t sizes[] = {16, 64, 512, 4096};

        random_start(__func__);
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                struct model *m = calloc(1, sizeof(*m));
                struct kvl_page_table *t;

                assert_non_null(m);
                m->group_pages = sizes[i];
                assert_int_equal(kvl_page_table_new(sizes[i], MAX_PAGES, &t), 0);
                check(m, t);
                for (int j = 0; j < N_STEPS; j++) {
                        step(m, t);
                        check(m, t);
                }
                assert_true(m->n_groups > 1);
                kvl_page_table_free(t);
                free(m);
        }
}

TEST(test_bounds)
{
        uint32_t pages[40] = {7, 8, 9}, n_groups = 5;
        struct kvl_page_table *t = NULL;

        for (uint32_t n = 0; n <= 8192; n++)
                if (n < 16 || n > 4096 || (n & (n - 1)) != 0)
                        assert_int_equal(kvl_page_table_new(n, 0, &t), -EINVAL);
        assert_int_equal(kvl_page_table_new(16, 0, NULL), -EINVAL);
        assert_null(t);

        assert_int_equal(kvl_page_table_new(16, 20, &t), 0);
        assert_null(kvl_page_table_flat(t));
        assert_null(kvl_page_table_groups(t, &n_groups));
        assert_int_equal(n_groups, 0);
        assert_int_equal(kvl_page_table_replace(t, 0, 1), -EINVAL);
        assert_int_equal(kvl_page_table_truncate(t, 0, 0), 0);
        assert_int_equal(kvl_page_table_append(t, NULL, 0), 0);
        assert_int_equal(kvl_page_table_append(t, NULL, 1), -EINVAL);
        assert_int_equal(kvl_page_table_append(t, pages, 21), -ENOSPC);
        assert_int_equal(kvl_page_table_append(t, pages, 3), 0);
        assert_int_equal(kvl_page_table_append(t, pages, 18), -ENOSPC);
        assert_int_equal(kvl_page_table_append(t, pages, UINT32_MAX), -ENOSPC);
        assert_int_equal(kvl_page_table_n_pages(t), 3);
        assert_int_equal(kvl_page_table_append(t, pages, 17), 0);
        assert_int_equal(kvl_page_table_append(t, pages, 1), -ENOSPC);
        assert_int_equal(kvl_page_table_replace(t, 19, 77), 0);
        assert_int_equal(kvl_page_table_replace(t, 20, 77), -EINVAL);
        assert_int_equal(kvl_page_table_truncate(t, 21, 0), -EINVAL);
        assert_int_equal(kvl_page_table_truncate(t, 0, 21), -EINVAL);
        assert_int_equal(kvl_page_table_truncate(t, 1, UINT32_MAX), -EINVAL);
        assert_int_equal(kvl_page_table_truncate(t, 20, 0), 0);
        assert_int_equal(kvl_page_table_truncate(t, 1, 1), 0);
        assert_int_equal(kvl_page_table_n_pages(t), 2);
        assert_int_equal(kvl_page_table_flat(t)[0], 7);
        assert_int_equal(kvl_page_table_flat(t)[1], 77);
        kvl_page_table_free(t);
        kvl_page_table_free(NULL);
}

TEST(test_no_table)
{
        uint32_t page = 1;

        assert_int_equal(kvl_page_table_append(NULL, &page, 1), -EINVAL);
        assert_int_equal(kvl_page_table_replace(NULL, 0, 1), -EINVAL);
        assert_int_equal(kvl_page_table_truncate(NULL, 0, 0), -EINVAL);
        assert_int_equal(kvl_page_table_n_pages(NULL), 0);
        assert_null(kvl_page_table_flat(NULL));
        assert_null(kvl_page_table_groups(NULL, NULL));
}

/* A failed call leaves both views as they were, and the flat array where it was. */
TEST(test_no_memory)
{
        struct model *m = calloc(1, sizeof(*m));
        struct kvl_page_table *t = NULL;
        const uint32_t *flat;

        assert_non_null(m);
        m->group_pages = 16;
        alloc_fail_each(n)
        {
                int r = kvl_page_table_new(16, 0, &t);

                assert_int_equal(r, alloc_fail_happened() ? -ENOMEM : 0);
        }
        append(m, t, 20);
        flat = kvl_page_table_flat(t);
        for (uint32_t i = 0; i < 100; i++)
                m->pages[m->n_pages + i] = 1000 + i;
        alloc_fail_each(n)
        {
                int r = kvl_page_table_append(t, m->pages + m->n_pages, 100);

                if (alloc_fail_happened()) {
                        assert_int_equal(r, -ENOMEM);
                        assert_ptr_equal(kvl_page_table_flat(t), flat);
                        check(m, t);
                } else {
                        assert_int_equal(r, 0);
                        assert_true(n > 3); /* array of groups, groups, flat array */
                }
        }
        m->n_pages += 100;
        check(m, t);
        kvl_page_table_free(t);
        free(m);
}
