/*
 * An hour (some seconds in the short run) under attack. Enemies (enemy.h) of two tenants and three
 * users connect, die at any moment and return. kvleased is killed and recovers meanwhile. The
 * workers of restart-scene.h check every byte and know the acknowledged pages. Their tenant's
 * memory is reserved, so none of it may be lost. Sanitizers must report nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "tests/fault/enemy.h"
#include "tests/fault/restart-scene.h"
#include "tests/integration/pattern.h"
#include "tests/unit/child.h"

#define N_ENEMIES 6 /* at a time: more of them would only wait for each other. Not tuned */
#define SHORT_SEC 20
#define FULL_SEC  3600
#define STEP_MSEC 20

static const struct private_tenant tenants[] = {
        {"calm", "limit = 160MiB\nclass = pinned\nreserve = 160MiB\n"},
        {"busy", "limit = 8MiB\n"},
        {"churn", "limit = 64MiB\n"},
        {"a", "limit = 256MiB\nmax_clients = 100\n" ENEMY_UIDS},
        {"mob", "limit = 32MiB\nmax_clients = 20\nmax_requests = 20000\n" ENEMY_UIDS},
        {NULL, NULL},
};
static const struct private_options options = {
        .tenants = tenants,
        .device_lines = "memory = 320MiB\nextent = 2MiB\nhost_memory = 32MiB\n",
        .is_kept = true,
};

struct attack {
        struct harness *h;
        struct scene scene;
        uint64_t random;
        pid_t enemies[N_ENEMIES];               /* 0: none */
        unsigned n_enemies, n_lives, n_stalled; /* of those whose turns are looked at */
        uint64_t longest_nsec, violations;
};

/* ---- enemies ---- */

static void start_enemy(struct attack *a, unsigned i)
{
        uint64_t seed = pattern_next(&a->random);

        fflush(NULL);
        a->enemies[i] = child_fork();
        assert_true(a->enemies[i] >= 0);
        if (a->enemies[i] == 0)
                enemy_run(a->h, seed);
        a->n_enemies++;
}

/* They may end at any time, but not by a fault of their own. */
static void reap_enemies(struct attack *a)
{
        for (unsigned i = 0; i < N_ENEMIES; ++i) {
                int status;

                if (!a->enemies[i] || waitpid(a->enemies[i], &status, WNOHANG) != a->enemies[i])
                        continue;
                a->enemies[i] = 0;
                assert_true(WIFEXITED(status));
                assert_int_equal(WEXITSTATUS(status), 0);
        }
}

static void kill_enemy(struct attack *a, unsigned i)
{
        if (!a->enemies[i])
                return;
        kill(a->enemies[i], SIGKILL);
        waitpid(a->enemies[i], NULL, 0);
        a->enemies[i] = 0;
}

/* Starts a new enemy for each that has ended; kills some in the middle. */
static void stir_enemies(struct attack *a)
{
        reap_enemies(a);
        if (pattern_next(&a->random) % 16 == 0)
                kill_enemy(a, (unsigned)(pattern_next(&a->random) % N_ENEMIES));
        for (unsigned i = 0; i < N_ENEMIES; ++i)
                if (!a->enemies[i])
                        start_enemy(a, i);
}

/* ---- lives of the daemon ---- */

/* Every other life has administrators, whose commands write files and walk all state. The loop is
 * slow then, which isn't the enemies' doing. */
static bool is_administered(const struct attack *a)
{
        return a->n_lives % 2 == 0;
}

/* Takes the daemon's figures before it dies. */
static void note(struct attack *a)
{
        uint64_t turn_nsec = ctl_status(a->h, "longest_turn_nsec");

        a->violations += ctl_status(a->h, "violations");
        if (!is_administered(a)) {
                a->longest_nsec = MAX(a->longest_nsec, turn_nsec);
                a->n_stalled += turn_nsec > HARNESS_TURN_MSEC * NSEC_PER_MSEC;
        }
        ctl(a->h, "check");
}

static void die(struct attack *a)
{
        int r;

        scene_kill_daemon(&a->scene);
        r = private_daemon_await(&a->h->daemon);
        if (r < 0)
                private_daemon_show_log(&a->h->daemon);
        assert_int_equal(r, 0);
        scene_await_progress(&a->scene);
}

static void live(struct attack *a, uint64_t until_nsec)
{
        for (unsigned n = 0; now_nsec() < until_nsec; ++n) {
                stir_enemies(a);
                if (n % 4 == 0 && is_administered(a))
                        scene_stir(&a->scene);
                sleep_msec(STEP_MSEC);
        }
        scene_await_progress(&a->scene);
        note(a);
}

/* Draws short and long lives, until the time is over. */
static uint64_t next_death(struct attack *a, uint64_t end_nsec)
{
        uint64_t longest_msec = private_full() && pattern_next(&a->random) % 4 == 0 ? 60000 : 4000;
        uint64_t msec = 50 + pattern_next(&a->random) % longest_msec;

        return MIN(now_nsec() + msec * NSEC_PER_MSEC, end_nsec);
}

/* ---- what the daemons' log says ---- */

/* Lines of the log with a word in them; `shows`: prints them. */
static unsigned count_lines(struct harness *h, const char *word, bool shows)
{
        size_t size = 0;
        char *line = NULL;
        unsigned n = 0;
        FILE *f = fopen(h->daemon.log, "re");

        assert_non_null(f);
        while (getline(&line, &size, f) >= 0) {
                if (!strstr(line, word))
                        continue;
                n++;
                if (shows)
                        print_error("%s", line);
        }
        free(line);
        fclose(f);
        return n;
}

static void assert_no_reports(struct attack *a)
{
        static const char *const words[] = {
                "AddressSanitizer", "LeakSanitizer", "runtime error:", "Assertion"};

        for (unsigned i = 0; i < ARRAY_SIZE(words); ++i)
                assert_int_equal(count_lines(a->h, words[i], true), 0);
        /* The daemon died only when it was killed here. */
        assert_int_equal(count_lines(a->h, "ready in", false), a->n_lives);
}

/* ---- the test ---- */

/* Enemies that slow the loop do so in each life. The loop may also sleep on a kernel lock whose
 * holder gets no processor. On an otherwise idle machine few lives have such a long iteration. */
static void assert_prompt(const struct attack *a)
{
        unsigned n_lives = (a->n_lives + 1) / 2;

        print_message("longest turn %llu us; beyond %d ms in %u of %u lives\n",
                (unsigned long long)(a->longest_nsec / NSEC_PER_USEC), HARNESS_TURN_MSEC,
                a->n_stalled, n_lives);
        if (private_measures_memory())
                assert_in_range(a->n_stalled, 0, n_lives / 2);
}

static void run(struct attack *a, uint64_t seconds)
{
        uint64_t end_nsec = now_nsec() + seconds * NSEC_PER_SEC;

        for (;;) {
                a->n_lives++;
                enemy_open_paths(a->h);
                live(a, next_death(a, end_nsec));
                assert_no_reports(a);
                if (now_nsec() >= end_nsec)
                        return;
                die(a);
        }
}

/* Clears the enemies' windows and cached pages. */
static void clear_away(struct attack *a)
{
        for (unsigned i = 0; i < N_ENEMIES; ++i)
                kill_enemy(a, i);
        ctl(a->h, "sessions purge a");
        ctl(a->h, "sessions purge mob");
        ctl(a->h, "purge a --remove");
        ctl(a->h, "purge mob --remove");
}

HARNESS_TEST(test_redteam, &options)
{
        struct attack a = {.h = h};
        unsigned seconds = private_full() ? FULL_SEC : SHORT_SEC;
        const char *other = getenv("KVL_REDTEAM_SEC");

        if (other)
                seconds = (unsigned)strtoul(other, NULL, 10);
        a.random = harness_seed();
        scene_begin(&a.scene, a.h);
        run(&a, seconds);
        clear_away(&a);
        scene_end(&a.scene);
        assert_no_reports(&a);
        a.h->violations = ctl_status(a.h, "violations");
        print_message("%u lives of the daemon, %u enemies, %llu violations\n", a.n_lives,
                a.n_enemies, (unsigned long long)a.violations);
        assert_true(a.violations > 0);
        assert_prompt(&a);
        /* Forgets the enemies: a rule that they broke at the end isn't the test's. */
        harness_assert_settled(a.h);
}
