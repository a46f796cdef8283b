/* A namespace's arena on host memory. Where nothing is mapped it reads as zeros if the worker asks
 * for that, and is never written. A kept page 0 is there from the beginning. */
#include <stdio.h>
#include <string.h>

#include "tests/integration/harness.h"

#define N_PLANES   2
#define PAGE_BYTES 4096

static const struct private_tenant tenants[] = {{"a", NULL}, {NULL, NULL}};
static const struct private_options options = {
        .tenants = tenants, .device_lines = "memory = 8MiB\nextent = 2MiB\n"};

static struct worker *start_worker(struct harness *h, const char *flags)
{
        struct worker *w = worker_spawn(h);
        char socket[PRIVATE_PATH_MAX];

        worker_tell(w, "connect %s", private_daemon_socket(&h->daemon, "a", socket));
        worker_tell(w, "open ns %u - %u %s", N_PLANES, PAGE_BYTES, flags);
        return w;
}

/* Reading and writing at the page's place end like this in every plane. */
static void assert_meets(struct worker *w, uint32_t page, const char *reader, const char *writer)
{
        for (unsigned plane = 0; plane < N_PLANES; ++plane) {
                worker_tell(w, "touch %u %u", page, plane);
                assert_string_equal(w->rest + 1, reader);
                worker_tell(w, "touch %u %u write", page, plane);
                assert_string_equal(w->rest + 1, writer);
        }
}

static uint32_t set_pages(struct worker *w)
{
        const char *at = strstr(worker_tell(w, "info"), "set=");

        assert_non_null(at);
        return (uint32_t)strtoul(at + strlen("set="), NULL, 10);
}

HARNESS_TEST(test_holes, &options)
{
        struct worker *w = start_worker(h, "holes");
        uint32_t n = set_pages(w), page;

        for (page = 0; page < 2 * n; page += n - 1)
                assert_meets(w, page, "zeros", "faults");
        worker_tell(w, "lease 1");
        assert_int_equal(worker_numbers(w, &page, 1), 1);
        assert_meets(w, page, "zeros", "zeros");
        worker_tell(w, "fill %u 77", page);
        assert_meets(w, page, "other", "other");
        assert_meets(w, page < n ? n : 0, "zeros", "faults"); /* another set */
        worker_tell(w, "free %u", page);
        worker_stop(w);
}

HARNESS_TEST(test_none, &options)
{
        struct worker *w = start_worker(h, "-");

        assert_meets(w, 0, "faults", "faults");
        assert_meets(w, 1, "faults", "faults");
        worker_stop(w);
}

static void page_zero(struct harness *h, const char *flags, const char *hole)
{
        struct worker *w = start_worker(h, flags);
        uint32_t page;

        assert_meets(w, 0, "zeros", "zeros");
        assert_meets(w, 1, hole, "faults");
        worker_tell(w, "lease 1");
        assert_int_equal(worker_numbers(w, &page, 1), 1);
        assert_int_not_equal(page, 0);
        assert_meets(w, 0, "zeros", "zeros");
        worker_tell(w, "free %u", page);
        worker_stop(w);
}

HARNESS_TEST(test_page_zero, &options)
{
        page_zero(h, "zero", "faults");
        page_zero(h, "zero,holes", "zeros");
}
