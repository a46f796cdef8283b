/*
 * Promises of docs/security/THREATS.md, tried by the attackers they are about: another user, root
 * without the daemon's capabilities, the root of a user namespace, a process of another pid
 * namespace, a client of another tenant. Attacks that it calls possible are shown to be. Rings:
 * test_hostile_shm.c; frames, descriptors and admin verbs: test_hostile.c; segments:
 * unit/test_segment.c; floods: test_unread.c, test_limits.c; resume tokens: test_stolen.c.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/sock.h"
#include "proto/status.h"
#include "tests/fault/actors.h"
#include "tests/fault/good.h"
#include "tests/fault/raw-shm.h"
#include "tests/unit/child.h"

#define VICTIM_UID 41001 /* not used by another account */

static const struct private_tenant two[] = {
        {"a", "limit = 32MiB\n"}, {"b", "limit = 32MiB\n"}, {NULL, NULL}};
static const struct private_options two_tenants = {.tenants = two};
static const struct private_options challenged_tenants = {
        .tenants = two, .daemon_lines = "liveness = challenge\n"};

#define NEEDS_ROOT()                                                                     \
        do {                                                                             \
                if (geteuid() != 0) {                                                    \
                        print_message("skipped: only root can play other users here\n"); \
                        skip();                                                          \
                }                                                                        \
        } while (0)

/* ---- attackers ------------------------------------------------------------------------------ */

static bool be_victims_uid(void)
{
        return be_uid(VICTIM_UID);
}

static bool be_root_without_capabilities(void)
{
        struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct none[2] = {{0}};

        return syscall(SYS_capset, &header, none) == 0;
}

/* Enters a pid namespace in which the daemon has no pid; /proc is still the host's. */
static bool be_in_pid_namespace(void)
{
        int status;
        pid_t pid;

        if (unshare(CLONE_NEWPID) < 0)
                return false;
        pid = fork();
        if (pid != 0) {
                waitpid(pid, &status, 0);
                _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
        }
        return be_another();
}

struct actor {
        const char *name;
        bool (*become)(void);
};

static const struct actor strangers[] = {
        {"another user", be_another},
        {"root without capabilities", be_root_without_capabilities},
        {"root of a user namespace", be_namespace_root},
        {"another pid namespace", be_in_pid_namespace},
};

/* ---- what is tried against a process -------------------------------------------------------- */

#define MAX_FD 255

/* 0: it worked. */
static int try_fds(pid_t pid)
{
        char path[64];

        for (int fd = 3; fd <= MAX_FD; fd++) {
                snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
                if (open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK) >= 0 ||
                        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) >= 0)
                        return 0;
        }
        return -EACCES;
}

static int try_mem(pid_t pid)
{
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
        return open(path, O_RDWR | O_CLOEXEC) < 0 ? -errno : 0;
}

static int try_map_files(pid_t pid)
{
        char path[64];
        bool any = false;
        DIR *dir;

        snprintf(path, sizeof(path), "/proc/%d/map_files", (int)pid);
        dir = opendir(path); /* every user may; some see its contents */
        if (!dir)
                return -errno;
        for (struct dirent *e; (e = readdir(dir));)
                any |= e->d_name[0] != '.';
        closedir(dir);
        return any ? 0 : -EACCES;
}

static int try_getfd(pid_t pid)
{
        int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

        if (pidfd < 0)
                return -errno;
        for (int fd = 3; fd <= MAX_FD; fd++)
                if (syscall(SYS_pidfd_getfd, pidfd, fd, 0) >= 0)
                        return 0;
        return -errno;
}

static int try_ptrace(pid_t pid)
{
        return ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0 ? -errno : 0;
}

static int try_vm(pid_t pid)
{
        char byte;
        struct iovec to = {&byte, 1}, from = {(void *)(uintptr_t)&be_another, 1};

        /* -EFAULT: permitted, but there is nothing at that address. */
        return process_vm_readv(pid, &to, 1, &from, 1, 0) < 0 && errno != EFAULT ? -errno : 0;
}

static const struct {
        const char *name;
        int (*fn)(pid_t pid);
} attempts[] = {
        {"/proc/PID/fd", try_fds},
        {"/proc/PID/mem", try_mem},
        {"/proc/PID/map_files", try_map_files},
        {"pidfd_getfd", try_getfd},
        {"ptrace", try_ptrace},
        {"process_vm_readv", try_vm},
};

enum outcome { FAILED, WORKED, NOT_HERE };

static enum outcome attempt(const struct actor *who, int (*fn)(pid_t pid), pid_t pid)
{
        int status = -1;
        pid_t child;

        fflush(NULL);
        child = child_fork();
        assert_true(child >= 0);
        if (child == 0) {
                if (!who->become())
                        _exit(NOT_HERE);
                _exit(fn(pid) == 0 ? WORKED : FAILED);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        return (enum outcome)WEXITSTATUS(status);
}

static void expect_refused(const struct actor *who, const char *whom, pid_t pid)
{
        for (unsigned i = 0; i < ARRAY_SIZE(attempts); i++) {
                enum outcome is = attempt(who, attempts[i].fn, pid);

                if (is == NOT_HERE)
                        print_message("skipped: this machine has no %s\n", who->name);
                else if (is == WORKED)
                        fail_msg("%s against %s: %s worked", who->name, whom, attempts[i].name);
        }
}

/* Opens a file of this process' user, among the descriptors that try_fds() tries. */
static void hold_file(void)
{
        assert_in_range(memfd_create("held", MFD_CLOEXEC), 0, MAX_FD);
}

/* A process without any part of kvlease. It shows what this machine lets users do to each other:
 * some forbid it (Yama, a container's system call filter). */
static void be_bystander(struct harness *h, void *data)
{
        const struct actor *who = data;

        assert_true(who->become());
        hold_file();
}

/* An attack that works against another process of the user works against this one. */
static void expect_possible(struct harness *h, const struct actor *who, const char *whom, pid_t pid)
{
        struct raw_child bystander = raw_fork(h, be_bystander, (void *)who);

        for (unsigned i = 0; i < ARRAY_SIZE(attempts); i++)
                if (attempt(who, attempts[i].fn, bystander.pid) != WORKED)
                        print_message("skipped: this machine refuses %s to %s\n", attempts[i].name,
                                who->name);
                else if (attempt(who, attempts[i].fn, pid) != WORKED)
                        fail_msg("%s against %s: %s failed", who->name, whom, attempts[i].name);
        raw_join(&bystander);
}

/* The attackers lack capabilities of the daemon, or have another uid. */
static void test_daemon_process(void **state)
{
        struct harness *h = *state;

        NEEDS_ROOT();
        for (unsigned i = 0; i < ARRAY_SIZE(strangers); i++)
                expect_refused(&strangers[i], "the daemon", h->daemon.pid);
}

/* "Whoever may ptrace the daemon": not protected. */
static void test_ptracer_of_daemon(void **state)
{
        const struct actor root = {"root", be_root};
        struct harness *h = *state;

        NEEDS_ROOT();
        expect_possible(h, &root, "the daemon", h->daemon.pid);
        ctl(h, "check");
}

/* ---- a worker of tenant a ------------------------------------------------------------------- */

static void be_victim(struct harness *h, void *data)
{
        static struct raw_shm s;

        raw_share(&s, h, "good");
        raw_claim(&s);
        assert_true(be_victims_uid());
        hold_file(); /* its user can't reopen the daemon's files */
}

static void test_worker_process(void **state)
{
        const struct actor same = {"its own user", be_victims_uid};
        struct harness *h = *state;
        struct raw_child victim;

        NEEDS_ROOT();
        victim = raw_fork(h, be_victim, NULL);
        for (unsigned i = 0; i < ARRAY_SIZE(strangers); i++)
                expect_refused(&strangers[i], "a worker", victim.pid);
        /* "Processes of one uid in one pid namespace": not protected. */
        expect_possible(h, &same, "a worker", victim.pid);
        raw_join(&victim);
}

/* ---- sockets -------------------------------------------------------------------------------- */

static const char *socket_path; /* for fn(pid) */

static int try_connect(pid_t pid)
{
        int fd = sock_connect(socket_path);

        return fd < 0 ? fd : 0;
}

/* Access to a socket proves the tenant: its directory guards it. */
static void test_sockets(void **state)
{
        struct harness *h = *state;
        char path[PRIVATE_PATH_MAX];

        NEEDS_ROOT();
        /* Opens the test's own directory, which mkdtemp() closed to others. */
        assert_int_equal(chmod(h->daemon.dir, 0755), 0);
        for (unsigned i = 0; i < ARRAY_SIZE(strangers); i++) {
                bool is_root = strangers[i].become == be_root_without_capabilities;

                socket_path = private_daemon_socket(&h->daemon, "a", path);
                if (!is_root && attempt(&strangers[i], try_connect, 0) == WORKED)
                        fail_msg("%s reached %s", strangers[i].name, socket_path);
                socket_path = h->daemon.admin;
                if (!is_root && attempt(&strangers[i], try_connect, 0) == WORKED)
                        fail_msg("%s reached %s", strangers[i].name, socket_path);
        }
}

/* ---- a segment, from inside a user namespace ------------------------------------------------ */

static bool can_write(int fd)
{
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return open(path, O_RDWR | O_CLOEXEC) >= 0;
}

static void attack_index(struct harness *h, void *data)
{
        struct mount_attr writable = {.attr_clr = MOUNT_ATTR_RDONLY};
        static struct raw_shm s;
        char path[64];

        raw_share(&s, h, "good");
        if (!be_namespace_root()) {
                print_message("skipped: no user namespaces here\n");
                return;
        }
        snprintf(path, sizeof(path), "/proc/self/fd/%d", s.index_fd);
        assert_false(can_write(s.index_fd));
        assert_true(fchmod(s.index_fd, 0666) < 0 || !can_write(s.index_fd));
        assert_true(syscall(SYS_mount_setattr, s.index_fd, "", AT_EMPTY_PATH, &writable,
                            sizeof(writable)) < 0);
        assert_true(syscall(SYS_open_tree, s.index_fd, "", AT_EMPTY_PATH | 1 /* CLONE */) < 0);
        assert_true(mount(path, path, NULL, MS_BIND | MS_REMOUNT, NULL) < 0);
        assert_true(mmap(NULL, s.index_bytes, PROT_WRITE, MAP_SHARED, s.index_fd, 0) == MAP_FAILED);
        assert_false(can_write(s.index_fd));
}

static void test_index_from_user_namespace(void **state)
{
        struct raw_child child;

        NEEDS_ROOT();
        child = raw_fork(*state, attack_index, NULL);
        raw_join(&child);
}

/* ---- names of another tenant ---------------------------------------------------------------- */

static uint32_t status_of(struct raw *r, uint16_t type, const ProtobufCMessage *m)
{
        /* Every reply begins with this message. */
        const Kvlease__V1__SimpleReply *reply;

        assert_true(raw_request(r, type, 0, m));
        reply = (const Kvlease__V1__SimpleReply *)raw_answer(r);
        assert_non_null(reply);
        return reply->status;
}

static uint8_t any_key[32] = {7};
static uint32_t any_page[] = {0};

/* Sends every request that names a namespace, on one of another client. */
static void ask_about(struct raw *r, uint32_t ns_id)
{
        Kvlease__V1__LookupRequest lookup = KVLEASE__V1__LOOKUP_REQUEST__INIT;
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        Kvlease__V1__MapRequest map = KVLEASE__V1__MAP_REQUEST__INIT;
        Kvlease__V1__FreeRequest give = KVLEASE__V1__FREE_REQUEST__INIT;
        Kvlease__V1__ReleaseRequest release = KVLEASE__V1__RELEASE_REQUEST__INIT;
        Kvlease__V1__PinRequest pin = KVLEASE__V1__PIN_REQUEST__INIT;
        Kvlease__V1__HeldRequest held = KVLEASE__V1__HELD_REQUEST__INIT;
        Kvlease__V1__LeasableRequest leasable = KVLEASE__V1__LEASABLE_REQUEST__INIT;
        Kvlease__V1__InvalidateRequest invalidate = KVLEASE__V1__INVALIDATE_REQUEST__INIT;
        Kvlease__V1__NsShareRequest share = KVLEASE__V1__NS_SHARE_REQUEST__INIT;
        Kvlease__V1__NsCloseRequest end = KVLEASE__V1__NS_CLOSE_REQUEST__INIT;
        Kvlease__V1__SessionOpenRequest session = KVLEASE__V1__SESSION_OPEN_REQUEST__INIT;
        Kvlease__V1__SessionLoadRequest load = KVLEASE__V1__SESSION_LOAD_REQUEST__INIT;
        Kvlease__V1__ExplainRequest explain = KVLEASE__V1__EXPLAIN_REQUEST__INIT;
        Kvlease__V1__ExpectRequest expect = KVLEASE__V1__EXPECT_REQUEST__INIT;
        Kvlease__V1__NotePrefillRequest prefill = KVLEASE__V1__NOTE_PREFILL_REQUEST__INIT;
        Kvlease__V1__ProbeHostsRequest probe = KVLEASE__V1__PROBE_HOSTS_REQUEST__INIT;
        const struct {
                uint16_t type;
                ProtobufCMessage *m;
        } all[] = {
                {MSG_LOOKUP, &lookup.base},
                {MSG_LEASE, &lease.base},
                {MSG_MAP, &map.base},
                {MSG_FREE, &give.base},
                {MSG_RELEASE, &release.base},
                {MSG_PIN, &pin.base},
                {MSG_HELD, &held.base},
                {MSG_LEASABLE, &leasable.base},
                {MSG_INVALIDATE, &invalidate.base},
                {MSG_NS_SHARE, &share.base},
                {MSG_SESSION_OPEN, &session.base},
                {MSG_SESSION_LOAD, &load.base},
                {MSG_EXPLAIN, &explain.base},
                {MSG_EXPECT, &expect.base},
                {MSG_NOTE_PREFILL, &prefill.base},
                {MSG_PROBE_HOSTS, &probe.base},
                {MSG_NS_CLOSE, &end.base},
        };

        lookup.ns_id = lease.ns_id = map.ns_id = give.ns_id = release.ns_id = pin.ns_id = ns_id;
        held.ns_id = leasable.ns_id = expect.ns_id = prefill.ns_id = probe.ns_id = ns_id;
        invalidate.ns_id = share.ns_id = end.ns_id = session.ns_id = explain.ns_id = ns_id;
        load.ns_id = ns_id;
        load.timeout_msec = 1;
        lookup.keys = explain.keys = expect.keys = (ProtobufCBinaryData){sizeof(any_key), any_key};
        lease.n_pages = 1;
        give.pages = release.pages = pin.pages = held.pages = any_page;
        give.n_pages = release.n_pages = pin.n_pages = held.n_pages = 1;
        load.id = (ProtobufCBinaryData){4, (uint8_t *)"text"};
        session.id = (ProtobufCBinaryData){4, (uint8_t *)"text"};
        for (unsigned i = 0; i < ARRAY_SIZE(all); i++)
                if (status_of(r, all[i].type, all[i].m) != WIRE_NOT_FOUND)
                        fail_msg("message %u on namespace %u", all[i].type, ns_id);
}

static void test_other_tenants_namespaces(void **state)
{
        struct harness *h = *state;
        char path[PRIVATE_PATH_MAX];
        uint32_t pages[2], own;
        struct worker *w;
        struct raw r;

        /* Makes numbers that only the other tenant has. */
        w = worker_start(h, "a", "first", 1);
        for (unsigned i = 0; i < 5; i++)
                worker_tell(w, "open ns%u 1", i);
        worker_publish_chain(w, 1, 2, pages);
        worker_tell(w, "session-open text");
        raw_open(&r, h, private_daemon_socket(&h->daemon, "b", path));
        own = raw_attach(&r);
        for (uint32_t id = 0; id < 16; id++)
                if (id != own)
                        ask_about(&r, id);
        ask_about(&r, UINT32_MAX);
        raw_close(&r);
        worker_tell(w, "lookup 1:0-1");
        for (unsigned i = 0; i < 2; i++)
                worker_tell(w, "verify %u %u", pages[i], 1000 + i);
        worker_stop(w);
}

static void test_other_tenants_names(void **state)
{
        struct harness *h = *state;
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "b", "ns", 1), *c;
        char token[64], path[PRIVATE_PATH_MAX];
        uint32_t pages[2];

        worker_publish_chain(a, 1, 2, pages);
        worker_tell(a, "session-open text");
        /* These name, keys, pages and session mean another namespace here. */
        assert_int_equal(worker_ask(b, "lookup 1:0-1"), 1); /* KVL_MISS */
        assert_int_not_equal(worker_ask(b, "release %u", pages[0]), 0);
        assert_int_not_equal(worker_ask(b, "free %u", pages[0]), 0);
        assert_int_not_equal(worker_ask(b, "session-open text must"), 0);
        assert_int_not_equal(worker_ask(b, "map %u", pages[0]), 0);
        /* a's group isn't found through b's socket. */
        snprintf(token, sizeof(token), "%s", worker_tell(a, "token") + 1);
        c = worker_spawn(h);
        private_daemon_socket(&h->daemon, "b", path);
        assert_int_not_equal(worker_ask(c, "connect %s %s", path, token), 0);
        private_daemon_socket(&h->daemon, "a", path);
        worker_tell(c, "connect %s %s", path, token);
        for (unsigned i = 0; i < 2; i++)
                worker_tell(a, "verify %u %u", pages[i], 1000 + i);
        worker_stop(a);
        worker_stop(b);
        worker_stop(c);
}

/* ---- within a tenant: not protected --------------------------------------------------------- */

static void test_within_tenant(void **state)
{
        struct harness *h = *state;
        struct worker *a, *other;
        uint32_t pages[1];

        if (private_on_gpu()) {
                print_message("skipped: about the CPU's memory\n");
                skip();
        }
        a = worker_start(h, "a", "ns", 1);
        other = worker_start(h, "a", "ns", 1);
        worker_publish_chain(a, 1, 1, pages);
        worker_tell(other, "lookup 1:0");
        worker_tell(other, "poke %u 0 0 x", pages[0]);
        assert_int_not_equal(worker_ask(a, "verify %u 1000", pages[0]), 0);
        worker_tell(a, "session-open text");
        worker_tell(other, "session-open text must");
        worker_tell(other, "session-close drop");
        worker_stop(a);
        worker_stop(other);
}

/* ---- a process id that comes again ---------------------------------------------------------- */

struct heir {
        struct harness *harness;
        struct raw_shm shm;
        int pipe[2];
};

/* Shares memory, leases, and passes its socket to its parent. */
static void be_first(struct heir *x)
{
        raw_share(&x->shm, x->harness, "good");
        raw_claim(&x->shm);
        _exit(sock_send(x->pipe[1], "s", 1, &x->shm.raw.fd, 1) == 1 ? 0 : 1);
}

static int take_fd(int from)
{
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control;
        char byte;
        struct iovec iov = {&byte, 1};
        struct msghdr msg = {.msg_iov = &iov,
                .msg_iovlen = 1,
                .msg_control = &control,
                .msg_controllen = sizeof(control)};
        int fd = -1;

        assert_int_equal(recvmsg(from, &msg, MSG_CMSG_CLOEXEC), 1);
        memcpy(&fd, CMSG_DATA(&control.align), sizeof(fd));
        return fd;
}

/* The pid is reused, with the first one's socket: the daemon has closed that connection. */
static void test_pid_reuse(void **state)
{
        static struct heir x;
        struct harness *h = *state;
        struct raw raw;
        int status, fd;
        pid_t pid, again;

        x.harness = h;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, x.pipe), 0);
        fflush(NULL);
        pid = child_fork();
        if (pid == 0) {
                setenv("CMOCKA_TEST_ABORT", "1", 1);
                be_first(&x);
        }
        fd = take_fd(x.pipe[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        fflush(NULL);
        again = fork_as(pid);
        if (again == 0) {
                memset(&raw, 0, sizeof(raw));
                raw.fd = fd;
                sleep_msec(200);
                raw_frame(&raw, (struct frame_header){.type = MSG_BYE});
                _exit(raw_hung_up(&raw) ? 0 : 1);
        }
        if (again < 0) {
                print_message("skipped: a process id can't be chosen here: %s\n", strerror(errno));
        } else {
                assert_int_equal(again, pid);
                ctl_wait_status(h, "n_clients", 0);
                assert_int_equal(waitpid(again, &status, 0), again);
                assert_int_equal(status, 0);
        }
        fd_close(fd);
        fd_close(x.pipe[0]);
        fd_close(x.pipe[1]);
}

/* ---- resuming as another client ------------------------------------------------------------- */

/* A client without the token can't resume as another client, not even of its own tenant. */
static void test_forged_resume(void **state)
{
        struct harness *h = *state;
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint8_t token[16] = {0};
        uint32_t pages[2];

        worker_publish_chain(w, 1, 2, pages);
        for (uint64_t id = 1; id <= 8; id++) {
                Kvlease__V1__HelloRequest hello = KVLEASE__V1__HELLO_REQUEST__INIT;
                const Kvlease__V1__HelloReply *reply;
                struct raw r;

                raw_open(&r, h, NULL);
                hello.min_version = hello.max_version = 1;
                hello.client_name = (char *)"thief";
                hello.library_version = (char *)"0";
                hello.resume_client = id;
                token[0] = (uint8_t)id;
                hello.resume_token = (ProtobufCBinaryData){sizeof(token), token};
                assert_true(raw_request(&r, MSG_HELLO, 0, &hello.base));
                reply = (const Kvlease__V1__HelloReply *)raw_answer(&r);
                assert_true(!reply || reply->status != WIRE_OK);
                raw_close(&r);
        }
        for (unsigned i = 0; i < 2; i++)
                worker_tell(w, "verify %u %u", pages[i], 1000 + i);
        worker_stop(w);
        h->violations = ctl_status(h, "violations");
}

/* ---- a handle that leaves the client: not protected ----------------------------------------- */

static void test_handle_outlives_client(void **state)
{
        struct harness *h = *state;
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        Kvlease__V1__MapRequest map = KVLEASE__V1__MAP_REQUEST__INIT;
        int fd = -1;
        struct raw r;
        char *p;

        if (private_on_gpu()) {
                print_message("skipped: about memory files\n");
                skip();
        }
        raw_open(&r, h, NULL);
        lease.ns_id = map.ns_id = raw_attach(&r);
        lease.n_pages = 1;
        assert_int_equal(status_of(&r, MSG_LEASE, &lease.base), WIRE_OK);
        r.fds = &fd;
        r.n_fds = 1;
        assert_int_equal(status_of(&r, MSG_MAP, &map.base), WIRE_OK);
        assert_true(raw_frame(&r, (struct frame_header){.type = MSG_BYE}));
        assert_non_null(raw_answer(&r));
        raw_close(&r);
        ctl_wait_status(h, "n_clients", 0);
        ctl(h, "purge a");
        ctl_wait_status(h, "charged_bytes", 0);
        p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(p != MAP_FAILED);
        memset(p, 'x', 4096); /* no tenant's memory */
        munmap(p, 4096);
        fd_close(fd);
}

/* ---- what a core would have ---- */

/* Is it shared memory? Not the kernel's own: rings of io_uring, a driver's files. */
static bool is_of_memory(const char *mapping)
{
        const char *path = strchr(mapping, '/');

        return !strstr(mapping, "anon_inode:") && !(path && strncmp(path, "/dev/", 5) == 0);
}

/* Keys, tokens and tenants' bytes are in shared or stored memory. None of the memory that the
 * daemon can write there gets into a core dump ("dd" of proc(5), smaps). */
static void test_core_of_daemon(void **state)
{
        struct harness *h = *state;
        char path[64], line[512], mapping[512] = "";
        unsigned n = 0;
        struct good good;
        FILE *f;

        if (private_under_valgrind())
                skip();
        good_start(&good, h, "a");
        good_round(&good);
        snprintf(path, sizeof(path), "/proc/%d/smaps", (int)h->daemon.pid);
        f = fopen(path, "re");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f)) {
                unsigned long long from, to;

                if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
                        memcpy(mapping, line, sizeof(mapping));
                if (strncmp(line, "VmFlags:", 8) != 0 || !strstr(line, " wr ") ||
                        !strstr(line, " sh ") || !is_of_memory(mapping))
                        continue;
                n++;
                if (!strstr(line, " dd"))
                        fail_msg("%s would be in a core: %s", mapping, line);
        }
        assert_int_equal(fclose(f), 0);
        assert_true(n >= 3); /* a ring, an index, pins; records, too, where they are kept */
        good_stop(&good);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                harness_test(test_daemon_process, (void *)&two_tenants),
                harness_test(test_ptracer_of_daemon, (void *)&two_tenants),
                harness_test(test_core_of_daemon, (void *)&two_tenants),
                harness_test(test_worker_process, (void *)&two_tenants),
                harness_test(test_sockets, (void *)&two_tenants),
                harness_test(test_index_from_user_namespace, (void *)&two_tenants),
                harness_test(test_other_tenants_namespaces, (void *)&two_tenants),
                harness_test(test_other_tenants_names, (void *)&two_tenants),
                harness_test(test_within_tenant, (void *)&two_tenants),
                harness_test(test_pid_reuse, (void *)&two_tenants),
                harness_test(test_pid_reuse, (void *)&challenged_tenants),
                harness_test(test_forged_resume, (void *)&two_tenants),
                harness_test(test_handle_outlives_client, (void *)&two_tenants),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
