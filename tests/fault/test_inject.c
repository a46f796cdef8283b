/*
 * Single calls of libc fail (inject.h): in the daemon while it starts, serves and stops, and in the
 * library. The daemon continues, or ends with a documented exit code and a sentence. Answers to
 * administrators are true of its state and its disk; nothing leaks. The library fails the call it
 * was in, and its process can continue. KVL_SEED chooses the calls; KVL_INJECT_POINT=NAME:N takes
 * that one alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "proto/sock.h"
#include "tests/fault/inject-plan.h"
#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"

#define EXIT_CODE_MAX 5 /* kvleased --help */

static const struct private_options options = {.daemon_lines = "log_level = info\n"};

/*
 * Names a library that ended the process itself. libuv aborts if it can't watch a descriptor or
 * start a thread (ld.so allocates for that, and exits). libc's name service (getgrnam()) doesn't
 * check malloc(). NULL: none of them.
 */
static const char *find_failed(const char *log, int status)
{
        int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

        if (signal == SIGABRT && (strstr(log, "libuv.so") || strstr(log, "ld-linux")))
                return "libuv";
        if (signal != 0 && strstr(log, "alloc fails: /") && strstr(log, "/libc.so"))
                return "libc";
        if (WIFEXITED(status) && strstr(log, "cannot allocate memory for thread-local data"))
                return "ld.so";
        return NULL;
}

/* The daemon's end must be documented: an exit code with a sentence. */
static void assert_documented_end(struct harness *h, size_t log_offset, int status)
{
        char *log = log_from(h, log_offset);
        bool said = strstr(log, " error: ") || strstr(log, "kvleased: ");
        const char *failed = find_failed(log, status);

        if (failed)
                print_message("%s gave up: %s", failed, strstr(log, "inject:"));
        else if (!WIFEXITED(status) || WEXITSTATUS(status) > EXIT_CODE_MAX ||
                 (WEXITSTATUS(status) && !said))
                fail_msg("the daemon ended with status 0x%x:\n%s", status, log);
        free(log);
}

/* ---- while it serves ------------------------------------------------------------------------ */

static unsigned chain; /* of the run: each publishes a text of its own */

/* A client's whole life. False: a call failed, and the rest is left out. */
static bool client_session(struct worker *w, struct harness *h)
{
        char socket[PRIVATE_PATH_MAX];
        uint32_t pages[2];
        bool ok;

        chain++;
        ok = worker_ask(w, "connect %s", private_daemon_socket(&h->daemon, "a", socket)) == 0 &&
             worker_ask(w, "open ns%u 1", chain % 4) == 0 && worker_ask(w, "lease 2") == 0;
        if (!ok || worker_numbers(w, pages, 2) != 2)
                return false;
        return worker_ask(w, "fill %u %u", pages[0], chain) == 0 &&
               worker_ask(w, "publish %u:0 - %u", chain, pages[0]) == 0 &&
               worker_ask(w, "free %u", pages[1]) == 0 &&
               worker_ask(w, "lookup %u:0", chain) == 0 &&
               worker_ask(w, "verify %u %u", pages[0], chain) == 0 &&
               worker_ask(w, "session-open s%u", chain) == 0 &&
               worker_ask(w, "session-close drop") == 0 && worker_ask(w, "close") == 0;
}

/* A tenant's limit; 0: there is no such tenant; UINT64_MAX: the daemon doesn't answer. A reply may
 * be the call that fails, so it asks again. */
static uint64_t limit_of(struct harness *h, const char *tenant)
{
        uint64_t limit = UINT64_MAX;

        for (unsigned i = 0; i < 3 && limit == UINT64_MAX; i++) {
                struct proc_output o;
                json_t *reply, *t;
                size_t n;

                if (ctl_run(h, "--json tenants list", &o) == 0) {
                        reply = json_loads(o.out, 0, NULL);
                        assert_non_null(reply);
                        limit = 0;
                        json_array_foreach(ctl_list(reply, "tenants"), n, t)
                        {
                                if (strcmp(json_string_value(json_object_get(t, "name")), tenant) ==
                                        0)
                                        limit = (uint64_t)json_integer_value(
                                                json_object_get(t, "limit_bytes"));
                        }
                        json_decref(reply);
                }
                proc_output_free(&o);
        }
        return limit;
}

static bool is_stored(struct harness *h, const char *section)
{
        char path[PRIVATE_PATH_MAX + 16], *text = NULL;
        size_t len;
        bool found;
        int r;

        snprintf(path, sizeof(path), "%s/tenants.conf", h->daemon.state);
        r = file_read(path, 1 << 20, &text, &len);
        if (r == -ENOENT)
                return false;
        assert_int_equal(r, 0);
        found = strstr(text, section);
        free(text);
        return found;
}

static char refusal[512]; /* last refusal of a request that must not be refused */

/* Exit status of a change: 0, or refused with a sentence. */
static int change(struct harness *h, const char *words)
{
        struct proc_output o;
        int status = ctl_run(h, words, &o);

        if (status && !o.err[0])
                fail_msg("kvleasectl %s: exit status %d without a sentence", words, status);
        if (status)
                snprintf(refusal, sizeof(refusal), "%s: %s", words, o.err);
        proc_output_free(&o);
        return status;
}

/* Do the daemon and its file agree on tenant x, which the change leaves with `limit`? */
static bool is_stored_as(struct harness *h, uint64_t is, uint64_t limit, const char *line)
{
        return (limit == 0 || (is == limit) == is_stored(h, line)) &&
               (is > 0) == is_stored(h, "[tenant x]");
}

/*
 * After an answer, the daemon, its file and the answer agree. If the connection was lost, the
 * change may still be under way (tenantdb.h): the file is read again until it is over. False: the
 * daemon has ended.
 */
static bool agrees(
        struct harness *h, const char *what, bool was_done, uint64_t limit, const char *line)
{
        uint64_t end = now_nsec() + WAIT_MSEC * UINT64_C(1000000), is;

        while ((is = limit_of(h, "x")) != UINT64_MAX) {
                if (was_done && is != limit)
                        fail_msg("%s was answered OK and isn't so", what);
                if (is_stored_as(h, is, limit, line))
                        return true;
                if (was_done || now_nsec() > end)
                        fail_msg("%s: tenant x has %llu bytes, the file says otherwise", what,
                                (unsigned long long)is);
                sleep_msec(2);
        }
        return false;
}

/* Changes by an administrator. Returns true if none was refused. */
static bool admin_session(struct harness *h)
{
        int added = change(h, "tenants add x limit=8MiB"), set, removed, recorded;

        if (!agrees(h, "adding a tenant", added == 0, 8 << 20, "limit = 8MiB"))
                return false;
        set = change(h, "tenants set x limit=4MiB");
        if (!agrees(h, "a limit", set == 0, 4 << 20, "limit = 4MiB"))
                return false;
        kill(h->daemon.pid, SIGHUP);
        recorded = change(h, "trace record on");
        recorded |= change(h, "trace record off");
        removed = change(h, "tenants remove x");
        if (!agrees(h, "a removal", removed == 0, 0, ""))
                return false;
        return added == 0 && set == 0 && recorded == 0 && removed == 0;
}

/* Returns true if no request was refused. */
static bool serve(struct harness *h)
{
        static const char *const env[] = {"KVL_WORKER_TIMEOUT_MSEC=5000", NULL};
        struct worker *w = worker_spawn_with(h, program_worker(), env);
        bool ok = client_session(w, h);

        if (!ok)
                snprintf(refusal, sizeof(refusal), "worker: %s", w->line);
        worker_stop(w);
        return admin_session(h) && ok;
}

static void must_serve(struct harness *h)
{
        if (!serve(h))
                fail_msg("%s", refusal);
}

static bool is_running(struct harness *h, int *ret_status)
{
        return waitpid(h->daemon.pid, ret_status, WNOHANG) == 0;
}

/* Has the daemon ended? One that doesn't answer is about to end, and may take its time. */
static bool is_gone(struct harness *h, int *ret_status)
{
        uint64_t end = now_nsec() + WAIT_MSEC * UINT64_C(1000000);

        while (is_running(h, ret_status)) {
                if (limit_of(h, "x") != UINT64_MAX)
                        return false;
                if (now_nsec() > end)
                        fail_msg("the daemon neither answers nor ends");
                sleep_msec(2);
        }
        return true;
}

/* If the daemon may have ended in the middle, checks first whether it answers: kvleasectl would
 * fail the test. */
static void try_serving(struct harness *h, unsigned f, uint64_t k)
{
        size_t log_offset = log_length(h);
        int status = 0;

        print_message("%s:%llu\n", functions[f].name, (unsigned long long)k);
        arm(f, k);
        serve(h);
        arm(f, 0);
        if (is_gone(h, &status)) {
                h->daemon.pid = 0;
                assert_documented_end(h, log_offset, status);
                harness_start(h);
        }
        if (limit_of(h, "x"))
                ctl(h, "tenants remove x");
        ctl(h, "trace record off");
        harness_assert_settled(h);
}

HARNESS_TEST(test_serving, &options)
{
        struct counts before;
        struct plan p;

        private_daemon_stop(&h->daemon, &(int){0});
        h->daemon.env = daemon_env;
        harness_start(h);
        /* Makes what the first client causes to be made once. */
        must_serve(h);
        harness_assert_settled(h);
        before = counts_now();
        must_serve(h);
        harness_assert_settled(h);
        p = plan_new(counts_since(&before), private_full() ? 900 : 10);
        for (; plan_next(&p); p.f++)
                try_serving(h, p.f, p.k);
        plan_done(&p, "serving");
        must_serve(h);
        harness_restart(h);
        h->violations = ctl_status(h, "violations");
}

/* ---- while it starts and stops -------------------------------------------------------------- */

/* Waits until the daemon answers, or has ended. READY isn't waited for: its message may be the call
 * that fails. So may the first answer. */
static bool comes_up(struct harness *h, int *ret_status)
{
        uint64_t end = now_nsec() + WAIT_MSEC * UINT64_C(1000000);

        while (now_nsec() < end) {
                int fd = sock_connect(h->daemon.admin);
                struct proc_output o;
                int answered = -1;

                if (fd >= 0) {
                        fd_close(fd);
                        answered = ctl_run(h, "status", &o);
                        proc_output_free(&o);
                }
                if (answered == 0)
                        return true;
                if (waitpid(h->daemon.pid, ret_status, WNOHANG) == h->daemon.pid)
                        return false;
                sleep_msec(2);
        }
        fail_msg("the daemon neither serves nor ends");
        return false;
}

static void spawn_daemon(struct harness *h, const char *const *env)
{
        const char *argv[] = {program_daemon(), "--config", h->daemon.config, NULL};
        _cleanup_fd_ int log = open(h->daemon.log, O_WRONLY | O_APPEND | O_CLOEXEC);

        assert_true(log >= 0);
        reset_counts();
        h->daemon.pid = proc_spawn(argv, env, (struct proc_files){-1, log, log});
        assert_true(h->daemon.pid > 0);
}

static void end_daemon(struct harness *h, size_t log_offset)
{
        int status = 0;

        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        assert_documented_end(h, log_offset, status);
}

static void try_starting(struct harness *h, unsigned f, uint64_t k)
{
        size_t log_offset = log_length(h);
        int status = 0;

        print_message("%s:%llu\n", functions[f].name, (unsigned long long)k);
        snprintf(point_env, sizeof(point_env), "KVL_INJECT=%s:%llu:%d", functions[f].name,
                (unsigned long long)k, functions[f].error);
        spawn_daemon(h, start_env);
        if (comes_up(h, &status)) {
                /* The failing call may still be one of libuv for the next connection. */
                if (change(h, "check") == 0 || is_running(h, &status)) {
                        ctl(h, "check");
                        end_daemon(h, log_offset);
                        return;
                }
        }
        h->daemon.pid = 0;
        assert_documented_end(h, log_offset, status);
}

HARNESS_TEST(test_starting, &options)
{
        struct counts counts;
        struct plan p;

        private_daemon_stop(&h->daemon, &(int){0});
        spawn_daemon(h, daemon_env);
        assert_true(comes_up(h, &(int){0}));
        counts = counts_now();
        end_daemon(h, log_length(h));
        p = plan_new(counts, private_full() ? 600 : 5);
        for (; plan_next(&p); p.f++)
                try_starting(h, p.f, p.k);
        plan_done(&p, "starting");
        h->daemon.env = daemon_env;
        harness_start(h);
        must_serve(h);
}

/* Starts a daemon with state to save. */
static void start_used(struct harness *h)
{
        struct worker *w;

        spawn_daemon(h, daemon_env);
        assert_true(comes_up(h, &(int){0}));
        w = worker_spawn(h);
        if (!client_session(w, h))
                fail_msg("%s", w->line);
        worker_stop(w);
        ctl_wait_status(h, "n_clients", 0);
}

HARNESS_TEST(test_stopping, &options)
{
        struct counts before;
        struct plan p;

        private_daemon_stop(&h->daemon, &(int){0});
        start_used(h);
        before = counts_now();
        end_daemon(h, log_length(h));
        p = plan_new(counts_since(&before), private_full() ? 300 : 4);
        for (; plan_next(&p); p.f++) {
                size_t log_offset = log_length(h);

                print_message("%s:%llu\n", functions[p.f].name, (unsigned long long)p.k);
                start_used(h);
                arm(p.f, p.k);
                end_daemon(h, log_offset);
        }
        plan_done(&p, "stopping");
        h->daemon.env = daemon_env;
        reset_counts(); /* faults in functions that the last one didn't call */
        harness_start(h);
}

/* ---- in the library ------------------------------------------------------------------------- */

/* kvlease.h names these codes for a shortage of the system. The daemon may also hang up because of
 * one. */
static bool is_documented(int code, int injected)
{
        return code >= 0 || code == -injected || code == -ENOMEM || code == -ECONNRESET ||
               code == -ENOTCONN || code == -ETIMEDOUT || code == -EIO;
}

HARNESS_TEST(test_library, &options)
{
        static const char *const modules = "KVL_INJECT_MODULES=libkvlease:libcrypto:libprotobuf";
        const char *env[] = {file_env, preload_env, modules, "KVL_WORKER_TIMEOUT_MSEC=3000", NULL};
        struct counts before;
        struct worker *w;
        struct plan p;
        int n_fds;

        reset_counts();
        w = worker_spawn_with(h, program_worker(), env);
        assert_true(client_session(w, h));
        worker_tell(w, "disconnect");
        before = counts_now();
        assert_true(client_session(w, h));
        worker_tell(w, "disconnect");
        n_fds = proc_count_fds(w->pid);
        p = plan_new(counts_since(&before), private_full() ? 600 : 5);
        for (; plan_next(&p); p.f++) {
                print_message("%s:%llu\n", functions[p.f].name, (unsigned long long)p.k);
                arm(p.f, p.k);
                if (!client_session(w, h) && !is_documented(w->code, functions[p.f].error))
                        fail_msg("%s: %s", functions[p.f].name, w->line);
                worker_tell(w, "disconnect");
                arm(p.f, 0);
                if (!client_session(w, h))
                        fail_msg("afterwards: %s", w->line);
                worker_tell(w, "disconnect");
                assert_int_equal(proc_count_fds(w->pid), n_fds);
        }
        plan_done(&p, "library");
        worker_stop(w);
        h->violations = ctl_status(h, "violations");
}

int main(void)
{
        return test_run_all(open_shared, close_shared);
}
