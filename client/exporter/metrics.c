/* The tables. */
#include "client/exporter/metric.h"

#include <math.h>
#include <string.h>

#include "client/exporter/source.h"
#include "client/lib/kvlease.h"
#include "proto/kvlease.pb-c.h"

/* ---- lines ----------------------------------------------------------------------------------- */

#define FIELD(field) .offset = offsetof(ROW, field), .width = sizeof(((ROW *)NULL)->field)
#define LABEL(name, field)                 \
        {                                  \
                name, offsetof(ROW, field) \
        }

/* family, help, field */
#define GAUGE(name, text, field)                           \
        {                                                  \
                .family = name, .help = text, FIELD(field) \
        }
#define COUNTER(name, text, field)                                               \
        {                                                                        \
                .family = name, .type = TEXT_COUNTER, .help = text, FIELD(field) \
        }
/* The same, in thousandths of the family's unit. */
#define MILLI(name, text, field)                                             \
        {                                                                    \
                .family = name, .help = text, FIELD(field), .is_milli = true \
        }
#define MILLI_COUNTER(name, text, field)                                                           \
        {                                                                                          \
                .family = name, .type = TEXT_COUNTER, .help = text, FIELD(field), .is_milli = true \
        }
/* The first sample of a family that has another label; those that follow are MORE. */
#define GAUGE_BY(name, text, key, value, field)                                      \
        {                                                                            \
                .family = name, .help = text, .labels = {{key, value}}, FIELD(field) \
        }
#define COUNTER_BY(name, text, key, value, field)                                             \
        {                                                                                     \
                .family = name, .type = TEXT_COUNTER, .help = text, .labels = {{key, value}}, \
                FIELD(field)                                                                  \
        }
#define MORE(key, value, field)                        \
        {                                              \
                .labels = {{key, value}}, FIELD(field) \
        }
/* By a function of the row. */
#define DERIVED(name, kind, text, fn)                                    \
        {                                                                \
                .family = name, .type = kind, .help = text, .derive = fn \
        }
#define DERIVED_BY(name, kind, text, key, value, fn)                                               \
        {                                                                                          \
                .family = name, .type = kind, .help = text, .labels = {{key, value}}, .derive = fn \
        }
#define MORE_DERIVED(key, value, fn)                   \
        {                                              \
                .labels = {{key, value}}, .derive = fn \
        }
/* A figure of a tier below the device, from the row's part `tier` (an AdminTier); a row without
 * such a tier has no sample. */
#define TIER_FIELD(tier, field)                                                         \
        .part = offsetof(ROW, tier), .offset = offsetof(Kvlease__V1__AdminTier, field), \
        .width = sizeof(((Kvlease__V1__AdminTier *)NULL)->field)
#define MORE_OF_TIER(tier, field)                                    \
        {                                                            \
                .labels = {{"tier", #tier}}, TIER_FIELD(tier, field) \
        }
/* A gauge of each tier: of the device it is the row's own field, of the others one of AdminTier. */
#define GAUGE_BY_TIER(name, text, field, tier_field)                                   \
        GAUGE_BY(name, text, "tier", "device", field), MORE_OF_TIER(host, tier_field), \
                MORE_OF_TIER(disk, tier_field)
/* Counters of the tiers below the device, which alone have them. */
#define COUNTER_BELOW(name, text, tier_field)  \
        {.family = name,                       \
                .type = TEXT_COUNTER,          \
                .help = text,                  \
                .labels = {{"tier", "host"}},  \
                TIER_FIELD(host, tier_field)}, \
                MORE_OF_TIER(disk, tier_field)
/* Pages by state and tier: the first sample of a family, the device's others, those below. */
#define PAGES(name, text, state, field)                                                         \
        {                                                                                       \
                .family = name, .help = text, .labels = {{"state", state}, {"tier", "device"}}, \
                FIELD(field)                                                                    \
        }
#define MORE_PAGES(state, field)                                               \
        {                                                                      \
                .labels = {{"state", state}, {"tier", "device"}}, FIELD(field) \
        }
#define PAGES_BELOW(state, field)                                                       \
        {.labels = {{"state", state}, {"tier", "host"}}, TIER_FIELD(host, field)},      \
        {                                                                               \
                .labels = {{"state", state}, {"tier", "disk"}}, TIER_FIELD(disk, field) \
        }
#define INFO(name, text, ...)                                                            \
        {                                                                                \
                .family = name, .type = TEXT_INFO, .help = text, .info = { __VA_ARGS__ } \
        }

/* A function of the row `r`. */
#define DERIVE(name, value)                 \
        static double name(const void *row) \
        {                                   \
                const ROW *r = row;         \
                                            \
                return (double)(value);     \
        }

/* What an arithmetic of counters that weren't read in one moment can't be: negative. */
static double minus(uint64_t a, uint64_t b)
{
        return a > b ? (double)(a - b) : 0;
}

/* ---- the daemon ------------------------------------------------------------------------------ */

#define ROW Kvlease__V1__AdminStatusReply

DERIVE(status_misses, minus(r->lookup_keys, r->lookup_hits))

static const struct metric status_metrics[] = {
        INFO("build", "The kvleased that answers.", LABEL("version", daemon_version)),
        GAUGE("uptime_seconds", "Time since kvleased started.", uptime_sec),
        MILLI("ready_seconds", "From the start of kvleased until it served.", ready_msec),
        GAUGE("draining", "1 while kvleased grants nothing new.", draining),
        GAUGE("recording", "1 while traffic is written to a trace.", recording),
        GAUGE("clients", "Clients connected.", n_clients),
        GAUGE("clients_sharing", "Clients that share memory with kvleased.", n_sharing),
        GAUGE_BY("peers", "Connections that aren't as they should be, by what they are.", "state",
                "muted", peers_muted),
        MORE("state", "held", peers_held),
        MORE("state", "waiting_exit", members_waiting_exit),
        MORE("state", "new", peers_new),
        GAUGE("tenants", "Tenants there are.", n_tenants),
        GAUGE("tenants_refused",
                "Tenants whose new clients are refused, because kvleased died serving theirs.",
                tenants_refused),
        GAUGE("tenants_paused", "Tenants that have no requests left (max_requests).",
                tenants_paused),
        GAUGE("namespaces", "Namespaces there are.", n_namespaces),
        GAUGE("namespace_sets", "Namespace sets there are.", n_ns_sets),
        GAUGE("sessions", "Sessions that are kept.", n_sessions),
        PAGES("pages", "Pages of bound memory, by state and tier.", "free", pages_free),
        MORE_PAGES("granted", pages_granted),
        MORE_PAGES("ready", pages_ready),
        MORE_PAGES("sealed", pages_sealed),
        MORE_PAGES("detached", pages_detached),
        PAGES_BELOW("free", pages_free),
        PAGES_BELOW("sealed", pages_sealed),
        PAGES_BELOW("detached", pages_detached),
        GAUGE("pinned_pages", "Pages that clients read now.", pages_pinned),
        GAUGE("ahead_pages", "Free pages kept ready by the rate of leases.", pages_ahead),
        COUNTER("lookups", "Requests to look pages up.", lookups),
        COUNTER_BY("lookup_pages", "Pages looked up.", "result", "hit", lookup_hits),
        MORE_DERIVED("result", "miss", status_misses),
        COUNTER("published_pages", "Pages published.", publishes),
        COUNTER("duplicate_pages", "Pages published that somebody else had published.", duplicates),
        COUNTER("unindexed_pages", "Pages published that the index had no slot for.", unindexed),
        COUNTER("evicted_pages", "Cached pages that gave way.", evictions),
        COUNTER("expired_pages", "Cached pages dropped because nobody used them.", pages_expired),
        COUNTER("expired_sessions", "Sessions dropped because nobody used them.", sessions_expired),
        COUNTER("refused_leases", "Leases that were refused.", leases_refused),
        GAUGE("waiting_leases", "Leases that wait for room now.", n_waiting),
        COUNTER_BY("announced_keys", "Keys announced, by whether the announcer computes them.",
                "result", "reserved", announced),
        MORE("result", "pending", announces_pending),
        GAUGE_BY("set_keys", "Keys cached in namespace sets.", "state", "complete",
                set_keys_complete),
        MORE("state", "incomplete", set_keys_incomplete),
        MILLI("fragmentation_ratio",
                "Part of the devices' memory that is free in sets that hold other pages.",
                fragmentation),
        COUNTER("compacted_pages", "Pages moved to empty a set.", compacted_pages),
        COUNTER("compacted_sets", "Sets given back after that.", compacted_sets),
        GAUGE("dropped_touches", "Hits that the policy wasn't told, of the clients there are.",
                touches_dropped),
        GAUGE("pending_bytes", "Answers that clients haven't taken, and requests that wait.",
                pending_bytes),
        GAUGE("pending_limit_bytes", "What they are at most (max_pending).", max_pending_bytes),
        COUNTER("pending_overflows", "Clients muted or dropped because that wasn't enough.",
                pending_overflows),
        GAUGE("kept_descriptors", "Descriptors that outlive kvleased.", kept_fds),
        GAUGE("kept_descriptors_limit", "Of them, at most; 0: nothing outlives it.", kept_max),
        GAUGE("start_took_over", "1 where kvleased took over from the one before it.", took_over),
        GAUGE("start_recovered_pages", "Cached pages found again at the last start.",
                recovered_pages),
        GAUGE("start_recovered_namespaces", "Namespaces found again at the last start.",
                recovered_namespaces),
        GAUGE("start_recovered_sessions", "Sessions found again at the last start.",
                recovered_sessions),
        GAUGE("start_lost_namespaces", "Namespaces lost at the last start.", namespaces_lost),
        GAUGE_BY("start_lost_pages", "Cached pages lost at the last start, by why.", "reason",
                "checksum", pages_lost_checksum),
        MORE("reason", "parent", pages_lost_parent),
        MORE("reason", "duplicate", pages_lost_duplicate),
        MORE("reason", "index", pages_lost_index),
        GAUGE("start_clients", "Clients of the kvleased before.", clients_recovered),
        GAUGE_BY("start_clients_now", "Of these, by what became of them.", "outcome", "resumed",
                clients_resumed),
        MORE("outcome", "waiting", clients_waiting),
        MORE("outcome", "expired", clients_expired),
        GAUGE("start_lost_clients", "Of these, clients that kvleased died serving more than once.",
                clients_lost),
};

#undef ROW
#define ROW Kvlease__V1__AdminRestartReply

DERIVE(restart_losses, r->n_losses + r->more_losses)

static const struct metric restart_metrics[] = {
        GAUGE("restart_keeps_state", "1 where memory and clients would outlive a restart now.",
                keeps_state),
        GAUGE_BY("restart_clients", "What a restart now would be to clients.", "outcome", "kept",
                clients_kept),
        MORE("outcome", "lost", clients_lost),
        DERIVED("restart_losses", TEXT_GAUGE, "Things that a restart now would lose.",
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
        INFO("device", "A device.", LABEL("backend", backend), LABEL("transport", transport)),
        DERIVED_BY("device_state", TEXT_GAUGE, "1 for the state that the device is in.", "state",
                "ok", device_ok),
        MORE_DERIVED("state", "stuck", device_stuck),
        MORE_DERIVED("state", "broken", device_broken),
        MORE_DERIVED("state", "failing", device_failing),
        MORE_DERIVED("state", "off", device_off),
        GAUGE("device_memory_bytes", "Memory of the device.", total_bytes),
        GAUGE("device_budget_bytes", "What kvleased may bind of it.", budget_bytes),
        GAUGE("device_charged_bytes", "What is bound.", charged_bytes),
        GAUGE("device_reserved_bytes", "Sum of reservations.", reserved_bytes),
        GAUGE("device_missing_bytes", "Of these, still to be taken back from others.",
                missing_bytes),
        DERIVED("device_exclusive", TEXT_GAUGE, "1 where one tenant has it for itself.",
                device_exclusive),
        GAUGE("device_sets", "Extent sets bound.", n_sets),
        GAUGE("device_sets_preparing", "Extent sets being made.", n_preparing),
        GAUGE("device_registered_bytes",
                "Memory of the host that is registered with the GPU above it.", registered_bytes),
        COUNTER_OF_DISK("disk_read_bytes", "Bytes of pages read from the disk.", read_bytes),
        COUNTER_OF_DISK("disk_written_bytes", "Bytes of pages written to it.", written_bytes),
        COUNTER_OF_DISK("disk_errors", "Operations of the disk that failed.", errors),
        COUNTER_OF_DISK(
                "disk_late_operations", "Operations that took longer than their deadline.", late),
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
        GAUGE("pool_bytes", "The dynamic pool: what isn't reserved.", size_bytes),
        GAUGE("pool_used_bytes", "Bound of the dynamic pool.", used_bytes),
        GAUGE("pool_excess_bytes", "Bound beyond reservations, lent memory included.",
                excess_bytes),
        GAUGE("pool_lent_bytes", "Of idle reservations, what others hold with leave.", lent_bytes),
        GAUGE("pool_missing_bytes", "Of reservations, what is being taken back.", missing_bytes),
};

static const struct metric region_metrics[] = {
        INFO("region_sizer", "The sizer of the tenant's reservation.", LABEL("mode", sizer),
                LABEL("decision", decision)),
        GAUGE("region_reserved_bytes", "Reserved for the tenant.", size_bytes),
        GAUGE("region_used_bytes", "Of that, bound.", used_bytes),
        GAUGE("region_excess_bytes", "Bound beyond it, of the dynamic pool.", excess_bytes),
        GAUGE("region_fair_bytes", "Its share of the dynamic pool, by weight and demand.",
                fair_bytes),
        GAUGE("region_lent_bytes", "Of the idle reservation, what others hold.", lent_bytes),
        GAUGE("region_missing_bytes", "Of the reservation, what is being taken back.",
                missing_bytes),
        MILLI("region_take_back_max_seconds", "The longest it took to get lent memory back.",
                taken_back_msec),
        GAUGE("region_sizer_min_bytes", "What the sizer may choose from.", min_bytes),
        GAUGE("region_sizer_max_bytes", "What the sizer may choose to.", max_bytes),
        GAUGE("region_sizer_demand_bytes", "Demand as sampled last.", demand_bytes),
        GAUGE("region_sizer_demand_p99_bytes", "The 99th percentile of the window.", p99_bytes),
        GAUGE("region_sizer_target_bytes", "Of the last decision.", target_bytes),
        {.family = "region_sizer_decision_age_seconds",
                .help = "Since the last decision.",
                FIELD(decided_sec_ago),
                .single = true},
        COUNTER("region_sizer_changes", "Times that the sizer changed the reservation.", changes),
};

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
        INFO("tenant", "How the tenant is configured.", LABEL("class", class_),
                LABEL("sizer", sizer), LABEL("when_full", when_full), LABEL("evict", evict),
                LABEL("source", source)),
        GAUGE_BY_TIER(
                "tenant_limit_bytes", "The tenant's limit, by tier.", limit_bytes, limit_bytes),
        GAUGE_BY_TIER("tenant_charged_bytes", "What it has bound, by tier.", charged_bytes,
                charged_bytes),
        GAUGE("tenant_reserved_bytes", "Reserved for it, in force.", reserve_bytes),
        GAUGE("tenant_reserve_configured_bytes", "Reserved for it by the configuration.",
                reserve_configured_bytes),
        GAUGE("tenant_fair_bytes", "Its share of the dynamic pools now.", fair_bytes),
        GAUGE("tenant_excess_bytes", "What it has of them.", excess_bytes),
        {.family = "tenant_weight",
                .help = "By which pools are shared.",
                FIELD(weight),
                .single = true},
        {.family = "tenant_priority",
                .help = "By which leases that wait are served.",
                FIELD(priority),
                .single = true},
        GAUGE("tenant_clients", "Its clients.", n_clients),
        GAUGE("tenant_clients_limit", "Its clients, at most.", max_clients),
        GAUGE("tenant_namespaces", "Its namespaces.", n_namespaces),
        PAGES("tenant_pages", "Its pages, by state and tier.", "granted", pages_granted),
        MORE_PAGES("sealed", pages_sealed),
        MORE_PAGES("detached", pages_detached),
        PAGES_BELOW("sealed", pages_sealed),
        PAGES_BELOW("detached", pages_detached),
        COUNTER("tenant_evicted_pages", "Cached pages of it that gave way.", evictions),
        DERIVED_BY("tenant_refused_leases", TEXT_COUNTER, "Its leases that were refused, by why.",
                "reason", "quota", refused_quota),
        MORE_DERIVED("reason", "reservation_full", refused_reservation),
        MORE_DERIVED("reason", "pool_full", refused_pool),
        MORE_DERIVED("reason", "deadline", refused_deadline),
        MORE_DERIVED("reason", "draining", refused_draining),
        MORE_DERIVED("reason", "device", refused_device),
        MORE_DERIVED("reason", "no_run", refused_no_run),
        GAUGE("tenant_waiting_leases", "Its leases that wait for room now.", waiting),
        COUNTER("tenant_waited_leases", "Its leases that waited.", waits),
        MILLI_COUNTER("tenant_lease_wait_seconds", "Time that these waited.", waited_msec),
        {.family = "tenant_lease_wait_max_seconds",
                .help = "The longest wait since the start.",
                FIELD(max_waited_msec),
                .is_milli = true,
                .single = true},
        COUNTER("tenant_degraded_leases", "Its leases granted fewer pages than asked for.",
                degraded),
        GAUGE("tenant_recalled_sets", "Its sets that are being taken back.", recalled_sets),
        GAUGE("tenant_held_bytes", "Memory that it let go of and holds up.", held_bytes),
        COUNTER("tenant_requests", "Its requests.", requests),
        GAUGE("tenant_paused", "1 while it has no requests left (max_requests).", paused),
        COUNTER("tenant_pauses", "Times that it had none left.", pauses),
        MILLI_COUNTER("tenant_paused_seconds", "Time that it had none left.", pauses_msec),
        COUNTER("tenant_refused_connects", "Connections refused by max_connects.",
                connects_refused),
        GAUGE("tenant_open_files", "Open files of the daemon that are counted for it.", open_files),
        GAUGE("tenant_open_files_limit", "Of them, at most now.", open_files_limit),
        GAUGE("tenant_kept_descriptors", "Descriptors kept for the next start, likewise.",
                kept_fds),
        GAUGE("tenant_kept_descriptors_limit", "Of them, at most now; 0: nothing is kept.",
                kept_fds_limit),
        GAUGE("tenant_pending_bytes", "Answers its clients haven't taken, and requests that wait.",
                pending_bytes),
};

/* ---- namespaces ------------------------------------------------------------------------------ */

#undef ROW
#define ROW Kvlease__V1__AdminNamespace

/* 0 where the daemon says nothing of the layout. */
static double page_tokens(const ROW *r)
{
        return r->layout ? r->layout->page_tokens : 0;
}

DERIVE(ns_misses, minus(r->keys, r->hits))
DERIVE(ns_hit_tokens, page_tokens(r) * (double)r->hits)
DERIVE(ns_miss_tokens, page_tokens(r) * minus(r->keys, r->hits))
/* 0 where nothing lies below the namespace's device. */
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
PREFETCHED_KIND(warm)
#define PREFETCHED_FAMILY(name, type, text, field)                         \
        DERIVED_BY(name, type, text, "kind", "stream", ns_stream_##field), \
                MORE_DERIVED("kind", "turn", ns_turn_##field),             \
                MORE_DERIVED("kind", "warm", ns_warm_##field)

DERIVE(ns_page_tokens, page_tokens(r))
DERIVE(ns_page_bytes, r->layout ? (double)r->layout->plane_page_bytes * r->layout->n_planes : 0)

static const struct metric namespace_metrics[] = {
        INFO("namespace", "How the namespace is kept.", LABEL("evict", evict), LABEL("set", set)),
        GAUGE_BY_TIER("namespace_charged_bytes", "What it has bound, by tier.", charged_bytes,
                charged_bytes),
        GAUGE_BY_TIER("namespace_sets_bound", "Extent sets it has bound, by tier.", n_sets, n_sets),
        GAUGE("namespace_capacity_pages", "Pages it can have at most.", capacity_pages),
        {.family = "namespace_page_tokens",
                .help = "Tokens of a page.",
                .derive = ns_page_tokens,
                .single = true},
        {.family = "namespace_page_bytes",
                .help = "Bytes of a page, over all planes.",
                .derive = ns_page_bytes,
                .single = true},
        PAGES("namespace_pages", "Its pages, by state and tier.", "free", pages_free),
        MORE_PAGES("granted", pages_granted),
        MORE_PAGES("ready", pages_ready),
        MORE_PAGES("sealed", pages_sealed),
        MORE_PAGES("detached", pages_detached),
        PAGES_BELOW("free", pages_free),
        PAGES_BELOW("sealed", pages_sealed),
        PAGES_BELOW("detached", pages_detached),
        GAUGE("namespace_pinned_pages", "Its pages that clients read now.", pages_pinned),
        COUNTER_BY("namespace_lookup_pages", "Pages looked up in it.", "result", "hit", hits),
        MORE_DERIVED("result", "miss", ns_misses),
        DERIVED_BY("namespace_lookup_tokens", TEXT_COUNTER,
                "Tokens looked up in it, as of whole pages.", "result", "hit", ns_hit_tokens),
        MORE_DERIVED("result", "miss", ns_miss_tokens),
        COUNTER("namespace_evicted_pages", "Cached pages of it that gave way.", evictions),
        COUNTER("namespace_expired_pages", "Cached pages of it that nobody used.", pages_expired),
        /* Moves between tiers are told by namespace alone: kvleased's sums over tenants and over
         * all are of the namespaces that are there now, and fall when one goes, as no counter may.
         */
        COUNTER("namespace_promoted_pages", "Pages that came up to the device.", pages_promoted),
        COUNTER_BELOW("namespace_demoted_pages", "Pages that went down, by the tier they went to.",
                arrived),
        COUNTER_BELOW("namespace_damaged_pages",
                "Pages dropped because their bytes weren't what was stored, by tier.", damaged),
        PREFETCHED_FAMILY("namespace_prefetched_pages", TEXT_COUNTER,
                "Pages brought up from below the device before they were asked for.", begun),
        PREFETCHED_FAMILY("namespace_prefetched_useful_pages", TEXT_COUNTER,
                "Of these, used on the device.", useful),
        PREFETCHED_FAMILY("namespace_prefetched_wasted_pages", TEXT_COUNTER,
                "Of these, left the device unused.", wasted),
        PREFETCHED_FAMILY("namespace_prefetched_given_up_pages", TEXT_COUNTER,
                "Of these, never came or were invalidated.", given_up),
        PREFETCHED_FAMILY("namespace_prefetched_undecided_pages", TEXT_GAUGE,
                "Of these, neither used nor gone yet.", at_stake),
        GAUGE("namespace_clients", "Clients that have it open.", n_clients),
        GAUGE("namespace_sessions", "Sessions kept in it.", n_sessions),
        GAUGE("namespace_policy_bytes", "Metadata of its eviction policy.", policy_bytes),
};

#undef ROW
#define ROW Kvlease__V1__AdminEviction

static const struct metric eviction_metrics[] = {
        COUNTER("taken_pages",
                "Cached pages of `victim` that gave way to `by`; \"(nobody)\": "
                "no lease.",
                pages),
        COUNTER("taken_sets", "Extent sets of `victim` that went over to `by`.", sets),
};

#undef ROW
#define ROW Kvlease__V1__AdminSet

static const struct metric set_metrics[] = {
        GAUGE("namespace_set_namespaces", "Namespaces of the set that are there.", n_namespaces),
        GAUGE("namespace_set_size", "Namespaces of the set when it is complete.", size),
        GAUGE("namespace_set_charged_bytes", "What its namespaces have bound.", charged_bytes),
        GAUGE_BY("namespace_set_keys", "Keys cached in it.", "state", "complete", keys_complete),
        MORE("state", "incomplete", keys_incomplete),
        COUNTER("namespace_set_dropped_keys", "Keys dropped because they stayed incomplete.",
                dropped),
};
#undef ROW

/* ---- all of it ------------------------------------------------------------------------------- */

#define TABLE(rows_name, list_name, table)                               \
        .name = rows_name, .list = SOURCE_##list_name, .metrics = table, \
        .n_metrics = ARRAY_SIZE(table)
#define KEY(message, key, field)                             \
        {                                                    \
                key, offsetof(Kvlease__V1__##message, field) \
        }

/* A row of what lies below a device is called "host of DEVICE" or "disk of DEVICE". No device has
 * such a name: it is "host" or a UUID. */
static const struct {
        const char *before, *tier;
} lower_rows[] = {{"host of ", "host"}, {"disk of ", "disk"}};

static const char *device_name(const char *row_name)
{
        for (size_t i = 0; i < ARRAY_SIZE(lower_rows); i++)
                if (strncmp(row_name, lower_rows[i].before, strlen(lower_rows[i].before)) == 0)
                        return row_name + strlen(lower_rows[i].before);
        return row_name;
}

static const char *device_tier(const char *row_name)
{
        for (size_t i = 0; i < ARRAY_SIZE(lower_rows); i++)
                if (strncmp(row_name, lower_rows[i].before, strlen(lower_rows[i].before)) == 0)
                        return lower_rows[i].tier;
        return "device";
}

#define KEYS_OF_DEVICE(message, field)                                                 \
        {"device", offsetof(Kvlease__V1__##message, field), .derive = device_name},    \
        {                                                                              \
                "tier", offsetof(Kvlease__V1__##message, field), .derive = device_tier \
        }

const struct metric_table metric_tables[] = {
        {TABLE("status", STATUS, status_metrics)},
        {TABLE("restart", RESTART, restart_metrics)},
        {TABLE("devices", DEVICES, device_metrics), .labels = {KEYS_OF_DEVICE(AdminDevice, name)}},
        {TABLE("pools", REGIONS, pool_metrics), .labels = {KEYS_OF_DEVICE(AdminRegion, device)},
                .wants = is_pool},
        {TABLE("regions", REGIONS, region_metrics),
                .labels = {KEYS_OF_DEVICE(AdminRegion, device), KEY(AdminRegion, "tenant", tenant)},
                .wants = is_stake},
        {TABLE("tenants", TENANTS, tenant_metrics), .labels = {KEY(AdminTenant, "tenant", name)}},
        {TABLE("namespaces", NAMESPACES, namespace_metrics),
                .labels = {KEY(AdminNamespace, "tenant", tenant),
                        KEY(AdminNamespace, "namespace", name),
                        KEY(AdminNamespace, "device", device)}},
        {TABLE("evictions", EVICTIONS, eviction_metrics),
                .labels = {KEY(AdminEviction, "victim", victim),
                        {"by", offsetof(Kvlease__V1__AdminEviction, by), "(nobody)"}}},
        {TABLE("sets", SETS, set_metrics),
                .labels = {KEY(AdminSet, "tenant", tenant), KEY(AdminSet, "set", name)}},
};
const size_t n_metric_tables = ARRAY_SIZE(metric_tables);

/* NULL: the row lacks it. */
static const void *metric_part(const struct metric *m, const void *row)
{
        return m->part ? *(const void *const *)(const void *)((const char *)row + m->part) : row;
}

static double field_value(const struct metric *m, const void *part)
{
        const char *at = (const char *)part + m->offset;
        uint64_t value = m->width == 8 ? *(const uint64_t *)(const void *)at
                                       : *(const uint32_t *)(const void *)at;

        if (m->width == 8 && value == UINT64_MAX)
                return (double)INFINITY;
        /* Divided, as a thousandth has no exact double. */
        return m->is_milli ? (double)value / 1000 : (double)value;
}

bool metric_exists_in(const struct metric *m, const void *row)
{
        return metric_part(m, row) != NULL;
}

double metric_value(const struct metric *m, const void *row)
{
        return m->derive ? m->derive(row) : field_value(m, metric_part(m, row));
}

void metric_add_labels(const struct metric *m, struct text_labels *labels)
{
        for (size_t i = 0; i < METRIC_LABELS; i++)
                text_labels_add(labels, m->labels[i].name, m->labels[i].value);
}

const char *metric_label(const struct metric_label *l, const void *row)
{
        const char *value = *(char *const *)(const void *)((const char *)row + l->offset);

        if (l->derive)
                return l->derive(value);
        return l->none && !value[0] ? l->none : value;
}

const struct metric *metric_family(const struct metric_table *t, size_t i)
{
        while (!t->metrics[i].family)
                i--;
        return &t->metrics[i];
}
