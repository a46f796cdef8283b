/*
 * Descriptors by name, as in a service manager's store: all memory is allocated at the start, and
 * descriptors beyond the capacity are closed.
 */
#ifndef KVL_KEEP_FDSTORE_H
#define KVL_KEEP_FDSTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The daemon's names have 6 characters at most (daemon/core/state/keep.h). */
#define FDSTORE_NAME_BYTES 8

struct fdstore {
        uint32_t n, max;
        int *fds;                            /* owned */
        char (*names)[FDSTORE_NAME_BYTES];   /* padded with zeros */
        size_t names_bytes, max_names_bytes; /* of all, each with its separator */
};

/* 0 or -ENOMEM. */
int fdstore_init(struct fdstore *s, uint32_t max, size_t max_names_bytes);
void fdstore_deinit(struct fdstore *s);

/* Takes fd in any case. Names may repeat. Returns 0; -ENOSPC, -ENAMETOOLONG: it was closed. */
int fdstore_add(struct fdstore *s, const char *name, int fd);

/* Closes all of that name. */
void fdstore_remove(struct fdstore *s, const char *name);

#endif
