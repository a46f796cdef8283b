/* Statistics of policies survive the daemon (daemon/server/services/learnt.h), and jobs for files
 * run in order (disk.h). The test's policy is LRU with a number. */
#include "daemon/core/core.h"
#include "tests/unit/server-fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "daemon/core/life/idle.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/services/learnt.h"
#include "daemon/server/base/disk.h"
#include "daemon/server/services/tenants.h"
#include "policy/evict.h"

static struct evict_ops policy; /* evict_lru, and the two below */
static uint32_t learnt, loaded; /* 0: nothing */
static size_t n_saved_bytes;    /* of what save() gives */
static int load_result;

static size_t save(const void *p, void *buf, size_t size)
{
        if (size >= n_saved_bytes) {
                memset(buf, 0, n_saved_bytes);
                memcpy(buf, &learnt, sizeof(learnt));
        }
        return learnt == 0 ? 0 : n_saved_bytes;
}

static int load(void *p, const void *buf, size_t size)
{
        if (load_result == 0)
                memcpy(&loaded, buf, sizeof(loaded));
        return load_result;
}

static char state_dir[64];
static char path[128]; /* of the namespace's file */

static void start(struct world *w)
{
        char text[256];

        snprintf(text, sizeof(text), "[daemon]\nstate_dir=%s\n[tenant a]\nlimit=1MiB\n", state_dir);
        world_init(w, "fake");
        world_serve(w, text, 16);
        w->server.life.keeps_state = true;
        w->server.store.evict = &policy;
        loaded = 0;
}

static void begin(void)
{
        strcpy(state_dir, "/tmp/kvl-learnt-XXXXXX");
        assert_non_null(mkdtemp(state_dir));
        snprintf(path, sizeof(path), "%s/policy/a/n", state_dir);
        policy = evict_lru;
        policy.save = save;
        policy.load = load;
        n_saved_bytes = 100;
        load_result = 0;
}

static void finish(void)
{
        char command[128];

        snprintf(command, sizeof(command), "rm -r %s", state_dir);
        assert_int_equal(system(command), 0);
}

static bool is_there(const char *name)
{
        struct stat st;

        return stat(name, &st) == 0;
}

/* A client with the namespace "n" open, in a daemon of its own; what was loaded by that. */
static uint32_t run_once(uint32_t value)
{
        struct world w;

        start(&w);
        learnt = value;
        hang_up(connect_client(&w, getpid(), NULL));
        world_end(&w);
        return loaded;
}

/* Not written again while it is the same; ten minutes after the last time where it isn't. */
TEST(test_every_ten_minutes)
{
        struct world w;
        struct client *c;
        struct ns *ns;
        uint64_t now;

        begin();
        start(&w);
        learnt = 1;
        c = connect_client(&w, getpid(), NULL);
        ns = ns_find(tenant_find(&w.server.store, "a"), "n");
        now = ns->learnt.saved_nsec;
        assert_int_equal(learnt_save_due(&w.server, now + 3600 * NSEC_PER_SEC), UINT64_MAX);
        ns->learnt.unsaved = true;
        assert_int_equal(
                learnt_save_due(&w.server, now + 599 * NSEC_PER_SEC), now + 600 * NSEC_PER_SEC);
        world_turn(&w);
        assert_false(is_there(path));
        assert_int_equal(learnt_save_due(&w.server, now + 600 * NSEC_PER_SEC), UINT64_MAX);
        AWAIT(&w, is_there(path));

        assert_int_equal(unlink(path), 0);
        ns->learnt.unsaved = true;
        ns->learnt.saved_nsec = now;
        assert_int_equal(learnt_save_due(&w.server, now + 600 * NSEC_PER_SEC), UINT64_MAX);
        AWAIT(&w, list_is_empty(&w.server.disk.jobs));
        assert_false(is_there(path));
        learnt = 2;
        ns->learnt.unsaved = true;
        ns->learnt.saved_nsec = now;
        assert_int_equal(learnt_save_due(&w.server, now + 600 * NSEC_PER_SEC), UINT64_MAX);
        AWAIT(&w, is_there(path));
        hang_up(c);
        world_end(&w);
        finish();
}

/* With its namespace it is written, with its tenant it goes. */
/* The namespace is unused, and so are its statistics. */
TEST(test_goes_with_an_idle_namespace)
{
        struct world w;

        begin();
        (void)run_once(7);
        assert_true(is_there(path));
        start(&w);
        learnt = 7;
        hang_up(connect_client(&w, getpid(), NULL));
        AWAIT(&w, tenant_find(&w.server.store, "a")->n_members == 0);
        assert_int_equal(idle_drop(tenant_find(&w.server.store, "a"), 1), 1);
        AWAIT(&w, !is_there(path));
        world_end(&w);
        assert_false(is_there(path));
        finish();
}

TEST(test_goes_with_the_tenant)
{
        struct world w;
        struct detail d = {""};
        uint64_t pages, kept;
        struct tenant *a;

        begin();
        start(&w);
        learnt = 1;
        hang_up(connect_client(&w, getpid(), NULL));
        a = tenant_find(&w.server.store, "a");
        AWAIT(&w, a->n_members == 0);
        assert_int_equal(store_purge(&w.server.store, a, NULL, true, &pages, &kept), 0);
        AWAIT(&w, is_there(path));
        assert_int_equal(tenancy_remove(tenancy_find(&w.server, "a"), true, &d), 0);
        AWAIT(&w, list_is_empty(&w.server.disk.jobs));
        *strrchr(path, '/') = '\0';
        assert_false(is_there(path));
        world_end(&w);
        finish();
}

/* Files that are no such files, damaged, or of another policy or version: as if there were none,
 * and replaced by the next one. */
TEST(test_refused)
{
        char *text = NULL;
        size_t len = 0;

        begin();
        assert_int_equal(run_once(7), 0);
        assert_int_equal(file_read(path, LEARNT_MAX_BYTES, &text, &len), 0);
        for (size_t i = 0; i < len; i++) { /* every byte of it counts */
                text[i] ^= 1;
                assert_int_equal(file_replace(path, text, len, 0640), 0);
                assert_int_equal(run_once(0), 0);
                text[i] ^= 1;
        }
        for (size_t n = 0; n < len; n += 13) {
                assert_int_equal(file_replace(path, text, n, 0640), 0);
                assert_int_equal(run_once(0), 0);
        }
        assert_int_equal(file_replace(path, text, len, 0640), 0);
        load_result = -EINVAL;
        assert_int_equal(run_once(0), 0);
        load_result = 0;
        assert_int_equal(run_once(0), 7);
        policy.name = "another";
        assert_int_equal(run_once(8), 0);
        assert_int_equal(run_once(0), 8);
        assert_int_equal(unlink(path) + mkfifo(path, 0600), 0); /* isn't waited for */
        assert_int_equal(run_once(9), 0);
        assert_int_equal(run_once(0), 9);
        free(text);
        finish();
}

/* Statistics that couldn't be written are written as soon as possible, without a new change. */
TEST(test_room_later)
{
        char file[128];
        struct world w;
        struct ns *ns;

        begin();
        start(&w);
        snprintf(file, sizeof(file), "%s/policy", state_dir);
        assert_int_equal(file_replace(file, "", 0, 0640), 0);
        learnt = 7;
        connect_client(&w, getpid(), NULL);
        ns = ns_find(tenant_find(&w.server.store, "a"), "n");
        learnt_save(&w.server, ns);
        AWAIT(&w, list_is_empty(&w.server.disk.jobs));
        assert_int_equal(unlink(file), 0);
        assert_int_equal(
                learnt_save_due(&w.server, ns->learnt.saved_nsec + 600 * NSEC_PER_SEC), UINT64_MAX);
        AWAIT(&w, list_is_empty(&w.server.disk.jobs));
        assert_true(is_there(path));
        world_end(&w);
        finish();
}

/* ---- disk ----------------------------------------------------------------------------------- */

struct counted {
        struct disk_job job;
        struct disk *disk;
        struct counted *next; /* handed on when this is done */
        unsigned number, *n_run, *n_done;
};

int main(void)
{
        return test_run_all(world_warm_up, NULL);
}
