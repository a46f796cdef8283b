#include "daemon/exchange/forecast.h"

#include <string.h>

#include "base/clock.h"
#include "daemon/exchange/exchange-impl.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/nsset-keys.h"
#include "daemon/core/state/tenant.h"
#include "daemon/exchange/format/load-cost-text.h"

const char *exchange_forecast_name(enum exchange_forecast forecast)
{
        static const char *const names[] = {
#define X(name, text) text,
                EXCHANGE_FORECASTS(X)
#undef X
        };

        return names[forecast];
}

static enum exchange_forecast say_not_shared(
        const struct ns *ns, const char *remote, const char *why, struct detail *d)
{
        if (!exchange_of(ns->tenant) && remote[0])
                return detail_set(d, FORECAST_NOT_SHARED,
                        "an import brings nothing, as remote %s of tenant %s isn't open: the log of kvleased says why",
                        remote, ns->tenant->name);
        return detail_set(d, FORECAST_NOT_SHARED,
                "an import brings nothing, as namespace %s isn't shared with other hosts: %s",
                ns->name, why);
}

static enum exchange_forecast say_unreachable(
        const struct remote_summary *summary, const char *remote, struct detail *d)
{
        if (summary->fault[0])
                return detail_set(d, FORECAST_UNREACHABLE,
                        "an import brings nothing now, as remote %s isn't reached: %s", remote,
                        summary->fault);
        if (summary->n_nodes == 0)
                return detail_set(d, FORECAST_UNREACHABLE,
                        "an import brings nothing now, as no address of remote %s is known: can the names be resolved?",
                        remote);
        return detail_set(d, FORECAST_UNREACHABLE,
                "an import brings nothing now, as of %u node%s of remote %s none answers%s%s",
                summary->n_nodes, summary->n_nodes == 1 ? "" : "s", remote,
                *remote_summary_why(summary) ? ": " : "", remote_summary_why(summary));
}

/* Returns the computing rate used for decisions, in tokens per second. */
static uint64_t prefill_rate(const struct exchange_ns *e)
{
        return load_cost_per_sec(&e->prefill, load_cost_token_time(e->x->options.token_nsec));
}

/* Returns the source of the figure. */
static const char *prefill_source(const struct exchange_ns *e)
{
        if (e->x->options.token_nsec > 0)
                return "as remote_prefill says";
        return e->prefill.amount > 0 ? "as engines measured" : "until an engine has measured it";
}

static enum exchange_forecast say_asks(
        const struct exchange_ns *e, const char *remote, bool answers, struct detail *d)
{
        const struct nsset *set = e->ns->catalog.set;
        char last[LOAD_COST_TEXT_MAX] = "";

        if (e->n_decided > 0)
                load_cost_text(&e->decided, e->n_decided,
                        (uint64_t)e->n_decided * e->ns->layout.page_tokens, last);
        return detail_set(d, FORECAST_ASKS,
                "an import loads what remote %s has, which %s: at least %d tokens, where that is "
                "sooner than computing them (%llu a second, %s)%s%s%s%s",
                remote, answers ? "answers" : "hasn't answered yet", LOAD_COST_TOKENS_MIN,
                (unsigned long long)prefill_rate(e), prefill_source(e),
                set ? ", and no page that another namespace lacks of set " : "",
                set ? set->name : "", last[0] ? "; the last one: " : "", last);
}

enum exchange_forecast exchange_forecast(const struct ns *ns, const char *remote, struct detail *d)
{
        const struct exchange_ns *e = exchange_find_ns(ns);
        struct remote_summary summary;
        const char *why = NULL;

        if (!e) {
                (void)exchange_has_ns(ns, &why);
                return say_not_shared(ns, remote, why, d);
        }
        remote_summary(e->x->options.remote, &summary);
        if (summary.state == REMOTE_UNREACHED)
                return say_unreachable(&summary, remote, d);
        if (e->epoch->must_change)
                return detail_set(d, FORECAST_EPOCH,
                        "an import brings nothing now, as remote %s doesn't know yet that something of namespace %s was invalidated",
                        remote, ns->name);
        if (e->x->n_imports >= IMPORTS_MAX)
                return detail_set(d, FORECAST_BUSY,
                        "an import brings nothing now, as %d of tenant %s are under way, the most there may be",
                        IMPORTS_MAX, ns->tenant->name);
        return say_asks(e, remote, summary.state == REMOTE_REACHED, d);
}
