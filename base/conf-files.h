/* The files of a configuration: FILE itself, then its drop-ins in order of name (bytes, as
 * strcmp()). Drop-ins are the files in the directory FILE.d whose names end in ".conf" and don't
 * begin with a dot. Functions are thread-safe. */
#ifndef KVL_BASE_CONF_FILES_H
#define KVL_BASE_CONF_FILES_H

#include <stddef.h>

#define CONF_DROP_INS_MAX 128 /* not tuned */

struct conf_files {
        char **paths; /* owned, as are its entries; paths[0] is FILE */
        size_t n;
};

/*
 * Finds the paths. FILE isn't looked at, and FILE.d may be missing. Returns 0 with an owned *ret.
 * -E2BIG: more than CONF_DROP_INS_MAX drop-ins; -EINVAL: a name has other characters than A-Z a-z
 * 0-9 . _ -; -ENOMEM; other -errno: FILE.d can't be read. After an error `err` (size err_len) has
 * one line that names the directory, and *ret is untouched.
 */
int conf_files_find(const char *file, struct conf_files *ret, char *err, size_t err_len);

/* Frees the paths, and zeroes the struct. A zeroed struct may be given. */
void conf_files_deinit(struct conf_files *f);

#endif
