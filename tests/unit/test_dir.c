/* Directories of others, open to others, or behind others' links. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"

#define STRANGER 65533 /* no user of the system's */

struct place {
        char top[32], dir[64], link[64], why[DIR_WHY_BYTES];
};

static int setup(void **state)
{
        struct place *p = calloc(1, sizeof(*p));

        assert_non_null(p);
        strcpy(p->top, "/tmp/kvl-dir-XXXXXX");
        assert_non_null(mkdtemp(p->top));
        snprintf(p->dir, sizeof(p->dir), "%s/dir", p->top);
        snprintf(p->link, sizeof(p->link), "%s/link", p->top);
        assert_int_equal(mkdir(p->dir, 0700), 0);
        assert_int_equal(symlink("dir", p->link), 0);
        *state = p;
        return 0;
}

static int teardown(void **state)
{
        struct place *p = *state;

        unlink(p->link);
        rmdir(p->dir);
        assert_int_equal(rmdir(p->top), 0);
        free(p);
        return 0;
}

static void refuses(struct place *p, int r, const char *words, int expected)
{
        if (r != expected || !strstr(p->why, words))
                fail_msg("%d, not %d with \"%s\": %s", r, expected, words, p->why);
}

static unsigned mode_of(const char *path)
{
        struct stat st;

        assert_int_equal(stat(path, &st), 0);
        return st.st_mode & 07777;
}

TEST_WITH(test_modes, setup, teardown, NULL)
{
        struct place *p = *state;

        assert_int_equal(dir_check(p->dir, 0, 0, p->why), 0);
        assert_int_equal(chmod(p->dir, 0775), 0);
        assert_int_equal(dir_check(p->dir, 0, 0, p->why), 0);
        assert_int_equal(chmod(p->dir, 0777), 0);
        refuses(p, dir_check(p->dir, 0, 0, p->why), "chmod o-w", -EPERM);
        assert_int_equal(chmod(p->dir, 01777), 0);
        refuses(p, dir_check(p->dir, 0, 0, p->why), "chmod o-w", -EPERM);
        assert_int_equal(dir_check(p->dir, DIR_STICKY, 0, p->why), 0);
        assert_int_equal(chmod(p->dir, 0777), 0);
        refuses(p, dir_check(p->dir, DIR_STICKY, 0, p->why), "chmod o-w", -EPERM);
        assert_int_equal(mode_of(p->dir), 0777);
}

TEST_WITH(test_mended, setup, teardown, NULL)
{
        struct place *p = *state;
        mode_t mask = umask(0077);

        assert_int_equal(chmod(p->dir, 0777), 0);
        assert_int_equal(dir_make(p->dir, DIR_NO_LINK, 0755, p->why), 0);
        assert_int_equal(mode_of(p->dir), 0755);
        assert_int_equal(chmod(p->dir, 0), 0);
        assert_int_equal(dir_make(p->dir, DIR_NO_LINK, 0755, p->why), 0);
        assert_int_equal(mode_of(p->dir), 0755);
        assert_int_equal(rmdir(p->dir), 0);
        assert_int_equal(dir_make(p->dir, DIR_NO_LINK, 0755, p->why), 1);
        assert_int_equal(mode_of(p->dir), 0755);
        umask(mask);
}

TEST_WITH(test_links, setup, teardown, NULL)
{
        struct place *p = *state;

        assert_int_equal(dir_check(p->link, 0, 0, p->why), 0);
        refuses(p, dir_check(p->link, DIR_NO_LINK, 0, p->why), "symbolic link", -ELOOP);
        refuses(p, dir_make(p->link, DIR_NO_LINK, 0755, p->why), "symbolic link", -ELOOP);
        assert_int_equal(mode_of(p->dir), 0700); /* nothing was done where it leads */
        if (geteuid() != 0)
                return;
        assert_int_equal(lchown(p->link, STRANGER, (gid_t)-1), 0);
        refuses(p, dir_check(p->link, 0, 0, p->why), "symbolic link belongs to uid", -EPERM);
}

TEST_WITH(test_not_there, setup, teardown, NULL)
{
        struct place *p = *state;
        char path[80];

        assert_int_equal(rmdir(p->dir), 0);
        refuses(p, dir_check(p->dir, 0, 0, p->why), "No such file", -ENOENT);
        refuses(p, dir_check(p->link, 0, 0, p->why), "No such file", -ENOENT);
        assert_int_equal(file_replace(p->dir, "x", 1, 0600), 0);
        refuses(p, dir_check(p->dir, 0, 0, p->why), "Not a directory", -ENOTDIR);
        refuses(p, dir_make(p->dir, 0, 0755, p->why), "Not a directory", -ENOTDIR);
        snprintf(path, sizeof(path), "%s/below", p->dir);
        refuses(p, dir_make(path, 0, 0755, p->why), "Not a directory", -ENOTDIR);
        assert_int_equal(unlink(p->dir), 0);
}

TEST_WITH(test_owners, setup, teardown, NULL)
{
        struct place *p = *state;

        if (geteuid() != 0)
                return;
        assert_int_equal(chown(p->dir, STRANGER, (gid_t)-1), 0);
        refuses(p, dir_check(p->dir, 0, 0, p->why), "chown it to uid 0", -EPERM);
        refuses(p, dir_make(p->dir, 0, 0755, p->why), "chown it to uid 0", -EPERM);
        assert_int_equal(mode_of(p->dir), 0700);
        /* Root's is fine for others, as far as they could have made it so. */
        assert_int_equal(chown(p->dir, 0, (gid_t)-1), 0);
        assert_int_equal(chmod(p->top, 0755), 0);
        assert_int_equal(chmod(p->dir, 0775), 0);
        assert_int_equal(seteuid(STRANGER), 0);
        assert_int_equal(dir_check(p->dir, DIR_MEND, 0755, p->why), 0);
        refuses(p, dir_check(p->dir, DIR_MEND, 0750, p->why), "chmod it to 0750", -EPERM);
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(mode_of(p->dir), 0775);
}
