/* Fixture of the tests of kvl_lease_with(): both sides of a connection, and a lease's results. */
#ifndef KVL_TESTS_CLIENT_LEASE_FIXTURE_H
#define KVL_TESTS_CLIENT_LEASE_FIXTURE_H

#include <poll.h>

#include "base/macros.h"
#include "tests/unit/client-scene.h"

static inline const Kvlease__V1__LeaseRequest *receive_lease(struct fake_peer *p)
{
        return (const Kvlease__V1__LeaseRequest *)receive(p, MSG_LEASE);
}

struct answer {
        uint32_t status, n_pages, first, reason;
        uint64_t waited_usec;
};

static inline void send_lease(struct fake_peer *p, uint64_t seq, struct answer a)
{
        Kvlease__V1__LeaseReply m = KVLEASE__V1__LEASE_REPLY__INIT;
        uint32_t pages[64];

        for (uint32_t i = 0; i < a.n_pages; i++)
                pages[i] = a.first + i;
        m.status = a.status;
        m.n_pages = a.n_pages;
        m.pages = pages;
        m.reason = a.reason;
        m.waited_usec = a.waited_usec;
        fake_send(p, MSG_LEASE, FRAME_REPLY, seq, &m.base, NULL, 0);
}

static inline void answer_lease(struct fake_peer *p, struct answer a)
{
        send_lease(p, p->seq, a);
}

static inline int lease_with(
        struct client *c, uint32_t n, uint32_t min, int wait_msec, struct kvl_lease_result *ret)
{
        const struct kvl_lease_options options = {
                .size = sizeof(options), .min_pages = min, .max_wait_msec = wait_msec};
        uint32_t pages[64];
        int r;

        memset(ret, 0x55, sizeof(*ret));
        ret->size = sizeof(*ret);
        r = kvl_lease_with(c->ns, 9, n, &options, pages, ret);
        for (uint32_t i = 0; i < ret->n_pages; i++)
                assert_int_equal(pages[i], i);
        return r;
}

static inline void assert_result(
        const struct kvl_lease_result *r, uint32_t n_pages, int reason, uint64_t waited_usec)
{
        assert_int_equal(r->n_pages, n_pages);
        assert_int_equal(r->reason, reason);
        assert_int_equal(r->waited_usec, waited_usec);
}

/* ---- one that is answered later ---- */

struct outcome {
        int n_calls, code;
        uint32_t pages[8];
        struct kvl_lease_result result;
};

static inline void note(struct kvl_ns *ns, int code, const uint32_t *pages,
        const struct kvl_lease_result *result, void *data)
{
        struct outcome *o = data;

        o->n_calls++;
        o->code = code;
        o->result = *result;
        assert_true(result->n_pages <= ARRAY_SIZE(o->pages));
        if (result->n_pages > 0)
                memcpy(o->pages, pages, result->n_pages * sizeof(*pages));
}

static inline void dispatch_until(struct kvl_conn *conn, const int *n, int wanted)
{
        while (*n < wanted) {
                struct pollfd p = {.fd = kvl_fd(conn), .events = POLLIN};

                if (kvl_wants_write(conn))
                        p.events |= POLLOUT;
                assert_int_equal(poll(&p, 1, LONG_MSEC), 1);
                assert_true(kvl_dispatch(conn) >= 0);
        }
}

#endif
