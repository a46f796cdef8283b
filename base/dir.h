/* Checks directories in which a privileged process keeps files: their owners, and other users that
 * may write there. Such a user could put links, pipes and files in place of the process' files.
 * Thread-safe. */
#ifndef KVL_BASE_DIR_H
#define KVL_BASE_DIR_H

#define DIR_WHY_BYTES 256

enum dir_rules {
        DIR_NO_LINK = 1 << 0, /* the last part of the path is no symbolic link, of any owner */
        DIR_MEND = 1 << 1,    /* sets the bits to `mode` if they differ */
        DIR_STICKY = 1 << 2,  /* world-writable is fine with the sticky bit: /tmp */
};

/*
 * Returns 0: the directory at `path`, and the link that leads there, belong to this process or
 * root, and the directory isn't world-writable. -EPERM, -ELOOP, -ENOTDIR, another -errno: it
 * mustn't be used, and *why has the reason and the remedy in half a sentence.
 *
 * With DIR_MEND a directory of this process' uid has exactly the bits `mode` afterwards. One of
 * root's (another uid) is refused if its bits for others exceed `mode`.
 */
int dir_check(const char *path, unsigned rules, unsigned mode, char why[DIR_WHY_BYTES]);

/* Does dir_check() for a file in such a directory that is about to be read: -ENOENT if there is
 * none. Its reader must refuse other types than regular files. */
int dir_check_file(const char *path, char why[DIR_WHY_BYTES]);

/* Makes a directory with exactly these bits, independent of the umask; or does dir_check() with
 * DIR_MEND if it exists. Returns 1: it was made; 0: it existed; -errno as dir_check(). */
int dir_make(const char *path, unsigned rules, unsigned mode, char why[DIR_WHY_BYTES]);

#endif
