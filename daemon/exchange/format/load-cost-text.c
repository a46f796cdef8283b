#include "daemon/exchange/format/load-cost-text.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"

#define TIME_MAX 32

/* Formats a time, with tenths below 10 ms. */
static char *format_time(uint64_t nsec, char buf[TIME_MAX])
{
        if (nsec < 10 * NSEC_PER_MSEC)
                snprintf(buf, TIME_MAX, "%.1f ms", (double)nsec / NSEC_PER_MSEC);
        else if (nsec < 10 * NSEC_PER_SEC)
                snprintf(buf, TIME_MAX, "%.0f ms", (double)nsec / NSEC_PER_MSEC);
        else
                snprintf(buf, TIME_MAX, "%.0f s", (double)nsec / NSEC_PER_SEC);
        return buf;
}

char *load_cost_text(const struct load_cost_answer *a, uint64_t n_pages, uint64_t tokens,
        char buf[LOAD_COST_TEXT_MAX])
{
        const char *pages = n_pages == 1 ? "page" : "pages";
        char load[TIME_MAX], compute[TIME_MAX];

        if (a->verdict == LOAD_COST_TOO_SHORT)
                snprintf(buf, LOAD_COST_TEXT_MAX,
                        "%" PRIu64 " %s, %" PRIu64 " %s, fewer than %d: not loaded", n_pages, pages,
                        tokens, tokens == 1 ? "token" : "tokens", LOAD_COST_TOKENS_MIN);
        else
                snprintf(buf, LOAD_COST_TEXT_MAX,
                        "%" PRIu64 " %s, %s to load against %s to compute: %s", n_pages, pages,
                        format_time(a->load_nsec, load), format_time(a->compute_nsec, compute),
                        a->verdict == LOAD_COST_LOADED ? "loaded" : "not loaded");
        return buf;
}
