#include "tests/bench/redis.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/bench/bench.h"
#include "tests/integration/private-daemon.h"

#define KEY_BYTES          32
#define START_TIMEOUT_MSEC 10000 /* not tuned */

static int redis_connect(struct redis *r, const char *path)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        r->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (r->fd < 0)
                return -errno;
        if (connect(r->fd, (struct sockaddr *)&address, sizeof(address)) == 0)
                return 0;
        r->fd = fd_close(r->fd);
        return -errno;
}

static int wait_ready(struct redis *r, const char *path)
{
        int status;

        for (unsigned i = 0; i < START_TIMEOUT_MSEC; ++i) {
                if (redis_connect(r, path) == 0)
                        return 0;
                if (waitpid(r->pid, &status, WNOHANG) == r->pid) {
                        r->pid = 0;
                        return -ENOENT;
                }
                sleep_msec(1);
        }
        return -ETIMEDOUT;
}

int redis_start(struct redis *r, int core)
{
        char path[64], log[64];
        const char *argv[] = {"redis-server", "--port", "0", "--unixsocket", path, "--save", "",
                "--appendonly", "no", "--dir", r->dir, "--logfile", log, NULL};
        int e;

        snprintf(r->dir, sizeof(r->dir), "/tmp/kvl-redis-XXXXXX");
        if (!mkdtemp(r->dir)) {
                r->dir[0] = '\0';
                return bench_fail("directory for redis", -errno);
        }
        snprintf(path, sizeof(path), "%s/sock", r->dir);
        snprintf(log, sizeof(log), "%s/log", r->dir);
        e = proc_spawn(argv, NULL, (struct proc_files){-1, -1, -1});
        if (e < 0)
                return bench_fail("redis-server", e);
        r->pid = e;
        e = wait_ready(r, path);
        if (e == -ENOENT) {
                fputs("kvlease-bench: redis-server doesn't start (is it installed?): no figures against it\n",
                        stderr);
                return e;
        }
        if (e == 0 && core >= 0)
                e = bench_pin(r->pid, core);
        return e < 0 ? bench_fail("redis-server", e) : 0;
}

void redis_stop(struct redis *r)
{
        static const char *const names[] = {"sock", "log"};
        char path[64];

        r->fd = fd_close(r->fd);
        if (r->pid > 0) {
                kill(r->pid, SIGKILL);
                waitpid(r->pid, NULL, 0);
        }
        r->pid = 0;
        if (!r->dir[0])
                return;
        for (unsigned i = 0; i < ARRAY_SIZE(names); ++i) {
                snprintf(path, sizeof(path), "%s/%s", r->dir, names[i]);
                unlink(path);
        }
        rmdir(r->dir);
        r->dir[0] = '\0';
}

static void append(uint8_t **buf, size_t *len, size_t *size, const void *data, size_t n)
{
        if (*len + n > *size) {
                *size = 2 * (*len + n);
                *buf = realloc(*buf, *size);
                if (!*buf)
                        abort();
        }
        memcpy(*buf + *len, data, n);
        *len += n;
}

static void out(struct redis_request *q, const void *data, size_t n)
{
        append(&q->out, &q->out_len, &q->out_size, data, n);
}

static void expect(struct redis_request *q, const void *data, size_t n)
{
        append(&q->expected, &q->expected_len, &q->expected_size, data, n);
}

static void out_array(struct redis_request *q, unsigned n)
{
        char text[16];

        out(q, text, (size_t)snprintf(text, sizeof(text), "*%u\r\n", n));
}

static void bulk(struct redis_request *q, const void *data, size_t n,
        void (*to)(struct redis_request *, const void *, size_t))
{
        char text[24];

        to(q, text, (size_t)snprintf(text, sizeof(text), "$%zu\r\n", n));
        to(q, data, n);
        to(q, "\r\n", 2);
}

void redis_add_set(struct redis_request *q, const uint8_t *key, const void *value, size_t value_len)
{
        out_array(q, 3);
        bulk(q, "SET", 3, out);
        bulk(q, key, KEY_BYTES, out);
        bulk(q, value, value_len, out);
        expect(q, "+OK\r\n", 5);
}

void redis_add_get(struct redis_request *q, const uint8_t *key, const void *value, size_t value_len)
{
        out_array(q, 2);
        bulk(q, "GET", 3, out);
        bulk(q, key, KEY_BYTES, out);
        bulk(q, value, value_len, expect);
}

void redis_add_exists(struct redis_request *q, const uint8_t *key)
{
        out_array(q, 2);
        bulk(q, "EXISTS", 6, out);
        bulk(q, key, KEY_BYTES, out);
        expect(q, ":1\r\n", 4);
}

void redis_add_mget(struct redis_request *q, const uint8_t *keys, unsigned n_keys,
        const void *value, size_t value_len)
{
        char text[16];

        out_array(q, 1 + n_keys);
        bulk(q, "MGET", 4, out);
        expect(q, text, (size_t)snprintf(text, sizeof(text), "*%u\r\n", n_keys));
        for (unsigned i = 0; i < n_keys; ++i) {
                bulk(q, keys + (size_t)i * KEY_BYTES, KEY_BYTES, out);
                bulk(q, value, value_len, expect);
        }
}

void redis_request_reset(struct redis_request *q)
{
        q->out_len = q->expected_len = 0;
}

void redis_request_free(struct redis_request *q)
{
        free(q->out);
        free(q->expected);
        *q = (struct redis_request){0};
}

static ssize_t write_some(int fd, const uint8_t *data, size_t len)
{
        ssize_t n = send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);

        return n < 0 && errno == EAGAIN ? 0 : n;
}

/* Sends the rest as the server reads; its answers must be read meanwhile. */
int redis_call(struct redis *r, const struct redis_request *q)
{
        static uint8_t answer[1 << 20];
        size_t sent = 0, got = 0;
        ssize_t n;

        while (got < q->expected_len) {
                if (sent < q->out_len) {
                        n = write_some(r->fd, q->out + sent, q->out_len - sent);
                        if (n < 0)
                                return -errno;
                        sent += (size_t)n;
                }
                if (sent < q->out_len) {
                        struct pollfd p = {.fd = r->fd, .events = POLLIN | POLLOUT};

                        poll(&p, 1, -1);
                        if (!(p.revents & POLLIN))
                                continue;
                }
                n = recv(r->fd, answer, MIN(sizeof(answer), q->expected_len - got), 0);
                if (n <= 0)
                        return n < 0 ? -errno : -ECONNRESET;
                if (memcmp(answer, q->expected + got, (size_t)n) != 0)
                        return -EBADMSG;
                got += (size_t)n;
        }
        return 0;
}
