#include "daemon/keep/fdstore.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

int fdstore_init(struct fdstore *s, uint32_t max, size_t max_names_bytes)
{
        *s = (struct fdstore){.max = max, .max_names_bytes = max_names_bytes};
        s->fds = calloc(MAX(max, 1u), sizeof(*s->fds));
        s->names = calloc(MAX(max, 1u), sizeof(*s->names));
        if (s->fds && s->names)
                return 0;
        fdstore_deinit(s);
        return -ENOMEM;
}

void fdstore_deinit(struct fdstore *s)
{
        for (uint32_t i = 0; i < s->n; i++)
                fd_close(s->fds[i]);
        free(s->fds);
        free(s->names);
        *s = (struct fdstore){0};
}

int fdstore_add(struct fdstore *s, const char *name, int fd)
{
        size_t len = strlen(name);
        int r = 0;

        if (len >= FDSTORE_NAME_BYTES)
                r = -ENAMETOOLONG;
        else if (s->n == s->max || s->names_bytes + len + 1 > s->max_names_bytes)
                r = -ENOSPC;
        if (r < 0) {
                fd_close(fd);
                return r;
        }
        memset(s->names[s->n], 0, FDSTORE_NAME_BYTES);
        memcpy(s->names[s->n], name, len);
        s->fds[s->n++] = fd;
        s->names_bytes += len + 1;
        return 0;
}

void fdstore_remove(struct fdstore *s, const char *name)
{
        char padded[FDSTORE_NAME_BYTES] = "";
        size_t len = strlen(name);
        uint32_t n = 0;

        if (len >= FDSTORE_NAME_BYTES)
                return;
        memcpy(padded, name, len);
        for (uint32_t i = 0; i < s->n; i++) {
                if (memcmp(s->names[i], padded, FDSTORE_NAME_BYTES) == 0) {
                        fd_close(s->fds[i]);
                        s->names_bytes -= len + 1;
                        continue;
                }
                if (n < i) {
                        s->fds[n] = s->fds[i];
                        memcpy(s->names[n], s->names[i], FDSTORE_NAME_BYTES);
                }
                n++;
        }
        s->n = n;
}
