/* Fixture of the tests of a connection that outlives its daemon. */
#ifndef KVL_TESTS_CLIENT_RESUME_H
#define KVL_TESTS_CLIENT_RESUME_H

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

#include "base/fd.h"

#include "client/lib/connection/conn.h"
#include "tests/unit/client-support.h"

#define LONG_MSEC  20000
#define SHORT_MSEC 300 /* that a client waits for the daemon, or the daemon stays away */

struct client {
        struct fake f;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        struct {
                _Atomic int n_away, n_back, n_gone; /* in several threads */
                _Atomic int n_revoke;
        } told;
};

static inline void resume_on_event(struct kvl_conn *conn, const struct kvl_event *event, void *data)
{
        struct client *c = data;

        c->told.n_away += event->type == KVL_EVENT_AWAY;
        c->told.n_back += event->type == KVL_EVENT_BACK;
        c->told.n_gone += event->type == KVL_EVENT_DISCONNECTED;
        c->told.n_revoke += event->type == KVL_EVENT_REVOKE;
}

static inline void resume_connect(
        struct client *c, fake_script script, int timeout_msec, int reconnect_msec, unsigned flags)
{
        struct kvl_connect_options options = {
                .size = sizeof(options),
                .timeout_msec = timeout_msec,
                .reconnect_msec = reconnect_msec,
                .flags = flags,
        };

        memset(c, 0, sizeof(*c));
        fake_start(&c->f, script);
        options.socket_path = c->f.path;
        assert_int_equal(kvl_connect(&options, &c->conn), 0);
        kvl_set_event_handler(c->conn, resume_on_event, c);
}

/* With a namespace. */
static inline void resume_open(
        struct client *c, fake_script script, int timeout_msec, int reconnect_msec, unsigned flags)
{
        struct kvl_layout layout = test_layout(1, PAGE_BYTES);

        resume_connect(c, script, timeout_msec, reconnect_msec, flags);
        assert_int_equal(kvl_ns_open(c->conn, "chat", &layout, NULL, 0, &c->ns), 0);
}

static inline void resume_close(struct client *c)
{
        kvl_disconnect(c->conn);
        fake_stop(&c->f);
}

/* One round of an event loop. */
static inline void resume_dispatch(struct client *c)
{
        struct pollfd p = {.fd = kvl_fd(c->conn), .events = POLLIN};

        if (kvl_wants_write(c->conn))
                p.events |= POLLOUT;
        poll(&p, 1, 1000);
        kvl_dispatch(c->conn);
}

/* Callback of a lease: notes its result, and gives back the pages. */
static inline void resume_note_code(struct kvl_ns *ns, int code, const uint32_t *pages,
        uint32_t n_pages, uint64_t n_tokens, void *data)
{
        *(int *)data = code;
        if (code == 0)
                kvl_free_start(ns, pages, n_pages, NULL, NULL);
}

#define CLIENT_RESUME_SCENE(fn, ...) \
        TEST_ON(fn, struct client, c, resume_open, resume_close, ##__VA_ARGS__)

#endif
