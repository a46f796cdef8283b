/* kvleasectl's figures of memory under pressure: which tenant evicted which, and what is reserved
 * and missing. */
#include <stdio.h>
#include <string.h>

#include "client/lib/kvlease.h"
#include "tests/integration/harness.h"

#define SET_PAGES   512 /* of 4 KiB */
#define CHAIN_PAGES 256

static const struct private_tenant both[] = {{"loser", NULL}, {"winner", NULL}, {NULL, NULL}};
/* Two sets: one for each tenant. */
static const struct private_options options = {
        .tenants = both, .device_lines = "memory = 4MiB\nextent = 2MiB\n"};

/* Fills both sets with pages that no client uses or has mapped. */
static void fill_with_cache(struct harness *h)
{
        struct worker *w = worker_start(h, "loser", "cache", 1);
        uint32_t pages[CHAIN_PAGES];

        for (unsigned chain = 0; chain < 2 * SET_PAGES / CHAIN_PAGES; ++chain)
                worker_publish_chain(w, chain, CHAIN_PAGES, pages);
        worker_stop(w);
}

/* Row i of a list in a reply. */
static void assert_row(json_t *reply, size_t i, const char *by, json_int_t pages, json_int_t sets)
{
        json_t *row = json_array_get(ctl_list(reply, "evictions"), i);

        assert_string_equal(json_string_value(json_object_get(row, "victim")), "loser");
        assert_string_equal(json_string_value(json_object_get(row, "by")), by);
        assert_int_equal(json_integer_value(json_object_get(row, "pages")), pages);
        assert_int_equal(json_integer_value(json_object_get(row, "sets")), sets);
}

static void assert_rows(struct harness *h, const char *words, size_t n)
{
        json_t *reply = ctl_json(h, words);

        assert_int_equal(json_array_size(ctl_list(reply, "evictions")), n);
        if (n > 0)
                assert_row(reply, 0, "winner", SET_PAGES, 1);
        if (n > 1)
                assert_row(reply, 1, "loser", SET_PAGES, 0);
        json_decref(reply);
}

HARNESS_TEST(test_who_evicted_whom, &options)
{
        struct worker *winner, *loser;
        struct proc_output o;

        fill_with_cache(h);
        assert_rows(h, "evictions", 0);
        winner = worker_start(h, "winner", "work", 1);
        worker_tell(winner, "lease %u", SET_PAGES);
        assert_rows(h, "evictions", 1);
        loser = worker_start(h, "loser", "cache", 1);
        worker_tell(loser, "lease %u", SET_PAGES);
        assert_rows(h, "evictions", 2);
        assert_rows(h, "evictions --tenant loser", 2);
        assert_rows(h, "evictions --tenant winner", 0);
        assert_int_equal(ctl_tenant(h, "loser", "evictions"), 2 * SET_PAGES);
        assert_int_equal(ctl_run(h, "evictions --tenant nobody", &o), 1);
        proc_output_free(&o);
}

/* A number of the one device. */
static json_int_t device_figure(struct harness *h, const char *name)
{
        json_t *reply = ctl_json(h, "devices");
        json_t *row = json_array_get(ctl_list(reply, "devices"), 0);
        json_int_t value = json_integer_value(json_object_get(row, name));

        assert_non_null(json_object_get(row, name));
        json_decref(reply);
        return value;
}

/*
 * A reservation made while another tenant holds all memory is missing until that tenant frees it.
 */
HARNESS_TEST(test_missing_reservation, &options)
{
        struct worker *w = worker_start(h, "winner", "work", 1);
        const json_int_t set_bytes = SET_PAGES * 4096;

        worker_tell(w, "lease %u", 2 * SET_PAGES);
        assert_int_equal(device_figure(h, "reserved_bytes"), 0);
        assert_int_equal(device_figure(h, "missing_bytes"), 0);
        ctl(h, "tenants set loser class=pinned reserve=2MiB");
        assert_int_equal(device_figure(h, "reserved_bytes"), set_bytes);
        assert_int_equal(device_figure(h, "missing_bytes"), set_bytes);
        assert_int_equal(ctl_tenant(h, "loser", "reserve_bytes"), set_bytes);
        worker_stop(w);
        for (unsigned i = 0; device_figure(h, "missing_bytes") > 0; ++i) {
                assert_true(i < 1000);
                sleep_msec(10);
        }
        assert_int_equal(device_figure(h, "reserved_bytes"), set_bytes);
}
