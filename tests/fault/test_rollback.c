/* The state file can't be replaced, for any user of the daemon. An administrator's change then
 * takes no effect, and works as soon as the file can be replaced. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

static const struct private_tenant rows[] = {{"a", "limit = 4MiB\n"}, {NULL, NULL}};
static const struct private_options options = {.tenants = rows};

struct obstacle {
        char path[PRIVATE_PATH_MAX], saved[PRIVATE_PATH_MAX];
};

/* A directory in the file's place: rename() onto it fails, for root also. */
static void put_obstacle(struct obstacle *o, struct harness *h)
{
        snprintf(o->path, sizeof(o->path), "%.60s/tenants.conf", h->daemon.state);
        snprintf(o->saved, sizeof(o->saved), "%.60s/saved", h->daemon.dir);
        assert_int_equal(rename(o->path, o->saved), 0);
        assert_int_equal(mkdir(o->path, 0755), 0);
}

static void remove_obstacle(struct obstacle *o)
{
        assert_int_equal(rmdir(o->path), 0);
        assert_int_equal(rename(o->saved, o->path), 0);
}

static unsigned count_files(const char *dir)
{
        DIR *d = opendir(dir);
        unsigned n = 0;

        assert_non_null(d);
        for (struct dirent *e; (e = readdir(d));)
                n += e->d_name[0] != '.' && strcmp(e->d_name, "lock") != 0;
        closedir(d);
        return n;
}

static void refused(struct harness *h, const char *words)
{
        struct proc_output o;

        assert_int_equal(ctl_run(h, words, &o), 1);
        if (!strstr(o.err, "tenants.conf") || !strstr(o.err, "nothing was changed"))
                fail_msg("kvleasectl %s: %s", words, o.err);
        proc_output_free(&o);
}

static char *tenants_text(struct harness *h)
{
        struct proc_output o;

        assert_int_equal(ctl_run(h, "--json tenants list", &o), 0);
        free(o.err);
        return o.out;
}

HARNESS_TEST(test_nothing_changes, &options)
{
        char path[PRIVATE_PATH_MAX], *was, *is;
        struct obstacle o;
        struct worker *w;

        ctl(h, "tenants add kept limit=2MiB weight=7");
        was = tenants_text(h);
        put_obstacle(&o, h);
        refused(h, "tenants add more limit=1MiB");
        refused(h, "tenants set kept weight=9");
        refused(h, "tenants set a limit=1MiB");
        refused(h, "tenants remove kept");
        is = tenants_text(h);
        assert_string_equal(is, was);
        free(is);
        assert_int_not_equal(access(private_daemon_socket(&h->daemon, "more", path), F_OK), 0);
        *strrchr(path, '/') = '\0';
        assert_int_not_equal(access(path, F_OK), 0);
        assert_int_equal(count_files(h->daemon.state), 1); /* the obstacle: no half file */
        w = worker_start(h, "kept", "ns", 1);
        worker_stop(w);
        ctl_wait_status(h, "n_clients", 0);
        remove_obstacle(&o);
        harness_restart(h);
        free(was);
        assert_int_equal(ctl_status(h, "n_tenants"), 2);
        assert_int_equal(ctl_tenant(h, "kept", "weight"), 7);
        assert_int_equal(ctl_tenant(h, "a", "limit_bytes"), 4 << 20);
}

/* The command succeeds once the obstacle is removed. */
HARNESS_TEST(test_works_again, &options)
{
        struct obstacle o;

        ctl(h, "tenants add kept weight=7");
        put_obstacle(&o, h);
        refused(h, "tenants set kept weight=9");
        remove_obstacle(&o);
        ctl(h, "tenants set kept weight=9");
        ctl(h, "tenants add more");
        ctl(h, "tenants remove more");
        harness_restart(h);
        assert_int_equal(ctl_tenant(h, "kept", "weight"), 9);
        assert_int_equal(ctl_status(h, "n_tenants"), 2);
}
