#include "daemon/core/life/leave.h"

#include <assert.h>
#include <stdlib.h>

#include "daemon/core/cache/announced.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/clients/pin.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/reclaim/reclaim.h"
#include "daemon/core/reclaim/prealloc.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/reclaim/fetch.h"
#include "daemon/core/reclaim/prefetch.h"

/* Looks at pages that take about as long as unbinding a set. Not tuned. */
#define LOOKS_PER_SET 32

/* ---- a slice -------------------------------------------------------------------------------- */

static uint64_t leave_sets(struct attach *a, uint64_t budget)
{
        uint64_t n = 0;

        for (; n < budget && a->mapped.n_used > 0; a->mapped_at++) {
                n += map_find(&a->mapped, a->mapped_at) ? LOOKS_PER_SET : 1;
                attach_forget_mapped(a, a->mapped_at);
        }
        return n;
}

/* With the group's last attachment all grants may be freed; else those that only waited for a
 * lingering member. */
static bool may_free(const struct attach *a, uint32_t page)
{
        return a->ends_grants ||
               (ns_page(a->ns, page)->given_back && !grants_may_be_written(a->grants, page));
}

static uint64_t leave_grants(struct attach *a, uint64_t budget)
{
        uint64_t n = 0;

        for (; n < budget && a->grants_at != PAGE_NONE; n++) {
                uint32_t page = a->grants_at;

                if (!may_free(a, page)) {
                        a->grants_at = ns_page(a->ns, page)->next;
                        continue;
                }
                grants_remove(a->grants, page); /* advances grants_at */
                ns_free_page(a->ns, page);
        }
        return n;
}

static void end_grants(struct attach *a)
{
        struct grants *g = a->grants;

        list_remove(&a->grants_link);
        if (g->n_attach > 0 || !list_is_empty(&g->closing))
                return;
        assert(g->head == PAGE_NONE);
        list_remove(&g->link);
        free(g);
}

static void end_member(struct member *m)
{
        assert(m->n_pins == 0 && m->n_mapped_sets == 0);
        list_remove(&m->link);
        group_free_empty(m->group);
        free(m);
}

/* All holds were released: frees the attachment. */
static void end_attachment(struct attach *a)
{
        struct tenant *t = a->ns->tenant;
        struct member *m = a->member;
        void (*closed)(void *data) = a->closed;
        void *data = a->closed_data;

        end_grants(a);
        list_remove(&a->member_link);
        list_remove(&a->ns_link);
        pin_counts_deinit(&a->pins);
        map_deinit(&a->mapped);
        map_deinit(&a->sessions);
        free(a);
        if (m->has_left && list_is_empty(&m->closing))
                end_member(m);
        /* The limit may have been lowered while this attachment held memory that can be freed now.
         */
        reclaim_over_limits(t);
        if (closed)
                closed(data);
}

static bool leave_some(struct task *c, uint64_t budget)
{
        struct attach *a = container_of(c, struct attach, task);
        uint64_t n = announce_withdraw_some(a, budget);

        if (n < budget)
                n += pin_release_some(a, budget - n);
        if (n < budget)
                n += leave_sets(a, budget - n);
        if (n < budget)
                n += leave_grants(a, budget - n);
        if (a->withdraw_at != PAGE_NONE || a->pins.n_pinned > 0 || a->mapped.n_used > 0 ||
                a->grants_at != PAGE_NONE)
                return true;
        end_attachment(a);
        return false;
}

/* ---- begin ----------------------------------------------------------------------------------- */

/* Ends the pins in the segment, and frees the pages in the magazine. */
static void end_share(struct attach *a)
{
        if (!pins_is_open(&a->share))
                return;
        (void)attach_sync(a); /* the client's last changes don't matter */
        magazine_drain(a);
        pins_close(&a->share);
        free(a->magazine);
        a->magazine = NULL;
        ns_look_again(a->ns, NS_LOOK_PAGES);
        for (unsigned i = 0; i < TIER_COUNT; i++)
                a->ns->tiers[i].has_lighter = true;
}

static void begin_grants(struct attach *a)
{
        struct grants *g = a->grants;

        a->ends_grants = --g->n_attach == 0;
        a->grants_at =
                a->ends_grants || (a->member->lingers && g->n_given_back > 0) ? g->head : PAGE_NONE;
        list_append(&g->closing, &a->grants_link);
}

/* Takes the attachment out of all lists. */
static void begin_closing(struct attach *a)
{
        struct ns *ns = a->ns;

        attach_unrecord(a);
        lease_call_off(a);
        fetch_end_all(a);
        tenant_tell(ns->tenant, attach_leaves, a);
        prefetch_forget(a);
        (void)announce_withdraw_all(a);
        task_remove(&a->withdrawal, ns->tenant); /* part of its closing from now on */
        sessions_close_all(a, ns->store->now_nsec);
        end_share(a);
        list_remove(&a->member_link);
        list_append(&a->member->closing, &a->member_link);
        list_remove(&a->ns_link);
        list_append(&ns->clients.closing, &a->ns_link);
        ns->tenant->n_attachments--;
        begin_grants(a);
        if (list_is_empty(&ns->clients.attachments))
                prealloc_forget(ns);
        task_init(&a->task);
        a->task.work = leave_some;
}

bool attach_close_soon(struct attach *a, void (*closed)(void *data), void *data)
{
        struct tenant *t = a->ns->tenant;

        begin_closing(a);
        if (!leave_some(&a->task, t->store->drop_slice_pages))
                return true;
        a->closed = closed;
        a->closed_data = data;
        task_queue(&a->task, t);
        return false;
}

void attach_close_quietly(struct attach *a)
{
        a->closed = NULL;
}

void attach_close(struct attach *a)
{
        begin_closing(a);
        (void)leave_some(&a->task, UINT64_MAX);
}

/* Takes the member out of all lists and counts. */
static void begin_leaving(struct member *m)
{
        struct group *g = m->group;

        client_unrecord(m);
        m->server_data = NULL;
        list_remove(&m->link);
        list_append(&g->leaving, &m->link);
        g->n_lingering -= m->lingers;
        g->tenant->n_members--;
        g->tenant->store->n_members--;
}

void member_leave(struct member *m)
{
        begin_leaving(m);
        while (!list_is_empty(&m->attachments))
                (void)attach_close_soon(
                        list_first(&m->attachments, struct attach, member_link), NULL, NULL);
        m->has_left = true;
        if (list_is_empty(&m->closing))
                end_member(m);
}

/* Finishes a closing attachment at once. */
static void finish_closing(struct attach *a)
{
        task_remove(&a->task, a->ns->tenant);
        (void)leave_some(&a->task, UINT64_MAX);
}

void leave_finish(struct tenant *t)
{
        list_for_each (ns, &t->namespaces, struct ns, link)
                while (!list_is_empty(&ns->clients.closing))
                        finish_closing(list_first(&ns->clients.closing, struct attach, ns_link));
}
