/* Metrics of tenants, of their namespaces, and of evictions between tenants. */
#include "client/exporter/metric-lines.h"
#include "client/lib/kvlease.h"

/* ---- tenants --------------------------------------------------------------------------------- */

#undef ROW
#define ROW Kvlease__V1__AdminTenant

#define REFUSED(name, reason) DERIVE(name, r->n_refused_by > (reason) ? r->refused_by[reason] : 0)
REFUSED(refused_quota, KVL_REASON_QUOTA)
REFUSED(refused_reservation, KVL_REASON_RESERVATION_FULL)
REFUSED(refused_pool, KVL_REASON_POOL_FULL)
REFUSED(refused_deadline, KVL_REASON_DEADLINE)
REFUSED(refused_draining, KVL_REASON_DRAINING)
REFUSED(refused_device, KVL_REASON_DEVICE)
REFUSED(refused_no_run, KVL_REASON_NO_RUN)

static const struct metric tenant_metrics[] = {
        INFO("tenant", "How a tenant is configured, as labels; the value is always 1.",
                LABEL("class", class_), LABEL("sizer", sizer), LABEL("when_full", when_full),
                LABEL("evict", evict), LABEL("source", source)),
        GAUGE_BY_TIER("tenant_limit_bytes",
                "Memory that a tenant may bind at most, by tier; +Inf: no limit.", limit_bytes,
                limit_bytes),
        GAUGE_BY_TIER("tenant_charged_bytes", "Memory that a tenant has bound, by tier.",
                charged_bytes, charged_bytes),
        GAUGE("tenant_reserved_bytes",
                "Memory of devices that is reserved for a tenant, as in force now.", reserve_bytes),
        GAUGE("tenant_reserve_configured_bytes",
                "Memory of devices that the configuration reserves for a tenant; the sizer may "
                "have moved what is in force.",
                reserve_configured_bytes),
        GAUGE("tenant_fair_bytes",
                "Fair share of a tenant in the dynamic pools of all devices now.", fair_bytes),
        GAUGE("tenant_excess_bytes",
                "Memory that a tenant has bound of the dynamic pools of all devices.",
                excess_bytes),
        {.family = "tenant_weight",
                .help = "Weight of a tenant by which dynamic pools are shared, from 1 to 1000.",
                FIELD(weight),
                .single = true},
        {.family = "tenant_priority",
                .help = "Priority of a tenant by which waiting leases are served, from 0 to 100.",
                FIELD(priority),
                .single = true},
        GAUGE("tenant_clients", "Clients of a tenant connected now.", n_clients),
        GAUGE("tenant_clients_limit", "Clients that a tenant may have connected at most.",
                max_clients),
        GAUGE("tenant_namespaces", "Namespaces of a tenant that exist.", n_namespaces),
        PAGES("tenant_pages",
                "Pages of a tenant, by tier and state: granted (leased), sealed (cached), detached "
                "(not found any more, still read).",
                "granted", pages_granted),
        MORE_PAGES("sealed", pages_sealed),
        MORE_PAGES("detached", pages_detached),
        PAGES_BELOW("sealed", pages_sealed),
        PAGES_BELOW("detached", pages_detached),
        COUNTER("tenant_evicted_pages", "Cached pages of a tenant that were dropped to make room.",
                evictions),
        DERIVED_BY("tenant_refused_leases", TEXT_COUNTER,
                "Leases of a tenant that were refused, by reason: quota (limit), reservation_full, "
                "pool_full, deadline (waited too long), draining, device (failed), no_run (no "
                "consecutive pages).",
                "reason", "quota", refused_quota),
        MORE_DERIVED("reason", "reservation_full", refused_reservation),
        MORE_DERIVED("reason", "pool_full", refused_pool),
        MORE_DERIVED("reason", "deadline", refused_deadline),
        MORE_DERIVED("reason", "draining", refused_draining),
        MORE_DERIVED("reason", "device", refused_device),
        MORE_DERIVED("reason", "no_run", refused_no_run),
        GAUGE("tenant_waiting_leases", "Leases of a tenant that wait for room now.", waiting),
        COUNTER("tenant_waited_leases", "Leases of a tenant that had to wait for room.", waits),
        MILLI_COUNTER("tenant_lease_wait_seconds",
                "Seconds that leases of a tenant waited for room, in sum.", waited_msec),
        {.family = "tenant_lease_wait_max_seconds",
                .help = "Longest time that a lease of a tenant waited for room since kvleased "
                        "started.",
                FIELD(max_waited_msec),
                .is_milli = true,
                .single = true},
        COUNTER("tenant_degraded_leases",
                "Leases of a tenant that were granted fewer pages than asked for.", degraded),
        COUNTER("verify_failures",
                "Times that an engine of a tenant dropped a namespace, because a page held other "
                "numbers than the engine computed.",
                verify_failures),
        GAUGE("tenant_recalled_sets", "Extent sets that are being taken back from a tenant.",
                recalled_sets),
        GAUGE("tenant_held_bytes",
                "Memory that a tenant has let go of, and that clients of the tenant still hold up.",
                held_bytes),
        COUNTER("tenant_requests",
                "Requests that clients of a tenant made, submissions in shared memory included.",
                requests),
        GAUGE("tenant_paused",
                "1 while a tenant is not served because the requests of the second (max_requests) "
                "are used up, else 0.",
                paused),
        COUNTER("tenant_pauses",
                "Times that a tenant used up the requests of a second (max_requests).", pauses),
        MILLI_COUNTER("tenant_paused_seconds",
                "Seconds that a tenant was not served because the requests of the second "
                "(max_requests) were used up.",
                pauses_msec),
        COUNTER("tenant_refused_connects",
                "Connections of a tenant that were refused by max_connects.", connects_refused),
        GAUGE("tenant_open_files", "Open files of kvleased that are counted for a tenant.",
                open_files),
        GAUGE("tenant_open_files_limit",
                "Open files of kvleased that may be counted for a tenant at most now.",
                open_files_limit),
        GAUGE("tenant_kept_descriptors",
                "File descriptors kept over a restart of kvleased that are counted for a tenant.",
                kept_fds),
        GAUGE("tenant_kept_descriptors_limit",
                "File descriptors kept over a restart of kvleased that may be counted for a tenant "
                "at most now; 0: nothing is kept.",
                kept_fds_limit),
        GAUGE("tenant_pending_bytes",
                "Bytes that kvleased holds for clients of a tenant: answers not taken yet, and "
                "requests that wait.",
                pending_bytes),
};

/* ---- namespaces ------------------------------------------------------------------------------ */

#undef ROW
#define ROW Kvlease__V1__AdminNamespace

/* Returns 0 if the daemon reports no layout. */
static double page_tokens(const ROW *r)
{
        return r->layout ? r->layout->page_tokens : 0;
}

DERIVE(ns_misses, counter_difference(r->keys, r->hits))
DERIVE(ns_hit_tokens, page_tokens(r) * (double)r->hits)
DERIVE(ns_miss_tokens, page_tokens(r) * counter_difference(r->keys, r->hits))
/* The value is 0 if the namespace has no lower tiers. */
#define PREFETCHED(kind, field) \
        DERIVE(ns_##kind##_##field, r->prefetch_##kind ? r->prefetch_##kind->field : 0)
#define PREFETCHED_KIND(kind)      \
        PREFETCHED(kind, begun)    \
        PREFETCHED(kind, useful)   \
        PREFETCHED(kind, wasted)   \
        PREFETCHED(kind, given_up) \
        PREFETCHED(kind, at_stake)
PREFETCHED_KIND(stream)
PREFETCHED_KIND(turn)
PREFETCHED_KIND(expect)
PREFETCHED_KIND(warm)
#define PREFETCHED_FAMILY(name, type, text, field)                         \
        DERIVED_BY(name, type, text, "kind", "stream", ns_stream_##field), \
                MORE_DERIVED("kind", "turn", ns_turn_##field),             \
                MORE_DERIVED("kind", "expect", ns_expect_##field),         \
                MORE_DERIVED("kind", "warm", ns_warm_##field)

DERIVE(ns_page_tokens, page_tokens(r))
DERIVE(ns_page_bytes, r->layout ? (double)r->layout->plane_page_bytes * r->layout->n_planes : 0)

static const struct metric namespace_metrics[] = {
        INFO("namespace",
                "Eviction policy and namespace set of a namespace, as labels; the value is always "
                "1.",
                LABEL("evict", evict), LABEL("set", set)),
        GAUGE_BY_TIER("namespace_charged_bytes", "Memory that a namespace has bound, by tier.",
                charged_bytes, charged_bytes),
        GAUGE_BY_TIER("namespace_sets_bound", "Extent sets that a namespace has bound, by tier.",
                n_sets, n_sets),
        GAUGE("namespace_capacity_pages", "Pages that a namespace can have on the device at most.",
                capacity_pages),
        {.family = "namespace_page_tokens",
                .help = "Tokens that a page of a namespace holds.",
                .derive = ns_page_tokens,
                .single = true},
        {.family = "namespace_page_bytes",
                .help = "Bytes of a page of a namespace, over all planes.",
                .derive = ns_page_bytes,
                .single = true},
        PAGES("namespace_pages",
                "Pages of a namespace, by tier and state: free, granted (leased), ready (granted "
                "ahead of demand), sealed (cached), detached (not found any more, still read).",
                "free", pages_free),
        MORE_PAGES("granted", pages_granted),
        MORE_PAGES("ready", pages_ready),
        MORE_PAGES("sealed", pages_sealed),
        MORE_PAGES("detached", pages_detached),
        PAGES_BELOW("free", pages_free),
        PAGES_BELOW("sealed", pages_sealed),
        PAGES_BELOW("detached", pages_detached),
        GAUGE("namespace_pinned_pages", "Cached pages of a namespace that clients read now.",
                pages_pinned),
        COUNTER_BY("namespace_lookup_pages",
                "Pages looked up in a namespace, by result: hit (the page was there) or miss.",
                "result", "hit", hits),
        MORE_DERIVED("result", "miss", ns_misses),
        DERIVED_BY("namespace_lookup_tokens", TEXT_COUNTER,
                "Tokens looked up in a namespace, in whole pages, by result: hit (need not be "
                "computed) or miss.",
                "result", "hit", ns_hit_tokens),
        MORE_DERIVED("result", "miss", ns_miss_tokens),
        COUNTER("namespace_evicted_pages",
                "Cached pages of a namespace that were dropped to make room.", evictions),
        COUNTER("namespace_expired_pages",
                "Cached pages of a namespace dropped after being unused for as long as the options "
                "of the tenant allow.",
                pages_expired),
        /* Moves between tiers are exported by namespace only. kvleased's sums over tenants and over
         * all count existing namespaces, so they fall when one is removed, as no counter may. */
        COUNTER("namespace_promoted_pages",
                "Pages of a namespace that came up to the device from a tier below.",
                pages_promoted),
        COUNTER_BELOW("namespace_demoted_pages",
                "Pages of a namespace that went down, by the tier where each arrived.", arrived),
        COUNTER_BELOW("namespace_damaged_pages",
                "Pages of a namespace that were dropped because the tier gave back other bytes "
                "than were stored there.",
                damaged),
        PREFETCHED_FAMILY("namespace_prefetched_pages", TEXT_COUNTER,
                "Pages of a namespace brought up to the device before anybody asked, by kind: "
                "stream (of a text being read), turn (of a session), expect (of a request that a "
                "client said will come), warm (named).",
                begun),
        PREFETCHED_FAMILY("namespace_prefetched_useful_pages", TEXT_COUNTER,
                "Pages of a namespace brought up to the device ahead of demand that were then used "
                "there, by kind.",
                useful),
        PREFETCHED_FAMILY("namespace_prefetched_wasted_pages", TEXT_COUNTER,
                "Pages of a namespace brought up to the device ahead of demand that left unused, "
                "by kind.",
                wasted),
        PREFETCHED_FAMILY("namespace_prefetched_given_up_pages", TEXT_COUNTER,
                "Pages of a namespace to be brought up ahead of demand that never came or were "
                "invalidated, by kind.",
                given_up),
        PREFETCHED_FAMILY("namespace_prefetched_undecided_pages", TEXT_GAUGE,
                "Pages of a namespace brought up to the device ahead of demand that are neither "
                "used nor gone yet, by kind.",
                at_stake),
        GAUGE("namespace_clients", "Clients that have a namespace open now.", n_clients),
        GAUGE("namespace_sessions", "Sessions (named conversations) kept in a namespace.",
                n_sessions),
        GAUGE("namespace_policy_bytes",
                "Memory of kvleased that the eviction policy of a namespace takes.", policy_bytes),
        GAUGE("namespace_policy_ghosts",
                "Evicted pages that the eviction policy of a namespace remembers.", policy_ghosts),
        GAUGE("namespace_policy_ghost_bytes",
                "Memory of kvleased that the eviction policy of a namespace takes for evicted "
                "pages, "
                "of namespace_policy_bytes.",
                policy_ghost_bytes),
};

#undef ROW
#define ROW Kvlease__V1__AdminEviction

static const struct metric eviction_metrics[] = {
        COUNTER("taken_pages",
                "Cached pages of the tenant `victim` dropped to make room for leases of the tenant "
                "`by`; \"(nobody)\": for no lease.",
                pages),
        COUNTER("taken_sets",
                "Extent sets of the tenant `victim` that went over to the tenant `by`.", sets),
};

#undef ROW
#define ROW Kvlease__V1__AdminSet

static const struct metric set_metrics[] = {
        GAUGE("namespace_set_namespaces", "Namespaces of a namespace set that exist now.",
                n_namespaces),
        GAUGE("namespace_set_size", "Namespaces that a namespace set has when complete.", size),
        GAUGE("namespace_set_charged_bytes", "Memory that the namespaces of a set have bound.",
                charged_bytes),
        GAUGE_BY("namespace_set_keys",
                "Keys in a namespace set: complete (cached in all namespaces of the set) or "
                "incomplete (cached in some).",
                "state", "complete", keys_complete),
        MORE("state", "incomplete", keys_incomplete),
        COUNTER("namespace_set_dropped_keys",
                "Keys dropped from a namespace set because some namespace went too long without "
                "the key.",
                dropped),
};
#undef ROW

/* ---- tables ---------------------------------------------------------------------------------- */

const struct metric_table metric_table_tenants = {
        TABLE("tenants", TENANTS, tenant_metrics), .labels = {KEY(AdminTenant, "tenant", name)}};
const struct metric_table metric_table_namespaces = {
        TABLE("namespaces", NAMESPACES, namespace_metrics),
        .labels = {KEY(AdminNamespace, "tenant", tenant), KEY(AdminNamespace, "namespace", name),
                KEY(AdminNamespace, "device", device)}};
const struct metric_table metric_table_evictions = {TABLE("evictions", EVICTIONS, eviction_metrics),
        .labels = {KEY(AdminEviction, "victim", victim),
                {"by", offsetof(Kvlease__V1__AdminEviction, by), "(nobody)"}}};
const struct metric_table metric_table_sets = {TABLE("sets", SETS, set_metrics),
        .labels = {KEY(AdminSet, "tenant", tenant), KEY(AdminSet, "set", name)}};
