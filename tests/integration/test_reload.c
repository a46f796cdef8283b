/* SIGHUP: options of the file take effect; those that need a restart are named; a bad file changes
 * nothing. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/integration/harness.h"

#define WAIT_MSEC 30000 /* not tuned */

static const struct private_tenant before[] = {
        {"a", "limit = 4MiB\nweight = 20\n"}, {"b", "limit = 8MiB\n"}, {NULL, NULL}};
static const struct private_options options = {.tenants = before};

/* Returns the daemon's log, owned. */
static char *read_log(struct harness *h)
{
        size_t len;
        char *text;

        assert_int_equal(file_read(h->daemon.log, 16 << 20, &text, &len), 0);
        return text;
}

/* Reads the daemon's messages to its service manager, since the daemon waits while the socket is
 * full. */
static void take_notices(struct harness *h)
{
        char message[4096];

        while (recv(h->daemon.notify_fd, message, sizeof(message), MSG_DONTWAIT) > 0)
                ;
}

/* Reloads and waits for the log's last word of it; returns the log from SIGHUP on. Owned. */
static char *reload(struct harness *h, const char *last_word)
{
        assert_int_equal(truncate(h->daemon.log, 0), 0);
        assert_int_equal(kill(h->daemon.pid, SIGHUP), 0);
        for (unsigned msec = 0; msec < WAIT_MSEC; msec += 5) {
                char *text = read_log(h);

                take_notices(h);
                if (strstr(text, last_word))
                        return text;
                free(text);
                sleep_msec(5);
        }
        fail_msg("no \"%s\" in the log", last_word);
        return NULL;
}

/* Reloads another configuration; the log must have the words (up to a NULL). */
static void reload_to(struct harness *h, const struct private_options *o, ...)
{
        const char *word;
        va_list words;
        char *text;

        assert_int_equal(private_daemon_configure(&h->daemon, o), 0);
        text = reload(h, ": reloaded\n");
        va_start(words, o);
        while ((word = va_arg(words, const char *)))
                if (!strstr(text, word))
                        fail_msg("no \"%s\" in: %s", word, text);
        va_end(words);
        free(text);
}

HARNESS_TEST(test_tenants, &options)
{
        static const struct private_tenant after[] = {
                {"a", "limit = 6MiB\n"}, {"c", "limit = 2MiB\nweight = 7\n"}, {NULL, NULL}};
        static const struct private_options next = {.tenants = after};
        struct worker *w;
        char path[PRIVATE_PATH_MAX];

        reload_to(h, &next, "notice: tenant b is removed", NULL);
        assert_int_equal(ctl_status(h, "n_tenants"), 2);
        assert_int_equal(ctl_tenant(h, "a", "limit_bytes"), 6 << 20);
        assert_int_equal(ctl_tenant(h, "a", "weight"), 100); /* the default again */
        assert_int_equal(ctl_tenant(h, "c", "weight"), 7);
        w = worker_start(h, "c", "ns", 1);
        worker_stop(w);
        assert_int_not_equal(access(private_daemon_socket(&h->daemon, "b", path), F_OK), 0);
        reload_to(h, &options, "tenant c is gone from the configuration but stays", NULL);
        ctl_wait_status(h, "n_clients", 0);
        ctl(h, "purge --remove c");
        reload_to(h, &options, "notice: tenant c is removed", NULL);
        assert_int_equal(ctl_tenant(h, "b", "limit_bytes"), 8 << 20);
}

/* A tenant in use isn't removed; a later reload removes it. */
HARNESS_TEST(test_removed_in_use, &options)
{
        static const struct private_tenant row[] = {{"a", NULL}, {NULL, NULL}};
        static const struct private_options only_a = {.tenants = row};
        struct worker *w = worker_start(h, "b", "ns", 1);
        uint32_t pages[2];

        worker_publish_chain(w, 1, 2, pages);
        reload_to(h, &only_a, "tenant b is gone from the configuration but stays", NULL);
        worker_tell(w, "lookup 1:0-1");
        worker_tell(w, "lease 3");
        worker_stop(w);
        ctl_wait_status(h, "n_clients", 0);
        ctl(h, "purge --remove b");
        reload_to(h, &only_a, "notice: tenant b is removed", NULL);
        assert_int_equal(ctl_status(h, "n_tenants"), 1);
        h->n_tenants = 2; /* it started with two, as the count of descriptors has it */
}

/* kvleasectl reload reports each change's effect, and why a changed line has none. */
HARNESS_TEST(test_verb, &options)
{
        static const struct private_tenant after[] = {
                {"a", "limit = 6MiB\nweight = 20\n"}, {"c", NULL}, {NULL, NULL}};
        static const struct private_options next = {.tenants = after,
                .daemon_lines = "max_clients = 77",
                .device_lines = "memory = 128MiB\nextent = 2MiB"};
        static const struct private_options wrong = {.daemon_lines = "max_clients = lots"};
        struct worker *w = worker_start(h, "b", "ns", 1);
        struct proc_output out;

        assert_int_equal(ctl_run(h, "reload", &out), 0);
        assert_string_equal(out.out, "nothing had changed\n");
        proc_output_free(&out);
        assert_int_equal(private_daemon_configure(&h->daemon, &next), 0);
        assert_int_equal(ctl_run(h, "reload", &out), 1); /* b is in use */
        assert_non_null(strstr(out.out, "changed: [daemon] max_clients = 77, was 1024\n"));
        assert_non_null(strstr(out.out, "changed: [tenant a] limit = 6 MiB, was 4 MiB\n"));
        assert_non_null(strstr(out.out, "changed: tenant c is added\n"));
        assert_non_null(strstr(out.out,
                "pending: [device host] memory stays '256 MiB': '128 MiB' needs a restart of kvleased\n"));
        assert_non_null(strstr(out.out, "refused: tenant b is gone from the configuration"));
        proc_output_free(&out);
        assert_int_equal(ctl_status(h, "options_pending"), 1);
        worker_stop(w);
        ctl_wait_status(h, "n_clients", 0);
        ctl(h, "purge --remove b");
        assert_int_equal(ctl_run(h, "reload", &out), 0);
        assert_non_null(strstr(out.out, "changed: tenant b is removed\n"));
        proc_output_free(&out);

        assert_int_equal(private_daemon_configure(&h->daemon, &wrong), 0);
        assert_int_equal(ctl_run(h, "reload --json", &out), 1);
        assert_non_null(strstr(out.out, "\"reloaded\": false"));
        assert_non_null(strstr(out.out, "max_clients: 'lots'"));
        assert_non_null(strstr(out.err, "nothing was changed"));
        proc_output_free(&out);
        assert_int_equal(ctl_tenant(h, "a", "limit_bytes"), 6 << 20);
        h->n_tenants = 2; /* it started with two, as the count of descriptors has it */
}

/* An administrator's setting overrides the file, also after the file changes. */
HARNESS_TEST(test_set_over_file, &options)
{
        static const struct private_tenant changed[] = {
                {"a", "limit = 5MiB\nweight = 30\n"}, {"b", "limit = 8MiB\n"}, {NULL, NULL}};
        static const struct private_options next = {.tenants = changed},
                                            without = {.tenants = changed + 1};

        ctl(h, "tenants set a limit=3MiB");
        reload_to(h, &next, NULL);
        assert_int_equal(ctl_tenant(h, "a", "limit_bytes"), 3 << 20);
        assert_int_equal(ctl_tenant(h, "a", "weight"), 30);
        /* The section is removed and set values stay, as after a restart. */
        reload_to(h, &without, NULL);
        assert_int_equal(ctl_tenant(h, "a", "limit_bytes"), 3 << 20);
        assert_int_equal(ctl_tenant(h, "a", "weight"), 100);
        harness_restart(h);
        assert_int_equal(ctl_tenant(h, "a", "limit_bytes"), 3 << 20);
        assert_int_equal(ctl_tenant(h, "a", "weight"), 100);
}

#define PINNED(reserve) "class = pinned\nreserve = " reserve "\n"

/* A valid configuration takes effect in any order of its tenants. */
HARNESS_TEST(test_reservations_in_any_order, &options)
{
        static const struct private_tenant small_large[] = {{"a", PINNED("50MiB")},
                {"b", PINNED("200MiB")}, {NULL, NULL}},
                                           large_small[] = {{"a", PINNED("200MiB")},
                                                   {"b", PINNED("50MiB")}, {NULL, NULL}},
                                           too_large[] = {{"a", PINNED("230MiB")},
                                                   {"b", PINNED("30MiB")}, {NULL, NULL}},
                                           none[] = {{"a", NULL}, {"b", NULL},
                                                   {"c", PINNED("256MiB")}, {NULL, NULL}};
        static const struct private_options first = {.tenants = small_large},
                                            second = {.tenants = large_small},
                                            third = {.tenants = too_large},
                                            last = {.tenants = none};

        reload_to(h, &first, NULL);
        for (unsigned i = 0; i < 2; ++i) {
                assert_int_equal(ctl_tenant(h, "a", "reserve_bytes"), 50 << 20);
                assert_int_equal(ctl_tenant(h, "b", "reserve_bytes"), 200 << 20);
                reload_to(h, &second, NULL);
                assert_int_equal(ctl_tenant(h, "a", "reserve_bytes"), 200 << 20);
                assert_int_equal(ctl_tenant(h, "b", "reserve_bytes"), 50 << 20);
                reload_to(h, &first, NULL);
        }
        /* Not both: the reservation that doesn't fit stays, the other is changed. */
        reload_to(h, &third, "tenant a: ", "it is left as it was", NULL);
        assert_int_equal(ctl_tenant(h, "a", "reserve_bytes"), 50 << 20);
        assert_int_equal(ctl_tenant(h, "b", "reserve_bytes"), 30 << 20);
        reload_to(h, &last, NULL);
        assert_int_equal(ctl_tenant(h, "a", "reserve_bytes"), 0);
        assert_int_equal(ctl_tenant(h, "c", "reserve_bytes"), 256 << 20);
        reload_to(h, &options, "notice: tenant c is removed", NULL);
}

HARNESS_TEST(test_needs_restart, &options)
{
        static const struct private_options next = {
                .daemon_lines = "default_socket = off\nstop_timeout = 3s\nevict = lru\n",
                .device_lines = "memory = 128MiB\nextent = 4MiB\n",
                .tenants = before};
        char path[PRIVATE_PATH_MAX];

        reload_to(h, &next, "[daemon] default_socket stays 'yes': 'no' needs a restart",
                "[device host] memory stays '256 MiB': '128 MiB' needs a restart",
                "[device host] extent stays", NULL);
        snprintf(path, sizeof(path), "%.60s/sock", h->daemon.runtime);
        assert_int_equal(access(path, F_OK), 0);
        assert_int_equal(ctl_status(h, "budget_bytes"), 256 << 20);
        /* The answer is the same: the daemon compares with the values in force. */
        reload_to(h, &next, "[daemon] default_socket stays", "[device host] memory stays", NULL);
        reload_to(h, &options, NULL);
}

static char *drop_in_path(struct harness *h, const char *name)
{
        char *path;

        assert_true(asprintf(&path, "%s.d%s%s", h->daemon.config, name ? "/" : "",
                            name ? name : "") > 0);
        return path;
}

/* A file beside the configuration counts where that is read: by a reload, a check before a restart,
 * and
 * --check-config. */
HARNESS_TEST(test_drop_ins, &options)
{
        static const char good[] =
                "[daemon]\nruntime_dir = /nonexistent\n[tenant a]\nlimit = 5MiB\n";
        char *dir = drop_in_path(h, NULL), *path = drop_in_path(h, "a.conf");
        char *fifo = drop_in_path(h, "b.conf");
        struct proc_output out;

        assert_int_equal(mkdir(dir, 0755), 0);
        assert_int_equal(file_replace(path, good, strlen(good), 0644), 0);
        assert_int_equal(ctl_run(h, "restart --check", &out), 6);
        assert_non_null(strstr(out.out, "sockets would be in /nonexistent"));
        proc_output_free(&out);
        assert_int_equal(ctl_run(h, "reload", &out), 0);
        assert_non_null(strstr(out.out, "changed: [tenant a] limit = 5 MiB, was 4 MiB\n"));
        assert_non_null(strstr(out.out, "pending: [daemon] runtime_dir stays "));
        proc_output_free(&out);

        assert_int_equal(mkfifo(fifo, 0600), 0);
        assert_int_equal(ctl_run(h, "reload", &out), 1);
        assert_non_null(strstr(out.err, "b.conf: it is no regular file: "));
        proc_output_free(&out);
        assert_int_equal(ctl_run(h, "restart --check", &out), 6);
        assert_non_null(strstr(out.out, "b.conf: it is no regular file: "));
        proc_output_free(&out);

        assert_int_equal(unlink(path) + unlink(fifo) + rmdir(dir), 0);
        reload_to(h, &options, NULL);
        free(dir);
        free(path);
        free(fifo);
}

/* Several spaces in a row become one. */
static void squeeze(char *text)
{
        char *to = text;

        for (const char *from = text; *from; from++)
                if (*from != ' ' || from[1] != ' ')
                        *to++ = *from;
        *to = '\0';
}

/* One line of config show; asserts that there is one that begins with this. Owned. */
static char *config_line(struct harness *h, const char *words, const char *begin)
{
        struct proc_output out;
        char *line, *found = NULL, *rest;

        assert_int_equal(ctl_run(h, words, &out), 0);
        squeeze(out.out);
        rest = out.out;
        while (!found && (line = strsep(&rest, "\n")))
                if (strncmp(line, begin, strlen(begin)) == 0)
                        found = strdup(line);
        if (!found)
                fail_msg("nothing begins with '%s'", begin);
        proc_output_free(&out);
        return found;
}

static void expect_config(struct harness *h, const char *words, const char *begin, ...)
{
        char *line = config_line(h, words, begin);
        va_list args;

        va_start(args, begin);
        for (const char *word; (word = va_arg(args, const char *));)
                if (!strstr(line, word))
                        fail_msg("no '%s' in '%s'", word, line);
        va_end(args);
        free(line);
}

/* config show: each option with its value in force, its source, and a waiting value. That waits for
 * a restart or, if a reservation doesn't fit, for a reload. */
HARNESS_TEST(test_config_show, &options)
{
        static const struct private_tenant after[] = {
                {"a", "class = pinned\nreserve = 512MiB\n"}, {"b", "limit = 8MiB\n"}, {NULL, NULL}};
        static const struct private_options next = {
                .device_lines = "memory = 128MiB\nextent = 2MiB", .tenants = after};
        struct proc_output out;

        expect_config(h, "config show --all", "[daemon] max_clients ", " 1024 ", " default", NULL);
        expect_config(h, "config show", "[tenant a] limit ", " 4MiB ", "conf:", NULL);
        ctl(h, "tenants set b weight=7");
        expect_config(h, "config show --all --tenant b", "[tenant b] weight ", " 7 ", " kvleasectl",
                NULL);
        assert_int_equal(ctl_run(h, "config show", &out), 0);
        assert_null(strstr(out.out, "max_clients"));
        proc_output_free(&out);
        assert_int_equal(ctl_run(h, "config show --tenant nobody", &out), 1);
        assert_non_null(strstr(out.err, "no tenant nobody"));
        proc_output_free(&out);

        assert_int_equal(private_daemon_configure(&h->daemon, &next), 0);
        assert_int_equal(ctl_run(h, "reload", &out), 1);
        proc_output_free(&out);
        expect_config(h, "config show", "[device host] memory ", " 256MiB ", " 128MiB (restart) ",
                "conf:", NULL);
        expect_config(h, "config show", "[tenant a] reserve ", " 0 ", " 512MiB (reload) ", NULL);
        ctl(h, "tenants set b weight=100");
        reload_to(h, &options, NULL);
}

#define REMOTE "\n[remote r]\naddresses = 127.0.0.1:1\n"

static const struct private_options with_remote = {.daemon_lines = REMOTE, .tenants = before};

/* Options of [remote NAME] that a reload changes, options that wait, and remotes that a tenant may
 * name. */
HARNESS_TEST(test_remotes, &with_remote)
{
        static const struct private_tenant named[] = {
                {"a", "limit = 4MiB\nremote = r\nremote_write = 0\n"}, {"b", "limit = 8MiB\n"},
                {NULL, NULL}};
        static const struct private_options
                next = {.daemon_lines = "[remote r]\naddresses = 127.0.0.1:2\nbandwidth = 2GiB\n"
                                        "[remote s]\naddresses = 127.0.0.1:1\n",
                        .tenants = named},
                wrong = {.daemon_lines = "\n[remote r]\n", .tenants = named};
        struct proc_output out;

        expect_config(h, "config show", "[remote r] addresses ", " 127.0.0.1:1 ", "conf:", NULL);
        expect_config(h, "config show --all", "[remote r] bandwidth ", " 1GiB ", " default", NULL);
        assert_int_equal(private_daemon_configure(&h->daemon, &next), 0);
        assert_int_equal(ctl_run(h, "reload", &out), 0);
        assert_non_null(strstr(out.out, "changed: [remote r] bandwidth = 2 GiB, was 1 GiB\n"));
        assert_non_null(strstr(out.out, "changed: [tenant a] remote = r, was \n"));
        assert_non_null(strstr(out.out,
                "pending: [remote r] addresses stays '127.0.0.1:1': '127.0.0.1:2' needs a restart of kvleased\n"));
        assert_non_null(
                strstr(out.out, "pending: [remote s] is new: it needs a restart of kvleased\n"));
        proc_output_free(&out);
        expect_config(h, "config show", "[remote r] addresses ", " 127.0.0.1:1 ",
                " 127.0.0.1:2 (restart) ", NULL);
        expect_config(h, "config show", "[remote r] bandwidth ", " 2GiB ", "conf:", NULL);
        expect_config(h, "config show", "[tenant a] remote ", " r ", "conf:", NULL);

        assert_int_equal(ctl_run(h, "tenants set b remote=s", &out), 1);
        assert_non_null(strstr(out.err, "kvleased was started without a section [remote s]"));
        proc_output_free(&out);
        assert_int_equal(ctl_run(h, "tenants set b remote=r remote_secret=/none", &out), 1);
        assert_non_null(strstr(out.err, "remote_secret = /none can't be read"));
        proc_output_free(&out);
        ctl(h, "tenants set b remote=r");

        assert_int_equal(private_daemon_configure(&h->daemon, &wrong), 0);
        assert_int_equal(ctl_run(h, "reload --json", &out), 1);
        assert_non_null(strstr(out.out, "[remote r] there are no addresses"));
        proc_output_free(&out);

        /* A reload with a removed or new section leaves all tenants in place. */
        assert_int_equal(private_daemon_configure(&h->daemon, &options), 0);
        assert_int_equal(ctl_run(h, "reload", &out), 0);
        assert_non_null(strstr(out.out, "pending: [remote r] addresses stays '127.0.0.1:1': '' "));
        proc_output_free(&out);
        harness_restart(h);
        expect_config(h, "config show", "[tenant b] remote ", " r ", " kvleasectl", NULL);
        ctl(h, "tenants set b weight=7");
        assert_int_equal(private_daemon_configure(&h->daemon, &next), 0);
        harness_restart(h);
        expect_config(h, "config show", "[remote s] addresses ", " 127.0.0.1:1 ", "conf:", NULL);
        ctl(h, "tenants set b remote=s");
}

static char *tenants_text(struct harness *h)
{
        struct proc_output o;

        assert_int_equal(ctl_run(h, "--json tenants list", &o), 0);
        free(o.err);
        return o.out;
}

/* One bad line: all of the file is left, also its good lines, and each mistake is named. */
HARNESS_TEST(test_bad_file, &options)
{
        static const struct private_tenant bad[] = {{"a", "limit = 9MiB\n"},
                {"d", "limit = 1MiB\n"}, {"e", "limit = much\n"}, {NULL, NULL}};
        static const struct private_options next = {
                .daemon_lines = "max_clients = 1\nlog_levle = debug\n", .tenants = bad};
        char *was = tenants_text(h), *is, *text;
        struct worker *w;

        assert_int_equal(private_daemon_configure(&h->daemon, &next), 0);
        text = reload(h, "reload: nothing was changed\n");
        assert_non_null(strstr(text, "log_levle"));
        assert_non_null(strstr(text, "[tenant e] limit: 'much'"));
        assert_null(strstr(text, "reloaded"));
        free(text);
        is = tenants_text(h);
        assert_string_equal(is, was);
        free(is);
        assert_int_equal(unlink(h->daemon.config), 0); /* none at all: the same */
        free(reload(h, "reload: nothing was changed\n"));
        is = tenants_text(h);
        assert_string_equal(is, was);
        free(is);
        free(was);
        w = worker_start(h, "a", "ns", 1);
        worker_stop(w);
        reload_to(h, &options, NULL);
}
