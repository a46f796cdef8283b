/*
 * Directories in which a privileged process keeps files: whose they are, and who else may write
 * there. Whoever may can put links, pipes and files of their own where the process opens its.
 * Thread-safe.
 */
#ifndef KVL_BASE_DIR_H
#define KVL_BASE_DIR_H

#define DIR_WHY_BYTES 256

enum dir_rules {
        DIR_NO_LINK = 1 << 0, /* the last part of the path is no symbolic link, whoever made it */
        DIR_MEND = 1 << 1,    /* other bits than `mode` are changed to those */
        DIR_STICKY = 1 << 2,  /* open to everybody is fine where only owners remove files: /tmp */
};

/*
 * 0: the directory at `path` is this process' or root's, so is the link that leads there, and not
 * everybody may write there. -EPERM, -ELOOP, -ENOTDIR, another -errno: it mustn't be used, and
 * *why says in half a sentence for what reason, and what helps.
 *
 * With DIR_MEND a directory of this process' uid has exactly the bits `mode` afterwards; one of
 * root's, if that is another uid, is refused where its bits for others go beyond `mode`.
 */
int dir_check(const char *path, unsigned rules, unsigned mode, char why[DIR_WHY_BYTES]);

/* The same of a file in such a directory that is about to be read: -ENOENT where there is none.
 * What is no regular file is its reader's to refuse. */
int dir_check_file(const char *path, char why[DIR_WHY_BYTES]);

/* mkdir() with exactly these bits whatever the umask is, or dir_check() of one that is there, with
 * DIR_MEND in any case. 1: it was made. 0: it was there. -errno as dir_check(). */
int dir_make(const char *path, unsigned rules, unsigned mode, char why[DIR_WHY_BYTES]);

#endif
