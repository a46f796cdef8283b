/* trace hosts: several hosts over one store. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "client/ctl/trace-run.h"
#include "client/ctl/verb.h"
#include "client/trace/report-hosts.h"
#include "policy/sim/policies.h"

#define DEFAULT_HOSTS      "10,100"
#define DEFAULT_AFFINITIES "round-robin,prefix"

/* Hosts for the published conversation trace, with a prefill of 10,000 tokens a second: each then
 * can compute three times its share. */
#define DEFAULT_GROUP 10

#define BELOW_MAX        1000000
#define PREFILL_RATE_MAX 1000000000
#define CACHE_MAX        (UINT64_C(1) << 50)

static const char *option_or(const struct ctl *ctl, enum ctl_option o, const char *otherwise)
{
        return ctl->options[o] ? ctl->options[o] : otherwise;
}

int check_trace_hosts(const struct ctl *ctl)
{
        const char *size = ctl->options[CTL_OPTION_SIZE];
        uint64_t bytes;
        int r = check_trace_token_bytes(ctl);

        if (r != CTL_OK)
                return r;
        if (!size)
                return fail(CTL_USAGE,
                        "--size is missing: the memory for pages on each host, such as 64GiB");
        if (parse_bytes(size, &bytes) < 0 || bytes == 0 || bytes > CACHE_MAX)
                return fail(CTL_USAGE,
                        "--size: '%s' is not a size of 1 byte to 1 PiB, such as 64GiB", size);
        if (!ctl->options[CTL_OPTION_PREFILL_RATE])
                return fail(CTL_USAGE,
                        "--prefill-rate is missing: the tokens a second that a host computes, as pages are loaded only where that takes longer");
        return CTL_OK;
}

static int set_policy(const struct ctl *ctl, struct host_runs *h)
{
        const char *name = option_or(ctl, CTL_OPTION_POLICIES, evict_policies[0]->name);
        uint64_t below = 0;
        int r = trace_number(ctl, CTL_OPTION_BELOW, BELOW_MAX, &below);

        if (r != CTL_OK)
                return r;
        h->policy = sim_policy_find(name);
        h->below = (uint32_t)below;
        if (!h->policy || h->policy == &evict_optimum)
                return fail(CTL_USAGE,
                        "--policies: '%s' is not one of kvleasectl trace replay --help, without "
                        "optimum, which would have to know the requests of each host",
                        name);
        if (below > 0 && !h->policy->lock)
                return fail(CTL_USAGE, "--below: %s doesn't know more than one tier", name);
        return CTL_OK;
}

/* Sets the options that are lists, with a sentence if one is wrong. */
static int set_lists(const struct ctl *ctl, struct host_runs *h)
{
        char err[512];
        int r;

        store_model_init(&h->store);
        r = host_runs_set_counts(
                h, option_or(ctl, CTL_OPTION_HOSTS, DEFAULT_HOSTS), err, sizeof(err));
        if (r == 0)
                r = host_runs_set_affinities(h,
                        option_or(ctl, CTL_OPTION_AFFINITY, DEFAULT_AFFINITIES), err, sizeof(err));
        if (r == 0 && ctl->options[CTL_OPTION_STORE])
                r = store_model_parse(&h->store, ctl->options[CTL_OPTION_STORE], err, sizeof(err));
        return r < 0 ? trace_fail(r, err) : CTL_OK;
}

static int set_all(const struct ctl *ctl, struct host_runs *h)
{
        uint64_t group = DEFAULT_GROUP;
        int r = trace_number(ctl, CTL_OPTION_GROUP, HOSTS_MAX, &group);

        h->group = (uint32_t)group;
        (void)parse_bytes(ctl->options[CTL_OPTION_SIZE], &h->cache_bytes); /* checked, both */
        (void)parse_bytes(ctl->options[CTL_OPTION_TOKEN_BYTES], &h->token_bytes);
        if (r == CTL_OK)
                r = trace_number(
                        ctl, CTL_OPTION_PREFILL_RATE, PREFILL_RATE_MAX, &h->prefill_tokens_per_sec);
        if (r == CTL_OK)
                r = set_policy(ctl, h);
        return r == CTL_OK ? set_lists(ctl, h) : r;
}

static int simulate_hosts(const struct ctl *ctl, const struct trace *t, struct host_runs *h)
{
        char err[512];
        struct bar bar;
        unsigned n_jobs;
        int r = trace_jobs(ctl, &n_jobs);

        if (r != CTL_OK)
                return r;
        bar_start(&bar, "simulating");
        r = host_runs_run(h, &t->sim, n_jobs, bar_step, &bar, err, sizeof(err));
        bar_end(&bar);
        if (r < 0)
                return trace_fail(r, err);
        if (ctl->format.json)
                show_json(report_hosts_json(h, &t->sim));
        else
                report_hosts_text(h, &t->sim, stdout);
        return CTL_OK;
}

int verb_trace_hosts(const struct ctl *ctl)
{
        _cleanup_free_ struct host_runs *h = need(calloc(1, sizeof(*h)));
        struct trace t;
        int r = set_all(ctl, h);

        if (r == CTL_OK)
                r = trace_open(ctl, &t);
        if (r != CTL_OK)
                return r;
        r = simulate_hosts(ctl, &t, h);
        trace_free(&t);
        return r;
}
