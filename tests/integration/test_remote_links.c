/*
 * The Redis client against a cluster on three hosts, which are network namespaces. A link goes
 * down, a host's answers are lost, a link is slow. Each host has a master, and a replica of another
 * host's. Skipped where namespaces aren't permitted.
 */
/* Before cmocka, whose fail() is a macro. */
#include "tests/unit/remote-fixture.h"

#include <errno.h>
#include <stdio.h>

#include "base/macros.h"
#include "daemon/remote/protocol/slots.h"
#include "tests/integration/host-net.h"
#include "tests/integration/oversleep.h"
#include "tests/integration/private-daemon.h"
#include "tests/integration/redis-cluster.h"

#define N_HOSTS     3
#define N_KEYS      60
#define VALUE_BYTES 200000 /* 0.2 s on a slow link */
#define SHORT_MSEC  50     /* deadline of operations on an ill host */
#define ILL_NSEC    (3 * NSEC_PER_SEC)
#define LATE_NSEC   (10 * NSEC_PER_MSEC)
#define OPENS_NSEC  NSEC_PER_SEC

/* A replica takes over after the node timeout of 2 s, and some rounds of messages. Longer than that
 * on a machine that is busy with other tests. */
#define FAILOVER_NSEC (180 * NSEC_PER_SEC) /* a busy machine; not tuned */

#define N_LATE 4096

static struct host_net net;
static struct redis_place places[REDIS_MAX];
static struct redis_cluster cluster;
static struct remote_store *store;
static const char *why_not; /* the tests can't be run here; NULL: they can */

static void key_make(char key[16], unsigned i)
{
        snprintf(key, 16, "key:%u", i);
}

static unsigned slot_of(unsigned i)
{
        char key[16];

        key_make(key, i);
        return slot_of_key(key, strlen(key));
}

static int start_cluster(void)
{
        int r = redis_cluster_init(&cluster);

        if (r == -ENOENT)
                why_not = "there is no redis-server here (Debian: redis-tools)";
        if (r < 0)
                return r;
        /* Server i + N_HOSTS is the replica of server i. */
        for (unsigned i = 0; i < REDIS_MAX; i++) {
                unsigned host = (i + i / N_HOSTS) % N_HOSTS;

                places[i] = (struct redis_place){net.addresses[host], net.pids[host]};
        }
        cluster.places = places;
        return redis_cluster_create(&cluster, N_HOSTS, true);
}

static int start(void **state)
{
        const char *addresses[N_HOSTS];
        int r = host_net_init(&net, N_HOSTS);

        if (r == -EPERM)
                why_not = "network namespaces aren't permitted";
        if (r == -ENOENT)
                why_not = "links between network namespaces can't be made";
        if (r == 0)
                r = start_cluster();
        if (why_not)
                return 0;
        if (r < 0) {
                fprintf(stderr, "the cluster doesn't start: %s\n", strerror(-r));
                redis_cluster_deinit(&cluster);
                host_net_deinit(&net);
                return -1;
        }
        for (unsigned i = 0; i < N_HOSTS; i++)
                addresses[i] = cluster.servers[i].address;
        store = store_open(&(struct remote_options){
                .addresses = addresses, .n_addresses = N_HOSTS, KVLEASED_LIMITS});
        store_await_known(store);
        return 0;
}

static int stop(void **state)
{
        remote_close(store);
        redis_cluster_deinit(&cluster);
        host_net_deinit(&net);
        return 0;
}

static void skip_where_not(void)
{
        if (!why_not)
                return;
        print_message("skipped: %s\n", why_not);
        skip();
}

static void write_all(void)
{
        static uint8_t value[VALUE_BYTES];
        struct one o;
        char key[16];

        for (unsigned i = 0; i < N_KEYS; i++) {
                key_make(key, i);
                value_make(value, sizeof(value), i);
                assert_int_equal(one_call(store, REMOTE_WRITE, key, value, sizeof(value), &o), 0);
        }
}

/* Reads a key, and says how long after its deadline that ended. Returns its result; a value that
 * isn't its own fails the test. */
static int read_key(unsigned i, uint64_t msec, uint64_t *ret_late_nsec)
{
        static uint8_t value[VALUE_BYTES];
        struct iovec iov = {value, sizeof(value)};
        uint64_t deadline = in_msec(msec);
        struct one o;
        char key[16];

        key_make(key, i);
        memset(value, 0, sizeof(value));
        one_submit(store, REMOTE_READ, key, &iov, 1, deadline, &o);
        one_await(store, &o);
        if (o.result == 0) {
                assert_int_equal(o.n_bytes, sizeof(value));
                assert_true(value_is(value, sizeof(value), i));
        }
        *ret_late_nsec = o.done_nsec > deadline ? o.done_nsec - deadline : 0;
        return o.result;
}

/* ---- an ill host ---------------------------------------------------------------------------- */

static int compare_times(const void *a, const void *b)
{
        const uint64_t *x = a, *y = b;

        return *x < *y ? -1 : *x > *y;
}

/* Results while a host is ill. */
struct illness {
        unsigned n_late;
        uint64_t late_nsec[N_LATE]; /* of operations on it */
        uint64_t opened_nsec;       /* after which a breaker of its nodes was open; 0: never */
        unsigned n_read;            /* of its values */
        uint64_t asleep_nsec;       /* by the machine, of both threads that an answer needs */
};

/* Whether a master on this host has the key. */
static bool is_on_host(const int owners[REDIS_SLOTS], unsigned i, unsigned host)
{
        int owner = owners[slot_of(i)];

        assert_true(owner >= 0);
        return strcmp(cluster.servers[owner].place->host, net.addresses[host]) == 0;
}

/* For a while all keys are read in turn. Those of the ill host's masters have a short deadline. The
 * others, which must be found, have a long one. */
static void live_with(const int owners[REDIS_SLOTS], unsigned host, struct illness *ret)
{
        struct oversleep asleep;
        uint64_t started = clock_now_nsec(), late;

        *ret = (struct illness){0};
        assert_int_equal(oversleep_begin(&asleep), 0);
        for (unsigned i = 0; clock_now_nsec() - started < ILL_NSEC; i = (i + 1) % N_KEYS) {
                bool is_ill = is_on_host(owners, i, host);
                int r = read_key(i, is_ill ? SHORT_MSEC : 10000, &late);

                if (!is_ill) {
                        assert_int_equal(r, 0);
                        continue;
                }
                if (ret->n_late < N_LATE)
                        ret->late_nsec[ret->n_late++] = late;
                ret->n_read += r == 0;
                if (r == -EHOSTDOWN && ret->opened_nsec == 0)
                        ret->opened_nsec = clock_now_nsec() - started;
        }
        oversleep_end(&asleep);
        ret->asleep_nsec = 2 * asleep.worst_nsec;
        assert_true(ret->n_late > 0);
        qsort(ret->late_nsec, ret->n_late, sizeof(ret->late_nsec[0]), compare_times);
        print_message(
                "%u reads of the ill host, %u with a value; a breaker opened after %u ms; "
                "after the deadline by %u us in the median, %u us at worst (twice a thread's worst sleep: %u us)\n",
                ret->n_late, ret->n_read, (unsigned)(ret->opened_nsec / NSEC_PER_MSEC),
                (unsigned)(ret->late_nsec[ret->n_late / 2] / NSEC_PER_USEC),
                (unsigned)(ret->late_nsec[ret->n_late - 1] / NSEC_PER_USEC),
                (unsigned)(ret->asleep_nsec / NSEC_PER_USEC));
        assert_true(ret->late_nsec[ret->n_late - 1] <= LATE_NSEC + ret->asleep_nsec);
}

/* Waits until each key was read, one after the other. */
static void await_all(void)
{
        uint64_t started = clock_now_nsec(), late;

        for (unsigned i = 0, n_well = 0; n_well < N_KEYS; i = (i + 1) % N_KEYS) {
                n_well = read_key(i, 1000, &late) == 0 ? n_well + 1 : 0;
                assert_true(clock_now_nsec() - started < FAILOVER_NSEC);
        }
        print_message("all keys were there after another %u ms\n",
                (unsigned)((clock_now_nsec() - started) / NSEC_PER_MSEC));
}

/* Owners of all slots, as a server on another host reports them. */
static void ask_owners(unsigned host, int owners[REDIS_SLOTS])
{
        assert_int_equal(redis_cluster_owners(&cluster, (host + 1) % N_HOSTS, owners), 0);
}

/* A replica on another host takes over, and its keys are there again while the link is down. */
TEST_BARE(test_link_down)
{
        static int owners[REDIS_SLOTS];
        static struct illness seen;

        skip_where_not();
        write_all();
        assert_int_equal(redis_cluster_await_copied(&cluster, 0, N_HOSTS), 0);
        ask_owners(0, owners);
        assert_int_equal(host_net_set(&net, 0, HOST_NET_DOWN), 0);
        live_with(owners, 0, &seen);
        assert_true(seen.opened_nsec > 0 && seen.opened_nsec < OPENS_NSEC + seen.asleep_nsec);
        await_all();
        assert_int_equal(host_net_set(&net, 0, HOST_NET_WELL), 0);
        await_all();
}

/* The host hears all and its answers are lost; the others know nothing of it, so no replica helps.
 */
TEST_BARE(test_mute)
{
        static int owners[REDIS_SLOTS];
        static struct illness seen;

        skip_where_not();
        write_all();
        ask_owners(1, owners);
        assert_int_equal(host_net_set(&net, 1, HOST_NET_MUTE), 0);
        live_with(owners, 1, &seen);
        assert_int_equal(seen.n_read, 0);
        assert_true(seen.opened_nsec > 0 && seen.opened_nsec < OPENS_NSEC + seen.asleep_nsec);
        assert_int_equal(host_net_set(&net, 1, HOST_NET_WELL), 0);
        await_all();
}

/* A value takes longer than its deadline. The deadline was too short; the node isn't blamed. With
 * more time the value arrives. */
TEST_BARE(test_slow_link)
{
        static int owners[REDIS_SLOTS];
        static struct illness seen;
        uint64_t late;
        unsigned i = 0;

        skip_where_not();
        write_all();
        ask_owners(2, owners);
        assert_int_equal(host_net_set(&net, 2, HOST_NET_SLOW), 0);
        live_with(owners, 2, &seen);
        assert_int_equal(seen.opened_nsec, 0);
        while (!is_on_host(owners, i, 2))
                i++;
        assert_int_equal(read_key(i, 20000, &late), 0);
        assert_int_equal(host_net_set(&net, 2, HOST_NET_WELL), 0);
        await_all();
}

int main(void)
{
        return test_run_all(start, stop);
}
