/* The daemon is stopped (SIGSTOP). Calls that need no answer work; those that need one are done
 * when it continues. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

#define N        4    /* pages of a text */
#define N_HITS   3000 /* more than a ring has entries for */
#define SHORT_MS 5000 /* far below the library's timeout of 30 s */

static void stop(struct harness *h)
{
        assert_int_equal(kill(h->daemon.pid, SIGSTOP), 0);
}

static void go_on(struct harness *h)
{
        assert_int_equal(kill(h->daemon.pid, SIGCONT), 0);
}

/* Sends a line that must be answered at once. */
#define TELL_SOON(w, ...)                                  \
        do {                                               \
                worker_say(w, __VA_ARGS__);                \
                assert_true(worker_answers(w, SHORT_MS));  \
                if ((w)->code)                             \
                        fail_msg("worker: %s", (w)->line); \
        } while (0)

static void hit(struct worker *w, unsigned chain, unsigned n_times)
{
        uint32_t found[N];

        TELL_SOON(w, "lookup %u:0-%u", chain, N - 1);
        assert_int_equal(worker_numbers(w, found, N), N);
        for (unsigned i = 0; i < N; ++i)
                TELL_SOON(w, "verify %u %u", found[i], 1000 * chain + i);
        TELL_SOON(w, "release %u %u %u %u", found[0], found[1], found[2], found[3]);
        TELL_SOON(w, "hits %u %u:0-%u", n_times, chain, N - 1);
        assert_int_equal(atoi(w->rest), n_times);
}

/* Leases one page from a magazine that isn't empty. */
static uint32_t lease(struct worker *w)
{
        uint32_t page;

        TELL_SOON(w, "lease 1");
        assert_int_equal(worker_numbers(w, &page, 1), 1);
        return page;
}

/* Fills its magazine with the pages that the test needs. */
static void fill_magazine(struct harness *h, struct worker *w)
{
        for (unsigned i = 0; i < 100 && ctl_status(h, "pages_ready") < N; ++i) {
                uint32_t page = lease(w);

                worker_tell(w, "free %u", page);
        }
        assert_true(ctl_status(h, "pages_ready") >= N);
}

HARNESS_TEST(test_stopped, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b;
        uint32_t pages[N], own[2];

        worker_publish_chain(a, 1, N, pages);
        worker_tell(a, "release %u %u %u %u", pages[0], pages[1], pages[2], pages[3]);
        fill_magazine(h, a);
        b = worker_start(h, "a", "ns", 1);
        hit(b, 1, 1);
        stop(h);
        hit(a, 1, N_HITS);
        hit(b, 1, N_HITS);
        assert_int_equal(worker_ask(b, "lookup 2:0"), 1); /* KVL_MISS */
        for (unsigned i = 0; i < 2; ++i) {
                own[i] = lease(a);
                TELL_SOON(a, "fill %u %u", own[i], 2000 + i);
        }
        TELL_SOON(a, "publish-start 2:0-1 - %u %u", own[0], own[1]);
        hit(a, 1, 1);
        assert_int_equal(worker_ask(a, "publish-poll"), -EAGAIN);
        assert_int_equal(worker_ask(b, "lookup 2:0"), 1);
        go_on(h);
        worker_tell(a, "publish-wait");
        assert_int_equal(worker_numbers(a, pages, 2), 2);
        assert_memory_equal(pages, own, sizeof(own));
        worker_tell(b, "lookup 2:0-1");
        assert_int_equal(worker_numbers(b, pages, 2), 2);
        for (unsigned i = 0; i < 2; ++i)
                worker_tell(b, "verify %u %u", pages[i], 2000 + i);
        /* Rings were full of entries that may be lost. */
        assert_true(ctl_status(h, "touches_dropped") > 0);
}

/* A worker dies, and another one says goodbye, while the daemon is stopped. */
HARNESS_TEST(test_death_meanwhile, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "a", "ns", 1);
        uint32_t pages[N];

        worker_publish_chain(a, 1, N, pages);
        fill_magazine(h, a);
        hit(b, 1, 1); /* to map memory takes the daemon */
        stop(h);
        hit(b, 1, 10);
        lease(a);
        worker_tell(b, "lookup 1:0-3");
        worker_kill(a);
        go_on(h);
        ctl_wait_status(h, "n_clients", 1);
        assert_int_equal(ctl_status(h, "pages_granted"), 0);
        assert_int_equal(ctl_status(h, "pages_pinned"), N);
        hit(b, 1, 10);
}

/* A verb of kvleasectl reports on stderr that no answer comes, and which process must continue.
 * Then it ends and prints as usual. */
static void check_says(struct harness *h, const char *const *words, const char *shows)
{
        const char *argv[8] = {program_ctl(), "--socket", h->daemon.admin};
        char said[1024] = "", pid[64], out[1 << 16] = "";
        int files[2][2], status;
        size_t len = 0;
        pid_t child;

        for (unsigned i = 0; words[i]; i++)
                argv[3 + i] = words[i];
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(pipe2(files[i], O_CLOEXEC), 0);
        stop(h);
        child = proc_spawn(argv, NULL, (struct proc_files){-1, files[0][1], files[1][1]});
        assert_true(child > 0);
        for (unsigned i = 0; i < 2; i++)
                close(files[i][1]);
        while (!strchr(said, '\n')) {
                ssize_t n = read(files[1][0], said + len, sizeof(said) - 1 - len);

                assert_true(n > 0);
                len += (size_t)n;
        }
        go_on(h);
        snprintf(pid, sizeof(pid), "kvleased (pid %d) hasn't answered on ", (int)h->daemon.pid);
        assert_non_null(strstr(said, " hasn't answered on "));
        assert_non_null(strstr(said, h->daemon.admin));
        if (!private_under_valgrind()) { /* where its process isn't called kvleased */
                assert_non_null(strstr(said, pid));
                assert_non_null(strstr(said, "it is stopped: kill -CONT "));
        }
        len = 0;
        for (ssize_t n = 1; n > 0; len += (size_t)n)
                assert_true((n = read(files[0][0], out + len, sizeof(out) - 1 - len)) >= 0);
        assert_non_null(strstr(out, shows));
        assert_null(strstr(out, "answered"));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) >= 7));
        for (unsigned i = 0; i < 2; i++)
                close(files[i][0]);
}

HARNESS_TEST(test_asked_meanwhile, NULL)
{
        static const char *const verbs[][3] = {{"status", "--json"}, {"doctor", "--all"},
                {"version"}, {"events"}, {"tenants", "list", "--json"}};
        static const char *const shows[] = {
                "\"well\":", "kvleased", "kvleased ", "daemon", "\"tenants\""};

        for (unsigned i = 0; i < ARRAY_SIZE(verbs); i++) {
                const char *words[] = {verbs[i][0], verbs[i][1], verbs[i][2], NULL};

                check_says(h, words, shows[i]);
        }
}
