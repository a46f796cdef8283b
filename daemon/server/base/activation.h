/*
 * Sockets made by systemd (socket activation): "admin", "default" and "tenant-NAME" by
 * FileDescriptorName=. Used only if they listen at the configured path.
 */
#ifndef KVL_SERVER_ACTIVATION_H
#define KVL_SERVER_ACTIVATION_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/core/state/detail.h"

struct activated {
        char *name; /* owned */
        int fd;     /* owned; -1: taken */
};

struct activation {
        struct activated *sockets; /* owned */
        size_t n;
};

/* Takes the sockets and stored descriptors (keeping.h) passed to this process. Returns 0 or
 * -errno. */
int activation_init(struct activation *a);

/* One of those above. */
bool activation_is_socket_name(const char *name);

/*
 * Returns the owned fd of the socket called `name`, non-blocking; -ENOENT: there is none; -EINVAL
 * with the sentence: it isn't a listening stream socket at `path`.
 */
int activation_take(struct activation *a, const char *name, const char *path, struct detail *d);

/* Closes passed sockets that were not taken, with a warning. */
void activation_deinit(struct activation *a);

#endif
