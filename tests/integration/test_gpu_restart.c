/*
 * The daemon is restarted on a GPU. vmm memory is there again, unless the device lost it, can't
 * give it back or has changed. Cached pages are lost then: this is reported, and they are never
 * read. cudaipc memory ends with the daemon.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/integration/gpu-support.h"

#define EXIT_LOSS  6
#define KVL_STALE  6 /* kvlease.h */
#define N          3
#define WAIT_NSEC  UINT64_C(30000000000) /* for anything; not tuned */
#define OTHER_UUID "GPU-fa4ecada-0000-0000-0000-000000000001"

static const struct private_options kept = {.is_kept = true, .has_control = true};

static bool on_vmm(void)
{
        return strcmp(private_transport(), "vmm") == 0;
}

static void only_on(const char *transport)
{
        if (strcmp(private_transport(), transport) == 0)
                return;
        print_message("skipped: about %s\n", transport);
        skip();
}

static void await_again(struct harness *h)
{
        int r = private_daemon_await(&h->daemon);

        if (r < 0)
                private_daemon_show_log(&h->daemon);
        assert_int_equal(r, 0);
}

static void restart(struct harness *h)
{
        kill((pid_t)ctl_status(h, "pid"), SIGKILL);
        await_again(h);
}

/* The pages are found in place, with their bytes. */
static void assert_there(struct worker *w, unsigned chain, const uint32_t *pages)
{
        uint32_t found[N];

        worker_tell(w, "lookup %u:0-%u", chain, N - 1);
        assert_int_equal(worker_numbers(w, found, N), N);
        assert_memory_equal(found, pages, sizeof(found));
        for (unsigned i = 0; i < N; ++i)
                worker_tell(w, "verify %u %u", found[i], 1000 * chain + i);
}

/* The client learns of the restart, finds nothing, and can begin anew on its socket, like a new
 * client. */
static void assert_begins_anew(struct worker *w, unsigned chain, const char *ns)
{
        uint32_t pages[N];

        /* With shared memory the client needn't ask the daemon. */
        assert_int_equal(worker_ask(w, "lookup %u:0-%u", chain, N - 1), KVL_STALE);
        assert_int_equal(worker_ask(w, "lease 2000"), -ESTALE);
        gpu_assert_says(w, "connect anew");
        worker_ask(w, "events");
        gpu_assert_says(w, "disconnected");
        assert_int_equal(worker_ask(w, "session-pages 0 1"), -ENOTCONN);
        worker_tell(w, "disconnect");
        worker_attach(w, "a", ns, 1);
        assert_int_equal(worker_ask(w, "lookup %u:0-%u", chain, N - 1), 1); /* KVL_MISS */
        worker_tell(w, "session-open chat");
        assert_int_equal(worker_numbers(w, pages, 1), 1);
        assert_int_equal(pages[0], 1); /* it is new */
        worker_publish_chain(w, chain, N, pages);
        assert_there(w, chain, pages);
}

/* Starts a worker with pinned pages, and a conversation. */
static struct worker *start_talking(
        struct harness *h, const char *ns, unsigned chain, uint32_t *pages)
{
        struct worker *w = worker_start(h, "a", ns, 1);

        worker_publish_chain(w, chain, N, pages);
        worker_tell(w, "session-open chat");
        worker_tell(w, "session-talk %u 0 2", chain + 100);
        return w;
}

static void end_all(struct harness *h)
{
        ctl(h, "check");
        ctl(h, "sessions purge a");
}

/* ---- vmm ------------------------------------------------------------------------------------ */

/* The daemon is killed again and again, before and after it has memory. */
static void test_kills(void **state)
{
        struct harness *h = *state;
        struct worker *w;
        uint32_t pages[N];

        only_on("vmm");
        restart(h);
        w = start_talking(h, "ns", 7, pages);
        for (unsigned i = 0; i < 3; ++i) {
                restart(h);
                assert_int_equal(ctl_status(h, "namespaces_lost"), 0);
                assert_int_equal(ctl_status(h, "kept_released"), 0);
                assert_there(w, 7, pages);
                worker_tell(w, "session-talk 107 %u %u", 3 + 2 * i, 4 + 2 * i);
        }
        worker_stop(w);
        end_all(h);
}

/* The device is reset between two daemons: no page of before is read, or kept. */
static void test_cleared(void **state)
{
        struct harness *h = *state;
        struct worker *w, *idle;
        uint32_t pages[N];
        char *why;

        only_on("vmm");
        gpu_needs_double();
        w = start_talking(h, "ns", 7, pages);
        idle = worker_start(h, "a", "idle", 1); /* has no memory that could be lost */
        gpu_inject(h, "bad=cleared\n");
        restart(h);
        gpu_inject(h, "");
        assert_int_equal(ctl_status(h, "namespaces_lost"), 1);
        gpu_assert_logged(
                h, "all that was cached on device " PRIVATE_FAKE_UUID " is gone: it was reset");
        gpu_assert_logged(h, "namespace ns of tenant a is gone");
        why = gpu_device_text(h, "why");
        assert_non_null(strstr(why, "reset"));
        free(why);
        assert_int_equal(ctl_status(h, "charged_bytes"), 0);
        assert_begins_anew(w, 7, "ns");
        worker_publish_chain(idle, 9, N, pages);
        /* From here on all works. */
        restart(h);
        assert_int_equal(ctl_status(h, "namespaces_lost"), 0);
        assert_there(idle, 9, pages);
        worker_stop(w);
        worker_stop(idle);
        end_all(h);
}

/* The canary is imported first. */
static void lose_first(struct harness *h, const char *lines, const char *words)
{
        uint32_t of_ns[N], of_other[N];
        struct worker *w = start_talking(h, "ns", 7, of_ns),
                      *other = worker_start(h, "a", "other", 1);

        worker_publish_chain(other, 8, N, of_other);
        gpu_inject(h, lines);
        restart(h);
        gpu_inject(h, "");
        assert_int_equal(ctl_status(h, "namespaces_lost"), 1);
        gpu_assert_logged(h, words);
        assert_there(other, 8, of_other);
        assert_begins_anew(w, 7, "ns");
        worker_stop(w);
        worker_stop(other);
        end_all(h);
}

/* One extent can't be imported: its namespace is dropped, the rest is served. */
static void test_not_imported(void **state)
{
        only_on("vmm");
        gpu_needs_double();
        lose_first(*state, "fail=cuMemImportFromShareableHandle:304:2\n",
                "namespace ns of tenant a is gone: extents of it can't be had from device");
}

/* The driver refuses to map it, as for a size other than the recorded one: the whole is mapped, or
 * nothing. */
static void test_not_mapped(void **state)
{
        only_on("vmm");
        gpu_needs_double();
        lose_first(*state, "fail=cuMemMap:1:2\n", "cuMemMap");
}

static void test_no_canary_read(void **state)
{
        struct harness *h = *state;
        struct worker *w;
        uint32_t pages[N];

        only_on("vmm");
        gpu_needs_double();
        w = start_talking(h, "ns", 7, pages);
        gpu_inject(h, "fail=cuMemImportFromShareableHandle:304:1\n");
        restart(h);
        gpu_inject(h, "");
        assert_int_equal(ctl_status(h, "namespaces_lost"), 1);
        gpu_assert_logged(h, "its canary can't be read: ");
        assert_begins_anew(w, 7, "ns");
        worker_stop(w);
        end_all(h);
}

/* The machine has another GPU in place of one of two. */
static const char *const two_gpus[] = {"FAKECUDA_DEVICES=2", NULL};
static const struct private_options both = {
        .is_kept = true,
        .env = two_gpus,
        .devices = PRIVATE_FAKE_UUID "," OTHER_UUID,
        .device_lines = "memory = 64MiB\nextent = 2MiB\n[device " OTHER_UUID
                        "]\nmemory = 64MiB\nextent = 2MiB\n",
};

static void test_other_device(void **state)
{
        struct private_options one = both;
        struct harness *h = *state;
        char socket[PRIVATE_PATH_MAX];
        struct worker *w, *other;
        uint32_t of_ns[N], of_other[N];

        only_on("vmm");
        gpu_needs_double();
        w = start_talking(h, "ns", 7, of_ns);
        other = worker_spawn_with(h, program_worker(), two_gpus);
        worker_tell(other, "connect %s", private_daemon_socket(&h->daemon, "a", socket));
        worker_tell(other, "open other 1 - - - " OTHER_UUID);
        worker_publish_chain(other, 8, N, of_other);
        one.devices = OTHER_UUID;
        assert_int_equal(private_daemon_configure(&h->daemon, &one), 0);
        restart(h);
        assert_int_equal(ctl_status(h, "namespaces_lost"), 1);
        gpu_assert_logged(h,
                "namespace ns of tenant a is gone: there is no device " PRIVATE_FAKE_UUID
                " any more");
        assert_there(other, 8, of_other);
        assert_int_equal(worker_ask(w, "lookup 7:0-2"), KVL_STALE);
        assert_int_equal(worker_ask(w, "lease 2000"), -ESTALE);
        worker_stop(w);
        worker_stop(other);
        end_all(h);
}

/* A device with less memory for us than it holds: pages that fit are there. */
static void test_smaller(void **state)
{
        struct private_options small = kept;
        struct harness *h = *state;
        uint32_t of_ns[N], of_other[N];
        struct worker *w, *other;

        only_on("vmm");
        other = worker_start(h, "a", "other", 1);
        worker_publish_chain(other, 8, N, of_other);
        w = start_talking(h, "ns", 7, of_ns);
        small.device_lines = "memory = 2MiB\nextent = 2MiB\n";
        assert_int_equal(private_daemon_configure(&h->daemon, &small), 0);
        restart(h);
        assert_int_equal(ctl_status(h, "namespaces_lost"), 1);
        gpu_assert_logged(h, "has a smaller budget than it holds");
        assert_there(other, 8, of_other);
        assert_int_equal(worker_ask(w, "lookup 7:0-2"), KVL_STALE);
        assert_int_equal(worker_ask(w, "lease 2000"), -ESTALE);
        worker_stop(w);
        worker_stop(other);
        end_all(h);
}

/* A share of the device includes the canary's memory; the reported budget excludes it. */
static const struct private_options share = {
        .is_kept = true, .device_lines = "memory_ratio = 50\nextent = 2MiB\n"};

static uint64_t device_bytes(struct harness *h, const char *name)
{
        json_t *reply = ctl_json(h, "devices"), *list = ctl_list(reply, "devices");
        json_t *value = json_object_get(json_array_get(list, 0), name);
        uint64_t n = (uint64_t)json_integer_value(value);

        assert_true(json_is_integer(value));
        json_decref(reply);
        return n;
}

static void test_budget(void **state)
{
        struct harness *h = *state;
        uint64_t canary_bytes = on_vmm() ? 2 << 20 : 0;

        gpu_needs_double(); /* granularity */
        assert_int_equal(device_bytes(h, "budget_bytes"),
                device_bytes(h, "total_bytes") / 100 * 50 - canary_bytes);
}

/* ---- a daemon that ends --------------------------------------------------------------------- */

/* Clients find their mapped pages after the stop, if memory outlives the daemon. */
static void test_stopped(void **state)
{
        struct harness *h = *state;
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[N];
        int status;

        worker_publish_chain(w, 7, N, pages);
        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        assert_int_equal(status, 0);
        if (on_vmm())
                assert_there(w, 7, pages);
        else
                assert_int_equal(worker_ask(w, "lookup 7:0-2"), KVL_STALE);
        worker_stop(w);
        harness_start(h);
}

static void await_event(struct worker *w, const char *event)
{
        uint64_t end = now_nsec() + WAIT_NSEC;

        do {
                assert_true(now_nsec() < end);
                worker_ask(w, "events");
        } while (!strstr(w->rest, event));
}

/*
 * The daemon is killed and not restarted. A client that has noticed finds pages that don't need it.
 */
static void test_away(void **state)
{
        struct harness *h = *state;
        struct worker *w = worker_start(h, "a", "ns", 1);
        pid_t daemon = (pid_t)ctl_status(h, "pid");
        uint32_t pages[N];

        worker_publish_chain(w, 7, N, pages);
        kill(h->daemon.pid, SIGSTOP); /* its keeper */
        kill(daemon, SIGKILL);
        await_event(w, "away");
        if (on_vmm())
                assert_there(w, 7, pages);
        else
                assert_int_equal(worker_ask(w, "lookup 7:0-2"), KVL_STALE);
        kill(h->daemon.pid, SIGCONT);
        await_again(h);
        if (on_vmm())
                assert_there(w, 7, pages);
        else
                assert_int_equal(worker_ask(w, "lease 2000"), -ESTALE);
        worker_stop(w);
        end_all(h);
}

/* The connection hung up, and reconnects to the same daemon: the memory is there. */
static void test_hangup(void **state)
{
        struct harness *h = *state;
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[N];

        worker_publish_chain(w, 7, N, pages);
        worker_tell(w, "hangup");
        await_event(w, "back");
        assert_there(w, 7, pages);
        worker_stop(w);
        end_all(h);
}

/* ---- cudaipc -------------------------------------------------------------------------------- */

static void assert_check_says(struct harness *h, const char *words)
{
        struct proc_output out = {0};

        assert_int_equal(ctl_run(h, "restart --check", &out), EXIT_LOSS);
        if (!strstr(out.out, words))
                fail_msg("no \"%s\" in: %s", words, out.out);
        proc_output_free(&out);
}

/* After a kill or a stop the cache is lost; a stop's warning says so before. */
static void lose_all(struct harness *h, bool in_peace)
{
        uint32_t pages[N];
        struct worker *w;
        struct proc_output out = {0};
        char words[256];

        only_on("cudaipc");
        w = start_talking(h, "ns", 7, pages);
        snprintf(words, sizeof(words), "memory of %s is handed over as cudaipc", private_device());
        assert_check_says(h, words);
        assert_check_says(h, "6 cached pages");
        assert_check_says(h, "1 session");
        assert_check_says(h, "1 client must connect anew");
        assert_int_equal(ctl_run(h, "restart", &out), EXIT_LOSS);
        proc_output_free(&out);
        assert_there(w, 7, pages);
        if (in_peace) {
                ctl(h, "restart --force");
                await_again(h);
        } else {
                restart(h);
        }
        assert_int_equal(ctl_status(h, "namespaces_lost"), 1);
        gpu_assert_logged(h, "doesn't outlive kvleased; with transport = vmm it does");
        assert_begins_anew(w, 7, "ns");
        worker_stop(w);
        end_all(h);
}

static void test_cudaipc(void **state)
{
        lose_all(*state, true);
}

static void test_cudaipc_killed(void **state)
{
        lose_all(*state, false);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                harness_test(test_kills, (void *)&kept),
                harness_test(test_cleared, (void *)&kept),
                harness_test(test_not_imported, (void *)&kept),
                harness_test(test_not_mapped, (void *)&kept),
                harness_test(test_no_canary_read, (void *)&kept),
                harness_test(test_other_device, (void *)(private_on_real_gpu() ? &kept : &both)),
                harness_test(test_smaller, (void *)&kept),
                harness_test(test_budget, (void *)&share),
                harness_test(test_stopped, NULL),
                harness_test(test_away, (void *)&kept),
                harness_test(test_hangup, (void *)&kept),
                harness_test(test_cudaipc, (void *)&kept),
                harness_test(test_cudaipc_killed, (void *)&kept),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
