#include "tests/unit/test-support.h"

#include <dirent.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/fd-count.h"

static int n_fds_before;

int test_fds_note(void **state)
{
        n_fds_before = fd_count_open();
        return n_fds_before < 0 ? -1 : 0;
}

int test_fds_check(void **state)
{
        int n = fd_count_open();

        if (n == n_fds_before)
                return 0;
        print_error("%d fds were open before the test, %d after\n", n_fds_before, n);
        return -1;
}

const char *test_dir_make(void)
{
        static char path[PATH_MAX];
        const char *top = getenv("TMPDIR");

        snprintf(path, sizeof(path), "%s/kvlease-test-XXXXXX", top ? top : "/tmp");
        assert_non_null(mkdtemp(path));
        return path;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
        return remove(path);
}

void test_dir_remove(const char *dir)
{
        assert_int_equal(nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
}

char *test_path(const char *dir, const char *name)
{
        char *path = NULL;

        assert_true(asprintf(&path, "%s/%s", dir, name) > 0);
        return path;
}

unsigned test_dir_count(const char *dir)
{
        DIR *d = opendir(dir);
        unsigned n = 0;

        assert_non_null(d);
        for (struct dirent *e; (e = readdir(d));)
                n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
        closedir(d);
        return n;
}
