/* Changes of tenants whose file takes its time (tenant-changes.h): everybody else is served, they
 * come in their order, and what can't be put in force any more is nowhere. */
#include "tests/unit/server-fixture.h"

#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fd.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/base/disk.h"
#include "daemon/server/services/tenant-changes.h"
#include "daemon/server/services/tenants.h"
#include "proto/status.h"

/* A disk that does nothing until it is told to: what comes after this job waits for it. A test that
 * fails leaves it, and its world, as they are: so neither lies on its stack. */
struct slow_disk {
        struct disk_job job;
        sem_t go_on;
        bool is_done;
};

static struct slow_disk *slow; /* NULL: the disk is as fast as it is */

static void wait_for_test(struct disk_job *job)
{
        while (sem_wait(&container_of(job, struct slow_disk, job)->go_on) < 0)
                ;
}

static void note_done(struct disk_job *job)
{
        container_of(job, struct slow_disk, job)->is_done = true;
}

static void begin_slow(struct world *w)
{
        slow = calloc(1, sizeof(*slow));
        assert_non_null(slow);
        slow->job.run = wait_for_test;
        slow->job.done = note_done;
        list_init(&slow->job.link);
        assert_int_equal(sem_init(&slow->go_on, 0, 0), 0);
        disk_do(&w->server.disk, &slow->job);
}

static void free_slow(void)
{
        sem_destroy(&slow->go_on);
        free(slow);
        slow = NULL;
}

static void end_slow(struct world *w)
{
        sem_post(&slow->go_on);
        AWAIT(w, slow->is_done);
        free_slow();
}

/* The thread of a test that failed meanwhile goes on: at its end the process waits for it. */
static int end_test(void **state)
{
        if (slow)
                sem_post(&slow->go_on);
        slow = NULL;
        return test_fds_check(state);
}

static const char *dir;

static void start(struct world *w)
{
        dir = test_dir_make();
        world_init(w, "fake");
        world_serve(w, "[tenant a]\nlimit=1MiB\n", 16);
        snprintf(w->server.db.path, sizeof(w->server.db.path), "%s/tenants.conf", dir);
}

static void finish(struct world *w)
{
        world_end(w);
        test_dir_remove(dir);
}

static void say_set(struct client *admin, const char *name, bool create, const char *option)
{
        Kvlease__V1__AdminTenantSetRequest m = KVLEASE__V1__ADMIN_TENANT_SET_REQUEST__INIT;
        char *texts[] = {(char *)option};

        m.name = (char *)name;
        m.create = create;
        m.options = texts;
        m.n_options = option != NULL;
        say(admin, MSG_ADMIN_TENANT_SET, &m.base);
}

static void say_remove(struct client *admin, const char *name)
{
        Kvlease__V1__AdminTenantRemoveRequest m = KVLEASE__V1__ADMIN_TENANT_REMOVE_REQUEST__INIT;

        m.name = (char *)name;
        say(admin, MSG_ADMIN_TENANT_REMOVE, &m.base);
}

static void say_status(struct client *admin)
{
        Kvlease__V1__AdminListRequest m = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;

        say(admin, MSG_ADMIN_DEVICES, &m.base);
}

static uint32_t weight_of(struct world *w, const char *name)
{
        struct tenancy *t = tenancy_find(&w->server, name);

        return t ? t->config.weight : 0;
}

/* True if the file, which the next start reads, has this text. */
static bool file_says(const char *text)
{
        _cleanup_free_ char *path = test_path(dir, "tenants.conf"), *is = NULL;
        size_t len;

        return file_read(path, 1 << 20, &is, &len) == 0 && strstr(is, text);
}

/* ---- tests ----------------------------------------------------------------------------------- */

TEST_WITH(test_others_are_served, test_fds_note, end_test, NULL)
{
        static struct world w;
        struct client *admin, *other, *c;
        pid_t pid = start_process();

        start(&w);
        admin = connect_admin(&w);
        other = connect_admin(&w);
        c = connect_client(&w, pid, NULL);
        begin_slow(&w);
        say_set(admin, "a", false, "weight=7");
        say_status(admin); /* comes after the change */
        say_status(other);
        expect(&w, other, "ADMIN_DEVICES:0 ");
        say_lease(c, 1);
        expect(&w, c, "LEASE:0 ");
        assert_string_equal(admin->replies, "");
        assert_int_not_equal(weight_of(&w, "a"), 7);
        assert_false(file_says("weight"));
        end_slow(&w);
        expect(&w, admin, "ADMIN_TENANT_SET:0 ADMIN_DEVICES:0 ");
        assert_int_equal(weight_of(&w, "a"), 7);
        assert_true(file_says("[tenant a]\nweight = 7\n"));
        finish(&w);
        kill_process(pid);
}

/* Changes of several administrators: each is checked against the result of the one before. */
TEST_WITH(test_in_order, test_fds_note, end_test, NULL)
{
        struct client *admins[4];
        static struct world w;

        start(&w);
        for (unsigned i = 0; i < ARRAY_SIZE(admins); i++)
                admins[i] = connect_admin(&w);
        begin_slow(&w);
        say_set(admins[0], "new", true, "weight=2");
        AWAIT(&w, w.server.tenancies.n_changes == 1);
        say_set(admins[1], "new", true, "weight=3");
        AWAIT(&w, w.server.tenancies.n_changes == 2);
        say_set(admins[2], "new", false, "weight=4");
        AWAIT(&w, w.server.tenancies.n_changes == 3);
        say_remove(admins[3], "new");
        AWAIT(&w, w.server.tenancies.n_changes == 4);
        end_slow(&w);
        AWAIT(&w, !tenant_changes_are_left(&w.server));
        expect(&w, admins[0], "ADMIN_TENANT_SET:0 ");
        AWAIT(&w, admins[1]->status != UINT32_MAX);
        assert_int_equal(admins[1]->status, WIRE_EXISTS);
        expect(&w, admins[2], "ADMIN_TENANT_SET:0 ");
        expect(&w, admins[3], "ADMIN_TENANT_REMOVE:0 ");
        assert_null(tenancy_find(&w.server, "new"));
        assert_false(file_says("new"));
        finish(&w);
}

/* The administrator hangs up: the change is carried out, without a reply. */
TEST_WITH(test_hang_up, test_fds_note, end_test, NULL)
{
        struct client *admin, *second;
        static struct world w;

        start(&w);
        admin = connect_admin(&w);
        second = connect_admin(&w);
        begin_slow(&w);
        say_set(admin, "a", false, "weight=7");
        AWAIT(&w, w.server.tenancies.n_changes == 1);
        say_set(second, "a", false, "weight=8"); /* waits behind it */
        AWAIT(&w, w.server.tenancies.n_changes == 2);
        hang_up(admin);
        hang_up(second);
        AWAIT(&w, w.server.peers.n_peers == 0);
        end_slow(&w);
        AWAIT(&w, !tenant_changes_are_left(&w.server));
        assert_int_equal(weight_of(&w, "a"), 8);
        assert_true(file_says("weight = 8\n"));
        finish(&w);
}

/* A client came while the change was written, and keeps its tenant: the file has it again. */
TEST_WITH(test_refused_once_written, test_fds_note, end_test, NULL)
{
        struct client *admin;
        static struct world w;
        pid_t pid = start_process();

        start(&w);
        admin = connect_admin(&w);
        say_set(admin, "b", true, "limit=1MiB");
        expect(&w, admin, "ADMIN_TENANT_SET:0 ");
        begin_slow(&w);
        say_remove(admin, "b");
        AWAIT(&w, w.server.tenancies.n_changes == 1);
        connect_client_of(&w, "b", pid, NULL);
        end_slow(&w);
        AWAIT(&w, admin->status != UINT32_MAX);
        assert_int_equal(admin->status, WIRE_BUSY);
        assert_non_null(strstr(admin->detail, "stop them first"));
        assert_non_null(tenancy_find(&w.server, "b"));
        assert_true(file_says("[tenant b]\nlimit = 1"));
        finish(&w);
        kill_process(pid);
}

static void ignore_sentence(void *data, bool is_refused, const char *sentence)
{
}

/* SIGHUP, with this configuration. */
static void reload(struct world *w, const char *text)
{
        struct config next;

        world_parse(text, &next);
        tenants_reload(&w->server, &next, ignore_sentence, NULL);
        tenant_table_deinit(&w->server.config.tenants);
        w->server.config.tenants = next.tenants;
}

/* A reload doesn't see an unwritten change, which is then applied to the reloaded tenants. */
TEST_WITH(test_reload_meanwhile, test_fds_note, end_test, NULL)
{
        struct client *admin;
        static struct world w;

        start(&w);
        admin = connect_admin(&w);
        begin_slow(&w);
        say_set(admin, "a", false, "weight=7");
        AWAIT(&w, w.server.tenancies.n_changes == 1);
        reload(&w, "[tenant a]\nlimit=2MiB\nweight=3\n");
        assert_int_equal(weight_of(&w, "a"), 3);
        end_slow(&w);
        expect(&w, admin, "ADMIN_TENANT_SET:0 ");
        assert_int_equal(weight_of(&w, "a"), 7);
        assert_int_equal(tenancy_find(&w.server, "a")->config.limit_bytes, 2 << 20);
        reload(&w, "[tenant a]\nlimit=2MiB\nweight=3\n");
        assert_int_equal(weight_of(&w, "a"), 7);
        assert_true(file_says("[tenant a]\nweight = 7\n"));
        finish(&w);
}

static void ask_add(struct client *admin)
{
        say_set(admin, "b", true, "weight=7");
}

static void ask_change(struct client *admin)
{
        say_set(admin, "a", false, "weight=7");
}

static void ask_removal(struct client *admin)
{
        say_remove(admin, "c");
}

/* While it is written SIGHUP makes or removes the tenant, or names it: refused, and the file is as
 * it was. */
TEST_WITH(test_reload_refuses, test_fds_note, end_test, NULL)
{
        static const struct {
                void (*ask)(struct client *admin);
                const char *config;
                int status;
                bool stays; /* the tenant */
        } cases[] = {
                {ask_add, "[tenant a]\n[tenant b]\nweight=3\n", WIRE_EXISTS, true},
                {ask_change, "[tenant b]\n", WIRE_NOT_FOUND, false},
                {ask_removal, "[tenant c]\nweight=3\n", WIRE_BUSY, true},
        };
        static const char *const names[] = {"b", "a", "c"};

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct client *admin;
                static struct world w;

                start(&w);
                admin = connect_admin(&w);
                say_set(admin, "c", true, "weight=5");
                expect(&w, admin, "ADMIN_TENANT_SET:0 ");
                begin_slow(&w);
                cases[i].ask(admin);
                AWAIT(&w, w.server.tenancies.n_changes == 1);
                reload(&w, cases[i].config);
                end_slow(&w);
                AWAIT(&w, admin->status != UINT32_MAX);
                assert_int_equal(admin->status, cases[i].status);
                assert_int_equal(tenancy_find(&w.server, names[i]) != NULL, cases[i].stays);
                assert_false(file_says("weight = 7"));
                assert_true(file_says("[tenant c]\nweight = 5\n"));
                finish(&w);
        }
}

/* A client of the tenant is killed: what it held goes, and the change is put in force. */
TEST_WITH(test_client_dies_meanwhile, test_fds_note, end_test, NULL)
{
        struct client *admin, *c;
        static struct world w;
        pid_t pid = start_process();

        start(&w);
        admin = connect_admin(&w);
        c = connect_client(&w, pid, NULL);
        say_lease(c, 1);
        expect(&w, c, "LEASE:0 ");
        begin_slow(&w);
        say_set(admin, "a", false, "weight=7");
        AWAIT(&w, w.server.tenancies.n_changes == 1);
        kill_process(pid);
        hang_up(c);
        AWAIT(&w, tenancy_find(&w.server, "a")->tenant->n_members == 0);
        assert_int_equal(w.server.tenancies.n_changes, 1);
        world_check(&w);
        end_slow(&w);
        expect(&w, admin, "ADMIN_TENANT_SET:0 ");
        assert_int_equal(weight_of(&w, "a"), 7);
        world_check(&w);
        finish(&w);
}

TEST_WITH(test_cannot_be_written, test_fds_note, end_test, NULL)
{
        struct client *admin;
        static struct world w;

        start(&w);
        strcpy(w.server.db.path, "/dev/null/tenants.conf");
        admin = connect_admin(&w);
        begin_slow(&w);
        say_set(admin, "b", true, NULL);
        end_slow(&w);
        AWAIT(&w, admin->status != UINT32_MAX);
        assert_int_not_equal(admin->status, WIRE_OK);
        assert_non_null(strstr(admin->detail, "nothing was changed"));
        assert_null(tenancy_find(&w.server, "b"));
        say_set(admin, "a", false, "weight=7");
        AWAIT(&w, admin->status != UINT32_MAX);
        assert_int_not_equal(admin->status, WIRE_OK);
        assert_int_not_equal(weight_of(&w, "a"), 7);
        finish(&w);
}

/* At most TENANT_CHANGES_MAX changes wait. */
TEST_WITH(test_most, test_fds_note, end_test, NULL)
{
        struct client *admin;
        static struct world w;

        start(&w);
        begin_slow(&w);
        for (unsigned i = 0; i < TENANT_CHANGES_MAX; i++) {
                w.n_clients = 0;
                admin = connect_admin(&w);
                say_set(admin, "a", false, "weight=7");
                AWAIT(&w, w.server.tenancies.n_changes == i + 1);
                hang_up(admin);
                AWAIT(&w, w.server.peers.n_peers == 0);
        }
        w.n_clients = 0;
        admin = connect_admin(&w);
        say_set(admin, "a", false, "weight=8");
        AWAIT(&w, admin->status != UINT32_MAX);
        assert_int_equal(admin->status, WIRE_AGAIN);
        end_slow(&w);
        AWAIT(&w, !tenant_changes_are_left(&w.server));
        assert_int_equal(weight_of(&w, "a"), 7);
        finish(&w);
}

/* The daemon ends while one change is written and two wait: the file has the first, and no
 * administrator gets a reply. */
TEST_WITH(test_end, test_fds_note, end_test, NULL)
{
        struct client *admins[3];
        static struct world w;

        start(&w);
        for (unsigned i = 0; i < ARRAY_SIZE(admins); i++)
                admins[i] = connect_admin(&w);
        begin_slow(&w);
        for (unsigned i = 0; i < ARRAY_SIZE(admins); i++) {
                say_set(admins[i], "a", false, i == 0 ? "weight=7" : "weight=8");
                AWAIT(&w, w.server.tenancies.n_changes == i + 1);
        }
        sem_post(&slow->go_on);
        world_end(&w);
        assert_true(file_says("weight = 7\n"));
        free_slow();
        test_dir_remove(dir);
}

int main(void)
{
        return test_run_all(world_warm_up, NULL);
}
