/*
 * Pages that are announced: a key is reserved for them (clients/announce.h). They are listed by
 * set. Here they are looked for, and a reservation ends. Loop thread only.
 */
#ifndef KVL_CORE_ANNOUNCED_H
#define KVL_CORE_ANNOUNCED_H

#include "daemon/core/objects/group.h"

/* The page, shown as PENDING and with a slot of the index, is announced by this client from now on.
 */
void announce_enter(struct ns *ns, uint32_t page, uint64_t client_id);

/* The page, which is GRANTED, isn't announced any more: its slot is gone, and who waits for it is
 * woken. Nothing is done where it wasn't announced. */
void announce_withdraw(struct ns *ns, uint32_t page);

/*
 * What this attachment's member has announced is withdrawn, because the member goes, lingers, or
 * may only read. All of it goes now where the namespace has no more than a slice of announcements
 * (store.drop_slice_pages); else a slice goes now, and the rest in chores_work(). Nothing is done
 * where the attachment has announced nothing since the last time. Returns how many looks it took.
 */
uint64_t announce_withdraw_all(struct attach *a);

/* Goes on with what announce_withdraw_all() left, with about so many looks; returns how many.
 * Nothing is left where attach.withdraw_at is PAGE_NONE. */
uint64_t announce_withdraw_some(struct attach *a, uint64_t budget);

/* The namespace was invalidated, so that its announcements are of an older epoch and nobody finds
 * them: they are withdrawn now, or a slice of them, and the rest in chores_work(). */
void announce_withdraw_ns(struct ns *ns);

/* What is announced in this set is withdrawn: what is published there won't be found. O(announced
 * in the set); returns how many it looked at. */
uint64_t announce_withdraw_set(struct extent_set *set);

/*
 * The page was SEALED under a key that is reserved, for itself or for another: it has the slot from
 * now on (a page that it was reserved for besides is GRANTED as any). Who waits is woken. False:
 * the key isn't reserved, the page has no slot.
 */
bool announce_fulfil(struct ns *ns, uint64_t hash, uint32_t page);

/* The announced page with the key of this hash, or PAGE_NONE. */
uint32_t announce_find(const struct ns *ns, uint64_t hash, const uint8_t key[KEY_BYTES]);

/* Debug: NULL, or a static sentence naming what is wrong with an announced page (it has a slot,
 * nobody else its key, a client that may publish it); with the namespace's list. */
const char *announce_check_page(const struct ns *ns, uint32_t page);
const char *announce_check(const struct ns *ns);

#endif
