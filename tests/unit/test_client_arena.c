/* Addresses that are there before anything is mapped: the null page, and the arena's holes. */
#include "base/macros.h"
#include "client/lib/calls/op.h"
#include "client/lib/mapping/map.h"
#include "tests/unit/client-memory.h"
#include "tests/unit/touchable.h"

static void serve_vmm_null(struct fake_peer *p)
{
        p->has_null_set = true;
        serve_vmm(p);
}

static void serve_ipc_null(struct fake_peer *p)
{
        p->has_null_set = true;
        serve_ipc(p);
}

static uint8_t *at(const struct world *w, uint32_t page, uint32_t plane)
{
        return (uint8_t *)kvl_plane_base(w->ns, plane) + (size_t)page * PAGE_BYTES;
}

/* Leases a page of set 0, and frees it: the set stays mapped. */
static void map_set(struct world *w)
{
        uint32_t page;

        assert_int_equal(kvl_lease(w->ns, 0, 1, &page), 0);
        assert_true(page < SET_PAGES);
        assert_int_equal(kvl_free(w->ns, &page, 1), 0);
}

static void unmap_set(struct world *w)
{
        const uint8_t order[KVL_KEY_BYTES] = {ORDER_RECALL};
        uint64_t n;

        assert_int_equal(kvl_invalidate(w->ns, order, &n), 0);
        assert_int_equal(kvl_safepoint(w->conn, NULL), 1);
        assert_null(kvl_page_ptr(w->ns, 1, 0));
}

static void check_page_zero(struct world *w)
{
        for (uint32_t plane = 0; plane < N_PLANES; plane++) {
                uint8_t got[2] = {1, 1};

                assert_ptr_equal(kvl_page_ptr(w->ns, 0, plane), at(w, 0, plane));
                assert_true(is_zero(at(w, 0, plane), PAGE_BYTES));
                assert_true(is_writable(at(w, 0, plane) + PAGE_BYTES - 1));
                assert_int_equal(
                        kvl_page_read(w->ns, 0, plane, PAGE_BYTES - 2, got, sizeof(got)), 0);
                assert_true(got[0] == 0 && got[1] == 0);
        }
}

static void check_hole(struct world *w, uint32_t first_page)
{
        for (uint32_t plane = 0; plane < N_PLANES; plane++)
                for (uint32_t page = first_page; page < FAKE_N_SETS * SET_PAGES; page++) {
                        assert_true(is_readable(at(w, page, plane)));
                        assert_true(is_zero(at(w, page, plane), PAGE_BYTES));
                        assert_false(is_writable(at(w, page, plane)));
                        assert_null(kvl_page_ptr(w->ns, page, plane));
                }
}

static void with_holes(void **state, unsigned flags)
{
        uint32_t first = flags & KVL_NS_KEEP_PAGE_ZERO ? 1 : 0;
        struct world w;

        open_world(state, &w, serve, KVL_NS_BACK_HOLES | flags, 0);
        assert_int_equal(w.r, 0);
        check_hole(&w, first);
        map_set(&w);
        check_hole(&w, SET_PAGES);
        memset(kvl_page_ptr(w.ns, 1, 2), 7, PAGE_BYTES);
        unmap_set(&w);
        check_hole(&w, first);
        if (first > 0)
                check_page_zero(&w);
        map_set(&w);
        assert_true(is_writable(at(&w, 1, 2)));
        close_world(&w);
}

TEST_BOTH(test_holes)
{
        with_holes(state, 0);
        with_holes(state, KVL_NS_KEEP_PAGE_ZERO);
}

static bool is_populated(const struct world *w, uint32_t page)
{
        return ns_are_populated(w->ns, &page, 1);
}

static void open_gpu(
        void **state, struct world *w, fake_script script, enum device_transport transport)
{
        fake_gpu_reset(transport);
        open_world(state, w, script, KVL_NS_KEEP_PAGE_ZERO, 0);
}

TEST_BOTH(test_gpu_holes)
{
        static const fake_script scripts[] = {serve_vmm, serve_ipc};
        static const enum device_transport transports[] = {TRANSPORT_VMM, TRANSPORT_CUDAIPC};
        struct world w;

        for (unsigned i = 0; i < 2; i++) {
                fake_gpu_reset(transports[i]);
                open_world(state, &w, scripts[i], KVL_NS_BACK_HOLES, 0);
                assert_int_equal(w.r, -EOPNOTSUPP);
                assert_non_null(strstr(kvl_last_error(), "without KVL_NS_BACK_HOLES"));
                close_world(&w);
        }
}

/* One that is written stays so, also while other sets come and go. Page `other` isn't the null
 * set's. */
static void check_gpu_page_zero(struct world *w, uint32_t other)
{
        const uint8_t ones[2] = {1, 1};
        uint8_t got[2] = {7, 7};

        assert_int_equal(kvl_page_write(w->ns, 0, N_PLANES - 1, 0, ones, sizeof(ones)), 0);
        assert_int_equal(kvl_page_read(w->ns, 0, N_PLANES - 1, 0, got, sizeof(got)), 0);
        assert_int_equal(got[0], 1);
        assert_int_equal(kvl_page_copy(w->ns, 0, other), 0);
        assert_int_equal(kvl_page_read(w->ns, other, N_PLANES - 1, 0, got, sizeof(got)), 0);
        assert_int_equal(got[0], 1);
        assert_int_equal(kvl_page_write(w->ns, other, 0, PAGE_BYTES - 2, "\0", 2), 0);
        assert_int_equal(kvl_page_copy(w->ns, other, 0), 0);
        assert_int_equal(kvl_page_write(w->ns, 0, 0, 0, "\0", 2), 0);
}

TEST_BOTH(test_gpu_vmm)
{
        struct world w;
        uint32_t page;

        open_gpu(state, &w, serve_vmm_null, TRANSPORT_VMM);
        assert_int_equal(w.r, 0);
        check_page_zero(&w);
        assert_null(kvl_page_ptr(w.ns, 1, 0));
        assert_int_equal(kvl_lease(w.ns, 0, 1, &page), 0);
        assert_true(page >= SET_PAGES);
        assert_true(is_populated(&w, page)); /* no more than mapped: it has no arena_populate() */
        check_page_zero(&w);
        check_gpu_page_zero(&w, page);
        assert_null(kvl_page_ptr(w.ns, 1, 0));
        close_world(&w);
        assert_int_equal(fake_gpu.n_open, 0);
        assert_int_equal(fake_gpu.n_mapped, fake_gpu.n_unmapped);
        assert_int_equal(fake_gpu.n_mapped, 2 * N_PLANES);
}

/* Without a common base, all planes have the same address. */
TEST_BOTH(test_gpu_ipc)
{
        struct world w;
        uint32_t page;

        open_gpu(state, &w, serve_ipc_null, TRANSPORT_CUDAIPC);
        assert_int_equal(w.r, 0);
        assert_non_null(kvl_page_ptr(w.ns, 0, 0));
        assert_ptr_equal(kvl_page_ptr(w.ns, 0, 0), kvl_page_ptr(w.ns, 0, N_PLANES - 1));
        assert_true(is_zero(kvl_page_ptr(w.ns, 0, 0), PAGE_BYTES));
        assert_null(kvl_page_ptr(w.ns, 1, 0));
        assert_int_equal(kvl_lease(w.ns, 0, 1, &page), 0);
        assert_true(page >= SET_PAGES);
        check_gpu_page_zero(&w, page);
        close_world(&w);
        assert_int_equal(fake_gpu.n_open, 0);
        assert_int_equal(fake_gpu.n_mapped, fake_gpu.n_unmapped);
}

TEST_BOTH(test_gpu_full)
{
        static const struct {
                int error, r;
        } cases[] = {{-ENOMEM, -ENOMEM}, {-ENXIO, -EIO}};
        struct world w;

        for (unsigned i = 0; i < 2; i++) {
                fake_gpu_reset(TRANSPORT_VMM);
                fake_gpu.create_error = cases[i].error;
                open_world(state, &w, serve_vmm_null, KVL_NS_KEEP_PAGE_ZERO, 0);
                assert_int_equal(w.r, cases[i].r);
                assert_non_null(strstr(kvl_last_error(), "can't make page 0 of namespace chat"));
                close_world(&w);
                assert_int_equal(fake_gpu.n_open, 0);
        }
}
