#include "client/exporter/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

/* Rows of each list on a page: more than a person reads, and a bound on each event. Not tuned. */
#define STATUS_TENANTS   200
#define STATUS_REGIONS   400
#define STATUS_EVICTIONS 600

/* Writes a size; unlimited is null. */
static void put_bytes(struct text *t, const char *name, uint64_t value)
{
        if (value == UINT64_MAX)
                text_printf(t, ",\"%s\":null", name);
        else
                text_printf(t, ",\"%s\":%" PRIu64, name, value);
}

static void put_string(struct text *t, const char *name, const char *value)
{
        text_printf(t, "\"%s\":", name);
        text_json(t, value);
}

/* Returns 0 without such a tier. */
static uint64_t tier_pages(const struct figures_tier *t)
{
        return t->pages_sealed != FIGURE_NONE ? t->pages_sealed : 0;
}

static void tell_daemon(struct text *t, const struct figures_status *s)
{
        uint64_t cached = s->pages_sealed;

        cached += tier_pages(&s->host);
        cached += tier_pages(&s->disk);
        text_printf(t, "{\"up\":true,");
        put_string(t, "version", s->daemon_version);
        text_printf(t,
                ",\"uptime\":%" PRIu64 ",\"draining\":%s,\"clients\":%" PRIu64
                ",\"n_tenants\":%" PRIu64 ",\"namespaces\":%" PRIu64 ",\"sessions\":%" PRIu64
                ",\"cached\":%" PRIu64 ",\"keys\":%" PRIu64 ",\"hits\":%" PRIu64,
                s->uptime_sec, s->draining ? "true" : "false", s->n_clients, s->n_tenants,
                s->n_namespaces, s->n_sessions, cached, s->lookup_keys, s->lookup_hits);
}

static void tell_tiers(struct text *t, const struct source_rows *rows)
{
        text_printf(t, ",\"tiers\":[");
        for (size_t i = 0; i < rows->n; i++) {
                const struct figures_device *d = rows->rows[i];

                text_printf(t, "%s{", i ? "," : "");
                put_string(t, "device", d->of_device);
                text_printf(t, ",");
                put_string(t, "tier", d->tier);
                text_printf(t, ",");
                put_string(t, "state", d->state);
                put_bytes(t, "budget", d->budget_bytes);
                put_bytes(t, "used", d->charged_bytes);
                put_bytes(t, "reserved", d->reserved_bytes);
                text_printf(t, "}");
        }
        text_printf(t, "]");
}

/* Writes the non-empty shares of devices. */
static void tell_regions(struct text *t, const struct source_rows *rows)
{
        size_t n = 0;

        text_printf(t, ",\"regions\":[");
        for (size_t i = 0; i < rows->n && n < STATUS_REGIONS; i++) {
                const struct figures_region *r = rows->rows[i];

                if (!r->tenant[0] || strcmp(r->tier, "device") != 0 ||
                        r->size_bytes + r->used_bytes + r->excess_bytes + r->lent_bytes == 0)
                        continue;
                text_printf(t, "%s{", n++ ? "," : "");
                put_string(t, "tenant", r->tenant);
                text_printf(t, ",");
                put_string(t, "device", r->device);
                put_bytes(t, "reserved", r->size_bytes);
                put_bytes(t, "used", r->used_bytes);
                put_bytes(t, "excess", r->excess_bytes);
                put_bytes(t, "lent", r->lent_bytes);
                put_bytes(t, "missing", r->missing_bytes);
                text_printf(t, "}");
        }
        text_printf(t, "]");
}

static void tell_tenant(struct text *t, const struct figures_tenant *r)
{
        uint64_t below = 0;

        below += tier_pages(&r->host);
        below += tier_pages(&r->disk);
        text_printf(t, "{");
        put_string(t, "name", r->name);
        put_bytes(t, "limit", r->limit_bytes);
        put_bytes(t, "used", r->charged_bytes);
        text_printf(t,
                ",\"cached\":%" PRIu64 ",\"below\":%" PRIu64 ",\"clients\":%" PRIu64
                ",\"refused\":%" PRIu64 ",\"evicted\":%" PRIu64 "}",
                r->pages_sealed + below, below, r->n_clients, r->refusals, r->evictions);
}

static void tell_tenants(struct text *t, const struct source_rows *rows)
{
        text_printf(t, ",\"tenants\":[");
        for (size_t i = 0; i < rows->n && i < STATUS_TENANTS; i++) {
                text_printf(t, "%s", i ? "," : "");
                tell_tenant(t, rows->rows[i]);
        }
        text_printf(t, "]");
}

static void tell_evictions(struct text *t, const struct source_rows *rows)
{
        text_printf(t, ",\"evictions\":[");
        for (size_t i = 0; i < rows->n && i < STATUS_EVICTIONS; i++) {
                const struct figures_eviction *e = rows->rows[i];

                text_printf(t, "%s{", i ? "," : "");
                put_string(t, "victim", e->victim);
                text_printf(t, ",");
                put_string(t, "by", e->by);
                text_printf(t, ",\"pages\":%" PRIu64 "}", e->pages);
        }
        text_printf(t, "]");
}

static void put_time(struct text *t, uint64_t usec)
{
        if (usec)
                text_printf(t, ",%" PRIu64, usec);
        else
                text_printf(t, ",null");
}

static void tell_point(struct text *t, const struct history_point *p, bool *is_first)
{
        text_printf(t, "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64, *is_first ? "" : ",", p->age_sec,
                p->hits, p->keys);
        put_time(t, p->median_usec);
        put_time(t, p->p99_usec);
        text_printf(t, "]");
        *is_first = false;
}

static void tell_history(
        struct text *t, const struct facts *f, const struct history *h, uint64_t now_nsec)
{
        const struct source_rows *counters = &f->lists[SOURCE_COUNTERS];
        struct history_point p;
        bool is_first = true;

        text_printf(t, ",\"history\":[");
        for (size_t i = 0; i < history_points(h); i++)
                if (history_point(h, i, now_nsec, &p))
                        tell_point(t, &p, &is_first);
        if (history_now(h, now_nsec, f->lists[SOURCE_STATUS].rows[0],
                    counters->n > 0 ? counters->rows[0] : NULL, &p))
                tell_point(t, &p, &is_first);
        text_printf(t, "]");
}

void status_tell(struct text *t, const struct facts *f, const struct history *h, uint64_t now_nsec)
{
        tell_daemon(t, f->lists[SOURCE_STATUS].rows[0]);
        tell_tiers(t, &f->lists[SOURCE_DEVICES]);
        tell_regions(t, &f->lists[SOURCE_REGIONS]);
        tell_tenants(t, &f->lists[SOURCE_TENANTS]);
        tell_evictions(t, &f->lists[SOURCE_EVICTIONS]);
        tell_history(t, f, h, now_nsec);
        text_printf(t, "}");
}

void status_tell_away(struct text *t, const char *why)
{
        text_printf(t, "{\"up\":false,");
        put_string(t, "why", why);
        text_printf(t, "}");
}
