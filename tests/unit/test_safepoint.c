/* Memory of a GPU: how it is mapped and copied, and how it goes back at safe points. Most tests run
 * in shared memory and over the socket alone. */
#include <sys/mman.h>

#include "client/lib/calls/op.h"
#include "client/lib/connection/conn-impl.h"
#include "client/lib/mapping/map.h"
#include "tests/unit/client-support.h"
#include "tests/unit/fake-gpu.h"

#define ADDRESS   UINT64_C(0x200000000000) /* daemon/core/memory/address.h */
#define SET_PAGES 32                       /* FAKE_EXTENT_BYTES / PAGE_BYTES */

static void *const STREAM = (void *)0x1000;

struct world {
        struct fake f;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
};

/* ---- scripts -------------------------------------------------------------------------------- */

/* A key of an INVALIDATE that begins so is an order to the fake daemon. */
enum { ORDER_RECALL = 200, ORDER_DIE };

static void serve_orders(struct fake_peer *p)
{
        const Kvlease__V1__InvalidateRequest *order;
        const ProtobufCMessage *m;

        fake_welcome(p);
        do {
                while (p->has_rings && !fake_rings_sleep(&p->rings))
                        p->type = 0, fake_serve_one(p, NULL);
                m = fake_receive_any(p);
                order = (const Kvlease__V1__InvalidateRequest *)m;
                if (!m || p->type != MSG_INVALIDATE || order->key.len == 0)
                        continue;
                if (order->key.data[0] == ORDER_DIE)
                        return;
                if (order->key.data[0] == ORDER_RECALL)
                        fake_recall(p, order->key.data[1], order->key.data[2], 1500);
        } while (fake_serve_one(p, m));
}

static void script_vmm(struct fake_peer *p)
{
        p->shares = true;
        p->device = FAKE_GPU_NAME;
        p->transport = TRANSPORT_VMM;
        p->address = ADDRESS;
        serve_orders(p);
}

static void script_unmapped_once(struct fake_peer *p)
{
        script_vmm(p);
        FAKE_CHECK(p->n_unmapped[0] == 1);
        for (unsigned i = 1; i < FAKE_N_SETS; i++)
                FAKE_CHECK(p->n_unmapped[i] == 0);
}

static void script_unmapped_never(struct fake_peer *p)
{
        script_vmm(p);
        for (unsigned i = 0; i < FAKE_N_SETS; i++)
                FAKE_CHECK(p->n_unmapped[i] == 0);
}

static void script_host(struct fake_peer *p)
{
        p->shares = true;
        p->address = ADDRESS;
        serve_orders(p);
}

static void start_world(
        void **state, struct world *w, fake_script script, enum device_transport transport)
{
        fake_gpu_reset(transport);
        fake_start(&w->f, script);
        assert_int_equal(
                *state ? test_connect_shared(&w->f, 0, &w->conn) : test_connect(&w->f, 0, &w->conn),
                0);
}

static int open_ns(struct world *w, uint32_t n_planes, unsigned flags)
{
        struct kvl_layout layout = test_layout(n_planes, PAGE_BYTES);

        return kvl_ns_open(w->conn, "chat", &layout, NULL, flags, &w->ns);
}

static void open_world(void **state, struct world *w, fake_script script, uint32_t n_planes)
{
        start_world(state, w, script, TRANSPORT_VMM);
        assert_int_equal(open_ns(w, n_planes, 0), 0);
}

static void close_world(struct world *w)
{
        kvl_disconnect(w->conn);
        fake_stop(&w->f);
        assert_int_equal(fake_gpu.n_open, 0);
        assert_int_equal(fake_gpu.n_mapped, fake_gpu.n_unmapped);
}

/* ---- mapping -------------------------------------------------------------------------------- */

static void check_copies(struct world *w, uint32_t page, uint32_t plane)
{
        uint8_t bytes[4] = {1, 2, 3, 4}, got[4] = {0};

        assert_int_equal(kvl_page_write(w->ns, page, plane, PAGE_BYTES - 4, bytes, 4), 0);
        assert_int_equal(kvl_page_read(w->ns, page, plane, PAGE_BYTES - 4, got, 4), 0);
        assert_memory_equal(bytes, got, 4);
        /* The fake GPU's addresses are the CPU's. */
        assert_memory_equal((uint8_t *)kvl_page_ptr(w->ns, page, plane) + PAGE_BYTES - 4, bytes, 4);
        assert_int_equal(kvl_page_read(w->ns, page, plane, PAGE_BYTES, got, 0), 0);
        assert_int_equal(kvl_page_read(w->ns, page, plane, PAGE_BYTES, got, 1), -EINVAL);
        assert_int_equal(kvl_page_read(w->ns, page, plane, UINT64_MAX, got, 2), -EINVAL);
        assert_int_equal(kvl_page_read(w->ns, page, 3, 0, got, 1), -EINVAL);
        assert_int_equal(kvl_page_read(w->ns, 4 * SET_PAGES, plane, 0, got, 1), -EINVAL);
        assert_int_equal(kvl_page_read(w->ns, page, plane, 0, NULL, 1), -EINVAL);
        assert_int_equal(kvl_page_write(w->ns, 4 * SET_PAGES - 1, plane, 0, got, 1), -ENOENT);
}

TEST(test_device_errors)
{
        const struct {
                int error, code;
                const char *says;
        } rows[] = {
                {-ENODEV, -ENOENT, "this process can't use the device " FAKE_GPU_NAME ": so why"},
                {-ELIBBAD, -ENOENT, "version"},
                {-EOPNOTSUPP, -EOPNOTSUPP, "transport"},
                {-EIO, -EIO, "so why"},
        };
        struct world w;

        start_world(state, &w, script_vmm, TRANSPORT_VMM);
        fake_gpu.open_why = "so why";
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                fake_gpu.open_error = rows[i].error;
                assert_int_equal(open_ns(&w, 1, 0), rows[i].code);
                assert_non_null(strstr(kvl_last_error(), rows[i].says));
                assert_non_null(strstr(kvl_last_error(), "so why"));
        }
        close_world(&w);
}

/* ---- the same address ----------------------------------------------------------------------- */

#if !defined(__SANITIZE_THREAD__) /* its shadow is there */
TEST(test_same_address)
{
        fake_script scripts[] = {script_vmm, script_host};

        for (int i = 0; i < 2; i++) {
                uint32_t page;
                void *taken;
                struct world w;

                start_world(state, &w, scripts[i], TRANSPORT_VMM);
                assert_int_equal(open_ns(&w, 1, KVL_NS_SAME_ADDRESS), 0);
                assert_ptr_equal(kvl_plane_base(w.ns, 0), (void *)ADDRESS);
                assert_int_equal(kvl_lease(w.ns, 0, 1, &page), 0);
                check_copies(&w, page, 0);
                close_world(&w);
                taken = mmap((void *)(ADDRESS + 4096), 4096, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
                assert_ptr_equal(taken, (void *)(ADDRESS + 4096));
                start_world(state, &w, scripts[i], TRANSPORT_VMM);
                assert_int_equal(open_ns(&w, 1, KVL_NS_SAME_ADDRESS), -EBUSY);
                assert_non_null(strstr(kvl_last_error(), "0x200000000000"));
                close_world(&w);
                munmap(taken, 4096);
        }
}
#endif

static void script_no_address(struct fake_peer *p)
{
        p->device = FAKE_GPU_NAME;
        p->transport = TRANSPORT_VMM;
        serve_orders(p);
}

TEST(test_no_address_left)
{
        struct world w;

        start_world(state, &w, script_no_address, TRANSPORT_VMM);
        assert_int_equal(open_ns(&w, 1, KVL_NS_SAME_ADDRESS), -EOPNOTSUPP);
        assert_non_null(strstr(kvl_last_error(), "none left"));
        close_world(&w);
}

/* ---- recall --------------------------------------------------------------------------------- */

static unsigned n_events;
static struct kvl_event last_event;

static void on_event(struct kvl_conn *conn, const struct kvl_event *event, void *data)
{
        if (event->type != KVL_EVENT_REVOKE)
                return;
        n_events++;
        last_event = *event;
}

/* The event is handled when it returns. */
static void order_recall(struct world *w, uint32_t set, bool is_idle)
{
        const uint8_t order[KVL_KEY_BYTES] = {ORDER_RECALL, (uint8_t)set, is_idle};
        unsigned n_before = n_events;
        uint64_t count;

        kvl_set_event_handler(w->conn, on_event, NULL);
        assert_int_equal(kvl_invalidate(w->ns, order, &count), 0);
        assert_int_equal(n_events, n_before + 1);
        assert_ptr_equal(last_event.ns, w->ns);
        assert_int_equal(last_event.is_idle, is_idle);
}

/* A set with pins in the client's own segment stays mapped, for any recall. */
TEST_SHARED(test_pinned)
{
        uint32_t page;
        struct world w;

        open_world(state, &w, script_unmapped_once, 1);
        assert_int_equal(kvl_lease(w.ns, 0, 1, &page), 0);
        assert_int_equal(page, 0);
        fast_pin(&w.ns->fast, &page, 1);
        order_recall(&w, 0, true);
        assert_int_equal(kvl_safepoint(w.conn, STREAM), 0);
        assert_int_equal(fake_gpu.n_waits, 0);
        assert_non_null(kvl_page_ptr(w.ns, page, 0));
        assert_int_equal(kvl_release(w.ns, &page, 1), 0);
        assert_int_equal(kvl_safepoint(w.conn, STREAM), 1);
        close_world(&w);
}

static void pin_meanwhile(void *data)
{
        struct world *w = data;

        fast_pin(&w->ns->fast, &(uint32_t){0}, 1);
}

TEST_SHARED(test_pinned_during_wait)
{
        uint32_t page;
        struct world w;

        open_world(state, &w, script_unmapped_never, 1);
        assert_int_equal(kvl_lease(w.ns, 0, 1, &page), 0);
        fake_gpu.on_wait = pin_meanwhile;
        fake_gpu.on_wait_data = &w;
        order_recall(&w, 0, true);
        assert_int_equal(kvl_safepoint(w.conn, STREAM), 0);
        assert_non_null(kvl_page_ptr(w.ns, 0, 0));
        close_world(&w);
}

TEST_BOTH(test_broken_stream)
{
        uint8_t key[KVL_KEY_BYTES] = {1};
        uint32_t page;
        struct kvl_publish p = {
                .size = sizeof(p), .pages = &page, .keys = key, .n_pages = 1, .last_tokens = 1};
        struct world w;

        open_world(state, &w, script_unmapped_never, 1);
        assert_int_equal(kvl_lease(w.ns, 0, 1, &page), 0);
        order_recall(&w, 0, true);
        fake_gpu_break();
        assert_int_equal(kvl_safepoint(w.conn, STREAM), -EIO);
        assert_non_null(strstr(kvl_last_error(), "broken"));
        assert_non_null(kvl_page_ptr(w.ns, page, 0));
        assert_int_equal(kvl_publish(w.ns, &p, NULL, NULL), -EIO);
        close_world(&w);
}

TEST_BOTH(test_unmap_finds_it_broken)
{
        uint8_t key[KVL_KEY_BYTES] = {1};
        uint32_t page;
        struct kvl_publish p = {
                .size = sizeof(p), .pages = &page, .keys = key, .n_pages = 1, .last_tokens = 1};
        struct world w;

        open_world(state, &w, script_unmapped_never, 1);
        assert_int_equal(kvl_lease(w.ns, 0, 1, &page), 0);
        order_recall(&w, 0, true);
        fake_gpu.unmap_error = -ENXIO;
        assert_int_equal(kvl_safepoint(w.conn, STREAM), -EIO);
        assert_int_equal(kvl_publish(w.ns, &p, NULL, NULL), -EIO);
        fake_gpu.unmap_error = 0;
        close_world(&w);
}

TEST_BOTH(test_unmap_fails)
{
        uint32_t page;
        struct world w;

        open_world(state, &w, script_unmapped_once, 3);
        assert_int_equal(kvl_lease(w.ns, 0, 1, &page), 0);
        order_recall(&w, 0, true);
        fake_gpu.unmap_error = -EIO;
        assert_int_equal(kvl_safepoint(w.conn, STREAM), -EIO);
        assert_int_equal(kvl_safepoint(w.conn, STREAM), -EIO);
        fake_gpu.unmap_error = 0;
        assert_int_equal(kvl_safepoint(w.conn, STREAM), 1);
        close_world(&w);
}

TEST_BOTH(test_forgotten)
{
        uint32_t page;
        struct world w;

        open_world(state, &w, script_unmapped_never, 1);
        assert_int_equal(kvl_lease(w.ns, 0, 1, &page), 0);
        order_recall(&w, 0, true);
        order_recall(&w, 0, true);
        assert_int_equal(w.conn->n_recalled, 1);
        kvl_ns_close(w.ns);
        assert_int_equal(w.conn->n_recalled, 0);
        assert_int_equal(kvl_safepoint(w.conn, STREAM), 0);
        close_world(&w);
}
