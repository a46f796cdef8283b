/* The status of the daemon: what a person is told of it, and every figure for programs. */
#include "client/ctl/noun.h"

#include <inttypes.h>
#include <string.h>

#include "client/ctl/columns.h"
#include "proto/kvlease.pb-c.h"

typedef Kvlease__V1__AdminStatusReply status_row;

#define STATUS(field, title, what)                          \
        {                                                   \
                FIELD(AdminStatusReply, field, title, what) \
        }

static void status_daemon(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret, "kvleased %.32s, pid %" PRIu64 "%s", s->daemon_version, s->pid,
                s->draining ? ", draining: new clients are refused" : "");
}

/* Of the loop that serves everybody. */
static void status_longest_turn(const void *row, const struct show_format *f, struct value *ret)
{
        derive_text(ret, "%.1f ms", (double)((const status_row *)row)->longest_turn_nsec / 1e6);
}

static void status_memory(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;
        char used[32], budget[32];

        derive_ratio(ret, s->charged_bytes, s->budget_bytes);
        derive_text(ret, "%s of %s (%.1f %%)", show_bytes(f, s->charged_bytes, used),
                show_bytes(f, s->budget_bytes, budget), ret->ratio * 100);
}

/* Of a tier below devices; not there where no device has it. */
static void derive_tier(
        struct value *ret, const struct show_format *f, const Kvlease__V1__AdminTier *t)
{
        char used[32], budget[32];

        if (t)
                derive_text(ret,
                        "%s of %s, %" PRIu64 " pages published, %" PRIu64 " came, %" PRIu64
                        " were damaged",
                        show_bytes(f, t->charged_bytes, used),
                        show_bytes(f, t->limit_bytes, budget), t->pages_sealed, t->arrived,
                        t->damaged);
}

static void status_host(const void *row, const struct show_format *f, struct value *ret)
{
        derive_tier(ret, f, ((const status_row *)row)->host);
}

static void status_disk(const void *row, const struct show_format *f, struct value *ret)
{
        derive_tier(ret, f, ((const status_row *)row)->disk);
}

/* Only where there is something to say. */
static void status_disk_trouble(const void *row, const struct show_format *f, struct value *ret)
{
        const Kvlease__V1__AdminTier *t = ((const status_row *)row)->disk;

        (void)f;
        if (t && t->why[0])
                derive_text(ret, "%s: %s", t->state, t->why);
}

static void status_pending(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;
        char pending[32], most[32];

        derive_text(ret, "%s of %s (%" PRIu32 " clients do not read, %" PRIu64 " were dropped)",
                show_bytes(f, s->pending_bytes, pending), show_bytes(f, s->max_pending_bytes, most),
                s->peers_held, s->pending_overflows);
}

static void status_expired(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret, "%" PRIu64 " pages, %" PRIu64 " sessions", s->pages_expired,
                s->sessions_expired);
}

static void status_announced(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret, "%" PRIu64 ", %" PRIu64 " more were being computed by others",
                s->announced, s->announces_pending);
}

static void status_sets(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        if (s->n_ns_sets == 0)
                derive_text(ret, "none");
        else
                derive_text(ret, "%" PRIu32 ": %" PRIu64 " keys complete, %" PRIu64 " not",
                        s->n_ns_sets, s->set_keys_complete, s->set_keys_incomplete);
}

static void status_kept(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        if (s->kept_max == 0)
                derive_text(ret, "none: a restart empties the cache");
        else
                derive_text(ret, "%" PRIu32 " of %" PRIu32 " (%" PRIu32 " were released at start)",
                        s->kept_fds, s->kept_max, s->kept_released);
}

/* What of an earlier daemon's state is there. */
static void status_took_over(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        if (!s->took_over)
                derive_text(ret, "nothing: the cache started empty, ready after %" PRIu64 " ms",
                        s->ready_msec);
        else
                derive_text(ret,
                        "%" PRIu64 " pages in %" PRIu32 " namespaces, %" PRIu32
                        " sessions, ready after %" PRIu64 " ms",
                        s->recovered_pages, s->recovered_namespaces, s->recovered_sessions,
                        s->ready_msec);
}

static void status_lost(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        if (s->took_over)
                derive_text(ret,
                        "%" PRIu32 " namespaces; pages: %" PRIu64 " damaged, %" PRIu64
                        " without the page before, %" PRIu64 " duplicates, %" PRIu64
                        " without a place in the index",
                        s->namespaces_lost, s->pages_lost_checksum, s->pages_lost_parent,
                        s->pages_lost_duplicate, s->pages_lost_index);
}

static void status_resumed(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        if (s->took_over)
                derive_text(ret,
                        "%" PRIu32 ": %" PRIu32 " came back, %" PRIu32 " waited for, %" PRIu32
                        " ended",
                        s->clients_recovered, s->clients_resumed, s->clients_waiting,
                        s->clients_expired);
}

/* Only where there is something to say. */
static void status_culprits(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        (void)f;
        if (s->clients_lost > 0 || s->tenants_refused > 0)
                derive_text(ret,
                        "kvleased died more than once serving clients: %" PRIu32
                        " of them weren't taken over, new ones of %" PRIu32
                        " tenants are refused (kvleasectl restart lets them in again)",
                        s->clients_lost, s->tenants_refused);
}

/* Only where there is something to say. */
static void status_options(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        (void)f;
        if (s->options_pending > 0)
                derive_text(ret, "%" PRIu32 " wait for a restart: kvleasectl reload says which",
                        s->options_pending);
}

static void status_pages(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret,
                "%" PRIu64 " published (%" PRIu64 " pinned), %" PRIu64 " granted, %" PRIu64
                " ready, %" PRIu64 " detached, %" PRIu64 " free",
                s->pages_sealed, s->pages_pinned, s->pages_granted, s->pages_ready,
                s->pages_detached, s->pages_free);
}

static void status_lookups(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_ratio(ret, s->lookup_hits, s->lookup_keys);
        if (!ret->present)
                derive_text(ret, "%" PRIu64, s->lookups);
        else
                derive_text(ret, "%" PRIu64 ", %.1f %% of %" PRIu64 " pages found", s->lookups,
                        ret->ratio * 100, s->lookup_keys);
}

static void status_published(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret,
                "%" PRIu64 " pages (%" PRIu64 " without a place in the index), %" PRIu64
                " more were duplicates",
                s->publishes, s->unindexed, s->duplicates);
}

static void status_clients(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret,
                "%" PRIu32 " (%" PRIu32 " with shared memory, %" PRIu64 " muted, %" PRIu64
                " waiting for exit), %" PRIu32 " not introduced",
                s->n_clients, s->n_sharing, s->peers_muted, s->members_waiting_exit, s->peers_new);
}

/* The weaker guard is never shown without what it lets through and the remedy. */
static void status_segments(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        if (strncmp(s->segments, "memfd", 5) == 0)
                derive_text(ret,
                        "%.48s: same-uid clients could write it; run kvleased with CAP_SYS_ADMIN",
                        s->segments);
        else if (*s->segments)
                derive_text(ret, "%.48s: no client can write it", s->segments);
}

static void status_fragmentation(const void *row, const struct show_format *f, struct value *ret)
{
        derive_ratio(ret, ((const status_row *)row)->fragmentation, 1000);
}

static void status_waiting(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret, "%" PRIu32 " now, %" PRIu64 " waited since the start", s->n_waiting,
                s->leases_waited);
}

static void status_compacted(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret, "%" PRIu64 " pages moved, %" PRIu64 " extent sets given back",
                s->compacted_pages, s->compacted_sets);
}

static void status_hit_ratio(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_ratio(ret, s->lookup_hits, s->lookup_keys);
}

/* Random 64 bits: as a number they would lose digits in readers that use doubles. */
static void status_boot_epoch(const void *row, const struct show_format *f, struct value *ret)
{
        derive_text(ret, "%016" PRIx64, ((const status_row *)row)->boot_epoch);
}

#define STATUS_TIER(tier, field, what)                                 \
        {                                                              \
                TIER_FIGURE(AdminStatusReply, tier, field, NULL, what) \
        }

static const struct column status_columns[] = {
        {.heading = "DAEMON", .kind = COLUMN_TEXT, .derive = status_daemon},
        STATUS(daemon_version, NULL, TEXT),
        STATUS(pid, NULL, COUNT),
        STATUS(draining, NULL, BOOL),
        STATUS(uptime_sec, "UPTIME", SECONDS),
        {.heading = "LONGEST TURN", .kind = COLUMN_TEXT, .derive = status_longest_turn},
        STATUS(longest_turn_nsec, NULL, COUNT),
        {.key = "boot_epoch", .kind = COLUMN_TEXT, .derive = status_boot_epoch},
        {.heading = "MEMORY", .kind = COLUMN_TEXT, .derive = status_memory},
        STATUS(budget_bytes, NULL, BYTES),
        STATUS(charged_bytes, NULL, BYTES),
        {.heading = "PAGES", .kind = COLUMN_TEXT, .derive = status_pages},
        STATUS(pages_free, NULL, COUNT),
        STATUS(pages_granted, NULL, COUNT),
        STATUS(pages_ready, NULL, COUNT),
        STATUS(pages_sealed, NULL, COUNT),
        STATUS(pages_pinned, NULL, COUNT),
        STATUS(pages_detached, NULL, COUNT),
        STATUS(pages_promoted, "PAGES CAME BACK", COUNT),
        {.heading = "HOST TIER", .kind = COLUMN_TEXT, .derive = status_host},
        STATUS_TIER(host, limit_bytes, BYTES),
        STATUS_TIER(host, charged_bytes, BYTES),
        STATUS_TIER(host, pages_sealed, COUNT),
        STATUS_TIER(host, pages_detached, COUNT),
        STATUS_TIER(host, pages_free, COUNT),
        STATUS_TIER(host, arrived, COUNT),
        STATUS_TIER(host, damaged, COUNT),
        {.heading = "DISK TIER", .kind = COLUMN_TEXT, .derive = status_disk},
        {.heading = "DISK TROUBLE", .kind = COLUMN_TEXT, .derive = status_disk_trouble},
        STATUS_TIER(disk, limit_bytes, BYTES),
        STATUS_TIER(disk, charged_bytes, BYTES),
        STATUS_TIER(disk, pages_sealed, COUNT),
        STATUS_TIER(disk, pages_detached, COUNT),
        STATUS_TIER(disk, pages_free, COUNT),
        STATUS_TIER(disk, arrived, COUNT),
        STATUS_TIER(disk, damaged, COUNT),
        STATUS_TIER(disk, state, TEXT),
        STATUS_TIER(disk, why, TEXT),
        STATUS_TIER(disk, read_bytes, BYTES),
        STATUS_TIER(disk, written_bytes, BYTES),
        STATUS_TIER(disk, errors, COUNT),
        STATUS_TIER(disk, late, COUNT),
        STATUS(pages_ahead, "PAGES AHEAD", COUNT),
        {.heading = "FRAGMENTATION",
                .key = "fragmentation_ratio",
                .kind = COLUMN_RATIO,
                .derive = status_fragmentation},
        {.heading = "COMPACTED", .kind = COLUMN_TEXT, .derive = status_compacted},
        STATUS(compacted_pages, NULL, COUNT),
        STATUS(compacted_sets, NULL, COUNT),
        {.heading = "LOOKUPS", .kind = COLUMN_TEXT, .derive = status_lookups},
        STATUS(lookups, NULL, COUNT),
        STATUS(lookup_keys, NULL, COUNT),
        STATUS(lookup_hits, NULL, COUNT),
        {.key = "lookup_hit_ratio", .kind = COLUMN_RATIO, .derive = status_hit_ratio},
        {.heading = "PUBLISHED", .kind = COLUMN_TEXT, .derive = status_published},
        STATUS(publishes, NULL, COUNT),
        STATUS(unindexed, NULL, COUNT),
        STATUS(duplicates, NULL, COUNT),
        STATUS(evictions, "EVICTED PAGES", COUNT),
        STATUS(leases_refused, "REFUSED LEASES", COUNT),
        {.heading = "WAITING LEASES", .kind = COLUMN_TEXT, .derive = status_waiting},
        STATUS(n_waiting, NULL, COUNT),
        STATUS(leases_waited, NULL, COUNT),
        STATUS(leases_degraded, "DEGRADED LEASES", COUNT),
        STATUS(n_sessions, "SESSIONS", COUNT),
        {.heading = "EXPIRED", .kind = COLUMN_TEXT, .derive = status_expired},
        STATUS(pages_expired, NULL, COUNT),
        STATUS(sessions_expired, NULL, COUNT),
        {.heading = "ANNOUNCED KEYS", .kind = COLUMN_TEXT, .derive = status_announced},
        STATUS(announced, NULL, COUNT),
        STATUS(announces_pending, NULL, COUNT),
        {.heading = "NAMESPACE SETS", .kind = COLUMN_TEXT, .derive = status_sets},
        STATUS(n_ns_sets, NULL, COUNT),
        STATUS(set_keys_complete, NULL, COUNT),
        STATUS(set_keys_incomplete, NULL, COUNT),
        STATUS(recording, "RECORDING", BOOL),
        STATUS(n_tenants, "TENANTS", COUNT),
        STATUS(n_namespaces, "NAMESPACES", COUNT),
        {.heading = "CLIENTS", .kind = COLUMN_TEXT, .derive = status_clients},
        STATUS(n_clients, NULL, COUNT),
        STATUS(n_sharing, NULL, COUNT),
        STATUS(peers_muted, NULL, COUNT),
        STATUS(members_waiting_exit, NULL, COUNT),
        STATUS(peers_new, NULL, COUNT),
        {.heading = "PENDING ANSWERS", .kind = COLUMN_TEXT, .derive = status_pending},
        STATUS(pending_bytes, NULL, BYTES),
        STATUS(max_pending_bytes, NULL, BYTES),
        STATUS(peers_held, NULL, COUNT),
        STATUS(pending_overflows, NULL, COUNT),
        STATUS(tenants_paused, "PAUSED TENANTS", COUNT),
        STATUS(connects_refused, "REFUSED CONNECTIONS", COUNT),
        STATUS(violations, "VIOLATIONS", COUNT),
        {.heading = "INDEX GUARD", .kind = COLUMN_TEXT, .derive = status_segments},
        STATUS(segments, NULL, TEXT),
        STATUS(touches_dropped, "DROPPED TOUCHES", COUNT),
        {.heading = "KEPT DESCRIPTORS", .kind = COLUMN_TEXT, .derive = status_kept},
        STATUS(kept_fds, NULL, COUNT),
        STATUS(kept_max, NULL, COUNT),
        STATUS(kept_needed, NULL, COUNT),
        STATUS(open_files_needed, NULL, COUNT),
        STATUS(open_files_max, NULL, COUNT),
        STATUS(kept_released, NULL, COUNT),
        {.heading = "TAKEN OVER", .kind = COLUMN_TEXT, .derive = status_took_over},
        STATUS(took_over, NULL, BOOL),
        STATUS(recovered_pages, NULL, COUNT),
        STATUS(recovered_namespaces, NULL, COUNT),
        STATUS(recovered_sessions, NULL, COUNT),
        {.heading = "LOST AT START", .kind = COLUMN_TEXT, .derive = status_lost},
        STATUS(namespaces_lost, NULL, COUNT),
        STATUS(pages_lost_checksum, NULL, COUNT),
        STATUS(pages_lost_parent, NULL, COUNT),
        STATUS(pages_lost_duplicate, NULL, COUNT),
        STATUS(pages_lost_index, NULL, COUNT),
        {.heading = "CLIENTS TAKEN OVER", .kind = COLUMN_TEXT, .derive = status_resumed},
        STATUS(clients_recovered, NULL, COUNT),
        STATUS(clients_resumed, NULL, COUNT),
        STATUS(clients_waiting, NULL, COUNT),
        STATUS(clients_expired, NULL, COUNT),
        {.heading = "CULPRITS", .kind = COLUMN_TEXT, .derive = status_culprits},
        STATUS(clients_lost, NULL, COUNT),
        STATUS(tenants_refused, NULL, COUNT),
        STATUS(ready_msec, NULL, COUNT),
        STATUS(config_file, "CONFIGURATION", TEXT),
        {.heading = "CHANGED OPTIONS", .kind = COLUMN_TEXT, .derive = status_options},
        STATUS(options_pending, NULL, COUNT),
        STATUS(runtime_dir, "RUNTIME DIR", TEXT),
        STATUS(state_dir, "STATE DIR", TEXT),
};

const struct column_table status_table = {"status", status_columns, ARRAY_SIZE(status_columns)};
