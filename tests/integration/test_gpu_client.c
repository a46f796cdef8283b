/* Clients of a GPU: those that can't use it, addresses, streams, contexts that break. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/integration/gpu-support.h"

#define N 4

static const struct private_options kept = {.is_kept = true, .has_control = true};

/* ---- processes that can't use the device ---- */

static void assert_no_access(struct harness *h, const char *variable, const char *words)
{
        const char *const env[] = {variable, NULL};
        struct worker *w = gpu_spawn(h, env);
        char socket[PRIVATE_PATH_MAX];

        worker_tell(w, "connect %s", private_daemon_socket(&h->daemon, "a", socket));
        assert_int_equal(worker_ask(w, "open ns 1"), -ENOENT);
        print_message("%s: %s\n", variable, w->rest);
        gpu_assert_says(w, words);
        gpu_assert_says(w, private_device());
        worker_stop(w);
}

HARNESS_TEST(test_no_access, NULL)
{
        struct worker *w;

        if (private_on_real_gpu()) {
                assert_no_access(h, "CUDA_VISIBLE_DEVICES=", "");
                return;
        }
        assert_no_access(h, "FAKECUDA_DEVICES=0", "");
        assert_no_access(h, "FAKECUDA_FAIL=cuInit:803", "driver");
        if (access("/dev/nvidiactl", F_OK) != 0)
                assert_no_access(h, "LD_LIBRARY_PATH=", "libcuda.so.1");
        /* A client without access to the device can make all other calls. */
        w = gpu_spawn(h, (const char *const[]){"FAKECUDA_DEVICES=0", NULL});
        worker_tell(w, "connect %s/t/a/sock - metadata", h->daemon.runtime);
        worker_tell(w, "open ns 1");
        worker_tell(w, "lease 3");
}

/* ---- addresses ---- */

static void open_same(struct worker *w)
{
        char socket[PRIVATE_PATH_MAX];

        worker_tell(w, "connect %s", private_daemon_socket(&w->harness->daemon, "a", socket));
        worker_tell(w, "open ns 2 - - same");
}

HARNESS_TEST(test_same_address, NULL)
{
        struct worker *a = worker_spawn(h), *b = worker_spawn(h);
        uint32_t pages[N], found[N];
        char *address;

        if (!private_is_contiguous()) {
                char socket[PRIVATE_PATH_MAX];

                worker_tell(a, "connect %s", private_daemon_socket(&h->daemon, "a", socket));
                assert_int_equal(worker_ask(a, "open ns 2 - - same"), -EOPNOTSUPP);
                worker_stop(a);
                worker_stop(b);
                return;
        }
#if defined(__SANITIZE_THREAD__)
        /* A client can't choose addresses there. */
        worker_stop(a);
        worker_stop(b);
        return;
#endif
        open_same(a);
        open_same(b);
        worker_publish_chain(a, 1, N, pages);
        worker_tell(b, "lookup 1:0-3");
        assert_int_equal(worker_numbers(b, found, N), N);
        for (unsigned plane = 0; plane < 2; ++plane) {
                address = strdup(worker_tell(a, "address %u %u", pages[2], plane));
                assert_string_equal(worker_tell(b, "address %u %u", found[2], plane), address);
                free(address);
        }
        worker_tell(b, "verify %u 1002", found[2]);
}

/* The CPU can't reach a page by its address. */
HARNESS_TEST(test_addresses_differ, NULL)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[600];

        worker_tell(w, "lease 600");
        assert_int_equal(worker_numbers(w, pages, 600), 600);
        for (unsigned i = 0; i < 600; i += 7)
                worker_tell(w, "fill %u %u", pages[i], i);
        for (unsigned i = 0; i < 600; i += 7)
                worker_tell(w, "verify %u %u", pages[i], i);
}

/* ---- streams ---- */

static uint32_t lease_filled(struct worker *w, unsigned seed)
{
        uint32_t page;

        worker_tell(w, "lease 1");
        assert_int_equal(worker_numbers(w, &page, 1), 1);
        worker_tell(w, "fill %u %u", page, seed);
        return page;
}

static void assert_missed(struct worker *w, unsigned chain)
{
        assert_int_equal(worker_ask(w, "lookup %u:0", chain), 1); /* KVL_MISS */
}

/* Waits until the page is found, like an engine that asks again. */
static uint32_t wait_found(struct worker *w, unsigned chain)
{
        uint32_t page;

        for (unsigned i = 0; worker_ask(w, "lookup %u:0", chain) == 1; ++i) {
                assert_true(i < 2000);
                sleep_msec(5);
        }
        assert_int_equal(w->code, 0);
        assert_int_equal(worker_numbers(w, &page, 1), 1);
        return page;
}

/* A page is found once the stream has written it, and not before. */
HARNESS_TEST(test_publish, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "a", "ns", 1);
        uint32_t page, found;

        worker_tell(a, "stream");
        page = lease_filled(a, 1);
        worker_tell(a, "gate");
        worker_tell(a, "stream-set %u 77", page);
        worker_tell(a, "publish-stream 1:0 - %u", page);
        assert_int_equal(worker_ask(a, "publish-poll"), -EAGAIN);
        assert_missed(b, 1);
        sleep_msec(50);
        assert_int_equal(worker_ask(a, "publish-poll"), -EAGAIN);
        assert_missed(b, 1);
        worker_tell(a, "gate-open");
        found = wait_found(b, 1);
        worker_tell(b, "peek %u", found);
        assert_int_equal(atoi(b->rest), 77);
        worker_tell(a, "publish-wait");
        assert_int_equal(worker_numbers(a, &page, 1), 1);
        assert_int_equal(page, found);
        worker_tell(a, "stream-close");
}

/* No thread calls into the library meanwhile: the driver's thread submits the publish. */
HARNESS_TEST(test_publish_unattended, NULL)
{
        struct worker *a, *b;
        uint32_t page;

        if (!harness_shares())
                skip();
        a = worker_start(h, "a", "ns", 1);
        b = worker_start(h, "a", "ns", 1);
        worker_tell(a, "stream");
        page = lease_filled(a, 5);
        worker_tell(a, "gate");
        worker_tell(a, "publish-stream 1:0 - %u", page);
        worker_tell(a, "gate-open");
        page = wait_found(b, 1);
        worker_tell(b, "verify %u 5", page);
        worker_tell(a, "publish-wait");
        worker_tell(a, "stream-close");
}

/* Pins and pages are freed when the stream has passed them. */
HARNESS_TEST(test_release_and_free, NULL)
{
        struct worker *a = worker_start(h, "a", "ns", 1);
        uint32_t pages[2], leased[3];

        worker_publish_chain(a, 1, 2, pages);
        worker_tell(a, "lease 3");
        assert_int_equal(worker_numbers(a, leased, 3), 3);
        worker_tell(a, "stream");
        worker_tell(a, "gate");
        worker_tell(a, "release-stream %u %u", pages[0], pages[1]);
        worker_tell(a, "free-stream %u %u", leased[0], leased[1]);
        sleep_msec(50);
        assert_int_equal(ctl_status(h, "pages_pinned"), 2);
        assert_int_equal(ctl_status(h, "pages_granted"), 3);
        worker_tell(a, "gate-open");
        worker_tell(a, "stream-wait");
        worker_tell(a, "events");
        ctl_wait_status(h, "pages_pinned", 0);
        ctl_wait_status(h, "pages_granted", 1);
        worker_tell(a, "stream-close");
}

/* ---- page 0 ---- */

static struct worker *start_null(struct harness *h)
{
        struct worker *w = worker_spawn(h);
        char socket[PRIVATE_PATH_MAX];

        worker_tell(w, "connect %s", private_daemon_socket(&h->daemon, "a", socket));
        worker_tell(w, "open null 3 - - zero");
        return w;
}

static void assert_has_null(struct worker *w)
{
        assert_string_equal(worker_tell(w, "mapped 0"), " 1");
        assert_string_equal(worker_tell(w, "mapped 1"), " 0");
        assert_string_equal(worker_tell(w, "zeros 0"), " 0");
}

/* Each process has its own page 0, from the start, also after a restart of the daemon. */
HARNESS_TEST(test_page_zero, &kept)
{
        struct worker *a = start_null(h), *b;
        uint32_t pages[N];

        assert_has_null(a);
        worker_publish_chain(a, 1, N, pages);
        for (unsigned i = 0; i < N; ++i)
                worker_tell(a, "verify %u %u", pages[i], 1000 + i);
        assert_has_null(a);
        worker_tell(a, "poke 0 7");
        b = start_null(h);
        assert_has_null(b);
        kill((pid_t)ctl_status(h, "pid"), SIGKILL);
        assert_int_equal(private_daemon_await(&h->daemon), 0);
        if (private_is_contiguous()) {
                worker_tell(b, "lookup 1:0-%u", N - 1);
                assert_int_equal(worker_numbers(b, pages, N), N);
                worker_tell(b, "verify %u 1000", pages[0]);
                worker_tell(a, "lease 1");
                worker_stop(b);
                b = start_null(h);
                assert_has_null(b);
        }
        assert_string_equal(worker_tell(a, "peek 0"), " 7");
        ctl(h, "check");
}

/* ---- contexts that break ---- */

static void write_control(const char *path, const char *lines)
{
        FILE *f = fopen(path, "we");

        assert_non_null(f);
        fputs(lines, f);
        assert_int_equal(fclose(f), 0);
}

/* A kernel before the publish fails. The page is never found, and the publish ends with -EIO, like
 * every later one of this client. Other clients continue. */
HARNESS_TEST(test_broken_context, NULL)
{
        char control[PRIVATE_PATH_MAX + 8], variable[PRIVATE_PATH_MAX + 32];
        const char *env[] = {variable, "FAKECUDA_LENIENT=exit", NULL};
        struct worker *a, *b;
        uint32_t page, other;

        gpu_needs_double();
        b = worker_start(h, "a", "ns", 1);
        snprintf(control, sizeof(control), "%.40s/worker", h->daemon.dir);
        snprintf(variable, sizeof(variable), "FAKECUDA_CONTROL=%s", control);
        write_control(control, "");
        a = gpu_spawn(h, env);
        worker_attach(a, "a", "ns", 1);
        worker_tell(a, "stream");
        page = lease_filled(a, 1);
        other = lease_filled(a, 2);
        worker_tell(a, "gate");
        worker_tell(a, "publish-stream 1:0 - %u", page);
        write_control(control, "fail=cuMemsetD8Async:700:1:1\n");
        assert_int_not_equal(worker_ask(a, "stream-set %u 77", other), 0);
        assert_int_equal(worker_ask(a, "publish-wait"), -EIO);
        print_message("%s\n", a->rest);
        assert_missed(b, 1);
        assert_int_equal(worker_ask(a, "publish 2:0 - %u", other), -EIO);
        assert_missed(b, 2);
        worker_tell(a, "gate-open");
        sleep_msec(50);
        assert_missed(b, 1);
        worker_tell(a, "free %u %u", page, other);
        worker_publish_chain(b, 3, 1, &page);
        worker_kill(a);
}
