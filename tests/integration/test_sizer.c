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

#define OPTIONS(name, t)                             \
        static const struct private_options name = { \
                .tenants = t, .daemon_lines = QUICK, .device_lines = ROOM}
OPTIONS(sizer_on, on);

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
