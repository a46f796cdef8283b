#include "client/ctl/top-text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "client/ctl/ctl.h"
#include "client/ctl/width.h"

#define CELL_BYTES         32
#define DEVICE_SHORT_CHARS 12

/* ---- values ---------------------------------------------------------------------------------- */

/* Formats a rate for a glance: "0.3", "42.1", "8230", "1.2M". */
static const char *rate_text(const struct show_format *f, double rate, char buf[CELL_BYTES])
{
        if (f->plain_numbers)
                snprintf(buf, CELL_BYTES, "%.3f", rate);
        else if (rate < 99.95)
                snprintf(buf, CELL_BYTES, "%.1f", rate);
        else if (rate < 99999.5)
                snprintf(buf, CELL_BYTES, "%.0f", rate);
        else if (rate < 1e6)
                snprintf(buf, CELL_BYTES, "%.0fk", rate / 1e3);
        else if (rate < 1e9)
                snprintf(buf, CELL_BYTES, "%.1fM", rate / 1e6);
        else
                snprintf(buf, CELL_BYTES, "%.1fG", rate / 1e9);
        return buf;
}

static const char *number_text(const struct top_cell *cell, enum top_kind kind,
        const struct show_format *f, char buf[CELL_BYTES])
{
        if (!cell->known)
                return "-";
        switch (kind) {
        case TOP_BYTES:
                return show_bytes(f, cell->number, buf);
        case TOP_SECONDS:
                return show_seconds(f, cell->number, buf);
        case TOP_RATE:
                return rate_text(f, cell->rate, buf);
        case TOP_BYTE_RATE:
                return show_bytes(f, (uint64_t)cell->rate, buf);
        case TOP_RATIO:
                snprintf(buf, CELL_BYTES, "%.1f", cell->rate * 100);
                return buf;
        case TOP_COUNT:
        case TOP_TEXT:
        case TOP_DEVICE:
                break;
        }
        snprintf(buf, CELL_BYTES, "%" PRIu64, cell->number);
        return buf;
}

/* Cuts UUIDs to their first group, as the vendor's tools do. Returns owned. */
static char *device_text(const char *name)
{
        char *s = text_printable(name);

        s[text_prefix(s, DEVICE_SHORT_CHARS)] = '\0';
        return s;
}

/* Returns owned. */
static char *cell_text(const struct top_cell *cell, enum top_kind kind, const struct show_format *f)
{
        char buf[CELL_BYTES];

        if (cell->text && cell->known)
                return kind == TOP_DEVICE ? device_text(cell->text) : text_printable(cell->text);
        return need(strdup(number_text(cell, kind, f, buf)));
}

/* ---- the lines above ------------------------------------------------------------------------- */

/* Returns owned. */
KVL_PRINTF(1, 2) static char *text(const char *format, ...)
{
        va_list ap;
        char *s;

        va_start(ap, format);
        s = text_format(format, ap);
        va_end(ap);
        return s;
}

/* Makes "TOKEN/S 12.0  HIT/S 3.5": some of the totals. Returns owned. */
static char *totals_text(
        const struct top_look *look, const struct show_format *f, const char *const *names)
{
        char buf[CELL_BYTES], *line = NULL;
        size_t len;
        FILE *to = need(open_memstream(&line, &len));

        for (; *names; names++) {
                unsigned c = top_find_column(&top_totals, *names);

                fprintf(to, "%s %s  ", *names,
                        number_text(&look->totals.rows[0].cells[c], top_totals.columns[c].kind, f,
                                buf));
        }
        if (fclose(to) != 0)
                need(NULL);
        while (len > 0 && line[len - 1] == ' ')
                line[--len] = '\0';
        return line;
}

static char *daemon_line(const struct top_daemon *d, const struct show_format *f)
{
        _cleanup_free_ char *version = text_printable(d->version);
        char uptime[32], waiting[48] = "";

        if (d->n_waiting > 0)
                snprintf(waiting, sizeof(waiting), ", waiting leases: %u", d->n_waiting);
        return text("kvleased %s%s, up %s: %u tenant%s, %u namespace%s, %u client%s%s", version,
                d->is_draining ? " (draining)" : "", show_seconds(f, d->uptime_sec, uptime),
                d->n_tenants, PLURAL(d->n_tenants), d->n_namespaces, PLURAL(d->n_namespaces),
                d->n_clients, PLURAL(d->n_clients), waiting);
}

static char *hits_line(const struct top_look *look, const struct show_format *f)
{
        static const char *const names[] = {"HIT%", "TOKEN/S", "HIT/S", "MISS/S", "LOOKUP/S", NULL};
        _cleanup_free_ char *now = totals_text(look, f, names);
        const struct top_daemon *d = &look->daemon;

        if (d->lookup_keys == 0)
                return text("hits    %s", now);
        return text("hits    %s  (%.1f %% since start)", now,
                100.0 * (double)d->lookup_hits / (double)d->lookup_keys);
}

static char *pages_line(const struct top_look *look, const struct show_format *f)
{
        static const char *const names[] = {"LEASE/S", "REFUSE/S", "PUBLISH/S", "EVICT/S", NULL};
        _cleanup_free_ char *now = totals_text(look, f, names);

        return text("pages   %s", now);
}

/* Makes "GPU-1234 3 GiB of 16 GiB (18.8 %)", "disk 1 TiB of ...". Returns owned. */
static char *tier_text(const char *what, const struct top_tier *t, const struct show_format *f)
{
        _cleanup_free_ char *name = what ? need(strdup(what)) : device_text(t->name);
        char used[32], budget[32], bad[32] = "", several[32];

        if (t->n_bad > 0)
                snprintf(bad, sizeof(bad), ", %u not ok", t->n_bad);
        snprintf(several, sizeof(several), "%u devices", t->n);
        return text("%s %s of %s (%.1f %%)%s", t->n == 1 || what ? name : several,
                show_bytes(f, t->used_bytes, used), show_bytes(f, t->budget_bytes, budget),
                t->budget_bytes ? 100.0 * (double)t->used_bytes / (double)t->budget_bytes : 0.0,
                bad);
}

static char *device_line(const struct top_daemon *d, const struct show_format *f)
{
        _cleanup_free_ char *device = tier_text(NULL, &d->device, f);
        char pinned[32], pinned_used[32], pool[32], pool_used[32];

        return text("memory  %s: pinned %s of %s, pool %s of %s; fragmentation %.1f %%", device,
                show_bytes(f, d->pinned_used_bytes, pinned_used),
                show_bytes(f, d->pinned_bytes, pinned),
                show_bytes(f, d->pool_used_bytes, pool_used), show_bytes(f, d->pool_bytes, pool),
                d->fragmentation_permille / 10.0);
}

static char *below_line(const struct top_look *look, const struct show_format *f)
{
        static const char *const names[] = {"UP/S", "HOST/S", "DISK/S", NULL};
        static const char *const disk_names[] = {
                "UP/S", "HOST/S", "DISK/S", "READ/S", "WRITE/S", NULL};
        const struct top_daemon *d = &look->daemon;
        _cleanup_free_ char *host = NULL, *disk = NULL, *now = NULL;

        if (d->host.n + d->disk.n == 0)
                return text("%s", "");
        host = d->host.n ? tier_text("host", &d->host, f) : text("%s", "");
        disk = d->disk.n ? tier_text("disk", &d->disk, f) : text("%s", "");
        now = totals_text(look, f, d->disk.n ? disk_names : names);
        return text("below   %s%s%s  %s", host, *host && *disk ? ", " : "", disk, now);
}

void top_head(const struct top_look *look, const struct show_format *f,
        char *ret_lines[TOP_TEXT_HEAD_LINES])
{
        ret_lines[0] = daemon_line(&look->daemon, f);
        ret_lines[1] = hits_line(look, f);
        ret_lines[2] = pages_line(look, f);
        ret_lines[3] = device_line(&look->daemon, f);
        ret_lines[4] = below_line(look, f);
}

/* ---- rows ------------------------------------------------------------------------------------ */

bool top_is_left(const struct top_view *v, unsigned column)
{
        return v->columns[column].kind == TOP_TEXT || v->columns[column].kind == TOP_DEVICE;
}

void top_table_init(struct top_table *t, const struct top_view *v, const struct show_format *f,
        const struct top_row *const *rows, size_t n_rows)
{
        size_t at = 0;

        *t = (struct top_table){.view = v, .n_rows = n_rows};
        t->cells = need(calloc(n_rows * v->n_columns + 1, sizeof(*t->cells)));
        for (unsigned c = 0; c < v->n_columns; c++)
                t->widths[c] = (unsigned)strlen(v->columns[c].heading);
        for (size_t i = 0; i < n_rows; i++)
                for (unsigned c = 0; c < v->n_columns; c++) {
                        char *s = cell_text(&rows[i]->cells[c], v->columns[c].kind, f);

                        t->widths[c] = MAX(t->widths[c], (unsigned)text_columns(s));
                        t->cells[at++] = s;
                }
}

void top_table_deinit(struct top_table *t)
{
        for (size_t i = 0; t->cells && i < t->n_rows * t->view->n_columns; i++)
                free(t->cells[i]);
        free(t->cells);
        *t = (struct top_table){0};
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *cell_json(const struct top_cell *cell, enum top_kind kind)
{
        if (!cell->known)
                return cell->text ? json_string("") : json_null();
        switch (kind) {
        case TOP_TEXT:
        case TOP_DEVICE:
                return show_json_text(cell->text);
        case TOP_RATE:
        case TOP_BYTE_RATE:
        case TOP_RATIO:
                return json_real(cell->rate);
        default:
                /* jansson's integers are signed; no count or size comes near 2^63. */
                return json_integer((json_int_t)MIN(cell->number, (uint64_t)INT64_MAX));
        }
}

json_t *top_row_json(const struct top_view *v, const struct top_row *row)
{
        json_t *object = need(json_object());

        for (unsigned c = 0; c < v->n_columns; c++)
                if (json_object_set_new(object, v->columns[c].key,
                            need(cell_json(&row->cells[c], v->columns[c].kind))) < 0)
                        need(NULL);
        return object;
}
