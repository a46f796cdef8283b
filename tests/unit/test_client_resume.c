/*
 * Calls, threads and loops that outlive the daemon, over the socket: the next daemon executes the
 * requests. Finding the daemon again, or giving up: test_client_reconnect.c. Shared memory and
 * recalled memory: test_client_away.c.
 */
#include <pthread.h>
#include <sys/epoll.h>

#include "base/fd.h"
#include "client/lib/objects/ns.h"
#include "tests/unit/child.h"
#include "tests/unit/client-resume.h"

/* ---- calls that are under way --------------------------------------------------------------- */

/* Which request the daemon dies of, and whether it does it before; from the parent process. */
static uint16_t fatal_type;
static bool is_done_first;

static uint32_t status_of(uint16_t type)
{
        /* Gone where it was done before. */
        switch (type) {
        case MSG_NS_CLOSE:
        case MSG_SESSION_CLOSE:
                return WIRE_NOT_FOUND;
        default:
                return WIRE_OK;
        }
}

/* Requests that the fake daemon answers with just a status: with what the library wants to see. */
static bool serve_special(struct fake_peer *p)
{
        Kvlease__V1__AnnounceReply announced = KVLEASE__V1__ANNOUNCE_REPLY__INIT;
        Kvlease__V1__ExplainReply explained = KVLEASE__V1__EXPLAIN_REPLY__INIT;
        Kvlease__V1__Explanation one = KVLEASE__V1__EXPLANATION__INIT, *ones = &one;
        Kvlease__V1__CountReply count = KVLEASE__V1__COUNT_REPLY__INIT;

        switch (p->type) {
        case MSG_ANNOUNCE:
                announced.n_announced = 1;
                fake_reply(p, &announced.base);
                return true;
        case MSG_EXPLAIN:
                explained.n_explanations = 1;
                explained.explanations = &ones;
                fake_reply(p, &explained.base);
                return true;
        case MSG_REPORT:
        case MSG_SESSION_TRUNCATE:
        case MSG_SESSION_KEEP:
                count.count = 3;
                fake_reply(p, &count.base);
                return true;
        case MSG_SESSION_PAGES:
                fake_reply_simple(p, WIRE_MISS, "");
                return true;
        default:
                return false;
        }
}

static bool serve(struct fake_peer *p, const ProtobufCMessage *m)
{
        return serve_special(p) || fake_serve_one(p, m);
}

static void script_dies_of(struct fake_peer *p)
{
        const ProtobufCMessage *m;
        uint64_t seq;

        p->resumes = true;
        while ((m = fake_receive_any(p)) && p->type != fatal_type)
                serve(p, m);
        FAKE_CHECK(m);
        seq = p->seq;
        p->is_mute = true;
        if (is_done_first)
                serve(p, m);
        p->is_mute = false;
        fake_accept(p);
        fake_take_up(p);
        FAKE_CHECK(p->n_pending == 1 && p->pending[0] == seq && !p->said_shares);
        m = fake_receive_any(p);
        FAKE_CHECK(p->type == fatal_type && p->seq == seq);
        if (is_done_first && status_of(fatal_type) != WIRE_OK)
                fake_reply_simple(p, status_of(fatal_type), "it is gone");
        else
                serve(p, m);
        while (serve(p, fake_receive_any(p)))
                ;
}

/* All blocking calls that ask the daemon, each once. */
static void use_everything(struct client *c)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);
        struct kvl_publish publish = {.size = sizeof(publish), .n_pages = 1, .last_tokens = 16};
        uint32_t pages[2], more[2], n_pages;
        struct kvl_session_page session_page;
        struct kvl_explanation explanation;
        uint8_t key[KVL_KEY_BYTES];
        struct kvl_session *session;
        uint64_t n;

        test_key(key, 1);
        assert_int_equal(kvl_ns_open(c->conn, "chat", &layout, NULL, 0, &c->ns), 0);
        assert_int_equal(kvl_lease(c->ns, 0, 2, pages), 0);
        assert_int_equal(kvl_announce(c->ns, pages, key, 1, &n_pages), 0);
        publish.pages = pages;
        publish.keys = key;
        assert_int_equal(kvl_publish(c->ns, &publish, NULL, NULL), 0);
        assert_int_equal(kvl_wait(c->ns, key, 1000), 0);
        assert_int_equal(kvl_lookup(c->ns, 0, key, 1, more, &n_pages, &n), 0);
        assert_int_equal(more[0], pages[0]);
        assert_int_equal(kvl_release(c->ns, more, 1), 0);
        assert_int_equal(kvl_free(c->ns, pages + 1, 1), 0);
        assert_int_equal(kvl_explain(c->ns, key, 1, &explanation), 0);
        assert_int_equal(kvl_report(c->ns, NULL, 0, &n), 0);
        assert_int_equal(kvl_session_open(c->ns, "s", 1, NULL, NULL, &session), 0);
        assert_int_equal(kvl_session_pages(session, 0, 1, &session_page, &n_pages), KVL_MISS);
        assert_int_equal(kvl_session_truncate(session, 1, 1, &n_pages), 0);
        assert_int_equal(
                kvl_session_keep(session, &(struct kvl_token_range){0, 1}, 1, &n_pages), 0);
        assert_int_equal(kvl_session_close(session, 0), 0);
        assert_int_equal(kvl_invalidate(c->ns, key, &n), 0);
        assert_int_equal(kvl_page_write(c->ns, pages[0], 0, 0, "still mapped", 12), 0);
        kvl_ns_close(c->ns);
        assert_true(kvl_is_connected(c->conn));
}

static void assert_outlives(uint16_t type, bool done_first)
{
        struct client c;
        int fd;

        fatal_type = type;
        is_done_first = done_first;
        resume_connect(&c, script_dies_of, LONG_MSEC, 0, KVL_CONNECT_NO_SHM);
        fd = kvl_fd(c.conn);
        use_everything(&c);
        assert_int_equal(kvl_fd(c.conn), fd);
        assert_int_equal(c.told.n_away, 1);
        assert_int_equal(c.told.n_back, 1);
        assert_int_equal(c.told.n_gone, 0);
        resume_close(&c);
}

TEST(test_every_call_outlives)
{
        static const uint16_t types[] = {MSG_NS_OPEN, MSG_LEASE, MSG_MAP, MSG_ANNOUNCE, MSG_PUBLISH,
                MSG_WAIT, MSG_LOOKUP, MSG_RELEASE, MSG_FREE, MSG_EXPLAIN, MSG_REPORT,
                MSG_SESSION_OPEN, MSG_SESSION_PAGES, MSG_SESSION_TRUNCATE, MSG_SESSION_KEEP,
                MSG_SESSION_CLOSE, MSG_INVALIDATE, MSG_NS_CLOSE};

        for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
                assert_outlives(types[i], false);
                assert_outlives(types[i], true);
        }
}

/* ---- broken off in the middle --------------------------------------------------------------- */

static void script_half_a_reply(struct fake_peer *p)
{
        uint8_t header[FRAME_HEADER_SIZE];

        p->resumes = true;
        fake_welcome_ns(p);
        fake_receive(p, MSG_LEASE);
        frame_encode_header(
                &(struct frame_header){
                        .magic = FRAME_MAGIC,
                        .version = 1,
                        .type = MSG_LEASE,
                        .length = 100,
                        .flags = FRAME_REPLY,
                        .seq = p->seq,
                },
                header);
        fake_send_raw(p, header, sizeof(header));
        fake_send_raw(p, "half", 4);
        fake_accept(p);
        fake_serve(p);
        fake_check_nothing_held(p);
}

CLIENT_RESUME_SCENE(test_half_a_reply, script_half_a_reply, LONG_MSEC, 0, KVL_CONNECT_NO_SHM)
{
        uint32_t pages[2];

        assert_int_equal(kvl_lease(c->ns, 0, 2, pages), 0);
        assert_int_equal(kvl_free(c->ns, pages, 2), 0);
}

static void script_deaf_then_dies(struct fake_peer *p)
{
        p->resumes = true;
        fake_welcome_ns(p);
        fake_receive(p, MSG_LOOKUP);
        fake_accept(p);
        fake_serve(p);
}

static void count_done(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        assert_int_equal(code, KVL_MISS);
        ++*(unsigned *)data;
}

/* ---- threads and loops ---------------------------------------------------------------------- */

#define N_RESTARTS 20
#define N_THREADS  4

static void script_restarts(struct fake_peer *p)
{
        p->resumes = true;
        fake_welcome_ns(p);
        for (int i = 0; i < N_RESTARTS; i++) {
                for (int n = 0; n < 10 + i; n++)
                        FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
                if (i % 2) {
                        fake_accept(p);
                } else {
                        fake_leave(p);
                        poll(NULL, 0, i);
                        fake_return(p);
                }
        }
        fake_serve(p);
        fake_check_nothing_held(p);
}

static void *lease_and_free(void *data)
{
        struct client *c = data;
        uint32_t pages[3];

        while (c->told.n_back < N_RESTARTS)
                if (kvl_lease(c->ns, 0, 3, pages) != 0 || kvl_free(c->ns, pages, 3) != 0)
                        return NULL;
        return c;
}

CLIENT_RESUME_SCENE(test_threads, script_restarts, LONG_MSEC, 0, KVL_CONNECT_NO_SHM)
{
        pthread_t threads[N_THREADS];
        void *result;

        for (int i = 0; i < N_THREADS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, lease_and_free, c), 0);
        /* And one that never waits. */
        while (c->told.n_back < N_RESTARTS && c->told.n_gone == 0)
                resume_dispatch(c);
        for (int i = 0; i < N_THREADS; i++) {
                pthread_join(threads[i], &result);
                assert_ptr_equal(result, c);
        }
        assert_int_equal(c->told.n_gone, 0);
}

static void script_absent_for_loops(struct fake_peer *p)
{
        p->resumes = true;
        fake_welcome_ns(p);
        fake_receive(p, MSG_LEASE);
        fake_leave(p);
        poll(NULL, 0, SHORT_MSEC);
        fake_return(p);
        poll(NULL, 0, 50);
        fake_serve(p);
        fake_check_nothing_held(p);
}

/* Like an event loop: one descriptor, registered once. `kind`: 0 or EPOLLET. */
static void run_loop(uint32_t kind)
{
        struct epoll_event event = {.events = EPOLLIN | kind};
        unsigned n_wakes = 0;
        struct client c;
        int code = 1, loop;

        resume_open(&c, script_absent_for_loops, LONG_MSEC, 0, KVL_CONNECT_NO_SHM);
        loop = epoll_create1(EPOLL_CLOEXEC);
        assert_int_equal(epoll_ctl(loop, EPOLL_CTL_ADD, kvl_fd(c.conn), &event), 0);
        assert_int_equal(kvl_lease_start(c.ns, 0, 1, resume_note_code, &code), 0);
        while (code == 1 && n_wakes < 1000) {
                kvl_wants_write(c.conn);
                assert_int_equal(epoll_wait(loop, &event, 1, LONG_MSEC), 1);
                n_wakes++;
                while (kvl_dispatch(c.conn) > 0)
                        ;
        }
        assert_int_equal(code, 0);
        assert_int_equal(c.told.n_back, 1);
        /* The page's free is on its way; then nothing. */
        while (n_wakes < 1000 && epoll_wait(loop, &event, 1, SHORT_MSEC) == 1) {
                n_wakes++;
                kvl_dispatch(c.conn);
                kvl_wants_write(c.conn);
        }
        /* Tries, and what came: it didn't spin. */
        assert_in_range(n_wakes, 3, 60);
        fd_close(loop);
        resume_close(&c);
}

TEST(test_level_triggered_loop)
{
        run_loop(0);
}

TEST(test_edge_triggered_loop)
{
        run_loop(EPOLLET);
}

/* Callbacks and room for unsent bytes, which aren't in the socket, also make it ready. */
CLIENT_RESUME_SCENE(
        test_poll_for_callbacks, script_deaf_then_dies, LONG_MSEC, 0, KVL_CONNECT_NO_SHM)
{
        static uint8_t keys[1500 * KVL_KEY_BYTES];
        unsigned n_started = 0, n_done = 0;
        uint32_t page;

        while (kvl_lookup_start(c->ns, 0, keys, 1500, count_done, &n_done) == 0)
                n_started++;
        while (n_done < n_started)
                resume_dispatch(c);
        assert_int_equal(kvl_wants_write(c->conn), 0);
        assert_int_equal(kvl_lease(c->ns, 0, 1, &page), 0);
        assert_int_equal(kvl_free(c->ns, &page, 1), 0);
}

/* ---- what was answered before the end ------------------------------------------------------- */

static void script_answers_and_goes(struct fake_peer *p)
{
        p->resumes = true;
        fake_welcome_ns(p);
        do
                FAKE_CHECK(fake_serve_one(p, fake_receive_any(p)));
        while (p->type != MSG_FREE);
        fake_accept(p);
        fake_take_up(p);
        FAKE_CHECK(p->n_pending == 0);
        fake_serve(p);
        fake_check_nothing_held(p);
}

static void count_freed(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        assert_int_equal(code, 0);
        ++*(unsigned *)data;
}

/* The daemon answered and was killed; the client finds that out by what it says next, and reads the
 * answer all the same. */
CLIENT_RESUME_SCENE(
        test_answered_before_the_end, script_answers_and_goes, LONG_MSEC, 0, KVL_CONNECT_NO_SHM)
{
        struct pollfd hung_up = {.events = 0};
        unsigned n_done = 0;
        uint32_t page;

        assert_int_equal(kvl_lease(c->ns, 0, 1, &page), 0);
        assert_int_equal(kvl_free_start(c->ns, &page, 1, count_freed, &n_done), 0);
        hung_up.fd = c->conn->conn->fd;
        assert_int_equal(poll(&hung_up, 1, LONG_MSEC), 1);
        assert_int_equal(kvl_request_end(c->ns, 1), 0);
        while (n_done == 0)
                resume_dispatch(c);
        assert_int_equal(kvl_lease(c->ns, 0, 1, &page), 0);
        assert_int_equal(kvl_free(c->ns, &page, 1), 0);
        assert_int_equal(c->told.n_away, 1);
        assert_int_equal(c->told.n_back, 1);
}

/* ---- a child -------------------------------------------------------------------------------- */

static void script_restart_once(struct fake_peer *p)
{
        p->resumes = true;
        fake_welcome_ns(p);
        while (fake_serve_one(p, fake_receive_any(p)) && p->type != MSG_INVALIDATE)
                ;
        fake_accept(p);
        fake_serve(p);
}

/* A child with copies of all descriptors blocks nothing. */
CLIENT_RESUME_SCENE(test_fork, script_restart_once, LONG_MSEC, 0, KVL_CONNECT_NO_SHM)
{
        struct pollfd poll_fd = {.events = POLLIN};
        int to_child[2], status;
        uint32_t page;
        pid_t child;
        char end;

        assert_int_equal(pipe2(to_child, O_CLOEXEC), 0);
        child = child_fork();
        assert_true(child >= 0);
        if (child == 0) {
                close(to_child[1]);
                (void)!read(to_child[0], &end, 1);
                if (kvl_dispatch(c->conn) != -ECHILD || kvl_is_connected(c->conn) != 0)
                        _exit(1);
                kvl_disconnect(c->conn);
                _exit(0);
        }
        close(to_child[0]);
        assert_int_equal(kvl_invalidate(c->ns, NULL, NULL), 0);
        assert_int_equal(kvl_lease(c->ns, 0, 1, &page), 0);
        assert_int_equal(c->told.n_back, 1);
        poll_fd.fd = kvl_fd(c->conn);
        assert_int_equal(poll(&poll_fd, 1, 50), 0);
        close(to_child[1]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        assert_int_equal(kvl_free(c->ns, &page, 1), 0);
}
