#include "base/parse.h"
#include "base/secret-file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"

/* Others have no access, the group only reads: Kubernetes gives a secret with an fsGroup mode
 * 0440. */
#define FORBIDDEN_MODE (S_IRWXO | S_IWGRP | S_IXGRP)

static int deny_errno(char why[SECRET_WHY_BYTES], int code)
{
        return say_why(why, SECRET_WHY_BYTES, code, "can't be read: %s", strerror(-code));
}

static int check_file(int fd, char why[SECRET_WHY_BYTES])
{
        struct stat st;

        if (fstat(fd, &st) < 0)
                return deny_errno(why, -errno);
        if (!S_ISREG(st.st_mode))
                return say_why(why, SECRET_WHY_BYTES, S_ISDIR(st.st_mode) ? -EISDIR : -EBADFD,
                        "is no regular file: name one");
        if (st.st_uid != 0 && st.st_uid != geteuid())
                return say_why(why, SECRET_WHY_BYTES, -EACCES,
                        "belongs to uid %u, neither to root nor to uid %u, which reads it: chown it, and write a new secret",
                        (unsigned)st.st_uid, (unsigned)geteuid());
        if (st.st_mode & FORBIDDEN_MODE)
                return say_why(why, SECRET_WHY_BYTES, -EACCES,
                        "has mode %04o, so that others can read or change it: chmod 600, and write a new secret",
                        (unsigned)(st.st_mode & 07777));
        return 0;
}

static int read_bytes(int fd, size_t min, size_t max, struct secret *s, char why[SECRET_WHY_BYTES])
{
        char text[SECRET_BYTES_MAX + 2]; /* a newline, and one byte too many */
        ssize_t n = fd_read(fd, text, max + 2);
        int r = 0;

        if (n > 0 && text[n - 1] == '\n')
                n--;
        if (n < 0)
                r = deny_errno(why, (int)n);
        else if ((size_t)n < min)
                r = say_why(why, SECRET_WHY_BYTES, -EINVAL,
                        "has %zd bytes, at least %zu are needed%s", n, min,
                        min > 1 ? ": openssl rand -base64 32 makes some" : "");
        else if ((size_t)n > max)
                r = say_why(why, SECRET_WHY_BYTES, -EINVAL,
                        "has more than %zu bytes: make it shorter", max);
        else
                memcpy(s->bytes, text, (size_t)n);
        s->len = r == 0 ? (size_t)n : 0;
        explicit_bzero(text, sizeof(text));
        return r;
}

int secret_read(
        const char *path, size_t min, size_t max, struct secret *ret, char why[SECRET_WHY_BYTES])
{
        _cleanup_fd_ int fd = -1;
        int r;

        assert(max <= SECRET_BYTES_MAX);
        memset(ret, 0, sizeof(*ret));
        /* Doesn't wait, not even for a FIFO or a terminal. */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
                return deny_errno(why, -errno);
        r = check_file(fd, why);
        return r < 0 ? r : read_bytes(fd, min, max, ret, why);
}

void secret_wipe(struct secret *s)
{
        explicit_bzero(s, sizeof(*s));
}
