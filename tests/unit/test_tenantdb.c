/* Tenants on disk: what was put is there after a restart; a failed write changes nothing, nor does
 * one that is refused; while a disk takes its time the loop goes on. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/server/config/tenantdb.h"
#include "tests/unit/alloc-fail.h"

static char reported[4096];

static void note(void *data, bool is_error, const char *sentence)
{
        snprintf(reported, sizeof(reported), "%s", sentence);
}

static uv_loop_t loop;
static struct disk disk;

static int open_loop(void **state)
{
        if (uv_loop_init(&loop) < 0)
                return -1;
        disk_init(&disk, &loop);
        return 0;
}

static int close_loop(void **state)
{
        return uv_loop_close(&loop);
}

/* Result of a written change. */
struct outcome {
        struct tenantdb *db;
        int refusal;     /* 0: it is kept */
        bool disk_fills; /* before it is refused */
        unsigned n_done;
        int result;
};

/* No file may grow: the nearest to a full disk that needs no mount. */
static void set_full(bool is_full)
{
        static struct rlimit before;
        struct rlimit none;

        signal(SIGXFSZ, SIG_IGN);
        if (is_full) {
                assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
                none = before;
                none.rlim_cur = 0;
        }
        assert_int_equal(setrlimit(RLIMIT_FSIZE, is_full ? &none : &before), 0);
}

static void on_done(void *data, int result)
{
        struct outcome *o = data;

        o->n_done++;
        o->result = result;
        if (o->disk_fills && o->n_done == 1)
                set_full(true);
        if (result == 0 && o->refusal < 0)
                tenantdb_undo(o->db, o->refusal);
        else if (result == 0)
                tenantdb_keep(o->db);
}

/* Begun; now to its end. */
static int end(struct outcome *o, struct detail *d)
{
        assert_int_equal(o->n_done, 0); /* never at once */
        assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(o->n_done, o->refusal < 0 && o->result == o->refusal ? 2 : 1);
        if (o->result < 0 && d)
                tenantdb_explain(o->db, o->result, d);
        return o->result;
}

static int put_row(
        struct tenantdb *db, const struct tenant_config *row, int refusal, struct detail *d)
{
        struct outcome o = {.db = db, .refusal = refusal};
        int r = tenantdb_put(db, row, on_done, &o, d);

        return r < 0 ? r : end(&o, d);
}

static int remove_row(struct tenantdb *db, const char *name, struct detail *d)
{
        struct outcome o = {.db = db};
        int r = tenantdb_remove(db, name, on_done, &o, d);

        return r < 0 ? r : end(&o, d);
}

static int open_db(struct tenantdb *db, const char *dir)
{
        return tenantdb_open(db, dir, &disk, note, NULL);
}

static void put(struct tenantdb *db, const char *name, const char *assignment)
{
        struct tenant_config row;
        struct detail d;
        char why[512];

        tenant_config_init(&row, name);
        assert_int_equal(tenant_config_apply(&row, assignment, why, sizeof(why)), 0);
        assert_int_equal(put_row(db, &row, 0, &d), 0);
}

static char *read_db(const struct tenantdb *db)
{
        char *text = NULL;
        size_t len;

        assert_int_equal(file_read(db->path, 1 << 20, &text, &len), 0);
        return text;
}

/* A change that can't be applied: the file is as it was, to the letter. */
TEST(test_a_refused_change)
{
        const char *dir = test_dir_make();
        char *before, *after;
        struct tenant_config row;
        struct tenantdb db;
        struct detail d;

        assert_int_equal(open_db(&db, dir), 0);
        tenant_config_init(&row, "first");
        assert_int_equal(put_row(&db, &row, -ENOSPC, &d), -ENOSPC);
        assert_int_equal(db.table.n, 0);
        put(&db, "a", "weight=5");
        before = read_db(&db);
        tenant_config_init(&row, "b");
        assert_int_equal(put_row(&db, &row, -ENOSPC, &d), -ENOSPC);
        assert_int_equal(db.table.n, 1);
        assert_false(db.is_torn);
        after = read_db(&db);
        assert_string_equal(after, before);
        free(before);
        free(after);
        tenantdb_close(&db);
        test_dir_remove(dir);
}

/* The change is refused and the disk is full: that is reported, and corrected at the end. */
TEST(test_a_change_that_stays)
{
        const char *dir = test_dir_make();
        struct outcome o = {.refusal = -EBUSY, .disk_fills = true};
        struct tenant_config row;
        struct tenantdb db;
        struct detail d;
        char *text;

        assert_int_equal(open_db(&db, dir), 0);
        put(&db, "a", "weight=5");
        o.db = &db;
        tenant_config_init(&row, "b");
        assert_int_equal(tenantdb_put(&db, &row, on_done, &o, &d), 0);
        assert_int_equal(end(&o, &d), -EBUSY);
        set_full(false);
        assert_true(db.is_torn);
        assert_int_equal(db.table.n, 1);
        assert_non_null(strstr(d.text, "the file has the change"));
        text = read_db(&db);
        assert_non_null(strstr(text, "[tenant b]"));
        free(text);
        tenantdb_close(&db);
        assert_int_equal(open_db(&db, dir), 0);
        assert_int_equal(db.table.n, 1);
        assert_non_null(tenantdb_find(&db, "a"));
        tenantdb_close(&db);
        test_dir_remove(dir);
}

TEST(test_a_broken_file_is_refused)
{
        static const char bad[] = "[tenant a]\nlimit = lots\n";
        const char *dir = test_dir_make();
        char *path = test_path(dir, "tenants.conf"), *text = NULL;
        struct tenantdb db;
        size_t len;

        assert_int_equal(file_replace(path, bad, strlen(bad), 0600), 0);
        assert_int_equal(open_db(&db, dir), -EINVAL);
        assert_non_null(strstr(reported, path));
        assert_int_equal(file_read(path, 4096, &text, &len), 0);
        assert_string_equal(text, bad);
        free(text);
        assert_int_equal(unlink(path) + mkfifo(path, 0600), 0);
        assert_int_equal(open_db(&db, dir), -EBADFD);
        assert_non_null(strstr(reported, "tenants.conf: it is no regular file: "));
        free(path);
        test_dir_remove(dir);
}

/* Written by a newer kvleased: its options stay in the file until their tenant goes. */
TEST(test_what_is_not_known)
{
        static const char newer[] = "[tenant keep]\nlimit = 64MiB\nfuture_option = a = 3\n"
                                    "\n[tenant gone]\nfuture_option = 4\n"
                                    "\n[future x]\nlimit = 5\nmore = 6\n";
        const char *dir = test_dir_make();
        char *path = test_path(dir, "tenants.conf"), *text;
        struct tenantdb db;
        struct detail d;

        assert_int_equal(file_replace(path, newer, strlen(newer), 0640), 0);
        assert_int_equal(open_db(&db, dir), 0);
        assert_non_null(
                strstr(reported, "tenants.conf:10: [future x]: this kvleased doesn't know"));
        assert_int_equal(db.unknown.n, 4);
        assert_int_equal(tenantdb_find(&db, "keep")->limit_bytes, 64 << 20);
        put(&db, "keep", "weight=7");
        text = read_db(&db);
        assert_non_null(strstr(text, "\n[tenant keep]\nweight = 7\nfuture_option = a = 3\n"));
        assert_non_null(strstr(text, "\n[tenant gone]\nfuture_option = 4\n"));
        assert_non_null(strstr(text, "\n[future x]\nlimit = 5\nmore = 6\n"));
        free(text);
        assert_int_equal(remove_row(&db, "gone", &d), 0);
        tenantdb_close(&db);
        assert_int_equal(open_db(&db, dir), 0);
        assert_int_equal(db.unknown.n, 3);
        assert_null(tenantdb_find(&db, "gone"));
        put(&db, "gone", "weight=1");
        text = read_db(&db);
        assert_null(strstr(text, "= 4"));
        free(text);
        tenantdb_close(&db);
        free(path);
        test_dir_remove(dir);
}

/* A file of ours that is cut off at any byte is refused, but not one of an older version. */
TEST(test_cut_off)
{
        static const char old[] =
                "# Written by kvleased: what kvleasectl changed. Laid over the configuration at start.\n\n[tenant a]\nweight = 5\n";
        const char *dir = test_dir_make();
        char *path = test_path(dir, "tenants.conf"), *text;
        struct tenantdb db;

        assert_int_equal(open_db(&db, dir), 0);
        put(&db, "a", "weight=5");
        text = read_db(&db);
        tenantdb_close(&db);
        for (size_t len = 0; len < strlen(text); len++) {
                assert_int_equal(file_replace(path, text, len, 0640), 0);
                reported[0] = '\0';
                assert_int_equal(open_db(&db, dir), -EINVAL);
                assert_non_null(strstr(reported, "tenants.conf was cut off: "));
        }
        free(text);
        assert_int_equal(file_replace(path, old, strlen(old), 0640), 0);
        assert_int_equal(open_db(&db, dir), 0);
        assert_int_equal(tenantdb_find(&db, "a")->weight, 5);
        tenantdb_close(&db);
        assert_int_equal(file_replace(path, old, strcspn(old, "\n") + 1, 0640), 0);
        assert_int_equal(open_db(&db, dir), 0); /* it had no tenant */
        tenantdb_close(&db);
        free(path);
        test_dir_remove(dir);
}

/* Refused if other users can write the file: they could make tenants. */
TEST(test_whose_file)
{
        static const char text[] = "[tenant a]\nweight = 5\n";
        const char *dir = test_dir_make();
        char *path = test_path(dir, "tenants.conf");
        struct tenantdb db;

        assert_int_equal(file_replace(path, text, strlen(text), 0640), 0);
        assert_int_equal(chmod(path, 0666), 0);
        assert_int_equal(open_db(&db, dir), -EPERM);
        assert_non_null(strstr(reported, "everybody may write to it"));
        assert_int_equal(chmod(path, 0660), 0);
        assert_int_equal(open_db(&db, dir), 0);
        tenantdb_close(&db);
        if (geteuid() == 0) {
                assert_int_equal(chown(path, 1, 1), 0);
                assert_int_equal(open_db(&db, dir), -EPERM);
                assert_non_null(strstr(reported, "belongs to uid 1, which may put anything there"));
        }
        free(path);
        test_dir_remove(dir);
}

TEST(test_an_unusable_directory)
{
        const char *dir = test_dir_make();
        char *nested = test_path(dir, "no/such/parent");
        struct tenantdb db;

        assert_int_equal(open_db(&db, nested), -ENOENT);
        assert_non_null(strstr(reported, nested));
        assert_non_null(strstr(reported, "--state-dir"));
        free(nested);
        test_dir_remove(dir);
}

int main(void)
{
        return test_run_all(open_loop, close_loop);
}
