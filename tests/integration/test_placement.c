/* Several devices: placement of namespaces and reservations, budgets, and tenants with a device of
 * their own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/integration/harness.h"

#define DEVICES "host, host-1, host-2"
#define MIB     (UINT64_C(1) << 20)

/* Three devices of 8, 6 and 4 MiB. */
#define SECTIONS                                                           \
        "[device host-1]\nmemory = 6MiB\nextent = 2MiB\n[device host-2]\n" \
        "memory = 4MiB\nextent = 2MiB\n"

static const struct private_tenant rows[] = {{"pack", NULL}, {"spread", "placement = spread\n"},
        {"last", "placement = device=host-2\n"}, {"hermit", "exclusive = on\nplacement = spread\n"},
        {NULL, NULL}};
static const struct private_options three = {
        .devices = DEVICES,
        .device_lines = "memory = 8MiB\nextent = 2MiB\n" SECTIONS,
        .tenants = rows,
};

/* A worker of the tenant, without a namespace. */
static struct worker *join(struct harness *h, const char *tenant)
{
        struct worker *w = worker_spawn(h);
        char socket[PRIVATE_PATH_MAX];

        worker_tell(w, "connect %s", private_daemon_socket(&h->daemon, tenant, socket));
        return w;
}

static void assert_on(struct worker *w, const char *device)
{
        char word[64];

        snprintf(word, sizeof(word), "device=%s ", device);
        worker_tell(w, "info");
        if (!strstr(w->rest, word))
                fail_msg("not on %s: %s", device, w->rest);
}

/* Opens the namespace where the daemon puts it. */
static void open_on(struct worker *w, const char *ns, const char *device)
{
        worker_tell(w, "open %s 1", ns);
        assert_on(w, device);
}

static void leave(struct worker *w)
{
        worker_tell(w, "close");
}

static json_int_t device_number(struct harness *h, const char *device, const char *name)
{
        json_t *reply = ctl_json(h, "devices"), *d;
        json_int_t value = -1;
        size_t i;

        json_array_foreach(ctl_list(reply, "devices"), i,
                d) if (strcmp(json_string_value(json_object_get(d, "name")), device) == 0) value =
                json_integer_value(json_object_get(d, name));
        json_decref(reply);
        assert_true(value >= 0);
        return value;
}

static void assert_refused(struct harness *h, const char *words, const char *why)
{
        struct proc_output o;
        int status = ctl_run(h, words, &o);

        if (status == 0 || !strstr(o.err, why))
                fail_msg("kvleasectl %s: status %d, \"%s\" without \"%s\"", words, status, o.err,
                        why);
        proc_output_free(&o);
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

/* A budget in percent; 'memory' counts more. */
HARNESS_TEST(test_memory_ratio, &three)
{
        static const struct private_options half = {
                .devices = "host, host-1",
                .device_lines = "memory = 8MiB\nmemory_ratio = 50\nextent = 2MiB\n"
                                "[device host-1]\nmemory_ratio = 50\n",
                .tenants = rows,
        };
        static const struct private_options all = {
                .devices = "host, host-1",
                .device_lines =
                        "memory = 8MiB\nextent = 2MiB\n[device host-1]\nmemory_ratio = 100\n",
                .tenants = rows,
        };
        json_int_t total = device_number(h, "host", "total_bytes"), budget;

        assert_int_equal(private_daemon_configure(&h->daemon, &half), 0);
        harness_restart(h);
        assert_int_equal(device_number(h, "host", "budget_bytes"), 8 * MIB);
        budget = device_number(h, "host-1", "budget_bytes");
        assert_in_range(budget, total / 2 - 100, total / 2);
        assert_int_equal(device_number(h, "host-1", "memory_ratio"), 50);
        assert_false(log_has(h, "MiB together"));
        /* Started all the same, without host-2. */
        assert_true(log_has(h, "error: tenant last: placement names device host-2"));
        assert_refused(h, "tenants set last weight=5", "placement names device host-2");
        assert_int_equal(private_daemon_configure(&h->daemon, &all), 0);
        harness_restart(h);
        assert_in_range(device_number(h, "host-1", "budget_bytes"), total - 100, total);
        assert_true(log_has(h, "the host's 2 devices may lease"));
}

/* The tenant's device, unless the client names another. */
HARNESS_TEST(test_named, &three)
{
        struct worker *w = join(h, "last");
        uint32_t pages[2];

        open_on(w, "a", "host-2");
        worker_publish_chain(w, 1, 2, pages);
        worker_tell(w, "verify %u 1001", pages[1]);
        leave(w);
        worker_tell(w, "open b 1 - - - host-1");
        assert_on(w, "host-1");
        leave(w);
        assert_int_equal(worker_ask(w, "open c 1 - - - host-7"), -ENOENT);
        assert_non_null(strstr(w->rest, "no device host-7"));
        assert_int_equal(worker_ask(w, "open a 1 - - - host"), 8); /* KVL_LAYOUT: it is elsewhere */
        worker_stop(w);
        assert_refused(h, "tenants set last placement=device=host-7",
                "placement names device host-7, which kvleased doesn't own");
        assert_refused(h, "tenants set last placement=nowhere", "placement: 'nowhere' is unknown");
        ctl(h, "tenants set last placement=device=host-1");
        w = join(h, "last");
        open_on(w, "d", "host-1");
}

/* An exclusive tenant shares its devices with no other, and gets no device that others use. */
HARNESS_TEST(test_exclusive, &three)
{
        struct worker *pack = join(h, "pack"), *alone = join(h, "hermit"), *last = join(h, "last");

        open_on(pack, "a", "host");
        open_on(alone, "a", "host-1");
        /* Neither by choice nor by name. */
        open_on(last, "a", "host-2");
        leave(pack);
        assert_int_equal(worker_ask(pack, "open b 1 - - - host-1"), -EACCES);
        assert_non_null(strstr(pack->rest, "device host-1 is kept for one tenant alone"));
        assert_null(strstr(pack->rest, "hermit")); /* the tenant's name isn't shown to others */
        leave(alone);
        assert_int_equal(worker_ask(alone, "open b 1 - - - host"), -EACCES);
        assert_non_null(strstr(alone->rest, "others are on device host"));
        open_on(alone, "b", "host-1");
        /* Nor by placement. */
        ctl(h, "tenants set pack placement=device=host-1");
        assert_int_equal(worker_ask(pack, "open b 1"), -EACCES);
        assert_non_null(strstr(pack->rest, "is kept for another one alone"));
        leave(alone);
        worker_stop(alone);
        /* The tenant leaves: others may use the device. */
        ctl_wait_status(h, "n_clients", 2);
        ctl(h, "purge --remove hermit");
        worker_tell(pack, "open b 1 - - - host-1");
        worker_stop(pack);
        worker_stop(last);
        /* Other tenants use the device of its namespace. */
        ctl(h, "tenants set pack placement=pack");
        alone = join(h, "spread");
        worker_tell(alone, "open a 1 - - - host");
        worker_stop(alone);
        assert_refused(h, "tenants set spread exclusive=on",
                "tenant spread can't have device host for itself");
        ctl_wait_status(h, "n_clients", 0);
        ctl(h, "purge --remove spread");
        ctl(h, "tenants set spread exclusive=on");
}

static json_int_t reserved_on(struct harness *h, const char *device)
{
        return device_number(h, device, "reserved_bytes");
}

/* Reservations go where the tenant is placed. */
HARNESS_TEST(test_reservations, &three)
{
        struct worker *w;

        ctl(h, "tenants set pack class=pinned reserve=4MiB");
        assert_int_equal(reserved_on(h, "host"), 4 * MIB);
        ctl(h, "tenants set spread class=pinned reserve=6MiB");
        assert_int_equal(reserved_on(h, "host"), 6 * MIB);
        assert_int_equal(reserved_on(h, "host-1"), 2 * MIB);
        assert_int_equal(reserved_on(h, "host-2"), 2 * MIB);
        assert_refused(h, "tenants set last class=pinned reserve=4MiB", "spread");
        assert_int_equal(reserved_on(h, "host-2"), 2 * MIB);
        assert_int_equal(ctl_tenant(h, "last", "reserve_bytes"), 0);
        ctl(h, "tenants set last class=pinned reserve=2MiB");
        assert_int_equal(reserved_on(h, "host-2"), 4 * MIB);
        /* The placement changes, the reservation moves. */
        ctl(h, "tenants set last placement=device=host-1");
        assert_int_equal(reserved_on(h, "host-2"), 2 * MIB);
        assert_int_equal(reserved_on(h, "host-1"), 4 * MIB);
        harness_restart(h);
        assert_int_equal(reserved_on(h, "host"), 6 * MIB);
        assert_int_equal(reserved_on(h, "host-1"), 4 * MIB);
        assert_int_equal(reserved_on(h, "host-2"), 2 * MIB);
        ctl(h, "tenants set pack class=dynamic reserve=0");
        assert_int_equal(reserved_on(h, "host"), 2 * MIB);
        /* Its reservation grows beyond the room of its namespace's device, and stays there. */
        ctl(h, "tenants set spread class=dynamic reserve=0");
        ctl(h, "tenants set last class=dynamic reserve=0");
        ctl(h, "tenants set pack class=pinned reserve=2MiB placement=device=host-2");
        w = join(h, "pack");
        open_on(w, "ns", "host-2");
        ctl(h, "tenants set pack placement=pack reserve=6MiB");
        assert_int_equal(reserved_on(h, "host-2"), 4 * MIB);
        assert_int_equal(reserved_on(h, "host"), 2 * MIB);
}
