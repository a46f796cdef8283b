/* The insides of a namespace's space on a disk, shared by space.c, space-gone.c and
 * space-identity.c. */
#ifndef KVL_CORE_SPACE_IMPL_H
#define KVL_CORE_SPACE_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/moves/space.h"

/* By which a disk knows the space of a namespace, whatever daemon asks; ns NULL: of the tenant
 * alone, to whom spaces belong. SHA-256: nobody can make a name that has another's. 0; -ENOMEM;
 * -EIO. */
int space_identify(const struct tenant *t, const struct ns *ns, uint8_t ret_id[DISK_ID_BYTES]);

/* space_work() is to be called soon. */
void space_wake(struct store *s);

/* For calls of a disk that nobody waits for: whoever does asks by space_promise(). */
void space_on_durable(int result, void *data);

/* The namespace has a space. */
void space_remove_entry(struct ns *ns, uint64_t at, const uint8_t key[DISK_KEY_BYTES]);

/* The page is the one whose bytes are at `at` of the disk. */
bool space_is_at(const struct ns *ns, uint32_t page, uint64_t at);

/* A page that isn't there: nobody is to look for it, nor for what continues it. */
void space_drop_page(struct ns *ns, uint32_t page);

/* Entries that are no page's go: a first slice at once, the rest by space_clean(). One that is
 * being written may go with them; then its write fails. */
void space_remove_unknown(struct ns *ns);

/* Nothing is left of it to be removed, or nobody is there who could. Safe to repeat. */
void space_stop_removing(struct ns *ns);

/* Goes on with what space_drop_missing() and space_remove_unknown() began; how many entries and
 * pages it looked at, at most `budget`. */
uint32_t space_clean(struct ns *ns, uint32_t budget);

/* Those that waited for entries to be removed, where none are any more. */
void space_begin_promises(struct store *s);

#endif
