/* Fixture of the tests of memory that a client sees: a fake daemon on the host or a GPU, and a
 * namespace of N_PLANES planes. */
#ifndef KVL_TESTS_CLIENT_MEMORY_H
#define KVL_TESTS_CLIENT_MEMORY_H

#include "tests/unit/client-support.h"
#include "tests/unit/fake-gpu.h"

#define SET_PAGES 32 /* FAKE_EXTENT_BYTES / PAGE_BYTES */
#define N_PLANES  3

/* A key of an INVALIDATE that begins so has the fake daemon take back set 0. */
#define ORDER_RECALL 200

static inline void serve(struct fake_peer *p)
{
        const Kvlease__V1__InvalidateRequest *order;
        const ProtobufCMessage *m;

        p->shares = true;
        fake_welcome(p);
        do {
                while (p->has_rings && !fake_rings_sleep(&p->rings))
                        p->type = 0, fake_serve_one(p, NULL);
                m = fake_receive_any(p);
                order = (const Kvlease__V1__InvalidateRequest *)m;
                if (m && p->type == MSG_INVALIDATE && order->key.len > 0 &&
                        order->key.data[0] == ORDER_RECALL)
                        fake_recall(p, 0, true, 1500);
        } while (fake_serve_one(p, m));
}

static inline void serve_vmm(struct fake_peer *p)
{
        p->device = FAKE_GPU_NAME;
        p->transport = TRANSPORT_VMM;
        serve(p);
}

static inline void serve_ipc(struct fake_peer *p)
{
        p->device = FAKE_GPU_NAME;
        p->transport = TRANSPORT_CUDAIPC;
        serve(p);
}

struct world {
        struct fake f;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        int r; /* of kvl_ns_open() */
};

/* *state of a test: not NULL where it runs in shared memory. */
static inline void open_world(
        void **state, struct world *w, fake_script script, unsigned flags, unsigned connect_flags)
{
        struct kvl_layout layout = test_layout(N_PLANES, PAGE_BYTES);

        fake_start(&w->f, script);
        connect_flags |= *state ? 0 : KVL_CONNECT_NO_SHM;
        assert_int_equal(test_connect_flags(&w->f, 0, connect_flags, &w->conn), 0);
        w->r = kvl_ns_open(w->conn, "chat", &layout, NULL, flags, &w->ns);
}

static inline void close_world(struct world *w)
{
        kvl_disconnect(w->conn);
        fake_stop(&w->f);
}

static inline bool is_zero(const uint8_t *at, size_t bytes)
{
        for (size_t i = 0; i < bytes; i += 64)
                if (at[i] != 0)
                        return false;
        return true;
}

#endif
