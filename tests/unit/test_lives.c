/* Records in the lock file of how earlier daemons ended. */
#include "tests/unit/test-support.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "daemon/server/config/lives.h"

struct lock {
        char path[256];
        struct lives lives;
};

/* The next daemon takes the file; of the kernel's kills there are so many by then. */
static void begin(struct lock *l, uint64_t of_group, uint64_t of_host)
{
        const struct cgroup_oom_kills now = {of_group, of_host};
        _cleanup_free_ char *text = NULL;
        size_t len;
        int fd;

        (void)file_read(l->path, 1 << 16, &text, &len);
        fd = open(l->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_true(dprintf(fd, "4711\n") > 0);
        assert_int_equal(lives_begin(&l->lives, text, &now, fd), 0);
        close(fd);
}

static void end_in_order(struct lock *l)
{
        int fd = open(l->path, O_WRONLY | O_APPEND | O_CLOEXEC);

        lives_end(fd);
        close(fd);
}

static struct lock lock_in(const char *dir)
{
        struct lock l = {0};

        snprintf(l.path, sizeof(l.path), "%s/lock", dir);
        return l;
}

TEST(test_deaths)
{
        const char *dir = test_dir_make();
        struct lock l = lock_in(dir);

        begin(&l, 5, 7);
        assert_int_equal(l.lives.n, 0);
        begin(&l, 5, 7);
        assert_int_equal(l.lives.n, 1);
        assert_int_equal(lives_count(&l.lives, true), 0);
        end_in_order(&l);
        begin(&l, 6, 8);
        assert_int_equal(l.lives.n, 1);
        begin(&l, 7, 9); /* while it lived the kernel killed */
        assert_int_equal(l.lives.n, 2);
        assert_int_equal(lives_count(&l.lives, true), 1);
        begin(&l, 0, 9); /* its group was made anew */
        assert_int_equal(lives_count(&l.lives, true), 1);
        begin(&l, 0, 10);
        assert_int_equal(lives_count(&l.lives, true), 2);
        begin(&l, 0, 0); /* another start of the host */
        assert_int_equal(lives_count(&l.lives, true), 2);
        assert_int_equal(l.lives.n, 5);
        for (unsigned i = 0; i < 2 * LIVES_MAX; i++)
                begin(&l, 0, 0);
        assert_int_equal(l.lives.n, LIVES_MAX);
        /* An hour later they don't count any more, while this daemon lives. */
        assert_int_equal(lives_count(&l.lives, false), LIVES_MAX);
        l.lives.deaths[0].sec -= 3600;
        assert_int_equal(lives_count(&l.lives, false), LIVES_MAX - 1);
        test_dir_remove(dir);
}

/* Deaths for want of memory that follow each other are waited for, ever longer. */
TEST(test_pauses)
{
        static const unsigned secs[] = {0, 1, 2, 4, 8, 16, 30, 30};
        const char *dir = test_dir_make();
        struct lock l = lock_in(dir);

        begin(&l, 0, 0);
        for (unsigned i = 0; i < ARRAY_SIZE(secs); i++) {
                begin(&l, i + 1, 0);
                assert_int_equal(l.lives.pause_nsec, secs[i] * NSEC_PER_SEC);
        }
        begin(&l, 8, 0); /* of this death memory wasn't the reason */
        assert_int_equal(l.lives.pause_nsec, 0);
        end_in_order(&l);
        begin(&l, 9, 0);
        assert_int_equal(l.lives.pause_nsec, 0);
        test_dir_remove(dir);
}

/* Lines that are old, of another boot, or malformed don't count. */
TEST(test_other_lines)
{
        const struct cgroup_oom_kills now = {0};
        struct lives l;
        int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

        assert_int_equal(
                lives_begin(&l, "1\ndeath 18446744073709551615 1\ndeath x\n\nended\n", &now, fd),
                0);
        assert_int_equal(l.n, 0);
        assert_int_equal(lives_begin(&l, "", &now, fd), 0); /* of an older version: it died */
        assert_int_equal(l.n, 1);
        assert_int_equal(lives_count(&l, true), 0);
        close(fd);
}
