/*
 * A secret that lies in a file of its own, so that the configuration can be shown: a password, or
 * random bytes. It is read when it is needed, and wiped after. Any thread.
 */
#ifndef KVL_SERVER_SECRET_FILE_H
#define KVL_SERVER_SECRET_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/core/ground/detail.h"

#define SECRET_BYTES_MAX 1024 /* of any secret */

struct secret {
        size_t len;
        char bytes[SECRET_BYTES_MAX + 1]; /* a NUL behind the last one */
};

/*
 * Reads `min` to `max` (at most SECRET_BYTES_MAX) bytes, a newline at the end not counted, from a
 * regular file, or a symbolic link to one. It belongs to root or to the user of this process, whose
 * group alone may read it and nobody else write it: any other is refused, as somebody may have read
 * it. 0; -EACCES: its mode or owner, or this process may not read it; -EINVAL: too few bytes, or
 * too many; -EBADFD, -EISDIR: no regular file; other -errno. After an error *ret has nothing, and
 * the sentence begins with `key` = `path`.
 */
int secret_read(const char *key, const char *path, size_t min, size_t max, struct secret *ret,
        struct detail *d);

/* Overwrites it, so that nothing of it stays in memory. */
void secret_wipe(struct secret *s);

#endif
