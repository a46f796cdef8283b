#include "client/exporter/scrape.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/parse.h"
#include "client/exporter/calls.h"
#include "client/exporter/history.h"
#include "client/exporter/limit.h"
#include "client/exporter/metric.h"
#include "client/exporter/process.h"
#include "client/exporter/source.h"
#include "client/exporter/status.h"
#include "client/exporter/text.h"
#include "kvlease-version.h"
#include "proto/figures.h"
#include "proto/kvlease.pb-c.h"

/* ---- the page for people --------------------------------------------------------------------- */

/* The page for people at /: kvleased's state, and its tenants. HTML that loads /status.js. */
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

/* Appends the page of a daemon that answered. */
static void page_daemon(struct text *t, const struct facts *f)
{
        begin_page(t, "kvleased answers.");
        status_list(t, f->lists[SOURCE_STATUS].rows[0]);
        device_table(t, &f->lists[SOURCE_DEVICES]);
        tenant_table(t, &f->lists[SOURCE_TENANTS]);
        end_page(t);
}

/* Appends the page of a daemon that didn't answer; `why` is a sentence from any source. */
static void page_away(struct text *t, const char *why)
{
        begin_page(t, "kvleased doesn't answer.");
        text_printf(t, "<p>kvleased can't be asked: ");
        text_html(t, why);
        text_printf(t, "</p>\n");
        end_page(t);
}

/* The pause after a scrape is this many times its duration, up to the bound. Not tuned: a scrape
 * takes some ms, scrapes are seconds apart. */
#define PAUSE_FACTOR   9
#define PAUSE_MAX_NSEC NSEC_PER_SEC

/* Output formats of a scrape. */
enum telling { TELLING_PROMETHEUS, TELLING_OPENMETRICS, TELLING_PAGE, TELLING_STATUS, N_TELLINGS };

/* The last output in a format. */
struct told {
        char *data; /* owned; NULL: none yet, or no memory */
        size_t len;
        uint64_t look_nsec;   /* start of its scrape */
        uint64_t wanted_nsec; /* arrival of its last waiter, for a later scrape */
};

struct scraper {
        pthread_mutex_t lock;  /* of the next three */
        pthread_cond_t looked; /* a scrape is over */
        bool is_looking;       /* all below belongs to the scraping thread */
        struct told told[N_TELLINGS];
        struct source *source; /* owned */
        struct limit *limits;  /* owned: of each table */
        uint64_t not_before;   /* the next scrape */
        uint64_t look_nsec;    /* start of the last one */
        uint64_t answer_nsec;  /* when all its answers were there */
        uint64_t n_scrapes, n_failures, n_calls;
        double last_sec;     /* duration of the last scrape */
        uint64_t boot_epoch; /* of the last daemon; 0: none */
        uint64_t n_survived, n_emptied;
        struct history history;
};

/* ---- looking --------------------------------------------------------------------------------- */

static void pause_until(uint64_t until)
{
        struct timespec at = {(time_t)(until / NSEC_PER_SEC), (long)(until % NSEC_PER_SEC)};

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
                ;
}

/* Counts restarts: the daemon isn't the last one asked. */
static void note_restart(struct scraper *s, const struct figures_status *status)
{
        if (s->boot_epoch && s->boot_epoch != status->boot_epoch) {
                s->n_survived += status->took_over != 0;
                s->n_emptied += status->took_over == 0;
        }
        s->boot_epoch = status->boot_epoch;
}

static void note_history(struct scraper *s, const struct facts *f)
{
        const struct source_rows *counters = &f->lists[SOURCE_COUNTERS];

        if (history_is_due(&s->history, s->answer_nsec))
                history_add(&s->history, s->answer_nsec, f->lists[SOURCE_STATUS].rows[0],
                        counters->n > 0 ? counters->rows[0] : NULL);
}

/* [looks] Waits for its time, then does source_ask(). */
static int ask_source(struct scraper *s, bool only_figures, struct facts *ret_facts)
{
        uint64_t start, took;
        int r;

        pause_until(s->not_before);
        start = s->look_nsec = clock_now_nsec();
        r = source_ask(s->source, only_figures, ret_facts);
        s->answer_nsec = clock_now_nsec();
        took = s->answer_nsec - start;
        s->not_before = s->answer_nsec + MIN(PAUSE_FACTOR * took, PAUSE_MAX_NSEC);
        if (r < 0)
                return r;
        s->n_calls += ret_facts->n_calls;
        note_restart(s, ret_facts->lists[SOURCE_STATUS].rows[0]);
        note_history(s, ret_facts);
        s->last_sec = (double)took / (double)NSEC_PER_SEC;
        return 0;
}

/* [looks] Asks for everything, and counts it. */
static int ask_for_all(struct scraper *s, struct facts *ret_facts)
{
        uint64_t start = clock_now_nsec();
        int r = ask_source(s, false, ret_facts);

        if (r < 0) /* the wait is its duration */
                s->last_sec = (double)(clock_now_nsec() - start) / (double)NSEC_PER_SEC;
        s->n_scrapes++;
        s->n_failures += r < 0;
        return r;
}

/* ---- telling --------------------------------------------------------------------------------- */

static void row_labels(const struct metric_table *t, const void *row, struct text_labels *ret)
{
        ret->n = 0;
        for (size_t i = 0; i < METRIC_ROW_LABELS && t->labels[i].name; i++)
                text_labels_add(ret, t->labels[i].name,
                        row ? metric_label(&t->labels[i], row) : LIMIT_OTHERS);
}

static void tell_row(
        struct text *text, const struct metric_table *t, const struct metric *m, const void *row)
{
        struct text_labels labels;

        if (!metric_exists_in(m, row))
                return;
        row_labels(t, row, &labels);
        metric_add_labels(m, &labels);
        for (size_t i = 0; i < METRIC_INFO_LABELS && m->info[i].name; i++)
                text_labels_add(&labels, m->info[i].name, metric_label(&m->info[i], row));
        text_sample(text, &labels, m->type == TEXT_INFO ? 1 : metric_value(m, row));
}

static void tell_others(struct text *text, const struct limit *l, size_t i)
{
        const struct metric *m = &l->table->metrics[i];
        struct text_labels labels;

        if (m->type == TEXT_INFO || m->single || m->no_sample)
                return;
        row_labels(l->table, NULL, &labels);
        metric_add_labels(m, &labels);
        text_sample(text, &labels, limit_sum(l, i));
}

/* Writes a family, whose samples belong together. */
static void tell_family(struct text *text, const struct limit *l, const struct metric *family,
        const void *const *rows, size_t n_named, size_t n_others)
{
        const struct metric_table *t = l->table;

        text_family(text, family->family, family->type, family->help);
        for (size_t i = 0; i < t->n_metrics; i++) {
                const struct metric *m = &t->metrics[i];

                if (!metric_is_of(t, m) || strcmp(m->family, family->family) != 0)
                        continue;
                for (size_t row = 0; row < n_named; row++)
                        tell_row(text, t, m, rows[row]);
                if (n_others > 0)
                        tell_others(text, l, i);
        }
}

static void tell_table(struct text *text, const struct limit *l, const void *const *rows,
        size_t n_named, size_t n_others)
{
        const struct metric_table *t = l->table;

        for (size_t i = 0; i < t->n_metrics && n_named + n_others > 0; i++)
                if (metric_is_of(t, &t->metrics[i]) && t->metrics[i].help)
                        tell_family(text, l, &t->metrics[i], rows, n_named, n_others);
}

/* Writes the rows of this table. */
static int tell_rows(struct text *text, struct limit *l, const struct source_rows *rows)
{
        _cleanup_free_ const void **wanted = calloc(rows->n + 1, sizeof(*wanted));
        size_t n = 0, n_named;
        int r;

        if (!wanted)
                return -ENOMEM;
        for (size_t i = 0; i < rows->n; i++)
                if (!l->table->wants || l->table->wants(rows->rows[i]))
                        wanted[n++] = rows->rows[i];
        r = limit_rows(l, wanted, n, &n_named);
        if (r == 0)
                tell_table(text, l, wanted, n_named, n - n_named);
        return r;
}

static int tell_daemon(struct scraper *s, struct text *t, const struct facts *f)
{
        int r = 0;

        for (size_t i = 0; r == 0 && i < n_metric_tables; i++)
                r = tell_rows(t, &s->limits[i], &f->lists[metric_tables[i].list]);
        if (r == 0 && f->lists[SOURCE_COUNTERS].n > 0)
                calls_tell(t, f->lists[SOURCE_COUNTERS].rows[0]);
        return r;
}

static void tell_one(
        struct text *t, const char *name, enum text_type type, const char *help, double value)
{
        text_family(t, name, type, help);
        text_sample(t, &(struct text_labels){0}, value);
}

static void tell_limits(const struct scraper *s, struct text *t)
{
        text_family(t, "exporter_rows", TEXT_GAUGE,
                "Rows (tenants, namespaces, ...) of lists of kvleased that kvlease-exporter tells by name, or sums as (others) beyond --max-rows.");
        for (size_t i = 0; i < n_metric_tables; i++) {
                const struct limit *l = &s->limits[i];

                for (int named = 1; l->table->labels[0].name && named >= 0; named--) {
                        struct text_labels labels = {.n = 0};

                        text_labels_add(&labels, "list", l->table->name);
                        text_labels_add(&labels, "told", named ? "named" : "summed");
                        text_sample(
                                t, &labels, (double)(named ? l->n_named : l->n_rows - l->n_named));
                }
        }
}

static void tell_restarts(const struct scraper *s, struct text *t)
{
        struct text_labels survived = {{{"outcome", "survived"}}, 1};
        struct text_labels emptied = {{{"outcome", "emptied"}}, 1};

        text_family(t, "restarts", TEXT_COUNTER,
                "Restarts of kvleased that kvlease-exporter has seen, by outcome: survived (with the cache) or emptied.");
        text_sample(t, &survived, (double)s->n_survived);
        text_sample(t, &emptied, (double)s->n_emptied);
}

static void tell_exporter(const struct scraper *s, struct text *t, bool is_up)
{
        struct text_labels version = {{{"version", KVLEASE_VERSION}}, 1};

        tell_one(t, "up", TEXT_GAUGE, "1 where kvleased answered kvlease-exporter, else 0.", is_up);
        text_family(t, "exporter_build", TEXT_INFO,
                "Version of this kvlease-exporter, as a label; the value is always 1.");
        text_sample(t, &version, 1);
        tell_one(t, "exporter_scrapes", TEXT_COUNTER,
                "Times that kvlease-exporter asked kvleased for all figures.",
                (double)s->n_scrapes);
        tell_one(t, "exporter_failed_scrapes", TEXT_COUNTER,
                "Times that kvlease-exporter asked kvleased for all figures and got no answer.",
                (double)s->n_failures);
        tell_one(t, "exporter_admin_calls", TEXT_COUNTER,
                "Requests that kvlease-exporter made to kvleased.", (double)s->n_calls);
        tell_one(t, "exporter_scrape_duration_seconds", TEXT_GAUGE,
                "Seconds that asking kvleased for all figures took this time.", s->last_sec);
        tell_restarts(s, t);
        if (is_up)
                tell_limits(s, t);
        process_tell(t);
}

/* f NULL: the daemon is away. */
static int tell_metrics(struct scraper *s, struct text *t, const struct facts *f)
{
        int r = f ? tell_daemon(s, t, f) : 0;

        if (r == 0)
                tell_exporter(s, t, f);
        text_end(t);
        return r;
}

/* [looks] f NULL: the daemon is away. Returns 0 or -ENOMEM. */
static int tell(struct scraper *s, enum telling what, const struct facts *f, struct text *t)
{
        int r = 0;

        if (what == TELLING_PAGE && f)
                page_daemon(t, f);
        else if (what == TELLING_PAGE)
                page_away(t, source_why(s->source));
        else if (what == TELLING_STATUS && f)
                status_tell(t, f, &s->history, s->answer_nsec);
        else if (what == TELLING_STATUS)
                status_tell_away(t, source_why(s->source));
        else
                r = tell_metrics(s, t, f);
        return t->failed ? -ENOMEM : r;
}

/* [looks] Scrapes, and writes each wanted format; data is NULL without memory. */
static void look_once(struct scraper *s, const bool wanted[N_TELLINGS], struct told ret[N_TELLINGS])
{
        bool only_status = true;
        struct facts facts = {0};
        bool is_up;

        for (size_t i = 0; i < N_TELLINGS; i++)
                only_status &= !wanted[i] || i == TELLING_STATUS;
        is_up = (only_status ? ask_source(s, false, &facts) : ask_for_all(s, &facts)) == 0;
        for (size_t i = 0; i < N_TELLINGS; i++) {
                struct text t;

                if (!wanted[i])
                        continue;
                text_init(&t, i == TELLING_OPENMETRICS ? TEXT_OPENMETRICS : TEXT_PROMETHEUS);
                if (tell(s, (enum telling)i, is_up ? &facts : NULL, &t) < 0)
                        text_deinit(&t);
                ret[i] = (struct told){.data = t.data, .len = t.len, .look_nsec = s->look_nsec};
        }
        facts_deinit(&facts);
}

/* [lock, dropped meanwhile] Scrapes for all waiting threads. */
static void look_for_all(struct scraper *s)
{
        struct told next[N_TELLINGS];
        bool wanted[N_TELLINGS];

        s->is_looking = true;
        for (size_t i = 0; i < N_TELLINGS; i++)
                wanted[i] = s->told[i].wanted_nsec > s->told[i].look_nsec;
        pthread_mutex_unlock(&s->lock);
        look_once(s, wanted, next);
        pthread_mutex_lock(&s->lock);
        for (size_t i = 0; i < N_TELLINGS; i++) {
                if (!wanted[i])
                        continue;
                free(s->told[i].data);
                next[i].wanted_nsec = s->told[i].wanted_nsec;
                s->told[i] = next[i];
        }
        s->is_looking = false;
        pthread_cond_broadcast(&s->looked);
}

/* Appends the output of a scrape that began after the call, by this thread or another one. So each
 * caller waits for two scrapes at most, not for one of each earlier caller. */
static int tell_look(struct scraper *s, enum telling what, struct text *t)
{
        struct told *told = &s->told[what];
        uint64_t came_nsec = clock_now_nsec();

        pthread_mutex_lock(&s->lock);
        while (told->look_nsec < came_nsec) {
                told->wanted_nsec = MAX(told->wanted_nsec, came_nsec);
                if (s->is_looking)
                        pthread_cond_wait(&s->looked, &s->lock);
                else
                        look_for_all(s);
        }
        if (told->data)
                text_bytes(t, told->data, told->len);
        else
                t->failed = true;
        pthread_mutex_unlock(&s->lock);
        return t->failed ? -ENOMEM : 0;
}

int scraper_metrics(struct scraper *s, struct text *t)
{
        return tell_look(
                s, t->format == TEXT_OPENMETRICS ? TELLING_OPENMETRICS : TELLING_PROMETHEUS, t);
}

int scraper_page(struct scraper *s, struct text *t)
{
        return tell_look(s, TELLING_PAGE, t);
}

int scraper_status(struct scraper *s, struct text *t)
{
        return tell_look(s, TELLING_STATUS, t);
}

void scraper_sample(struct scraper *s)
{
        struct facts facts = {0};
        bool is_mine;

        pthread_mutex_lock(&s->lock);
        is_mine = !s->is_looking; /* that scrape is a sample, too */
        s->is_looking = true;
        pthread_mutex_unlock(&s->lock);
        if (!is_mine)
                return;
        if (history_is_due(&s->history, clock_now_nsec()))
                (void)ask_source(s, true, &facts);
        facts_deinit(&facts);
        pthread_mutex_lock(&s->lock);
        s->is_looking = false;
        pthread_cond_broadcast(&s->looked);
        pthread_mutex_unlock(&s->lock);
}

/* ---- life ------------------------------------------------------------------------------------ */

int scraper_new(const struct scraper_options *o, struct scraper **ret)
{
        struct scraper *s = calloc(1, sizeof(*s));
        int r = s ? 0 : -ENOMEM;

        if (!s)
                return r;
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->looked, NULL);
        s->limits = calloc(n_metric_tables, sizeof(*s->limits));
        if (!s->limits)
                r = -ENOMEM;
        for (size_t i = 0; r == 0 && i < n_metric_tables; i++) {
                /* A table without labels has one row. */
                bool single = !metric_tables[i].labels[0].name;

                r = limit_init(&s->limits[i], &metric_tables[i], single ? 1 : o->max_rows);
        }
        if (r == 0)
                r = source_new(o->socket, o->timeout_nsec, &s->source);
        if (r < 0)
                scraper_free(s);
        else
                *ret = s;
        return r;
}

void scraper_free(struct scraper *s)
{
        if (!s)
                return;
        for (size_t i = 0; s->limits && i < n_metric_tables && s->limits[i].table; i++)
                limit_deinit(&s->limits[i]);
        for (size_t i = 0; i < N_TELLINGS; i++)
                free(s->told[i].data);
        free(s->limits);
        source_free(s->source);
        pthread_cond_destroy(&s->looked);
        pthread_mutex_destroy(&s->lock);
        free(s);
}
