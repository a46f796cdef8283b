/*
 * Single calls of libc fail (inject.h) in a kvleased under `--keep`, or in its keeper. They fail
 * while something new is stored, and while the next daemon recovers. A daemon serves afterwards,
 * restarted if needed. Everything answered before is there, or the log says what isn't and its
 * clients learn that they are lost.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/fault/inject-plan.h"
#include "tests/integration/harness.h"

static const struct private_options kept = {.daemon_lines = "log_level = info\n", .is_kept = true};

struct scene {
        struct harness *h;
        struct worker *w; /* holds a text's pages, and has a session */
        uint32_t pages[3];
        unsigned n_lost; /* times */
        size_t log_offset;
};

/* ---- a daemon that comes and goes ------------------------------------------------------------ */

/* Reads the keeper's messages to its manager, so that it doesn't block. */
static void hear_keeper(struct harness *h)
{
        char text[512];

        while (recv(h->daemon.notify_fd, text, sizeof(text), MSG_DONTWAIT) > 0)
                ;
}

/* Pid of the daemon that answers. The reply may be the call that fails, so it asks again. */
static uint64_t pid_of_daemon(struct harness *h)
{
        uint64_t end = now_nsec() + WAIT_MSEC * UINT64_C(1000000), pid = 0;
        int status;

        while (pid == 0 && now_nsec() < end) {
                struct proc_output o;

                hear_keeper(h);
                if (ctl_run(h, "--json status", &o) == 0) {
                        json_t *reply = json_loads(o.out, 0, NULL);

                        assert_non_null(reply);
                        pid = (uint64_t)json_integer_value(json_object_get(reply, "pid"));
                        json_decref(reply);
                }
                proc_output_free(&o);
                if (pid == 0 && waitpid(h->daemon.pid, &status, WNOHANG) == h->daemon.pid) {
                        h->daemon.pid = 0;
                        fail_msg("the keeper ended with status 0x%x", status);
                }
        }
        if (pid == 0)
                fail_msg("no daemon serves:\n%s", log_from(h, 0));
        return pid;
}

/* The daemon dies, and the keeper's next one serves. */
static void take_over(struct scene *s, uint64_t pid)
{
        uint64_t next = pid;

        assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
        while (next == pid)
                next = pid_of_daemon(s->h);
        /* Not the child of a keeper of its own, which it would start if it weren't told of this
         * one. */
        assert_int_equal(proc_status_value((pid_t)next, "PPid"), s->h->daemon.pid);
}

/* ---- a client ------------------------------------------------------------------------------- */

static void begin_client(struct scene *s)
{
        s->w = worker_start(s->h, "a", "ns", 1);
        worker_publish_chain(s->w, 7, 3, s->pages);
        worker_tell(s->w, "session-open chat");
}

static bool says(const struct scene *s, const char *const *words, size_t n)
{
        char *log = log_from(s->h, s->log_offset);
        bool found = false;

        for (size_t i = 0; i < n; i++)
                found |= strstr(log, words[i]) != NULL;
        free(log);
        return found;
}

/* Does the log report that stored state was lost? */
static bool says_loss(const struct scene *s)
{
        static const char *const words[] = {
                " is gone: ", " are gone: ", "starts empty", "may lose what they do", "were kept"};

        return says(s, words, ARRAY_SIZE(words));
}

/* Is the client's state complete? False: the daemon or the client learnt that it isn't. */
static bool has_all(struct scene *s)
{
        uint32_t found[3];

        if (worker_ask(s->w, "session-open more") != 0 ||
                worker_ask(s->w, "session-close drop") != 0)
                return false;
        for (unsigned i = 0; i < 3; i++)
                worker_tell(s->w, "verify %u %u", s->pages[i], 7000 + i);
        if (worker_ask(s->w, "lookup 7:0-2") != 0 || worker_numbers(s->w, found, 3) != 3)
                return false;
        assert_memory_equal(found, s->pages, sizeof(found));
        worker_tell(s->w, "release %u %u %u", found[0], found[1], found[2]);
        return true;
}

/* The client continues; or its loss was logged, and another one begins. */
static void check_client(struct scene *s, const char *what)
{
        if (has_all(s)) {
                ctl(s->h, "check");
                return;
        }
        if (!says_loss(s))
                fail_msg("%s: %s:\n%s", what, s->w->line, log_from(s->h, s->log_offset));
        print_message("%s: lost, and said: %s\n", what, s->w->line);
        s->n_lost++;
        worker_kill(s->w);
        ctl_wait_status(s->h, "n_clients", 0);
        ctl(s->h, "check");
        ctl(s->h, "purge a");
        begin_client(s);
}

/* ---- taking over ---------------------------------------------------------------------------- */

static void start(struct scene *s, struct harness *h)
{
        *s = (struct scene){.h = h};
        private_daemon_stop(&s->h->daemon, &(int){0});
        s->h->daemon.env = daemon_env;
        harness_start(s->h);
        begin_client(s);
        /* Makes what is made once. */
        take_over(s, pid_of_daemon(s->h));
        assert_true(has_all(s));
}

static void end(struct scene *s)
{
        worker_stop(s->w);
        ctl(s->h, "sessions purge a");
        s->h->violations = ctl_status(s->h, "violations");
        if (s->n_lost > 0)
                print_message("%u times something was lost, and said to be\n", s->n_lost);
}

HARNESS_TEST(test_taking_over, &kept)
{
        struct counts before;
        struct scene s;
        struct plan p;

        start(&s, h);
        before = counts_now();
        take_over(&s, pid_of_daemon(s.h));
        assert_true(has_all(&s));
        p = plan_new(counts_since(&before), private_full() ? 900 : 8);
        for (; plan_next(&p); p.f++) {
                uint64_t pid = pid_of_daemon(s.h);
                char what[64];

                snprintf(what, sizeof(what), "%s:%llu", functions[p.f].name,
                        (unsigned long long)p.k);
                print_message("%s\n", what);
                s.log_offset = log_length(s.h);
                arm(p.f, p.k);
                take_over(&s, pid);
                arm(p.f, 0);
                check_client(&s, what);
        }
        plan_done(&p, "taking over");
        end(&s);
}

/* ---- keeping -------------------------------------------------------------------------------- */

static unsigned chain = 100; /* of the run: each publishes a text of its own */

/* Stores something new of each kind. Returns true if the publish was acknowledged. */
static bool keep_more(struct scene *s, struct worker *w)
{
        char socket[PRIVATE_PATH_MAX];
        uint32_t page;

        chain++;
        if (worker_ask(w, "connect %s", private_daemon_socket(&s->h->daemon, "a", socket)) != 0 ||
                worker_ask(w, "open n%u 1", chain) != 0 || worker_ask(w, "lease 1") != 0 ||
                worker_numbers(w, &page, 1) != 1)
                return false;
        return worker_ask(w, "fill %u %u", page, chain) == 0 &&
               worker_ask(w, "publish %u:0 - %u", chain, page) == 0;
}

/* The daemon dies then: all that was answered is there. */
static void try_keeping(struct scene *s, unsigned f, uint64_t k)
{
        static const char *const env[] = {"KVL_WORKER_TIMEOUT_MSEC=5000", NULL};
        struct worker *w = worker_spawn_with(s->h, program_worker(), env);
        struct proc_output o;
        char what[64];
        bool done;

        snprintf(what, sizeof(what), "%s:%llu", functions[f].name, (unsigned long long)k);
        print_message("%s\n", what);
        s->log_offset = log_length(s->h);
        arm(f, k);
        done = keep_more(s, w);
        arm(f, 0);
        take_over(s, pid_of_daemon(s->h));
        if (done && worker_ask(w, "lookup %u:0", chain) != 0 && !says_loss(s))
                fail_msg("%s: what was answered is lost (%s):\n%s", what, w->line,
                        log_from(s->h, s->log_offset));
        worker_kill(w);
        ctl_wait_status(s->h, "n_clients", 1);
        check_client(s, what);
        snprintf(what, sizeof(what), "purge a n%u --remove", chain);
        (void)ctl_run(s->h, what, &o); /* it may never have been made */
        proc_output_free(&o);
}

HARNESS_TEST(test_keeping, &kept)
{
        struct counts before;
        struct worker *w;
        struct scene s;
        struct plan p;

        start(&s, h);
        for (unsigned i = 0; i < 2; i++) {
                w = worker_spawn(s.h);
                before = counts_now();
                if (!keep_more(&s, w))
                        fail_msg("%s", w->line);
                p = plan_new(counts_since(&before), private_full() ? 900 : 8);
                worker_stop(w);
        }
        for (; plan_next(&p); p.f++)
                try_keeping(&s, p.f, p.k);
        plan_done(&p, "keeping");
        end(&s);
}

int main(void)
{
        return test_run_all(open_shared, close_shared);
}
