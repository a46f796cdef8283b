#include <inttypes.h>

#include "base/macros.h"
#include "base/parse.h"
#include "client/trace/report-hosts.h"
#include "client/trace/report.h"

#define NSEC_A_MSEC 1000000

/* ---- for people ------------------------------------------------------------------------------ */

static void print_store(const struct host_runs *h, FILE *to)
{
        const struct store_model *m = &h->store;
        char one[FORMAT_BYTES_MAX], time[FORMAT_DURATION_MAX];

        if (m->host_size == 0) {
                fputs("No store\n", to);
                return;
        }
        fprintf(to, "Store: %s for each host, %s, ", format_bytes(m->host_size, one),
                m->evict == VALUES_LFU ? "lfu" : "lru");
        if (m->expiry_nsec > 0)
                fprintf(to, "values expire after %s", format_duration(m->expiry_nsec, time));
        else
                fputs("values never expire", to);
        fprintf(to, ", exports of what is %s",
                m->export == HOSTS_EXPORT_DEMOTION ? "demoted" : "found or long");
        if (m->write_rate > 0)
                fprintf(to, ", %s/s of each host at most", format_bytes(m->write_rate, one));
        putc('\n', to);
}

static char *rate_text(const struct host_run *run, uint64_t bytes, char buf[FORMAT_BYTES_MAX])
{
        return format_bytes((uint64_t)host_run_rate(run, bytes), buf);
}

static void print_run(const struct host_runs *h, unsigned count, enum hosts_affinity a,
        const struct host_run *run, FILE *to)
{
        const struct hosts_result *r = &run->result;
        char load[FORMAT_BYTES_MAX], write[FORMAT_BYTES_MAX], asked[32];

        fprintf(to, "  %6" PRIu32 " %-12s %7.2f", h->counts[count], hosts_affinity_name(a),
                report_percent(r->local_tokens, r->input_tokens));
        if (h->store.host_size > 0)
                fprintf(to, " %7.2f", report_percent(r->remote_tokens, r->input_tokens));
        fprintf(to, " %9.2f",
                report_percent(
                        r->input_tokens - r->local_tokens - r->remote_tokens, r->input_tokens));
        if (h->store.host_size > 0)
                fprintf(to, " %6.2f %11s %11s %9s %6" PRIu64 " %6" PRIu64 " %9" PRIu64 " %5" PRIu64,
                        report_percent(r->lost_tokens, r->lost_tokens + r->remote_tokens),
                        rate_text(run, r->load_bytes, load), rate_text(run, r->write_bytes, write),
                        report_count((uint64_t)host_run_rate(run, r->probes + r->touches), asked),
                        run->n_nodes, run->needed.by_memory, run->needed.by_bandwidth,
                        run->needed.by_keys);
        putc('\n', to);
}

void report_hosts_text(const struct host_runs *h, const struct sim_trace *t, FILE *to)
{
        char requests[32], group[32], pages[32], cache[FORMAT_BYTES_MAX], block[FORMAT_BYTES_MAX];

        fprintf(to,
                "%s requests for %s host%s, blocks of %" PRIu32
                " tokens (%s); a cache of %s blocks (%s, %s) on each host",
                report_count(t->n_requests, requests), report_count(h->group, group),
                h->group == 1 ? "" : "s", t->block_tokens, format_bytes(h->block_bytes, block),
                report_count(h->cache_pages, pages), format_bytes(h->cache_bytes, cache),
                h->policy->name);
        if (h->below > 0)
                fprintf(to, ", %" PRIu32 " times as many below", h->below);
        putc('\n', to);
        print_store(h, to);
        fputs("Input tokens in %: found on the host, loaded, computed; lost: of those in the store, that were faster to compute\n",
                to);
        fprintf(to, "  %6s %-12s %7s", "hosts", "affinity", "local");
        if (h->store.host_size > 0)
                fprintf(to, " %7s", "remote");
        fprintf(to, " %9s", "computed");
        if (h->store.host_size > 0)
                fprintf(to, " %6s %11s %11s %9s %6s %6s %9s %5s", "lost", "load/s", "write/s",
                        "asked/s", "nodes", "memory", "bandwidth", "keys");
        putc('\n', to);
        for (unsigned i = 0; i < h->n_counts; i++)
                for (unsigned a = 0; a < h->n_affinities; a++)
                        print_run(h, i, h->affinities[a], &h->runs[i][a], to);
}

/* ---- for programs ---------------------------------------------------------------------------- */

static json_t *store_json(const struct store_model *m)
{
        return json_pack("{s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                "bytes_per_host", report_number(m->host_size), "evict",
                m->evict == VALUES_LFU ? "lfu" : "lru", "export",
                m->export == HOSTS_EXPORT_DEMOTION ? "demotion" : "found", "write_bytes_per_second",
                report_number(m->write_rate), "expire_ms",
                report_number(m->expiry_nsec / NSEC_A_MSEC), "uses", report_number(m->min_uses),
                "node_bytes_per_second", report_number(m->node_bandwidth), "node_memory_bytes",
                report_number(m->node_memory), "node_keys_per_second", report_number(m->node_keys),
                "host_bytes_per_second", report_number(m->host_bandwidth), "rtt_ms",
                report_number(m->rtt_nsec / NSEC_A_MSEC), "page_tokens",
                report_number(m->page_tokens));
}

static json_t *traffic_json(const struct host_run *run)
{
        const struct hosts_result *r = &run->result;

        return json_pack(
                "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                "loads", report_number(r->loads), "load_bytes", report_number(r->load_bytes),
                "load_ms", report_number(r->load_nsec / NSEC_A_MSEC), "lost_loads",
                report_number(r->lost_loads), "lost_tokens", report_number(r->lost_tokens),
                "writes", report_number(r->writes), "write_bytes", report_number(r->write_bytes),
                "writes_refused", report_number(r->refused_writes), "writes_known",
                report_number(r->known_writes), "writes_dropped", report_number(r->dropped_writes),
                "probes", report_number(r->probes), "touches", report_number(r->touches),
                "peak_bytes_per_second",
                report_number(r->peak_bytes / (HOSTS_PEAK_NSEC / UINT64_C(1000000000))),
                "peak_keys_per_second",
                report_number(r->peak_keys / (HOSTS_PEAK_NSEC / UINT64_C(1000000000))),
                "most_blocks", report_number(r->values.most));
}

static json_t *run_json(const struct host_runs *h, unsigned count, enum hosts_affinity a,
        const struct host_run *run)
{
        const struct hosts_result *r = &run->result;

        return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                "hosts", report_number(h->counts[count]), "affinity", hosts_affinity_name(a),
                "requests", report_number(r->requests), "duration_ms",
                report_number(r->duration_nsec / NSEC_A_MSEC), "input_tokens",
                report_number(r->input_tokens), "local_tokens", report_number(r->local_tokens),
                "remote_tokens", report_number(r->remote_tokens), "computed_tokens",
                report_number(r->input_tokens - r->local_tokens - r->remote_tokens),
                "most_computed_tokens", report_number(r->most_tokens), "store", traffic_json(run),
                "nodes", report_number(run->n_nodes), "nodes_by_memory",
                report_number(run->needed.by_memory), "nodes_by_bandwidth",
                report_number(run->needed.by_bandwidth), "nodes_by_keys",
                report_number(run->needed.by_keys));
}

json_t *report_hosts_json(const struct host_runs *h, const struct sim_trace *t)
{
        json_t *runs = json_array();

        for (unsigned i = 0; i < h->n_counts; i++)
                for (unsigned a = 0; a < h->n_affinities; a++)
                        if (runs && json_array_append_new(runs,
                                            run_json(h, i, h->affinities[a], &h->runs[i][a])) < 0) {
                                json_decref(runs);
                                runs = NULL;
                        }
        return json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "requests",
                report_number(t->n_requests), "unique_blocks", report_number(t->n_unique),
                "block_tokens", report_number(t->block_tokens), "group", report_number(h->group),
                "policy", h->policy->name, "cache_blocks", report_number(h->cache_pages), "below",
                report_number(h->below), "block_bytes", report_number(h->block_bytes),
                "prefill_tokens_per_second", report_number(h->prefill_tokens_per_sec), "store",
                store_json(&h->store), "runs", runs);
}
