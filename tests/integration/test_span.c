/*
 * A device that spans several. Each rank of an engine maps its planes, on its member alone, and
 * another engine's ranks find the written bytes there. This holds after a restart, and after pages
 * were demoted.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "gpu/device.h"
#include "tests/integration/gpu-support.h"
#include "tests/integration/harness.h"

#define MEMBERS_MAX 8
#define RANK_PLANES 2u /* of a rank */
#define N           3u /* pages of a text */
#define LINES       1024

static const char *const many_gpus[] = {"FAKECUDA_DEVICES=8", NULL};

/* The name of a member: a device of the host, or the simulated GPU of this number. */
static void member_name(unsigned i, char ret_name[DEVICE_NAME_MAX + 1])
{
        if (private_on_gpu())
                snprintf(ret_name, DEVICE_NAME_MAX + 1, "%.*s%u",
                        (int)strlen(PRIVATE_FAKE_UUID) - 1, PRIVATE_FAKE_UUID, i);
        else
                snprintf(ret_name, DEVICE_NAME_MAX + 1, "host-%u", i + 1);
}

/* The device "tp", which spans the members in this order, with more lines of its section. */
static struct private_options spanning(
        const unsigned *members, unsigned n, const char *more, char lines[LINES])
{
        size_t len = (size_t)snprintf(
                lines, LINES, "[device tp]\nmemory = 16MiB\nextent = 2MiB\n%s\nmembers = ", more);
        char name[DEVICE_NAME_MAX + 1];

        for (unsigned i = 0; i < n; ++i) {
                member_name(members[i], name);
                len += (size_t)snprintf(lines + len, LINES - len, "%s%s", i > 0 ? ", " : "", name);
        }
        snprintf(lines + len, LINES - len, "\n");
        return (struct private_options){.devices = "tp",
                .device_lines = lines,
                .env = many_gpus,
                .is_kept = true,
                .has_control = true};
}

static const unsigned in_order[MEMBERS_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};

/* The daemon that the test began with ends; one with these options begins. */
static void restart_with(struct harness *h, const struct private_options *o)
{
        assert_int_equal(private_daemon_configure(&h->daemon, o), 0);
        harness_restart(h);
}

/* SIGKILL; the keeper starts a daemon with these options. */
static void kill_with(struct harness *h, const struct private_options *next)
{
        assert_int_equal(private_daemon_configure(&h->daemon, next), 0);
        assert_int_equal(kill((pid_t)ctl_status(h, "pid"), SIGKILL), 0);
        assert_int_equal(private_daemon_await(&h->daemon), 0);
}

/* ---- an engine: a scheduler without memory, and a process for each rank --------------------- */

struct engine {
        unsigned n;
        struct worker *scheduler, *ranks[MEMBERS_MAX];
};

static struct worker *start(struct harness *h, const char *secret, const char *more,
        const char *planes, unsigned n_members, const char *visible)
{
        char socket[PRIVATE_PATH_MAX], variable[128];
        const char *const env[] = {many_gpus[0], visible ? variable : NULL, NULL};
        struct worker *w;

        snprintf(variable, sizeof(variable), "CUDA_VISIBLE_DEVICES=%s", visible ? visible : "");
        w = worker_spawn_with(h, program_worker(), env);
        worker_tell(w, "connect %s secret=%s-of-one-engine %s",
                private_daemon_socket(&h->daemon, "a", socket), secret, more);
        worker_tell(w, "open ns %u - - - - - - %s", n_members * RANK_PLANES, planes);
        return w;
}

/* A rank's process sees its own GPU alone. */
static struct engine start_engine(struct harness *h, const char *secret, unsigned n)
{
        struct engine e = {.n = n};
        char name[DEVICE_NAME_MAX + 1], planes[32];

        e.scheduler = start(h, secret, "metadata", "", n, NULL);
        for (unsigned i = 0; i < n; ++i) {
                member_name(i, name);
                snprintf(planes, sizeof(planes), "%u+%u", i * RANK_PLANES, RANK_PLANES);
                e.ranks[i] = start(h, secret, "", planes, n, private_on_gpu() ? name : NULL);
        }
        return e;
}

static void stop_engine(struct engine *e)
{
        for (unsigned i = 0; i < e->n; ++i)
                worker_stop(e->ranks[i]);
        worker_stop(e->scheduler);
}

/* A text, leased and published by the scheduler and written by all ranks. */
static void compute(struct engine *e, unsigned chain)
{
        uint32_t pages[N];

        worker_tell(e->scheduler, "lease %u", N);
        assert_int_equal(worker_numbers(e->scheduler, pages, N), N);
        for (unsigned k = 0; k < e->n; ++k) {
                worker_tell(e->ranks[k], "map %u %u %u", pages[0], pages[1], pages[2]);
                for (unsigned i = 0; i < N; ++i)
                        worker_tell(e->ranks[k], "fill %u %u", pages[i], 1000 * chain + i);
        }
        worker_tell(e->scheduler, "publish %u:0-%u - %u %u %u", chain, N - 1, pages[0], pages[1],
                pages[2]);
        for (unsigned i = 0; i < N; ++i)
                worker_tell(e->scheduler, "release %u", pages[i]);
}

/*
 * Every rank finds the bytes that this rank of the other engine wrote. *ret_page: one of the pages.
 */
static void assert_found(struct engine *e, unsigned chain, uint32_t *ret_page)
{
        uint32_t pages[N];

        worker_tell(e->scheduler, "lookup %u:0-%u", chain, N - 1);
        assert_int_equal(worker_numbers(e->scheduler, pages, N), N);
        for (unsigned k = 0; k < e->n; ++k) {
                worker_tell(e->ranks[k], "map %u %u %u", pages[0], pages[1], pages[2]);
                for (unsigned i = 0; i < N; ++i)
                        worker_tell(e->ranks[k], "verify %u %u", pages[i], 1000 * chain + i);
        }
        for (unsigned i = 0; i < N; ++i)
                worker_tell(e->scheduler, "release %u", pages[i]);
        *ret_page = pages[0];
}

/* One process that has all GPUs reads them all. */
static void assert_found_whole(struct harness *h, unsigned chain, unsigned n)
{
        struct worker *w = start(h, "another", "", "", n, NULL);
        uint32_t pages[N];

        worker_tell(w, "lookup %u:0-%u", chain, N - 1);
        assert_int_equal(worker_numbers(w, pages, N), N);
        for (unsigned i = 0; i < N; ++i)
                worker_tell(w, "verify %u %u", pages[i], 1000 * chain + i);
        worker_stop(w);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_ranks(void **state)
{
        static const unsigned counts[] = {2, 4, 8};
        struct harness *h = *state;
        char lines[LINES];

        gpu_needs_double();
        for (size_t i = 0; i < ARRAY_SIZE(counts); ++i) {
                const unsigned n = counts[i];
                const struct private_options o = spanning(in_order, n, "", lines);
                struct engine one, other;
                uint32_t page;
                char *members;

                restart_with(h, &o);
                one = start_engine(h, "one", n);
                compute(&one, 7);
                other = start_engine(h, "other", n);
                assert_found(&other, 7, &page);
                assert_found_whole(h, 7, n);
                /* The planes of its own member have addresses here, and no others. */
                worker_tell(other.ranks[1], "mapped %u %u", page, RANK_PLANES);
                assert_int_equal(atoi(other.ranks[1]->rest), 1);
                worker_tell(other.ranks[1], "mapped %u %u", page, 2 * RANK_PLANES - 1);
                assert_int_equal(atoi(other.ranks[1]->rest), 1);
                worker_tell(other.ranks[1], "mapped %u %u", page, RANK_PLANES - 1);
                assert_int_equal(atoi(other.ranks[1]->rest), 0);
                members = gpu_device_text(h, "members");
                for (unsigned k = 0; k < n; ++k) {
                        char name[DEVICE_NAME_MAX + 1];

                        member_name(k, name);
                        assert_non_null(strstr(members, name));
                }
                free(members);
                stop_engine(&one);
                stop_engine(&other);
                ctl(h, "purge a --remove");
        }
}

/* Bytes written before the daemon's restart are in place, on every member. */
static void test_restart(void **state)
{
        struct harness *h = *state;
        char lines[LINES];
        const struct private_options o = spanning(in_order, 2, "", lines);
        struct engine one, other;
        uint32_t page;

        gpu_needs_double();
        if (!private_is_contiguous())
                skip(); /* this memory doesn't outlive the daemon */
        restart_with(h, &o);
        one = start_engine(h, "one", 2);
        compute(&one, 7);
        kill_with(h, &o);
        ctl_wait_status(h, "n_clients", 3);
        assert_int_equal(ctl_status(h, "namespaces_lost"), 0);
        assert_found(&one, 7, &page);
        other = start_engine(h, "other", 2);
        assert_found(&other, 7, &page);
        compute(&other, 8);
        assert_found(&one, 8, &page);
        stop_engine(&one);
        stop_engine(&other);
        ctl(h, "purge a --remove");
}

/* Members in another order hold other planes: nothing of before is taken over. */
static void test_other_order(void **state)
{
        static const unsigned turned[] = {1, 0};
        struct harness *h = *state;
        char lines[LINES], turned_lines[LINES];
        const struct private_options o = spanning(in_order, 2, "", lines),
                                     other = spanning(turned, 2, "", turned_lines);
        struct engine one;

        gpu_needs_double();
        if (strcmp(private_transport(), "vmm") != 0)
                skip(); /* memory of the host is one, and cudaipc's doesn't outlive the daemon */
        restart_with(h, &o);
        one = start_engine(h, "one", 2);
        compute(&one, 7);
        stop_engine(&one);
        kill_with(h, &other);
        assert_int_equal(ctl_status(h, "namespaces_lost"), 1);
        ctl(h, "purge a --remove");
}

/* More members than a namespace has planes: it begins anew, and the daemon starts. */
static void test_other_count(void **state)
{
        struct harness *h = *state;
        char lines[LINES], more_lines[LINES];
        const struct private_options o = spanning(in_order, 2, "", lines),
                                     more = spanning(in_order, 8, "", more_lines);
        struct engine one;

        gpu_needs_double();
        if (!private_is_contiguous())
                skip(); /* this memory doesn't outlive the daemon */
        restart_with(h, &o);
        one = start_engine(h, "one", 2);
        compute(&one, 7);
        stop_engine(&one);
        kill_with(h, &more);
        assert_int_equal(ctl_status(h, "namespaces_lost"), 1);
        one = start_engine(h, "one", 8);
        compute(&one, 7);
        stop_engine(&one);
        ctl(h, "purge a --remove");
}

/* Down to memory of the host and up again, in batches that run on all members. */
static void test_below(void **state)
{
        struct harness *h = *state;
        char lines[LINES];
        const struct private_options o = spanning(in_order, 2, "host_memory = 64MiB", lines);
        const unsigned n_pages = 256, n_chains = 24; /* of 16 KiB: three times the memory above */
        struct worker *w;
        unsigned n_found = 0;

        gpu_needs_double();
        restart_with(h, &o);
        w = start(h, "one", "", "", 2, NULL);
        for (unsigned chain = 0; chain < n_chains; ++chain) {
                worker_tell(w, "cache %u %u", chain, n_pages);
                ctl_wait_still(h, STILL_BRIEFLY);
        }
        for (unsigned chain = 0; chain < n_chains; ++chain) {
                uint32_t pages[256], n = 0;

                if (worker_ask(w, "lookup %u:0-%u", chain, n_pages - 1) == 0)
                        n = worker_numbers(w, pages, n_pages);
                for (uint32_t i = 0; i < n; ++i)
                        worker_tell(w, "verify %u %u", pages[i], 1000 * chain + i);
                for (uint32_t i = 0; i < n; ++i)
                        worker_tell(w, "release %u", pages[i]);
                n_found += n;
        }
        print_message("%u of %u pages found\n", n_found, n_chains * n_pages);
        /* On a busy machine pages are demoted more slowly than leased. Found pages are right, and
         * more than the device holds (2 * 16 MiB of 16 KiB) moved up. */
        assert_true(n_found > 0);
        assert_true(n_found <= 2048 || ctl_status(h, "pages_promoted") > 0);
        worker_stop(w);
        ctl(h, "purge a --remove");
}

/* A member that fails makes the whole device ill, and is named. */
static void test_member_fails(void **state)
{
        struct harness *h = *state;
        char lines[LINES], name[DEVICE_NAME_MAX + 1], *why;
        const struct private_options o = spanning(in_order, 2, "", lines);
        struct worker *w;

        gpu_needs_double();
        if (!private_on_gpu())
                skip(); /* no driver */
        restart_with(h, &o);
        w = start(h, "one", "", "", 2, NULL);
        /* The first plane of the second member: a set has four. */
        gpu_inject(h, "fail=cuMemsetD8Async:700:3:1\n");
        assert_int_not_equal(worker_ask(w, "lease 1"), 0);
        gpu_wait_state(h, "broken");
        why = gpu_device_text(h, "why");
        member_name(1, name);
        assert_non_null(strstr(why, name));
        free(why);
        h->driver_keeps = true;
        worker_stop(w);
}

static void test_refused(void **state)
{
        struct harness *h = *state;
        char lines[LINES], socket[PRIVATE_PATH_MAX];
        const struct private_options o = spanning(in_order, 2, "", lines);
        struct worker *w;

        gpu_needs_double();
        restart_with(h, &o);
        w = worker_spawn_with(h, program_worker(), many_gpus);
        worker_tell(w, "connect %s", private_daemon_socket(&h->daemon, "a", socket));
        assert_int_equal(worker_ask(w, "open odd 3"), -EINVAL);
        gpu_assert_says(w, "n_planes is 3, and the device has 2 members");
        assert_int_equal(worker_ask(w, "open ns 4 - - - - - - 2+3"), -EINVAL);
        gpu_assert_says(w, "3 planes from 2 on: the layout has 4");
        worker_stop(w);
}

int main(void)
{
        static const struct private_options begin = {
                .is_kept = true, .has_control = true, .env = many_gpus};
        const struct CMUnitTest tests[] = {
                harness_test(test_ranks, (void *)&begin),
                harness_test(test_restart, (void *)&begin),
                harness_test(test_other_order, (void *)&begin),
                harness_test(test_other_count, (void *)&begin),
                harness_test(test_below, (void *)&begin),
                harness_test(test_member_fails, (void *)&begin),
                harness_test(test_refused, (void *)&begin),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
