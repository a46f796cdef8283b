/* Other users: the kernel's rules for each socket admit or refuse them. Needs root to become
 * another user; otherwise skipped. Numbers of users and groups need no name on the machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

#define TIMEOUT_MSEC 60000

/* A user: "UID:GID:GROUPS" of setpriv(1). */
struct user {
        const char *uid, *gid, *groups;
};

static const struct user alice = {"54321", "54321", "54321"};
static const struct user bob = {"54322", "54322", "54322"};
static const struct user nobody = {"65534", "65534", "65534"};
static const struct user root = {"0", "0", "0"};
/* Bob is in a group of the rules, as a second group and as his first. */
static const struct user bob_in_team = {"54322", "54322", "54322,54400"};
static const struct user bob_of_team = {"54322", "54400", "54322"};

/* Runs a command as the user, its input from `line`; *ret_output owned. Returns its exit status. */
static int run_as(const struct user *u, const char *program, const char *arg1, const char *arg2,
        const char *line, struct proc_output *ret_output)
{
        char uid[64], gid[64], groups[64];
        const char *argv[] = {"setpriv", uid, gid, groups, "--", "sh", "-c",
                "printf '%s\\n' \"$3\" | \"$0\" $1 $2", program, arg1, arg2, line, NULL};

        snprintf(uid, sizeof(uid), "--reuid=%s", u->uid);
        snprintf(gid, sizeof(gid), "--regid=%s", u->gid);
        snprintf(groups, sizeof(groups), "--groups=%s", u->groups);
        assert_int_equal(proc_run(argv, NULL, TIMEOUT_MSEC, ret_output), 0);
        assert_true(WIFEXITED(ret_output->status));
        return WEXITSTATUS(ret_output->status);
}

/* Opens the paths to all users: only the sockets' rules are left. */
static void open_paths(struct harness *h)
{
        char path[PRIVATE_PATH_MAX];

        assert_int_equal(chmod(h->daemon.dir, 0755), 0);
        for (unsigned i = 0; i < 3; i++) {
                snprintf(path, sizeof(path), "%.40s/t/%c", h->daemon.runtime, "abc"[i]);
                assert_int_equal(chmod(path, 0755), 0);
        }
}

/* Connects a real client there as the user. Returns "" or the refusal; static storage. */
static const char *connect_as(const struct user *u, const char *path)
{
        static char sentence[1024];
        struct proc_output o;
        char line[256];

        snprintf(line, sizeof(line), "connect %s", path);
        run_as(u, program_worker(), "", "", line, &o);
        if (o.out[0] == '0')
                sentence[0] = '\0';
        else
                snprintf(sentence, sizeof(sentence), "%s%s", o.out, o.err);
        proc_output_free(&o);
        return sentence;
}

static void assert_in(const struct user *u, const char *path)
{
        const char *sentence = connect_as(u, path);

        if (*sentence)
                fail_msg("uid %s at %s: %s", u->uid, path, sentence);
}

static void assert_out(const struct user *u, const char *path, const char *why)
{
        const char *sentence = connect_as(u, path);

        if (!strstr(sentence, why))
                fail_msg("uid %s at %s: \"%s\" without \"%s\"", u->uid, path, sentence, why);
}

static const struct private_tenant rows[] = {
        {"a", NULL}, {"b", "uids = 54321\n"}, {"c", "gids = 54400\n"}, {NULL, NULL}};
static const struct private_options tenants = {.tenants = rows};

HARNESS_TEST(test_tenant_sockets, &tenants)
{
        char a[PRIVATE_PATH_MAX], b[PRIVATE_PATH_MAX], c[PRIVATE_PATH_MAX];

        harness_play_others(h);
        private_daemon_socket(&h->daemon, "a", a);
        private_daemon_socket(&h->daemon, "b", b);
        private_daemon_socket(&h->daemon, "c", c);
        assert_out(&alice, a, "-13"); /* the directory is the tenant's group's alone */
        open_paths(h);
        assert_in(&alice, a);
        assert_in(&bob, a);
        assert_in(&alice, b);
        assert_out(&bob, b, "uid 54322 is not allowed by tenant b");
        assert_out(&root, b, "uid 0 is not allowed by tenant b");
        assert_out(&alice, c, "uid 54321 is not allowed by tenant c");
        assert_out(&bob, c, "uid 54322 is not allowed by tenant c");
        assert_in(&bob_in_team, c);
        assert_in(&bob_of_team, c);
        ctl(h, "tenants set b uids+=54322");
        assert_in(&bob, b);
        assert_in(&alice, b); /* its line is in the configuration file */
        harness_restart(h);
        open_paths(h);
        assert_in(&bob, b);
        assert_in(&alice, b);
        ctl(h, "tenants set b uids-=54321");
        assert_out(&alice, b, "add it with kvleasectl tenants set b uids+=54321");
        assert_in(&bob, b);
        ctl_wait_status(h, "n_clients", 0);
}

/* The administrator learns which users a change locks out, and to which users it opens a tenant. */
HARNESS_TEST(test_lost_access, &tenants)
{
        static const char *const told[][2] = {
                {"tenants set b uids=54322", "note: uids 54321 may no longer connect to tenant b"},
                {"tenants set b uids+=54321", ""},
                {"tenants set a uids=54321", "all but the listed users and groups may no longer"},
                {"tenants set a uids=", "all that reach its socket may connect to tenant a now"},
        };
        struct proc_output o;

        for (size_t i = 0; i < ARRAY_SIZE(told); i++) {
                assert_int_equal(ctl_run(h, told[i][0], &o), 0);
                if (!strstr(o.err, told[i][1]) || (!*told[i][1] && *o.err))
                        fail_msg("%s: \"%s\"", told[i][0], o.err);
                proc_output_free(&o);
        }
        assert_int_equal(ctl_run(h, "tenants set a uids+=54321", &o), 1);
        assert_non_null(strstr(o.err, "tenant a lists no users or groups"));
        proc_output_free(&o);
}

/* On the default socket exactly one tenant must name the user. */
HARNESS_TEST(test_default_socket, &tenants)
{
        char path[PRIVATE_PATH_MAX];

        harness_play_others(h);
        open_paths(h);
        snprintf(path, sizeof(path), "%.60s/sock", h->daemon.runtime);
        assert_in(&alice, path);
        assert_out(&bob, path, "no tenant lists uid 54322");
        assert_out(&bob_in_team, path, "no tenant lists uid 54322"); /* groups don't say which */
        assert_out(&root, path, "no tenant lists uid 0");
        ctl(h, "tenants set a uids=0,54321,65534");
        assert_out(&alice, path, "uid 54321 is listed by tenants a and b");
        assert_in(&root, path);
        assert_out(&nobody, path, "uid 65534 stands for every user unknown here");
        ctl(h, "tenants set a uids=");
        assert_in(&alice, path);
        assert_out(&root, path, "no tenant lists uid 0");
        ctl_wait_status(h, "n_clients", 0);
}

/* `status` as the user, at this socket; why NULL: it succeeds. */
static void assert_status(const char *path, const struct user *u, const char *why)
{
        struct proc_output o;
        int status;
        char option[PRIVATE_PATH_MAX + 16];

        snprintf(option, sizeof(option), "--socket=%s", path);
        status = run_as(u, program_ctl(), option, "status", "", &o);
        if (!why && status)
                fail_msg("uid %s may not use %s: %s", u->uid, path, o.err);
        if (why && (!status || !strstr(o.err, why)))
                fail_msg("uid %s: status %d, \"%s\" without \"%s\"", u->uid, status, o.err, why);
        proc_output_free(&o);
}

static void assert_admin(struct harness *h, const struct user *u, const char *why)
{
        assert_status(h->daemon.admin, u, why);
}

/* Every machine has a group "daemon" (LSB): number 1 on Debian. */
static const struct private_options admin_group = {
        .daemon_lines = "admin_group = daemon\n", .tenants = rows};

HARNESS_TEST(test_admin_socket, &admin_group)
{
        static const struct user member = {"54322", "54322", "1"};
        struct stat st;

        harness_play_others(h);
        open_paths(h);
        assert_int_equal(stat(h->daemon.admin, &st), 0);
        assert_int_equal(st.st_gid, 1);
        assert_int_equal(st.st_mode & 0777, 0660);
        assert_admin(h, &root, NULL);
        assert_out(&root, h->daemon.admin, "is a socket of kvleased for administration");
        assert_int_equal(ctl_status(h, "violations"), 0);
        assert_admin(h, &member, NULL);
        assert_admin(h, &bob, "ermission denied"); /* by the file's mode */
        assert_int_equal(chmod(h->daemon.admin, 0666), 0);
        assert_admin(h, &bob, "uid 54322 may not administer kvleased: join group daemon");
        assert_admin(h, &member, NULL);
}

/* Without a named socket kvleasectl uses the one that the user may use. */
static void assert_finds_monitor(struct harness *h, const struct user *u)
{
        char option[PRIVATE_PATH_MAX + 16];
        struct proc_output o;

        snprintf(option, sizeof(option), "--runtime-dir=%s", h->daemon.runtime);
        if (run_as(u, program_ctl(), option, "status", "", &o) != 0)
                fail_msg("uid %s finds no socket: %s", u->uid, o.err);
        proc_output_free(&o);
        assert_int_equal(run_as(u, program_ctl(), option, "drain", "", &o), 1);
        assert_non_null(strstr(o.err, "which is for reading: use"));
        proc_output_free(&o);
}

/* A member of the monitor group isn't an administrator; every administrator may monitor. */
static const struct private_options two_groups = {
        .daemon_lines = "admin_group = 54400\nmonitor_group = daemon\n", .tenants = rows};

HARNESS_TEST(test_monitor_socket, &two_groups)
{
        static const struct user member = {"54322", "54322", "1"};
        char path[PRIVATE_PATH_MAX];
        struct stat st;

        harness_play_others(h);
        open_paths(h);
        snprintf(path, sizeof(path), "%.80s/monitor.sock", h->daemon.runtime);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_gid, 1);
        assert_int_equal(st.st_mode & 0777, 0660);
        assert_status(path, &root, NULL);
        assert_status(path, &member, NULL);
        assert_admin(h, &member, "ermission denied");
        assert_finds_monitor(h, &member);
        assert_status(path, &bob, "ermission denied"); /* by the file's mode */
        assert_int_equal(chmod(path, 0666), 0);
        assert_int_equal(chmod(h->daemon.admin, 0666), 0);
        assert_status(path, &bob, "uid 54322 may not monitor kvleased: join group daemon");
        assert_status(path, &bob_in_team, NULL);
        assert_admin(h, &member, "uid 54322 may not administer kvleased");
}
