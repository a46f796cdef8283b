/*
 * The feed of a namespace: its findable pages, with parents and token ids, and their changes. It is
 * a segment that the daemon writes and followers only read (proto/shm.h, "feed segment"), so a
 * follower costs the daemon nothing. Namespaces of tenants with events have one, if it fits
 * tenant_attrs.events_bytes when the namespace is made or recovered. Everything here does nothing
 * if the namespace has none. Loop thread only.
 *
 * Token ids are written to the page's line while it is GRANTED, in parts. They count once the page
 * is published, if all of them were given since it was granted. So they need no other memory, and a
 * kill between the parts and the publish loses none.
 */
#ifndef KVL_CORE_FEED_H
#define KVL_CORE_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/ns.h"

struct detail;
struct keep;
struct ns;

/* Makes the namespace's feed, which gets its pages by feed_recover() or as they come. Makes none if
 * the tenant has no events. Calls store.owner.on_no_events if there is no room or memory for it. */
void feed_open(struct ns *ns);

/* The pages are recovered. Takes the previous daemon's feed, or makes one, and corrects it by the
 * records. Drops a kept feed that isn't used. */
void feed_recover(struct ns *ns);

/* Ends it: followers see that the namespace is gone. Idempotent. */
void feed_close(struct ns *ns);

/* Ends the kept feed of a namespace that is lost, and drops it. */
void feed_end_kept(const struct keep *k, uint32_t number);

/* Whether the namespace lacks the events that its tenant has on. Sets a sentence that says why,
 * without its remedy; d may be NULL. */
bool feed_is_missing(const struct ns *ns, struct detail *d);

static inline bool feed_is_on(const struct feed *f)
{
        return f->header;
}

/* Notes token ids of a GRANTED page: n of them from index `first` on. From page_tokens on they are
 * words of its line's names, which follow the ids. Ignores ids that skip some, and all that exceeds
 * the page or the names. ids may be unaligned. */
void feed_note_ids(struct ns *ns, uint32_t page, uint32_t first, const void *ids, uint32_t n);

/* The page has become findable, and is in the tree. */
void feed_stored(struct ns *ns, uint32_t page);

/* A page that can be found gets the ids noted for `from`, if it has none and they fit. */
void feed_add_ids(struct ns *ns, uint32_t page, uint32_t from);

/* The page can't be found any more; its record still has its key. */
void feed_removed(struct ns *ns, uint32_t page);

/* `to` is about to replace `from`; then it has. A kill in between keeps the ids. */
void feed_moves(struct ns *ns, uint32_t from, uint32_t to);
void feed_moved(struct ns *ns, uint32_t from, uint32_t to);

/* The namespace has a new epoch: none of its pages can be found. */
void feed_cleared(struct ns *ns);

/* For the checker: does the line agree with the record? Returns NULL,
 * or a static sentence. */
const char *feed_check_page(const struct ns *ns, uint32_t page);

#endif
