/*
 * The files of a configuration: FILE itself, then its drop-ins, which are the files in the
 * directory FILE.d whose names end in ".conf", in order of name (bytes, as strcmp() has them).
 * Names that begin with a dot are left out. Functions are thread-safe.
 */
#ifndef KVL_BASE_CONF_FILES_H
#define KVL_BASE_CONF_FILES_H

#include <stddef.h>

#define CONF_DROP_INS_MAX 128 /* not tuned */

struct conf_files {
        char **paths; /* owned, and each of them; paths[0] is FILE */
        size_t n;
};

/*
 * Finds their names; whether FILE is there isn't looked at, and FILE.d may be missing. 0 with an
 * owned *ret. -E2BIG: there are more than CONF_DROP_INS_MAX drop-ins; -EINVAL: one has a name with
 * other characters than A-Z a-z 0-9 . _ -; -ENOMEM; other -errno: FILE.d can't be read. Then `err`
 * (size err_len) has one line that says so and names the directory, and *ret is untouched.
 */
int conf_files_find(const char *file, struct conf_files *ret, char *err, size_t err_len);

/* Frees the names. A zeroed struct may be given, and is what is left. */
void conf_files_deinit(struct conf_files *f);

#endif
