/*
 * State that eviction policies have learnt from a namespace's traffic, stored over a restart in one
 * file per namespace, STATE_DIR/policy/TENANT/NAMESPACE. The file is read when the namespace is
 * made. A changed state is written (off the loop) ten minutes after the last write, when the
 * namespace ends, and at the stop. The file is removed with the tenant, and when an idle namespace
 * is removed (idle.h). A damaged file, or one of another policy, is ignored with a line in the log.
 * Loop thread only.
 *
 * A file is a head of 40 bytes and the output of the policy's save(). The head has LEARNT_MAGIC,
 * the policy's name, length and SipHash-1-3 of the rest with an all-zero key, little-endian.
 */
#ifndef KVL_SERVER_LEARNT_H
#define KVL_SERVER_LEARNT_H

#include <stdbool.h>
#include <stdint.h>

struct ns;
struct server;

#define LEARNT_MAGIC     "KVLPOL1\n"
#define LEARNT_MAX_BYTES (1024 * 1024) /* of a file; a larger state isn't stored. Not tuned */

/* Loads the stored state into the policy of a namespace that was just made. */
void learnt_load(struct server *s, struct ns *ns);

/* The namespace ends, or the daemon stops: writes the state if it differs from the last write. */
void learnt_save(struct server *s, struct ns *ns);
void learnt_save_all(struct server *s);

/* Saves some of the states that are due. Returns the time of the next call; UINT64_MAX: none until
 * something happens. */
uint64_t learnt_save_due(struct server *s, uint64_t now_nsec);

/* Removes the file of an idle namespace that is removed (idle.h): else invented names would fill
 * the directory. */
void learnt_forget_ns(struct server *s, struct ns *ns);

/* Removes the files of a removed tenant. */
void learnt_forget(struct server *s, const char *tenant);

#endif
