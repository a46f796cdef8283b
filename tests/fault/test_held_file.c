/*
 * A client holds the lock of a file that it shares with the daemon: its write() reads a page that a
 * userfaultfd doesn't deliver. The daemon's work on that file then waits uninterruptibly. Other
 * clients don't wait, nor do the daemon's stop and its next start.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/status.h"
#include "tests/fault/good.h"
#include "tests/fault/raw.h"

/* For a busy machine: an undisturbed lease takes milliseconds. */
#define SOON_NSEC UINT64_C(3000000000)

#define PAGE        4096
#define LIMIT_BYTES (16u << 20)
#define SET_BYTES   ((uint64_t)2 << 20) /* private_options' extents; one plane */

static const struct private_tenant two[] = {
        {"a", "limit = 16MiB\n"}, /* LIMIT_BYTES */ {"b", "limit = 64MiB\n"}, {NULL, NULL}};
static const struct private_options plain = {.tenants = two};
static const struct private_options kept = {.tenants = two, .is_kept = true};

/* A client of tenant "a" with a page, and its mapping of it. */
struct holder {
        struct raw raw;
        uint32_t ns_id, page;
        int file;     /* of the page's set */
        int fault_fd; /* delivers `source`, when the test likes */
        uint8_t *source;
        pthread_t writer;
        bool is_writing;
};

/* Returns the answer, which must be OK. Borrowed until the next. */
static const ProtobufCMessage *ask(struct raw *r, uint16_t type, const ProtobufCMessage *m)
{
        const ProtobufCMessage *reply;

        assert_true(raw_request(r, type, 0, m));
        reply = raw_answer(r);
        assert_non_null(reply);
        /* Every reply begins with this message. */
        assert_int_equal(((const Kvlease__V1__SimpleReply *)reply)->status, WIRE_OK);
        return reply;
}

static void holder_open(struct holder *k, struct harness *h)
{
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        Kvlease__V1__MapRequest map = KVLEASE__V1__MAP_REQUEST__INIT;

        *k = (struct holder){.file = -1, .fault_fd = -1};
        raw_open(&k->raw, h, NULL);
        k->ns_id = lease.ns_id = map.ns_id = raw_attach(&k->raw);
        lease.n_pages = 1;
        k->page = ((const Kvlease__V1__LeaseReply *)ask(&k->raw, MSG_LEASE, &lease.base))->pages[0];
        k->raw.fds = &k->file;
        k->raw.n_fds = 1;
        ask(&k->raw, MSG_MAP, &map.base);
}

static void *writer_main(void *data)
{
        struct holder *k = data;

        assert_int_equal(pwrite(k->file, k->source, 1, 0), 1);
        return NULL;
}

/* Returns false after a message if this machine can't. */
static bool can_hold(void)
{
        int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

        if (fd < 0)
                print_message(
                        "no userfaultfd here (%s): it needs root, or vm.unprivileged_userfaultfd\n",
                        strerror(errno));
        fd_close(fd);
        return fd >= 0;
}

static void hold(struct holder *k)
{
        struct uffdio_api api = {.api = UFFD_API};
        struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_MISSING};
        struct pollfd p = {.events = POLLIN};

        k->fault_fd = p.fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
        assert_true(k->fault_fd >= 0);
        assert_int_equal(ioctl(k->fault_fd, UFFDIO_API, &api), 0);
        k->source = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(k->source != MAP_FAILED);
        reg.range = (struct uffdio_range){.start = (uintptr_t)k->source, .len = PAGE};
        assert_int_equal(ioctl(k->fault_fd, UFFDIO_REGISTER, &reg), 0);
        assert_int_equal(pthread_create(&k->writer, NULL, writer_main, k), 0);
        k->is_writing = true;
        assert_int_equal(poll(&p, 1, 30000), 1); /* it asks for its page: it has the lock */
}

static void let_go(struct holder *k)
{
        struct uffdio_zeropage zero = {.range = {(uintptr_t)k->source, PAGE}};

        assert_int_equal(ioctl(k->fault_fd, UFFDIO_ZEROPAGE, &zero), 0);
        assert_int_equal(pthread_join(k->writer, NULL), 0);
        k->is_writing = false;
        munmap(k->source, PAGE);
        k->fault_fd = fd_close(k->fault_fd);
}

/* Gives back like a well-behaved client. */
static void give_back(struct holder *k)
{
        Kvlease__V1__FreeRequest give = KVLEASE__V1__FREE_REQUEST__INIT;
        Kvlease__V1__NsCloseRequest end = KVLEASE__V1__NS_CLOSE_REQUEST__INIT;

        give.ns_id = end.ns_id = k->ns_id;
        give.pages = &k->page;
        give.n_pages = 1;
        ask(&k->raw, MSG_FREE, &give.base);
        ask(&k->raw, MSG_NS_CLOSE, &end.base);
}

static blkcnt_t blocks_of(int fd)
{
        struct stat st;

        assert_int_equal(fstat(fd, &st), 0);
        return st.st_blocks;
}

/* Another tenant gets new sets, and gives them back. */
static void others_work(struct harness *h)
{
        uint64_t since = now_nsec();
        struct good g;

        good_start(&g, h, "b");
        good_round(&g);
        good_stop(&g);
        ctl(h, "purge b");
        assert_true(now_nsec() - since < SOON_NSEC);
}

static void wait_for_tenant(struct harness *h, const char *tenant, const char *name, uint64_t value)
{
        for (unsigned i = 0; i < 600 && ctl_tenant(h, tenant, name) != value; i++)
                sleep_msec(50);
        assert_int_equal(ctl_tenant(h, tenant, name), value);
}

static void wait_until_empty(const struct holder *k)
{
        for (unsigned i = 0; i < 600 && blocks_of(k->file) > 0; i++)
                sleep_msec(50);
        assert_int_equal(blocks_of(k->file), 0);
}

static void assert_clean(struct harness *h)
{
        json_t *reply = ctl_json(h, "check");

        json_decref(reply);
}

/* A lease of all that tenant a may hold is refused, with the reason. */
static void assert_refusal_names_it(struct harness *h)
{
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        const Kvlease__V1__SimpleReply *reply;
        struct holder x;

        holder_open(&x, h);
        lease.ns_id = x.ns_id;
        lease.n_pages = LIMIT_BYTES / PAGE;
        assert_true(raw_request(&x.raw, MSG_LEASE, 0, &lease.base));
        reply = (const Kvlease__V1__SimpleReply *)raw_answer(&x.raw);
        assert_non_null(reply);
        assert_int_equal(reply->status, WIRE_QUOTA);
        if (!strstr(reply->detail, "2 MiB on its way back"))
                fail_msg("what is held up isn't named: %s", reply->detail);
        give_back(&x);
        raw_close(&x.raw);
        fd_close(x.file);
        ctl(h, "purge a --remove");
}

/* ---- while the daemon runs ------------------------------------------------------------------- */

static void test_others_go_on(void **state)
{
        struct harness *h = *state;
        struct holder k;

        if (!can_hold())
                skip();
        holder_open(&k, h);
        assert_int_equal(pwrite(k.file, "x", 1, PAGE), 1);
        hold(&k);
        give_back(&k);
        ctl(h, "purge a --remove");
        /* The client released its set and has its memory back, charged to it. */
        wait_for_tenant(h, "a", "held_bytes", SET_BYTES);
        wait_for_tenant(h, "a", "charged_bytes", SET_BYTES);
        assert_int_equal(ctl_tenant(h, "a", "held_sets"), 1);
        for (unsigned i = 0; i < 3; i++)
                others_work(h);
        assert_clean(h);
        assert_int_equal(ctl_tenant(h, "a", "charged_bytes"), SET_BYTES);
        harness_assert_prompt(h);
        assert_refusal_names_it(h);
        let_go(&k);
        wait_until_empty(&k);
        wait_for_tenant(h, "a", "charged_bytes", 0);
        assert_int_equal(ctl_tenant(h, "a", "held_sets"), 0);
        raw_close(&k.raw);
        fd_close(k.file);
        ctl_wait_status(h, "n_clients", 0);
        assert_clean(h);
}

/* False: the kernel can't, or the user may not. */
static bool set_immutable(int fd, bool is_immutable)
{
        int flags = is_immutable ? FS_IMMUTABLE_FL : 0;

        return ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0;
}

/* The kernel refuses to empty an immutable file (CAP_LINUX_IMMUTABLE; memory files since 6.6). */
static void test_immutable(void **state)
{
        struct harness *h = *state;
        struct holder k, other;

        for (unsigned i = 0; i < 2; i++) {
                holder_open(&other, h); /* the tenant has clients */
                holder_open(&k, h);
                assert_int_equal(pwrite(k.file, "x", 1, PAGE), 1);
                if (!set_immutable(k.file, true))
                        skip();
                give_back(&k);
                give_back(&other);
                ctl(h, "purge a --remove");
                wait_for_tenant(h, "a", "held_bytes", SET_BYTES);
                wait_for_tenant(h, "a", "charged_bytes", SET_BYTES);
                others_work(h);
                assert_clean(h);
                if (i == 0) {
                        assert_true(set_immutable(k.file, false));
                        wait_until_empty(&k); /* it was tried again */
                }
                raw_close(&k.raw);
                raw_close(&other.raw);
                ctl_wait_status(h, "n_clients", 0);
                /* No client is left that the memory could be charged to. */
                wait_for_tenant(h, "a", "charged_bytes", 0);
                assert_int_equal(ctl_tenant(h, "a", "held_sets"), 0);
                fd_close(k.file);
                fd_close(other.file);
        }
}

/* ---- while it stops, and starts -------------------------------------------------------------- */

/* The daemon stops within a moment, and the next one gets the lock file. */
static void test_stop(void **state)
{
        struct harness *h = *state;
        struct holder k;
        uint64_t since;

        if (!can_hold())
                skip();
        holder_open(&k, h);
        assert_int_equal(pwrite(k.file, "x", 1, PAGE), 1);
        hold(&k);
        give_back(&k);
        raw_close(&k.raw);
        since = now_nsec();
        harness_restart(h);
        assert_true(now_nsec() - since < 3 * SOON_NSEC);
        others_work(h);
        /* The next daemon doesn't know this client: work that the last one began is done all the
         * same. */
        assert_int_equal(ctl_tenant(h, "a", "charged_bytes"), 0);
        assert_true(blocks_of(k.file) > 0);
        let_go(&k);
        wait_until_empty(&k);
        fd_close(k.file);
        assert_clean(h);
}

/* The daemon that runs under kvleased --keep. */
static pid_t kept_daemon(const struct harness *h)
{
        char path[64], text[64] = "";
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)h->daemon.pid,
                (int)h->daemon.pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
        fd_close(fd);
        return (pid_t)atoi(text);
}

static void take_over(struct harness *h, int number)
{
        uint64_t since = now_nsec();

        assert_int_equal(kill(number == SIGKILL ? kept_daemon(h) : h->daemon.pid, number), 0);
        assert_int_equal(private_daemon_await(&h->daemon), 0);
        assert_true(now_nsec() - since < 3 * SOON_NSEC);
        others_work(h);
        assert_clean(h);
}

static void test_take_over(void **state)
{
        struct harness *h = *state;
        struct holder k;

        if (!can_hold())
                skip();
        holder_open(&k, h);
        assert_int_equal(pwrite(k.file, "x", 1, PAGE), 1);
        hold(&k);
        give_back(&k);
        raw_close(&k.raw);
        wait_for_tenant(h, "a", "held_sets", 1);
        take_over(h, SIGKILL);
        take_over(h, SIGUSR1);
        assert_true(blocks_of(k.file) > 0);
        let_go(&k);
        wait_until_empty(&k);
        fd_close(k.file);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                harness_test(test_others_go_on, (void *)&plain),
                harness_test(test_others_go_on, (void *)&kept),
                harness_test(test_immutable, (void *)&plain),
                harness_test(test_stop, (void *)&plain),
                harness_test(test_take_over, (void *)&kept),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
