/* The host's memory below a device: its configuration, the pages demoted to it, and tenants without
 * access. */
#include <stdio.h>
#include <string.h>

#include "client/lib/kvlease.h"
#include "tests/integration/harness.h"

#define MIB         (UINT64_C(1) << 20)
#define SET_PAGES   512 /* of 4 KiB */
#define CHAIN_PAGES 256

static const struct private_tenant some[] = {
        {"cold", "host_limit = 12MiB\n"}, {"out", "host_limit = 0\n"}, {NULL, NULL}};
/* Two sets on the device, eight in the lower tier. */
static const struct private_options options = {.tenants = some,
        .device_lines = "memory = 4MiB\nextent = 2MiB\nhost_memory = 16MiB\n"
                        "host_huge_pages = on\n"};

static void release(struct worker *w, const uint32_t *pages, unsigned n)
{
        char line[4096] = "release";
        size_t at = strlen(line);

        for (unsigned i = 0; i < n; i++)
                at += (size_t)snprintf(line + at, sizeof(line) - at, " %u", pages[i]);
        worker_tell(w, "%s", line);
}

/* Publishes twice the device's memory. */
static void fill(struct harness *h, const char *tenant)
{
        struct worker *w = worker_start(h, tenant, "cache", 1);
        uint32_t pages[CHAIN_PAGES];

        for (unsigned chain = 0; chain < 4 * SET_PAGES / CHAIN_PAGES; ++chain) {
                worker_publish_chain(w, chain, CHAIN_PAGES, pages);
                release(w, pages, CHAIN_PAGES);
        }
        worker_stop(w);
}

/* A number in row `name` of a list. */
static json_int_t number_of(struct harness *h, const char *list, const char *name, const char *key)
{
        json_t *reply = ctl_json(h, list), *row;
        json_int_t value = -1;
        size_t i;

        json_array_foreach(ctl_list(reply, list), i, row)
        {
                if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
                        value = json_integer_value(json_object_get(row, key));
        }
        json_decref(reply);
        assert_true(value >= 0);
        return value;
}

/* Waits until it isn't 0, at most 10 s. */
static void await_more(struct harness *h, const char *name)
{
        unsigned n = 1000;

        while (ctl_status(h, name) == 0 && --n > 0)
                sleep_msec(10);
        assert_true(n > 0);
}

HARNESS_TEST(test_configured, &options)
{
        assert_int_equal(number_of(h, "devices", "cold memory of host", "budget_bytes"), 16 * MIB);
        assert_int_equal(number_of(h, "devices", "cold memory of host", "extent_bytes"), 2 * MIB);
        assert_int_equal(number_of(h, "tenants", "cold", "host_limit_bytes"), 12 * MIB);
        assert_int_equal(ctl_status(h, "budget_bytes"), 4 * MIB); /* of devices */
        assert_int_equal(ctl_status(h, "host_limit_bytes"), 16 * MIB);
        assert_int_equal(ctl_status(h, "host_charged_bytes"), 0);
}

/* Cold pages are demoted and charged to their tenant there; a lower limit frees them. */
HARNESS_TEST(test_goes_down, &options)
{
        fill(h, "cold");
        await_more(h, "host_pages_sealed");
        assert_true(number_of(h, "tenants", "cold", "host_charged_bytes") > 0);
        assert_true(number_of(h, "devices", "cold memory of host", "charged_bytes") > 0);
        assert_true(number_of(h, "namespaces", "cache", "host_pages_sealed") > 0);
        ctl(h, "tenants set cold host_limit=0");
        ctl_wait_status(h, "host_charged_bytes", 0);
        assert_int_equal(ctl_status(h, "host_pages_sealed"), 0);
        assert_true(ctl_status(h, "pages_sealed") > 0);
}

HARNESS_TEST(test_kept_out, &options)
{
        fill(h, "out");
        assert_int_equal(number_of(h, "tenants", "out", "host_charged_bytes"), 0);
        assert_int_equal(number_of(h, "tenants", "out", "host_arrived"), 0);
        assert_true(number_of(h, "tenants", "out", "evictions") > 0);
}
