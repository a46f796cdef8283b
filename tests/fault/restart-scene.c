/*
 * The scene in which kvleased is killed and started again (restart-scene.h).
 */
#include "tests/fault/restart-scene.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/integration/pattern.h"

#define N_TEXTS   60     /* that each witness keeps: 390 pages */
#define WAIT_MSEC 300000 /* for anything, a disk that others write to included; not tuned */

static struct witness *make_witness(const char *path)
{
        _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        void *at;

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, sizeof(struct witness)), 0);
        at = mmap(NULL, sizeof(struct witness), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(at != MAP_FAILED);
        return at;
}

/*
 * The load gives back recalled memory. A worker that kept it would leave its tenant without memory.
 */
static struct worker *start_load(struct harness *h, uint64_t seed)
{
        return worker_start_job(h, "serve", "busy",
                (struct worker_job){.seed = seed, .n_planes = 1, .n_chains = WORKER_LOAD_CHAINS});
}

static void start_witness(struct scene *s, unsigned i)
{
        char file[PRIVATE_PATH_MAX + 16], env[PRIVATE_PATH_MAX + 32];
        const char *const more[] = {env, NULL};
        struct worker_job job = {.seed = 1 + i, .count = N_TEXTS, .n_planes = 1, .n_chains = 1};

        snprintf(file, sizeof(file), "%s/witness-%u", s->h->daemon.dir, i);
        snprintf(env, sizeof(env), "KVL_WITNESS=%s", file);
        s->witnesses[i] = make_witness(file);
        s->workers[i] = worker_start_job_as(s->h, program_worker(), more, "witness", "calm", job);
}

/* Waits until each witness has published more, without a loss. */
void scene_await_progress(struct scene *s)
{
        for (unsigned i = 0; i < N_WITNESSES; ++i) {
                struct witness *w = s->witnesses[i];
                uint64_t before = atomic_load(&w->n_acked),
                         end = now_nsec() + WAIT_MSEC * UINT64_C(1000000);

                while (atomic_load(&w->n_acked) < before + 2) {
                        assert_true(worker_is_running(s->workers[i]));
                        assert_true(now_nsec() < end);
                        sleep_msec(1);
                }
                assert_int_equal(atomic_load(&w->n_lost), 0);
                assert_int_equal(atomic_load(&w->n_bad), 0);
        }
}

void scene_begin(struct scene *s, struct harness *h)
{
        *s = (struct scene){.h = h, .random = harness_seed()};
        for (unsigned i = 0; i < N_WITNESSES; ++i)
                start_witness(s, i);
        scene_await_progress(s);
        for (unsigned i = 0; i < N_LOADS; ++i)
                s->loads[i] = start_load(h, pattern_next(&s->random));
        s->stirrer = worker_start(h, "churn", "stir", 1); /* where there is room */
}

void scene_end(struct scene *s)
{
        uint64_t n_lookups = 0, n_texts = 0;

        if (s->h->daemon.has_faults)
                private_daemon_disarm(&s->h->daemon);
        worker_stop(s->stirrer);
        ctl(s->h, "sessions purge churn"); /* windows are kept */
        for (unsigned i = 0; i < N_LOADS; ++i) {
                assert_true(worker_is_running(s->loads[i]));
                worker_kill(s->loads[i]);
        }
        for (unsigned i = 0; i < N_WITNESSES; ++i)
                atomic_store(&s->witnesses[i]->stop, 1);
        for (unsigned i = 0; i < N_WITNESSES; ++i) {
                worker_wait(s->workers[i]);
                n_texts += atomic_load(&s->witnesses[i]->n_acked);
                n_lookups += atomic_load(&s->witnesses[i]->n_lookups);
                munmap(s->witnesses[i], sizeof(struct witness));
        }
        print_message("%llu texts acknowledged, %llu looked up, none lost\n",
                (unsigned long long)n_texts, (unsigned long long)n_lookups);
        harness_assert_settled(s->h);
}

/* The daemon is dead, or about to be: waits for the next one. */
void scene_recover(struct scene *s)
{
        int r = private_daemon_await(&s->h->daemon);

        if (r < 0)
                private_daemon_show_log(&s->h->daemon);
        assert_int_equal(r, 0);
        ctl(s->h, "check");
        scene_await_progress(s);
}

/* ---- what makes the daemon pass them -------------------------------------------------------- */

/* Sends a line and ignores its answer: the daemon may die meanwhile. */
static void stir(struct scene *s, const char *line)
{
        worker_ask(s->stirrer, "%s", line);
}

/* A conversation: opened, continued, truncated, continued behind that, closed. */
static void talk(struct scene *s, unsigned n)
{
        unsigned chain = 1000 + n;

        worker_ask(s->stirrer, "session-open talk-%u", n % 8);
        worker_ask(s->stirrer, "session-talk %u 0 5", chain);
        stir(s, "session-hint continues 1");
        stir(s, "session-truncate 16 32");
        worker_ask(s->stirrer, "session-talk %u 6 7", chain);
        stir(s, "session-keep 0-16 64-80 112-end");
        stir(s, n % 3 == 0 ? "session-close drop" : "session-close");
}

/* Two workers announce to each other; one ends in the middle of it. */
static void announce(struct scene *s, unsigned n)
{
        uint32_t pages[4];

        if (worker_ask(s->stirrer, "lease 4") != 0 || worker_numbers(s->stirrer, pages, 4) != 4)
                return;
        worker_ask(s->stirrer, "announce 7000:0-3 %u %u %u %u", pages[0], pages[1], pages[2],
                pages[3]);
        worker_ask(s->stirrer, "free %u %u %u %u", pages[0], pages[1], pages[2], pages[3]);
}

/* Clients and namespaces start and end, regularly or not, with shared memory and without. The
 * weights get another version, pages a tag. */
static void churn(struct scene *s, unsigned n)
{
        static const char *const socket_only[] = {"KVLEASE_NO_SHM=1", NULL};
        struct worker *w =
                worker_spawn_with(s->h, program_worker(), n % 2 == 0 ? socket_only : NULL);
        char socket[PRIVATE_PATH_MAX];
        uint32_t pages[5];

        worker_ask(w, "connect %s", private_daemon_socket(&s->h->daemon, "churn", socket));
        worker_ask(w, "open churn-%u 2 v%u", n % 4, n / 8);
        if (worker_ask(w, "lease 5") == 0 && worker_numbers(w, pages, 5) == 5)
                worker_ask(w, "publish-with - %u 16 %u:0-1 - %u %u", 1 + n % 2, 8000 + n, pages[0],
                        pages[1]);
        worker_ask(w, "publish %u:0 - %u", 8000 + n, pages[2]); /* a duplicate */
        worker_ask(w, "free %u", pages[3]);
        if (worker_ask(w, "lookup %u:0-1", 8000 + n) == 0 && worker_numbers(w, pages, 2) == 2)
                worker_ask(w, "release %u %u", pages[0], pages[1]);
        worker_ask(w, "invalidate-tag %u", 1 + n % 3);
        if (n % 3 == 0)
                worker_kill(w);
        else
                worker_stop(w);
}

/* An administrator's request may end with "outcome unknown". */
static void administer(struct scene *s, unsigned n)
{
        static const char *const lines[] = {
                "tenants set busy limit=2MiB",
                "tenants set busy limit=8MiB",
                "purge churn stir",
                "recall churn --size 2MiB", /* the client has left: it is freed at once */
                "sessions purge churn",
                "purge churn --remove",
        };
        struct proc_output out = {0};

        ctl_run(s->h, lines[n % ARRAY_SIZE(lines)], &out);
        proc_output_free(&out);
}

void scene_stir(struct scene *s)
{
        static void (*const steps[])(struct scene * s, unsigned n) = {
                talk, churn, announce, administer};

        steps[s->n_stirred % ARRAY_SIZE(steps)](s, s->n_stirred / ARRAY_SIZE(steps));
        s->n_stirred++;
}

/* Kills the daemon itself, not its keeper. */
void scene_kill_daemon(struct scene *s)
{
        kill((pid_t)ctl_status(s->h, "pid"), SIGKILL);
}
