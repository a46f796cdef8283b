/* Calls that are started from callbacks, and from other threads than the one that polls. */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/unit/client-support.h"

#define LONG_MSEC 60000
#define N_KEYS    200 /* of a lookup: KVL_MAX_STARTED of them don't fit a socket */

/* [state] shared memory, or the socket alone. */
static bool is_shared(void **state)
{
        return *state;
}

static void script_serve(struct fake_peer *p)
{
        p->shares = true;
        fake_welcome(p);
        fake_serve(p);
}

static void open_client(void **state, struct fake *f, fake_script script, struct kvl_conn **conn,
        struct kvl_ns **ns)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        unsigned flags = is_shared(state) ? 0 : KVL_CONNECT_NO_SHM;

        fake_start(f, script);
        assert_int_equal(test_connect_flags(f, LONG_MSEC, flags, conn), 0);
        assert_int_equal(kvl_ns_open(*conn, "chat", &layout, NULL, 0, ns), 0);
        assert_int_equal(kvl_uses_shm(*ns), is_shared(state));
}

static void close_client(struct fake *f, struct kvl_conn *conn)
{
        kvl_disconnect(conn);
        fake_stop(f);
}

/* An event loop that knows nothing but the descriptor. */
static void poll_until(struct kvl_conn *conn, const _Atomic unsigned *n, unsigned goal)
{
        struct pollfd p = {.fd = kvl_fd(conn), .events = POLLIN};

        while (*n < goal) {
                assert_int_equal(poll(&p, 1, LONG_MSEC), 1);
                assert_true(kvl_dispatch(conn) >= 0);
        }
}

/* ---- from a callback ------------------------------------------------------------------------ */

struct started {
        struct kvl_conn *conn;
        uint8_t keys[N_KEYS * KVL_KEY_BYTES];
        _Atomic unsigned n_started, n_done;
        unsigned n_refused;
};

static void count_miss(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        struct started *s = data;

        assert_int_equal(code, KVL_MISS);
        s->n_done++;
}

/* After -EAGAIN, in the callback of any. */
static void start_another(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        struct started *s = data;

        s->n_done++;
        if (s->n_started == 2 * KVL_MAX_STARTED)
                return;
        assert_int_equal(kvl_lookup_start(ns, 0, s->keys, N_KEYS, start_another, s), 0);
        s->n_started++;
}

TEST_BOTH(test_every_callback_starts_one)
{
        static struct started s;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct fake f;
        int r;

        s = (struct started){0};
        open_client(state, &f, script_serve, &conn, &ns);
        while ((r = kvl_lookup_start(ns, 0, s.keys, N_KEYS, start_another, &s)) == 0)
                s.n_started++;
        assert_int_equal(r, -EAGAIN);
        assert_int_equal(s.n_started, KVL_MAX_STARTED);
        poll_until(conn, &s.n_done, 2 * KVL_MAX_STARTED);
        close_client(&f, conn);
}

static void script_leaves(struct fake_peer *p)
{
        fake_welcome_ns(p);
}

TEST(test_refused_calls_do_not_count)
{
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct fake f;

        open_client(state, &f, script_leaves, &conn, &ns);
        while (kvl_dispatch(conn) >= 0)
                ;
        for (unsigned i = 0; i <= KVL_MAX_STARTED; i++)
                assert_int_equal(kvl_lease_start(ns, 0, 1, NULL, NULL), -ENOTCONN);
        assert_int_equal(kvl_lease_start(ns, 0, 5000, NULL, NULL), -EINVAL);
        close_client(&f, conn);
}

/* ---- from another thread -------------------------------------------------------------------- */

/* Reads nothing before the order, and answers nothing before all is read. */
static void script_deaf_until_order(struct fake_peer *p)
{
        Kvlease__V1__LookupReply miss = KVLEASE__V1__LOOKUP_REPLY__INIT;
        static uint64_t seqs[KVL_MAX_STARTED];

        miss.status = WIRE_MISS;
        fake_welcome_ns(p);
        fake_await_call();
        for (size_t i = 0; i < ARRAY_SIZE(seqs); i++) {
                fake_receive(p, MSG_LOOKUP);
                seqs[i] = p->seq;
        }
        for (size_t i = 0; i < ARRAY_SIZE(seqs); i++)
                fake_send(p, MSG_LOOKUP, FRAME_REPLY, seqs[i], &miss.base, NULL, 0);
        fake_serve(p);
}

struct starter {
        struct started *s;
        struct kvl_ns *ns;
        unsigned n;
};

static void *start_many(void *data)
{
        struct starter *starter = data;

        for (unsigned i = 0; i < starter->n; i++)
                if (kvl_lookup_start(
                            starter->ns, 0, starter->s->keys, N_KEYS, count_miss, starter->s) != 0)
                        return NULL;
        return starter;
}

static void start_in_thread(struct starter *starter)
{
        pthread_t thread;
        void *result;

        assert_int_equal(pthread_create(&thread, NULL, start_many, starter), 0);
        pthread_join(thread, &result);
        assert_ptr_equal(result, starter);
}

/* The polling thread sends the rest that another thread left: the daemon sends nothing. */
TEST(test_poller_sends_the_rest)
{
        static struct started s;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct fake f;

        s = (struct started){0};
        open_client(state, &f, script_deaf_until_order, &conn, &ns);
        assert_true(kvl_fd(conn) >= 0);
        assert_int_equal(kvl_dispatch(conn), 0);
        start_in_thread(&(struct starter){&s, ns, KVL_MAX_STARTED});
        fake_call();
        poll_until(conn, &s.n_done, KVL_MAX_STARTED);
        close_client(&f, conn);
}

/* ---- closing a namespace while another thread is told of it --------------------------------- */

#define CLOSE_ROUNDS 100

/* From an INVALIDATE to the next request there are events all the time. */
static void script_notices(struct fake_peer *p)
{
        const ProtobufCMessage *m;
        struct pollfd in = {.events = POLLIN};

        fake_welcome(p);
        in.fd = p->fd;
        do {
                m = fake_receive_any(p);
                if (!fake_serve_one(p, m))
                        return;
                while (p->type == MSG_INVALIDATE && poll(&in, 1, 0) == 0) {
                        fake_recall(p, 0, false, 1500);
                        usleep(20);
                }
        } while (true);
}

static _Thread_local bool is_closing;

#if !defined(__SANITIZE_THREAD__)
/* The thread that closes a namespace pauses after each unlock: another one gets the lock. */
int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
        static int (*unlock)(pthread_mutex_t * mutex);
        int r;

        if (!unlock)
                unlock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
        r = unlock(mutex);
        if (is_closing)
                usleep(50);
        return r;
}
#endif

struct told {
        struct kvl_conn *conn;
        _Atomic bool stop;
        _Atomic unsigned n, n_wrong;
};

static void on_event(struct kvl_conn *conn, const struct kvl_event *event, void *data)
{
        struct told *told = data;

        told->n++;
        usleep(200); /* longer than the closing thread pauses */
        told->n_wrong += event->ns && strcmp(kvl_ns_name(event->ns), "closing") != 0;
}

static void *dispatch_on(void *data)
{
        struct told *told = data;

        while (!told->stop)
                told->n_wrong += kvl_dispatch(told->conn) < 0;
        return NULL;
}

/* No event begins to be told of a namespace that is about to be freed. */
TEST(test_close_beside_events)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        struct told told = {0};
        pthread_t thread;
        struct kvl_ns *ns;
        struct fake f;
        uint64_t n;

        fake_start(&f, script_notices);
        assert_int_equal(test_connect(&f, LONG_MSEC, &told.conn), 0);
        kvl_set_event_handler(told.conn, on_event, &told);
        assert_int_equal(pthread_create(&thread, NULL, dispatch_on, &told), 0);
        for (unsigned i = 0; i < CLOSE_ROUNDS; i++) {
                assert_int_equal(kvl_ns_open(told.conn, "closing", &layout, NULL, 0, &ns), 0);
                assert_int_equal(kvl_invalidate(ns, NULL, &n), 0);
                is_closing = true;
                kvl_ns_close(ns);
                is_closing = false;
        }
        told.stop = true;
        pthread_join(thread, NULL);
        assert_int_equal(told.n_wrong, 0);
        assert_true(told.n > 0);
        close_client(&f, told.conn);
}

/* ---- closing while a callback runs ---------------------------------------------------------- */

struct stay {
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        _Atomic unsigned n_done;
        _Atomic bool is_inside, closes;
};

/* Returns when the other thread has had time to sleep in kvl_ns_close(). */
static void stay_inside(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        struct stay *s = data;

        s->is_inside = true;
        while (!s->closes)
                usleep(1000);
        usleep(100000);
        s->n_done++;
}

static void *poll_stay(void *data)
{
        struct stay *s = data;

        poll_until(s->conn, &s->n_done, 1);
        return NULL;
}

static void *close_stay(void *data)
{
        struct stay *s = data;

        s->closes = true;
        kvl_ns_close(s->ns);
        return NULL;
}

/* The end of the last callback wakes the thread that closes its namespace. */
TEST_BOTH(test_close_waits_for_callback)
{
        const uint8_t key[KVL_KEY_BYTES] = {1};
        pthread_t poller, closer;
        struct stay s = {0};
        struct timespec end;
        struct fake f;

        open_client(state, &f, script_serve, &s.conn, &s.ns);
        assert_int_equal(kvl_lookup_start(s.ns, 0, key, 1, stay_inside, &s), 0);
        assert_int_equal(pthread_create(&poller, NULL, poll_stay, &s), 0);
        while (!s.is_inside)
                usleep(1000);
        assert_int_equal(pthread_create(&closer, NULL, close_stay, &s), 0);
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += LONG_MSEC / 1000;
        assert_int_equal(pthread_timedjoin_np(closer, NULL, &end), 0);
        assert_int_equal(s.n_done, 1);
        pthread_join(poller, NULL);
        close_client(&f, s.conn);
}
