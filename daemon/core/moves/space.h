/*
 * A namespace's pages on its device's disk. The disk's store (daemon/tier/disk.h) has a *space* for
 * them, identified by tenant, name, layout and version. So pages from before this daemon, or before
 * the machine's last start, are found again.
 *
 *   none -> loading -> ready          (none again: the disk is off)
 *
 * After loading, a namespace that was recovered (recover.h) drops the pages without entries, and
 * entries without pages are removed. In a new namespace, entries become pages, the beginnings of
 * texts first. Their parents in higher tiers are lost then. Entries that continue a lost page are
 * *unclaimed* until it is published again. They are on no account, and are the first to be removed
 * if the disk lacks space.
 *
 * A page on disk is like any other (renumber.h): SEALED, in index, tree and policy.
 * page_extra.content is its place in the space. Its entry is removed when it is FREE, or at once if
 * it is invalidated: then it can't be read any more. Loop thread only.
 */
#ifndef KVL_CORE_SPACE_H
#define KVL_CORE_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "daemon/core/state/ns.h"
#include "daemon/tier/disk.h"

struct ns;
struct pool;
struct store;
struct tenant;

struct space_entry;
struct space_load;

/* Opens the space of a new or recovered (is_kept) namespace. Does nothing if no disk is below it.
 * If the disk doesn't accept the space, none of the namespace's pages goes to disk: -ENOSPC,
 * -EINVAL, -ENOMEM or -ENODEV says why (slots larger than a chunk, too many spaces, no memory).
 * Otherwise returns 0. */
int space_open(struct ns *ns, bool is_kept);

/* Closes the space of a namespace that is being freed. Its pages stay on disk for a namespace of
 * the same identity. Exception: removals that are under way are finished at once, however long that
 * takes. is_kept: the namespace isn't freed, the next daemon recovers it and repeats the removals.
 * Idempotent. */
void space_close(struct ns *ns, bool is_kept);

/* Closes the space and erases the namespace's pages for good (space_promise()). Returns 0 or
 * -ENOMEM (nothing changed). */
int space_erase(struct ns *ns);

/* Erases for good the tenant's spaces of namespaces that weren't opened since the start. */
void space_erase_unopened(const struct tenant *t);

/* Erases for good the spaces of tenants that don't exist any more. Call it after all tenants were
 * made. */
void space_erase_strangers(const struct store *s);

/* The namespace's pages have a new version, and so another space. The old one was raised. */
void space_renew(struct ns *ns);

/* Removes the entry of a page of the disk that is about to be FREE, or is invalidated. */
void space_forget(struct ns *ns, uint32_t page);

/* Removes an entry that was written and became no page. */
void space_discard(struct ns *ns, uint64_t at, const uint8_t key[DISK_KEY_BYTES]);

/* All pages of the namespace are stale: removes them from the disk at once. Returns 0 or -ENOMEM
 * (nothing changed). */
int space_raise(struct ns *ns);

/* Drops pages that aren't on the disk: a first slice at once, the rest by space_work(). Requests
 * for such a page are answered as not found meanwhile. */
void space_drop_missing(struct ns *ns);

/* Promises that pages invalidated, erased or dropped so far don't come back after a power cut.
 * Calls done with 0, or with -EIO: a disk is off, and its file couldn't be emptied either. Returns
 * 0: done is called later; SPACE_KEPT: nothing to wait for (there is no disk), done isn't called;
 * -ENOMEM: done isn't called. */
typedef void (*space_fn)(int result, void *data);
#define SPACE_KEPT 1
int space_promise(struct store *s, space_fn done, void *data);

/* Ends promises that wait for space_work() with -ECANCELED: no disk was asked. */
void space_cancel_promises(struct store *s);

/* A page was published: unclaimed entries may continue it. */
void space_note_sealed(struct ns *ns, uint32_t page);

/* Removes all unclaimed entries, present and future ones, because a key or tag was invalidated:
 * their keys and tags aren't known in full. */
void space_drop_unclaimed(struct ns *ns);

/* No slot was free for n pages of the namespace: takes a chunk from the space that needs it least.
 * Returns false if there is none. */
bool space_make_room(struct ns *ns, uint32_t n);

/* Makes entries into pages, about `budget` at most; drops pages of a disk that is off, and removes
 * unknown entries. Returns true if there is more to do at once. */
bool space_work(struct store *s, uint32_t budget);

/* For the checker: does the disk have this page? A read that is under way may just have found it to
 * be bad. */
bool space_has(const struct ns *ns, uint32_t page);

#endif
