/*
 * A GPU whose driver fails, runs out of memory or hangs while the daemon uses it. Requests that
 * need the driver are refused with a sentence; all others continue. A driver that recovers is used
 * again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "gpu/device.h"
#include "tests/integration/gpu-support.h"

#define N           4
#define SET_PAGES   512 /* of 4 KiB in a set of 2 MiB */
#define QUICK_NSEC  UINT64_C(1000000000)
#define HANG_MSEC   3000
#define DRIVER_MSEC 500 /* driver_timeout of the tests that hang */

static const struct private_options controlled = {.has_control = true};
static const struct private_tenant two[] = {
        {"a", "limit = 64MiB\n"}, {"b", "limit = 64MiB\n"}, {NULL, NULL}};
static const struct private_options impatient = {.has_control = true,
        .tenants = two,
        .device_lines = "memory = 256MiB\nextent = 2MiB\ndriver_timeout = 500ms\n"};

/* The call that makes an extent. */
static const char *create_call(void)
{
        return strcmp(private_transport(), "vmm") == 0 ? "cuMemCreate" : "cuMemAlloc";
}

/* "fail" or "delay" of that call: "VALUE:NTH:TIMES". */
static void inject(struct harness *h, const char *what, const char *rule)
{
        char lines[128];

        snprintf(lines, sizeof(lines), "%s=%s:%s\n", what, create_call(), rule);
        gpu_inject(h, lines);
}

static void assert_hits(struct worker *w, unsigned chain)
{
        uint32_t found[N];

        worker_tell(w, "lookup %u:0-%u", chain, N - 1);
        assert_int_equal(worker_numbers(w, found, N), N);
        for (unsigned i = 0; i < N; ++i)
                worker_tell(w, "verify %u %u", found[i], 1000 * chain + i);
        worker_tell(w, "release %u %u %u %u", found[0], found[1], found[2], found[3]);
}

/*
 * The device is lost: cached pages are found, new memory is refused, and the daemon stops cleanly.
 */
static void lose_device(struct harness *h, const char *rule)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "a", "ns", 1);
        uint32_t pages[N];
        char *why;

        worker_publish_chain(a, 1, N, pages);
        inject(h, "fail", rule);
        h->driver_keeps = true;
        for (unsigned i = 0; i < 2; ++i) {
                int code = worker_ask(a, "lease %u", 2 * SET_PAGES);

                assert_int_not_equal(code, 0);
                assert_true(strlen(a->rest) > 10);
                print_message("lease: %d %s\n", code, a->rest);
        }
        gpu_wait_state(h, "broken");
        why = gpu_device_text(h, "why");
        assert_true(strlen(why) > 10);
        print_message("why: %s\n", why);
        free(why);
        assert_hits(b, 1);
        assert_hits(a, 1);
        /* Pages whose memory is bound already can be written and published. */
        worker_publish_chain(a, 2, N, pages);
        assert_hits(b, 2);
        worker_stop(a);
        worker_stop(b);
        gpu_inject(h, "");
}

HARNESS_TEST(test_launch_failed, &controlled)
{
        lose_device(h, "719:1:0");
}

HARNESS_TEST(test_ecc, &controlled)
{
        lose_device(h, "214:1:0");
}

/* The driver has no memory left, though the budget does: a lease is refused. It is granted once
 * there is memory. */
HARNESS_TEST(test_out_of_memory, &controlled)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[N];
        char *text;

        worker_publish_chain(w, 1, N, pages);
        inject(h, "fail", "2:1:0");
        assert_int_equal(worker_ask(w, "lease %u", 2 * SET_PAGES), 4); /* KVL_FULL */
        gpu_assert_says(w, "memory");
        print_message("%s\n", w->rest);
        gpu_inject(h, "");
        worker_tell(w, "lease %u", 2 * SET_PAGES);
        text = gpu_device_text(h, "state");
        assert_string_equal(text, "ok");
        free(text);
}

/* Memory that zeroing left unchanged is never leased. */
HARNESS_TEST(test_not_zeroed, &controlled)
{
        struct worker *w = worker_start(h, "a", "ns", 1);

        gpu_inject(h, "bad=memset\n");
        assert_true(worker_ask(w, "lease 1") < 0);
        gpu_assert_says(w, "zero");
        print_message("%s\n", w->rest);
        assert_int_equal(ctl_tenant(h, "a", "charged_bytes"), 0);
        gpu_inject(h, "");
        worker_tell(w, "lease 1");
}

/* kvleasectl answers at once. */
static void assert_quick_status(struct harness *h)
{
        uint64_t start = now_nsec();

        ctl_status(h, "n_clients");
        if (now_nsec() - start > QUICK_NSEC)
                fail_msg("a status took %llu ms",
                        (unsigned long long)(now_nsec() - start) / 1000000);
}

/* The driver hangs for longer than driver_timeout. A client that needs it is refused in time;
 * others aren't affected. Once the driver answers, it is used again. */
HARNESS_TEST(test_hang, &impatient)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "b", "ns", 1);
        uint32_t pages[N];
        uint64_t start, end;

        worker_publish_chain(b, 1, N, pages);
        worker_publish_chain(a, 1, N, pages);
        inject(h, "delay", "3000:1:1");
        start = now_nsec();
        worker_say(a, "lease %u", 2 * SET_PAGES);
        for (unsigned i = 0; i < 5; ++i) {
                assert_quick_status(h);
                assert_hits(b, 1);
                worker_publish_chain(b, 2 + i, N, pages);
        }
        assert_true(worker_answers(a, HANG_MSEC));
        end = now_nsec();
        assert_int_not_equal(a->code, 0);
        print_message("after %llu ms: %d %s\n", (unsigned long long)(end - start) / 1000000,
                a->code, a->rest);
        assert_in_range((end - start) / 1000000, DRIVER_MSEC - 50, HANG_MSEC - 200);
        gpu_wait_state(h, "stuck");
        assert_quick_status(h);
        /* Refused without waiting for it again. */
        start = now_nsec();
        assert_int_not_equal(worker_ask(a, "lease %u", 2 * SET_PAGES), 0);
        assert_true(now_nsec() - start < QUICK_NSEC);
        assert_hits(b, 1);
        gpu_inject(h, "");
        gpu_wait_state(h, "ok");
        worker_tell(a, "lease %u", 2 * SET_PAGES);
}

/* A driver that never answers delays neither the daemon's stop nor a client's exit. */
HARNESS_TEST(test_stop_while_stuck, &impatient)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        int status = -1;
        uint64_t start;

        inject(h, "delay", "60000:1:1");
        assert_int_not_equal(worker_ask(w, "lease 1"), 0);
        gpu_wait_state(h, "stuck");
        worker_stop(w);
        start = now_nsec();
        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        assert_int_equal(status, 0);
        assert_true(now_nsec() - start < 5 * QUICK_NSEC);
}

/* One client dies while its socket waits for a slow driver; another one isn't served at once. */
HARNESS_TEST(test_dies_waiting, &impatient)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "a", "ns", 1);

        inject(h, "delay", "200:1:0");
        worker_say(a, "lease %u", SET_PAGES);
        worker_say(b, "lease %u", SET_PAGES);
        sleep_msec(50);
        worker_kill(a);
        assert_true(worker_answers(b, 10000));
        assert_int_equal(b->code, 0);
        gpu_inject(h, "");
        ctl_wait_status(h, "n_clients", 1);
        ctl_wait_status(h, "pages_granted", SET_PAGES);
}

/* The driver is slow but within the limit: many clients wait, each is served. */
HARNESS_TEST(test_slow, &impatient)
{
        struct worker *workers[8];

        inject(h, "delay", "50:1:0");
        for (unsigned i = 0; i < ARRAY_SIZE(workers); ++i)
                workers[i] = worker_start(
                        h, i % 2 ? "a" : "b", i % 4 < 2 ? "ns" : "other", i % 4 < 2 ? 1 : 2);
        for (unsigned i = 0; i < ARRAY_SIZE(workers); ++i)
                worker_say(workers[i], "lease 100");
        for (unsigned i = 0; i < ARRAY_SIZE(workers); ++i) {
                assert_true(worker_answers(workers[i], 30000));
                assert_int_equal(workers[i]->code, 0);
        }
        assert_quick_status(h);
        gpu_inject(h, "");
        for (unsigned i = 0; i < ARRAY_SIZE(workers); ++i)
                worker_stop(workers[i]);
}

/* ---- memory of the host below the GPU, registered with it ------------------------------------ */

#define CHAIN_PAGES 256 /* of 4 KiB */
#define CHAINS      8   /* twice the device's memory */

static const struct private_options cold = {.has_control = true,
        .tenants = two,
        .device_lines = "memory = 4MiB\nextent = 2MiB\nhost_memory = 16MiB\n"};

static void publish_all(struct worker *w)
{
        uint32_t pages[CHAIN_PAGES];

        for (unsigned chain = 0; chain < CHAINS; ++chain) {
                worker_publish_chain(w, chain, CHAIN_PAGES, pages);
                for (unsigned i = 0; i < CHAIN_PAGES; ++i)
                        worker_tell(w, "release %u", pages[i]);
                ctl_wait_status(w->harness, "pages_granted", 0);
        }
}

/* Every byte of the found pages is as it was published. */
static void read_all(struct worker *w)
{
        uint32_t pages[CHAIN_PAGES], all = 0;

        for (unsigned chain = 0; chain < CHAINS; ++chain) {
                uint32_t n = 0;

                if (worker_ask(w, "lookup %u:0-%u", chain, CHAIN_PAGES - 1) == 0)
                        n = worker_numbers(w, pages, CHAIN_PAGES);
                for (uint32_t i = 0; i < n; ++i)
                        worker_tell(w, "verify %u %u", pages[i], 1000 * chain + i);
                for (uint32_t i = 0; i < n; ++i)
                        worker_tell(w, "release %u", pages[i]);
                all += n;
        }
        assert_true(all > 0);
}

/* A number of the lower tier beside the GPU. */
static uint64_t below(struct harness *h, const char *member, char why[DEVICE_WHY_BYTES])
{
        json_t *reply = ctl_json(h, "devices"), *row;
        uint64_t value;

        row = json_array_get(ctl_list(reply, "devices"), 1);
        assert_string_equal(json_string_value(json_object_get(row, "tier")), "host");
        value = (uint64_t)json_integer_value(json_object_get(row, member));
        snprintf(why, DEVICE_WHY_BYTES, "%s", json_string_value(json_object_get(row, "why")));
        json_decref(reply);
        return value;
}

/* Waits until all memory bound there is registered, or none is. */
static void await_registered(struct harness *h, bool all)
{
        char why[DEVICE_WHY_BYTES];
        unsigned n = 1000;

        while (below(h, "registered_bytes", why) !=
                        (all ? below(h, "charged_bytes", why) : UINT64_C(0)) &&
                --n > 0)
                sleep_msec(10);
        assert_true(n > 0);
}

HARNESS_TEST(test_registered, &cold)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        char why[DEVICE_WHY_BYTES];

        publish_all(w);
        await_registered(h, true);
        assert_true(below(h, "registered_bytes", why) > 0);
        assert_string_equal(why, "");
        read_all(w);
        worker_stop(w);
        ctl(h, "purge a --remove");
        await_registered(h, false);
}

/* The tier works, but with slower copies, and reports that. */
HARNESS_TEST(test_not_registered, &cold)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        char why[DEVICE_WHY_BYTES];

        gpu_inject(h, "fail=cuMemHostRegister:2:1:0\n");
        publish_all(w);
        read_all(w);
        assert_true(below(h, "n_sets", why) > 0);
        assert_int_equal(below(h, "registered_bytes", why), 0);
        print_message("why: %s\n", why);
        assert_non_null(strstr(why, "not registered with the device above"));
        gpu_assert_logged(h, "lower host_memory");
        gpu_inject(h, "");
        worker_stop(w);
        ctl(h, "purge a --remove");
}

int main(void)
{
        if (private_on_real_gpu()) {
                puts("skipped: faults are injected into the driver double");
                return 77;
        }
        return test_run_all(NULL, NULL);
}
