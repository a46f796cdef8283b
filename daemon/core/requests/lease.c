#include "daemon/core/requests/lease.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/probe.h"
#include "daemon/core/cache/note-events.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/memory/run.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/reclaim/room.h"
#include "daemon/core/reclaim/prealloc.h"
#include "proto/status.h"

static uint64_t add_nsec(uint64_t a, uint64_t b)
{
        return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* ---- end of a wait --------------------------------------------------------------------------- */

/* Did the lease wait for memory, not only for a device? */
static bool has_queued(const struct wait *w)
{
        return w->told != LEASE_REASON_NONE && w->told != LEASE_REASON_DEVICE;
}

static uint64_t waited_nsec(const struct attach *a)
{
        return a->ns->store->now_nsec - a->wait.arrived_nsec;
}

/* Counts the wait of a lease that has ended. */
static void count_wait(struct attach *a)
{
        struct tenant_counters *c = &a->ns->tenant->counters;
        uint64_t nsec = waited_nsec(a);

        if (!has_queued(&a->wait))
                return;
        c->waits++;
        c->waited_nsec += nsec;
        c->max_wait_nsec = MAX(c->max_wait_nsec, nsec);
}

/* Frees sets that were kept for a lease, if no lease needs them. */
static void trim_after_wait(struct ns *ns)
{
        if (ns->waits.n == 0)
                ns->waits.failure.code = 0;
        idle_sets_add_all(ns);
}

void lease_call_off(struct attach *a)
{
        if (!wait_end(a))
                return;
        count_wait(a);
        trim_after_wait(a->ns);
        wait_wake(a->ns->store);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Is the lease within its reservation? Others have the memory, and are giving it back. */
static bool is_owed(const struct attach *a)
{
        const struct pool_share *s = a->ns->device.share;

        return s->reserve_bytes > 0 && region_is_reserved(s, wait_lacks_bytes(a));
}

/* Returns how long the lease may wait for memory, from its arrival; 0: not at all. */
static uint64_t longest_wait(
        const struct attach *a, const struct lease_request *rq, enum lease_reason reason)
{
        const struct tenant_attrs *attrs = &a->ns->tenant->attrs;
        uint64_t most = attrs->when_full == WHEN_FULL_QUEUE ? attrs->max_wait_nsec : 0;

        if (reason == LEASE_REASON_DEVICE || room_check(a->ns, rq->n, NULL) != 0)
                return 0;
        if (reason == LEASE_REASON_POOL_FULL && is_owed(a))
                most = MAX(most, rq->take_back_nsec);
        return MIN(most, rq->max_wait_nsec);
}

/* Returns the deadline that orders the lease among others that wait. */
static uint64_t queue_deadline(const struct attach *a, const struct lease_request *rq)
{
        return add_nsec(
                a->ns->store->now_nsec, MIN(a->ns->tenant->attrs.max_wait_nsec, rq->max_wait_nsec));
}

/* ---- one try -------------------------------------------------------------------------------- */

struct ask {
        struct attach *a;
        const struct lease_request *rq;
        bool by_device;           /* the lease waited for sets that were being made */
        bool failed;              /* making these sets failed */
        uint32_t n;               /* pages to grant or to wait for */
        struct run run;           /* LEASE_RUN: the pages to grant are the first of these */
        enum lease_reason reason; /* why the lease didn't succeed */
        struct detail *d;
};

static int refuse_behind(struct ask *k, const struct attach *before)
{
        k->reason = before->wait.reason == LEASE_REASON_DEVICE ? LEASE_REASON_POOL_FULL
                                                               : before->wait.reason;
        return detail_set(k->d, lease_reason_status(k->reason),
                "other leases of namespace %s wait for pages and come first: try again later, release pages, or let tenant %s hold more",
                k->a->ns->name, k->a->ns->tenant->name);
}

static int refuse_run(struct ask *k, uint32_t n)
{
        const struct ns *ns = k->a->ns;

        k->reason = LEASE_REASON_NO_RUN;
        return detail_set(k->d, KVL_STATUS_FULL,
                "of the %llu free pages of namespace %s at most %u have consecutive numbers, not "
                "%u: lease fewer at once, or in several runs, or release and free pages around them",
                (unsigned long long)ns_n_room(ns), ns->name, k->run.n, n);
}

/* There are n FREE pages. Returns 0 if n of them have consecutive numbers. */
static int find_run(struct ask *k, uint32_t n)
{
        struct ns *ns = k->a->ns;
        int r;

        if (run_find(ns, n, &k->run))
                return 0;
        /* The lease has waited for sets made for this run: doesn't ask for more. */
        if (k->by_device)
                r = ns->device.n_preparing > 0 ? -EINPROGRESS : 0;
        else
                r = room_bind_run(ns, n);
        if (r == -EINPROGRESS) {
                k->reason = LEASE_REASON_DEVICE;
                return r;
        }
        if (run_find(ns, n, &k->run))
                return 0;
        if (magazine_drain_ns(ns) > 0 && run_find(ns, n, &k->run))
                return 0;
        return refuse_run(k, n);
}

/* Finds n FREE pages. Returns 0 if there are n. */
static int find_pages(struct ask *k, uint32_t n)
{
        const struct attach *before = k->by_device ? NULL : wait_before(k->a);
        int r;

        if (before)
                return refuse_behind(k, before);
        if (ns_n_room(k->a->ns) >= n)
                return k->rq->how == LEASE_RUN ? find_run(k, n) : 0;
        r = room_find(k->a, n, k->by_device, &k->reason, k->d);
        if (r == 0 && k->rq->how == LEASE_RUN)
                return find_run(k, n);
        if (k->failed || r == -EIO)
                k->reason = LEASE_REASON_DEVICE;
        return r;
}

/* Uses the longest FREE run, without making another one. */
static int degrade_run(struct ask *k, int why)
{
        if (!k->by_device && wait_before(k->a))
                return why;
        (void)run_find(k->a->ns, k->rq->n, &k->run);
        if (k->run.n < k->rq->min)
                return why;
        k->n = MIN(k->run.n, k->rq->n);
        return 0;
}

/* Tries half as many pages until enough are found, then takes all that are FREE. Doesn't ask a
 * device again that has just failed. Returns as find_pages(), with k->n pages. */
static int degrade(struct ask *k, int why)
{
        const struct ns *ns = k->a->ns;
        int r = why;

        if (k->rq->how == LEASE_RUN)
                return degrade_run(k, why);
        for (uint32_t n = k->rq->n; r > 0 && n > k->rq->min && !k->failed;) {
                n = MAX(n / 2, k->rq->min);
                r = find_pages(k, n);
                k->n = n;
        }
        if (k->failed && ns_n_room(ns) >= k->rq->min)
                r = 0;
        if (r == 0)
                k->n = (uint32_t)MIN(ns_n_room(ns), (uint64_t)k->rq->n);
        return r;
}

static int try_lease(struct ask *k)
{
        const struct tenant *t = k->a->ns->tenant;
        int r;

        k->failed = k->by_device && k->a->ns->waits.failure.code != 0;
        k->n = k->rq->n;
        r = find_pages(k, k->n);
        if (r > 0 && t->attrs.when_full == WHEN_FULL_DEGRADE && k->rq->min < k->rq->n &&
                waited_nsec(k->a) >= longest_wait(k->a, k->rq, k->reason))
                r = degrade(k, r);
        return r;
}

/* ---- results --------------------------------------------------------------------------------- */

static void count_refusal(
        struct ns *ns, uint32_t n, enum lease_reason reason, const struct detail *d)
{
        note_refused(ns, n, reason, d);
        ns->tenant->counters.refusals++;
        ns->tenant->counters.by_reason[reason]++;
        ns->store->counters.leases_refused++;
}

/* d has the sentence about the obstacle; puts in front how long the lease waited, and why no
 * longer. */
static int time_out(struct ask *k, uint64_t most_nsec)
{
        const struct tenant *t = k->a->ns->tenant;
        struct detail why = {0};
        char whose[2 * TENANT_NAME_MAX + 64];

        if (k->d)
                why = *k->d;
        if (k->rq->max_wait_nsec <= most_nsec)
                snprintf(whose, sizeof(whose), "the request allows");
        else if (t->attrs.when_full == WHEN_FULL_QUEUE && t->attrs.max_wait_nsec >= most_nsec)
                snprintf(whose, sizeof(whose),
                        "tenant %s allows (kvleasectl tenants set %s max_wait=...)", t->name,
                        t->name);
        else
                snprintf(whose, sizeof(whose), "others may take to give back what is reserved");
        k->reason = LEASE_REASON_DEADLINE;
        return detail_set(k->d, KVL_STATUS_TIMEOUT, "waited %llu ms, as long as %s: %.768s",
                (unsigned long long)(waited_nsec(k->a) / NSEC_PER_MSEC), whose, why.text);
}

static int wait_for_device(struct ask *k)
{
        struct attach *a = k->a;
        uint64_t most = k->rq->max_wait_nsec == 0 ? UINT64_MAX : k->rq->max_wait_nsec;
        uint64_t deadline = add_nsec(a->wait.arrived_nsec, most);

        if (a->ns->store->now_nsec >= deadline) {
                detail_set(k->d, KVL_STATUS_TIMEOUT,
                        "device %s is still making memory for it: let it wait longer",
                        a->ns->device.pool->props->name);
                return time_out(k, most);
        }
        a->wait.deadline_nsec = deadline;
        wait_begin(a, k->n, LEASE_REASON_DEVICE);
        return -EINPROGRESS;
}

/* Memory lacked: `refusal`. */
static int wait_for_room(struct ask *k, int refusal)
{
        struct attach *a = k->a;
        uint64_t most = longest_wait(a, k->rq, k->reason);
        uint64_t deadline = add_nsec(a->wait.arrived_nsec, most);

        if (most == 0 || k->reason == LEASE_REASON_NO_RUN)
                return refusal;
        if (k->rq->holds_some)
                return detail_set(k->d, -EBUSY,
                        "it would wait while pages of it are held: give them back and ask for all");
        if (a->ns->store->now_nsec >= deadline)
                return time_out(k, most);
        a->wait.deadline_nsec = deadline;
        wait_begin(a, k->n, k->reason);
        return -EINPROGRESS;
}

/* Counts and reports an answer. */
static void conclude(struct ask *k, int r, bool waited, struct lease_result *ret)
{
        struct ns *ns = k->a->ns;

        if (waited) {
                ret->waited_nsec = waited_nsec(k->a);
                count_wait(k->a);
        }
        if (r != 0) {
                ret->reason = r == -EBUSY ? LEASE_REASON_NONE : k->reason;
                /* Doesn't count the daemon's own lack of memory. */
                if (r > 0 || (r != -EBUSY && ns->device.pool->queue))
                        count_refusal(ns, k->rq->n, ret->reason, k->d);
                return;
        }
        ret->n = k->n;
        ret->reason = waited ? k->a->wait.told : LEASE_REASON_NONE;
        if (k->n == k->rq->n)
                return;
        ret->reason = LEASE_REASON_DEGRADED;
        ns->tenant->counters.degraded++;
}

/* FREE pages don't suffice at once, or the lease waited. */
static int ask_for_room(struct ask *k, bool waited, struct lease_result *ret)
{
        int r;

        if (!waited)
                wait_arrive(k->a, k->rq->n, queue_deadline(k->a, k->rq));
        r = try_lease(k);
        if (r > 0)
                r = wait_for_room(k, r);
        else if (r == -EINPROGRESS)
                r = wait_for_device(k);
        if (r != -EINPROGRESS)
                conclude(k, r, waited, ret);
        return r;
}

static int check_request(struct attach *a, const struct lease_request *rq, struct detail *d)
{
        if (rq->n == 0)
                return detail_set(d, -EINVAL, "a lease of 0 pages");
        if (rq->how > LEASE_RUNS)
                return detail_set(d, -EINVAL, "contiguous is %u: 0 to 2 are known", rq->how);
        if (rq->min == 0 || rq->min > rq->n)
                return detail_set(d, -EINVAL, "at least %u of %u pages: 1 to %u are allowed",
                        rq->min, rq->n, rq->n);
        if (a->ns->store->draining)
                return detail_set(d, KVL_STATUS_DRAINING, "the daemon is draining");
        return attach_check_version(a, d);
}

/* Refuses a request before looking for pages. */
static int refuse_request(const struct ask *k, int r, bool waited, struct lease_result *ret)
{
        struct attach *a = k->a;

        if (waited) {
                ret->waited_nsec = waited_nsec(a);
                count_wait(a);
        }
        if (r == KVL_STATUS_DRAINING) {
                ret->reason = LEASE_REASON_DRAINING;
                count_refusal(a->ns, k->rq->n, ret->reason, k->d);
        }
        return r;
}

/* Takes n pages, which there are; of k->run for a run. */
static void take_pages(const struct ask *k, uint32_t n, uint32_t *ret_pages)
{
        struct attach *a = k->a;
        uint32_t n_picked = 0;

        if (k->rq->how == LEASE_RUNS)
                n_picked = run_pick(a->ns, n, ret_pages);
        for (uint32_t i = 0; i < n; i++) {
                if (k->rq->how == LEASE_RUN)
                        ret_pages[i] = k->run.first + i;
                if (k->rq->how == LEASE_RUN || i < n_picked)
                        grants_take(a, ret_pages[i], k->rq->seq);
                else
                        ret_pages[i] = grants_take_page(a, k->rq->seq);
        }
}

int lease_ask(struct attach *a, const struct lease_request *rq, uint64_t now_nsec,
        uint32_t *ret_pages, struct lease_result *ret, struct detail *d)
{
        struct ns *ns = a->ns;
        struct ask k = {.a = a, .rq = rq, .n = rq->n, .d = d};
        bool waited;
        int r;

        k.by_device = a->wait.n_wanted > 0 && a->wait.reason == LEASE_REASON_DEVICE;
        waited = wait_end(a);
        *ret = (struct lease_result){0};
        store_set_now(ns->store, now_nsec);
        r = check_request(a, rq, d);
        if (r != 0)
                r = refuse_request(&k, r, waited, ret);
        else if (waited || ns->waits.n_queued > 0 || ns_n_room(ns) < rq->n || rq->how == LEASE_RUN)
                r = ask_for_room(&k, waited, ret);
        else
                ret->n = rq->n;
        take_pages(&k, ret->n, ret_pages);
        if (ret->n > 0) {
                prealloc_leased(ns, ret->n, now_nsec);
                PROBE(kvleased, lease, ns->tenant, ns, a->member->id, ret->n, rq->n,
                        ret->waited_nsec);
        } else if (r != -EINPROGRESS) {
                PROBE(kvleased, refuse, ns->tenant, ns, a->member->id, rq->n, ret->reason, r);
        }
        if (waited)
                trim_after_wait(ns);
        /* The next lease may be able to get memory now. */
        if (waited && r != -EINPROGRESS)
                wait_wake(ns->store);
        return r;
}

/* ---- ahead of demand ------------------------------------------------------------------------ */

/* Would another set belong to a waiting lease? */
static bool is_wanted_by_others(const struct attach *a)
{
        const struct pool_share *s = a->ns->device.share;

        return !region_is_reserved(s, a->ns->geometry.set_bytes) && !wait_is_next(a);
}

uint32_t lease_make_ready(struct attach *a, uint32_t n, uint32_t n_dear, uint64_t now_nsec)
{
        struct ns *ns = a->ns;
        uint64_t n_room;

        store_set_now(ns->store, now_nsec);
        if (ns->store->draining || ns->waits.n_queued > 0 || a->member->read_only ||
                attach_check_version(a, NULL) != 0)
                return 0;
        if (ns_n_room(ns) < n + ns->waits.n_wanted) {
                if (a->wait.n_wanted == 0)
                        wait_arrive(a, 0, UINT64_MAX);
                if (!is_wanted_by_others(a))
                        room_prepare(ns, n, n_dear);
        }
        n_room = ns_n_room(ns);
        n_room -= MIN(n_room, ns->waits.n_wanted);
        return (uint32_t)MIN((uint64_t)n, n_room);
}
