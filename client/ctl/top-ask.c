#include "client/ctl/top-ask.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "proto/msg.h"

/* ---- the daemon ------------------------------------------------------------------------------ */

/* Sets epoch and time of all samples of the look. One daemon answers throughout, or the next look
 * has another epoch. */
static void begin_samples(struct top_look *look, uint64_t epoch)
{
        uint64_t now_nsec = clock_now_nsec();

        top_sample_init(&look->totals, &top_totals, now_nsec, epoch);
        for (size_t v = 0; v < TOP_N_VIEWS; v++)
                top_sample_init(&look->views[v], &top_views[v], now_nsec, epoch);
}

static uint64_t count_leases(const Kvlease__V1__AdminCountersReply *m)
{
        uint64_t n = 0;

        for (size_t i = 0; i < m->n_calls; i++)
                for (size_t b = 0;
                        strcmp(m->calls[i]->name, "LEASE") == 0 && b < m->calls[i]->n_counts; b++)
                        n += m->calls[i]->counts[b];
        return n;
}

static void take_status(const struct figures_status *s, struct top_daemon *ret)
{
        snprintf(ret->version, sizeof(ret->version), "%s", s->daemon_version);
        ret->uptime_sec = s->uptime_sec;
        ret->lookup_keys = s->lookup_keys;
        ret->lookup_hits = s->lookup_hits;
        ret->n_tenants = s->n_tenants;
        ret->n_namespaces = s->n_namespaces;
        ret->n_clients = s->n_clients;
        ret->n_waiting = s->n_waiting;
        ret->fragmentation_permille = s->fragmentation;
        ret->is_draining = s->draining;
}

static int ask_status(struct admin *admin, struct top_look *look)
{
        Kvlease__V1__AdminCountersRequest counters = KVLEASE__V1__ADMIN_COUNTERS_REQUEST__INIT;
        const struct figures_status *status;
        const ProtobufCMessage *m;
        uint64_t n_leases;
        int r = admin_call(admin, MSG_ADMIN_COUNTERS, &counters.base, &m);

        if (r != CTL_OK)
                return r;
        n_leases = count_leases((const Kvlease__V1__AdminCountersReply *)m);
        r = admin_status(admin, &status);
        if (r != CTL_OK)
                return r;
        begin_samples(look, status->boot_epoch);
        take_status(status, &look->daemon);
        top_read_totals(status, n_leases, &look->totals);
        return CTL_OK;
}

static void take_device(const void *row, void *data)
{
        const struct figures_device *d = row;
        struct top_daemon *s = data;
        struct top_tier *t = strcmp(d->tier, "host") == 0   ? &s->host
                             : strcmp(d->tier, "disk") == 0 ? &s->disk
                                                            : &s->device;

        if (t->n++ == 0)
                snprintf(t->name, sizeof(t->name), "%s", d->name);
        t->n_bad += strcmp(d->state, "ok") != 0;
        t->budget_bytes += d->budget_bytes;
        t->used_bytes += d->charged_bytes;
}

/* ---- lists ----------------------------------------------------------------------------------- */

struct listing {
        struct top_look *look;
        enum top_view_id view;
};

static void add_up_region(const struct figures_region *r, struct top_daemon *s)
{
        bool is_pool = r->tenant[0] == '\0';

        *(is_pool ? &s->pool_bytes : &s->pinned_bytes) += r->size_bytes;
        *(is_pool ? &s->pool_used_bytes : &s->pinned_used_bytes) += r->used_bytes;
}

static void take_row(const void *row, void *data)
{
        const struct listing *l = data;

        if (l->view == TOP_REGIONS)
                add_up_region(row, &l->look->daemon);
        top_read(l->view, row, &l->look->views[l->view]);
}

static int ask_view(struct admin *admin, enum top_view_id view, struct top_look *look)
{
        struct listing l = {look, view};

        look->has[view] = true;
        return admin_each(admin, top_noun(view), NULL, take_row, &l);
}

int top_ask(struct admin *admin, enum top_view_id view, struct top_look *ret_look)
{
        struct top_look look = {0};
        int r = ask_status(admin, &look);

        if (r == CTL_OK)
                r = admin_each(admin, &noun_devices, NULL, take_device, &look.daemon);
        /* The lines above the view need these, too. */
        if (r == CTL_OK)
                r = ask_view(admin, TOP_NAMESPACES, &look);
        if (r == CTL_OK)
                r = ask_view(admin, TOP_REGIONS, &look);
        if (r == CTL_OK && !look.has[view])
                r = ask_view(admin, view, &look);
        if (r == CTL_OK)
                *ret_look = look;
        else
                top_look_deinit(&look);
        return r;
}

void top_look_deinit(struct top_look *look)
{
        top_sample_deinit(&look->totals);
        for (size_t v = 0; v < TOP_N_VIEWS; v++)
                top_sample_deinit(&look->views[v]);
        *look = (struct top_look){0};
}

void top_look_advance(struct top_look *last, struct top_look *now)
{
        top_rates(&now->totals, last->totals.view ? &last->totals : NULL);
        for (size_t v = 0; v < TOP_N_VIEWS; v++)
                if (now->has[v])
                        top_rates(&now->views[v], last->has[v] ? &last->views[v] : NULL);
        top_sum_up(&now->totals, now->has[TOP_TENANTS] ? &now->views[TOP_TENANTS] : NULL,
                &now->views[TOP_NAMESPACES]);
        last->daemon = now->daemon;
        top_sample_deinit(&last->totals);
        last->totals = now->totals;
        for (size_t v = 0; v < TOP_N_VIEWS; v++) {
                if (!now->has[v])
                        continue; /* compared with the older one when asked again */
                top_sample_deinit(&last->views[v]);
                last->views[v] = now->views[v];
                last->has[v] = true;
        }
        *now = (struct top_look){0};
}
