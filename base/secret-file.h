/*
 * A secret in a file of its own, so that options and configuration can be shown: a password, a
 * token, or random bytes. It is read when needed, and wiped afterwards. Any thread.
 */
#ifndef KVL_BASE_SECRET_FILE_H
#define KVL_BASE_SECRET_FILE_H

#include <stddef.h>

#define SECRET_BYTES_MAX 1024 /* of any secret */
#define SECRET_WHY_BYTES 192

struct secret {
        size_t len;
        char bytes[SECRET_BYTES_MAX + 1]; /* a NUL behind the last one */
};

/*
 * Reads `min` to `max` (at most SECRET_BYTES_MAX) bytes, less a newline at the end, from a regular
 * file or a symbolic link to one. The file must belong to root or to this process's user. Only its
 * group may read it, and no other user write it: else its content may be known to others. Returns
 * 0; -EACCES: wrong mode or owner, or unreadable; -EINVAL: too few or too many bytes; -EBADFD,
 * -EISDIR: not a regular file; other -errno. After an error *ret is empty, and `why` is a sentence
 * without its subject, the file: "has 3 bytes, ...".
 */
int secret_read(
        const char *path, size_t min, size_t max, struct secret *ret, char why[SECRET_WHY_BYTES]);

/* Overwrites the secret in memory. */
void secret_wipe(struct secret *s);

#endif
