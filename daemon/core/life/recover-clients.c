/* clients_recover(): members and attachments from the tables of client-table.h. */
#include "daemon/core/life/recover-clients.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/client-table.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/clients/pin.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/life/open.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/suspect.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/life/recover.h"

/* ---- clients ----------------------------------------------------------------------------------
 */

/* Returns 0 with the member, or with NULL if the row is unusable. */
static int recover_member(
        struct store *s, uint32_t row, struct member **ret_member, struct recovery *recovery)
{
        struct client_slot *c = &s->clients->clients[row - 1];
        uint64_t id = atomic_load_explicit(&c->live, memory_order_acquire);
        struct tenant *t;
        struct member *m;
        bool is_unread;

        *ret_member = NULL;
        c->tenant[sizeof(c->tenant) - 1] = c->name[CLIENT_NAME_MAX] = '\0';
        t = id == 0 ? NULL : tenant_find(s, c->tenant);
        if (!t) {
                client_row_free(s, row);
                return 0;
        }
        m = member_adopt(t, id, c->group_id, c->group_token);
        if (!m)
                return -ENOMEM;
        m->record = row;
        m->metadata_only = c->flags & CLIENT_METADATA_ONLY;
        m->safepoints = c->flags & CLIENT_SAFEPOINTS;
        *ret_member = m;
        if (suspect_is_client(s, t->mark, id, &is_unread)) {
                client_lose(m);
                client_mute(m);
                recovery->n_suspects++;
        }
        return 0;
}

/* ---- attachments ------------------------------------------------------------------------------
 */

/* The client will name its mapped sets; until then all count as mapped. */
static int map_all(struct attach *a)
{
        int r = 0;

        if (a->member->metadata_only)
                return 0;
        ns_for_each_set (set, a->ns)
                if (r == 0)
                        r = attach_note_mapped(a, set);
        return r;
}

/* The descriptor for the mark is missing. */
static void forget_pins(const struct store *s, struct attach *a, struct attach_slot *slot,
        enum attach_marks mark, struct recovery *r)
{
        if (s->state->is_unsure) {
                attach_lose_pins(a);
                r->n_pins_lost++;
        }
        atomic_fetch_and(&slot->marks, ~mark);
}

static int recover_share(
        struct store *s, struct attach *a, struct attach_slot *slot, struct recovery *recovery)
{
        uint64_t bytes = pins_bytes(a->ns->shared.capacity_pages);
        int fd, r;

        if (!(slot->marks & ATTACH_SHARES))
                return 0;
        fd = client_take_kept(s, KEEP_PINS, a->record, bytes, slot->pins_inode);
        if (fd < 0) {
                forget_pins(s, a, slot, ATTACH_SHARES, recovery);
                return 0;
        }
        r = attach_adopt_share(a, fd);
        if (r < 0)
                fd_close(fd);
        return r;
}

static int recover_socket_pins(
        struct store *s, struct attach *a, struct attach_slot *slot, struct recovery *recovery)
{
        uint64_t bytes = pin_counts_bytes(a->ns->geometry.capacity_pages);
        _cleanup_fd_ int fd = -1;

        if (!(slot->marks & ATTACH_SOCKET_PINS))
                return 0;
        fd = client_take_kept(s, KEEP_SOCKET_PINS, a->record, bytes, slot->socket_pins_inode);
        if (fd >= 0)
                return pin_adopt(a, fd);
        forget_pins(s, a, slot, ATTACH_SOCKET_PINS, recovery);
        return 0;
}

/* Returns the attachment's member; NULL: it doesn't exist. */
static struct member *owner_of(
        struct store *s, const struct attach_slot *slot, struct member *const *members)
{
        uint64_t id = atomic_load_explicit(&slot->live, memory_order_acquire);
        struct member *m =
                slot->client < s->clients->header->n_clients ? members[slot->client] : NULL;

        return id != 0 && m && m->id == id ? m : NULL;
}

static int recover_attach(
        struct store *s, uint32_t row, struct member *const *members, struct recovery *recovery)
{
        struct attach_slot *slot = &s->clients->attaches[row - 1];
        struct member *m = owner_of(s, slot, members);
        struct ns *ns = m ? store_find_records(s, slot->records) : NULL;
        struct attach *a;
        bool is_unread;
        int r;

        if (!ns || ns->tenant != m->group->tenant || slot->id == 0 || attach_find(m, slot->id)) {
                attach_row_free(s, row);
                return 0;
        }
        a = attach_adopt(m, ns, slot->id, slot->version_epoch);
        if (!a)
                return -ENOMEM;
        a->record = row;
        a->open_frame = slot->open_frame;
        a->pins_lost = slot->marks & ATTACH_LOST;
        r = map_all(a);
        if (suspect_is_client(s, ns->tenant->mark, m->id, &is_unread) && is_unread)
                attach_lose_pins(a);
        if (r == 0 && !is_unread)
                r = recover_share(s, a, slot, recovery);
        if (r == 0 && !is_unread)
                r = recover_socket_pins(s, a, slot, recovery);
        return r;
}

/* ---- all of them ------------------------------------------------------------------------------
 */

static int recover_all(struct store *s, struct member **members, struct recovery *recovery)
{
        struct client_table_header *h = s->clients->header;
        int r = 0;

        for (uint32_t row = 1; row <= h->n_clients && r == 0; row++) {
                r = recover_member(s, row, &members[row - 1], recovery);
                recovery->n_clients += r == 0 && members[row - 1];
        }
        for (uint32_t row = 1; row <= h->n_attaches && r == 0; row++) {
                const struct member *m = owner_of(s, &s->clients->attaches[row - 1], members);

                struct state_serving was =
                        suspect_take_over(s, m ? m->group->tenant->mark : 0, m ? m->id : 0);

                r = recover_attach(s, row, members, recovery);
                suspect_serve_end(s, was);
        }
        return r;
}

int clients_recover(struct store *s, struct recovery *recovery, struct detail *d)
{
        struct member **members;
        int r;

        if (!s->clients || s->clients->header->n_clients == 0)
                return 0;
        members = calloc(s->clients->header->n_clients, sizeof(struct member *));
        r = members ? recover_all(s, members, recovery) : -ENOMEM;
        free(members);
        return r < 0 ? detail_set(d, r, "no memory for the clients that were kept") : 0;
}
