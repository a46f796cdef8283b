/* kvleasectl doctor beside a real kvleased. A healthy host has no findings; each injected fault is
 * found, and disappears after the remedy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

/* Exit codes of ctl.h. */
#define EXIT_WARNING 7
#define EXIT_ERROR   8

static const struct private_options with_disk = {.disk_size = "64MiB"};

/* Runs doctor; *ret_code is its exit status. */
static json_t *look(struct harness *h, int *ret_code)
{
        struct proc_output o;
        char words[512];
        json_t *reply;

        snprintf(words, sizeof(words), "doctor --json --binary %s", program_daemon());
        *ret_code = ctl_run(h, words, &o);
        reply = json_loads(o.out, 0, NULL);
        if (!reply || o.err[0])
                fail_msg("kvleasectl doctor: %s%s", o.out, o.err);
        proc_output_free(&o);
        return reply;
}

/* The first finding of a check in that state; borrowed; NULL: none. */
static json_t *find(json_t *reply, const char *check, const char *state)
{
        json_t *f;
        size_t i;

        json_array_foreach(ctl_list(reply, "findings"), i, f)
        {
                if (strcmp(json_string_value(json_object_get(f, "check")), check) == 0 &&
                        strcmp(json_string_value(json_object_get(f, "state")), state) == 0)
                        return f;
        }
        return NULL;
}

static void assert_found(json_t *reply, const char *check, const char *state)
{
        char *text;

        if (find(reply, check, state))
                return;
        text = json_dumps(reply, JSON_INDENT(2));
        fail_msg("%s isn't %s: %s", check, state, text);
}

/* Runs doctor; the check has a finding in that state. */
static void expect(struct harness *h, const char *check, const char *state, int code)
{
        int is;
        json_t *reply = look(h, &is);

        assert_found(reply, check, state);
        if (code >= 0)
                assert_int_equal(is, code);
        json_decref(reply);
}

/* Runs the check's remedy in a shell. */
static void follow(struct harness *h, const char *check, const char *state)
{
        int code;
        json_t *reply = look(h, &code), *f = find(reply, check, state);
        const char *remedy = json_string_value(json_object_get(f, "remedy"));
        const char *argv[] = {"sh", "-c", remedy, NULL};
        struct proc_output o;

        assert_non_null(remedy);
        assert_int_equal(proc_run(argv, NULL, 10000, &o), 0);
        assert_int_equal(o.status, 0);
        proc_output_free(&o);
        json_decref(reply);
}

/* The host may cause warnings; kvleased causes none. */
HARNESS_TEST(test_healthy, &with_disk)
{
        static const char *const fine[] = {"kernel", "driver", "config", "daemon", "devices",
                "open-files", "runtime-dir", "admin-socket", "tenant-sockets", "state-dir",
                "memory"};
        int code;
        json_t *reply = look(h, &code);

        for (size_t i = 0; i < ARRAY_SIZE(fine); i++)
                assert_found(reply, fine[i], "ok");
        assert_int_equal(json_integer_value(json_object_get(reply, "errors")), 0);
        assert_true(code == 0 || code == EXIT_WARNING);
        json_decref(reply);
}

/* Output as text. */
HARNESS_TEST(test_text, NULL)
{
        struct proc_output o;

        assert_int_equal(chmod(h->daemon.admin, 0666), 0);
        assert_int_equal(ctl_run(h, "doctor", &o), EXIT_ERROR);
        assert_ptr_equal(
                strstr(o.out, "error        admin-socket    everybody may connect to "), o.out);
        assert_non_null(strstr(o.out, " why: users that may use it administer every tenant\n"));
        assert_non_null(strstr(o.out, " do:  chmod 0660 "));
        assert_null(strstr(o.out, "\nok "));
        proc_output_free(&o);
        assert_int_equal(chmod(h->daemon.admin, 0600), 0);
        ctl_run(h, "doctor --all", &o);
        assert_non_null(strstr(o.out, "\nok           admin-socket "));
        proc_output_free(&o);
        /* On a narrow terminal no line is longer. */
        setenv("KVLEASE_COLUMNS", "70", 1);
        ctl_run(h, "doctor --all", &o);
        unsetenv("KVLEASE_COLUMNS");
        for (const char *line = o.out; *line; line += strcspn(line, "\n") + 1)
                assert_true(strcspn(line, "\n") <= 70);
        proc_output_free(&o);
}

HARNESS_TEST(test_modes, NULL)
{
        assert_int_equal(chmod(h->daemon.admin, 0666), 0);
        expect(h, "admin-socket", "error", EXIT_ERROR);
        follow(h, "admin-socket", "error");
        expect(h, "admin-socket", "ok", -1);
        assert_int_equal(chmod(h->daemon.runtime, 0777), 0);
        expect(h, "runtime-dir", "error", EXIT_ERROR);
        follow(h, "runtime-dir", "error");
        assert_int_equal(chmod(h->daemon.runtime, 0775), 0);
        follow(h, "runtime-dir", "warning");
        expect(h, "runtime-dir", "ok", -1);
}

HARNESS_TEST(test_tenant_socket, NULL)
{
        char path[PRIVATE_PATH_MAX], away[PRIVATE_PATH_MAX + 8];
        char *slash;

        private_daemon_socket(&h->daemon, "a", path);
        snprintf(away, sizeof(away), "%s.away", path);
        assert_int_equal(rename(path, away), 0);
        expect(h, "tenant-sockets", "error", EXIT_ERROR);
        assert_int_equal(rename(away, path), 0);
        expect(h, "tenant-sockets", "ok", -1);
        slash = strrchr(path, '/');
        *slash = '\0';
        assert_int_equal(chmod(path, 0755), 0);
        expect(h, "tenant-sockets", "warning", -1);
}

/* Has kvleasectl status a warning with that word? Its summary then isn't "ok". */
static bool status_finds(struct harness *h, const char *word)
{
        json_t *reply = ctl_json(h, "status"), *f;
        bool is_found = false;
        size_t i;

        json_array_foreach(ctl_list(reply, "findings"), i, f)
        {
                is_found |=
                        strstr(json_string_value(json_object_get(f, "what")), word) &&
                        strcmp(json_string_value(json_object_get(f, "severity")), "warning") == 0;
        }
        if (is_found)
                assert_true(json_is_false(json_object_get(reply, "well")));
        json_decref(reply);
        return is_found;
}

HARNESS_TEST(test_drain, NULL)
{
        assert_false(status_finds(h, "draining"));
        ctl(h, "drain");
        expect(h, "daemon", "warning", -1);
        assert_true(status_finds(h, "draining"));
        ctl(h, "drain --off");
        expect(h, "daemon", "ok", -1);
        assert_false(status_finds(h, "draining"));
}

static const struct private_tenant with_remote[] = {
        {"a", "remote = rack\n[remote rack]\naddresses = 127.0.0.1:1\n"}, {0}};
static const struct private_options exchanging = {.tenants = with_remote};

static void await_status(struct harness *h, const char *word)
{
        for (unsigned i = 0; i < 100 && !status_finds(h, word); i++)
                usleep(20000);
        assert_true(status_finds(h, word));
}

/* kvlease-exchange ends. status and doctor name it, and its remedy; afterwards status names the
 * node, which doesn't answer either. */
HARNESS_TEST(test_exchange, &exchanging)
{
        json_t *reply, *f;
        int status, code;

        await_status(h, "no node of remote rack answers");
        assert_int_equal(private_exchange_stop(&h->daemon, &status), 0);
        await_status(h, "remote rack: kvlease-exchange isn't reached");
        reply = look(h, &code);
        assert_int_equal(code, EXIT_ERROR);
        f = find(reply, "remote", "error");
        assert_non_null(f);
        assert_non_null(strstr(json_string_value(json_object_get(f, "remedy")),
                "systemctl enable --now kvlease-exchange.socket"));
        json_decref(reply);
        assert_int_equal(private_exchange_start(&h->daemon), 0);
        await_status(h, "no node of remote rack answers");
}

HARNESS_TEST(test_stopped, NULL)
{
        int status, code;
        json_t *reply;

        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        reply = look(h, &code);
        assert_int_equal(code, EXIT_WARNING);
        assert_found(reply, "daemon", "warning");
        assert_found(reply, "open-files", "not_checked");
        assert_found(reply, "config", "ok");
        json_decref(reply);
        harness_start(h);
}

/* A user without permission to ask: reported, but no error. */
HARNESS_TEST(test_other_user, NULL)
{
        const char *argv[] = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", NULL,
                "--socket", h->daemon.admin, "--json", "doctor", NULL};
        struct proc_output o;
        json_t *reply;

        harness_play_others(h);
        argv[4] = program_ctl();
        assert_int_equal(proc_run(argv, NULL, 30000, &o), 0);
        assert_true(WIFEXITED(o.status));
        reply = json_loads(o.out, 0, NULL);
        assert_non_null(reply);
        assert_found(reply, "daemon", "not_checked");
        assert_int_equal(json_integer_value(json_object_get(reply, "errors")), 0);
        json_decref(reply);
        proc_output_free(&o);
}
