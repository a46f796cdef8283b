/* Tenants: limits, separation, administration, and state that survives a restart. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/integration/harness.h"

static const struct private_tenant two[] = {
        {"a", "limit = 4MiB\n"}, {"b", "limit = 8MiB\n"}, {NULL, NULL}};
static const struct private_options two_tenants = {.tenants = two};

/* 4 MiB of pages of 4 KiB are 1024 pages, not one more; cached pages stay. */
HARNESS_TEST(test_quota, &two_tenants)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        uint32_t pages[1025];

        worker_publish_chain(w, 1, 4, pages);
        worker_tell(w, "lease 1020");
        assert_int_equal(worker_ask(w, "lease 1"), 3); /* KVL_QUOTA */
        if (!strstr(w->rest, "4 MiB") && !strstr(w->rest, "4MiB") && !strstr(w->rest, "4.0 MiB"))
                fail_msg("no limit and usage in \"%s\"", w->rest);
        for (unsigned i = 0; i < 4; ++i)
                worker_tell(w, "verify %u %u", pages[i], 1000 + i);
        assert_int_equal(ctl_tenant(h, "a", "charged_bytes"), 4 << 20);
        assert_int_equal(ctl_tenant(h, "a", "refusals"), 1);
        assert_int_equal(ctl_tenant(h, "a", "pages_granted"), 1020);
        worker_tell(w, "events");
        assert_non_null(strstr(w->rest, "pressure"));
}

/* Another tenant's namespace of this name, with these keys, has other pages. They have none of the
 * first one's bytes. */
HARNESS_TEST(test_separation, &two_tenants)
{
        struct worker *a = worker_start(h, "a", "ns", 1), *b = worker_start(h, "b", "ns", 1);
        uint32_t pages[8], fresh[600];
        char token[64];
        char socket[PRIVATE_PATH_MAX];
        struct worker *spy;

        worker_publish_chain(a, 1, 8, pages);
        assert_int_equal(worker_ask(b, "lookup 1:0-7"), 1);
        worker_tell(b, "lease 600");
        worker_numbers(b, fresh, 600);
        worker_tell(b, "zeros %u %u %u %u", fresh[0], fresh[1], fresh[511], fresh[599]);
        assert_int_equal(atoi(b->rest), 0);
        worker_tell(a, "lease 1");
        worker_numbers(a, pages, 1);
        worker_tell(a, "poke %u 55", pages[0]);
        worker_tell(b, "zeros %u", fresh[0]);
        assert_int_equal(atoi(b->rest), 0);
        snprintf(token, sizeof(token), "%s", worker_tell(a, "token"));
        spy = worker_spawn(h);
        assert_int_equal(worker_ask(spy, "connect %s %s",
                                 private_daemon_socket(&h->daemon, "b", socket), token),
                -ENOENT);
        worker_kill(spy);
}

HARNESS_TEST(test_administration, &two_tenants)
{
        struct worker *w;
        struct proc_output o;

        ctl(h, "tenants add c limit=2MiB weight=7");
        assert_int_equal(ctl_tenant(h, "c", "limit_bytes"), 2 << 20);
        w = worker_start(h, "c", "ns", 1);
        worker_tell(w, "lease 512");
        assert_int_equal(worker_ask(w, "lease 1"), 3);
        ctl(h, "tenants set c limit=6MiB");
        worker_tell(w, "lease 512");
        assert_int_not_equal(ctl_run(h, "tenants remove c", &o), 0);
        proc_output_free(&o);
        worker_stop(w);
        ctl_wait_status(h, "n_clients", 0);
        ctl(h, "tenants set a limit=3MiB");
        harness_restart(h);
        assert_int_equal(ctl_tenant(h, "c", "limit_bytes"), 6 << 20);
        assert_int_equal(ctl_tenant(h, "c", "weight"), 7);
        assert_int_equal(ctl_tenant(h, "a", "limit_bytes"), 3 << 20);
        w = worker_start(h, "c", "ns", 1);
        worker_stop(w);
        ctl_wait_status(h, "n_clients", 0);
        assert_int_not_equal(ctl_run(h, "tenants remove c", &o), 0);
        assert_non_null(strstr(o.err, "still has namespaces (1), which hold no cached page"));
        proc_output_free(&o);
        ctl(h, "tenants remove --force c");
        w = worker_spawn(h);
        assert_true(worker_ask(w, "connect %s/t/c/sock", h->daemon.runtime) < 0);
        worker_kill(w);
        harness_restart(h);
        assert_int_equal(ctl_status(h, "n_tenants"), 2);
}

/* The findings of status have the words. */
static void assert_found(struct harness *h, const char *words)
{
        json_t *status = ctl_json(h, "status");
        char *text = json_dumps(json_object_get(status, "findings"), 0);

        if (!strstr(text, words))
                fail_msg("no \"%s\" in: %s", words, text);
        free(text);
        json_decref(status);
}

/* A tenant that can hold no extent set is made all the same, and said at every place. */
HARNESS_TEST(test_a_tenant_that_can_lease_nothing, &two_tenants)
{
        static const char said[] =
                "tenant c can lease no page: its limit of 1 MiB is less than an extent set";
        static const struct private_tenant three[] = {{"a", "limit = 4MiB\n"},
                {"b", "limit = 8MiB\n"}, {"d", "limit = 1MiB\n"}, {NULL, NULL}};
        const struct private_options o = {.tenants = three};
        struct proc_output out;

        assert_int_equal(ctl_run(h, "tenants add c limit=1MiB", &out), 0);
        assert_non_null(strstr(out.err, said));
        assert_non_null(strstr(out.err, "raise its limit to 2 MiB"));
        proc_output_free(&out);
        assert_int_equal(ctl_run(h, "tenants set c weight=7", &out), 0);
        assert_non_null(strstr(out.err, said));
        proc_output_free(&out);
        assert_int_equal(ctl_status(h, "tenants_without_room"), 1);
        assert_found(h, said);
        assert_true(ctl_run(h, "doctor", &out) >= 7);
        assert_non_null(strstr(out.out, said));
        proc_output_free(&out);
        assert_int_equal(private_daemon_configure(&h->daemon, &o), 0);
        assert_int_equal(ctl_run(h, "reload", &out), 0);
        assert_non_null(strstr(out.out, "warning: tenant d can lease no page"));
        proc_output_free(&out);
        assert_int_equal(ctl_status(h, "tenants_without_room"), 2);
        assert_int_equal(ctl_run(h, "tenants set c limit=2MiB", &out), 0);
        assert_string_equal(out.err, "");
        proc_output_free(&out);
        /* Reservations of others leave the tenant no room, either. */
        ctl(h, "tenants set a limit=none class=pinned reserve=256MiB");
        assert_found(h, "reservations of others leave it 0 B, less than an extent set");
        ctl(h, "tenants set a lend_idle_reserve=on");
        assert_int_equal(ctl_status(h, "tenants_without_room"), 1);
        ctl(h, "tenants set a class=dynamic reserve=0 limit=4MiB lend_idle_reserve=off");
        ctl(h, "tenants remove c");
        assert_int_equal(private_daemon_configure(&h->daemon, &two_tenants), 0);
        ctl(h, "reload");
        assert_int_equal(ctl_status(h, "tenants_without_room"), 0);
}

#define MIB (UINT64_C(1) << 20)

/* Runs a command that must be refused; the reason has `why` and `who` in it. */
static void refused(struct harness *h, const char *words, const char *why, const char *who)
{
        struct proc_output o;

        assert_int_not_equal(ctl_run(h, words, &o), 0);
        if (!strstr(o.err, why) || !strstr(o.err, who))
                fail_msg("kvleasectl %s: no \"%s\" and \"%s\" in \"%s\"", words, why, who, o.err);
        proc_output_free(&o);
}

/* A reservation takes effect at once and after a restart, or is refused. The refusal names the
 * tenants with the rest. */
HARNESS_TEST(test_reservations, &two_tenants)
{
        ctl(h, "tenants set a limit=none class=pinned reserve=200MiB");
        assert_int_equal(ctl_tenant(h, "a", "reserve_bytes"), 200 * MIB);
        ctl(h, "tenants set b limit=none");
        refused(h, "tenants set b class=pinned reserve=100MiB", "56 MiB", "a");
        refused(h, "tenants add c class=pinned reserve=58MiB", "56 MiB", "a");
        assert_int_equal(ctl_status(h, "n_tenants"), 2);
        assert_int_equal(ctl_tenant(h, "b", "reserve_bytes"), 0);
        refused(h, "tenants add c group=nosuchgroup", "there is no group nosuchgroup", "groupadd");
        refused(h, "tenants set b reserve=1MiB", "reserve is for a tenant with class", "pinned");
        refused(h, "tenants set a limit=100MiB", "reserve (200 MiB) is above", "limit");
        refused(h, "tenants set a class=dynamic", "reserve is for a tenant", "pinned");
        refused(h, "tenants set a reserve_max=1MiB reserve=0", "less than an extent set", "2 MiB");
        harness_restart(h); /* nothing refused was kept */
        assert_int_equal(ctl_tenant(h, "a", "reserve_bytes"), 200 * MIB);
        assert_int_equal(ctl_tenant(h, "b", "reserve_bytes"), 0);
        ctl(h, "tenants set b class=pinned reserve=56MiB weight=7");
        ctl(h, "tenants set a weight=5"); /* all is reserved: other changes go on */
        refused(h, "tenants set a reserve=202MiB", "b", "56 MiB");
        assert_int_equal(ctl_tenant(h, "a", "reserve_bytes"), 200 * MIB);
        ctl(h, "tenants set a reserve=20MiB");
        ctl(h, "tenants set b reserve=236MiB");
        ctl(h, "tenants add c");
        refused(h, "tenants set c class=pinned reserve=2MiB", "b", "a");
        ctl(h, "tenants remove c");
        ctl(h, "tenants set a reserve=0 class=dynamic limit=4MiB");
        ctl(h, "tenants set b reserve=0 class=dynamic limit=8MiB");
}

/* The crossover of the policy of tenant a's namespace. */
static uint64_t crossover_of(struct harness *h, const char *ns)
{
        json_t *reply = ctl_json(h, "namespaces --tenant a"), *row;
        uint64_t crossover = UINT64_MAX;
        size_t i;

        json_array_foreach(ctl_list(reply, "namespaces"), i, row)
        {
                if (strcmp(json_string_value(json_object_get(row, "name")), ns) == 0)
                        crossover = (uint64_t)json_integer_value(
                                json_object_get(row, "attention_crossover"));
        }
        json_decref(reply);
        return crossover;
}

/* The cost of a miss reaches the policies of namespaces made from then on; after a restart, of all
 * namespaces. With policy lru it is refused. */
HARNESS_TEST(test_miss_cost, &two_tenants)
{
        struct worker *before, *after;

        before = worker_start(h, "a", "before", 1);
        assert_int_equal(crossover_of(h, "before"), 0);
        refused(h, "tenants set a evict=lru miss_cost=compute", "is for evict = pgi",
                "evict is lru");
        refused(h, "tenants set a attention_crossover=0", "attention_crossover", "1 to 16777216");
        ctl(h, "tenants set a miss_cost=compute attention_crossover=20000");
        refused(h, "tenants set a evict=lru", "is for evict = pgi", "evict is lru");
        after = worker_start(h, "a", "after", 1);
        assert_int_equal(crossover_of(h, "before"), 0);
        assert_int_equal(crossover_of(h, "after"), 20000);
        worker_publish_chain(after, 1, 8, (uint32_t[8]){0});
        worker_stop(before);
        worker_stop(after);
        harness_restart(h);
        assert_int_equal(ctl_tenant(h, "a", "attention_crossover"), 20000);
        before = worker_start(h, "a", "before", 1);
        after = worker_start(h, "a", "after", 1);
        assert_int_equal(crossover_of(h, "before"), 20000);
        assert_int_equal(crossover_of(h, "after"), 20000);
        worker_publish_chain(after, 2, 8, (uint32_t[8]){0});
        worker_stop(before);
        worker_stop(after);
        ctl(h, "tenants set a miss_cost=tokens evict=lru");
}

/* After a tenant's removal its reservation is free. A tenant with clients stays, and so does its
 * reservation. */
HARNESS_TEST(test_removed_with_reservation, &two_tenants)
{
        struct worker *w;

        ctl(h, "tenants add c class=pinned reserve=256MiB");
        w = worker_start(h, "c", "ns", 1);
        worker_tell(w, "lease 600");
        refused(h, "tenants remove c --force", "clients", "c");
        ctl(h, "tenants set a limit=none");
        refused(h, "tenants set a class=pinned reserve=2MiB", "c", "256 MiB");
        worker_tell(w, "lease 600");
        worker_stop(w);
        ctl_wait_status(h, "n_clients", 0);
        ctl(h, "tenants remove c --force");
        ctl(h, "tenants set a class=pinned reserve=256MiB");
        assert_int_equal(ctl_tenant(h, "a", "reserve_bytes"), 256 * MIB);
        ctl(h, "tenants set a class=dynamic reserve=0 limit=4MiB");
}

static bool log_has(struct harness *h, const char *words)
{
        char *text;
        size_t len;
        bool found;

        assert_int_equal(file_read(h->daemon.log, 16 << 20, &text, &len), 0);
        found = strstr(text, words);
        free(text);
        return found;
}

/* The device has less memory than was reserved. The daemon starts with reservations that fit, and
 * reports the others. */
HARNESS_TEST(test_promises_that_fit_no_more, &two_tenants)
{
        static const struct private_options small = {
                .device_lines = "memory = 64MiB\nextent = 2MiB\n", .tenants = two};
        struct worker *w;

        ctl(h, "tenants set a limit=none class=pinned reserve=100MiB");
        ctl(h, "tenants set b limit=none class=pinned reserve=20MiB");
        assert_int_equal(private_daemon_configure(&h->daemon, &small), 0);
        harness_restart(h);
        /* A tenant whose reservation still fits has all of it. */
        assert_int_equal(ctl_tenant(h, "b", "reserve_bytes"), 20 * MIB);
        assert_int_equal(ctl_tenant(h, "a", "reserve_bytes"), 44 * MIB);
        assert_true(log_has(h, "it runs with a reservation of 44 MiB instead of 100 MiB"));
        w = worker_start(h, "a", "ns", 1);
        worker_tell(w, "lease 4000");
        worker_stop(w);
        ctl(h, "tenants set a weight=3");
        assert_int_equal(ctl_tenant(h, "a", "reserve_bytes"), 44 * MIB);
        refused(h, "tenants set a reserve=100MiB", "44 MiB", "b"); /* as configured */
        /* There is room again, and a change that tries. */
        ctl(h, "tenants set b class=dynamic reserve=0");
        ctl(h, "tenants set a reserve=50MiB");
        assert_int_equal(ctl_tenant(h, "a", "reserve_bytes"), 50 * MIB);
}

/* One tenant's options contradict a file or devices changed since: all tenants start, with a
 * message. */
HARNESS_TEST(test_changes_that_fit_no_more, &two_tenants)
{
        static const struct private_tenant limited[] = {{"b", "limit = 4MiB\n"}, {NULL}};
        static const struct private_options changed = {
                .tenants = limited, .device_lines = "memory = 256MiB\nextent = 32MiB\n"};
        struct proc_output o;

        ctl(h, "tenants add c class=pinned reserve=4MiB reserve_max=6MiB");
        ctl(h, "tenants set b class=pinned reserve=6MiB");
        assert_int_equal(private_daemon_configure(&h->daemon, &changed), 0);
        harness_restart(h);
        assert_int_equal(ctl_tenant(h, "b", "reserve_bytes"), 0);
        assert_int_equal(ctl_tenant(h, "c", "reserve_bytes"), 0);
        assert_int_equal(ctl_tenant(h, "c", "reserve_configured_bytes"), 4 * MIB);
        assert_true(log_has(h, "tenant b: reserve (6 MiB) is above the tenant's limit (4 MiB)"));
        assert_true(log_has(h, "tenant c: reserve_max (6 MiB) is less than an extent set"));
        assert_true(log_has(h, "tenants set c, it has no reservation"));
        refused(h, "tenants set c weight=7", "reserve_max (6 MiB)", "extent set");
        ctl(h, "tenants set c reserve_max=auto");
        assert_int_equal(ctl_tenant(h, "c", "reserve_bytes"), 32 * MIB);
        assert_int_equal(ctl_run(h, "tenants show c", &o), 0);
        assert_non_null(strstr(o.out, "32 MiB (4 MiB configured)"));
        proc_output_free(&o);
        ctl(h, "tenants set b limit=40MiB");
        assert_int_equal(ctl_tenant(h, "b", "reserve_bytes"), 32 * MIB);
}

/*
 * A missing group in the configuration only causes a warning; other options can still be changed.
 */
static const struct private_tenant missing_group[] = {{"a", "group = nosuchgroup\n"}, {NULL, NULL}};
static const struct private_options with_missing_group = {.tenants = missing_group};

HARNESS_TEST(test_missing_group, &with_missing_group)
{
        ctl(h, "tenants set a weight=9");
        assert_int_equal(ctl_tenant(h, "a", "weight"), 9);
        refused(h, "tenants set a group=norisgroup", "there is no group norisgroup", "groupadd");
        ctl(h, "tenants set a group=");
}
