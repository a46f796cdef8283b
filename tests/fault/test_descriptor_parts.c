/*
 * One tenant takes all the descriptors that it gets, by connections, shared namespaces, and memory.
 * Another one still does all its work, and the next daemon has the same counts. When the first
 * one's processes have died all descriptors are free again.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "daemon/core/life/idle.h"
#include "proto/shm.h"
#include "proto/status.h"
#include "tests/fault/raw.h"
#include "tests/integration/file-clock.h"
#include "tests/unit/child.h"

#define N_CONNECTIONS 6    /* at most; the last ones get no namespace any more */
#define N_NAMESPACES  1000 /* at most, of each */
#define FEW_FDS       512
#define N_RESERVED    32 /* sets of b's reservation */

static const struct private_tenant rows[] = {
        {"a", "events = 1TiB\n"}, {"b", "class = pinned\nreserve = 64MiB\n"}, {NULL, NULL}};

/* 512 extents of 2 MiB, each a set. */
#define DEVICE "memory = 1GiB\nextent = 2MiB\n"

static const struct private_options options = {
        .env = file_clock_env, .device_lines = DEVICE, .tenants = rows};
static const struct private_options kept = {.env = file_clock_env,
        .device_lines = DEVICE,
        .tenants = rows,
        .is_kept = true,
        .keep_max = "512"};

/* Everything the attacker got, and why it stopped. */
struct booty {
        unsigned n_connections, n_shares, n_sets;
        char hello[256], open[256], lease[256]; /* "": never refused */
};

static void note(char to[256], const char *detail)
{
        snprintf(to, 256, "%s", detail);
}

/* False: refused. */
static bool connect_as(struct raw *r, struct harness *h, const char *tenant, char why[256])
{
        char path[PRIVATE_PATH_MAX];
        const Kvlease__V1__HelloReply *hello;

        raw_open(r, h, private_daemon_socket(&h->daemon, tenant, path));
        hello = raw_hello(r, 1, 1);
        if (!hello || hello->status != WIRE_OK) {
                note(why, hello ? hello->detail : "hung up");
                raw_close(r);
                return false;
        }
        assert_true(raw_authenticate(r, hello));
        return true;
}

/* A client that is connected gets its ring. */
static void open_ring(struct raw *r)
{
        Kvlease__V1__ShmOpenRequest open = KVLEASE__V1__SHM_OPEN_REQUEST__INIT;
        const Kvlease__V1__ShmOpenReply *reply;

        open.layout_version = SHM_LAYOUT_VERSION;
        assert_true(raw_request(r, MSG_SHM_OPEN, 0, &open.base));
        reply = (const Kvlease__V1__ShmOpenReply *)raw_answer(r);
        assert_non_null(reply);
        assert_string_equal(reply->detail, "");
}

/* Shares an open namespace; 0: refused. */
static uint32_t share_named(struct raw *r, unsigned number, char why[256])
{
        Kvlease__V1__NsShareRequest share = KVLEASE__V1__NS_SHARE_REQUEST__INIT;
        const Kvlease__V1__NsShareReply *shared;
        const Kvlease__V1__NsOpenReply *reply;
        char name[16];

        snprintf(name, sizeof(name), "e%u", number);
        reply = raw_try_ns(r, name);
        if (reply->status != WIRE_OK) {
                assert_int_equal(reply->status, WIRE_TOO_MANY);
                note(why, reply->detail);
                return 0;
        }
        share.ns_id = reply->ns_id;
        assert_true(raw_request(r, MSG_NS_SHARE, 0, &share.base));
        shared = (const Kvlease__V1__NsShareReply *)raw_answer(r);
        assert_non_null(shared);
        assert_string_equal(shared->detail, "");
        return share.ns_id;
}

/* Leases sets until one is refused; returns how many. */
static unsigned lease_sets(struct raw *r, uint32_t ns_id, char why[256])
{
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        const Kvlease__V1__LeaseReply *reply;

        lease.ns_id = ns_id;
        lease.n_pages = 512; /* a set */
        for (unsigned n = 0;; n++) {
                assert_true(raw_request(r, MSG_LEASE, 0, &lease.base));
                reply = (const Kvlease__V1__LeaseReply *)raw_answer(r);
                assert_non_null(reply);
                if (reply->status == WIRE_OK)
                        continue;
                note(why, reply->detail);
                return n;
        }
}

static void take_all(struct harness *h, struct booty *b)
{
        static struct raw r[N_CONNECTIONS];
        uint32_t first = 0;

        for (unsigned i = 0; i < N_CONNECTIONS; i++) {
                if (!connect_as(&r[i], h, "a", b->hello))
                        break;
                b->n_connections++;
                open_ring(&r[i]);
                for (unsigned n = 0; n < N_NAMESPACES; n++) {
                        uint32_t id = share_named(&r[i], n, b->open);

                        if (id == 0)
                                break;
                        first = first ? first : id;
                        b->n_shares++;
                }
        }
        b->n_sets = lease_sets(&r[0], first, b->lease);
}

/* A process of tenant a that keeps all it gets, until it is killed. */
static pid_t attack(struct harness *h, struct booty *ret_booty)
{
        int ready[2];
        pid_t pid;

        *ret_booty = (struct booty){0};
        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        fflush(NULL);
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                setenv("CMOCKA_TEST_ABORT", "1", 1);
                take_all(h, ret_booty);
                assert_int_equal(
                        write(ready[1], ret_booty, sizeof(*ret_booty)), sizeof(*ret_booty));
                pause();
                _exit(0);
        }
        fd_close(ready[1]);
        assert_int_equal(read(ready[0], ret_booty, sizeof(*ret_booty)), sizeof(*ret_booty));
        fd_close(ready[0]);
        print_message(
                "%u connections (then \"%s\"), %u shares (then \"%s\"), %u sets (then \"%s\")\n",
                ret_booty->n_connections, ret_booty->hello, ret_booty->n_shares, ret_booty->open,
                ret_booty->n_sets, ret_booty->lease);
        return pid;
}

static void kill_attacker(pid_t pid)
{
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void assert_says(const char *text, const char *what)
{
        if (!strstr(text, what))
                fail_msg("\"%s\" doesn't say \"%s\"", text, what);
}

/* A worker connects, opens, shares, publishes (two chains from this one on) and finds. It gets all
 * memory that is reserved for it. */
static struct worker *live(struct harness *h, unsigned chain)
{
        struct worker *w = worker_start(h, "b", "ns", 1), *other = worker_start(h, "b", "ns", 1);
        char why[256] = "";
        uint32_t pages[4];
        unsigned n;
        struct raw r;

        worker_publish_chain(w, chain, 4, pages);
        worker_tell(other, "lookup %u:0-3", chain);
        worker_tell(other, "session-open text");
        worker_stop(other);
        other = worker_start(h, "b", "ns2", 1);
        worker_publish_chain(other, chain + 1, 4, pages);
        worker_stop(other);
        assert_true(connect_as(&r, h, "b", why));
        n = lease_sets(&r, raw_open_ns(&r), why);
        print_message("b: %u sets, then \"%s\"\n", n, why);
        assert_true(n + 2 >= N_RESERVED); /* both namespaces have one */
        raw_close(&r);
        return w;
}

/* Waits until the tenant's idle namespaces are removed. */
static void await_idle(struct harness *h, const char *tenant)
{
        uint64_t nsec = 2000 * NSEC_PER_SEC;

        for (unsigned i = 0; ctl_tenant(h, tenant, "n_namespaces") > 0; i++) {
                if (i == 20)
                        fail_msg("tenant %s still has namespaces", tenant);
                nsec += NS_IDLE_NSEC + NSEC_PER_SEC;
                file_clock_set(nsec);
                sleep_msec(1100); /* it looks once a second */
        }
}

HARNESS_TEST(test_open_files, &options)
{
        pid_t pid = (pid_t)ctl_status(h, "pid"), attacker;
        struct rlimit before;
        struct booty booty;
        int n_fds;

        for (unsigned i = 0; i < 1000 && !proc_holds_reserve(pid); i++)
                sleep_msec(10);
        n_fds = proc_count_fds(pid);
        assert_int_equal(prlimit(pid, RLIMIT_NOFILE, NULL, &before), 0);
        assert_int_equal(
                prlimit(pid, RLIMIT_NOFILE, &(struct rlimit){FEW_FDS, before.rlim_max}, NULL), 0);
        attacker = attack(h, &booty);
        assert_says(booty.open, "kvleased may have 512 open files, tenant a ");
        assert_says(booty.open, "raise LimitNOFILE");
        assert_true(booty.n_shares > 50);
        assert_in_range(
                ctl_tenant(h, "a", "open_files"), 200, ctl_tenant(h, "a", "open_files_limit"));
        assert_true(
                ctl_tenant(h, "a", "open_files_limit") + ctl_tenant(h, "b", "open_files_sure") <=
                FEW_FDS);
        worker_stop(live(h, 1));
        kill_attacker(attacker);
        ctl_wait_status(h, "n_clients", 0);
        ctl(h, "purge b");
        await_idle(h, "a");
        await_idle(h, "b");
        for (unsigned i = 0; i < 1000 && !proc_holds_reserve(pid); i++)
                sleep_msec(10);
        assert_int_equal(proc_count_fds(pid), n_fds);
        assert_int_equal(prlimit(pid, RLIMIT_NOFILE, &before, NULL), 0);
}

/* A process with thousands of shares over a few connections dies: they end in slices. */
HARNESS_TEST(test_many_end_at_once, &options)
{
        struct booty booty;
        pid_t attacker = attack(h, &booty);
        struct worker *w = worker_start(h, "b", "ns", 1);

        assert_true(booty.n_shares > 500);
        kill_attacker(attacker);
        while (ctl_status(h, "n_clients") > 1)
                worker_tell(w, "invalidate 5:5");
        harness_assert_prompt(h);
        worker_stop(w);
        await_idle(h, "a");
        await_idle(h, "b");
}

/* Accounts of both tenants. */
struct accounts {
        uint64_t n[2][3];
};

static struct accounts look(struct harness *h)
{
        static const char *const names[] = {"kept_fds", "kept_fds_sure", "kept_fds_limit"};
        struct accounts a;

        for (unsigned i = 0; i < 3; i++) {
                a.n[0][i] = ctl_tenant(h, "a", names[i]);
                a.n[1][i] = ctl_tenant(h, "b", names[i]);
        }
        return a;
}

HARNESS_TEST(test_kept, &kept)
{
        uint64_t n_kept = ctl_status(h, "kept_fds");
        struct accounts before, after;
        struct booty booty;
        struct worker *w;
        pid_t attacker;

        attacker = attack(h, &booty);
        assert_says(booty.open, "can be kept for its next start, of tenant a ");
        assert_says(booty.open, "raise FileDescriptorStoreMax");
        assert_true(booty.n_shares > 20);
        w = live(h, 1);
        ctl_wait_status(h, "n_clients", booty.n_connections + 1);
        before = look(h);
        /* Memory that b released is freed gradually. */
        for (unsigned i = 0; i < 1000 && before.n[0][0] > before.n[0][2]; i++) {
                sleep_msec(10);
                before = look(h);
        }
        assert_in_range(before.n[0][0], 250, before.n[0][2]);
        assert_true(before.n[0][2] + before.n[1][1] <= 512);

        kill((pid_t)ctl_status(h, "pid"), SIGKILL);
        assert_int_equal(private_daemon_await(&h->daemon), 0);
        worker_tell(w, "session-open again"); /* it comes back for that */
        ctl_wait_status(h, "clients_resumed", 1);
        after = look(h);
        assert_memory_equal(&before, &after, sizeof(before));
        worker_stop(live(h, 3));
        worker_stop(w);

        kill_attacker(attacker);
        ctl_wait_status(h, "n_clients", 0);
        ctl_wait_status(h, "members_waiting_exit", 0);
        ctl(h, "purge b");
        ctl(h, "sessions purge b");
        await_idle(h, "a");
        await_idle(h, "b");
        assert_int_equal(ctl_status(h, "kept_fds"), n_kept);
}

int main(void)
{
        return test_run_all(file_clock_open, file_clock_close);
}
