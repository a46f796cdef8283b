/* Leases: a granted page was free, and a refused lease was impossible. */
#include <errno.h>
#include <string.h>

#include "daemon/core/state/detail.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/requests/lease.h"
#include "proto/status.h"
#include "tests/model/model.h"
#include "tests/unit/at-once.h"

static bool has_unmapped_set(const struct model_ns *ns)
{
        for (uint32_t set = 0; set < ns->n_pages / ns->set_pages; set++)
                if (set_is_bound(ns, set) && !set_is_mapped(ns, set))
                        return true;
        return false;
}

/* Before a lease is refused, unused memory is taken: pages in magazines, and dropped ones without
 * readers. */
static void check_nothing_lies_about(const struct model_ns *ns)
{
        for (uint32_t page = 0; page < ns->n_pages; page++) {
                const struct page *p = ns_page(real_ns(ns), page);

                CHECK(ns->pages[page].state != M_READY,
                        "refused although page %u of n%d lies in a magazine", page,
                        (int)(ns - spaces[ns->tenant]));
                CHECK(!p || p->state != PAGE_DETACHED || pins_of(ns, page) > 0,
                        "refused although page %u of n%d could be freed", page,
                        (int)(ns - spaces[ns->tenant]));
        }
}

/* Another tenant was refused a moment ago: free memory may be kept for it. */
static bool others_want(int t)
{
        for (int i = 0; i < N_TENANTS; i++)
                list_for_each (s, &tenants[i]->shares, struct pool_share, tenant_link)
                        if (i != t && s->wants_until_nsec > now_nsec)
                                return true;
        return false;
}

/* Counts pages that aren't held and aren't free. */
static uint64_t count_idle(const struct model_ns *ns)
{
        uint64_t n = 0;

        for (uint32_t page = 0; page < ns->n_pages; page++) {
                const struct page *p = ns_page(real_ns(ns), page);

                n += ns->pages[page].state == M_READY ||
                     (p && pins_of(ns, page) == 0 &&
                             (p->state == PAGE_SEALED || p->state == PAGE_DETACHED));
        }
        return n;
}

/* Was the refusal right? All evictable pages here are gone, or all would not be enough; and the
 * rest is too small. */
static void check_refusal(const struct model_ns *ns, uint32_t n, int why)
{
        uint64_t n_free = 0, n_busy = ns->keep_zero, limit = MIN(limits[ns->tenant], BUDGET_BYTES);
        uint64_t bound = bound_sets(ns), slots = ns->n_pages / ns->set_pages - ns->has_null_set,
                 room, most;
        uint64_t own = usage_of(ns->tenant), all = usage();

        for (uint32_t page = 0; page < ns->n_pages; page++) {
                bool null = ns->keep_zero && page == 0, used = ns->pages[page].state != M_FREE;

                n_free += set_is_bound(ns, page / ns->set_pages) && !used && !null &&
                          !is_withheld(ns, page);
                n_busy += ns->pages[page].state == M_GRANTED || pins_of(ns, page) > 0 ||
                          is_withheld(ns, page);
        }
        room = MIN(own > limits[ns->tenant] ? 0 : (limits[ns->tenant] - own) / ns->set_bytes,
                (BUDGET_BYTES - all) / ns->set_bytes);
        room = MIN(room, slots - bound);
        if (others_want(ns->tenant))
                room = 0;
        CHECK(n_free + room * ns->set_pages <= n + (ns->keep_zero && bound == 0),
                "refused %u pages with %llu free and room for %llu sets", n,
                (unsigned long long)n_free, (unsigned long long)room);
        CHECK(n_free + room * ns->set_pages < n + ns->keep_zero, "refused %u pages that are there",
                n);
        most = MIN(MAX(limit / ns->set_bytes, bound), slots) * ns->set_pages;
        if (n_busy + n > most)
                return; /* beyond reach: nothing had to be evicted */
        if (n_free + count_idle(ns) + room * ns->set_pages < n + ns->keep_zero)
                return; /* all that could go wouldn't do */
        if (own > limits[ns->tenant] && recall_is_under_way(tenants[ns->tenant], TIER_DEVICE))
                return; /* over its limit, with sets on their way out: they are waited for */
        /* The limit is reached: check all namespaces of the tenant that could give a set. */
        for (int i = 0; i < N_NS; i++) {
                const struct model_ns *other = &spaces[ns->tenant][i];

                if (ns == other ||
                        (why == KVL_STATUS_QUOTA && other->exists && has_unmapped_set(other)))
                        check_nothing_lies_about(other);
        }
        for (int key = 0; key < N_KEYS; key++)
                CHECK(ns->where[key] == NONE || !is_evictable(ns, key),
                        "refused although key %d could go", key);
}

static void check_leased(
        struct model_member *m, struct model_ns *ns, const uint32_t *pages, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                CHECK(pages[i] < ns->n_pages && !is_null(ns, pages[i]), "page %u", pages[i]);
                CHECK(ns->pages[pages[i]].state == M_FREE && !is_withheld(ns, pages[i]),
                        "page %u was not free, or is in a recalled set", pages[i]);
                ns->pages[pages[i]] = (struct model_page){
                        .state = M_GRANTED, .group = m->group, .grant_epoch = ns->epoch};
        }
        CHECK(usage() <= BUDGET_BYTES, "over the budget");
}

void op_lease(void)
{
        uint32_t pages[MAX_REQUEST], n = rnd(20) == 0 ? 1 + rnd(MAX_REQUEST) : 1 + rnd(6);
        uint64_t before[N_TENANTS];
        unsigned evicted[N_TENANTS];
        struct model_member *m;
        struct model_attach *a;
        struct model_ns *ns;
        struct detail d = {0};
        int r;

        op = "lease";
        a = any_attach(&m, &ns);
        if (!a)
                return;
        for (int t = 0; t < N_TENANTS; t++) {
                before[t] = usage_of(t);
                evicted[t] = (unsigned)tenants[t]->counters.evictions;
        }
        device.fail_in = rnd(40) == 0 ? 1 + rnd(4) : 0;
        r = lease_pages(a->real, n, now_nsec, pages, &d);
        if (store.draining || is_old(a, ns)) {
                CHECK(r == (store.draining ? KVL_STATUS_DRAINING : KVL_STATUS_STALE), "%d", r);
                return;
        }
        learn_soft(m->tenant);
        learn(NULL, MAY_TAKE_BACK);
        if (r == 0)
                check_leased(m, ns, pages, n);
        else if (r == -ENOMEM)
                CHECK(device.fail_in == 0 && d.text[0], "%s", d.text);
        else {
                CHECK(r == KVL_STATUS_QUOTA || r == KVL_STATUS_FULL, "%d", r);
                CHECK(strstr(d.text, tenants[m->tenant]->name), "%s", d.text);
                check_refusal(ns, n, r);
                n_refused++;
        }
        device.fail_in = 0;
        CHECK(usage_of(m->tenant) <= MAX(limits[m->tenant], before[m->tenant]), "over the limit");
        for (int t = 0; t < N_TENANTS; t++)
                CHECK(t == m->tenant || evicted[t] == tenants[t]->counters.evictions ||
                                usage_of(t) < before[t],
                        "tenant %d lost pages and kept its sets", t);
}
