/* kvleasectl doctor's findings on the servers through which hosts exchange pages. Real servers are
 * set up well and badly; some can't be asked. Skipped if none is installed. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/integration/redis-needed.h"
#include "tests/unit/doctor-fixture.h"

static struct redis_cluster servers;

KVL_PRINTF(2, 3) static void configure(struct host *h, const char *format, ...)
{
        char text[1024];
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        host_configure(h, text);
}

static void command(unsigned i, const char *text)
{
        char *said = redis_cluster_call(&servers, i, "%s", text);

        assert_non_null(said);
        if (strncmp(said, "OK", 2) != 0)
                fail_msg("%s: %s", text, said);
        free(said);
}

/* A good setup: this is the only finding. */
static void expect_well(struct host *h, unsigned n_nodes)
{
        size_t before = h->d.n_findings;

        host_expect(h, "remote", DOCTOR_OK, "is set up for pages", NULL);
        for (size_t i = before; i < h->d.n_findings; i++)
                if (h->d.findings[i].state != DOCTOR_OK)
                        fail_msg("%s", h->d.findings[i].found);
        assert_int_equal(h->d.n_findings - before, n_nodes);
}

#define WELL \
        "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--maxmemory-clients", "10%"

HOST_TEST(test_none)
{
        host_expect(*state, "remote", DOCTOR_OK, "no [remote] is configured", NULL);
}

/* Each wrong option is found, and the finding disappears after the remedy. */
HOST_TEST(test_options)
{
        static const struct {
                const char *wrong, *found, *remedy, *right;
        } rows[] = {
                {"CONFIG SET maxmemory 0", "maxmemory = 0: ", "CONFIG SET maxmemory to 1.25",
                        "CONFIG SET maxmemory 100mb"},
                {"CONFIG SET maxmemory-policy noeviction", "maxmemory-policy = noeviction",
                        "CONFIG SET maxmemory-policy allkeys-lru",
                        "CONFIG SET maxmemory-policy allkeys-lfu"},
                {"CONFIG SET maxmemory-clients 0", "maxmemory-clients = 0",
                        "CONFIG SET maxmemory-clients 10%", "CONFIG SET maxmemory-clients 10%"},
                {"CONFIG SET appendonly yes", "appendonly = yes", "CONFIG SET appendonly no",
                        "CONFIG SET appendonly no"},
        };
        static const char *const words[] = {WELL, NULL}, *const saving[] = {
                                                                 WELL, "--save", "60 1", NULL};
        struct host *h = *state;

        redis_needed(&servers);
        assert_int_equal(redis_cluster_add(&servers, words, false), 0);
        configure(h, "[remote r]\naddresses = %s\n[tenant t]\nremote = r\n",
                servers.servers[0].address);
        expect_well(h, 1);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                command(0, rows[i].wrong);
                host_expect(h, "remote", DOCTOR_WARNING, rows[i].found, rows[i].remedy);
                command(0, rows[i].right);
                expect_well(h, 1);
        }
        command(0, "CONFIG SET maxmemory 1024000gb");
        host_expect(h, "remote", DOCTOR_WARNING, "maxmemory = 1000 TiB of the machine's",
                "CONFIG SET maxmemory to four fifths of the machine's memory");
        assert_int_equal(redis_cluster_add(&servers, saving, false), 0);
        configure(h, "[remote r]\naddresses = %s\n", servers.servers[1].address);
        host_expect(h, "remote", DOCTOR_WARNING, "save = ", "CONFIG SET save ''");
        redis_cluster_deinit(&servers);
}

/* kvleased's user on the server, and its rights. */
HOST_TEST(test_users)
{
        static const char *const words[] = {WELL, "--user", "all", "on", ">s3cret", "~kvl:1:t:*",
                "+exists", "+get", "+set", "+touch", "+unlink", "+cluster|slots", "+config|get",
                "+cluster|nodes", "+info", "--user", "blind", "on", ">s3cret", "~kvl:1:t:*",
                "+exists", "+get", "+set", "+touch", "+unlink", "--user", "reader", "on", ">s3cret",
                "~kvl:1:t:*", "+exists", "+get", "+touch", "+config|get", NULL};
        struct host *h = *state;
        const char *address;

        redis_needed(&servers);
        assert_int_equal(redis_cluster_add(&servers, words, false), 0);
        address = servers.servers[0].address;
        host_write(h, "/secret", "s3cret\n");
        host_write(h, "/wrong", "other\n");
        configure(h,
                "[remote r]\naddresses = %s\nuser = all\nsecret_file = /secret\n"
                "[tenant t]\nremote = r\n",
                address);
        expect_well(h, 1);
        configure(h,
                "[remote r]\naddresses = %s\nuser = all\nsecret_file = /secret\n"
                "[tenant u]\nremote = r\n",
                address);
        host_expect(h, "remote", DOCTOR_ERROR, "pages of tenant u: EXISTS is refused: NOPERM",
                "'~kvl:1:u:*'");
        configure(h,
                "[remote r]\naddresses = %s\nuser = reader\nsecret_file = /secret\n"
                "[tenant t]\nremote = r\n",
                address);
        host_expect(h, "remote", DOCTOR_ERROR, "pages of tenant t: UNLINK is refused: NOPERM",
                "ACL SETUSER reader");
        configure(h, "[remote r]\naddresses = %s\nuser = blind\nsecret_file = /secret\n", address);
        host_expect(h, "remote", DOCTOR_UNCHECKED, "user blind may not look at its options",
                "+config|get");
        host_expect(h, "remote", DOCTOR_UNCHECKED,
                "user blind may not ask for the nodes of a cluster", "'+cluster|nodes'");
        host_expect(h, "remote", DOCTOR_ERROR, "CLUSTER SLOTS is refused: NOPERM",
                "ACL SETUSER blind '+cluster|slots'");
        configure(h, "[remote r]\naddresses = %s\nuser = reader\nsecret_file = /secret\n", address);
        host_expect(h, "remote", DOCTOR_UNCHECKED,
                "user reader may not ask for the machine's memory", "+info");
        configure(h, "[remote r]\naddresses = %s\nuser = all\nsecret_file = /wrong\n", address);
        host_expect(h, "remote", DOCTOR_ERROR, "kvleased isn't let in: WRONGPASS",
                "secret_file and tls_ of [remote r]");
        configure(h, "[remote r]\naddresses = %s\nuser = all\nsecret_file = /none\n", address);
        host_expect(h, "remote", DOCTOR_ERROR, "secret_file = /none can't be read", "create it");
        redis_cluster_deinit(&servers);
}

HOST_TEST(test_unreachable)
{
        struct host *h = *state;

        configure(h, "[remote r]\naddresses = 127.0.0.1:1\n");
        host_expect(h, "remote", DOCTOR_ERROR,
                "[remote r] 127.0.0.1:1: it can't be reached: Connection refused",
                "addresses of [remote r]");
        configure(h, "[remote r]\naddresses = no-such-host.invalid:1\n");
        host_expect(h, "remote", DOCTOR_ERROR, "can't be resolved", "addresses of [remote r]");
        configure(h, "[remote r]\naddresses = nonsense\n");
        host_expect(h, "remote", DOCTOR_ERROR, "it isn't host:port", "addresses of [remote r]");
        configure(h, "[remote r]\ntls = off\n");
        host_expect(h, "remote", DOCTOR_ERROR, "[remote r] has no addresses", "addresses =");
}

/* All nodes of a cluster are checked, even if only one is named. */
HOST_TEST(test_cluster)
{
        struct host *h = *state;

        redis_needed(&servers);
        assert_int_equal(redis_cluster_create(&servers, 3, false), 0);
        for (unsigned i = 0; i < 3; i++) {
                command(i, "CONFIG SET maxmemory 100mb");
                command(i, "CONFIG SET maxmemory-policy allkeys-lru");
                command(i, "CONFIG SET maxmemory-clients 10%");
                command(i, "CONFIG SET cluster-require-full-coverage no");
                command(i, "CONFIG SET cluster-node-timeout 5000");
        }
        configure(h, "[remote r]\naddresses = %s\n[tenant t]\nremote = r\n",
                servers.servers[0].address);
        expect_well(h, 3);
        command(2, "CONFIG SET cluster-require-full-coverage yes");
        host_expect(h, "remote", DOCTOR_WARNING, "cluster-require-full-coverage = yes",
                "CONFIG SET cluster-require-full-coverage no");
        command(2, "CONFIG SET cluster-require-full-coverage no");
        command(1, "CONFIG SET cluster-node-timeout 15000");
        host_expect(h, "remote", DOCTOR_WARNING, "cluster-node-timeout = 15000 ms",
                "CONFIG SET cluster-node-timeout 5000");
        command(1, "CONFIG SET cluster-node-timeout 5000");
        for (unsigned i = 0; i < 3; i++)
                command(i, "ACL SETUSER kv on nopass ~kvl:1:t:* +exists +get +set +touch +unlink "
                           "+cluster|slots +cluster|nodes +cluster|info +config|get +info");
        host_write(h, "/secret", "any\n");
        configure(h,
                "[remote r]\naddresses = %s\nuser = kv\nsecret_file = /secret\n"
                "[tenant t]\nremote = r\n",
                servers.servers[0].address);
        host_expect(h, "remote", DOCTOR_ERROR, "ASKING is refused: NOPERM",
                "ACL SETUSER kv '+cluster|slots' +asking");
        for (unsigned i = 0; i < 3; i++)
                command(i, "ACL SETUSER kv +asking");
        expect_well(h, 3);
        command(1, "CLUSTER DELSLOTS 8000");
        host_expect(h, "remote", DOCTOR_WARNING, "of 16384 slots 16383 have a node",
                "redis-cli --cluster fix");
        redis_cluster_deinit(&servers);
}
