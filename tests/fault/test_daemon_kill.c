/*
 * kvleased is killed at every point where it stores to surviving state, and at random moments.
 * Eight workers meanwhile check every byte they read. Each acknowledged page is there afterwards,
 * with its bytes. Workers see only a pause in publishing, and `check` is clean. Short run: each
 * point once, 30 moments. Full run: each point at three passes, 500 moments. On a GPU: moments
 * only. All points left of a kind are aimed at together. The first one passed kills; the next
 * daemon recovers undisturbed; then the rest is aimed at again.
 */
#include <signal.h>
#include <string.h>

#include "base/macros.h"
#include "fault-points.h"
#include "tests/fault/restart-scene.h"
#include "tests/integration/pattern.h"
#include "tests/unit/killed-elsewhere.h"

static const struct private_options options = {
        .tenants = scene_tenants,
        .device_lines = "memory = 320MiB\nextent = 2MiB\nhost_memory = 2MiB\n",
        .disk_size = "128MiB",
        .is_kept = true,
        .has_faults = true,
};

#define NAME(name) name,
static const char *const points[] = {FAULT_POINTS(NAME)};
/* Points that this load doesn't reach, or that are passed once in the life of the stored state. */
static const char *const elsewhere[] = {KILLED_BY_RECOVER(NAME) KILLED_BY_CANARY(NAME)
                KILLED_BY_CLIENT_RECOVER(NAME) KILLED_BY_MOVER(NAME) KILLED_BY_DISK(NAME)};
#undef NAME

/* After so many rounds in a row without a hit, the rest isn't passed. For each pass; not tuned. */
#define QUIET_ROUNDS 3

struct aims {
        const char *names[ARRAY_SIZE(points)];
        bool was_hit[ARRAY_SIZE(points)];
        size_t n, n_hit;
};

static bool is_in(const char *name, const char *const *names, size_t n)
{
        for (size_t i = 0; i < n; ++i)
                if (strcmp(name, names[i]) == 0)
                        return true;
        return false;
}

/* Points shared by compaction and tiers are tried in both. */
static bool is_passed(const char *name)
{
        return strncmp(name, "move-", 5) == 0 || !is_in(name, elsewhere, ARRAY_SIZE(elsewhere));
}

static void note_hit(struct scene *s, struct aims *a)
{
        for (size_t i = 0; i < a->n; ++i) {
                if (a->was_hit[i] || private_daemon_is_aimed_at(&s->h->daemon, i))
                        continue;
                print_message("%s\n", a->names[i]);
                a->was_hit[i] = true;
                a->n_hit++;
        }
}

/* ---- what makes it come by ------------------------------------------------------------------ */

/* All steps of the scene, once. */
static bool under_load(struct scene *s)
{
        struct private_daemon *d = &s->h->daemon;

        private_daemon_arm(d);
        for (unsigned i = 0; i < SCENE_STEPS && !private_daemon_has_died(d); ++i)
                scene_stir(s);
        if (private_daemon_disarm(d))
                return false;
        scene_recover(s);
        return true;
}

/* Arms the aims and kills the daemon, so that the next one starts with them. */
static void kill_armed(struct scene *s)
{
        pid_t pid = (pid_t)ctl_status(s->h, "pid");

        private_daemon_arm(&s->h->daemon);
        kill(pid, SIGKILL);
}

/* The next daemon is killed before it is READY. */
static bool at_start(struct scene *s)
{
        scene_stir(s); /* sessions, whose log is written anew then */
        kill_armed(s);
        scene_recover(s);
        return !private_daemon_disarm(&s->h->daemon);
}

/* The next daemon is killed after READY, when its clients resume. */
static bool at_return(struct scene *s)
{
        kill_armed(s);
        assert_int_equal(private_daemon_await(&s->h->daemon), 0);
        scene_await_progress(s);
        if (private_daemon_disarm(&s->h->daemon))
                return false;
        scene_recover(s);
        return true;
}

/* How to reach points, by their prefixes; the last row is for all others. */
static const struct kind {
        bool (*provoke)(struct scene *s); /* with the points aimed at; true: one was hit */
        const char *prefixes[8];
} kinds[] = {
        {at_start,
                {"restart-", "recover-", "ring-adopt-", "session-log-copied", "session-log-punch",
                        "session-log-before-flip", "session-log-after-flip"}},
        {at_return, {"token-"}},
        {under_load, {""}},
};

static const struct kind *kind_of(const char *name)
{
        for (size_t k = 0; k < ARRAY_SIZE(kinds); ++k)
                for (const char *const *p = kinds[k].prefixes; *p; ++p)
                        if (strncmp(name, *p, strlen(*p)) == 0)
                                return &kinds[k];
        return NULL;
}

static void aim(struct scene *s, struct aims *a, const struct kind *kind, unsigned pass)
{
        *a = (struct aims){0};
        for (size_t i = 0; i < ARRAY_SIZE(points); ++i)
                if (is_passed(points[i]) && kind_of(points[i]) == kind)
                        a->names[a->n++] = points[i];
        private_daemon_aim(&s->h->daemon, a->names, a->n, pass);
}

/* Tries every point of a kind, each with a daemon of its own. */
static void kill_all(struct scene *s, const struct kind *kind, unsigned pass)
{
        unsigned n_quiet = 0;
        struct aims a;

        aim(s, &a, kind, pass);
        while (a.n_hit < a.n && n_quiet < QUIET_ROUNDS * pass) {
                n_quiet = kind->provoke(s) ? 0 : n_quiet + 1;
                note_hit(s, &a);
        }
        for (size_t i = 0; i < a.n; ++i)
                if (!a.was_hit[i])
                        print_error("%s isn't passed %u times\n", a.names[i], pass);
        assert_int_equal(a.n_hit, a.n);
}

HARNESS_TEST(test_points, &options)
{
        unsigned n_passes = private_full() ? 3 : 1;
        struct scene s;

        if (private_on_gpu()) {
                print_message("skipped: of what is stored, which is the same on the host\n");
                skip();
        }
        for (size_t i = 0; i < ARRAY_SIZE(elsewhere); ++i)
                assert_true(is_in(elsewhere[i], points, ARRAY_SIZE(points)));
        scene_begin(&s, h);
        for (unsigned pass = 1; pass <= n_passes; ++pass)
                for (size_t k = 0; k < ARRAY_SIZE(kinds); ++k)
                        kill_all(&s, &kinds[k], pass);
        scene_end(&s);
}

HARNESS_TEST(test_moments, &options)
{
        unsigned n = private_full() ? 500 : 30;
        struct scene s;

        scene_begin(&s, h);
        for (unsigned i = 0; i < n; ++i) {
                unsigned msec = (unsigned)(pattern_next(&s.random) % 50);

                if (i % 2 == 0)
                        scene_stir(&s);
                sleep_msec(msec);
                scene_kill_daemon(&s);
                scene_recover(&s);
        }
        scene_end(&s);
}
