#include "tests/integration/harness.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/unit/fd-count.h"

#define COPY_MSEC 60000

#define WAIT_MSEC    30000 /* for anything; valgrind on a loaded machine is slow; not tuned */
#define RESERVE_MSEC 5000  /* likewise, of a daemon that may have too few for it */
#define DRIVER_FDS   4     /* descriptors that one extent may cost with a GPU's driver; not tuned */

static unsigned count_tenants(struct harness *h)
{
        json_t *reply = ctl_json(h, "tenants list");
        unsigned n = (unsigned)json_array_size(ctl_list(reply, "tenants"));

        json_decref(reply);
        return n;
}

/* Waits until the descriptors show that the last administrator's connection is closed:
 * proc_holds_reserve(). */
static void await_reserve(const struct harness *h)
{
        for (unsigned i = 0; i < RESERVE_MSEC / 10; ++i) {
                if (h->daemon.is_kept || proc_holds_reserve(h->daemon.pid))
                        return;
                sleep_msec(10);
        }
}

void harness_start(struct harness *h)
{
        int r = private_daemon_start(&h->daemon);

        if (r < 0)
                private_daemon_show_log(&h->daemon);
        assert_int_equal(r, 0);
        h->stolen_msec = proc_stolen_msec();
        /* A daemon that answers has closed the socket that it said READY through. await_reserve()
         * waits until it has closed the administrator's connection, too. */
        h->n_tenants = count_tenants(h);
        ctl_wait_status(h, "n_clients", 0);
        await_reserve(h);
        h->daemon_fds = -1;
        for (unsigned i = 0; i < 20 && h->daemon_fds != proc_count_fds(h->daemon.pid); ++i) {
                h->daemon_fds = proc_count_fds(h->daemon.pid);
                sleep_msec(10);
        }
}

static void stop_daemon(struct harness *h)
{
        int status = -1, r = private_daemon_stop(&h->daemon, &status);

        if (r < 0 || status)
                private_daemon_show_log(&h->daemon);
        assert_int_equal(r, 0);
        assert_int_equal(status, 0);
}

/* cmocka leaves a failed assertion by longjmp: its leftovers are removed when the program ends. */
static struct harness *unfinished;

static void clean_up(void)
{
        if (!unfinished)
                return;
        private_daemon_show_log(&unfinished->daemon);
        private_daemon_deinit(&unfinished->daemon);
        free(unfinished);
        unfinished = NULL;
}

int harness_setup(void **state)
{
        static const struct private_options defaults;
        const struct private_options *o = *state ? *state : &defaults;
        static bool registered;
        struct harness *h;

        if (!registered)
                assert_int_equal(atexit(clean_up), 0);
        registered = true;
        clean_up();
        h = calloc(1, sizeof(*h));
        assert_non_null(h);
        unfinished = h;
        h->own_fds = fd_count_open();
        *state = h;
        assert_int_equal(private_daemon_init(&h->daemon, o), 0);
        harness_start(h);
        return 0;
}

void harness_restart(struct harness *h)
{
        stop_daemon(h);
        harness_start(h);
}

struct usage {
        uint64_t charged_bytes, pages, n_extents, n_namespaces, n_feeds;
        uint64_t n_lower_extents; /* below devices, of memory of the host: one a set */
};

/* Sums over all namespaces; pages of every state are pages of their sets. */
static struct usage sum_namespaces(struct harness *h)
{
        json_t *reply = ctl_json(h, "namespaces"), *ns;
        struct usage sum = {0};
        size_t i;

        json_array_foreach(ctl_list(reply, "namespaces"), i, ns)
        {
                uint64_t n_pages = 0;
                static const char *const states[] = {"pages_free", "pages_granted", "pages_ready",
                        "pages_sealed", "pages_detached"};

                for (unsigned s = 0; s < ARRAY_SIZE(states); ++s)
                        n_pages += (uint64_t)json_integer_value(json_object_get(ns, states[s]));
                uint64_t n_sets = (uint64_t)json_integer_value(json_object_get(ns, "n_sets"));
                json_t *layout = json_object_get(ns, "layout");
                json_t *n_planes = json_object_get(layout ? layout : ns, "n_planes");

                assert_int_equal(n_pages,
                        n_sets * (uint64_t)json_integer_value(json_object_get(ns, "set_pages")));
                sum.n_namespaces++;
                sum.n_feeds += json_integer_value(json_object_get(ns, "events_bytes")) > 0;
                sum.pages += n_pages;
                sum.n_extents += n_sets * (uint64_t)json_integer_value(n_planes);
                sum.n_lower_extents +=
                        (uint64_t)json_integer_value(json_object_get(ns, "host_n_sets"));
                sum.charged_bytes +=
                        (uint64_t)json_integer_value(json_object_get(ns, "charged_bytes"));
        }
        json_decref(reply);
        return sum;
}

/* Charges of all tenants, whose limits must hold. */
static uint64_t sum_tenants(struct harness *h)
{
        json_t *reply = ctl_json(h, "tenants list"), *tenant;
        uint64_t sum = 0, charged;
        size_t i;

        json_array_foreach(ctl_list(reply, "tenants"), i, tenant)
        {
                charged = (uint64_t)json_integer_value(json_object_get(tenant, "charged_bytes"));
                assert_true(charged <=
                            (uint64_t)json_integer_value(json_object_get(tenant, "limit_bytes")));
                sum += charged;
        }
        json_decref(reply);
        return sum;
}

static void purge_all(struct harness *h)
{
        json_t *reply = ctl_json(h, "tenants list"), *tenant;
        char words[128];
        size_t i;

        json_array_foreach(ctl_list(reply, "tenants"), i, tenant)
        {
                snprintf(words, sizeof(words), "purge --remove %s",
                        json_string_value(json_object_get(tenant, "name")));
                ctl(h, words);
        }
        json_decref(reply);
}

/*
 * Expected descriptors of the daemon: those at its start, one for each added tenant, two an index
 * segment. Each extent is one more, except with cudaipc. The driver has an unknown number for
 * memory it exports; a real one takes some for itself at any time. With `--keep` the process is the
 * keeper, whose descriptors `kept_fds` counts.
 */
static bool has_its_fds(struct harness *h, int *ret_n, int *ret_least, int *ret_most)
{
        struct usage usage = sum_namespaces(h);
        int least = h->daemon_fds + 2 * (int)(usage.n_namespaces + usage.n_feeds) +
                    (int)usage.n_lower_extents;

        least += (int)count_tenants(h) - (int)h->n_tenants;
        *ret_most = least + (int)usage.n_extents * (private_on_gpu() ? DRIVER_FDS : 1);
        if (!private_on_gpu() || strcmp(private_transport(), "vmm") == 0)
                least += (int)usage.n_extents;
        *ret_most += h->n_connections;
        least -= h->n_connections; /* some may have been there at the start */
        *ret_least = least;
        await_reserve(h);
        *ret_n = proc_count_fds(h->daemon.pid);
        return *ret_n >= least && (*ret_n <= *ret_most || h->driver_keeps || private_on_real_gpu());
}

/* Compaction still maps and frees sets after the last client has left. */
static void assert_daemon_fds(struct harness *h)
{
        int n = 0, least = 0, most = 0;
        char command[128];

        if (h->daemon.is_kept)
                return;
        for (unsigned i = 0; i < WAIT_MSEC / 10; ++i) {
                if (has_its_fds(h, &n, &least, &most))
                        return;
                sleep_msec(10);
        }
        snprintf(command, sizeof(command), "ls -l /proc/%d/fd >&2", (int)h->daemon.pid);
        if (system(command) < 0)
                fprintf(stderr, "%s: failed\n", command);
        fail_msg("the daemon has %d descriptors, %d to %d were expected", n, least, most);
}

/* Waits until all reports of usage agree. A GPU's thread takes time to free sets, and so does
 * compaction. */
static void wait_exact(struct harness *h)
{
        uint64_t of_daemon = 0, of_tenants = 0, n_pages = 0;
        struct usage usage;

        for (unsigned i = 0; i < WAIT_MSEC / 10; ++i) {
                of_daemon = ctl_status(h, "charged_bytes");
                usage = sum_namespaces(h);
                of_tenants = sum_tenants(h);
                n_pages = ctl_status(h, "pages_free") + ctl_status(h, "pages_sealed");
                if (of_daemon == usage.charged_bytes && of_tenants == usage.charged_bytes &&
                        n_pages == usage.pages)
                        return;
                sleep_msec(10);
        }
        fail_msg(
                "charged: %llu bytes in all, %llu to tenants, %llu to namespaces; %llu of %llu pages are free or cached",
                (unsigned long long)of_daemon, (unsigned long long)of_tenants,
                (unsigned long long)usage.charged_bytes, (unsigned long long)n_pages,
                (unsigned long long)usage.pages);
}

void harness_needs_kept_memory(void)
{
        if (private_is_contiguous())
                return;
        print_message("skipped: this memory doesn't outlive the daemon\n");
        skip();
}

void harness_assert_prompt(struct harness *h)
{
        uint64_t stolen_msec = proc_stolen_msec() - h->stolen_msec;

        if (private_measures_memory())
                assert_in_range(ctl_status(h, "longest_turn_nsec"), 0,
                        (HARNESS_TURN_MSEC + stolen_msec) * UINT64_C(1000000));
}

void harness_assert_settled(struct harness *h)
{
        ctl_wait_status(h, "n_clients", 0);
        ctl_wait_status(h, "pages_granted", 0);
        ctl_wait_status(h, "pages_ready", 0);
        ctl_wait_status(h, "pages_pinned", 0);
        ctl_wait_status(h, "pages_detached", 0);
        assert_int_equal(ctl_status(h, "peers_muted"), 0);
        assert_int_equal(ctl_status(h, "members_waiting_exit"), 0);
        ctl(h, "check");
        wait_exact(h);
        assert_daemon_fds(h);
}

/* A worker that still runs means that the test failed in its middle. */
static bool drop_workers(struct harness *h)
{
        bool any = false;

        for (unsigned i = 0; i < HARNESS_MAX_WORKERS; ++i)
                if (h->workers[i].pid) {
                        worker_kill(&h->workers[i]);
                        any = true;
                }
        return any;
}

static void assert_nothing_left(struct harness *h)
{
        harness_assert_settled(h);
        assert_int_equal(ctl_status(h, "violations"), h->violations);
        purge_all(h);
        ctl_wait_status(h, "charged_bytes", 0);
        assert_daemon_fds(h);
        stop_daemon(h);
}

int harness_teardown(void **state)
{
        struct harness *h = *state;
        int own_fds = h->own_fds;

        if (drop_workers(h)) {
                clean_up();
                fail_msg("workers were left");
        }
        if (h->daemon.pid > 0)
                assert_nothing_left(h);
        if (h->plays_others) {
                unsetenv("KVL_WORKER");
                unsetenv("KVLEASECTL");
        }
        private_daemon_deinit(&h->daemon);
        free(h);
        unfinished = NULL;
        *state = NULL;
        /* In a process that is a client itself, a real driver keeps descriptors of its own. */
        if (!private_on_real_gpu())
                assert_int_equal(fd_count_open(), own_fds);
        return 0;
}

/* Can other users reach the worker in its place? */
static bool is_reached(void)
{
        const char *argv[] = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "test",
                "-x", program_worker(), NULL};
        struct proc_output o;
        int status;

        assert_int_equal(proc_run(argv, NULL, COPY_MSEC, &o), 0);
        status = o.status;
        proc_output_free(&o);
        return status == 0;
}

/* Like in the build, a worker finds its library beside it. */
void harness_play_others(struct harness *h)
{
        static const char copy[] =
                "cd \"${0%/tests/integration/*}\"; cp -L --parents client/lib/libkvlease.so.0 "
                "client/ctl/kvleasectl tests/integration/kvl-worker \"$1\"; chmod -R a+rX \"$1\"";
        char dir[PRIVATE_PATH_MAX], path[2 * PRIVATE_PATH_MAX];
        const char *argv[] = {"sh", "-ec", copy, program_worker(), dir, NULL};
        struct proc_output o;

        if (geteuid() != 0) {
                print_message("skipped: only root can play other users here\n");
                skip();
        }
        assert_int_equal(chmod(h->daemon.dir, 0755), 0);
        if (getenv("KVL_WORKER") || getenv("KVLEASECTL")) {
                if (is_reached())
                        return;
                print_message("skipped: other users don't reach %s\n", program_worker());
                skip();
        }
        snprintf(dir, sizeof(dir), "%.60s/programs", h->daemon.dir);
        assert_int_equal(mkdir(dir, 0755), 0);
        assert_int_equal(proc_run(argv, NULL, COPY_MSEC, &o), 0);
        if (o.status)
                fail_msg("the programs can't be copied: %s", o.err);
        proc_output_free(&o);
        snprintf(path, sizeof(path), "%s/tests/integration/kvl-worker", dir);
        assert_int_equal(setenv("KVL_WORKER", path, 1), 0);
        snprintf(path, sizeof(path), "%s/client/ctl/kvleasectl", dir);
        assert_int_equal(setenv("KVLEASECTL", path, 1), 0);
        h->plays_others = true;
}

bool harness_shares(void)
{
        const char *value = getenv("KVLEASE_NO_SHM");

        return !value || strcmp(value, "1") != 0;
}

uint64_t harness_seed(void)
{
        const char *text = getenv("KVL_SEED");
        uint64_t seed;

        if (text)
                seed = strtoull(text, NULL, 10);
        else if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
                abort();
        print_message("KVL_SEED=%llu\n", (unsigned long long)seed);
        return seed;
}
