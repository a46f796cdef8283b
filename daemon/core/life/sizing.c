#include "daemon/core/life/sizing.h"

#include <errno.h>

#include "base/macros.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/shared.h"

static bool is_needed(const struct tenant *t)
{
        return t->attrs.class == TENANT_PINNED &&
               (t->sizing.attrs.mode != SIZING_OFF || t->sizing.attrs.schedule.n > 0);
}

/* Is its reservation changed, and not only computed? */
static bool is_moved(const struct tenant *t)
{
        return is_needed(t) && t->sizing.attrs.mode != SIZING_DRY_RUN;
}

bool sizing_is_needed(const struct store *s)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                if (is_needed(t))
                        return true;
        return false;
}

uint64_t sizing_reserved(const struct tenant *t)
{
        uint64_t sum = 0;

        list_for_each (share, &t->shares, struct pool_share, tenant_link)
                sum += share->reserve_bytes;
        return sum;
}

const char *sizing_why(const struct tenant *t)
{
        const struct sizing *z = &t->sizing;

        if (z->last.why == SIZER_REFUSED && z->refusal.text[0])
                return z->refusal.text;
        return sizer_why_text(z->last.why);
}

int sizing_set(struct tenant *t, const struct sizing_attrs *attrs)
{
        struct sizing *z = &t->sizing;
        bool was_moved = is_moved(t);
        struct sizer *sizer = z->sizer;

        if (attrs->mode != SIZING_OFF && !sizer) {
                sizer = sizer_new();
                if (!sizer)
                        return -ENOMEM;
        } else if (attrs->mode == SIZING_OFF) {
                sizer_free(TAKE(sizer));
        }
        z->sizer = sizer;
        z->attrs = *attrs;
        if (!is_needed(t)) {
                z->last = (struct sizer_decision){0};
                z->decided_nsec = 0;
                z->min_bytes = z->max_bytes = 0;
        }
        if (was_moved && !is_moved(t))
                tenant_reserve(t, t->attrs.reserve_bytes, NULL, NULL);
        return 0;
}

void sizing_free(struct tenant *t)
{
        sizer_free(TAKE(t->sizing.sizer));
}

/* ---- demand --------------------------------------------------------------------------------- */

static uint32_t count_sharing(const struct ns *ns)
{
        uint32_t n = 0;

        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                n += pins_is_open(&a->share);
        return n;
}

static uint32_t count_pinned_of_set(const struct ns *ns, const struct extent_set *set)
{
        uint32_t set_pages = ns->geometry.set_pages, n = 0;
        bool any = false;

        for (uint32_t i = 0; i < set_pages; i++) {
                const struct page *p = &set->pages[i];
                uint32_t page = set->index * set_pages + i;

                if (i % SHARED_RUN_PAGES == 0) {
                        uint32_t run = MIN(set_pages - i, SHARED_RUN_PAGES);

                        any = shared_run_is_pinned(ns, page, run);
                        if (!any && ns->device.n_pinned == 0) {
                                i += run - 1;
                                continue;
                        }
                }
                if (p->state == PAGE_SEALED || p->state == PAGE_DETACHED)
                        n += page_pins(p) > 0 || (any && shared_is_pinned(ns, page));
        }
        return n;
}

/* Looks at one set of `part`, and extrapolates. */
static uint64_t count_pinned(const struct ns *ns, uint64_t part, uint32_t round)
{
        uint64_t n = 0, i = round;

        if (count_sharing(ns) == 0)
                return ns->device.n_pinned;
        list_for_each (set, &ns->device.sets_bound, struct extent_set, link)
                if (i++ % part == 0)
                        n += count_pinned_of_set(ns, set);
        return MIN(n * part, ns->device.n_pages[PAGE_SEALED] + ns->device.n_pages[PAGE_DETACHED]);
}

static uint64_t demand_of_ns(const struct ns *ns, uint64_t part, uint32_t round)
{
        uint64_t pages = ns->device.n_pages[PAGE_GRANTED] - ns->clients.n_ready +
                         count_pinned(ns, part, round);
        uint32_t set_pages = ns->geometry.set_pages;

        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                pages += a->wait.n_wanted;
        return (pages + set_pages - 1) / set_pages * ns->geometry.set_bytes;
}

static bool was_refused(const struct tenant *t, uint64_t now_nsec)
{
        list_for_each (share, &t->shares, struct pool_share, tenant_link)
                if (share->pool->tier == TIER_DEVICE && share->wants_until_nsec > now_nsec)
                        return true;
        return false;
}

static uint64_t demand_of(const struct tenant *t, uint64_t part)
{
        uint64_t demand = 0;

        list_for_each (ns, &t->namespaces, struct ns, link)
                demand += demand_of_ns(ns, part, t->sizing.n_samples);
        return demand;
}

/* Returns the unit of the tenant's reservations. */
static uint64_t step_of(const struct tenant *t)
{
        uint64_t step = 1;

        list_for_each (share, &t->shares, struct pool_share, tenant_link)
                if (share->pool->tier == TIER_DEVICE)
                        step = MAX(step, share->pool->extent_bytes);
        return step;
}

uint64_t sizing_demand(const struct tenant *t)
{
        uint64_t demand = demand_of(t, 1);

        if (was_refused(t, t->store->now_nsec))
                demand = MAX(demand, sizing_reserved(t) + step_of(t));
        return demand;
}

/* Returns the number of parts in which sets are looked at. */
static uint64_t look_parts(const struct store *s)
{
        uint64_t pins = 0;

        list_for_each (t, &s->tenants, struct tenant, link) {
                if (!is_needed(t) || t->sizing.attrs.mode == SIZING_OFF)
                        continue;
                list_for_each (ns, &t->namespaces, struct ns, link)
                        pins += (uint64_t)ns->device.n_sets * ns->geometry.set_pages *
                                count_sharing(ns);
        }
        return pins / SIZING_LOOK_PINS + 1;
}

/* ---- decisions ------------------------------------------------------------------------------ */

static void find_limits(struct tenant *t, uint64_t step, uint32_t second_of_day)
{
        struct sizing *z = &t->sizing;
        const struct schedule_span *span = schedule_at(&z->attrs.schedule, second_of_day);
        uint64_t most = t->account.limit_bytes / step;
        uint64_t min = span ? span->min_bytes : z->attrs.min_bytes;
        uint64_t max = span ? span->max_bytes : z->attrs.max_bytes;

        min = MIN(min / step + (min % step > 0), most);
        max = MIN(max / step, most);
        z->min_bytes = min * step;
        z->max_bytes = MAX(max, min) * step;
}

/* Without a sizer: returns the schedule's decision, or the tenant's minimum. */
static struct sizer_decision decide_by_schedule(const struct tenant *t, uint64_t reserved)
{
        uint64_t min = t->sizing.min_bytes;

        return (struct sizer_decision){
                .target_bytes = min, .why = reserved == min ? SIZER_HOLD : SIZER_NEW_LIMITS};
}

/* Reserves the decided bytes, or the part that fits. Returns true if the reservation changed. */
static bool apply_decision(struct tenant *t, struct sizer_decision *decision, uint64_t reserved,
        uint64_t step, uint64_t now_nsec)
{
        struct sizing *z = &t->sizing;
        uint64_t missing = 0, fits, target = decision->target_bytes;
        int r = tenant_reserve(t, target, &missing, &z->refusal);

        if (r < 0) {
                decision->why = SIZER_REFUSED;
                fits = target - MIN(missing, target);
                fits = fits / step * step;
                if (r != -ENOSPC || fits <= reserved || fits >= target ||
                        tenant_reserve(t, fits, NULL, NULL) < 0)
                        return false;
        }
        if (z->sizer)
                sizer_applied(z->sizer, decision, now_nsec);
        z->n_changes++;
        return true;
}

static void note_decision(
        struct sizing *z, const struct sizer_decision *decision, bool moved, uint64_t now_nsec)
{
        bool is_content = decision->why == SIZER_HOLD || decision->why == SIZER_AT_MIN;
        bool stays = z->decided_nsec > 0 && !moved &&
                     (decision->why == z->last.why || (is_content && z->last_moved));
        enum sizer_why why = stays ? z->last.why : decision->why;

        z->last = *decision;
        z->last.why = why;
        if (stays)
                return;
        z->last_moved = moved && why != SIZER_REFUSED;
        z->decided_nsec = now_nsec;
}

/* The reservation was changed otherwise: the sizer continues from it. */
static void note_other_moves(struct sizing *z, uint64_t reserved, uint64_t now_nsec)
{
        static const struct sizer_decision by_hand = {.why = SIZER_NONE};

        if (z->sizer && z->n_samples > 0 && z->reserved_bytes != reserved)
                sizer_applied(z->sizer, &by_hand, now_nsec);
}

static void size_tenant(
        struct tenant *t, const struct sizing_params *p, uint64_t part, uint64_t now_nsec)
{
        struct sizing *z = &t->sizing;
        uint64_t step = step_of(t), reserved = sizing_reserved(t), demand;
        struct sizer_params params = {.window_nsec = p->window_nsec,
                .cooldown_nsec = p->cooldown_nsec,
                .step_bytes = step};
        struct sizer_decision decision;
        bool moved = false;

        find_limits(t, step, p->second_of_day);
        note_other_moves(z, reserved, now_nsec);
        if (z->attrs.mode == SIZING_OFF) {
                decision = decide_by_schedule(t, reserved);
        } else {
                params.min_bytes = z->min_bytes;
                params.max_bytes = z->max_bytes;
                demand = demand_of(t, part);
                if (was_refused(t, now_nsec))
                        demand = MAX(demand, reserved + step);
                z->n_samples++;
                sizer_sample(z->sizer, &params, demand, now_nsec);
                decision = sizer_decide(z->sizer, &params, reserved, now_nsec);
        }
        if (decision.target_bytes != reserved && is_moved(t))
                moved = apply_decision(t, &decision, reserved, step, now_nsec);
        note_decision(z, &decision, moved, now_nsec);
        z->reserved_bytes = sizing_reserved(t);
        if (moved && p->on_moved)
                p->on_moved(t, reserved, p->data);
}

void sizing_work(struct store *s, const struct sizing_params *p, uint64_t now_nsec)
{
        uint64_t part = look_parts(s);

        store_set_now(s, now_nsec);
        list_for_each (t, &s->tenants, struct tenant, link)
                if (is_needed(t))
                        size_tenant(t, p, part, now_nsec);
}
