/*
 * A client's resume token, taken from its memory, is presented by others
 * (docs/security/THREATS.md): a child of the client, another user, another tenant, a process with
 * the client's reused pid. They try before a restart, while the client is waited for, after it came
 * back, and after it has left.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/status.h"
#include "tests/fault/actors.h"
#include "tests/fault/raw.h"

static const struct private_tenant two[] = {
        {"a", "limit = 32MiB\n"}, {"b", "limit = 32MiB\n"}, {NULL, NULL}};
static const struct private_options kept_tenants = {.tenants = two, .is_kept = true};
static const struct private_options challenged_tenants = {
        .tenants = two, .is_kept = true, .daemon_lines = "liveness = challenge\n"};

static uint32_t status_of(struct raw *r, uint16_t type, const ProtobufCMessage *m)
{
        const Kvlease__V1__SimpleReply *reply; /* every reply begins with it */

        assert_true(raw_request(r, type, 0, m));
        reply = (const Kvlease__V1__SimpleReply *)raw_answer(r);
        assert_non_null(reply);
        return reply->status;
}

struct stolen {
        struct harness *harness;
        const char *path; /* of the socket it is tried on */
        uint64_t client;
        uint8_t token[16];
};

static const struct stolen *loot; /* for the forked child */

/* Resumes as the client. Returns the status of HELLO, or of AUTH. The connection is left open. */
static int resume_as(struct raw *r, const struct stolen *x, uint8_t ret_token[16])
{
        Kvlease__V1__HelloRequest hello = KVLEASE__V1__HELLO_REQUEST__INIT;
        const Kvlease__V1__HelloReply *reply;

        raw_open(r, x->harness, x->path);
        hello.min_version = hello.max_version = 1;
        hello.client_name = (char *)"thief";
        hello.library_version = (char *)"0";
        hello.resume_client = x->client;
        hello.resume_token = (ProtobufCBinaryData){sizeof(x->token), (uint8_t *)x->token};
        assert_true(raw_request(r, MSG_HELLO, 0, &hello.base));
        reply = (const Kvlease__V1__HelloReply *)raw_answer(r);
        assert_non_null(reply);
        if (reply->status != WIRE_OK)
                return (int)reply->status;
        assert_int_equal(reply->resume_token.len, 16);
        memcpy(ret_token, reply->resume_token.data, 16);
        return raw_authenticate(r, reply) ? WIRE_OK : WIRE_DENIED;
}

static int resume_here(const struct stolen *x)
{
        uint8_t unused[16];
        struct raw r;
        int status = resume_as(&r, x, unused);

        raw_close(&r);
        return status;
}

#define CANT_BECOME 255

/* resume_here() from a child that has become another user; CANT_BECOME. */
static int resume_elsewhere(const struct stolen *x, bool (*become)(void))
{
        int status;
        pid_t pid;

        loot = x;
        fflush(NULL);
        pid = fork();
        if (pid == 0) {
                setenv("CMOCKA_TEST_ABORT", "1", 1);
                _exit(become() ? resume_here(loot) : CANT_BECOME);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

/* Lets all users reach the socket, as if it were mounted for them. */
static void open_to_all(const char *path)
{
        char dir[PRIVATE_PATH_MAX];

        strcpy(dir, path);
        assert_int_equal(chmod(path, 0666), 0);
        for (char *end; (end = strrchr(dir, '/')) && end > dir + strlen("/tmp");) {
                *end = '\0';
                (void)chmod(dir, 0755);
        }
}

static void try_thieves(const struct stolen *stolen)
{
        char path[PRIVATE_PATH_MAX];
        struct stolen x = *stolen;
        int status;

        assert_int_equal(resume_elsewhere(&x, be_root), WIRE_DENIED);
        if (geteuid() == 0) {
                open_to_all(x.path);
                assert_int_equal(resume_elsewhere(&x, be_another), WIRE_DENIED);
                status = resume_elsewhere(&x, be_namespace_root);
                if (status == CANT_BECOME) /* as in a chroot */
                        print_message("skipped: no user namespaces here\n");
                else
                        assert_int_equal(status, WIRE_DENIED);
        }
        x.token[5] ^= 1;
        assert_int_equal(resume_here(&x), WIRE_LOST);
        x.token[5] ^= 1;
        x.path = private_daemon_socket(&x.harness->daemon, "b", path);
        assert_int_equal(resume_here(&x), WIRE_LOST);
        assert_int_equal(resume_elsewhere(&x, be_root), WIRE_LOST);
}

static struct stolen begin_victim(struct raw *r, struct harness *h, char path[PRIVATE_PATH_MAX])
{
        struct stolen x = {.harness = h, .path = private_daemon_socket(&h->daemon, "a", path)};
        const Kvlease__V1__HelloReply *reply;

        raw_open(r, h, NULL);
        reply = raw_hello(r, 1, 1);
        assert_true(reply && reply->resume_token.len == sizeof(x.token));
        x.client = reply->client_id;
        memcpy(x.token, reply->resume_token.data, sizeof(x.token));
        assert_true(raw_authenticate(r, reply));
        return x;
}

/* Leases and maps a page, so that the client stays when its connection ends. */
static void lease_and_map(struct raw *r, uint32_t ns_id)
{
        Kvlease__V1__LeaseRequest lease = KVLEASE__V1__LEASE_REQUEST__INIT;
        Kvlease__V1__MapRequest map = KVLEASE__V1__MAP_REQUEST__INIT;
        int fd;

        lease.ns_id = map.ns_id = ns_id;
        lease.n_pages = 2;
        assert_int_equal(status_of(r, MSG_LEASE, &lease.base), WIRE_OK);
        r->fds = &fd;
        r->n_fds = 1;
        assert_int_equal(status_of(r, MSG_MAP, &map.base), WIRE_OK);
        fd_close(fd);
}

static void kill_daemon(struct harness *h)
{
        uint64_t pid = ctl_status(h, "pid");
        struct proc_output output;

        kill((pid_t)pid, SIGKILL);
        while (ctl_run(h, "status", &output) != 0)
                proc_output_free(&output);
        proc_output_free(&output);
        assert_int_not_equal(ctl_status(h, "pid"), pid);
}

/* A process with the pid of the exited client isn't that client, even with its token. */
static void test_token_and_pid(void **state)
{
        struct harness *h = *state;
        char path[PRIVATE_PATH_MAX];
        int pipe_fds[2], status;
        pid_t pid, again;
        struct stolen x;

        assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
        fflush(NULL);
        pid = fork();
        if (pid == 0) {
                struct raw r;

                setenv("CMOCKA_TEST_ABORT", "1", 1);
                x = begin_victim(&r, h, path);
                lease_and_map(&r, raw_open_ns(&r));
                _exit(write(pipe_fds[1], &x, sizeof(x)) == (ssize_t)sizeof(x) ? 0 : 1);
        }
        assert_int_equal(read(pipe_fds[0], &x, sizeof(x)), sizeof(x));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        x.path = private_daemon_socket(&h->daemon, "a", path);
        fflush(NULL);
        again = fork_as(pid);
        if (again == 0) {
                setenv("CMOCKA_TEST_ABORT", "1", 1);
                _exit(resume_here(&x));
        }
        if (again < 0) {
                print_message("skipped: a process id can't be chosen here: %s\n", strerror(errno));
        } else {
                assert_int_equal(again, pid);
                assert_int_equal(waitpid(again, &status, 0), again);
                assert_true(WIFEXITED(status));
                assert_true(WEXITSTATUS(status) == WIRE_LOST || WEXITSTATUS(status) == WIRE_DENIED);
        }
        ctl_wait_status(h, "n_clients", 0);
        h->violations = ctl_status(h, "violations");
        fd_close(pipe_fds[0]);
        fd_close(pipe_fds[1]);
}

static void test_stolen_token(void **state)
{
        Kvlease__V1__ResumedRequest resumed = KVLEASE__V1__RESUMED_REQUEST__INIT;
        Kvlease__V1__ReportRequest report = KVLEASE__V1__REPORT_REQUEST__INIT;
        struct harness *h = *state;
        char path[PRIVATE_PATH_MAX];
        struct stolen x, old;
        struct raw r;

        if (private_on_gpu()) {
                print_message("skipped: about memory files\n");
                skip();
        }
        x = begin_victim(&r, h, path);
        report.ns_id = raw_open_ns(&r);
        lease_and_map(&r, report.ns_id);
        assert_int_equal(resume_here(&x), WIRE_DENIED); /* it is connected */
        try_thieves(&x);
        kill_daemon(h);
        raw_close(&r);
        try_thieves(&x);

        old = x;
        assert_int_equal(resume_as(&r, &old, x.token), WIRE_OK);
        assert_int_equal(resume_here(&old), WIRE_DENIED); /* twice, while both are right */
        assert_int_equal(status_of(&r, MSG_RESUMED, &resumed.base), WIRE_OK);
        assert_int_equal(resume_here(&old), WIRE_LOST); /* and while it isn't any more */
        try_thieves(&x);
        lease_and_map(&r, report.ns_id);
        assert_true(raw_request(&r, MSG_REPORT, 0, &report.base));
        assert_int_equal(((const Kvlease__V1__CountReply *)raw_answer(&r))->count, 4);
        assert_true(raw_frame(&r, (struct frame_header){.type = MSG_BYE}));
        assert_non_null(raw_answer(&r));
        raw_close(&r);
        assert_int_equal(resume_here(&x), WIRE_LOST); /* it has left */
        ctl_wait_status(h, "n_clients", 0);
        h->violations = ctl_status(h, "violations");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                harness_test(test_token_and_pid, (void *)&kept_tenants),
                harness_test(test_token_and_pid, (void *)&challenged_tenants),
                harness_test(test_stolen_token, (void *)&kept_tenants),
                harness_test(test_stolen_token, (void *)&challenged_tenants),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
