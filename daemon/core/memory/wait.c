#include "daemon/core/memory/wait.h"

#include <assert.h>
#include <stdlib.h>

#include "base/macros.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "policy/admission.h"

static struct attach *attach_of(struct wait *w)
{
        return container_of(w, struct attach, wait);
}

void wait_arrive(struct attach *a, uint32_t n, uint64_t deadline_nsec)
{
        struct store *s = a->ns->store;

        assert(a->wait.n_wanted == 0);

        a->wait = (struct wait){
                .n_asked = n,
                .number = ++s->waits.last_number,
                .arrived_nsec = s->now_nsec,
                .deadline_nsec = deadline_nsec,
        };
}

static uint64_t sets_bytes(const struct ns *ns, uint64_t n_pages)
{
        uint64_t set_pages = ns->geometry.set_pages;

        return (n_pages + set_pages - 1) / set_pages * ns->geometry.set_bytes;
}

uint64_t wait_lacks_bytes(const struct attach *a)
{
        uint64_t n = a->wait.n_asked;

        return sets_bytes(a->ns, n - MIN(n, ns_n_room(a->ns)));
}

/* Is the lease entitled to what it lacks, at least a set, by reservation or fair share? */
static bool deserves(const struct attach *a)
{
        const struct pool_share *s = a->ns->device.share;
        uint64_t bytes = MAX(wait_lacks_bytes(a), a->ns->geometry.set_bytes);

        return region_is_reserved(s, bytes) || pool_share_borrowed(s) + bytes <= region_fair(s);
}

void wait_begin(struct attach *a, uint32_t n, enum lease_reason reason)
{
        struct wait *w = &a->wait;

        assert(n > 0 && w->n_wanted == 0 && reason != LEASE_REASON_NONE);

        w->n_wanted = n;
        w->reason = reason;
        if (reason != LEASE_REASON_DEVICE || w->told == LEASE_REASON_NONE)
                w->told = reason;
        list_append(&a->ns->store->waits.leases, &w->link);
        if (reason == LEASE_REASON_DEVICE) {
                a->ns->waits.n_wanted += n;
                a->ns->waits.n++;
                return;
        }
        a->ns->waits.n_queued++;
        w->deserves = reason == LEASE_REASON_POOL_FULL && deserves(a);
}

bool wait_end(struct attach *a)
{
        struct wait *w = &a->wait;

        if (w->n_wanted == 0)
                return false;
        list_remove(&w->link);
        if (wait_is_for_room(w)) {
                a->ns->waits.n_queued--;
        } else {
                a->ns->waits.n_wanted -= w->n_wanted;
                a->ns->waits.n--;
        }
        w->n_wanted = 0;
        return true;
}

uint64_t wait_deadline(const struct store *s)
{
        uint64_t first = UINT64_MAX;

        list_for_each (w, &s->waits.leases, struct wait, link)
                first = MIN(first, w->deadline_nsec);
        return first;
}

bool wait_any_for_room(const struct store *s)
{
        list_for_each (w, &s->waits.leases, struct wait, link)
                if (wait_is_for_room(w))
                        return true;
        return false;
}

/* ---- order ---------------------------------------------------------------------------------- */

static struct admission_request request_of(const struct attach *a)
{
        const struct tenant *t = a->ns->tenant;

        return (struct admission_request){
                .priority = t->attrs.priority,
                .weight = t->attrs.weight,
                .arrived_nsec = a->wait.arrived_nsec,
                .deadline_nsec = a->wait.deadline_nsec,
                .served_bytes = pool_share_borrowed(a->ns->device.share),
                .number = a->wait.number,
        };
}

static bool comes_before(const struct attach *a, const struct admission_request *b)
{
        const struct admission_request request = request_of(a);

        return admission_compare(&request, b, a->ns->store->now_nsec) < 0;
}

struct candidate {
        struct attach *attach;
        struct admission_request request;
};

static int compare_candidates(const void *left, const void *right, void *data)
{
        const struct candidate *a = left, *b = right;

        return admission_compare(&a->request, &b->request, *(const uint64_t *)data);
}

static uint32_t count_waiting(const struct store *s)
{
        uint32_t n = 0;

        list_for_each (w, &s->waits.leases, struct wait, link)
                n++;
        return n;
}

uint32_t wait_order(struct store *s, const struct pool *pool, struct attach **ret, uint32_t max)
{
        uint32_t n_waiting = count_waiting(s), n = 0;
        _cleanup_free_ struct candidate *all = calloc(MAX(n_waiting, 1u), sizeof(*all));

        list_for_each (w, &s->waits.leases, struct wait, link) {
                struct attach *a = attach_of(w);

                if (pool && a->ns->device.pool != pool)
                        continue;
                if (all)
                        all[n] = (struct candidate){a, request_of(a)};
                else if (n < max)
                        ret[n] = a;
                n++;
        }
        if (all)
                qsort_r(all, n, sizeof(*all), compare_candidates, &s->now_nsec);
        n = MIN(n, max);
        for (uint32_t i = 0; all && i < n; i++)
                ret[i] = all[i].attach;
        return n;
}

/* Does b wait for memory that a would take? */
static bool is_rival(const struct attach *b, const struct attach *a)
{
        switch (b->wait.reason) {
        case LEASE_REASON_POOL_FULL:
                return b->ns->device.pool == a->ns->device.pool;
        case LEASE_REASON_QUOTA:
                return b->ns->tenant == a->ns->tenant;
        case LEASE_REASON_RESERVATION_FULL:
                return b->ns->device.share == a->ns->device.share;
        default:
                return false;
        }
}

bool wait_is_next(const struct attach *a)
{
        struct admission_request request;
        bool is_known = false, a_deserves = false;

        if (list_is_empty(&a->ns->store->waits.leases))
                return true;
        request = request_of(a);
        list_for_each (w, &a->ns->store->waits.leases, struct wait, link) {
                const struct attach *b = attach_of(w);

                if (b == a || !is_rival(b, a) || !comes_before(b, &request))
                        continue;
                if (b->ns->tenant == a->ns->tenant || b->wait.deserves)
                        return false;
                if (!is_known)
                        a_deserves = deserves(a);
                is_known = true;
                if (!a_deserves)
                        return false;
        }
        return true;
}

const struct attach *wait_before(const struct attach *a)
{
        /* Where leases queue, sets made for a lease that waits for a device are its own, too. */
        bool queues = a->ns->tenant->attrs.when_full == WHEN_FULL_QUEUE;
        struct admission_request request;

        if (a->ns->waits.n_queued == 0 && !(queues && a->ns->waits.n > 0))
                return NULL;
        request = request_of(a);
        list_for_each (b, &a->ns->clients.attachments, struct attach, ns_link)
                if (b != a && (wait_is_for_room(&b->wait) ? comes_before(b, &request)
                                                          : queues && b->wait.n_wanted > 0))
                        return b;
        return NULL;
}

void wait_wake(struct store *s)
{
        if (s->owner.on_room && !list_is_empty(&s->waits.leases))
                s->owner.on_room(s->owner.data);
}
