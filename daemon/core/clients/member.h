/*
 * Makes members of groups, and withdraws their announcements. state/group.h describes groups and
 * members; life/leave.h removes a member. Loop thread only.
 */
#ifndef KVL_CORE_MEMBER_H
#define KVL_CORE_MEMBER_H

#include "daemon/core/state/group.h"

/* Joins the group with `token`, or starts a new one if token is NULL. Returns 0; -ENOENT: no such
 * group of this tenant; -EMFILE: the tenant's max_clients; -ENOMEM. */
int member_new(struct tenant *t, const uint8_t *token, bool metadata_only,
        struct member **ret_member, struct detail *d);

/* Does what member_new() does, but makes a group with this token if there is none: never -ENOENT.
 */
int member_new_or_join(struct tenant *t, const uint8_t *token, bool metadata_only,
        struct member **ret_member, struct detail *d);

/* Recovery: makes a member with its former id, in the group with this id and token. Makes the group
 * if the tenant has none. NULL: no memory. */
struct member *member_adopt(struct tenant *t, uint64_t id, uint32_t group_id,
        const uint8_t group_token[GROUP_TOKEN_BYTES]);

/* Sets whether the member may lease, publish, free, report and invalidate. A reader's magazine is
 * emptied. Pages granted to its group stay granted until the group frees them or ends. */
void member_set_read_only(struct member *m, bool read_only);

/* The member publishes no more pages: withdraws its announcements. Idempotent. */
void member_withdraw(struct member *m);

/* The member's process is dead. The sets that it has mapped may be written to until the member is
 * freed. Idempotent. */
void member_linger(struct member *m);

/* Frees the group if it has no member left, leaving ones included. */
void group_free_empty(struct group *g);

/* Returns the member's pins, in segments and over the socket. O(bound pages of its namespaces). */
uint64_t member_count_pins(const struct member *m);

#endif
