/* Applies a changed configuration: SIGHUP, and ADMIN_RELOAD. Loop thread only. */
#ifndef KVL_SERVER_RELOAD_H
#define KVL_SERVER_RELOAD_H

struct server;

enum reload_kind {
        RELOAD_CHANGED, /* in force now */
        RELOAD_PENDING, /* takes effect at a restart */
        RELOAD_REFUSED, /* refused now, and unchanged */
        RELOAD_WARNING, /* in force, and useless as it is */
        RELOAD_ERROR,   /* a mistake in a file: no change */
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
