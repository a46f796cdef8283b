/* ADMIN_CODECS. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "daemon/core/state/ns.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/handlers/admin-handlers.h"
#include "daemon/server/handlers/list-page.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/tier-name.h"
#include "proto/arena.h"
#include "proto/kvlease.pb-c.h"

/* A range of layers in a tier. */
struct coded_range {
        struct ns *ns; /* borrowed */
        enum tier_kind kind;
        uint32_t range;
};

static int make_codec(struct request *rq, void *object, void *ret)
{
        struct figures_codec *row = ret;
        const struct coded_range *c = object;
        const struct codec_layers *l = &c->ns->codecs.of_pages.tiers[c->kind];
        const struct ns_coding *coding = &c->ns->codecs.done[c->kind];
        const struct codec_error *error = &coding->errors[c->range];
        struct range_bytes bytes =
                page_range_bytes(&c->ns->codecs.of_pages, &c->ns->layout, c->kind, c->range);

        row->tenant = c->ns->tenant->name;
        row->ns = c->ns->name;
        row->tier = tier_name(c->kind);
        row->first_layer = l->at[c->range].first_layer;
        row->last_layer = codec_range_last(l, c->range, c->ns->layout.n_layers);
        row->codec = codec_name((enum codec)l->at[c->range].codec);
        row->page_bytes = bytes.plain;
        row->stored_bytes = bytes.stored;
        row->pages_encoded = coding->n_pages;
        row->pages_sampled = coding->n_sampled;
        if (error->squares > 0)
                row->error_ppm =
                        (uint64_t)fmin(0.5 + 1e6 * sqrt(error->errors / error->squares), 1e12);
        return 0;
}

/* Ids ascend with the namespaces', so they are never reused either. */
static uint64_t row_id(const struct coded_range *c)
{
        return (c->ns->id * TIER_COUNT + c->kind) * CODEC_RANGES_MAX + c->range;
}

static uint32_t count_ranges(const struct ns *ns, enum tier_kind kind)
{
        return ns->tiers[kind].pool ? ns->codecs.of_pages.tiers[kind].n : 0;
}

/* Collects the ranges behind the cursor, of all namespaces that the request wants. `ranges` NULL:
 * counts only. */
static size_t collect_ranges(struct request *rq, struct coded_range *ranges)
{
        const Kvlease__V1__AdminListRequest *m = rq->message;
        size_t n = 0;

        list_for_each (t, &rq->server->store.tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        for (unsigned i = 0; i < TIER_COUNT * CODEC_RANGES_MAX; i++) {
                                const struct coded_range c = {.ns = ns,
                                        .kind = (enum tier_kind)(i / CODEC_RANGES_MAX),
                                        .range = i % CODEC_RANGES_MAX};

                                if (!list_wants(m, t->name) || row_id(&c) <= m->after ||
                                        c.range >= count_ranges(ns, c.kind))
                                        continue;
                                if (ranges)
                                        ranges[n] = c;
                                n++;
                        }
        return n;
}

static int add_rows(struct rows *rows, struct coded_range *ranges, size_t n)
{
        int r = 0;

        for (size_t i = 0; i < n && r == 0; i++)
                r = rows_add(rows, row_id(&ranges[i]), &ranges[i]);
        return r;
}

int handle_ADMIN_CODECS(struct request *rq)
{
        struct coded_range *ranges;
        struct rows rows = {0};
        size_t n;
        int r = list_check_tenant(rq, rq->message);

        if (r < 0)
                return r;
        n = collect_ranges(rq, NULL);
        ranges = calloc(n + 1, sizeof(*ranges));
        if (!ranges)
                return -ENOMEM;
        r = add_rows(&rows, ranges, collect_ranges(rq, ranges));
        r = rows_fill_page(rq, r, &rows, make_codec, &figures_table_codec);
        free(ranges);
        return r;
}
