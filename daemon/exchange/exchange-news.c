#include "daemon/exchange/exchange-news.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/core/state/event-log.h"
#include "daemon/remote/io/remote-io.h"

/* ---- events ---------------------------------------------------------------------------------- */

static void see_unreached(
        struct exchange_news *n, const struct remote_summary *summary, uint64_t now_nsec)
{
        if (n->unreached_nsec == 0)
                n->unreached_nsec = now_nsec;
        if (n->is_unreached || now_nsec < n->unreached_nsec + EXCHANGE_UNREACHED_NSEC)
                return;
        n->is_unreached = true;
        n->n_nodes = summary->n_nodes;
        (void)snprintf(n->why, sizeof(n->why), "%s", remote_summary_why(summary));
        n->lost.n++;
}

/* Counts skipped nodes: the first ones, or more than before. */
static void count_nodes(struct exchange_nodes_news *n, const struct remote_summary *summary)
{
        n->n_away = summary->n_left_alone;
        n->n_nodes = summary->n_nodes;
        n->error = summary->last_error;
        memcpy(n->name, summary->left_alone, sizeof(n->name));
        n->lost.n++;
}

/* Updates the state of the nodes of a reachable store. */
static void see_nodes(
        struct exchange_nodes_news *n, const struct remote_summary *summary, uint64_t now_nsec)
{
        bool are_away = summary->n_left_alone > 0;

        if (are_away && n->are_away && summary->n_left_alone > n->n_away)
                count_nodes(n, summary);
        if (are_away == n->are_away) {
                n->since_nsec = 0;
                return;
        }
        if (n->since_nsec == 0)
                n->since_nsec = now_nsec;
        if (now_nsec < n->since_nsec + EXCHANGE_UNREACHED_NSEC)
                return;
        n->are_away = are_away;
        if (are_away) {
                n->away_nsec = n->since_nsec;
                count_nodes(n, summary);
        } else {
                n->lasted_nsec = n->since_nsec - n->away_nsec;
                n->regained.n++;
        }
        n->since_nsec = 0;
}

void exchange_news_see(
        struct exchange_news *n, const struct remote_summary *summary, uint64_t now_nsec)
{
        if (summary->state == REMOTE_UNREACHED) {
                n->nodes.since_nsec = 0;
                see_unreached(n, summary, now_nsec);
                return;
        }
        if (summary->state == REMOTE_UNKNOWN && n->is_unreached)
                return; /* a node answers, but hasn't said yet what it serves */
        if (summary->state == REMOTE_REACHED)
                see_nodes(&n->nodes, summary, now_nsec);
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

/* ---- reports --------------------------------------------------------------------------------- */

static bool is_due(const struct exchange_item *item, uint64_t now_nsec)
{
        return item->n > 0 &&
               (item->told_nsec == 0 || now_nsec >= item->told_nsec + EXCHANGE_NEWS_NSEC);
}

/* Notes an item that is due; sets by, count and kind. */
static void tell_item(struct exchange_news *n, struct exchange_item *item, struct event_log *c,
        uint64_t now_nsec, struct event_note note)
{
        char by[EVENT_LOG_BY_MAX + 1];

        (void)snprintf(by, sizeof(by), "remote %s", n->name);
        note.kind = EVENT_REMOTE;
        note.by = by;
        note.count = item->n;
        event_note(c, now_nsec, &note);
        *item = (struct exchange_item){.told_nsec = now_nsec};
}

static void tell_unreached(struct exchange_news *n, struct event_log *c, uint64_t now_nsec)
{
        char detail[EVENT_LOG_DETAIL_MAX + 1];

        if (n->n_nodes > 0)
                (void)snprintf(detail, sizeof(detail), "of %u node%s none answers%s%.200s",
                        n->n_nodes, n->n_nodes == 1 ? "" : "s", n->why[0] ? ": " : "", n->why);
        else
                (void)snprintf(detail, sizeof(detail), "%s",
                        n->why[0] ? n->why
                                  : "none of its addresses is known: can the names be resolved?");
        n->regained.n = 0; /* implied by this report */
        tell_item(n, &n->lost, c, now_nsec,
                (struct event_note){.reason = "unreachable", .detail = detail});
}

static void tell_reached(struct exchange_news *n, struct event_log *c, uint64_t now_nsec)
{
        char detail[EVENT_LOG_DETAIL_MAX + 1], duration[FORMAT_DURATION_MAX];

        (void)snprintf(detail, sizeof(detail), "it wasn't for %s",
                format_duration(n->lasted_nsec / NSEC_PER_SEC * NSEC_PER_SEC, duration));
        n->lost.n = 0; /* implied by this report */
        tell_item(n, &n->regained, c, now_nsec,
                (struct event_note){.reason = "reachable again", .detail = detail});
}

static void tell_nodes_lost(struct exchange_news *news, struct event_log *c, uint64_t now_nsec)
{
        struct exchange_nodes_news *n = &news->nodes;
        char detail[EVENT_LOG_DETAIL_MAX + 1], which[REMOTE_NAME_BYTES + 32];

        if (n->n_away == 1)
                (void)snprintf(which, sizeof(which), "%s is left alone", n->name);
        else
                (void)snprintf(which, sizeof(which), "%u are left alone, %s among them", n->n_away,
                        n->name);
        (void)snprintf(detail, sizeof(detail), "of %u nodes %s%s%s", n->n_nodes, which,
                n->error ? ": " : "", n->error ? remote_error_text(n->error) : "");
        n->regained.n = 0; /* implied by this report */
        tell_item(news, &n->lost, c, now_nsec,
                (struct event_note){.reason = "node left alone", .detail = detail});
}

static void tell_nodes_regained(struct exchange_news *news, struct event_log *c, uint64_t now_nsec)
{
        struct exchange_nodes_news *n = &news->nodes;
        char detail[EVENT_LOG_DETAIL_MAX + 1], duration[FORMAT_DURATION_MAX];

        (void)snprintf(detail, sizeof(detail), "no node is left alone; for %s %u of %u %s",
                format_duration(n->lasted_nsec / NSEC_PER_SEC * NSEC_PER_SEC, duration), n->n_away,
                n->n_nodes, n->n_away == 1 ? "was" : "were");
        n->lost.n = 0; /* implied by this report */
        tell_item(news, &n->regained, c, now_nsec,
                (struct event_note){.reason = "all nodes answer", .detail = detail});
}

static void tell_refusal(
        struct exchange_news *n, struct exchange_refusal *r, struct event_log *c, uint64_t now_nsec)
{
        char detail[EVENT_LOG_DETAIL_MAX + 1];

        (void)snprintf(detail, sizeof(detail), "refused, as %s%s", r->what,
                r->is_of_several ? "; of several tenants" : "");
        tell_item(n, &r->item, c, now_nsec,
                (struct event_note){.tenant = r->is_of_several ? NULL : r->tenant,
                        .reason = r->reason,
                        .detail = detail,
                        .pages = r->n_pages});
        r->n_pages = 0;
        r->is_of_several = false;
}

void exchange_news_tell(struct exchange_news *n, struct event_log *c, uint64_t now_nsec)
{
        if (n->is_unreached && is_due(&n->lost, now_nsec))
                tell_unreached(n, c, now_nsec);
        if (!n->is_unreached && is_due(&n->regained, now_nsec))
                tell_reached(n, c, now_nsec);
        if (!n->is_unreached && n->nodes.are_away && is_due(&n->nodes.lost, now_nsec))
                tell_nodes_lost(n, c, now_nsec);
        if (!n->is_unreached && !n->nodes.are_away && is_due(&n->nodes.regained, now_nsec))
                tell_nodes_regained(n, c, now_nsec);
        for (unsigned i = 0; i < n->n_refusals; i++)
                if (is_due(&n->refusals[i].item, now_nsec))
                        tell_refusal(n, &n->refusals[i], c, now_nsec);
}
