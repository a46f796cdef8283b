/*
 * The Redis client against real servers: a cluster of three masters with replicas. One master is
 * killed, one is stopped, and slots move under load. Refusals of servers, and TLS:
 * test_remote_server.c.
 */
/* Before cmocka, whose fail() is a macro. */
#include "tests/unit/remote-fixture.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>

#include "daemon/remote/protocol/slots.h"
#include "tests/integration/private-daemon.h"
#include "tests/integration/redis-cluster.h"

#define N_MASTERS   3
#define N_KEYS      300
#define VALUE_BYTES 20000
#define N_MOVES     12

/* A replica takes over after the node timeout of 2 s, and some rounds of messages. Longer than that
 * on a machine that is busy with other tests. */
#define FAILOVER_NSEC (180 * NSEC_PER_SEC) /* a busy machine; not tuned */

static struct redis_cluster cluster;
static struct remote_store *store;
static bool has_server;

static int start(void **state)
{
        const char *addresses[1];
        int r = redis_cluster_init(&cluster);

        has_server = r != -ENOENT;
        if (!has_server)
                return 0;
        if (r == 0)
                r = redis_cluster_create(&cluster, N_MASTERS, true);
        if (r < 0) {
                fprintf(stderr, "the cluster doesn't start: %s\n", strerror(-r));
                redis_cluster_deinit(&cluster);
                return -1;
        }
        addresses[0] = cluster.servers[1].address;
        store = store_open(&(struct remote_options){
                .addresses = addresses, .n_addresses = 1, KVLEASED_LIMITS});
        store_await_known(store);
        return 0;
}

static int stop(void **state)
{
        remote_close(store);
        store = NULL;
        redis_cluster_deinit(&cluster);
        return 0;
}

static void skip_without_server(void)
{
        if (has_server)
                return;
        print_message("skipped: there is no redis-server here (Debian: redis-tools)\n");
        skip();
}

static void key_make(char key[16], unsigned i)
{
        snprintf(key, 16, "key:%u", i);
}

/* All keys are there, with their values. */
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

/* Reads a key. Returns its result; a value that isn't its own fails the test. */
static int read_key(unsigned i, uint64_t msec)
{
        static uint8_t value[VALUE_BYTES];
        struct iovec iov = {value, sizeof(value)};
        struct one o;
        char key[16];

        key_make(key, i);
        memset(value, 0, sizeof(value));
        one_submit(store, REMOTE_READ, key, &iov, 1, in_msec(msec), &o);
        one_await(store, &o);
        if (o.result == 0) {
                assert_int_equal(o.n_bytes, sizeof(value));
                assert_true(value_is(value, sizeof(value), i));
        }
        return o.result;
}

static unsigned slot_of(unsigned i)
{
        char key[16];

        key_make(key, i);
        return slot_of_key(key, strlen(key));
}

/* ---- all is well ---------------------------------------------------------------------------- */

TEST_BARE(test_values)
{
        struct remote_stats stats;
        struct remote_node_stats node;
        unsigned iter = 0, n = 0;

        skip_without_server();
        write_all();
        for (unsigned i = 0; i < N_KEYS; i++)
                assert_int_equal(read_key(i, 5000), 0);
        remote_stats(store, &stats);
        assert_true(stats.is_cluster);
        assert_int_equal(stats.n_served, N_SLOTS);
        assert_int_equal(stats.n_nodes, N_MASTERS);
        /* The client knew all slots: no node had to redirect it. */
        assert_int_equal(stats.n_redirects, 0);
        while (remote_node_next(store, &iter, &node))
                n += node.n_slots > 0 && node.bytes_in > 0 && node.bytes_out > 0;
        assert_int_equal(n, N_MASTERS);
}

/* Several keys of one tag at once: how many there are, until they are removed. */
TEST_BARE(test_many_keys)
{
        struct iovec keys[] = {PIECE("{tag}1"), PIECE("{tag}2"), PIECE("{tag}3")};
        const struct {
                enum remote_kind kind;
                uint32_t n_found;
        } rows[] = {{REMOTE_PROBE, 2}, {REMOTE_TOUCH, 2}, {REMOTE_REMOVE, 2}, {REMOTE_PROBE, 0}};
        char value[1] = "a";
        struct one o;

        skip_without_server();
        assert_int_equal(one_call(store, REMOTE_WRITE, "{tag}1", value, 1, &o), 0);
        assert_int_equal(one_call(store, REMOTE_WRITE, "{tag}3", value, 1, &o), 0);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                struct remote_io *io = remote_io_new(1);

                o = (struct one){.is_done = false};
                io->kind = rows[i].kind;
                io->deadline_nsec = in_msec(15000);
                io->done = one_done;
                io->data = &o;
                io->ops[0] = (struct remote_op){.keys = keys, .n_keys = 3};
                assert_int_equal(remote_submit(store, io), 0);
                one_await(store, &o);
                assert_int_equal(o.result, 0);
                assert_int_equal(o.n_found, rows[i].n_found);
        }
}

static int write_with(
        const char *key, const char *value, uint64_t expiry_msec, bool asks_first, bool only_new)
{
        struct iovec name = {(void *)key, strlen(key)}, iov = {(void *)value, strlen(value)};
        struct remote_io *io = remote_io_new(1);
        struct one o = {.is_done = false};

        io->kind = REMOTE_WRITE;
        io->of_class = REMOTE_LARGE;
        io->deadline_nsec = in_msec(15000);
        io->done = one_done;
        io->data = &o;
        io->ops[0] = (struct remote_op){.keys = &name,
                .n_keys = 1,
                .iov = &iov,
                .n_iov = 1,
                .expiry_msec = expiry_msec,
                .asks_first = asks_first,
                .only_new = only_new};
        assert_int_equal(remote_submit(store, io), 0);
        one_await(store, &o);
        return o.result;
}

TEST_BARE(test_writes)
{
        char value[8] = "";
        struct one o;

        skip_without_server();
        assert_int_equal(write_with("w", "one", 60000, true, false), 0);
        assert_int_equal(write_with("w", "two", 60000, true, false), -EEXIST);
        assert_int_equal(write_with("w", "two", 60000, false, true), -EEXIST);
        assert_int_equal(one_call(store, REMOTE_READ, "w", value, 3, &o), 0);
        assert_string_equal(value, "one");
        assert_int_equal(write_with("w", "two", 50, false, false), 0);
        for (unsigned waited = 0; one_call(store, REMOTE_READ, "w", value, 3, &o) == 0; waited++) {
                assert_true(waited < 10000);
                sleep_msec(1);
        }
        assert_int_equal(o.result, -ENOENT);
}

/* ---- slots move ----------------------------------------------------------------------------- */

/* Returns the server with the key, as a healthy server reports it. */
static int master_of(unsigned i)
{
        static int owners[REDIS_SLOTS];

        assert_int_equal(redis_cluster_owners(&cluster, cluster.servers[0].pid ? 0 : 1, owners), 0);
        return owners[slot_of(i)];
}

struct moving {
        int owners[REDIS_SLOTS];
        _Atomic bool is_over;
};

static void *move_slots(void *data)
{
        struct moving *m = data;

        for (unsigned i = 0; i < N_MOVES; i++) {
                unsigned slot = slot_of(i);
                unsigned from = (unsigned)m->owners[slot], to = (from + 1) % N_MASTERS;

                redis_cluster_move_slot(&cluster, slot, from, to);
                m->owners[slot] = (int)to;
        }
        atomic_store(&m->is_over, true);
        return NULL;
}

/* Keys whose slots are being moved are read, one after the other: each is there all the time, but
 * where two redirections would be needed. Its bytes are its own. */
TEST_BARE(test_reshard)
{
        static struct moving moving;
        struct remote_stats before, after;
        unsigned n_reads = 0, n_again = 0;
        pthread_t thread;

        skip_without_server();
        write_all();
        remote_stats(store, &before);
        atomic_store(&moving.is_over, false);
        assert_int_equal(redis_cluster_owners(&cluster, 0, moving.owners), 0);
        assert_int_equal(pthread_create(&thread, NULL, move_slots, &moving), 0);
        for (unsigned i = 0; !atomic_load(&moving.is_over); i++, n_reads++) {
                int r = read_key(i % N_MOVES, 5000);

                assert_true(r == 0 || r == -EAGAIN);
                n_again += r == -EAGAIN;
        }
        pthread_join(thread, NULL);
        for (unsigned i = 0; i < N_KEYS; i++)
                assert_int_equal(read_key(i, 5000), 0);
        remote_stats(store, &after);
        print_message("%u slots moved during %u reads: %u redirections, %u misses\n", N_MOVES,
                n_reads, (unsigned)(after.n_redirects - before.n_redirects), n_again);
        assert_true(after.n_redirects > before.n_redirects);
        assert_true(n_again <= n_reads / 10);
}

/* ---- nodes fail ----------------------------------------------------------------------------- */

/*
 * Reads keys of a master that is ill, and of the others, until all have been there once more, one
 * after the other. Nothing is late; keys of the ill one are a miss at once, three seconds later at
 * the latest; the others' are there all the time.
 */
static void ride_out(const int owners[REDIS_SLOTS], int ill)
{
        uint64_t started = clock_now_nsec(), opened = 0;
        unsigned n_well = 0, n_lost = 0;

        for (unsigned i = 0; n_well < N_KEYS; i = (i + 1) % N_KEYS) {
                bool is_ill = owners[slot_of(i)] == ill;
                /* The others have time, as the machine may be busy. */
                int r = read_key(i, is_ill ? 100 : 10000);

                assert_true(clock_now_nsec() - started < FAILOVER_NSEC);
                if (r != 0 && !is_ill)
                        print_message("key %u of another master: %s\n", i, strerror(-r));
                n_lost += r != 0 && !is_ill;
                n_well = r == 0 ? n_well + 1 : 0;
                if (opened == 0 && r == -EHOSTDOWN)
                        opened = clock_now_nsec();
        }
        print_message("its breaker opened after %u ms, all keys were there after %u ms\n",
                (unsigned)((opened - started) / NSEC_PER_MSEC),
                (unsigned)((clock_now_nsec() - started) / NSEC_PER_MSEC));
        assert_int_equal(n_lost, 0);
        assert_true(opened > 0 && opened - started < 3 * NSEC_PER_SEC);
}

TEST_BARE(test_killed_master)
{
        static int owners[REDIS_SLOTS];
        int ill;

        skip_without_server();
        write_all();
        ill = master_of(3);
        assert_true(ill >= 0);
        assert_int_equal(
                redis_cluster_await_copied(&cluster, (unsigned)ill, (unsigned)ill + N_MASTERS), 0);
        assert_int_equal(redis_cluster_owners(&cluster, (unsigned)ill, owners), 0);
        kill(cluster.servers[ill].pid, SIGKILL);
        waitpid(cluster.servers[ill].pid, NULL, 0);
        cluster.servers[ill].pid = 0;
        ride_out(owners, ill);
}

TEST_BARE(test_stopped_master)
{
        static int owners[REDIS_SLOTS];
        int ill;

        skip_without_server();
        ill = master_of(5);
        assert_true(ill >= 0);
        assert_int_equal(
                redis_cluster_await_copied(&cluster, (unsigned)ill, (unsigned)ill + N_MASTERS), 0);
        assert_int_equal(redis_cluster_owners(&cluster, (unsigned)ill, owners), 0);
        kill(cluster.servers[ill].pid, SIGSTOP);
        ride_out(owners, ill);
        /* The server returns as a replica, and redirects clients that still ask it. */
        kill(cluster.servers[ill].pid, SIGCONT);
        for (unsigned i = 0; i < N_KEYS; i++)
                assert_int_equal(read_key(i, 5000), 0);
}

int main(void)
{
        return test_run_all(start, stop);
}
