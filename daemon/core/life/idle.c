#include "daemon/core/life/idle.h"

#include "daemon/core/life/namespace.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/records.h"
#include "daemon/core/sessions/session.h"

/* Namespaces per call of idle_work(): each closes some descriptors and unmaps some memory, in a
 * fraction of a millisecond. Not tuned. */
#define PER_CALL 8

static bool ns_is_idle(const struct ns *ns)
{
        return list_is_empty(&ns->clients.attachments) && list_is_empty(&ns->clients.closing) &&
               ns_n_sets(ns) == 0 && !ns->space.load && sessions_count(ns) == 0 &&
               !sessions_are_left(ns);
}

static void drop_idle(struct ns *ns)
{
        ns->idle.was_idle = true;
        ns_free(ns);
}

uint32_t idle_drop(struct tenant *t, uint32_t max)
{
        uint32_t n = 0;

        list_for_each_safe (ns, &t->namespaces, struct ns, link) {
                if (n == max)
                        break;
                if (!ns_is_idle(ns))
                        continue;
                drop_idle(ns);
                n++;
        }
        return n;
}

uint64_t idle_look(struct store *s, uint64_t now_nsec)
{
        uint64_t next_nsec = UINT64_MAX;

        store_set_now(s, now_nsec);
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        if (!ns_is_idle(ns)) {
                                ns->idle.since_nsec = 0;
                                continue;
                        }
                        if (ns->idle.since_nsec == 0)
                                ns->idle.since_nsec = MAX(s->now_nsec, UINT64_C(1));
                        next_nsec = MIN(next_nsec, ns->idle.since_nsec + NS_IDLE_NSEC);
                }
        return next_nsec;
}

static bool is_due(const struct ns *ns)
{
        return ns->idle.since_nsec > 0 &&
               ns->store->now_nsec >= ns->idle.since_nsec + NS_IDLE_NSEC && ns_is_idle(ns) &&
               !records_shared_epoch(ns).must_change; /* unknown to other hosts yet */
}

bool idle_work(struct store *s)
{
        unsigned n = 0;

        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each_safe (ns, &t->namespaces, struct ns, link) {
                        if (!is_due(ns))
                                continue;
                        if (n++ == PER_CALL)
                                return true;
                        drop_idle(ns);
                }
        return false;
}
