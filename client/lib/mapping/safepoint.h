/* Sets that the daemon recalls, until a kvl_safepoint() unmaps them (safepoint.c). */
#ifndef KVL_LIB_SAFEPOINT_H
#define KVL_LIB_SAFEPOINT_H

#include <stdbool.h>
#include <stdint.h>

struct kvl_ns;

/* [L] Notes that the daemon recalls one of the namespace's sets. Returns false if there is no such
 * set. */
bool ns_note_recall(struct kvl_ns *ns, uint32_t set, bool is_idle);

/* [L] Forgets recalled sets: the namespace is being closed, or the daemon went away. */
void ns_forget_recalls(struct kvl_ns *ns);

#endif
