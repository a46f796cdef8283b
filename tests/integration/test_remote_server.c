/* The Redis client against a single real server: its refusals (secrets, keys, memory), and TLS with
 * certificates that the test makes. */
/* Before cmocka, whose fail() is a macro. */
#include "tests/unit/remote-fixture.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/remote/ask/ask.h"
#include "tests/integration/certificate.h"
#include "tests/integration/redis-needed.h"

static struct redis_cluster server;

/* Starts a server; where none is installed the test is skipped. */
static void server_start_with(const char *const *words)
{
        redis_needed(&server);
        assert_int_equal(redis_cluster_add(&server, words, false), 0);
}

static struct remote_store *server_open(const char *user, const char *secret)
{
        const char *address = server.servers[0].address;

        return store_open(&(struct remote_options){
                .addresses = &address, .n_addresses = 1, .user = user, .secret = secret});
}

/* Why slots can't be learnt, once that is known. */
static int refusal_await(struct remote_store *s)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        struct remote_stats stats;

        do {
                poll(NULL, 0, 1);
                remote_stats(s, &stats);
                assert_true(clock_now_nsec() < until);
        } while (stats.refresh_error == 0);
        assert_false(stats.is_known);
        return stats.refresh_error;
}

/* ---- what a server refuses ------------------------------------------------------------------ */

TEST(test_users)
{
        static const char *const words[] = {"--user", "joe", "on", ">s3cret", "~kvl:*", "+get",
                "+set", "+exists", "+cluster|slots", "--user", "ann", "on", ">s3cret", "~kvl:*",
                "+get", "--user", "default", "off", NULL};
        static const struct {
                const char *user, *secret;
        } wrong[] = {{"joe", "wrong"}, {"nobody", "s3cret"}, {NULL, "s3cret"}, {NULL, NULL}};
        char value[4] = "abc";
        struct remote_store *s;
        struct one o;

        server_start_with(words);
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                s = server_open(wrong[i].user, wrong[i].secret);
                assert_int_equal(refusal_await(s), -EACCES);
                assert_int_equal(store_node(s, NULL).breaker, BREAKER_OPEN);
                assert_int_equal(one_call(s, REMOTE_PROBE, "kvl:1", NULL, 0, &o), -EAGAIN);
                remote_close(s);
        }
        /* A user without permission to ask for slots gets -EACCES. */
        s = server_open("ann", "s3cret");
        assert_int_equal(refusal_await(s), -EACCES);
        assert_int_equal(store_node(s, NULL).breaker, BREAKER_CLOSED);
        remote_close(s);

        s = server_open("joe", "s3cret");
        store_await_known(s);
        assert_int_equal(one_call(s, REMOTE_WRITE, "kvl:1", value, 3, &o), 0);
        assert_int_equal(one_call(s, REMOTE_READ, "kvl:1", value, 3, &o), 0);
        /* Another's key, and a command that isn't allowed. */
        assert_int_equal(one_call(s, REMOTE_READ, "other", value, 3, &o), -EACCES);
        assert_int_equal(one_call(s, REMOTE_REMOVE, "kvl:1", NULL, 0, &o), -EACCES);
        assert_int_equal(one_call(s, REMOTE_PROBE, "kvl:1", NULL, 0, &o), 0);
        assert_int_equal(o.n_found, 1);
        assert_int_equal(store_node(s, NULL).breaker, BREAKER_CLOSED);
        assert_int_equal(store_node(s, NULL).n_losses, 0);
        remote_close(s);
        redis_cluster_deinit(&server);
}

/* A full server without eviction refuses writes; all else works. */
TEST(test_full)
{
        enum { BYTES = 1 << 20, N = 64 };
        static const char *const words[] = {
                "--maxmemory", "16mb", "--maxmemory-policy", "noeviction", NULL};
        static uint8_t value[BYTES];
        struct remote_stats stats;
        struct remote_store *s;
        unsigned n_written = 0;
        struct one o;
        char key[16];

        server_start_with(words);
        s = server_open(NULL, NULL);
        store_await_known(s);
        for (unsigned i = 0; i < N; i++) {
                int r;

                snprintf(key, sizeof(key), "key:%u", i);
                value_make(value, BYTES, i);
                r = one_call(s, REMOTE_WRITE, key, value, BYTES, &o);
                assert_true(r == 0 || r == -ENOSPC);
                n_written += r == 0;
        }
        assert_true(n_written > 4 && n_written < N);
        remote_stats(s, &stats);
        assert_int_equal(stats.n_refused, N - n_written);
        for (unsigned i = 0; i < n_written; i++) {
                snprintf(key, sizeof(key), "key:%u", i);
                assert_int_equal(one_call(s, REMOTE_READ, key, value, BYTES, &o), 0);
                assert_true(value_is(value, BYTES, i));
        }
        assert_int_equal(one_call(s, REMOTE_REMOVE, "key:0", NULL, 0, &o), 0);
        assert_int_equal(o.n_found, 1);
        assert_int_equal(store_node(s, NULL).breaker, BREAKER_CLOSED);
        remote_close(s);
        redis_cluster_deinit(&server);
}

/* ---- reads where memory is full ------------------------------------------------------------- */

#define LARGE_BYTES (2u << 20)
#define N_LARGE     150 /* more than twice the server's room */
#define N_READS     64  /* at once; all that are there, and more */
#define N_ROUNDS    4

/* A number of the server's INFO. */
static unsigned long server_figure(const char *section, const char *name)
{
        char *said = redis_cluster_call(&server, 0, "INFO %s", section);
        const char *at = said ? strstr(said, name) : NULL;
        unsigned long n;

        assert_non_null(at);
        n = strtoul(at + strlen(name), NULL, 10);
        free(said);
        return n;
}

static unsigned long count_evicted(void)
{
        return server_figure("stats", "evicted_keys:");
}

/* The server may take so much more than it takes now. */
static void server_leave_room(unsigned long bytes)
{
        unsigned long used = server_figure("memory", "used_memory:");
        char *said = redis_cluster_call(&server, 0, "CONFIG SET maxmemory %lu", used + bytes);

        assert_non_null(said);
        assert_int_equal(strncmp(said, "OK", 2), 0);
        free(said);
}

/* Large values, until others are evicted for them. Returns how many are there, and which. */
static unsigned server_fill(struct remote_store *s, unsigned ret_there[N_LARGE])
{
        uint8_t *value = malloc(LARGE_BYTES);
        unsigned n = 0;
        struct one o;
        char key[16];

        assert_non_null(value);
        for (unsigned i = 0; i < N_LARGE; i++) {
                snprintf(key, sizeof(key), "key:%u", i);
                value_make(value, LARGE_BYTES, i);
                assert_int_equal(one_call(s, REMOTE_WRITE, key, value, LARGE_BYTES, &o), 0);
        }
        free(value);
        for (unsigned i = 0; i < N_LARGE; i++) {
                snprintf(key, sizeof(key), "key:%u", i);
                assert_int_equal(one_call(s, REMOTE_PROBE, key, NULL, 0, &o), 0);
                if (o.n_found == 1)
                        ret_there[n++] = i;
        }
        return n;
}

/* Begins all reads at once and takes no reply for a while. Each value is then right or missing.
 * Returns how many are missing. */
static unsigned read_at_once(
        struct remote_store *s, const unsigned *there, unsigned n_there, uint8_t *got)
{
        struct iovec iov[N_READS];
        struct one ones[N_READS];
        unsigned n_gone = 0;
        char key[16];

        for (unsigned i = 0; i < N_READS; i++) {
                iov[i] = (struct iovec){got + (size_t)i * LARGE_BYTES, LARGE_BYTES};
                snprintf(key, sizeof(key), "key:%u", there[i % n_there]);
                one_submit(s, REMOTE_READ, key, &iov[i], 1, in_msec(20000), &ones[i]);
        }
        poll(NULL, 0, 100);
        for (unsigned i = 0; i < N_READS; i++) {
                one_await(s, &ones[i]);
                assert_true(ones[i].result == 0 || ones[i].result == -ENOENT);
                n_gone += ones[i].result == -ENOENT;
                if (ones[i].result == 0)
                        assert_true(value_is(iov[i].iov_base, LARGE_BYTES, there[i % n_there]));
        }
        return n_gone;
}

/*
 * Memory is full, and many large values are asked for at once. A server evicts keys for replies
 * that wait to be sent, so little is under way: two connections have 2 MiB each. Where there is
 * room for these nothing is evicted, and where there is none two values once, and then no more.
 */
TEST(test_reads_evict_nothing)
{
        static const char *const words[] = {
                "--maxmemory", "150mb", "--maxmemory-policy", "allkeys-lru", NULL};
        enum { N_CONNECTIONS = 2 };
        uint8_t *got = malloc((size_t)N_READS * LARGE_BYTES);
        unsigned there[N_LARGE], n_there;
        unsigned long before, once;
        struct remote_store *s;

        assert_non_null(got);
        server_start_with(words);
        s = server_open(NULL, NULL);
        store_await_known(s);
        n_there = server_fill(s, there);
        assert_true(n_there > N_CONNECTIONS && n_there <= N_READS);
        assert_true(count_evicted() > 0);
        remote_close(s);

        /* A new client has written nothing, so the server has no write buffers that it could free.
         * A value of 2 MiB takes a quarter more (docs/measure/REMOTE.md). */
        s = server_open(NULL, NULL);
        store_await_known(s);
        server_leave_room(N_CONNECTIONS * (LARGE_BYTES + LARGE_BYTES / 4));
        before = count_evicted();
        for (unsigned i = 0; i < N_ROUNDS; i++)
                assert_int_equal(read_at_once(s, there, n_there, got), 0);
        assert_int_equal(count_evicted(), before);

        server_leave_room(0);
        before = count_evicted();
        (void)read_at_once(s, there, n_there, got);
        once = count_evicted();
        print_message("%lu of %u values were evicted for replies, where there was no room\n",
                once - before, n_there);
        assert_true(once - before <= N_CONNECTIONS);
        for (unsigned i = 0; i < N_ROUNDS; i++)
                (void)read_at_once(s, there, n_there, got);
        assert_int_equal(count_evicted(), once);
        remote_close(s);
        free(got);
        redis_cluster_deinit(&server);
}

/* ---- TLS ------------------------------------------------------------------------------------ */

/* Returns the result of the first request with these options. */
static int tls_try(const struct remote_options *with)
{
        const char *address = server.servers[0].address;
        struct remote_options options = *with;
        struct remote_store *s;
        int r;

        options.addresses = &address;
        options.n_addresses = 1;
        s = store_open(&options);
        r = refusal_await(s);
        remote_close(s);
        return r;
}

/* remote_asker with these options; returns 0 if PING is answered. */
static int tls_ask(const struct remote_options *with)
{
        static const char *const words[] = {"PING", NULL};
        struct remote_options options = *with;
        char why[REMOTE_WHY_BYTES], *text = NULL;
        struct remote_asker *a = NULL;
        int r;

        options.connect_msec = 5000;
        r = remote_ask_open(&options, server.servers[0].address, &a, why);
        if (r == 0)
                r = remote_ask(a, words, &text, why);
        if (r == 0)
                assert_string_equal(text, "PONG\n");
        else
                assert_true(why[0]);
        free(text);
        remote_ask_close(a);
        return r;
}

static void tls_values(const struct remote_options *with)
{
        enum { BYTES = 9 << 20, PIECES = 200 };
        static uint8_t value[BYTES], got[BYTES];
        const char *address = server.servers[0].address;
        struct remote_options options = *with;
        struct iovec from[PIECES], to[PIECES];
        struct remote_store *s;
        size_t at = 0;
        struct one o;

        options.addresses = &address;
        options.n_addresses = 1;
        s = store_open(&options);
        store_await_known(s);
        value_make(value, BYTES, 7);
        for (unsigned i = 0; i < PIECES; i++) {
                size_t len = i + 1 < PIECES ? 1 + i * 300 : BYTES - at;

                from[i] = (struct iovec){value + at, len};
                to[i] = (struct iovec){got + at, len};
                at += len;
        }
        one_submit(s, REMOTE_WRITE, "key", from, PIECES, in_msec(20000), &o);
        one_await(s, &o);
        assert_int_equal(o.result, 0);
        one_submit(s, REMOTE_READ, "key", to, PIECES, in_msec(20000), &o);
        one_await(s, &o);
        assert_int_equal(o.result, 0);
        assert_int_equal(o.n_bytes, BYTES);
        assert_memory_equal(got, value, BYTES);
        for (unsigned i = 0; i < 200; i++)
                assert_int_equal(one_call(s, REMOTE_PROBE, "key", NULL, 0, &o), 0);
        assert_int_equal(store_node(s, NULL).n_losses, 0);
        remote_close(s);
}

TEST(test_tls)
{
        char ca[128], crt[128], key[128], other[128], client_crt[128], client_key[128];
        const char *const words[] = {"--tls-ca-cert-file", ca, "--tls-cert-file", crt,
                "--tls-key-file", key, "--tls-auth-clients", "yes", NULL};
        const char *const cli[] = {
                "--tls", "--cacert", ca, "--cert", client_crt, "--key", client_key, NULL};
        struct remote_options good = {.is_tls = true,
                                      .tls_ca = ca,
                                      .tls_cert = client_crt,
                                      .tls_key = client_key},
                              with;

        redis_needed(&server);
        snprintf(ca, sizeof(ca), "%s/ca.crt", server.dir);
        snprintf(crt, sizeof(crt), "%s/server.crt", server.dir);
        snprintf(key, sizeof(key), "%s/server.key", server.dir);
        snprintf(client_crt, sizeof(client_crt), "%s/client.crt", server.dir);
        snprintf(client_key, sizeof(client_key), "%s/client.key", server.dir);
        certificate_make(server.dir, "ca", NULL);
        certificate_make(server.dir, "server", "subjectAltName=IP:127.0.0.1,DNS:server.example");
        certificate_make(server.dir, "client", "subjectAltName=DNS:client.example");
        /* A certificate of another server with the same name. */
        snprintf(other, sizeof(other), "%s/other.crt", server.dir);
        certificate_make(server.dir, "other", NULL);
        server.cli_words = cli;
        assert_int_equal(redis_cluster_add(&server, words, true), 0);

        tls_values(&good);
        assert_int_equal(tls_ask(&good), 0);
        with = good;
        with.tls_host = "server.example";
        tls_values(&with);

        with.tls_host = "elsewhere.example";
        assert_int_equal(tls_try(&with), -EKEYREJECTED);
        assert_int_equal(tls_ask(&with), -EACCES);
        with.tls_host = "127.0.0.2";
        assert_int_equal(tls_try(&with), -EKEYREJECTED);
        with = good;
        with.tls_ca = other;
        assert_int_equal(tls_try(&with), -EKEYREJECTED);
        assert_int_equal(tls_ask(&with), -EACCES);
        with.tls_ca = "/none";
        assert_int_equal(tls_ask(&with), -EINVAL);
        /* The system believes others. */
        with.tls_ca = NULL;
        assert_int_equal(tls_try(&with), -EKEYREJECTED);
        /* The server demands our certificate: TLS 1.3 reports that after the handshake. */
        with = good;
        with.tls_cert = with.tls_key = NULL;
        assert_true(tls_try(&with) < 0);
        assert_true(tls_ask(&with) < 0);
        /* Without TLS. */
        assert_true(tls_try(&(struct remote_options){.is_tls = false}) < 0);
        assert_true(tls_ask(&(struct remote_options){.is_tls = false}) < 0);
        redis_cluster_deinit(&server);
}
