#include "client/trace/host-runs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"
#include "client/trace/analysis.h"
#include "client/trace/jobs.h"

#define STEP_REQUESTS 256 /* not tuned: between two looks at the counter */

static const char *const affinity_names[HOSTS_AFFINITIES] = {
        [HOSTS_ROUND_ROBIN] = "round-robin",
        [HOSTS_RANDOM] = "random",
        [HOSTS_SESSION] = "session",
        [HOSTS_PREFIX] = "prefix",
};

const char *hosts_affinity_name(enum hosts_affinity affinity)
{
        return affinity_names[affinity];
}

/* ---- lists ----------------------------------------------------------------------------------- */

static int add_count(struct host_runs *h, const char *text, char *err, size_t err_len)
{
        char shown[FORMAT_EXCERPT_MAX];
        uint64_t n;

        if (parse_u64(text, &n) < 0 || n == 0 || n > HOSTS_MAX) {
                snprintf(err, err_len, "'%s' is no number of hosts: that is 1 to %d",
                        format_excerpt(text, strlen(text), shown), HOSTS_MAX);
                return -EINVAL;
        }
        if (n > h->group && n % h->group != 0) {
                snprintf(err, err_len,
                        "%" PRIu64 " hosts: a copy of the trace is for %" PRIu32
                        ", so it must be a multiple of that, or less; --group changes it",
                        n, h->group);
                return -EINVAL;
        }
        if (h->n_counts == HOST_COUNTS_MAX) {
                snprintf(err, err_len, "more than %d numbers of hosts", HOST_COUNTS_MAX);
                return -EINVAL;
        }
        h->counts[h->n_counts++] = (uint32_t)n;
        return 0;
}

static int add_affinity(struct host_runs *h, const char *text, char *err, size_t err_len)
{
        char shown[FORMAT_EXCERPT_MAX];
        unsigned a = 0;

        while (a < HOSTS_AFFINITIES && strcmp(affinity_names[a], text) != 0)
                a++;
        if (a == HOSTS_AFFINITIES) {
                snprintf(err, err_len,
                        "there is no affinity '%s': there are round-robin, random, session, prefix",
                        format_excerpt(text, strlen(text), shown));
                return -EINVAL;
        }
        for (unsigned i = 0; i < h->n_affinities; i++)
                if (h->affinities[i] == a)
                        return 0;
        h->affinities[h->n_affinities++] = (enum hosts_affinity)a;
        return 0;
}

static int add_words(struct host_runs *h, const char *list,
        int (*add)(struct host_runs *h, const char *text, char *err, size_t err_len), char *err,
        size_t err_len)
{
        _cleanup_free_ char *copy = strdup(list);
        char *rest = copy, *text;
        int r = copy ? 0 : -ENOMEM;

        while (r == 0 && rest && (text = strsep(&rest, ",")))
                r = add(h, text, err, err_len);
        return r;
}

int host_runs_set_counts(struct host_runs *h, const char *list, char *err, size_t err_len)
{
        h->n_counts = 0;
        return add_words(h, list, add_count, err, err_len);
}

int host_runs_set_affinities(struct host_runs *h, const char *list, char *err, size_t err_len)
{
        h->n_affinities = 0;
        return add_words(h, list, add_affinity, err, err_len);
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Data of all jobs. */
struct runs {
        const struct host_runs *given;
        const struct sim_trace *trace;
        const uint32_t *continued; /* NULL: no run needs it */
};

static void prepare_run(const struct runs *runs, uint32_t n_hosts, enum hosts_affinity affinity,
        uint64_t n_nodes, struct hosts_options *ret)
{
        const struct host_runs *h = runs->given;
        const struct store_model *m = &h->store;
        uint64_t block_tokens = runs->trace->block_tokens;
        uint64_t values = m->host_size * n_hosts / h->block_bytes;

        *ret = (struct hosts_options){
                .cache = {.policy = h->policy,
                        .capacity_pages = h->cache_pages,
                        .below_pages = (uint32_t)MIN(
                                (uint64_t)h->cache_pages * h->below, (uint64_t)NODE_NONE - 1),
                        .tenant = SIM_ALL_TENANTS},
                .n_hosts = n_hosts,
                .group = h->group,
                .affinity = affinity,
                .continued = runs->continued,
                .prefill_tokens_per_sec = h->prefill_tokens_per_sec,
                .store = {.values = {.evict = (enum values_evict)m->evict,
                                  .capacity = (uint32_t)MIN(values, (uint64_t)UINT32_MAX),
                                  .expiry_nsec = m->expiry_nsec},
                        .lanes = {.n_nodes = (uint32_t)n_nodes,
                                .node_bytes_per_sec = m->node_bandwidth,
                                .host_bytes_per_sec = m->host_bandwidth,
                                .rtt_nsec = m->rtt_nsec},
                        .filter = {.min_uses = (uint32_t)m->min_uses,
                                .long_tokens = HOST_LONG_TOKENS},
                        .export = (enum hosts_export)m->export,
                        .write_bytes_per_sec = m->write_rate,
                        .min_tokens = HOST_LOAD_TOKENS,
                        .block_bytes = h->block_bytes,
                        .keys_per_block =
                                m->page_tokens > 0 ? (uint32_t)(block_tokens / m->page_tokens) : 1},
        };
}

static int run_hosts(const struct sim_trace *trace, const struct hosts_options *options,
        struct hosts_result *ret, _Atomic uint64_t *n_done)
{
        struct hosts *h;
        int64_t left, next;
        int r = hosts_new(trace, options, &h);

        if (r < 0)
                return r;
        left = (int64_t)hosts_n_requests(h);
        do {
                next = hosts_run(h, STEP_REQUESTS);
                atomic_fetch_add(n_done, (uint64_t)(left - MAX(next, (int64_t)0)));
                left = next;
        } while (left > 0);
        hosts_result(h, ret);
        hosts_free(h);
        return (int)left;
}

/* Returns n / each, rounded up, and at least 1. */
static uint64_t at_least_one(double n, double each)
{
        uint64_t whole = (uint64_t)(n / each);

        return MAX(whole + ((double)whole * each < n), UINT64_C(1));
}

static struct nodes_needed nodes_of(const struct host_runs *h, const struct hosts_result *r)
{
        const struct store_model *m = &h->store;
        double seconds = (double)HOSTS_PEAK_NSEC / 1e9;

        return (struct nodes_needed){
                .by_memory = at_least_one((double)r->values.most * (double)h->block_bytes *
                                                  STORE_MEMORY_PERCENT / 100,
                        (double)m->node_memory),
                .by_bandwidth =
                        at_least_one((double)r->peak_bytes, (double)m->node_bandwidth * seconds),
                .by_keys = at_least_one((double)r->peak_keys, (double)m->node_keys * seconds),
        };
}

static int run_job(void *data, size_t i, void *result, _Atomic uint64_t *n_done)
{
        const struct runs *runs = data;
        const struct host_runs *h = runs->given;
        struct host_run *run = result;
        struct hosts_options options;
        int r;

        prepare_run(runs, h->counts[i / h->n_affinities], h->affinities[i % h->n_affinities],
                h->store.n_nodes, &options);
        r = run_hosts(runs->trace, &options, &run->result, n_done);
        if (r < 0)
                return r;
        run->needed = nodes_of(h, &run->result);
        run->n_nodes = h->store.n_nodes;
        if (run->n_nodes > 0 || h->store.host_size == 0)
                return 0;
        run->n_nodes = MAX(run->needed.by_memory, run->needed.by_bandwidth);
        run->n_nodes = MAX(run->n_nodes, run->needed.by_keys);
        options.store.lanes.n_nodes = (uint32_t)MIN(run->n_nodes, (uint64_t)UINT32_MAX - 1);
        return run_hosts(runs->trace, &options, &run->result, n_done);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int check_sizes(struct host_runs *h, const struct sim_trace *t, char *err, size_t err_len)
{
        uint64_t page = h->store.page_tokens, pages;
        char bytes[FORMAT_BYTES_MAX], block[FORMAT_BYTES_MAX];

        h->block_bytes = h->token_bytes * t->block_tokens;
        pages = h->cache_bytes / h->block_bytes;
        if (pages == 0 || pages >= NODE_NONE) {
                snprintf(err, err_len,
                        "%s on each host are %s blocks of %" PRIu32
                        " tokens of this trace: one takes %s",
                        format_bytes(h->cache_bytes, bytes), pages == 0 ? "no" : "too many",
                        t->block_tokens, format_bytes(h->block_bytes, block));
                return -EINVAL;
        }
        h->cache_pages = (uint32_t)pages;
        if (page > 0 &&
                (t->block_tokens % page != 0 || t->block_tokens / page > HOSTS_PROBE_KEYS)) {
                snprintf(err, err_len,
                        "pages of %" PRIu64 " tokens: blocks of this trace have %" PRIu32
                        ", which must be up to %d pages",
                        page, t->block_tokens, HOSTS_PROBE_KEYS);
                return -EINVAL;
        }
        for (unsigned i = 0; i < h->n_counts; i++)
                if ((uint64_t)h->counts[i] / h->group * t->n_unique > HOSTS_KEYS_MAX) {
                        snprintf(err, err_len,
                                "%" PRIu32
                                " hosts: copies of this trace have more than 2^32 blocks; a larger --group makes fewer copies",
                                h->counts[i]);
                        return -EINVAL;
                }
        return 0;
}

static bool needs_sessions(const struct host_runs *h)
{
        for (unsigned i = 0; i < h->n_affinities; i++)
                if (h->affinities[i] == HOSTS_SESSION)
                        return true;
        return false;
}

static uint64_t n_steps(const struct host_runs *h, const struct sim_trace *t)
{
        uint64_t n = 0, passes = h->store.n_nodes > 0 || h->store.host_size == 0 ? 1 : 2;

        for (unsigned i = 0; i < h->n_counts; i++)
                n += MAX((uint64_t)h->counts[i] / h->group, UINT64_C(1)) * t->n_requests;
        return n * h->n_affinities * passes;
}

int host_runs_run(struct host_runs *h, const struct sim_trace *trace, unsigned n_processes,
        bool (*progress)(uint64_t done, uint64_t total, void *data), void *data, char *err,
        size_t err_len)
{
        size_t n = (size_t)h->n_counts * h->n_affinities;
        _cleanup_free_ struct host_run *results = calloc(MAX(n, (size_t)1), sizeof(*results));
        _cleanup_free_ uint32_t *continued = NULL;
        struct runs runs = {.given = h, .trace = trace};
        const struct jobs jobs = {.n = n,
                .result_bytes = sizeof(*results),
                .run = run_job,
                .data = &runs,
                .total = n_steps(h, trace)};
        int r = results ? check_sizes(h, trace, err, err_len) : -ENOMEM;

        if (r == 0 && needs_sessions(h)) {
                runs.continued = continued = find_sessions(trace);
                r = continued ? 0 : -ENOMEM;
        }
        if (r == 0)
                r = jobs_run(&jobs, results, n_processes, progress, data);
        for (size_t i = 0; i < n && r == 0; i++)
                h->runs[i / h->n_affinities][i % h->n_affinities] = results[i];
        return r;
}

double host_run_rate(const struct host_run *run, uint64_t n)
{
        double seconds = (double)run->result.duration_nsec / 1e9;

        return seconds > 0 ? (double)n / seconds : 0;
}
