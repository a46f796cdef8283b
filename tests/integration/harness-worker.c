/* Workers for tests; declared in harness.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/integration/harness.h"

#define ANSWER_TIMEOUT_MSEC 120000 /* valgrind on a loaded machine; not tuned */

static struct worker *find_place(struct harness *h)
{
        for (unsigned i = 0; i < HARNESS_MAX_WORKERS; ++i)
                if (!h->workers[i].pid) {
                        h->workers[i] = (struct worker){.harness = h, .in = -1};
                        return &h->workers[i];
                }
        fail_msg("more than %d workers", HARNESS_MAX_WORKERS);
        return NULL;
}

struct worker *worker_spawn(struct harness *h)
{
        return worker_spawn_as(h, program_worker());
}

struct worker *worker_spawn_as(struct harness *h, const char *program)
{
        return worker_spawn_with(h, program, NULL);
}

struct worker *worker_spawn_with(struct harness *h, const char *program, const char *const *env)
{
        const char *argv[] = {program, NULL}, *wrapped[PROGRAM_ARGS_MAX];
        struct worker *w = find_place(h);
        int in[2], out[2];

        program_wrap(argv, wrapped);
        assert_int_equal(pipe2(in, O_CLOEXEC), 0);
        assert_int_equal(pipe2(out, O_CLOEXEC), 0);
        w->pid = proc_spawn(wrapped, env, (struct proc_files){in[0], out[1], -1});
        assert_true(w->pid > 0);
        fd_close(in[0]);
        fd_close(out[1]);
        w->in = in[1];
        w->out = fdopen(out[0], "r");
        assert_non_null(w->out);
        return w;
}

void worker_attach(struct worker *w, const char *tenant, const char *ns, unsigned n_planes)
{
        char socket[PRIVATE_PATH_MAX];

        worker_tell(w, "connect %s", private_daemon_socket(&w->harness->daemon, tenant, socket));
        worker_tell(w, "open %s %u", ns, n_planes);
}

struct worker *worker_start(
        struct harness *h, const char *tenant, const char *ns, unsigned n_planes)
{
        struct worker *w = worker_spawn(h);

        worker_attach(w, tenant, ns, n_planes);
        return w;
}

static void fail_gone(const struct worker *w, const char *asked)
{
        int status = 0;

        if (proc_wait(w->pid, ANSWER_TIMEOUT_MSEC, &status) < 0)
                fail_msg("worker %d says nothing more after \"%s\"", (int)w->pid, asked);
        fail_msg("worker %d is gone after \"%s\": %s %d", (int)w->pid, asked,
                WIFSIGNALED(status) ? "signal" : "exit status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

static void wait_answer(struct worker *w, const char *asked)
{
        struct pollfd p = {fileno(w->out), POLLIN, 0};

        if (poll(&p, 1, ANSWER_TIMEOUT_MSEC) <= 0)
                fail_msg("worker %d doesn't answer \"%s\"", (int)w->pid, asked);
        if (getline(&w->line, &w->line_size, w->out) <= 0)
                fail_gone(w, asked);
        w->line[strcspn(w->line, "\n")] = '\0';
        w->code = (int)strtol(w->line, (char **)&w->rest, 10);
}

/* Sends a line and returns it, owned. */
static char *say(struct worker *w, const char *format, va_list args)
{
        char *line = NULL;
        int n = vasprintf(&line, format, args);

        assert_true(n > 0);
        assert_int_equal(write(w->in, line, (size_t)n), n);
        assert_int_equal(write(w->in, "\n", 1), 1);
        return line;
}

static int ask(struct worker *w, const char *format, va_list args)
{
        char *line = say(w, format, args);

        wait_answer(w, line);
        free(line);
        return w->code;
}

void worker_say(struct worker *w, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        free(say(w, format, args));
        va_end(args);
}

bool worker_answers(struct worker *w, int timeout_msec)
{
        struct pollfd p = {fileno(w->out), POLLIN, 0};

        if (poll(&p, 1, timeout_msec) <= 0 || !(p.revents & POLLIN))
                return false;
        wait_answer(w, "");
        return true;
}

int worker_ask(struct worker *w, const char *format, ...)
{
        va_list args;
        int code;

        va_start(args, format);
        code = ask(w, format, args);
        va_end(args);
        return code;
}

const char *worker_tell(struct worker *w, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        if (ask(w, format, args) != 0)
                fail_msg("worker: \"%s\": %s", format, w->line);
        va_end(args);
        return w->rest;
}

unsigned worker_numbers(struct worker *w, uint32_t *ret_numbers, unsigned max)
{
        const char *at = w->rest;
        unsigned n = 0;
        char *end;

        for (; n < max; at = end) {
                unsigned long value = strtoul(at, &end, 10);

                if (end == at)
                        break;
                ret_numbers[n++] = (uint32_t)value;
        }
        return n;
}

void worker_publish_chain(struct worker *w, unsigned chain, unsigned n, uint32_t *ret_pages)
{
        uint32_t carried[256];
        char line[4096];
        int at;

        assert_true(n > 0 && n <= ARRAY_SIZE(carried));
        worker_tell(w, "lease %u", n);
        assert_int_equal(worker_numbers(w, ret_pages, n), n);
        at = snprintf(line, sizeof(line), "publish %u:0-%u -", chain, n - 1);
        for (unsigned i = 0; i < n; ++i) {
                worker_tell(w, "fill %u %u", ret_pages[i], 1000 * chain + i);
                at += snprintf(line + at, sizeof(line) - (size_t)at, " %u", ret_pages[i]);
        }
        worker_tell(w, "%s", line);
        assert_int_equal(worker_numbers(w, carried, n), n);
        assert_memory_equal(carried, ret_pages, n * sizeof(*carried));
}

static void forget(struct worker *w)
{
        w->in = fd_close(w->in);
        if (w->out)
                fclose(w->out);
        free(w->line);
        *w = (struct worker){.in = -1};
}

void worker_wait(struct worker *w)
{
        int status = -1;

        assert_int_equal(proc_wait(w->pid, 10 * ANSWER_TIMEOUT_MSEC, &status), 0);
        if (status)
                fail_msg("worker %d ended with status 0x%x", (int)w->pid, status);
        forget(w);
}

void worker_stop(struct worker *w)
{
        assert_int_equal(write(w->in, "exit\n", 5), 5);
        worker_wait(w);
}

void harness_stop_workers(struct harness *h)
{
        for (unsigned i = 0; i < HARNESS_MAX_WORKERS; ++i)
                if (h->workers[i].pid)
                        worker_stop(&h->workers[i]);
}

void worker_wait_killed(struct worker *w)
{
        int status = -1;

        assert_int_equal(proc_wait(w->pid, ANSWER_TIMEOUT_MSEC, &status), 0);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
                fail_msg("worker %d ended with status 0x%x", (int)w->pid, status);
        forget(w);
}

bool worker_is_running(const struct worker *w)
{
        siginfo_t info = {0};

        assert_int_equal(waitid(P_PID, (id_t)w->pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
        return info.si_pid == 0;
}

void worker_kill(struct worker *w)
{
        kill(w->pid, SIGKILL);
        waitpid(w->pid, NULL, 0);
        forget(w);
}

struct worker *worker_start_job(
        struct harness *h, const char *what, const char *tenant, struct worker_job job)
{
        return worker_start_job_as(h, program_worker(), NULL, what, tenant, job);
}

struct worker *worker_start_job_as(struct harness *h, const char *program, const char *const *env,
        const char *what, const char *tenant, struct worker_job job)
{
        char socket[PRIVATE_PATH_MAX], numbers[4][32];
        const char *argv[] = {program, what, private_daemon_socket(&h->daemon, tenant, socket),
                numbers[0], numbers[1], numbers[2], numbers[3], NULL};
        const char *wrapped[PROGRAM_ARGS_MAX];
        struct worker *w = find_place(h);

        snprintf(numbers[0], 32, "%llu", (unsigned long long)job.seed);
        snprintf(numbers[1], 32, "%llu", (unsigned long long)job.count);
        snprintf(numbers[2], 32, "%u", job.n_planes);
        snprintf(numbers[3], 32, "%u", job.n_chains);
        program_wrap(argv, wrapped);
        w->pid = proc_spawn(wrapped, env, (struct proc_files){-1, -1, -1});
        assert_true(w->pid > 0);
        return w;
}

struct worker *worker_start_load(
        struct harness *h, const char *tenant, uint64_t seed, uint64_t n_ops, unsigned n_planes)
{
        return worker_start_job(h, "load", tenant,
                (struct worker_job){.seed = seed,
                        .count = n_ops,
                        .n_planes = n_planes,
                        .n_chains = WORKER_LOAD_CHAINS});
}
