#include "client/exporter/page.h"

#include <inttypes.h>

#include "base/parse.h"
#include "proto/figures.h"

#define PAGE_TENANTS 200 /* rows; not tuned */

/* Without its script the page is a snapshot; the script replaces the part in `still`. */
static void begin_page(struct text *t, const char *state)
{
        text_printf(t,
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
                "<title>kvlease</title>\n<link rel=\"stylesheet\" href=\"/status.css\"><script src=\"/status.js\" defer></script></head>\n"
                "<body><header><h1>kvlease</h1><p id=\"state\" role=\"status\">%s</p><p><a href=\"/metrics\">metrics</a></p></header>\n"
                "<main><div id=\"live\" hidden></div><div id=\"still\">\n",
                state);
}

static void end_page(struct text *t)
{
        text_printf(t, "</div></main></body></html>\n");
}

/* Writes a cell with the size, and `whole` unless that is unlimited. */
static void bytes_cell(struct text *t, uint64_t part, uint64_t whole)
{
        char a[FORMAT_BYTES_MAX], b[FORMAT_BYTES_MAX];

        if (whole == UINT64_MAX)
                text_printf(t, "<td>%s</td>", format_bytes(part, a));
        else
                text_printf(t, "<td>%s of %s</td>", format_bytes(part, a), format_bytes(whole, b));
}

static void status_list(struct text *t, const struct figures_status *s)
{
        text_printf(t, "<p>kvleased ");
        text_html(t, s->daemon_version);
        text_printf(t,
                ", up for %" PRIu64 " s%s: %" PRIu64 " clients, %" PRIu64 " tenants, %" PRIu64
                " namespaces, %" PRIu64 " pages cached, %" PRIu64 " of %" PRIu64
                " looked up found.</p>\n",
                s->uptime_sec, s->draining ? ", draining" : "", s->n_clients, s->n_tenants,
                s->n_namespaces, s->pages_sealed, s->lookup_hits, s->lookup_keys);
}

static void device_table(struct text *t, const struct source_rows *rows)
{
        text_printf(t, "<h2>Devices</h2>\n<table><tr><th>device<th>state<th>memory</tr>\n");
        for (size_t i = 0; i < rows->n; i++) {
                const struct figures_device *d = rows->rows[i];

                text_printf(t, "<tr><td>");
                text_html(t, d->name);
                text_printf(t, "</td><td>");
                text_html(t, d->state);
                text_printf(t, "</td>");
                bytes_cell(t, d->charged_bytes, d->budget_bytes);
                text_printf(t, "</tr>\n");
        }
        text_printf(t, "</table>\n");
}

static void tenant_table(struct text *t, const struct source_rows *rows)
{
        text_printf(t,
                "<h2>Tenants</h2>\n<table><tr><th>tenant<th>memory<th>reserved<th>clients<th>refused<th>evicted</tr>\n");
        for (size_t i = 0; i < rows->n && i < PAGE_TENANTS; i++) {
                const struct figures_tenant *r = rows->rows[i];

                text_printf(t, "<tr><td>");
                text_html(t, r->name);
                text_printf(t, "</td>");
                bytes_cell(t, r->charged_bytes, r->limit_bytes);
                bytes_cell(t, r->reserve_bytes, UINT64_MAX);
                text_printf(t,
                        "<td>%" PRIu64 "</td><td>%" PRIu64 "</td><td>%" PRIu64 "</td></tr>\n",
                        r->n_clients, r->refusals, r->evictions);
        }
        text_printf(t, "</table>\n");
        if (rows->n > PAGE_TENANTS)
                text_printf(t, "<p>and %zu more: kvleasectl tenants</p>\n", rows->n - PAGE_TENANTS);
}

void page_daemon(struct text *t, const struct facts *f)
{
        begin_page(t, "kvleased answers.");
        status_list(t, f->lists[SOURCE_STATUS].rows[0]);
        device_table(t, &f->lists[SOURCE_DEVICES]);
        tenant_table(t, &f->lists[SOURCE_TENANTS]);
        end_page(t);
}

void page_away(struct text *t, const char *why)
{
        begin_page(t, "kvleased doesn't answer.");
        text_printf(t, "<p>kvleased can't be asked: ");
        text_html(t, why);
        text_printf(t, "</p>\n");
        end_page(t);
}
