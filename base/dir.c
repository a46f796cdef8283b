#include "base/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "base/parse.h"

static int check_owner(const struct stat *st, const char *what, char why[DIR_WHY_BYTES])
{
        if (st->st_uid == geteuid() || st->st_uid == 0)
                return 0;
        return say_why(why, DIR_WHY_BYTES, -EPERM,
                "%s belongs to uid %u, which may put anything there: chown it to uid %u, or remove it",
                what, (unsigned)st->st_uid, (unsigned)geteuid());
}

/* The owner of a link decides its target. */
static int check_link(const char *path, unsigned rules, char why[DIR_WHY_BYTES])
{
        struct stat st;

        if (lstat(path, &st) < 0)
                return say_why(why, DIR_WHY_BYTES, -errno, "%s", strerror(errno));
        if (!S_ISLNK(st.st_mode))
                return 0;
        if (rules & DIR_NO_LINK)
                return say_why(why, DIR_WHY_BYTES, -ELOOP, "it is a symbolic link: remove it");
        return check_owner(&st, "the symbolic link", why);
}

static int mend_mode(int fd, const struct stat *st, unsigned mode, char why[DIR_WHY_BYTES])
{
        unsigned have = st->st_mode & 07777;
        char path[sizeof("/proc/self/fd/") + 10];

        if (have == mode)
                return 0;
        if (st->st_uid != geteuid() && (have & ~mode & 07) == 0)
                return 0;
        if (st->st_uid != geteuid())
                return say_why(why, DIR_WHY_BYTES, -EPERM,
                        "it is root's and has mode 0%o: chmod it to 0%o", have, mode);
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* O_PATH knows no fchmod() */
        if (chmod(path, mode) < 0)
                return say_why(why, DIR_WHY_BYTES, -errno,
                        "its mode can't be changed from 0%o to 0%o: %s", have, mode,
                        strerror(errno));
        return 0;
}

int dir_check(const char *path, unsigned rules, unsigned mode, char why[DIR_WHY_BYTES])
{
        int follow = rules & DIR_NO_LINK ? O_NOFOLLOW : 0;
        _cleanup_fd_ int fd = -1;
        struct stat st;
        int r;

        r = check_link(path, rules, why);
        if (r < 0)
                return r;
        fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | follow);
        if (fd < 0 || fstat(fd, &st) < 0)
                return say_why(why, DIR_WHY_BYTES, -errno, "%s", strerror(errno));
        r = check_owner(&st, "it", why);
        if (r < 0)
                return r;
        if (rules & DIR_MEND)
                return mend_mode(fd, &st, mode, why);
        if ((st.st_mode & S_IWOTH) && !(rules & DIR_STICKY && st.st_mode & S_ISVTX))
                return say_why(why, DIR_WHY_BYTES, -EPERM,
                        "everybody may write to it and take kvleased's place there: chmod o-w it");
        return 0;
}

int dir_check_file(const char *path, char why[DIR_WHY_BYTES])
{
        struct stat st;
        int r;

        if (lstat(path, &st) < 0)
                return say_why(why, DIR_WHY_BYTES, -errno, "%s", strerror(errno));
        r = check_owner(&st, "it", why);
        if (r == 0 && S_ISREG(st.st_mode) && st.st_mode & S_IWOTH)
                return say_why(why, DIR_WHY_BYTES, -EPERM,
                        "everybody may write to it: look at what it says, then chmod o-w it");
        return r;
}

int dir_make(const char *path, unsigned rules, unsigned mode, char why[DIR_WHY_BYTES])
{
        bool made = mkdir(path, mode) == 0;
        int r;

        if (!made && errno != EEXIST)
                return say_why(why, DIR_WHY_BYTES, -errno, "%s", strerror(errno));
        r = dir_check(path, rules | DIR_MEND, mode, why);
        return r < 0 ? r : made;
}
