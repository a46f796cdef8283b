/*
 * A namespace's pages on its device's disk. The disk's store (daemon/tier/disk.h) has a *space* for
 * them, known by tenant, name, layout and version; so what was there before this daemon, or before
 * the machine's last start, is found again.
 *
 *   none -> loading -> ready          (none again: the disk is off)
 *
 * When the space is loaded a namespace of the daemon before this one (recover.h) loses the pages
 * whose entries aren't there, and entries that are no page's are removed. In a namespace that is
 * new, entries become pages, the beginnings of texts first. What was above the disk is gone then:
 * entries that continue it are *unclaimed* until it is published again. They are on nobody's
 * account, and the first to go where the disk lacks room.
 *
 * A page on disk is as any other (places.h): SEALED, in index, tree and policy, page_extra.content
 * its place in the space. Its entry is removed when it is FREE, or at once where it is invalidated:
 * who reads it then can't any more. Loop thread only.
 */
#ifndef KVL_CORE_SPACE_H
#define KVL_CORE_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "daemon/core/objects/ns-parts.h"
#include "daemon/tier/disk.h"

struct ns;
struct pool;
struct store;
struct tenant;

struct space_entry;
struct space_load;

/*
 * The namespace is there, and may have a disk below it. is_kept: with pages of the daemon before.
 * Nothing where it has none, or where the disk doesn't take it (slots larger than a chunk, as many
 * spaces as there may be, no memory): then none of its pages goes there. -ENOSPC, -EINVAL, -ENOMEM,
 * -ENODEV say which; 0.
 */
int space_open(struct ns *ns, bool is_kept);

/*
 * The namespace goes; what it has on disk stays, for one of the same identity: but for what is
 * being removed, of which the rest goes at once, however long that takes. is_kept: it doesn't go,
 * the next daemon takes it over and looks for itself. Safe to repeat.
 */
void space_close(struct ns *ns, bool is_kept);

/* The same as space_close(), and what the namespace has is gone for good (space_promise()). 0;
 * -ENOMEM: nothing was done. */
int space_erase(struct ns *ns);

/* What the tenant has on disks of namespaces that nobody opened since the start, for good. */
void space_erase_unopened(const struct tenant *t);

/* What tenants have on disks that there are no more goes for good, after all tenants were made. */
void space_erase_strangers(const struct store *s);

/* The pages of the namespace have another version from now on, and so another space. It was raised.
 */
void space_renew(struct ns *ns);

/* A page of the disk that is about to be FREE, or is invalidated: its entry goes. */
void space_forget(struct ns *ns, uint32_t page);

/* Written, and no page's after all. */
void space_discard(struct ns *ns, uint64_t at, const uint8_t key[DISK_KEY_BYTES]);

/* Everything of the namespace is stale: it is gone from the disk at once. 0; -ENOMEM: nothing was
 * done. */
int space_raise(struct ns *ns);

/* Pages that the disk doesn't have go: a first slice at once, the rest by space_work(). Who asks
 * for one meanwhile is told that it isn't there. */
void space_drop_missing(struct ns *ns);

/*
 * What was invalidated, erased or dropped until now doesn't come back after a power cut, once done
 * was called: 0; -EIO: a disk is off, and its file couldn't be emptied either. 0: it will be;
 * SPACE_KEPT: it is so already (there is no disk), done isn't called; -ENOMEM: nor then.
 */
typedef void (*space_fn)(int result, void *data);
#define SPACE_KEPT 1
int space_promise(struct store *s, space_fn done, void *data);

/* Promises that wait for space_work() yet end with -ECANCELED: no disk was asked. */
void space_cancel_promises(struct store *s);

/* A page was published: what continues it may be unclaimed. */
void space_note_sealed(struct ns *ns, uint32_t page);

/* Something was invalidated by key or tag: nobody can tell what is unclaimed of that, or will be
 * when the space is loaded, so all of it goes. */
void space_drop_unclaimed(struct ns *ns);

/* There was no slot for n pages of the namespace: a chunk is taken back from whom it serves least.
 * False: there is nothing to be had. */
bool space_make_room(struct ns *ns, uint32_t n);

/* Entries become pages, at most about `budget`; what a disk had that is off, and what isn't to be
 * there, goes. True: there is more to do, at once. */
bool space_work(struct store *s, uint32_t budget);

/* For the checker: the disk has what this page of it is, as far as can be told: a read that is
 * under way may just have found it to be bad. */
bool space_has(const struct ns *ns, uint32_t page);

#endif
