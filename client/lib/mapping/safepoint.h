/* Sets of extents that the daemon wants back, until a kvl_safepoint() unmaps them (safepoint.c). */
#ifndef KVL_LIB_SAFEPOINT_H
#define KVL_LIB_SAFEPOINT_H

#include <stdbool.h>
#include <stdint.h>

struct kvl_ns;

/* [L] Notes that the daemon wants one of the namespace's sets back. False: there is no such set. */
bool ns_note_recall(struct kvl_ns *ns, uint32_t set, bool is_idle);

/* [L] Forgets what was recalled: the namespace or the daemon goes away. */
void ns_forget_recalls(struct kvl_ns *ns);

#endif
