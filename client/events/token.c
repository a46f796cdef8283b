#include "client/events/token.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define BEARER "Bearer "
/* The group may read: the file has such a mode as a secret of Kubernetes, or of systemd. */
#define FORBIDDEN_MODE (S_IRWXO | S_IWGRP | S_IXGRP)

static const char *file_fault(int fd)
{
        struct stat st;

        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return "it isn't a regular file";
        if (st.st_uid != 0 && st.st_uid != geteuid())
                return "it belongs neither to root nor to this process's user: chown it, and write "
                       "a new token";
        if (st.st_mode & FORBIDDEN_MODE)
                return "others can read or change it: chmod 600, and write a new token";
        return NULL;
}

static const char *text_fault(const char *text, size_t len)
{
        if (len < TOKEN_BYTES_MIN || len > TOKEN_BYTES_MAX)
                return "it needs 16 to 1024 letters: openssl rand -base64 32 makes some";
        for (size_t i = 0; i < len; i++)
                if (!isgraph((unsigned char)text[i]))
                        return "it has a blank or a byte that isn't ASCII, which no header can";
        return NULL;
}

int token_read(const char *path, char ret_token[TOKEN_BYTES_MAX + 1], const char **ret_why)
{
        /* Doesn't wait, not even for a FIFO or a terminal. */
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        char text[TOKEN_BYTES_MAX + 2]; /* a newline, and one byte too many */
        ssize_t n;

        *ret_why = fd < 0 ? strerror(errno) : file_fault(fd);
        if (*ret_why)
                return -1;
        n = read(fd, text, sizeof(text));
        if (n > 0 && text[n - 1] == '\n')
                n--;
        *ret_why = n < 0 ? strerror(errno) : text_fault(text, (size_t)n);
        if (*ret_why)
                return -1;
        memcpy(ret_token, text, (size_t)n);
        ret_token[n] = '\0';
        return 0;
}

bool token_allows(const char *token, const char *header)
{
        size_t len = strlen(token);
        unsigned char different = 0;

        if (!header || strncasecmp(header, BEARER, strlen(BEARER)) != 0)
                return false;
        header += strlen(BEARER);
        if (strlen(header) != len)
                return false;
        for (size_t i = 0; i < len; i++)
                different |= (unsigned char)(token[i] ^ header[i]);
        return different == 0;
}
