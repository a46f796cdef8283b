/*
 * A client goes on on another connection, with the daemon it had or the one after that
 * (daemon/server/peers/resume.h): what of it has to be undone, and what it says of itself first.
 *
 *   member_undo() -> attach_name_mapped() for each namespace -> member_resumed()
 *
 * Loop thread only.
 */
#ifndef KVL_CORE_RESUME_H
#define KVL_CORE_RESUME_H

#include <stdint.h>

#include "daemon/core/objects/group.h"

/*
 * The client never heard of what these requests of its did: namespaces that they opened are closed,
 * pages that they leased are given back. `frames`: their numbers, n of them, overwritten.
 */
void member_undo(struct member *m, uint64_t *frames, uint32_t n);

/* It has these sets mapped. 0; -ESTALE with the sentence: one of them isn't what it was, as the
 * memory was lost. */
int attach_name_mapped(struct attach *a, const uint32_t *sets, uint32_t n, struct detail *d);

/* It has mapped what it named, and no other set; it will be told of recalls again. */
void member_resumed(struct member *m);

#endif
