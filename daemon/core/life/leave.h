/*
 * Releases the holds of a client that closes a namespace or leaves: its pins, its mappings, and,
 * with the last member of its group, the grants. A client may have very many of them, so they are
 * released in slices (task.h):
 *
 *   open -> closing (requests can't use it; records that outlive the daemon say that it is closed)
 *        -> closed (freed)
 *
 * Between two slices the rest is held as before: no page or set is given to others before it was
 * released. The attachment can't be found by its id, nor the member, or the group without other
 * members, by its token: a client that uses the token starts anew. Ids aren't reused meanwhile. A
 * daemon that starts after a kill in between finds these holds without an owner.
 *
 * If another member of the group opens the namespace meanwhile, the earlier grants are released
 * nevertheless.
 */
#ifndef KVL_CORE_LEAVE_H
#define KVL_CORE_LEAVE_H

#include <stdbool.h>

struct attach;
struct member;
struct tenant;

/* Closes the attachment: a slice now, the rest in tasks_work(). Returns true if it is over and
 * freed. False: it is freed later, and `closed` (may be NULL) is called with `data` then. */
bool attach_close_soon(struct attach *a, void (*closed)(void *data), void *data);

/* Prevents the call of `closed` for an attachment for which attach_close_soon() returned false, and
 * that isn't closed yet. */
void attach_close_quietly(struct attach *a);

/* Removes the member from all lists and counts at once; it must not be used any more. Its holds are
 * released as by attach_close_soon(). */
void member_leave(struct member *m);

/* Closes the attachment at once, for any number of holds: for one that its client doesn't know of.
 */
void attach_close(struct attach *a);

/* Closes the closing attachments of the tenant's namespaces; the tenant is about to be freed. */
void leave_finish(struct tenant *t);

#endif
