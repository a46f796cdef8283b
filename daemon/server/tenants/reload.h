/* Putting a changed configuration in force: SIGHUP, and ADMIN_RELOAD. Loop thread only. */
#ifndef KVL_SERVER_RELOAD_H
#define KVL_SERVER_RELOAD_H

struct server;

enum reload_kind {
        RELOAD_CHANGED, /* in force now */
        RELOAD_PENDING, /* a restart would put it in force */
        RELOAD_REFUSED, /* can't be in force now, and stays as it was */
        RELOAD_WARNING, /* in force, and of no use as it is */
        RELOAD_ERROR,   /* a mistake in a file: nothing is changed */
};

/* Gets one sentence without newline. */
typedef void (*reload_say)(void *data, enum reload_kind kind, const char *sentence);

/*
 * Reads the configuration again from its source, which blocks, and applies changes that need no
 * restart. Everything is logged, and reported to `say` (may be NULL). Returns 0; -EINVAL: a file
 * has mistakes; -errno: it can't be read. On failure nothing was changed.
 */
int reload_config(struct server *s, reload_say say, void *data);

#endif
