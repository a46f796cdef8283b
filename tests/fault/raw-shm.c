#include "tests/fault/raw-shm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/status.h"
#include "tests/unit/child.h"

#define WAIT_MSEC 10000

static void *map_fd(int fd, size_t bytes, int protection)
{
        void *p = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);

        assert_true(p != MAP_FAILED);
        return p;
}

static void open_ring(struct raw_shm *s)
{
        Kvlease__V1__ShmOpenRequest open = KVLEASE__V1__SHM_OPEN_REQUEST__INIT;
        const Kvlease__V1__ShmOpenReply *reply;
        uint8_t *base;

        open.layout_version = SHM_LAYOUT_VERSION;
        s->raw.fds = &s->client_fd;
        s->raw.n_fds = 1;
        assert_true(raw_request(&s->raw, MSG_SHM_OPEN, 0, &open.base));
        reply = (const Kvlease__V1__ShmOpenReply *)raw_answer(&s->raw);
        assert_non_null(reply);
        assert_int_equal(reply->status, WIRE_OK);
        assert_int_equal(reply->bytes, SHM_CLIENT_BYTES);
        base = map_fd(s->client_fd, SHM_CLIENT_BYTES, PROT_READ | PROT_WRITE);
        s->client = (struct shm_client *)(void *)base;
        assert_int_equal(s->client->header.magic, SHM_MAGIC);
        s->subs = (struct shm_submission *)(void *)(base + s->client->sub_offset);
        s->comps = (struct shm_completion *)(void *)(base + s->client->comp_offset);
}

static void open_ns(struct raw_shm *s, const char *name)
{
        Kvlease__V1__NsOpenRequest open = KVLEASE__V1__NS_OPEN_REQUEST__INIT;
        Kvlease__V1__NsLayout layout = KVLEASE__V1__NS_LAYOUT__INIT;
        const struct kvl_layout l = {.model = "test-model", .version = "1"};
        const Kvlease__V1__NsOpenReply *reply;

        /* Same values as worker_layout(1). */
        layout.model = (char *)l.model;
        layout.version = (char *)l.version;
        layout.dtype = KVL_DTYPE_F32;
        layout.n_layers = layout.n_kv_heads = 2;
        layout.head_size = layout.page_tokens = 16;
        layout.n_planes = layout.tp_size = 1;
        layout.plane_page_bytes = 4096;
        open.name = (char *)name;
        open.layout = &layout;
        assert_true(raw_request(&s->raw, MSG_NS_OPEN, 0, &open.base));
        reply = (const Kvlease__V1__NsOpenReply *)raw_answer(&s->raw);
        assert_non_null(reply);
        assert_int_equal(reply->status, WIRE_OK);
        s->ns_id = reply->ns_id;
        s->capacity_pages = reply->capacity_pages;
        s->set_pages = reply->set_pages;
}

static void share_ns(struct raw_shm *s)
{
        Kvlease__V1__NsShareRequest share = KVLEASE__V1__NS_SHARE_REQUEST__INIT;
        const Kvlease__V1__NsShareReply *reply;
        uint8_t *base;
        int fds[2];

        share.ns_id = s->ns_id;
        s->raw.fds = fds;
        s->raw.n_fds = 2;
        assert_true(raw_request(&s->raw, MSG_NS_SHARE, 0, &share.base));
        reply = (const Kvlease__V1__NsShareReply *)raw_answer(&s->raw);
        assert_non_null(reply);
        assert_int_equal(reply->status, WIRE_OK);
        s->index_fd = fds[0];
        s->pins_fd = fds[1];
        s->index_bytes = reply->index_bytes;
        s->pins_bytes = reply->pins_bytes;
        s->index = map_fd(s->index_fd, s->index_bytes, PROT_READ);
        base = map_fd(s->pins_fd, s->pins_bytes, PROT_READ | PROT_WRITE);
        s->pins = (struct shm_pins *)(void *)base;
        s->magazine = (_Atomic uint32_t *)(void *)(base + s->pins->magazine_offset);
        s->counters = (_Atomic uint32_t *)(void *)(base + s->pins->counters_offset);
}

void raw_share_at(struct raw_shm *s, const char *path, const char *ns)
{
        memset(s, 0, sizeof(*s));
        raw_open(&s->raw, NULL, path);
        assert_true(raw_authenticate(&s->raw, raw_hello(&s->raw, 1, 1)));
        open_ring(s);
        open_ns(s, ns);
        share_ns(s);
}

void raw_share(struct raw_shm *s, struct harness *h, const char *ns)
{
        char path[PRIVATE_PATH_MAX];

        raw_share_at(s, private_daemon_socket(&h->daemon, "a", path), ns);
}

void raw_submit(struct raw_shm *s, const struct shm_submission *entry)
{
        uint64_t tail = atomic_load(&s->client->sub_tail);

        s->subs[tail % SHM_SUB_ENTRIES] = *entry;
        atomic_store(&s->client->sub_tail, tail + 1);
}

bool raw_ring(struct raw_shm *s)
{
        Kvlease__V1__DoorbellRequest bell = KVLEASE__V1__DOORBELL_REQUEST__INIT;

        return raw_request(&s->raw, MSG_DOORBELL, FRAME_NO_REPLY, &bell.base);
}

struct shm_completion raw_complete(struct raw_shm *s, const struct shm_submission *entry)
{
        uint64_t head = atomic_load(&s->client->comp_head);
        uint64_t end = now_nsec() + WAIT_MSEC * UINT64_C(1000000);
        struct shm_completion c;

        raw_submit(s, entry);
        assert_true(raw_ring(s));
        while (atomic_load(&s->client->comp_tail) == head) {
                if (now_nsec() > end)
                        fail_msg("no completion of op %u", entry->op);
                sched_yield();
        }
        c = s->comps[head % SHM_COMP_ENTRIES];
        atomic_store(&s->client->comp_head, head + 1);
        return c;
}

uint32_t raw_claim(struct raw_shm *s)
{
        const struct shm_submission refill = {.op = SHM_OP_REFILL, .ns_id = s->ns_id, .aux = 4};

        for (unsigned i = 0; i < 100; ++i) {
                for (unsigned slot = 0; slot < SHM_MAGAZINE_SLOTS; ++slot) {
                        uint32_t page = atomic_exchange(&s->magazine[slot], 0);

                        if (!page)
                                continue;
                        atomic_fetch_add(&s->pins->n_taken, 1);
                        return page - 1;
                }
                raw_submit(s, &refill);
                assert_true(raw_ring(s));
                assert_true(raw_ping(s, WAIT_MSEC));
        }
        fail_msg("the magazine stays empty");
        return 0;
}

bool raw_ping(struct raw_shm *s, int timeout_msec)
{
        Kvlease__V1__FreeRequest nothing = KVLEASE__V1__FREE_REQUEST__INIT;
        struct pollfd p = {s->raw.fd, POLLIN, 0};

        nothing.ns_id = s->ns_id;
        if (!raw_request(&s->raw, MSG_FREE, 0, &nothing.base) || poll(&p, 1, timeout_msec) <= 0)
                return false;
        return raw_answer(&s->raw);
}

struct raw_child raw_fork_start(
        struct harness *h, void (*fn)(struct harness *h, void *data), void *data)
{
        struct raw_child c = {.fd = -1};
        int fds[2];

        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        fflush(NULL);
        c.pid = child_fork();
        assert_true(c.pid >= 0);
        if (c.pid == 0) {
                /* A failed assertion must not jump into the parent's test. */
                setenv("CMOCKA_TEST_ABORT", "1", 1);
                fn(h, data);
                if (write(fds[1], "", 1) == 1)
                        for (;;)
                                pause();
                _exit(1);
        }
        fd_close(fds[1]);
        c.fd = fds[0];
        return c;
}

struct raw_child raw_fork(struct harness *h, void (*fn)(struct harness *h, void *data), void *data)
{
        struct raw_child c = raw_fork_start(h, fn, data);
        struct pollfd p = {c.fd, POLLIN, 0};

        assert_true(poll(&p, 1, 6 * WAIT_MSEC) > 0);
        return c;
}

void raw_join(struct raw_child *c)
{
        char done;

        if (read(c->fd, &done, 1) != 1)
                fail_msg("the hostile process %d failed in its middle", (int)c->pid);
        c->fd = fd_close(c->fd);
        kill(c->pid, SIGKILL);
        waitpid(c->pid, NULL, 0);
}
