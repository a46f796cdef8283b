/*
 * Clients that die in the middle of every operation in shared memory, at the points of
 * base/fault-point.h. Their pages are free at once; pages that others find are right. (Points of
 * resuming with the next daemon: test_resume_kill.c.)
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "library-fault-points.h"
#include "tests/integration/harness.h"

#define N_CACHED 8 /* pages of text 1, published before */
#define N_LEASED 6 /* pages the victim has leased and filled */
#define N_OWN    4 /* of them it publishes as text 2 */
#define TRIES    5 /* not tuned */

/* Lines during which the victim dies. */
#define LOOKUP     "lookup 1:0-7"
#define RELEASE    "release %u %u %u %u"         /* the pages found */
#define PUBLISH    "publish 2:0-3 - %u %u %u %u" /* its own pages */
#define DUPLICATE  "publish 1:0-3 - %u %u %u %u"
#define CONTINUE   "publish 3:0-3 1:3 %u %u %u %u"
#define FREE_PAGES "free %u %u %u %u"
#define LEASE      "lease 3"

struct death {
        const char *point, *line;
        /*
         * Passes of the point in one line; 0: unknown, the line is repeated until the victim dies.
         */
        unsigned n_passes;
};

static const struct death deaths[] = {
        {"lookup-pinned", LOOKUP, 8},
        {"lookup-checked", LOOKUP, 8},
        {"submit-stored", LOOKUP, 1}, /* TOUCH */
        {"submit-tail", LOOKUP, 1},
        {"release-half", RELEASE, 4},
        {"publish-pinned", PUBLISH, 4},
        {"submit-stored", PUBLISH, 1},
        {"submit-tail", PUBLISH, 1},
        {"submit-rung", PUBLISH, 1},
        {"completion-read", PUBLISH, 4},
        {"completion-done", PUBLISH, 1},
        {"publish-pinned", DUPLICATE, 4},
        {"submit-tail", DUPLICATE, 1},
        {"completion-read", DUPLICATE, 4},
        {"completion-done", DUPLICATE, 1},
        {"submit-stored", CONTINUE, 1},
        {"submit-tail", CONTINUE, 1},
        {"completion-read", CONTINUE, 4},
        {"submit-stored", FREE_PAGES, 1},
        {"submit-tail", FREE_PAGES, 1},
        {"completion-read", FREE_PAGES, 1},
        {"lease-claimed", LEASE, 3},
        {"refill-asked", LEASE, 0},
        {"submit-stored", LEASE, 0}, /* REFILL */
        {"submit-tail", LEASE, 0},
};

#define X(name) name,
static const char *const points[] = {FAULT_POINTS(X)};
#undef X

struct victim {
        struct worker *worker;
        uint32_t found[N_CACHED], own[N_LEASED];
};

static void cache_text(struct harness *h)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[N_CACHED];

        worker_publish_chain(w, 1, N_CACHED, pages);
        worker_stop(w);
}

static void start_victim(struct victim *v, struct harness *h)
{
        struct worker *w = worker_spawn_as(h, program_worker_fault());

        v->worker = w;
        worker_attach(w, "a", "ns", 1);
        worker_tell(w, LOOKUP);
        assert_int_equal(worker_numbers(w, v->found, N_CACHED), N_CACHED);
        worker_tell(w, "lease %u", N_LEASED);
        worker_numbers(w, v->own, N_LEASED);
        for (unsigned i = 0; i < N_LEASED; ++i)
                worker_tell(w, "fill %u %u", v->own[i], 2000 + i);
}

/* Sends the line with the victim's pages in it. */
static void say(struct victim *v, const char *line)
{
        const uint32_t *p = strcmp(line, RELEASE) == 0 ? v->found : v->own;
        char text[256];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof(text), line, p[0], p[1], p[2], p[3]);
#pragma GCC diagnostic pop
        worker_say(v->worker, "%s", text);
}

/* Did it die at its point? */
static bool dies(struct victim *v, const struct death *d, unsigned pass)
{
        /* A page that the magazine lacks comes over the socket, so the line is repeated. */
        unsigned n_lines = d->n_passes && strcmp(d->line, LEASE) != 0 ? 1 : 400;

        worker_tell(v->worker, "arm %s %u", d->point, pass);
        for (unsigned i = 0; i < n_lines; ++i) {
                say(v, d->line);
                if (!worker_answers(v->worker, 60000))
                        return true;
                if (v->worker->code < 0)
                        return false;
        }
        return false;
}

/* Pages that the dead worker held are free; pages that it had published are right. */
static void assert_recovered(struct harness *h)
{
        struct worker *w;
        uint32_t found[N_CACHED];
        unsigned n;

        ctl_wait_status(h, "n_clients", 0);
        assert_int_equal(ctl_status(h, "pages_granted"), 0);
        assert_int_equal(ctl_status(h, "pages_pinned"), 0);
        assert_int_equal(ctl_status(h, "pages_detached"), 0);
        assert_int_equal(ctl_status(h, "pages_ready"), 0);
        ctl(h, "check");
        w = worker_start(h, "a", "ns", 1);
        worker_tell(w, LOOKUP);
        assert_int_equal(worker_numbers(w, found, N_CACHED), N_CACHED);
        for (unsigned i = 0; i < N_CACHED; ++i)
                worker_tell(w, "verify %u %u", found[i], 1000 + i);
        for (unsigned chain = 2; chain <= 3; ++chain) {
                if (worker_ask(w, "lookup %u:0-3", chain) != 0)
                        continue;
                n = worker_numbers(w, found, N_OWN);
                for (unsigned i = 0; i < n; ++i)
                        worker_tell(w, "verify %u %u", found[i], 2000 + i);
        }
        worker_stop(w);
}

/* A daemon that reads its rings just then needs no doorbell: the next victim may ring it. */
static bool kill_victim(struct harness *h, const struct death *d, unsigned pass)
{
        struct victim v;

        for (unsigned i = 0; i < TRIES; i++) {
                start_victim(&v, h);
                if (dies(&v, d, pass)) {
                        worker_wait_killed(v.worker);
                        return true;
                }
                print_message("survived: %s\n", v.worker->line);
                worker_stop(v.worker);
        }
        return false;
}

static void run_death(struct harness *h, const struct death *d)
{
        unsigned n_passes = d->n_passes ? d->n_passes : private_full() ? 4 : 1;
        /* The first pass, the last, and in the full run those between. */
        unsigned step = private_full() || n_passes == 1 ? 1 : n_passes - 1;

        for (unsigned pass = 1; pass <= n_passes; pass += step) {
                if (!kill_victim(h, d, pass))
                        fail_msg("%s: \"%s\" was survived at pass %u", d->point, d->line, pass);
                assert_recovered(h);
                ctl(h, "purge a ns");
                cache_text(h);
        }
}

HARNESS_TEST(test_deaths, NULL)
{
        cache_text(h);
        for (unsigned i = 0; i < ARRAY_SIZE(deaths); ++i) {
                print_message("%s: %s\n", deaths[i].point, deaths[i].line);
                run_death(h, &deaths[i]);
        }
}

static bool is_tried(const char *point)
{
        for (size_t i = 0; i < ARRAY_SIZE(deaths); ++i)
                if (strcmp(deaths[i].point, point) == 0)
                        return true;
        return strncmp(point, "resume-", strlen("resume-")) == 0;
}

/* A new point needs a line that passes it. */
TEST_BARE(test_no_point_is_forgotten)
{
        for (size_t i = 0; i < ARRAY_SIZE(points); ++i)
                if (!is_tried(points[i]))
                        fail_msg("no line passes the fault point %s", points[i]);
}
