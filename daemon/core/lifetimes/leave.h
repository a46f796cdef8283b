/*
 * What goes when a client closes a namespace, or is gone: its pins, what it has mapped, and with
 * the last of its group the grants. A client may have very many of them, so they go in slices
 * (chore.h):
 *
 *   open -> closing (nothing of it can be asked for; what outlives the daemon says that it is
 *           closed) -> closed (freed)
 *
 * Between two slices the rest is held as before: no page or set is given to anybody else before it
 * was let go of. Nobody finds the attachment by its id, nor the member, or the group whose last
 * member it was, by its token: whoever comes with that token begins anew. Ids aren't used again
 * meanwhile. A daemon that is killed in between leaves one to whom all of it is nobody's.
 *
 * Where another member of the group opens the namespace meanwhile, the pages that were granted
 * before go all the same.
 */
#ifndef KVL_CORE_LEAVE_H
#define KVL_CORE_LEAVE_H

#include <stdbool.h>

struct attach;
struct member;
struct tenant;

/*
 * Closes the attachment: a slice now, the rest in chores_work(). True: it is over and freed. False:
 * it is to be freed later, and `closed` (NULL: nobody is told) is called with `data` then.
 */
bool attach_close_soon(struct attach *a, void (*closed)(void *data), void *data);

/* An attachment for which attach_close_soon() was false isn't closed yet: its `closed` won't be
 * called. */
void attach_close_quietly(struct attach *a);

/* Ends the member with everything it holds: at once it is in no list or count of members, and isn't
 * to be used any more; what it holds goes as in attach_close_soon(). */
void member_leave(struct member *m);

/* Closes the attachment at once, however much it holds: for one that its client never heard of. */
void attach_close(struct attach *a);

/* What is closing in namespaces of the tenant, which is about to be freed, is closed. */
void leave_finish(struct tenant *t);

#endif
