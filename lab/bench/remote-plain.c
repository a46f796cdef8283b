#include "lab/bench/remote-plain.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "daemon/remote/store/remote.h"
#include "tests/bench/bench.h"
#include "tests/integration/private-daemon.h"

#define EXPIRY_MSEC   3600000
#define DEADLINE_NSEC (20 * NSEC_PER_SEC)

static void on_done(struct remote_io *io, void *data)
{
        struct plain_flight *f = data;

        f->is_free = true;
        f->result = io->ops[0].result;
}

static int submit(struct plain *p, unsigned flight, enum remote_kind kind)
{
        struct plain_flight *f = &p->flights[flight];
        struct remote_io *io = remote_io_new(1);
        struct iovec key;
        char name[24];
        int r;

        if (!io)
                return -ENOMEM;
        key = (struct iovec){
                name, (size_t)snprintf(name, sizeof(name), "kvlease-bench:%u", flight)};
        f->iov = (struct iovec){p->buffers + flight * p->value_bytes, p->value_bytes};
        io->kind = kind;
        io->of_class = kind == REMOTE_PROBE ? REMOTE_SMALL : REMOTE_LARGE;
        io->deadline_nsec = clock_now_nsec() + DEADLINE_NSEC;
        io->done = on_done;
        io->data = f;
        io->ops[0] = (struct remote_op){.keys = &key, .n_keys = 1, .expiry_msec = EXPIRY_MSEC};
        if (kind != REMOTE_PROBE)
                io->ops[0].iov = &f->iov;
        if (kind != REMOTE_PROBE)
                io->ops[0].n_iov = 1;
        f->is_free = false;
        r = remote_submit(p->store, io);
        f->is_free = r != 0;
        if (r != 0)
                remote_io_free(io);
        return r > 0 ? -EBUSY : r;
}

static int finish(struct plain *p, unsigned flight)
{
        struct pollfd fd = {.fd = remote_fd(p->store), .events = POLLIN};

        while (!p->flights[flight].is_free) {
                (void)poll(&fd, 1, -1);
                (void)remote_reap(p->store);
        }
        return p->flights[flight].result;
}

static int one(struct plain *p, unsigned flight, enum remote_kind kind)
{
        int r = submit(p, flight, kind);

        return r == 0 ? finish(p, flight) : r;
}

int plain_open(struct plain *p, const char *address, unsigned n_connections, uint64_t value_bytes)
{
        const struct remote_options options = {
                .addresses = &address, .n_addresses = 1, .large_threads = n_connections};
        uint64_t until = clock_now_nsec() + DEADLINE_NSEC;
        struct remote_stats stats = {.is_known = false};
        char why[REMOTE_WHY_BYTES];
        int r;

        p->value_bytes = value_bytes;
        p->buffers = memory_map(-1, PLAIN_FLIGHTS * value_bytes);
        if (!p->buffers)
                return bench_fail("buffers", -errno);
        memset(p->buffers, 0x5a, PLAIN_FLIGHTS * value_bytes);
        for (unsigned i = 0; i < PLAIN_FLIGHTS; i++)
                p->flights[i].is_free = true;
        r = remote_open(&options, &p->store, why);
        while (r == 0 && !stats.is_known && clock_now_nsec() < until) {
                sleep_msec(1);
                remote_stats(p->store, &stats);
        }
        for (unsigned i = 0; i < PLAIN_FLIGHTS && r == 0; i++)
                r = one(p, i, REMOTE_WRITE);
        return r < 0 ? bench_fail("values on a Redis server", r) : 0;
}

void plain_close(struct plain *p)
{
        remote_close(p->store);
        if (p->buffers)
                munmap(p->buffers, PLAIN_FLIGHTS * p->value_bytes);
        *p = (struct plain){.store = NULL};
}

int plain_read(struct plain *p, uint32_t n_values, uint64_t *ret_nsec)
{
        uint64_t began = clock_now_nsec();
        int r = 0, e;

        for (uint32_t i = 0; i < n_values && r == 0; i++) {
                r = finish(p, i % PLAIN_FLIGHTS);
                if (r == 0)
                        r = submit(p, i % PLAIN_FLIGHTS, REMOTE_READ);
        }
        for (unsigned i = 0; i < PLAIN_FLIGHTS; i++) {
                e = finish(p, i);
                r = r == 0 ? e : r;
        }
        *ret_nsec = clock_now_nsec() - began;
        return r < 0 ? bench_fail("values of a Redis server", r) : 0;
}

int plain_probe(struct plain *p, uint64_t *ret_nsec)
{
        uint64_t began = clock_now_nsec();
        int r = one(p, 0, REMOTE_PROBE);

        *ret_nsec = clock_now_nsec() - began;
        return r < 0 ? bench_fail("a question to a Redis server", r) : 0;
}
