/* A client of Redis for tests: calls that wait, and values that follow from a number. */
#ifndef KVL_TESTS_REMOTE_FIXTURE_H
#define KVL_TESTS_REMOTE_FIXTURE_H

#include "daemon/remote/store/remote.h"

#include "tests/unit/test-support.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* Longer than anything takes on a busy machine. */
#define PATIENCE_NSEC (20 * NSEC_PER_SEC)

/* An initialiser of a struct iovec that is only read, from a string literal. */
#define PIECE(text)                          \
        {                                    \
                (void *)(text), strlen(text) \
        }

static inline uint64_t in_msec(uint64_t msec)
{
        return clock_now_nsec() + msec * NSEC_PER_MSEC;
}

/* Limits of kvleased, for tests of servers that fail. */
#define KVLEASED_LIMITS .connect_msec = 250, .silence_msec = 500

/* Patient with servers of tests, which a busy machine may make slow, but for limits that are given.
 */
static inline struct remote_options options_patient(const struct remote_options *options)
{
        struct remote_options patient = *options;

        if (!patient.silence_msec)
                patient.silence_msec = PATIENCE_NSEC / NSEC_PER_MSEC;
        if (!patient.connect_msec)
                patient.connect_msec = PATIENCE_NSEC / NSEC_PER_MSEC;
        return patient;
}

/* With options_patient(). */
static inline struct remote_store *store_open(const struct remote_options *options)
{
        struct remote_options patient = options_patient(options);
        char why[REMOTE_WHY_BYTES];
        struct remote_store *s = NULL;
        int r = remote_open(&patient, &s, why);

        if (r < 0)
                fail_msg("%s", why);
        assert_string_equal(why, "");
        return s;
}

static inline struct remote_store *store_open_at(const char *address)
{
        return store_open(&(struct remote_options){.addresses = &address, .n_addresses = 1});
}

/* Sleeps until something is to be reaped, or for a while, and reaps it. */
static inline unsigned store_wait(struct remote_store *s, int msec)
{
        struct pollfd p = {.fd = remote_fd(s), .events = POLLIN};

        return poll(&p, 1, msec) > 0 ? remote_reap(s) : 0;
}

static inline void store_await_known(struct remote_store *s)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        struct remote_stats stats;

        do {
                remote_stats(s, &stats);
                if (!stats.is_known)
                        poll(NULL, 0, 1);
        } while (!stats.is_known && clock_now_nsec() < until);
        assert_true(stats.is_known);
}

/* The figures of a node, by its name; of the first where that is NULL. */
static inline struct remote_node_stats store_node(struct remote_store *s, const char *name)
{
        struct remote_node_stats stats;
        unsigned iter = 0;

        while (remote_node_next(s, &iter, &stats))
                if (!name || strcmp(stats.name, name) == 0)
                        return stats;
        fail_msg("no node %s", name ? name : "");
        return stats;
}

/* An operation by itself, and what became of it. */
struct one {
        bool is_done;
        int result;
        uint64_t n_bytes, done_nsec;
        uint32_t n_found;
};

static inline void one_done(struct remote_io *io, void *data)
{
        struct one *o = data;

        assert_false(o->is_done);
        o->is_done = true;
        o->result = io->ops[0].result;
        o->n_bytes = io->ops[0].n_bytes;
        o->n_found = io->ops[0].n_found;
        o->done_nsec = clock_now_nsec();
}

/* Submits it. key: a C string, or several for NULL-terminated `keys`. */
static inline struct remote_io *one_submit(struct remote_store *s, enum remote_kind kind,
        const char *key, const struct iovec *iov, unsigned n_iov, uint64_t deadline_nsec,
        struct one *o)
{
        struct iovec name = {(void *)key, strlen(key)};
        struct remote_io *io = remote_io_new(1);

        assert_non_null(io);
        *o = (struct one){.is_done = false};
        io->kind = kind;
        io->of_class = iov ? REMOTE_LARGE : REMOTE_SMALL;
        io->deadline_nsec = deadline_nsec;
        io->done = one_done;
        io->data = o;
        io->ops[0] = (struct remote_op){.keys = &name,
                .n_keys = 1,
                .iov = iov,
                .n_iov = n_iov,
                .expiry_msec = kind == REMOTE_WRITE ? 600000 : 0};
        assert_int_equal(remote_submit(s, io), 0);
        return io;
}

static inline void one_await(struct remote_store *s, struct one *o)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (!o->is_done) {
                assert_true(clock_now_nsec() < until);
                store_wait(s, 100);
        }
}

/* Submits it, waits for it, returns its result. */
static inline int one_call(struct remote_store *s, enum remote_kind kind, const char *key,
        void *value, size_t len, struct one *o)
{
        struct iovec iov = {value, len};

        one_submit(s, kind, key, value ? &iov : NULL, value ? 1 : 0, in_msec(15000), o);
        one_await(s, o);
        return o->result;
}

static inline void value_make(uint8_t *value, size_t len, uint32_t number)
{
        for (size_t i = 0; i < len; i++)
                value[i] = (uint8_t)((number * 2654435761u + i * 40503u) >> 7);
}

static inline bool value_is(const uint8_t *value, size_t len, uint32_t number)
{
        for (size_t i = 0; i < len; i++)
                if (value[i] != (uint8_t)((number * 2654435761u + i * 40503u) >> 7))
                        return false;
        return true;
}

#endif
