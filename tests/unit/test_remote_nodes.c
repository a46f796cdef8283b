/* Nodes of a cluster: addresses, too many of them, and the owners of slots. */
/* Before cmocka, whose fail() is a macro. */
#include "daemon/remote/store/remote-impl.h"

#include "tests/unit/alloc-fail.h"
#include "tests/unit/fd-count.h"
#include "tests/unit/remote-fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct remote_client *store_make(void)
{
        struct remote_client *s = calloc(1, sizeof(*s));

        assert_non_null(s);
        assert_int_equal(remote_store_init(&s->of, &remote_client_ops, 1), 0);
        for (unsigned slot = 0; slot < N_SLOTS; slot++)
                s->node_of[slot] = REMOTE_NO_NODE;
        return s;
}

static void store_end(struct remote_client *s)
{
        remote_store_deinit(&s->of);
        free(s);
}

static void seed_add(struct remote_client *s, uint32_t host, bool is_fixed)
{
        struct sockaddr_in address = {
                .sin_family = AF_INET, .sin_port = htons(7000), .sin_addr.s_addr = htonl(host)};

        remote_node_add_seed(s, (const struct sockaddr *)&address, is_fixed);
}

static bool is_known(const struct remote_client *s, const char *name)
{
        for (unsigned i = 0; i < s->n_nodes; i++)
                if (s->nodes[i].is_used && strcmp(s->nodes[i].stats.name, name) == 0)
                        return true;
        return false;
}

TEST(test_addresses)
{
        static const struct {
                const char *text, *host;
                unsigned port;
        } rows[] = {{"10.0.0.1:1", "10.0.0.1", 1}, {"[::1]:65535", "::1", 65535},
                {"name.example:6379", "name.example", 6379}};
        struct remote_client *s = store_make();
        char host[256];
        uint16_t port;

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                assert_true(remote_address_split(rows[i].text, host, &port));
                assert_string_equal(host, rows[i].host);
                assert_int_equal(port, rows[i].port);
        }
        assert_int_equal(remote_node_get(s, "10.0.0.1", 1, REMOTE_NO_NODE), 0);
        s->nodes[0].n_conns = 1;
        assert_int_equal(remote_node_get(s, "::1", 2, REMOTE_NO_NODE), 1);
        s->nodes[1].n_conns = 1;
        assert_int_equal(remote_node_get(s, "", 1, REMOTE_NO_NODE), REMOTE_NO_NODE);
        assert_int_equal(remote_node_get(s, "", 1, 0), 0); /* beside it */
        assert_int_equal(remote_node_get(s, "name.example", 1, 0), REMOTE_NO_NODE);
        assert_true(is_known(s, "10.0.0.1:1") && is_known(s, "[::1]:2"));
        store_end(s);
}

/* A name that leads to another address again and again doesn't fill the table. */
TEST(test_many_seeds)
{
        struct remote_client *s = store_make();
        struct slot_table *table = calloc(1, sizeof(*table));
        char name[64];

        seed_add(s, 0x0a000001, true);
        seed_add(s, 0x0a000002, false);
        /* One that serves everything stays as well. */
        table->n_owners = 1;
        table->n_served = N_SLOTS;
        snprintf(table->owners[0].host, sizeof(table->owners[0].host), "10.0.0.3");
        table->owners[0].port = 7000;
        assert_true(remote_nodes_learn(s, table, 0));
        for (unsigned i = 0; i < 5 * REMOTE_NODES_MAX; i++) {
                seed_add(s, 0x0a010000 + i, false);
                snprintf(name, sizeof(name), "10.1.%u.%u:7000", i >> 8, i & 255);
                assert_true(is_known(s, name));
        }
        assert_int_equal(s->n_nodes, REMOTE_NODES_MAX);
        assert_true(is_known(s, "10.0.0.1:7000") && is_known(s, "10.0.0.3:7000"));
        assert_false(is_known(s, "10.0.0.2:7000"));
        assert_string_equal(s->nodes[s->node_of[77]].stats.name, "10.0.0.3:7000");
        free(table);
        store_end(s);
}

/* Where nodes are all in use there is no place, and what doesn't fit isn't believed. */
TEST(test_no_place)
{
        struct remote_client *s = store_make();
        struct slot_table *table = calloc(1, sizeof(*table));
        char host[32];

        for (unsigned i = 0; i < REMOTE_NODES_MAX; i++) {
                snprintf(host, sizeof(host), "10.0.%u.%u", i >> 8, i & 255);
                assert_int_equal(remote_node_get(s, host, 1, REMOTE_NO_NODE), i);
                s->nodes[i].n_conns = 1;
        }
        assert_int_equal(remote_node_get(s, "10.9.9.9", 1, REMOTE_NO_NODE), REMOTE_NO_NODE);
        table->n_owners = 1;
        table->n_served = N_SLOTS;
        snprintf(table->owners[0].host, sizeof(table->owners[0].host), "10.9.9.9");
        table->owners[0].port = 7000;
        assert_false(remote_nodes_learn(s, table, 0));
        assert_false(s->stats.is_known);
        s->nodes[5].n_conns = 0;
        assert_true(remote_nodes_learn(s, table, 0));
        assert_int_equal(s->node_of[0], 5);
        assert_int_equal(s->nodes[5].stats.n_slots, N_SLOTS);
        /* Without a cluster the answering node has all slots. */
        assert_true(remote_nodes_learn(s, NULL, 3));
        assert_int_equal(s->node_of[N_SLOTS - 1], 3);
        assert_false(s->nodes[5].is_listed);
        free(table);
        store_end(s);
}

/* The bound of descriptors follows the known nodes. An unlisted node counts while it is connected.
 */
TEST(test_descriptors)
{
        struct slot_table *table = calloc(1, sizeof(*table));
        struct remote_client *s = store_make();

        s->n_workers = 3;
        assert_int_equal(remote_descriptors(&s->of), 7);
        seed_add(s, 0x0a000001, true);
        assert_int_equal(remote_descriptors(&s->of), 7 + 3);
        table->n_owners = 2;
        table->n_served = N_SLOTS;
        for (unsigned slot = 0; slot < N_SLOTS; slot++)
                table->owner_of[slot] = slot % 2;
        for (unsigned i = 0; i < 2; i++) {
                snprintf(table->owners[i].host, sizeof(table->owners[i].host), "10.0.0.%u", 5 + i);
                table->owners[i].port = 7000;
        }
        assert_true(remote_nodes_learn(s, table, 0));
        assert_int_equal(remote_descriptors(&s->of), 7 + 3 * 3);
        s->nodes[s->node_of[0]].n_conns = 2;
        assert_true(remote_nodes_learn(s, NULL, 0)); /* one server, and no cluster */
        assert_int_equal(remote_descriptors(&s->of), 7 + 3 + 2);
        free(table);
        store_end(s);
}

/* The bound counts threads, and a connection of each to a server. */
TEST(test_counts_what_it_takes)
{
        int before = fd_count_open();
        struct remote_store *s = store_open_at("127.0.0.1:1");

        assert_int_equal(remote_descriptors(s), 7 + 3);
        assert_in_range(fd_count_open() - before, 7, 7 + 3);
        remote_close(s);
        assert_int_equal(fd_count_open(), before);
}

/* Without memory nothing is begun, and nothing is left behind. */
TEST(test_no_memory)
{
        const char *const addresses[] = {"127.0.0.1:1", "[::1]:1"};
        const struct remote_options options = {.addresses = addresses,
                .n_addresses = 2,
                .user = "joe",
                .secret = "s3cret",
                .is_tls = true,
                .tls_ca = NULL,
                .tls_host = "redis.example"};
        char why[REMOTE_WHY_BYTES];
        struct remote_store *s;

        alloc_fail_each(n)
        {
                int r = remote_open(&options, &s, why);

                assert_true(r == 0 || alloc_fail_happened());
                assert_true((r == 0) == (why[0] == '\0'));
                if (r == 0)
                        remote_close(s);
        }
}

TEST(test_no_memory_for_a_batch)
{
        struct remote_store *s = store_open_at("127.0.0.1:1");
        struct iovec key = PIECE("key");

        alloc_fail_each(n)
        {
                struct remote_io *io = remote_io_new(2);
                struct one o = {.is_done = false};
                int r = -ENOMEM;

                if (io) {
                        io->deadline_nsec = in_msec(15000);
                        io->done = one_done;
                        io->data = &o;
                        io->ops[0] = io->ops[1] = (struct remote_op){.keys = &key, .n_keys = 1};
                        r = remote_submit(s, io);
                }
                assert_true(r == 0 || (r == -ENOMEM && alloc_fail_happened()));
                if (r == 0)
                        one_await(s, &o);
                else
                        remote_io_free(io);
        }
        remote_close(s);
}
