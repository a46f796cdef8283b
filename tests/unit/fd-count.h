#ifndef KVL_TESTS_FD_COUNT_H
#define KVL_TESTS_FD_COUNT_H

#include <dirent.h>
#include <errno.h>

/* How many descriptors this process has open, but for the one that they are counted with; or
 * -errno. */
static inline int fd_count_open(void)
{
        DIR *dir = opendir("/proc/self/fd");
        int n = 0, error;

        if (!dir)
                return -errno;
        errno = 0;
        for (struct dirent *e; (e = readdir(dir));)
                n += e->d_name[0] != '.';
        error = errno;
        closedir(dir);
        return error ? -error : n - 1; /* without dir's own */
}

#endif
