/* Fixture of the client library's tests: connecting to a fake daemon, and a small layout. */
#ifndef KVL_TESTS_CLIENT_SUPPORT_H
#define KVL_TESTS_CLIENT_SUPPORT_H

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/kvlease.h"
#include "client/lib/objects/client.h"
#include "proto/status.h"
#include "tests/unit/fake-daemon.h"
#include "tests/unit/test-support.h"

#define PAGE_BYTES 65536

static inline struct kvl_layout test_layout(uint32_t n_planes, uint64_t plane_page_bytes)
{
        return (struct kvl_layout){
                .size = sizeof(struct kvl_layout),
                .model = "m",
                .dtype = KVL_DTYPE_F32,
                .n_layers = 2,
                .n_kv_heads = 2,
                .head_size = 8,
                .page_tokens = 16,
                .n_planes = n_planes,
                .plane_page_bytes = plane_page_bytes,
        };
}

static inline int test_connect_flags(
        const struct fake *f, int timeout_msec, unsigned flags, struct kvl_conn **ret_conn)
{
        return kvl_connect(
                &(struct kvl_connect_options){
                        .size = sizeof(struct kvl_connect_options),
                        .socket_path = f->path,
                        .flags = flags,
                        .timeout_msec = timeout_msec,
                },
                ret_conn);
}

/* Over the socket alone. */
static inline int test_connect(const struct fake *f, int timeout_msec, struct kvl_conn **ret_conn)
{
        return test_connect_flags(f, timeout_msec, KVL_CONNECT_NO_SHM, ret_conn);
}

/* With what the fake daemon offers. */
static inline int test_connect_shared(
        const struct fake *f, int timeout_msec, struct kvl_conn **ret_conn)
{
        return test_connect_flags(f, timeout_msec, 0, ret_conn);
}

/* Limits blocking calls from now on. A test opens all without a limit first, and lifts it again: a
 * busy machine may take long for a call that isn't late. */
static inline void test_limit(struct kvl_conn *conn, int timeout_msec)
{
        conn->timeout_msec = timeout_msec;
}

/* Two tests: check(flags) with shared memory and over the socket alone. */
#define TEST_BOTH_WAYS(fn, check)          \
        TEST(fn)                           \
        {                                  \
                check(0);                  \
        }                                  \
        TEST(fn##_socket)                  \
        {                                  \
                check(KVL_CONNECT_NO_SHM); \
        }

/* Begins two tests: *state is NULL over the socket alone, and another address in shared memory. */
#define TEST_BOTH(fn)                 \
        static void fn(void **state); \
        TEST_SHARED(fn##_shared)      \
        {                             \
                fn(state);            \
        }                             \
        TEST(fn)

/* Begins a test in shared memory, alone. */
#define TEST_SHARED(fn) TEST_WITH(fn, test_fds_note, test_fds_check, "shared")

/* Key number i. */
static inline void test_key(uint8_t *key, uint32_t i)
{
        memset(key, 0, KVL_KEY_BYTES);
        memcpy(key, &i, sizeof(i));
        key[31] = 1;
}

/* Result of a started call that gives only a code: data of test_on_done(). */
struct test_done {
        unsigned n;
        int code;
};

static inline void test_on_done(struct kvl_ns *ns, int code, void *data)
{
        struct test_done *done = data;

        (void)ns;
        done->n++;
        done->code = code;
}

/* Until it is done. */
static inline void test_dispatch(struct kvl_conn *conn, const struct test_done *done)
{
        while (done->n == 0) {
                struct pollfd p = {.fd = kvl_fd(conn), .events = POLLIN};

                if (kvl_wants_write(conn) == 0)
                        poll(&p, 1, -1);
                assert_true(kvl_dispatch(conn) >= 0);
        }
}

#endif
