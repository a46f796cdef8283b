#include "client/trace/recommend.h"

#include <inttypes.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"
#include "client/trace/report.h"

#define MIB (UINT64_C(1) << 20)

static uint64_t mebibytes(const struct analysis *a, uint64_t pages, uint64_t token_bytes)
{
        unsigned __int128 bytes =
                (unsigned __int128)pages * a->trace->sim.block_tokens * token_bytes;
        unsigned __int128 mib = (bytes + MIB - 1) / MIB;

        /* The daemon's maximum, 2^50 bytes. */
        return (uint64_t)MAX(MIN(mib, (unsigned __int128)1 << 30), (unsigned __int128)1);
}

/* Writes a tenant's token hits with only its reservation, by policies of the daemon. */
static void write_policy(const struct demand *d, FILE *to)
{
        fputs("# Token hit with that much alone:", to);
        for (unsigned p = 0; p < DEMAND_POLICIES_MAX && evict_policies[p]; p++)
                fprintf(to, "%s %s %.2f %%", p > 0 ? "," : "", evict_policies[p]->name,
                        100 * replay_hit_ratio(&d->at_p99[p]));
        fprintf(to, ".\nevict = %s\n", evict_policies[d->best]->name);
}

static void write_tenant(
        const struct analysis *a, uint32_t tenant, uint64_t token_bytes, const char *name, FILE *to)
{
        const struct demand *d = &a->demands[tenant];
        char one[32], two[32], hold[32];

        fprintf(to,
                "\n[tenant %s]\n# 99 %% of the time at most %s pages of %" PRIu32
                " tokens were in use (each for %s after a\n# request used it), half of the time %s.\nclass = pinned\nreserve = %" PRIu64
                "MiB\n",
                name, report_count(d->p99_pages, one), a->trace->sim.block_tokens,
                report_time(a->hold_msec, hold), report_count(d->p50_pages, two),
                mebibytes(a, d->p99_pages, token_bytes));
        write_policy(d, to);
        fprintf(to,
                "# The trace has %s different pages of this tenant, and at most %s were in use at once: more\n# would stay empty.\nlimit = %" PRIu64
                "MiB\n",
                report_count(d->unique_pages, one), report_count(d->max_pages, two),
                mebibytes(a, MAX(d->unique_pages, d->max_pages), token_bytes));
}

static bool has_tenant(const struct trace *t, const char *name)
{
        for (uint32_t i = 0; i < t->sim.n_tenants; i++)
                if (strcmp(t->tenants[i], name) == 0)
                        return true;
        return false;
}

/* Finds an unused name for lines without a tenant: "chat-2" if others name "chat". */
static void free_name(const struct trace *t, const char *wanted, char ret[TRACE_NAME_SIZE])
{
        snprintf(ret, TRACE_NAME_SIZE, "%s", wanted);
        for (unsigned i = 2; has_tenant(t, ret); i++)
                snprintf(ret, TRACE_NAME_SIZE, "%.*s-%u", TENANT_NAME_MAX - 4, wanted, i % 1000);
}

void recommend(const struct analysis *a, uint64_t token_bytes, const char *name, FILE *to)
{
        char count[32], time[32], advice[256], bytes[FORMAT_BYTES_MAX], nameless[TRACE_NAME_SIZE];

        free_name(a->trace, name, nameless);
        fprintf(to,
                "# For kvleased, from a trace of %s requests in %s, at %s of K/V a token.\n"
                "# Other traffic needs other figures; see also: kvleasectl trace analyze\n"
                "#\n# Page size, which the engine chooses: %s\n",
                report_count(a->trace->sim.n_requests, count), report_time(a->duration_msec, time),
                format_bytes(token_bytes, bytes),
                report_page_advice(&a->page_sizes, advice, sizeof(advice)));
        for (uint32_t i = 0; i < a->trace->sim.n_tenants; i++)
                write_tenant(a, i, token_bytes,
                        a->trace->tenants[i][0] ? a->trace->tenants[i] : nameless, to);
}
