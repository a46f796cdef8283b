/*
 * What eviction policies have learnt of a namespace's traffic, kept over a restart: one file each,
 * STATE_DIR/policy/TENANT/NAMESPACE. Read when the namespace is made; written, where it has changed
 * and off the loop, ten minutes after it was written last, when the namespace goes, and at the
 * stop. Gone with the tenant, and with a namespace that goes as it is idle (idle.h). A file that is
 * damaged, or of another policy, is ignored with a line in the log. Loop thread only.
 *
 * A file is a head of 40 bytes (LEARNT_MAGIC, the policy's name, length and SipHash-1-3 of the rest
 * with an all-zero key, little-endian) and what the policy's save() gave.
 */
#ifndef KVL_SERVER_LEARNT_H
#define KVL_SERVER_LEARNT_H

#include <stdbool.h>
#include <stdint.h>

struct ns;
struct server;

#define LEARNT_MAGIC     "KVLPOL1\n"
#define LEARNT_MAX_BYTES (1024 * 1024) /* of a file; what is larger isn't kept. Not tuned */

/* The namespace was made: what was learnt in it before is its policy's. */
void learnt_load(struct server *s, struct ns *ns);

/* It goes, or the daemon stops: is written where it differs from what was written last. */
void learnt_save(struct server *s, struct ns *ns);
void learnt_save_all(struct server *s);

/* Saves what is due, some of it. When there will be more; UINT64_MAX: when something happens. */
uint64_t learnt_save_due(struct server *s, uint64_t now_nsec);

/* It goes as nobody wants it (idle.h): so does its file, or names that are made up would fill the
 * directory. */
void learnt_forget_ns(struct server *s, struct ns *ns);

/* The tenant is removed: so are its files. */
void learnt_forget(struct server *s, const char *tenant);

#endif
