/*
 * Workers die while they resume with the next daemon, at each point of
 * client/lib/connection/resume.c. That daemon continues, and so do its successor and the other
 * workers. Nothing of the dead worker is left, in the daemon or in the descriptor store.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "library-fault-points.h"
#include "tests/integration/harness.h"

#define N_CACHED 4 /* pages of text 1, which every worker has pinned */

static const struct private_options kept = {.is_kept = true};

#define X(name) name,
static const char *const points[] = {FAULT_POINTS(X)};
#undef X

static bool is_of_resuming(const char *point)
{
        return strncmp(point, "resume-", strlen("resume-")) == 0;
}

/* The keeper starts another one. */
static void kill_daemon(struct harness *h)
{
        kill((pid_t)ctl_status(h, "pid"), SIGKILL);
        assert_int_equal(private_daemon_await(&h->daemon), 0);
}

/* Starts a worker with pins, a lease and a session: all that a daemon must learn of, or free. */
static struct worker *start_victim(struct harness *h)
{
        struct worker *w = worker_spawn_as(h, program_worker_fault());

        worker_attach(w, "a", "ns", 1);
        worker_tell(w, "lookup 1:0-%d", N_CACHED - 1);
        worker_tell(w, "lease 3");
        worker_tell(w, "session-open talk");
        return w;
}

/* The victim sends a request, and so connects again. The request is sent after it has resumed. */
static void die_at(struct harness *h, struct worker *victim, const char *point)
{
        worker_tell(victim, "arm %s 1", point);
        kill_daemon(h);
        worker_say(victim, "session-open other");
        if (worker_answers(victim, 60000))
                fail_msg("%s was survived: %s", point, victim->line);
        worker_wait_killed(victim);
}

/* Only this worker is left, with its pinned pages and nothing else. */
static void assert_goes_on(struct harness *h, struct worker *w, const uint32_t pages[N_CACHED])
{
        uint32_t found[N_CACHED];

        ctl_wait_status(h, "n_clients", 1);
        ctl_wait_status(h, "pages_granted", 0);
        for (unsigned i = 0; i < N_CACHED; ++i)
                worker_tell(w, "verify %u %u", pages[i], 1000 + i);
        worker_tell(w, "lookup 1:0-%d", N_CACHED - 1);
        assert_int_equal(worker_numbers(w, found, N_CACHED), N_CACHED);
        assert_memory_equal(found, pages, sizeof(found));
        worker_tell(w, "release %u %u %u %u", found[0], found[1], found[2], found[3]);
        worker_tell(w, "lease 2");
        assert_int_equal(worker_numbers(w, found, 2), 2);
        worker_tell(w, "free %u %u", found[0], found[1]);
        ctl_wait_status(h, "pages_pinned", N_CACHED);
        ctl(h, "check");
}

/* Nothing is held or cached then. The keeper soon drops descriptors that aren't needed. */
static void empty(struct harness *h)
{
        harness_assert_settled(h);
        ctl(h, "sessions purge a");
        ctl(h, "purge a --remove");
        ctl_wait_status(h, "charged_bytes", 0);
}

static void run_death(struct harness *h, const char *point)
{
        uint32_t pages[N_CACHED];
        struct worker *mate = worker_start(h, "a", "ns", 1), *victim;

        worker_publish_chain(mate, 1, N_CACHED, pages);
        victim = start_victim(h);
        die_at(h, victim, point);
        assert_goes_on(h, mate, pages);
        kill_daemon(h);
        assert_goes_on(h, mate, pages);
        worker_stop(mate);
}

HARNESS_TEST(test_deaths, &kept)
{
        uint64_t n_kept;
        unsigned n = 0;

        empty(h);
        n_kept = ctl_status(h, "kept_fds");

        for (size_t i = 0; i < ARRAY_SIZE(points); ++i) {
                if (!is_of_resuming(points[i]))
                        continue;
                print_message("%s\n", points[i]);
                run_death(h, points[i]);
                empty(h);
                ctl_wait_status(h, "kept_fds", n_kept);
                n++;
        }
        assert_true(n > 0);
}
