/* Two kvleased and a server that both know, like in test_exchange_hosts.c. One of them has a
 * password that the server refuses. */
#include <stdio.h>
#include <sys/stat.h>

#include "tests/integration/exchange-hosts.h"

#define CHAIN 7

#define SHORT_MSEC 1000 /* of a lookup that doesn't find anything */
/* Greatest delay of a lookup on a busy machine. */
#define LATE_OK_NSEC NSEC_PER_SEC

/* A tenant's user from docs/operate/other-hosts.md, and both hosts' options for it; the passwords
 * are in files. */
#define PASSWORD "s3cret"
#define ACL_USER                                                                                 \
        "--user", "kvlease", "on", ">" PASSWORD, "~kvl:1:a:*", "resetchannels", "-@all", "+get", \
                "+set", "+exists", "+unlink", "+touch", "+cluster|slots", "+asking"

/* ret_lines: more of [remote x]. `file` is in the servers' directory, and is removed with it. */
static void write_password(const char *file, const char *password, char ret_lines[256])
{
        char path[128];
        FILE *f;

        (void)snprintf(path, sizeof(path), "%s/%s", server.dir, file);
        (void)snprintf(ret_lines, 256, "user = kvlease\nsecret_file = %s\n", path);
        f = fopen(path, "we");
        assert_non_null(f);
        assert_int_equal(fchmod(fileno(f), 0600), 0);
        assert_true(fputs(password, f) >= 0);
        assert_int_equal(fclose(f), 0);
}

/* kvleasectl exchanges shows one server and how many are left alone. It also shows whether the
 * slots and the namespace's epoch are known. */
static void assert_exchange(unsigned n_left_alone, bool is_known)
{
        json_t *reply = ctl_json(here, "exchanges"), *row;

        row = json_array_get(ctl_list(reply, "exchanges"), 0);
        assert_int_equal(json_integer_value(json_object_get(row, "n_nodes")), 1);
        assert_int_equal(json_integer_value(json_object_get(row, "n_nodes_open")), n_left_alone);
        assert_true(json_is_true(json_object_get(row, "is_known")) == is_known);
        assert_int_equal(json_integer_value(json_object_get(row, "n_namespaces_ready")), is_known);
        json_decref(reply);
}

/* The server refuses the password. A lookup on it is a miss, with a reason. The host's own pages
 * are found at once, and aren't exported. */
static void live_without_password(struct worker *w)
{
        static const char why[] = "kvleased isn't let in (user, secret_file)";
        uint32_t pages[N_PAGES];
        uint64_t began, nsec, count;

        for (unsigned i = 0; i < 3; i++)
                assert_int_equal(find_chain(w, CHAIN, SHORT_MSEC), 0);
        await_event("unreachable");
        assert_int_equal(count_events_that_say("unreachable", "", why, &count), 1);
        assert_forecast(here, "unreachable", why);
        assert_exchange(1, false);
        assert_true(figure_of(here, "kvlease_exchange_not_imported_pages_total{tenant=\"a\","
                                    "remote=\"x\",reason=\"unreached\"}") > 0);
        began = clock_now_nsec();
        worker_publish_chain(w, CHAIN + 1, N_PAGES, pages);
        assert_true(clock_now_nsec() - began < LONG_MSEC * NSEC_PER_MSEC);
        assert_int_equal(find_chain_timed(w, CHAIN + 1, LONG_MSEC, &nsec), N_PAGES);
        assert_true(nsec < LATE_OK_NSEC);
        assert_int_equal(count_exported(), N_PAGES);
}

/* The server refuses this host, which continues by itself. The right password needs a restart. */
TEST_BARE(test_wrong_password)
{
        static const char *const words[] = {ACL_USER, NULL};
        char here_lines[256], there_lines[256];
        const struct hosts_options o = {
                .prefill = HOSTS_PREFILL, .here_lines = here_lines, .there_lines = there_lines};
        struct worker *w;

        hosts_find_server();
        assert_int_equal(redis_cluster_add(&server, words, false), 0);
        write_password("here", "another", here_lines);
        write_password("there", PASSWORD, there_lines);
        hosts_start_daemons(state, &o);
        share_chain(CHAIN, N_PAGES);
        w = host_worker(here);
        live_without_password(w);
        write_password("here", PASSWORD, here_lines);
        ctl(here, "reload");
        assert_int_equal(find_chain(w, CHAIN, SHORT_MSEC), 0);
        worker_stop(w);
        harness_restart(here);
        w = host_worker(here);
        await_chain(w, CHAIN);
        assert_forecast(here, "asks", "which answers");
        assert_exchange(0, true);
        worker_stop(w);
        hosts_end(state);
}
