/*
 * Resumes a client on another connection, with the same daemon or the next one
 * (daemon/server/peers/resume.h): undoes requests, and takes in the client's own state.
 *
 *   member_undo() -> attach_name_mapped() for each namespace -> member_resumed()
 *
 * Loop thread only.
 */
#ifndef KVL_CORE_RESUME_H
#define KVL_CORE_RESUME_H

#include <stdint.h>

#include "daemon/core/state/group.h"

/* Undoes requests whose replies the client never received: closes namespaces that they opened,
 * gives back pages that they leased. `frames`: their n numbers, overwritten. */
void member_undo(struct member *m, uint64_t *frames, uint32_t n);

/* The client has these sets mapped. Returns 0; -ESTALE with the sentence: a set is gone, because
 * its memory was lost. */
int attach_name_mapped(struct attach *a, const uint32_t *sets, uint32_t n, struct detail *d);

/* The client has mapped the sets that it named, and no others. It is notified of recalls again. */
void member_resumed(struct member *m);

#endif
