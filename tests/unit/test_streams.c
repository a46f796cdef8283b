/* Publishing, releasing and freeing on a stream, against a GPU whose streams run when the test says
 * so. Each test runs in shared memory and over the socket alone. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "client/lib/calls/op.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/client-support.h"
#include "tests/unit/fake-gpu.h"

#define PATIENCE_MSEC 20000

static void *const STREAM = (void *)0x1000;

/* ---- a connection with a namespace on the GPU ----------------------------------------------- */

struct world {
        struct fake f;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
};

static void script_gpu(struct fake_peer *p)
{
        p->shares = true;
        p->device = FAKE_GPU_NAME;
        p->transport = TRANSPORT_VMM;
        fake_welcome(p);
        fake_serve(p);
}

/* Pages that the client holds end with the namespace; released ones must be free before. */
static void script_strict(struct fake_peer *p)
{
        script_gpu(p);
        fake_check_nothing_held(p);
}

/* state: not NULL for shared memory. */
static void open_world(void **state, struct world *w, fake_script script)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);

        fake_gpu_reset(TRANSPORT_VMM);
        fake_start(&w->f, script);
        assert_int_equal(
                *state ? test_connect_shared(&w->f, 0, &w->conn) : test_connect(&w->f, 0, &w->conn),
                0);
        assert_int_equal(kvl_ns_open(w->conn, "chat", &layout, NULL, 0, &w->ns), 0);
        assert_int_equal(kvl_uses_shm(w->ns), *state != NULL);
}

static void close_world(struct world *w)
{
        kvl_disconnect(w->conn);
        fake_stop(&w->f);
        assert_int_equal(fake_gpu.n_open, 0);
}

/* ---- calls ---------------------------------------------------------------------------------- */

struct result {
        _Atomic int code; /* set last, by whichever thread; 1000: not yet */
        uint32_t n_pages, page;
        unsigned order; /* of the callbacks, from 1 */
};

static _Atomic unsigned n_results;

static void on_done(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        struct result *r = data;

        r->n_pages = n_pages;
        r->page = n_pages > 0 ? pages[0] : KVL_PAGE_NONE;
        r->order = ++n_results;
        r->code = code;
}

static void wait_for(struct kvl_conn *conn, const struct result *r)
{
        for (int i = 0; r->code == 1000; i++) {
                struct pollfd p = {.fd = kvl_fd(conn), .events = POLLIN};

                assert_true(i < PATIENCE_MSEC);
                poll(&p, 1, 1);
                kvl_dispatch(conn);
        }
}

/* Key i, for one page; after key `parent`, or the first of a text where that is 0. */
static int publish(
        struct world *w, uint32_t page, uint32_t i, uint32_t parent, void *stream, struct result *r)
{
        uint8_t key[KVL_KEY_BYTES], parent_key[KVL_KEY_BYTES];
        const struct kvl_publish p = {
                .size = sizeof(p),
                .pages = &page,
                .keys = key,
                .n_pages = 1,
                .parent_key = parent ? parent_key : NULL,
                .last_tokens = 16,
        };

        test_key(key, i);
        test_key(parent_key, parent);
        *r = (struct result){.code = 1000};
        return kvl_publish_on_stream(w->ns, &p, stream, on_done, r);
}

static int publish_now(struct world *w, uint32_t page, uint32_t i)
{
        uint8_t key[KVL_KEY_BYTES];
        const struct kvl_publish p = {
                .size = sizeof(p), .pages = &page, .keys = key, .n_pages = 1, .last_tokens = 16};
        uint32_t got, n = 77;
        int r;

        test_key(key, i);
        r = kvl_publish(w->ns, &p, &got, &n);
        assert_int_equal(n, r == 0);
        return r;
}

static int find(struct world *w, uint32_t i, uint32_t *ret_page)
{
        uint8_t key[KVL_KEY_BYTES];
        uint64_t n_tokens;
        uint32_t n;

        test_key(key, i);
        return kvl_lookup(w->ns, 0, key, 1, ret_page, &n, &n_tokens);
}

/* ---- in order ------------------------------------------------------------------------------- */

TEST_BOTH(test_order)
{
        struct result r[8];
        uint32_t pages[8];
        struct world w;

        open_world(state, &w, script_strict);
        assert_int_equal(kvl_lease(w.ns, 0, 8, pages), 0);
        for (uint32_t i = 0; i < 8; i++)
                assert_int_equal(publish(&w, pages[i], i + 1, i, STREAM, &r[i]), 0);
        n_results = 0;
        /* All are handed in while a thread has the lock: the host functions don't wait. */
        conn_lock(w.conn->conn);
        fake_gpu_run(8);
        assert_non_null(w.conn->conn->errands);
        conn_unlock(w.conn->conn);
        assert_null(w.conn->conn->errands);
        for (uint32_t i = 0; i < 8; i++) {
                wait_for(w.conn, &r[i]);
                assert_int_equal(r[i].code, 0);
                assert_int_equal(r[i].order, i + 1);
        }
        assert_int_equal(kvl_release(w.ns, pages, 8), 0);
        close_world(&w);
}

/* ---- none is left lying --------------------------------------------------------------------- */

/* The lock whose next unlock lets a host function run first: after its holder has looked. */
static pthread_mutex_t *_Atomic late_lock;

int __real_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);

int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock)
{
        if (lock == late_lock) {
                late_lock = NULL;
                fake_gpu_run(1);
        }
        return __real_pthread_mutex_unlock(lock);
}

/* A thread that goes to sleep also gives the lock back. */
TEST_BOTH(test_sleeper)
{
        pthread_condattr_t attributes;
        pthread_cond_t wakeup;
        struct result r;
        uint32_t page;
        struct world w;

        open_world(state, &w, script_strict);
        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(&wakeup, &attributes);
        assert_int_equal(kvl_lease(w.ns, 0, 1, &page), 0);
        assert_int_equal(publish(&w, page, 1, 0, STREAM, &r), 0);
        conn_lock(w.conn->conn);
        late_lock = &w.conn->conn->lock;
        assert_int_equal(conn_sleep(w.conn->conn, &wakeup, conn_deadline(PATIENCE_MSEC)), 0);
        assert_null(w.conn->conn->errands);
        conn_unlock(w.conn->conn);
        pthread_cond_destroy(&wakeup);
        wait_for(w.conn, &r);
        assert_int_equal(r.code, 0);
        assert_int_equal(kvl_release(w.ns, &page, 1), 0);
        close_world(&w);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The host functions run while the namespace is closed. */
TEST_BOTH(test_close_races)
{
        for (int i = 0; i < 20; i++) {
                struct result r;
                uint32_t pages[2];
                struct world w;

                open_world(state, &w, script_gpu);
                assert_int_equal(kvl_lease(w.ns, 0, 2, pages), 0);
                assert_int_equal(publish_now(&w, pages[1], 7), 0);
                assert_int_equal(publish(&w, pages[0], 1, 0, STREAM, &r), 0);
                assert_int_equal(kvl_release_on_stream(w.ns, pages + 1, 1, STREAM), 0);
                fake_gpu_run_start(2);
                for (int spin = 0; spin < i * 200; spin++)
                        atomic_thread_fence(memory_order_seq_cst);
                kvl_ns_close(w.ns);
                assert_true(r.code == -ECANCELED || r.code == 0);
                fake_gpu_run_join();
                close_world(&w);
        }
}

/* A call was done before the close that runs its callback, which goes on working. */
struct late_work {
        struct world *w;
        uint32_t page; /* to publish */
        struct result published;
        unsigned n_done;
};

static void work_in_callback(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        struct late_work *work = data;

        assert_int_equal(code, 0);
        assert_int_equal(publish(work->w, work->page, 2, 0, STREAM, &work->published), 0);
        assert_int_equal(kvl_release_on_stream(ns, pages, n_pages, STREAM), 0);
        work->n_done++;
}

static void close_with_callback(void **state, bool disconnects)
{
        struct late_work work = {0};
        uint8_t key[KVL_KEY_BYTES];
        uint32_t pages[2];
        struct world w;

        open_world(state, &w, script_gpu);
        assert_int_equal(kvl_lease(w.ns, 0, 2, pages), 0);
        assert_int_equal(publish_now(&w, pages[0], 1), 0);
        work.w = &w;
        work.page = pages[1];
        test_key(key, 1);
        assert_int_equal(kvl_lookup_start(w.ns, 0, key, 1, work_in_callback, &work), 0);
        if (!disconnects)
                kvl_ns_close(w.ns);
        close_world(&w);
        assert_int_equal(work.n_done, 1);
        assert_int_equal(work.published.code, -ECANCELED);
        fake_gpu_run(2);
}

TEST_SHARED(test_callback_of_close)
{
        close_with_callback(state, false);
        close_with_callback(state, true);
}

static void script_die(struct fake_peer *p)
{
        p->shares = true;
        p->device = FAKE_GPU_NAME;
        p->transport = TRANSPORT_VMM;
        fake_welcome(p);
        for (;;) {
                const ProtobufCMessage *m = fake_receive_any(p);

                if (p->type == MSG_INVALIDATE)
                        return;
                fake_serve_one(p, m);
        }
}

TEST_BOTH(test_daemon_dies)
{
        uint32_t pages[2], shared;
        struct result r;
        struct world w;

        open_world(state, &w, script_die);
        assert_int_equal(kvl_lease(w.ns, 0, 2, pages), 0);
        assert_int_equal(publish(&w, pages[0], 1, 0, STREAM, &r), 0);
        if (*state) {
                fast_pin(&w.ns->fast, pages + 1, 1);
                assert_int_equal(kvl_release_on_stream(w.ns, pages + 1, 1, STREAM), 0);
        }
        assert_true(kvl_invalidate(w.ns, NULL, NULL) < 0);
        kvl_dispatch(w.conn);
        assert_true(r.code == -ECONNRESET || r.code == -EPIPE);
        assert_int_equal(publish(&w, pages[1], 1, 0, STREAM, &r), -ENOTCONN);
        assert_int_equal(kvl_free_on_stream(w.ns, pages, 1, STREAM), -ENOTCONN);
        fake_gpu_run(2);
        /* Hits and releases go on. */
        shared = *state ? pages[1] : 0;
        if (*state)
                assert_false(fast_is_pinned(&w.ns->fast, shared));
        close_world(&w);
}

/* ---- memory is short
 * ------------------------------------------------------------------------------- */

TEST_BOTH(test_no_memory)
{
        uint32_t pages[2], page;
        struct result r;
        struct world w;
        int code = -ENOMEM;

        open_world(state, &w, script_strict);
        assert_int_equal(kvl_lease(w.ns, 0, 2, pages), 0);
        assert_int_equal(publish_now(&w, pages[0], 7), 0);
        for (unsigned i = 1; code != 0; i++) {
                alloc_fail_at(i);
                code = publish(&w, pages[1], 1, 0, STREAM, &r);
                assert_int_equal(alloc_fail_end(), code != 0);
                assert_true(code == 0 || code == -ENOMEM);
                if (*state)
                        assert_int_equal(fast_is_pinned(&w.ns->fast, pages[1]), code == 0);
        }
        fake_gpu_run(1);
        wait_for(w.conn, &r);
        alloc_fail_at(1);
        assert_int_equal(kvl_release_on_stream(w.ns, pages, 1, STREAM), -ENOMEM);
        assert_true(alloc_fail_end());
        assert_int_equal(kvl_release(w.ns, pages, 2), 0);
        assert_int_equal(find(&w, 1, &page), 0);
        assert_int_equal(kvl_release(w.ns, &page, 1), 0);
        close_world(&w);
}

/* ---- broken contexts ------------------------------------------------------------------------ */

TEST_BOTH(test_context_is_broken)
{
        struct result r;
        uint32_t page;
        struct world w;

        open_world(state, &w, script_gpu);
        assert_int_equal(kvl_lease(w.ns, 0, 1, &page), 0);
        fake_gpu_break();
        assert_int_equal(publish(&w, page, 1, 0, STREAM, &r), -EIO);
        assert_non_null(strstr(kvl_last_error(), "broken"));
        assert_int_equal(publish_now(&w, page, 1), -EIO);
        assert_int_equal(kvl_free_on_stream(w.ns, &page, 1, STREAM), -EIO);
        if (*state)
                assert_false(fast_is_pinned(&w.ns->fast, page));
        assert_int_equal(kvl_free(w.ns, &page, 1), 0);
        close_world(&w);
}

TEST_BOTH(test_mapping_finds_it_broken)
{
        uint32_t pages[33];
        struct world w;

        open_world(state, &w, script_gpu);
        assert_int_equal(kvl_lease(w.ns, 0, 1, pages), 0);
        fake_gpu_break();
        assert_int_equal(kvl_lease(w.ns, 0, 33, pages), -EIO);
        assert_int_equal(publish_now(&w, 0, 1), -EIO);
        close_world(&w);
}

/* ---- without streams ------------------------------------------------------------------------ */

static void script_host(struct fake_peer *p)
{
        p->shares = true;
        fake_welcome(p);
        fake_serve(p);
        fake_check_nothing_held(p);
}

TEST_BOTH(test_host_device)
{
        uint32_t pages[2];
        struct result r;
        struct world w;

        open_world(state, &w, script_host);
        assert_int_equal(kvl_lease(w.ns, 0, 2, pages), 0);
        assert_int_equal(publish(&w, pages[0], 1, 0, STREAM, &r), -EINVAL);
        assert_int_equal(kvl_release_on_stream(w.ns, pages, 1, STREAM), -EINVAL);
        assert_int_equal(kvl_free_on_stream(w.ns, pages, 1, STREAM), -EINVAL);
        assert_int_equal(publish(&w, pages[0], 1, 0, NULL, &r), 0);
        wait_for(w.conn, &r);
        assert_int_equal(r.code, 0);
        assert_int_equal(kvl_release_on_stream(w.ns, pages, 1, NULL), 0);
        assert_int_equal(kvl_free_on_stream(w.ns, pages + 1, 1, NULL), 0);
        assert_int_equal(kvl_free_on_stream(w.ns, pages + 1, 0, NULL), -EINVAL);
        close_world(&w);
}

TEST_BOTH(test_metadata_only)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        uint32_t page = 0;
        struct result r;
        struct world w;
        uint8_t byte;

        fake_gpu_reset(TRANSPORT_VMM);
        fake_start(&w.f, script_gpu);
        assert_int_equal(
                test_connect_flags(&w.f, 0,
                        KVL_CONNECT_METADATA_ONLY | (*state ? 0 : KVL_CONNECT_NO_SHM), &w.conn),
                0);
        assert_int_equal(kvl_ns_open(w.conn, "chat", &layout, NULL, 0, &w.ns), 0);
        assert_int_equal(publish(&w, page, 1, 0, NULL, &r), -EACCES);
        assert_int_equal(kvl_release_on_stream(w.ns, &page, 1, NULL), -EACCES);
        assert_int_equal(kvl_free_on_stream(w.ns, &page, 1, NULL), -EACCES);
        assert_int_equal(kvl_page_read(w.ns, page, 0, 0, &byte, 1), -EACCES);
        close_world(&w);
}
