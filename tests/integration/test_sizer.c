/* The sizer in a daemon: the demand of workers changes reservations. Schedules and dry runs:
 * tests/unit/test_sizing.c. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "tests/integration/harness.h"

#define MIB       (UINT64_C(1) << 20)
#define SET_PAGES 512   /* of 4 KiB; sets of 2 MiB */
#define WAIT_MSEC 30000 /* not tuned */
#define WAIT_NSEC (WAIT_MSEC * NSEC_PER_MSEC)

#define QUICK "sizer_interval = 20ms\nsizer_window = 1s\nsizer_cooldown = 500ms\n"
#define ROOM  "memory = 64MiB\nextent = 2MiB\n"

#define PINNED "class = pinned\nlimit = 48MiB\n"
#define RANGE  "reserve = 4MiB\nreserve_min = 2MiB\nreserve_max = 24MiB\n"

static const struct private_tenant on[] = {{"a", PINNED RANGE "sizer = on\n"}, {"b", NULL}, {NULL}};
static const struct private_tenant off[] = {{"a", PINNED "reserve = 4MiB\n"}, {NULL}};

#define OPTIONS(name, t)                             \
        static const struct private_options name = { \
                .tenants = t, .daemon_lines = QUICK, .device_lines = ROOM}
OPTIONS(sizer_on, on);
OPTIONS(unsized, off);

static const struct private_options seldom = {
        .tenants = on, .daemon_lines = "sizer_interval = 1h\n", .device_lines = ROOM};

/* ---- what kvleasectl shows ------------------------------------------------------------------ */

struct region {
        uint64_t size, demand, p99, target, min, max, changes, used;
        char sizer[16], decision[16], why[512];
};

static uint64_t number(json_t *row, const char *name)
{
        json_t *value = json_object_get(row, name);

        if (!json_is_integer(value))
                fail_msg("no number %s in a region", name);
        return (uint64_t)json_integer_value(value);
}

static void text(json_t *row, const char *name, char *buf, size_t size)
{
        const char *value = json_string_value(json_object_get(row, name));

        snprintf(buf, size, "%s", value ? value : "");
}

/* The row of the tenant; "": of the dynamic pool. */
static struct region get_region(struct harness *h, const char *tenant)
{
        json_t *reply = ctl_json(h, "regions"), *row;
        struct region r = {0};
        unsigned n = 0;
        size_t i;

        json_array_foreach(ctl_list(reply, "regions"), i, row)
        {
                if (strcmp(json_string_value(json_object_get(row, "tenant")), tenant) != 0)
                        continue;
                n++;
                r.size = number(row, "size_bytes");
                r.used = number(row, "used_bytes");
                r.target = number(row, "target_bytes");
                if (!*tenant)
                        continue;
                r.demand = number(row, "demand_bytes");
                r.p99 = number(row, "p99_bytes");
                r.min = number(row, "min_bytes");
                r.max = number(row, "max_bytes");
                r.changes = number(row, "changes");
                text(row, "sizer", r.sizer, sizeof(r.sizer));
                text(row, "decision", r.decision, sizeof(r.decision));
                text(row, "why", r.why, sizeof(r.why));
        }
        json_decref(reply);
        assert_int_equal(n, 1);
        return r;
}

static void fail_region(const char *what, const struct region *r)
{
        fail_msg("%s: size %llu, demand %llu, p99 %llu, target %llu, %s: %s", what,
                (unsigned long long)(r->size / MIB), (unsigned long long)(r->demand / MIB),
                (unsigned long long)(r->p99 / MIB), (unsigned long long)(r->target / MIB),
                r->decision, r->why);
}

/* Until `size` is reserved and the decision is that, if any is named. */
static struct region wait_region(struct harness *h, uint64_t size, const char *decision)
{
        for (uint64_t end = clock_now_nsec() + WAIT_NSEC;;) {
                struct region r = get_region(h, "a");

                if (r.size == size && (!decision || strcmp(r.decision, decision) == 0))
                        return r;
                if (clock_now_nsec() >= end)
                        fail_region("it stays so", &r);
                sleep_msec(5);
        }
}

/* Waits until demand is of recent samples only. */
static struct region wait_demand(struct harness *h, uint64_t bytes)
{
        for (uint64_t end = clock_now_nsec() + WAIT_NSEC;;) {
                struct region r = get_region(h, "a");

                if (r.demand == bytes)
                        return r;
                if (clock_now_nsec() >= end)
                        fail_region("demand stays so", &r);
                sleep_msec(5);
        }
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* A peak, calm, a higher peak: the reservation follows within its limits. */
HARNESS_TEST(test_follows_demand, &sizer_on)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        struct region r;

        worker_tell(w, "lease %u", 5 * SET_PAGES);
        r = wait_region(h, 10 * MIB, "grow");
        assert_string_equal(r.sizer, "on");
        assert_string_equal(r.why, "demand is more than is reserved");
        assert_int_equal(r.demand, 10 * MIB);
        assert_int_equal(r.p99, 10 * MIB);
        assert_int_equal(r.target, 10 * MIB);
        assert_int_equal(r.used, 10 * MIB);
        assert_int_equal(r.min, 2 * MIB);
        assert_int_equal(r.max, 24 * MIB);
        assert_int_equal(get_region(h, "").size, 54 * MIB);
        worker_stop(w);
        r = wait_region(h, 2 * MIB, "shrink");
        assert_int_equal(r.demand, 0);
        assert_true(r.changes >= 3); /* not all at once */
        w = worker_start(h, "a", "ns", 1);
        worker_tell(w, "lease %u", 8 * SET_PAGES);
        worker_tell(w, "lease %u", 8 * SET_PAGES);
        r = wait_region(h, 24 * MIB, "at-max");
        assert_int_equal(r.demand, 32 * MIB);
}

static void refused(struct harness *h, const char *words, const char *why)
{
        struct proc_output o;

        assert_int_not_equal(ctl_run(h, words, &o), 0);
        if (!strstr(o.err, why))
                fail_msg("kvleasectl %s: no \"%s\" in \"%s\"", words, why, o.err);
        proc_output_free(&o);
}

/*
 * A configured value takes effect again if it is set again, or if the sizer no longer changes it.
 */
HARNESS_TEST(test_configured_again, &sizer_on)
{
        wait_region(h, 2 * MIB, NULL); /* no tenant needs memory */
        ctl(h, "tenants set a reserve=4MiB");
        assert_int_equal(get_region(h, "a").size, 4 * MIB);
        ctl(h, "tenants set a reserve=16MiB");
        wait_region(h, 2 * MIB, "shrink");
        ctl(h, "tenants set a sizer=dry-run");
        assert_int_equal(get_region(h, "a").size, 16 * MIB);
        /* The configured reservation doesn't fit any more: nothing is changed, with a message. */
        ctl(h, "tenants set a sizer=on");
        wait_region(h, 2 * MIB, "shrink");
        ctl(h, "tenants set b class=pinned reserve=54MiB");
        refused(h, "tenants set a reserve=16MiB", "b");
        refused(h, "tenants set a sizer=off weight=7", "16 MiB can't be reserved");
        refused(h, "tenants set a sizer=dry-run", "b");
        assert_string_equal(get_region(h, "a").sizer, "on");
        assert_true(get_region(h, "a").size < 16 * MIB);
        ctl(h, "tenants set b class=dynamic reserve=0");
        ctl(h, "tenants set a weight=8"); /* a refused change isn't made later */
        assert_true(get_region(h, "a").size < 16 * MIB);
        ctl(h, "tenants set a sizer=off reserve=8MiB");
        assert_int_equal(get_region(h, "a").size, 8 * MIB);
}

/* The reservation didn't fit at start. The sizer continues from the smaller one, and changes of
 * other options keep it. */
HARNESS_TEST(test_cut_at_start, &sizer_on)
{
        static const struct private_options small = {.tenants = on,
                .daemon_lines = QUICK,
                .device_lines = "memory = 48MiB\nextent = 2MiB\n"};
        uint64_t end = clock_now_nsec() + WAIT_NSEC;

        ctl(h, "tenants set a reserve=40MiB reserve_max=40MiB");
        ctl(h, "tenants set b class=pinned reserve=20MiB reserve_min=2MiB sizer=on");
        assert_int_equal(private_daemon_configure(&h->daemon, &small), 0);
        harness_restart(h);
        wait_region(h, 2 * MIB, "shrink");
        while (get_region(h, "b").size > 2 * MIB && clock_now_nsec() < end)
                sleep_msec(5);
        ctl(h, "tenants set b weight=7");
        assert_int_equal(get_region(h, "b").size, 2 * MIB);
        ctl(h, "tenants set b sizer=off");
        assert_int_equal(get_region(h, "b").size, 20 * MIB);
}

/* Another interval is in force at once, and not when the old one is over. */
HARNESS_TEST(test_reload, &seldom)
{
        struct worker *w;

        wait_demand(h, 0);
        wait_region(h, 4 * MIB, "learning"); /* the first sample */
        w = worker_start(h, "a", "ns", 1);
        worker_tell(w, "lease %u", 5 * SET_PAGES);
        assert_int_equal(private_daemon_configure(&h->daemon, &sizer_on), 0);
        assert_int_equal(kill(h->daemon.pid, SIGHUP), 0);
        wait_region(h, 10 * MIB, "grow");
}

/* Voluntary context switches of the daemon's first thread. */
static unsigned long switches(struct harness *h)
{
        char path[64], line[256];
        unsigned long n = 0;
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%d/status", (int)h->daemon.pid);
        f = fopen(path, "re");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f))
                if (sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1)
                        break;
        fclose(f);
        return n;
}

/* Waits for that many of the daemon's wake-ups within the time. */
static bool wakes(struct harness *h, unsigned long n, unsigned for_msec)
{
        unsigned long before = switches(h);

        for (unsigned msec = 0; msec < for_msec; msec += 20) {
                sleep_msec(20);
                if (switches(h) - before >= n)
                        return true;
        }
        return false;
}

/* Until it sleeps, all but a few times, for as long as 30 samples would take. */
static void wait_quiet(struct harness *h)
{
        for (unsigned n = 0; wakes(h, 10, 600); n++)
                assert_true(n < 100);
}

/* Without a sizer no demand is measured; a new sizer is served at once. */
HARNESS_TEST(test_wakes_for_sizers_alone, &unsized)
{
        wait_quiet(h);
        ctl(h, "tenants set a reserve_min=4MiB reserve_max=8MiB sizer=on");
        wait_region(h, 4 * MIB, "at-min");
        assert_true(wakes(h, 30, WAIT_MSEC));
        ctl(h, "tenants set a sizer=off");
        wait_region(h, 4 * MIB, "none");
        wait_quiet(h);
}
