/* Fixture of the client library's tests: both sides of a connection that has a namespace of two
 * planes. */
#ifndef KVL_TESTS_CLIENT_SCENE_H
#define KVL_TESTS_CLIENT_SCENE_H

#include "tests/unit/client-support.h"

/* For connections that must not time out, even with valgrind on a loaded machine. */
#define LONG_MSEC 60000

#define CLIENT_KEYS 300 /* more than one request asks for */

struct client {
        struct fake f;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint8_t keys[CLIENT_KEYS][KVL_KEY_BYTES];
};

static inline void open_client(
        struct client *c, fake_script script, int timeout_msec, unsigned flags)
{
        struct kvl_layout layout = test_layout(2, PAGE_BYTES);

        fake_start(&c->f, script);
        assert_int_equal(test_connect_flags(&c->f, timeout_msec, flags, &c->conn), 0);
        assert_int_equal(kvl_ns_open(c->conn, "chat", &layout, NULL, 0, &c->ns), 0);
        for (uint32_t i = 0; i < CLIENT_KEYS; i++)
                test_key(c->keys[i], i);
}

static inline void close_client(struct client *c)
{
        kvl_disconnect(c->conn);
        fake_stop(&c->f);
}

/* The next request but for doorbells, which must be of `type`. */
static inline const ProtobufCMessage *receive(struct fake_peer *p, uint16_t type)
{
        const ProtobufCMessage *m = fake_receive_any(p);

        while (m && p->type == MSG_DOORBELL)
                m = fake_receive_any(p);
        FAKE_CHECK(m && p->type == type);
        return m;
}

#define CLIENT_SCENE(fn, ...) \
        TEST_ON(fn, struct client, c, open_client, close_client, ##__VA_ARGS__)

#endif
