/* kvleasectl events: real events reach readers, also those that follow the next daemon. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

#define WAIT_MSEC   30000 /* not tuned */
#define SET_PAGES   512
#define N_SETS      8
#define CHAIN_PAGES 64 /* as many as a line of the worker's names */
#define MIB         (UINT64_C(1) << 20)

/* Room for eight sets. */
static const struct private_tenant tenants[] = {
        {"a", NULL}, {"b", "limit = 4MiB\nweight = 300\n"}, {NULL, NULL}};
static const struct private_options tight = {
        .tenants = tenants, .device_lines = "memory = 16MiB\nextent = 2MiB\n"};

/* ---- kvleasectl events ----------------------------------------------------------------------- */

static const char *text(json_t *event, const char *name)
{
        const char *s = json_string_value(json_object_get(event, name));

        return s ? s : "";
}

static uint64_t number(json_t *event, const char *name)
{
        return (uint64_t)json_integer_value(json_object_get(event, name));
}

/* Output of `kvleasectl events WORDS`; owned. */
static json_t *events(struct harness *h, const char *words)
{
        json_t *list = json_array();
        json_error_t error;
        struct proc_output o;
        char line[256];

        snprintf(line, sizeof(line), "--json events %s", words);
        assert_int_equal(ctl_run(h, line, &o), 0);
        for (const char *at = o.out; *at; at += error.position + 1) {
                json_t *e = json_loads(at, JSON_DISABLE_EOF_CHECK, &error);

                assert_non_null(e);
                json_array_append_new(list, e);
        }
        proc_output_free(&o);
        return list;
}

/* The last one of a kind; owned by the list. */
static json_t *last_of(json_t *list, const char *kind)
{
        for (size_t i = json_array_size(list); i-- > 0;)
                if (strcmp(text(json_array_get(list, i), "kind"), kind) == 0)
                        return json_array_get(list, i);
        fail_msg("no event of kind %s", kind);
        return NULL;
}

/* ---- one that follows ------------------------------------------------------------------------ */

struct follower {
        pid_t pid;
        FILE *out;
        int err; /* its stderr */
        char line[4096];
};

static void follow(struct harness *h, struct follower *f, const char *kind)
{
        const char *argv[16] = {
                program_ctl(), "--socket", h->daemon.admin, "--json", "events", "--follow"};
        int out[2], err[2];

        if (kind) {
                argv[6] = "--kind";
                argv[7] = kind;
        }
        assert_int_equal(pipe2(out, O_CLOEXEC), 0);
        assert_int_equal(pipe2(err, O_CLOEXEC), 0);
        f->pid = proc_spawn(argv, NULL, (struct proc_files){-1, out[1], err[1]});
        assert_true(f->pid > 0);
        close(out[1]);
        close(err[1]);
        f->err = err[0];
        f->out = fdopen(out[0], "r");
        assert_non_null(f->out);
        setvbuf(f->out, NULL, _IONBF, 0); /* poll() must see unread output */
}

/* The next line; owned. */
static json_t *next_line(struct follower *f)
{
        struct pollfd p = {fileno(f->out), POLLIN, 0};
        json_t *e;

        if (poll(&p, 1, WAIT_MSEC) <= 0)
                fail_msg("nothing more is told");
        assert_non_null(fgets(f->line, sizeof(f->line), f->out));
        e = json_loads(f->line, 0, NULL);
        assert_non_null(e);
        return e;
}

/* Reads on to the event with this reason. */
static void await(struct follower *f, const char *kind, const char *reason)
{
        bool found = false;

        while (!found) {
                json_t *e = next_line(f);

                found = strcmp(text(e, "kind"), kind) == 0 &&
                        strcmp(text(e, "reason"), reason) == 0;
                json_decref(e);
        }
}

static void await_stderr(struct follower *f, const char *words)
{
        struct pollfd p = {f->err, POLLIN, 0};
        char said[4096] = "";
        size_t len = 0;

        while (!strstr(said, words)) {
                ssize_t n;

                if (poll(&p, 1, WAIT_MSEC) <= 0)
                        fail_msg("never said: %s", words);
                n = read(f->err, said + len, sizeof(said) - 1 - len);
                assert_true(n > 0);
                len += (size_t)n;
                said[len] = '\0';
        }
}

/* Ctrl-C ends it, which is no failure. */
static void interrupt(struct follower *f)
{
        int status = -1;

        kill(f->pid, SIGINT);
        assert_int_equal(proc_wait(f->pid, WAIT_MSEC, &status), 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        fclose(f->out);
        close(f->err);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Events of evictions for another tenant's leases: whose pages, how many, for whom. */
HARNESS_TEST(test_eviction, &tight)
{
        struct worker *a = worker_start(h, "a", "victim", 1), *b;
        uint32_t pages[CHAIN_PAGES];
        json_t *list, *e;

        for (unsigned i = 0; i < N_SETS * SET_PAGES / CHAIN_PAGES; i++)
                worker_publish_chain(a, i, CHAIN_PAGES, pages);
        worker_stop(a);
        b = worker_start(h, "b", "winner", 1);
        worker_publish_chain(b, 1, CHAIN_PAGES, pages);
        list = events(h, "--kind evicted");
        e = last_of(list, "evicted");
        assert_string_equal(text(e, "tenant"), "a");
        assert_string_equal(text(e, "namespace"), "victim");
        assert_string_equal(text(e, "by_tenant"), "b");
        assert_string_equal(text(e, "reason"), "lease");
        assert_string_equal(text(e, "tier"), "device");
        assert_true(number(e, "pages") >= SET_PAGES);
        assert_int_equal(number(e, "bytes"), number(e, "pages") * 2 * MIB / SET_PAGES);
        assert_int_equal(number(e, "count"), number(e, "pages"));
        /* Events of both tenants, and of no other. */
        json_decref(list);
        list = events(h, "--kind evicted --tenant b");
        assert_true(json_array_size(list) > 0);
        json_decref(list);
        list = events(h, "--kind evicted --namespace winner");
        assert_int_equal(json_array_size(list), 0);
        json_decref(list);
        /* The event of the worker that left. */
        list = events(h, "--kind client");
        e = last_of(list, "client");
        assert_string_equal(text(e, "tenant"), "a");
        assert_string_equal(text(e, "reason"), "said goodbye");
        assert_non_null(strstr(text(e, "by"), "process"));
        json_decref(list);
}

/* Changes by administrators, with each one's user. */
HARNESS_TEST(test_changes, &tight)
{
        struct worker *a = worker_start(h, "a", "n", 1);
        uint32_t pages[4];
        json_t *list, *e;
        char uid[32];

        snprintf(uid, sizeof(uid), "uid %u", (unsigned)getuid());
        worker_publish_chain(a, 1, 4, pages);
        ctl(h, "tenants set b class=pinned reserve=4MiB");
        list = events(h, "");
        e = last_of(list, "resized");
        assert_string_equal(text(e, "tenant"), "b");
        assert_string_equal(text(e, "by"), uid);
        assert_int_equal(number(e, "before_bytes"), 0);
        assert_int_equal(number(e, "bytes"), 4 * MIB);
        assert_string_equal(text(last_of(list, "tenant"), "detail"), "class=pinned reserve=4MiB");
        json_decref(list);
        ctl(h, "purge a");
        ctl(h, "recall a --size 2MiB");
        list = events(h, "--tenant a");
        e = last_of(list, "dropped");
        assert_string_equal(text(e, "reason"), "purge");
        assert_string_equal(text(e, "by"), uid);
        assert_int_equal(number(e, "pages"), 4);
        e = last_of(list, "revoked");
        assert_string_equal(text(e, "by"), uid);
        assert_int_equal(number(e, "bytes"), 2 * MIB);
        json_decref(list);
        list = events(h, "--count 1");
        assert_int_equal(json_array_size(list), 1);
        assert_string_equal(text(json_array_get(list, 0), "kind"), "revoked");
        json_decref(list);
}

HARNESS_TEST(test_follow, &tight)
{
        struct worker *b = worker_start(h, "b", "n", 1);
        struct follower f;

        follow(h, &f, "daemon,refused");
        await(&f, "daemon", "started");
        ctl(h, "tenants set a weight=7"); /* not of these kinds */
        ctl(h, "drain --off");            /* nothing changes */
        assert_int_equal(worker_ask(b, "lease %d", 3 * SET_PAGES), KVL_QUOTA);
        await(&f, "refused", "quota");
        worker_stop(b);
        ctl(h, "drain");
        await(&f, "daemon", "drain");
        ctl(h, "drain --off");
        await(&f, "daemon", "drain off");
        interrupt(&f);
}

/* Behind `| head` it ends with its reader, silently, even without new events. */
HARNESS_TEST(test_head, &tight)
{
        char line[2 * PRIVATE_PATH_MAX + 64];
        const char *argv[] = {"sh", "-c", line, NULL};
        struct proc_output o;

        snprintf(line, sizeof(line), "%s --socket %s events --follow | head -n 1", program_ctl(),
                h->daemon.admin);
        assert_int_equal(proc_run(argv, NULL, 30000, &o), 0);
        assert_non_null(strstr(o.out, "daemon: started"));
        assert_string_equal(o.err, "");
        proc_output_free(&o);
}

/* The reader follows the next daemon, with a message. */
HARNESS_TEST(test_restart, &tight)
{
        struct follower f;
        int status = -1;

        follow(h, &f, "daemon");
        await(&f, "daemon", "started");
        /* A reader that is connected at that moment sees that the daemon was stopping. */
        assert_int_equal(private_daemon_stop(&h->daemon, &status), 0);
        await_stderr(&f, "kvleased has exited: waiting for the next one");
        /* The daemon may start only after harness_start() has counted its first descriptors. */
        kill(f.pid, SIGSTOP);
        harness_start(h);
        kill(f.pid, SIGCONT);
        await_stderr(&f, "kvleased is back, and was restarted");
        await(&f, "daemon", "started");
        interrupt(&f);
}

/* A removed tenant may still have events; a name that isn't known is reported. */
HARNESS_TEST(test_no_such_tenant, &tight)
{
        struct proc_output o;

        assert_int_equal(ctl_run(h, "events --tenant nope", &o), 0);
        assert_string_equal(o.out, "");
        assert_non_null(strstr(o.err, "no tenant nope"));
        proc_output_free(&o);
}
