/* Metrics of the daemon, of devices, and of their regions. */
#include <string.h>

#include "client/exporter/metric-lines.h"

/* ---- the daemon ------------------------------------------------------------------------------ */

#define ROW Kvlease__V1__AdminStatusReply

DERIVE(status_misses, counter_difference(r->lookup_keys, r->lookup_hits))

static const struct metric status_metrics[] = {
        INFO("build", "Version of the kvleased that answers, as a label; the value is always 1.",
                LABEL("version", daemon_version)),
        GAUGE("uptime_seconds", "Seconds since kvleased started.", uptime_sec),
        MILLI("ready_seconds", "Seconds from the last start of kvleased until clients were served.",
                ready_msec),
        GAUGE("draining",
                "1 while kvleased grants nothing new because an administrator asked for that "
                "(kvleasectl drain), else 0.",
                draining),
        GAUGE("recording",
                "1 while kvleased records requests as a trace (kvleasectl trace record), else 0.",
                recording),
        GAUGE("clients", "Clients connected to kvleased now.", n_clients),
        GAUGE("clients_sharing",
                "Connected clients that share memory with kvleased, whose hits need no request.",
                n_sharing),
        GAUGE_BY("peers",
                "Connections in an unusual state: muted (ignored after a broken rule), held (not "
                "reading answers), waiting_exit (closed, the process still runs), new (not "
                "introduced yet).",
                "state", "muted", peers_muted),
        MORE("state", "held", peers_held),
        MORE("state", "waiting_exit", members_waiting_exit),
        MORE("state", "new", peers_new),
        GAUGE("tenants", "Tenants that kvleased knows.", n_tenants),
        GAUGE("tenants_refused",
                "Tenants whose new clients are refused because kvleased crashed repeatedly while "
                "serving the tenant.",
                tenants_refused),
        GAUGE("tenants_paused",
                "Tenants that are not served now because the requests of the second (max_requests) "
                "are used up.",
                tenants_paused),
        GAUGE("namespaces", "Namespaces that exist; each is one model context of one tenant.",
                n_namespaces),
        GAUGE("namespace_sets",
                "Namespace sets that exist; a set is namespaces whose pages are of use only "
                "together.",
                n_ns_sets),
        GAUGE("sessions", "Sessions (named conversations) whose pages kvleased keeps track of.",
                n_sessions),
        PAGES("pages",
                "Pages of KV cache in bound memory, by tier and state: free, granted (leased), "
                "ready (granted ahead of demand), sealed (cached), detached (not found any more, "
                "still read).",
                "free", pages_free),
        MORE_PAGES("granted", pages_granted),
        MORE_PAGES("ready", pages_ready),
        MORE_PAGES("sealed", pages_sealed),
        MORE_PAGES("detached", pages_detached),
        PAGES_BELOW("free", pages_free),
        PAGES_BELOW("sealed", pages_sealed),
        PAGES_BELOW("detached", pages_detached),
        GAUGE("pinned_pages",
                "Cached pages that clients read now and that therefore cannot be evicted.",
                pages_pinned),
        GAUGE("ahead_pages", "Free pages that kvleased keeps ready for leases to come.",
                pages_ahead),
        COUNTER("lookups", "Lookup requests that clients made.", lookups),
        COUNTER_BY("lookup_pages",
                "Pages that clients looked up in the cache, by result: hit (the page was there) or "
                "miss.",
                "result", "hit", lookup_hits),
        MORE_DERIVED("result", "miss", status_misses),
        COUNTER("published_pages", "Pages that clients published into the cache.", publishes),
        COUNTER("duplicate_pages",
                "Pages that clients published although equal content had been published before.",
                duplicates),
        COUNTER("unindexed_pages",
                "Pages published although the index that clients look up in had no free slot for "
                "the key.",
                unindexed),
        COUNTER("evicted_pages", "Cached pages that were dropped to make room.", evictions),
        GAUGE_BY("policy_bytes",
                "Memory of kvleased that eviction policies take, of all namespaces, by part: page "
                "(cached pages), ghost (evicted pages that are remembered) or table (what was "
                "learnt, and the rest).",
                "part", "page", policy_page_bytes),
        MORE("part", "ghost", policy_ghost_bytes),
        MORE("part", "table", policy_table_bytes),
        GAUGE("policy_ghosts", "Evicted pages that eviction policies remember, of all namespaces.",
                policy_ghosts),
        GAUGE("policy_ghost_limit_bytes",
                "Memory of kvleased that eviction policies take at most for evicted pages, with "
                "the "
                "namespaces of now.",
                policy_ghost_limit_bytes),
        COUNTER("expired_pages",
                "Cached pages dropped after being unused for as long as the options of the tenant "
                "allow.",
                pages_expired),
        COUNTER("expired_sessions",
                "Sessions dropped after being unused for as long as the options of the tenant "
                "allow.",
                sessions_expired),
        COUNTER("refused_leases",
                "Leases (requests for pages to write) that were refused, of all tenants.",
                leases_refused),
        GAUGE("waiting_leases",
                "Leases (requests for pages to write) that wait for room now, of all tenants.",
                n_waiting),
        COUNTER_BY("announced_keys",
                "Keys of pages that clients announced to compute, by result: reserved (nobody else "
                "computes the page) or pending (another client does).",
                "result", "reserved", announced),
        MORE("result", "pending", announces_pending),
        COUNTER("expected_requests",
                "Requests for cached text that clients said were about to come.", expected),
        COUNTER_BY("expected_requests_ended",
                "Expected requests that are over, by result: fulfilled (came in time), expired "
                "(came too late or never) or dropped (the pages were needed for others).",
                "result", "fulfilled", expected_fulfilled),
        MORE("result", "expired", expected_expired),
        MORE("result", "dropped", expected_dropped),
        GAUGE("expected_pages", "Cached pages that are kept for requests that are expected.",
                pages_expected),
        GAUGE_BY("set_keys",
                "Keys in namespace sets: complete (cached in all namespaces of the set) or "
                "incomplete (cached in some).",
                "state", "complete", set_keys_complete),
        MORE("state", "incomplete", set_keys_incomplete),
        MILLI("fragmentation_ratio",
                "Part of the memory of devices, from 0 to 1, that is free in extent sets which "
                "hold other pages.",
                fragmentation),
        COUNTER("compacted_pages", "Pages that compaction moved to empty an extent set.",
                compacted_pages),
        COUNTER("compacted_sets", "Extent sets that compaction emptied and gave back.",
                compacted_sets),
        GAUGE("dropped_touches",
                "Hits that the eviction policy was not told of because the ring of a client was "
                "full, of clients connected now.",
                touches_dropped),
        GAUGE("pending_bytes",
                "Bytes that kvleased holds for clients now: answers not taken yet, and requests "
                "that wait.",
                pending_bytes),
        GAUGE("pending_limit_bytes",
                "Bytes of untaken answers and waiting requests that kvleased holds at most "
                "(max_pending).",
                max_pending_bytes),
        COUNTER("pending_overflows",
                "Clients muted or dropped because untaken answers and waiting requests exceeded "
                "max_pending.",
                pending_overflows),
        GAUGE("kept_descriptors",
                "File descriptors (memory, clients) that outlive a restart of kvleased.", kept_fds),
        GAUGE("kept_descriptors_limit",
                "File descriptors that can outlive a restart of kvleased at most; 0: a restart "
                "empties the cache.",
                kept_max),
        GAUGE("start_took_over",
                "1 where the last start of kvleased took the cache over from the daemon before, 0 "
                "where the cache began empty.",
                took_over),
        GAUGE("start_recovered_pages", "Cached pages that the last start of kvleased found again.",
                recovered_pages),
        GAUGE("start_recovered_namespaces",
                "Namespaces that the last start of kvleased found again.", recovered_namespaces),
        GAUGE("start_recovered_sessions", "Sessions that the last start of kvleased found again.",
                recovered_sessions),
        GAUGE("start_lost_namespaces",
                "Namespaces that were kept and that the last start of kvleased could not read, "
                "with all pages in each.",
                namespaces_lost),
        GAUGE_BY("start_lost_pages",
                "Cached pages that were kept and that the last start of kvleased could not use, by "
                "reason: checksum (of the record), parent (the page before is missing), duplicate "
                "(of a key), index (no slot).",
                "reason", "checksum", pages_lost_checksum),
        MORE("reason", "parent", pages_lost_parent),
        MORE("reason", "duplicate", pages_lost_duplicate),
        MORE("reason", "index", pages_lost_index),
        GAUGE("start_clients", "Clients of the previous kvleased that the last start found.",
                clients_recovered),
        GAUGE_BY("start_clients_now",
                "Clients of the previous kvleased by what became of each: resumed (came back), "
                "waiting (is expected), expired (ended first).",
                "outcome", "resumed", clients_resumed),
        MORE("outcome", "waiting", clients_waiting),
        MORE("outcome", "expired", clients_expired),
        GAUGE("start_lost_clients",
                "Clients that the last start gave up because kvleased crashed more than once while "
                "serving the client.",
                clients_lost),
};

#undef ROW
#define ROW Kvlease__V1__AdminRestartReply

DERIVE(restart_losses, r->n_losses + r->more_losses)

static const struct metric restart_metrics[] = {
        GAUGE("restart_keeps_state",
                "1 where cache and clients would outlive a restart of kvleased now, else 0.",
                keeps_state),
        GAUGE_BY("restart_clients", "Clients that a restart of kvleased now would keep, or lose.",
                "outcome", "kept", clients_kept),
        MORE("outcome", "lost", clients_lost),
        DERIVED("restart_losses", TEXT_GAUGE,
                "Things that a restart of kvleased now would lose; kvleasectl restart --check "
                "names each.",
                restart_losses),
};

/* ---- devices and their regions --------------------------------------------------------------- */

#undef ROW
#define ROW Kvlease__V1__AdminDevice

/* A disk has states of its own. */
static bool device_is(const ROW *r, const char *state)
{
        return strcmp(r->disk ? r->disk->state : r->state, state) == 0;
}

DERIVE(device_ok, device_is(r, "ok"))
DERIVE(device_stuck, device_is(r, "stuck"))
DERIVE(device_broken, device_is(r, "broken"))
DERIVE(device_failing, device_is(r, "failing"))
DERIVE(device_off, device_is(r, "off"))
DERIVE(device_exclusive, r->exclusive[0] != '\0')

#define COUNTER_OF_DISK(name, text, field)                                                  \
        {                                                                                   \
                .family = name, .type = TEXT_COUNTER, .help = text, TIER_FIELD(disk, field) \
        }

static const struct metric device_metrics[] = {
        INFO("device",
                "Backend and transport of a device, or of a tier below a device, as labels; the "
                "value is always 1.",
                LABEL("backend", backend), LABEL("transport", transport)),
        DERIVED_BY("device_state", TEXT_GAUGE,
                "1 for the state that a device is in: ok, stuck (a call of the driver hangs) or "
                "broken (failed for good); a disk: ok, failing or off (given up).",
                "state", "ok", device_ok),
        MORE_DERIVED("state", "stuck", device_stuck),
        MORE_DERIVED("state", "broken", device_broken),
        MORE_DERIVED("state", "failing", device_failing),
        MORE_DERIVED("state", "off", device_off),
        GAUGE("device_memory_bytes",
                "Size of the memory of a device, or of the tier below a device.", total_bytes),
        GAUGE("device_budget_bytes",
                "Memory of a device, or of the tier below a device, that kvleased may bind at "
                "most.",
                budget_bytes),
        GAUGE("device_charged_bytes",
                "Memory of a device, or of the tier below a device, that kvleased has bound for "
                "pages.",
                charged_bytes),
        GAUGE("device_reserved_bytes",
                "Memory of a device that is reserved for tenants, all together.", reserved_bytes),
        GAUGE("device_missing_bytes",
                "Memory of a device that is reserved for tenants, and that others still have to "
                "give back.",
                missing_bytes),
        DERIVED("device_exclusive", TEXT_GAUGE, "1 where one tenant has the device alone, else 0.",
                device_exclusive),
        GAUGE("device_sets", "Extent sets bound on a device, or in the tier below a device.",
                n_sets),
        GAUGE("device_sets_preparing", "Extent sets of a device that are being made.", n_preparing),
        GAUGE("device_registered_bytes",
                "Host memory below a GPU that is registered with the driver, for copies at full "
                "speed.",
                registered_bytes),
        COUNTER_OF_DISK(
                "disk_read_bytes", "Bytes of pages read from a disk below a device.", read_bytes),
        COUNTER_OF_DISK("disk_written_bytes", "Bytes of pages written to a disk below a device.",
                written_bytes),
        COUNTER_OF_DISK("disk_errors", "Operations of a disk below a device that failed.", errors),
        COUNTER_OF_DISK("disk_late_operations",
                "Operations of a disk below a device that took longer than the deadline.", late),
};

#undef ROW
#define ROW Kvlease__V1__AdminRegion

static bool is_pool(const void *row)
{
        return !((const ROW *)row)->tenant[0];
}

static bool is_stake(const void *row)
{
        return !is_pool(row);
}

static const struct metric pool_metrics[] = {
        GAUGE("pool_bytes",
                "Size of the dynamic pool of a device: the memory that is not reserved for a "
                "tenant.",
                size_bytes),
        GAUGE("pool_used_bytes", "Memory of the dynamic pool of a device that tenants have bound.",
                used_bytes),
        GAUGE("pool_excess_bytes",
                "Memory of a device that tenants have bound beyond reservations, lent memory "
                "included.",
                excess_bytes),
        GAUGE("pool_lent_bytes",
                "Memory of idle reservations of a device that other tenants hold with leave "
                "(lend_idle_reserve).",
                lent_bytes),
        GAUGE("pool_missing_bytes",
                "Memory of reservations of a device that is being taken back from other tenants.",
                missing_bytes),
};

static const struct metric region_metrics[] = {
        INFO("region_sizer",
                "Mode and last decision of the sizer of a tenant's reservation, as labels; the "
                "value is always 1.",
                LABEL("mode", sizer), LABEL("decision", decision)),
        GAUGE("region_reserved_bytes", "Memory of a device that is reserved for a tenant.",
                size_bytes),
        GAUGE("region_used_bytes",
                "Memory of a tenant's reservation on a device that the tenant has bound.",
                used_bytes),
        GAUGE("region_excess_bytes",
                "Memory of a device that a tenant has bound beyond the reservation, of the dynamic "
                "pool.",
                excess_bytes),
        GAUGE("region_fair_bytes",
                "Fair share of a tenant in the dynamic pool of a device, by weight and demand.",
                fair_bytes),
        GAUGE("region_lent_bytes",
                "Memory of a tenant's idle reservation on a device that other tenants hold with "
                "leave.",
                lent_bytes),
        GAUGE("region_missing_bytes",
                "Memory of a tenant's reservation on a device that is being taken back from other "
                "tenants.",
                missing_bytes),
        MILLI("region_take_back_max_seconds",
                "Longest time that getting lent memory of a tenant's reservation back took; 0: "
                "never needed.",
                taken_back_msec),
        GAUGE("region_sizer_min_bytes",
                "Smallest reservation that the sizer may choose for a tenant now.", min_bytes),
        GAUGE("region_sizer_max_bytes",
                "Largest reservation that the sizer may choose for a tenant now.", max_bytes),
        GAUGE("region_sizer_demand_bytes",
                "Demand of a tenant for memory as the sizer sampled last.", demand_bytes),
        GAUGE("region_sizer_demand_p99_bytes",
                "99th percentile of a tenant's demand for memory in the window of the sizer.",
                p99_bytes),
        GAUGE("region_sizer_target_bytes",
                "Reservation that the sizer decided on last for a tenant; in a dry run not in "
                "force.",
                target_bytes),
        {.family = "region_sizer_decision_age_seconds",
                .help = "Seconds since the last decision of the sizer on a tenant's reservation.",
                FIELD(decided_sec_ago),
                .single = true},
        COUNTER("region_sizer_changes", "Times that the sizer changed a tenant's reservation.",
                changes),
};
#undef ROW

/* ---- tables ---------------------------------------------------------------------------------- */

#define KEYS_OF_DEVICE(message) KEY(message, "device", of_device), KEY(message, "tier", tier)

const struct metric_table metric_table_status = {TABLE("status", STATUS, status_metrics)};
const struct metric_table metric_table_restart = {TABLE("restart", RESTART, restart_metrics)};
const struct metric_table metric_table_devices = {
        TABLE("devices", DEVICES, device_metrics), .labels = {KEYS_OF_DEVICE(AdminDevice)}};
const struct metric_table metric_table_pools = {TABLE("pools", REGIONS, pool_metrics),
        .labels = {KEYS_OF_DEVICE(AdminRegion)}, .wants = is_pool};
const struct metric_table metric_table_regions = {TABLE("regions", REGIONS, region_metrics),
        .labels = {KEYS_OF_DEVICE(AdminRegion), KEY(AdminRegion, "tenant", tenant)},
        .wants = is_stake};
