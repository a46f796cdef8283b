/*
 * Members of groups are made, and end what they began. What groups and members are:
 * objects/group.h; how a member leaves: lifetimes/leave.h. Loop thread only.
 */
#ifndef KVL_CORE_MEMBER_H
#define KVL_CORE_MEMBER_H

#include "daemon/core/objects/group.h"

/*
 * Joins the group with `token`, or starts a new one where token is NULL. 0; -ENOENT: no such group
 * of this tenant; -EMFILE: the tenant's max_clients; -ENOMEM.
 */
int member_new(struct tenant *t, const uint8_t *token, bool metadata_only,
        struct member **ret_member, struct detail *d);

/* The same as member_new(), but that the group is made, with this token, where there is none: never
 * -ENOENT. */
int member_new_or_join(struct tenant *t, const uint8_t *token, bool metadata_only,
        struct member **ret_member, struct detail *d);

/* For recovery: a member with the id that it had, in the group that has this id and token, which is
 * made where the tenant has none. NULL: no memory. */
struct member *member_adopt(struct tenant *t, uint64_t id, uint32_t group_id,
        const uint8_t group_token[GROUP_TOKEN_BYTES]);

/* Whether the member may lease, publish, free, report and invalidate from now on. A reader's
 * magazine is empty; what is granted to its group stays so until that frees it or ends. */
void member_set_read_only(struct member *m, bool read_only);

/* The member publishes nothing more: nobody waits for what it announced. Safe to repeat. */
void member_withdraw(struct member *m);

/* The member's process is dead. What it has mapped may be written to until the member is freed.
 * Safe to repeat. */
void member_linger(struct member *m);

/* The group is freed where nobody is in it, or leaving it, any more. */
void group_settle(struct group *g);

/* How many pins the member has, in segments or over the socket. O(bound pages of its namespaces).
 */
uint64_t member_count_pins(const struct member *m);

#endif
