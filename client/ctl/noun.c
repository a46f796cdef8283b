/* Values that kvleasectl computes for its lists. */
#include "client/ctl/columns.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/lib/kvlease.h"

/* ---- lists ----------------------------------------------------------------------------------- */

void device_used(const device_row *d, const struct show_format *f, struct value *ret)
{
        derive_ratio(ret, d->charged_bytes, d->budget_bytes);
}

/* Shows a reservation that differs from the configured one: by a sizer, a schedule, whole extents,
 * or because it didn't fit. */
void tenant_reserve(const tenant_row *t, const struct show_format *f, struct value *ret)
{
        char now[32], configured[32];

        show_bytes(f, t->reserve_bytes, now);
        show_bytes(f, t->reserve_configured_bytes, configured);
        if (t->reserve_bytes == t->reserve_configured_bytes)
                derive_text(ret, "%s", now);
        else if (t->reserve_bytes < t->reserve_configured_bytes)
                derive_text(ret, "%s of %s configured", now, configured);
        else
                derive_text(ret, "%s (%s configured)", now, configured);
}

void tenant_used(const tenant_row *t, const struct show_format *f, struct value *ret)
{
        if (t->limit_bytes != UINT64_MAX)
                derive_ratio(ret, t->charged_bytes, t->limit_bytes);
}

void tenant_refused_by(const tenant_row *t, const struct show_format *f, struct value *ret)
{
        const struct {
                const char *name;
                uint64_t n;
        } reasons[] = {{"quota", t->refused_quota},
                {"reservation full", t->refused_reservation_full},
                {"pool full", t->refused_pool_full}, {"deadline", t->refused_deadline},
                {"draining", t->refused_draining}, {"device", t->refused_device},
                {"no run", t->refused_no_run}, {"other", t->refused_other}};
        char text[VALUE_TEXT_MAX] = "";
        size_t at = 0;

        for (size_t i = 0; i < ARRAY_SIZE(reasons) && at < sizeof(text); i++)
                if (reasons[i].n > 0 && reasons[i].n != FIGURE_NONE)
                        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s %" PRIu64,
                                at > 0 ? ", " : "", reasons[i].name, reasons[i].n);
        if (at > 0)
                derive_text(ret, "%s", text);
}

/* "1200, 90% used": prefetched pages of all kinds, and the used part of the decided ones. */
void ns_prefetched(const namespace_row *n, const struct show_format *f, struct value *ret)
{
        const struct figures_prefetch *const kinds[] = {
                &n->prefetch_stream, &n->prefetch_turn, &n->prefetch_expect, &n->prefetch_warm};
        uint64_t begun = 0, useful = 0, wasted = 0;

        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
                if (kinds[i]->begun == FIGURE_NONE)
                        continue;
                begun += kinds[i]->begun;
                useful += kinds[i]->useful;
                wasted += kinds[i]->wasted;
        }
        if (useful + wasted > 0)
                derive_text(ret, "%" PRIu64 ", %.0f%% used", begun,
                        100.0 * (double)useful / (double)(useful + wasted));
        else if (begun > 0)
                derive_text(ret, "%" PRIu64, begun);
}

void ns_hit_ratio(const namespace_row *n, const struct show_format *f, struct value *ret)
{
        derive_ratio(ret, n->hits, n->keys);
}

static const char *dtype_name(uint64_t dtype)
{
        switch (dtype) {
        case KVL_DTYPE_F32:
                return "f32";
        case KVL_DTYPE_F16:
                return "f16";
        case KVL_DTYPE_BF16:
                return "bf16";
        case KVL_DTYPE_F8_E4M3:
                return "f8_e4m3";
        case KVL_DTYPE_F8_E5M2:
                return "f8_e5m2";
        case KVL_DTYPE_I8:
                return "i8";
        default:
                return "other";
        }
}

void ns_dtype(const namespace_row *n, const struct show_format *f, struct value *ret)
{
        if (n->dtype != FIGURE_NONE)
                derive_text(ret, "%s", dtype_name(n->dtype));
}

/* Whether it failed to give back memory that was recalled. */
void client_late(const client_row *c, const struct show_format *f, struct value *ret)
{
        derive_text(ret, "%s", c->killed ? "killed" : c->late ? "yes" : "no");
}

/* ---- regions --------------------------------------------------------------------------------- */

/* UUIDs are cut to their first group, as by the vendor's tools: lines stay readable. */
#define DEVICE_SHORT_CHARS 12

void region_device(const region_row *r, const struct show_format *f, struct value *ret)
{
        derive_text(ret, "%.*s", DEVICE_SHORT_CHARS, r->device);
}

static bool is_pool(const region_row *r)
{
        return r->tenant[0] == '\0';
}

void region_tenant(const region_row *r, const struct show_format *f, struct value *ret)
{
        derive_text(ret, "%s", is_pool(r) ? "(dynamic pool)" : r->tenant);
}

static bool is_decided(const region_row *r)
{
        return r->decision[0] && strcmp(r->decision, "none") != 0;
}

void region_decision(const region_row *r, const struct show_format *f, struct value *ret)
{
        char target[32];

        if (is_pool(r))
                return;
        if (!is_decided(r))
                derive_text(ret, "%.16s", r->sizer);
        else if (strcmp(r->sizer, "dry-run") == 0)
                derive_text(ret, "%.16s (dry run: %s)", r->decision,
                        show_bytes(f, r->target_bytes, target));
        else
                derive_text(ret, "%.16s", r->decision);
}

void region_ago(const region_row *r, const struct show_format *f, struct value *ret)
{
        ret->present = is_decided(r);
        ret->number = r->decided_sec_ago;
}

/* Includes deviations from the target. */
void region_why(const region_row *r, const struct show_format *f, struct value *ret)
{
        char text[VALUE_TEXT_MAX] = "", bytes[32];
        int at = 0;

        if (r->missing_bytes > 0)
                at += snprintf(
                        text, sizeof(text), "%s missing", show_bytes(f, r->missing_bytes, bytes));
        if (r->lent_bytes > 0)
                at += snprintf(text + at, sizeof(text) - (size_t)at, "%s%s lent",
                        at > 0 ? ", " : "", show_bytes(f, r->lent_bytes, bytes));
        if (at == 0 && r->why[0])
                ret->text = r->why;
        else if (at > 0)
                derive_text(ret, "%s%s%s", text, r->why[0] ? "; " : "", r->why);
        ret->present = ret->text;
}

/* ---- evictions ------------------------------------------------------------------------------- */

void eviction_by(const eviction_row *e, const struct show_format *f, struct value *ret)
{
        derive_text(ret, "%s", e->by[0] ? e->by : "(no lease)");
}
