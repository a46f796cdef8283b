#include "daemon/core/ground/exchange-news.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/core/ground/chronicle.h"
#include "daemon/remote/store/remote.h"

/* ---- what happened --------------------------------------------------------------------------- */

static void see_unreached(
        struct exchange_news *n, const struct remote_summary *summary, uint64_t now_nsec)
{
        if (n->unreached_nsec == 0)
                n->unreached_nsec = now_nsec;
        if (n->is_unreached || now_nsec < n->unreached_nsec + EXCHANGE_UNREACHED_NSEC)
                return;
        n->is_unreached = true;
        n->n_nodes = summary->n_nodes;
        n->last_error = summary->last_error;
        n->lost.n++;
}

void exchange_news_see(
        struct exchange_news *n, const struct remote_summary *summary, uint64_t now_nsec)
{
        if (summary->state == REMOTE_UNREACHED) {
                see_unreached(n, summary, now_nsec);
                return;
        }
        if (summary->state == REMOTE_UNKNOWN && n->is_unreached)
                return; /* somebody answers, and doesn't say yet what it serves */
        if (n->is_unreached) {
                n->is_unreached = false;
                n->lasted_nsec = now_nsec - n->unreached_nsec;
                n->regained.n++;
        }
        n->unreached_nsec = 0;
}

static struct exchange_refusal *find_refusal(
        struct exchange_news *n, const char *reason, const char *what)
{
        for (unsigned i = 0; i < n->n_refusals; i++)
                if (strcmp(n->refusals[i].reason, reason) == 0)
                        return &n->refusals[i];
        if (n->n_refusals == EXCHANGE_REFUSALS_MAX)
                return &n->refusals[EXCHANGE_REFUSALS_MAX - 1];
        n->refusals[n->n_refusals] = (struct exchange_refusal){.reason = reason, .what = what};
        return &n->refusals[n->n_refusals++];
}

void exchange_news_refused(struct exchange_news *n, const char *tenant, const char *reason,
        const char *what, uint32_t n_pages)
{
        struct exchange_refusal *r = find_refusal(n, reason, what);

        if (r->item.n == 0)
                (void)snprintf(r->tenant, sizeof(r->tenant), "%s", tenant);
        r->is_of_several |= strcmp(r->tenant, tenant) != 0;
        r->item.n++;
        r->n_pages += n_pages;
}

/* ---- what is told of it ---------------------------------------------------------------------- */

static bool is_due(const struct exchange_item *item, uint64_t now_nsec)
{
        return item->n > 0 &&
               (item->told_nsec == 0 || now_nsec >= item->told_nsec + EXCHANGE_NEWS_NSEC);
}

/* The note is of the item, which is due; by, count and kind are filled in. */
static void tell_item(struct exchange_news *n, struct exchange_item *item, struct chronicle *c,
        uint64_t now_nsec, struct chronicle_note note)
{
        char by[CHRONICLE_BY_MAX + 1];

        (void)snprintf(by, sizeof(by), "remote %s", n->name);
        note.kind = EVENT_REMOTE;
        note.by = by;
        note.count = item->n;
        chronicle_note(c, now_nsec, &note);
        *item = (struct exchange_item){.told_nsec = now_nsec};
}

static void tell_unreached(struct exchange_news *n, struct chronicle *c, uint64_t now_nsec)
{
        char detail[CHRONICLE_DETAIL_MAX + 1];

        if (n->n_nodes == 0)
                (void)snprintf(detail, sizeof(detail),
                        "none of its addresses is known: can the names be resolved?");
        else
                (void)snprintf(detail, sizeof(detail), "of %u node%s none answers%s%s", n->n_nodes,
                        n->n_nodes == 1 ? "" : "s", n->last_error ? ": " : "",
                        n->last_error ? remote_error_text(n->last_error) : "");
        n->regained.n = 0; /* this one says so */
        tell_item(n, &n->lost, c, now_nsec,
                (struct chronicle_note){.reason = "unreachable", .detail = detail});
}

static void tell_reached(struct exchange_news *n, struct chronicle *c, uint64_t now_nsec)
{
        char detail[CHRONICLE_DETAIL_MAX + 1], duration[FORMAT_DURATION_MAX];

        (void)snprintf(detail, sizeof(detail), "it wasn't for %s",
                format_duration(n->lasted_nsec / NSEC_PER_SEC * NSEC_PER_SEC, duration));
        n->lost.n = 0; /* likewise */
        tell_item(n, &n->regained, c, now_nsec,
                (struct chronicle_note){.reason = "reachable again", .detail = detail});
}

static void tell_refusal(
        struct exchange_news *n, struct exchange_refusal *r, struct chronicle *c, uint64_t now_nsec)
{
        char detail[CHRONICLE_DETAIL_MAX + 1];

        (void)snprintf(detail, sizeof(detail), "refused, as %s%s", r->what,
                r->is_of_several ? "; of several tenants" : "");
        tell_item(n, &r->item, c, now_nsec,
                (struct chronicle_note){.tenant = r->is_of_several ? NULL : r->tenant,
                        .reason = r->reason,
                        .detail = detail,
                        .pages = r->n_pages});
        r->n_pages = 0;
        r->is_of_several = false;
}

void exchange_news_tell(struct exchange_news *n, struct chronicle *c, uint64_t now_nsec)
{
        if (n->is_unreached && is_due(&n->lost, now_nsec))
                tell_unreached(n, c, now_nsec);
        if (!n->is_unreached && is_due(&n->regained, now_nsec))
                tell_reached(n, c, now_nsec);
        for (unsigned i = 0; i < n->n_refusals; i++)
                if (is_due(&n->refusals[i].item, now_nsec))
                        tell_refusal(n, &n->refusals[i], c, now_nsec);
}
