/* The status of the daemon: a summary for people, and every figure for programs. */
#include "client/ctl/noun.h"

#include <inttypes.h>
#include <string.h>

#include "client/ctl/columns.h"
#include "client/ctl/ctl.h"
#include "proto/kvlease.pb-c.h"

typedef Kvlease__V1__AdminStatusReply status_row;

static void status_daemon(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret, "kvleased %.32s, pid %" PRIu64 "%s", s->daemon_version, s->pid,
                s->draining ? ", draining: new clients are refused" : "");
}

/* The longest iteration of the event loop. */
static void status_longest_turn(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;
        const Kvlease__V1__AdminTurn *t = s->n_longest_turns > 0 ? s->longest_turns[0] : NULL;

        if (!t || !*t->what)
                derive_text(ret, "%.1fms", (double)s->longest_turn_nsec / 1e6);
        else
                derive_text(ret, "%.1fms (%.32s%s%.32s)", (double)s->longest_turn_nsec / 1e6,
                        t->what, *t->tenant ? " of tenant " : "", t->tenant);
}

static json_t *turns_json(size_t n, Kvlease__V1__AdminTurn *const *turns)
{
        json_t *list = need(json_array());

        for (size_t i = 0; i < n; i++) {
                const Kvlease__V1__AdminTurn *t = turns[i];

                json_array_append_new(
                        list, need(json_pack("{s:I, s:I, s:o, s:I, s:o}", "time_msec",
                                      (json_int_t)t->time_msec, "nsec", (json_int_t)t->nsec, "what",
                                      *t->what ? show_json_text(t->what) : json_null(), "what_nsec",
                                      (json_int_t)t->what_nsec, "tenant",
                                      *t->tenant ? show_json_text(t->tenant) : json_null())));
        }
        return list;
}

static json_t *status_longest_turns(const void *row)
{
        return turns_json(((const status_row *)row)->n_longest_turns,
                ((const status_row *)row)->longest_turns);
}

static json_t *status_recent_turns(const void *row)
{
        return turns_json(
                ((const status_row *)row)->n_recent_turns, ((const status_row *)row)->recent_turns);
}

static void status_memory(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;
        char used[32], budget[32];

        derive_ratio(ret, s->charged_bytes, s->budget_bytes);
        derive_text(ret, "%s of %s (%.1f %%)", show_bytes(f, s->charged_bytes, used),
                show_bytes(f, s->budget_bytes, budget), ret->ratio * 100);
}

/* A lower tier; absent if no device has it. */
static void derive_tier(
        struct value *ret, const struct show_format *f, const Kvlease__V1__AdminTier *t)
{
        char used[32], budget[32];

        if (t)
                derive_text(ret,
                        "%s of %s, %" PRIu64 " page%s published, %" PRIu64 " came, %" PRIu64
                        " were damaged",
                        show_bytes(f, t->charged_bytes, used),
                        show_bytes(f, t->limit_bytes, budget), t->pages_sealed,
                        PLURAL(t->pages_sealed), t->arrived, t->damaged);
}

static void status_host(const void *row, const struct show_format *f, struct value *ret)
{
        derive_tier(ret, f, ((const status_row *)row)->host);
}

static void status_disk(const void *row, const struct show_format *f, struct value *ret)
{
        derive_tier(ret, f, ((const status_row *)row)->disk);
}

static void status_came_back(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        if (s->host || s->disk)
                derive_text(ret, "%" PRIu64, s->pages_promoted);
}

static void status_pending(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;
        char pending[32], most[32];

        derive_text(ret, "%s of %s (clients that do not read: %" PRIu32 ", dropped: %" PRIu64 ")",
                show_bytes(f, s->pending_bytes, pending), show_bytes(f, s->max_pending_bytes, most),
                s->peers_held, s->pending_overflows);
}

static void status_expired(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret, "%" PRIu64 " page%s, %" PRIu64 " session%s", s->pages_expired,
                PLURAL(s->pages_expired), s->sessions_expired, PLURAL(s->sessions_expired));
}

static void status_policy(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;
        char pages[32], ghosts[32], most[32], tables[32];

        derive_text(ret,
                "%s for pages, %s (at most %s) for %" PRIu64 " evicted ones, %s for tables",
                show_bytes(f, s->policy_page_bytes, pages),
                show_bytes(f, s->policy_ghost_bytes, ghosts),
                show_bytes(f, s->policy_ghost_limit_bytes, most), s->policy_ghosts,
                show_bytes(f, s->policy_table_bytes, tables));
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
                derive_text(ret, "%" PRIu32 ": %" PRIu64 " key%s complete, %" PRIu64 " not",
                        s->n_ns_sets, s->set_keys_complete, PLURAL(s->set_keys_complete),
                        s->set_keys_incomplete);
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

/* The state recovered from an earlier daemon. */
static void status_took_over(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        if (!s->took_over)
                derive_text(ret, "nothing: the cache started empty, ready after %" PRIu64 "ms",
                        s->ready_msec);
        else
                derive_text(ret,
                        "%" PRIu64 " page%s in %" PRIu32 " namespace%s, %" PRIu32
                        " session%s, ready after %" PRIu64 "ms",
                        s->recovered_pages, PLURAL(s->recovered_pages), s->recovered_namespaces,
                        PLURAL(s->recovered_namespaces), s->recovered_sessions,
                        PLURAL(s->recovered_sessions), s->ready_msec);
}

static void status_lost(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        if (s->took_over)
                derive_text(ret,
                        "namespaces: %" PRIu32 "; pages: %" PRIu64 " damaged, %" PRIu64
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
                derive_text(ret, "%" PRIu64 ", %.1f %% of %" PRIu64 " page%s found", s->lookups,
                        ret->ratio * 100, s->lookup_keys, PLURAL(s->lookup_keys));
}

static void status_published(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret,
                "%" PRIu64 " page%s (%" PRIu64 " without a place in the index), %" PRIu64
                " more were duplicates",
                s->publishes, PLURAL(s->publishes), s->unindexed, s->duplicates);
}

static void status_clients(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret,
                "%" PRIu32 " (%" PRIu32 " with shared memory, %" PRIu64 " muted, %" PRIu64
                " waiting for exit), %" PRIu32 " not introduced",
                s->n_clients, s->n_sharing, s->peers_muted, s->members_waiting_exit, s->peers_new);
}

/* The weaker guard is shown with its weakness; verdict.c has the remedy. */
static void status_segments(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        if (strncmp(s->segments, "memfd", 5) == 0)
                derive_text(ret, "%.48s: clients of the same uid could write it", s->segments);
        else if (*s->segments)
                derive_text(ret, "%.48s: no client can write it", s->segments);
}

static void status_fragmentation(const void *row, const struct show_format *f, struct value *ret)
{
        derive_ratio(ret, ((const status_row *)row)->fragmentation, 1000);
}

static void status_expected(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_text(ret, "%" PRIu64 ", %" PRIu64 " came in time; %" PRIu64 " page%s kept now",
                s->expected, s->expected_fulfilled, s->pages_expected, PLURAL(s->pages_expected));
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

        derive_text(ret, "%" PRIu64 " page%s moved, %" PRIu64 " extent set%s given back",
                s->compacted_pages, PLURAL(s->compacted_pages), s->compacted_sets,
                PLURAL(s->compacted_sets));
}

static void status_hit_ratio(const void *row, const struct show_format *f, struct value *ret)
{
        const status_row *s = row;

        derive_ratio(ret, s->lookup_hits, s->lookup_keys);
}

/* Random 64 bits: as a number they would lose digits in readers with doubles. */
static void status_boot_epoch(const void *row, const struct show_format *f, struct value *ret)
{
        derive_text(ret, "%016" PRIx64, ((const status_row *)row)->boot_epoch);
}

/* The verdict (verdict.c) replaces these two later. */
static void status_judged(const void *row, const struct show_format *f, struct value *ret)
{
}

/* A field with its own name as key; `title` is its row's in a block, or NULL. */
#define STATUS(field, title, kind, text)                                    \
        {                                                                   \
                FIELD(AdminStatusReply, field, title, kind), .what = (text) \
        }

/* A row for blocks only. */
#define ROW(title, from)                                                                    \
        {                                                                                   \
                .heading = (title), .kind = COLUMN_TEXT, .derive = (from), .optional = true \
        }

/* The first row of a group. */
#define GROUP(title)             \
        {                        \
                .group = (title) \
        }

#define STATUS_TIER(tier, field, kind, text)                                           \
        {                                                                              \
                TIER_FIGURE(AdminStatusReply, tier, field, NULL, kind), .what = (text) \
        }

static const struct column status_columns[] = {
        {.key = "well",
                .kind = COLUMN_BOOL,
                .derive = status_judged,
                .what = "there is no finding but notes"},
        {.key = "findings",
                .kind = COLUMN_TEXT,
                .derive = status_judged,
                .what = "what isn't as it should be, the worst first: objects with severity "
                        "(\"error\", \"warning\", \"note\"), what and remedy"},
        GROUP("Daemon"),
        ROW("DAEMON", status_daemon),
        STATUS(daemon_version, NULL, TEXT, "version of kvleased"),
        STATUS(pid, NULL, COUNT, "its process, in its own pid namespace"),
        STATUS(draining, NULL, BOOL, "nothing new is granted (kvleasectl drain)"),
        STATUS(uptime_sec, "UPTIME", SECONDS, "seconds since its start"),
        ROW("LONGEST TURN", status_longest_turn),
        STATUS(longest_turn_nsec, NULL, COUNT,
                "nanoseconds of the longest turn of its loop since it served first, in which "
                "nobody "
                "else was served; without the time that it waited for a processor"),
        {.key = "longest_turns",
                .derive_json = status_longest_turns,
                .what = "the longest turns of its loop since it served first, the longest first: "
                        "objects with time_msec (its end, milliseconds since 1970), nsec, what "
                        "(the part that took longest: a request, such as \"LEASE\", or \"ring\", "
                        "\"chore\", \"upkeep\" ...; null: not known), what_nsec (how long that "
                        "took) and tenant (null: no tenant's)"},
        {.key = "recent_turns",
                .derive_json = status_recent_turns,
                .what = "likewise, the longest turn of each ten minutes of the last hour, the "
                        "oldest first"},
        {.key = "boot_epoch",
                .kind = COLUMN_TEXT,
                .derive = status_boot_epoch,
                .what = "a random number of this start, in hexadecimal digits"},
        STATUS(recording, "RECORDING", BOOL, "a trace is being written (kvleasectl trace record)"),
        STATUS(recording_lost, NULL, COUNT,
                "requests that aren't in the recording, or in the last one"),
        STATUS(recording_trouble, NULL, TEXT,
                "why the disk didn't take some of them last; empty where it took all"),
        STATUS(config_file, "CONFIGURATION", TEXT, "the configuration's file"),
        STATUS(options_pending, NULL, COUNT,
                "options that the last reload found changed and that wait for a restart"),
        STATUS(options_unknown, NULL, COUNT,
                "options of tenants that a newer kvleased wrote and this one skips"),
        STATUS(runtime_dir, "RUNTIME DIR", TEXT, "directory of the sockets"),
        STATUS(state_dir, "STATE DIR", TEXT, "directory of what outlives the host's start"),
        GROUP("Memory"),
        ROW("MEMORY", status_memory),
        STATUS(budget_bytes, NULL, BYTES, "bytes that kvleased may use on all devices"),
        STATUS(charged_bytes, NULL, BYTES, "bytes of them that are bound to namespaces"),
        ROW("PAGES", status_pages),
        STATUS(pages_free, NULL, COUNT,
                "pages on devices that hold nothing, in memory that is bound to a namespace"),
        STATUS(pages_granted, NULL, COUNT, "pages that are leased and not published"),
        STATUS(pages_ready, NULL, COUNT,
                "pages granted ahead of demand, which no client has taken"),
        STATUS(pages_sealed, NULL, COUNT, "published pages on devices: what the cache holds"),
        STATUS(pages_pinned, NULL, COUNT, "of pages_sealed, those that a client reads now"),
        STATUS(pages_detached, NULL, COUNT,
                "pages that can't be found any more and go once their readers release them"),
        STATUS(pages_ahead, "PAGES AHEAD", COUNT,
                "free pages that are kept ready, by the rate of leases"),
        {.heading = "FRAGMENTATION",
                .key = "fragmentation_ratio",
                .kind = COLUMN_RATIO,
                .derive = status_fragmentation,
                .what = "part of the devices' memory, 0 to 1, that is free in extent sets which "
                        "hold other pages"},
        ROW("COMPACTED", status_compacted),
        STATUS(compacted_pages, NULL, COUNT, "pages moved to empty an extent set, since the start"),
        STATUS(compacted_sets, NULL, COUNT, "extent sets given back after that, since the start"),
        GROUP("Tiers below the devices"),
        ROW("HOST TIER", status_host),
        STATUS_TIER(host, limit_bytes, BYTES,
                "bytes of host memory for cold pages; null: no device has any, and so the others"),
        STATUS_TIER(host, charged_bytes, BYTES, "bytes of it that are in use"),
        STATUS_TIER(host, pages_sealed, COUNT, "published pages there"),
        STATUS_TIER(host, pages_detached, COUNT, "as pages_detached, there"),
        STATUS_TIER(host, pages_free, COUNT, "as pages_free, there"),
        STATUS_TIER(host, arrived, COUNT, "pages that came there, since the start"),
        STATUS_TIER(host, damaged, COUNT,
                "pages dropped because their bytes weren't what was written, since the start"),
        ROW("DISK TIER", status_disk),
        STATUS_TIER(disk, limit_bytes, BYTES,
                "bytes of disk for cold pages; null: no device has any, and so the others"),
        STATUS_TIER(disk, charged_bytes, BYTES, "bytes of it that are in use"),
        STATUS_TIER(disk, pages_sealed, COUNT, "published pages there"),
        STATUS_TIER(disk, pages_detached, COUNT, "as pages_detached, there"),
        STATUS_TIER(disk, pages_free, COUNT, "as pages_free, there"),
        STATUS_TIER(disk, arrived, COUNT, "pages that came there, since the start"),
        STATUS_TIER(disk, damaged, COUNT,
                "pages dropped because their bytes weren't what was written, since the start"),
        STATUS_TIER(disk, state, TEXT, "ok, failing, or off: given up until the next start"),
        STATUS_TIER(disk, why, TEXT, "a sentence where it isn't ok"),
        STATUS_TIER(disk, read_bytes, BYTES, "bytes of pages read, since the start"),
        STATUS_TIER(disk, written_bytes, BYTES, "bytes of pages written, since the start"),
        STATUS_TIER(disk, errors, COUNT, "reads and writes that failed, since the start"),
        STATUS_TIER(disk, late, COUNT, "reads and writes that took too long, since the start"),
        ROW("PAGES CAME BACK", status_came_back),
        STATUS(pages_promoted, NULL, COUNT,
                "pages that came back to devices from below, since the start"),
        GROUP("Cache"),
        ROW("LOOKUPS", status_lookups),
        STATUS(lookups, NULL, COUNT, "lookups, since the start"),
        STATUS(lookup_keys, NULL, COUNT, "pages that they asked for"),
        STATUS(lookup_hits, NULL, COUNT, "pages that they found"),
        {.key = "lookup_hit_ratio",
                .kind = COLUMN_RATIO,
                .derive = status_hit_ratio,
                .what = "lookup_hits of lookup_keys, 0 to 1; null: none was asked for"},
        ROW("PUBLISHED", status_published),
        STATUS(publishes, NULL, COUNT, "pages published, since the start"),
        STATUS(unindexed, NULL, COUNT,
                "of them those that the index had no place for, so that only lookups over the "
                "socket find them"),
        STATUS(duplicates, NULL, COUNT,
                "pages whose key another page had already when they were to be published"),
        STATUS(evictions, "EVICTED PAGES", COUNT, "pages evicted, since the start"),
        ROW("EXPIRED", status_expired),
        STATUS(pages_expired, NULL, COUNT, "pages dropped as nobody used them, since the start"),
        STATUS(sessions_expired, NULL, COUNT, "sessions that ended likewise"),
        STATUS(n_sessions, "SESSIONS", COUNT, "sessions that are kept"),
        ROW("POLICY MEMORY", status_policy),
        STATUS(policy_page_bytes, NULL, BYTES,
                "memory of eviction policies: what they know of cached pages, and room for more"),
        STATUS(policy_ghost_bytes, NULL, BYTES, "what they know of evicted pages (ghosts)"),
        STATUS(policy_table_bytes, NULL, BYTES, "what they have learnt, and the rest"),
        STATUS(policy_ghosts, NULL, COUNT, "evicted pages that they remember"),
        STATUS(policy_ghost_limit_bytes, NULL, BYTES,
                "what policy_ghost_bytes is at most, with the namespaces there are"),
        ROW("ANNOUNCED KEYS", status_announced),
        STATUS(announced, NULL, COUNT, "keys that a client said it computes, since the start"),
        STATUS(announces_pending, NULL, COUNT,
                "keys that another one was computing already, so that they were waited for"),
        ROW("EXPECTED REQUESTS", status_expected),
        STATUS(expected, NULL, COUNT,
                "requests of which clients said that they will come, since the start"),
        STATUS(expected_fulfilled, NULL, COUNT, "of them those that came in time"),
        STATUS(expected_expired, NULL, COUNT, "those that didn't"),
        STATUS(expected_dropped, NULL, COUNT,
                "those whose texts were given up before, as the place was needed"),
        STATUS(pages_expected, NULL, COUNT, "cached pages that are kept for them now"),
        ROW("NAMESPACE SETS", status_sets),
        STATUS(n_ns_sets, NULL, COUNT, "namespace sets (kvleasectl sets)"),
        STATUS(set_keys_complete, NULL, COUNT, "keys that every namespace of their set has"),
        STATUS(set_keys_incomplete, NULL, COUNT, "keys that only some have"),
        GROUP("Leases"),
        STATUS(leases_refused, "REFUSED LEASES", COUNT, "requests refused, since the start"),
        ROW("WAITING LEASES", status_waiting),
        STATUS(n_waiting, NULL, COUNT, "leases that wait now (when_full = queue)"),
        STATUS(leases_waited, NULL, COUNT, "leases that waited, since the start"),
        STATUS(leases_degraded, "DEGRADED LEASES", COUNT,
                "leases granted fewer pages than asked for, since the start"),
        GROUP("Clients"),
        STATUS(n_tenants, "TENANTS", COUNT, "tenants"),
        STATUS(n_namespaces, "NAMESPACES", COUNT, "namespaces"),
        ROW("CLIENTS", status_clients),
        STATUS(n_clients, NULL, COUNT, "connected clients"),
        STATUS(n_sharing, NULL, COUNT, "of them those that talk over shared memory"),
        STATUS(peers_muted, NULL, COUNT,
                "connections that are ignored, as they broke the protocol or don't read"),
        STATUS(members_waiting_exit, NULL, COUNT,
                "clients that hung up and whose process lives on, so that what they hold stays"),
        STATUS(peers_new, NULL, COUNT, "connections that haven't introduced themselves"),
        ROW("PENDING ANSWERS", status_pending),
        STATUS(pending_bytes, NULL, BYTES,
                "bytes of answers that clients haven't taken and of requests that wait"),
        STATUS(max_pending_bytes, NULL, BYTES, "how many there may be (max_pending_bytes)"),
        STATUS(peers_held, NULL, COUNT,
                "connections that aren't read from until they take their answers"),
        STATUS(pending_overflows, NULL, COUNT,
                "clients muted or dropped as they took no answers, since the start"),
        STATUS(tenants_paused, "PAUSED TENANTS", COUNT,
                "tenants that have used up their max_requests for the moment"),
        STATUS(connects_refused, "REFUSED CONNECTIONS", COUNT,
                "connections refused by max_connects, since the start"),
        STATUS(violations, "VIOLATIONS", COUNT, "breaches of the protocol, since the start"),
        ROW("INDEX GUARD", status_segments),
        STATUS(segments, NULL, TEXT,
                "how clients are kept from writing the index: \"read-only mount\", or \"memfd\", "
                "which processes of kvleased's own user could get around, with the reason"),
        STATUS(touches_dropped, "DROPPED TOUCHES", COUNT,
                "notes of use that the clients of now left out as their rings were full; evictions "
                "are a little less well chosen"),
        GROUP("Restart"),
        ROW("KEPT DESCRIPTORS", status_kept),
        STATUS(kept_fds, NULL, COUNT, "descriptors that outlive the daemon"),
        STATUS(kept_max, NULL, COUNT, "how many there may be; 0: nothing outlives it"),
        STATUS(kept_needed, NULL, COUNT,
                "how many all memory as extents and max_clients connections would be"),
        STATUS(open_files_needed, NULL, COUNT, "the same of open files"),
        STATUS(open_files_max, NULL, COUNT, "how many open files there may be (LimitNOFILE)"),
        STATUS(kept_released, NULL, COUNT,
                "descriptors that the daemon before had left and that were of no use"),
        ROW("TAKEN OVER", status_took_over),
        STATUS(took_over, NULL, BOOL, "at its start it found what the daemon before held"),
        STATUS(recovered_pages, NULL, COUNT, "cached pages that it took over"),
        STATUS(recovered_namespaces, NULL, COUNT, "namespaces likewise"),
        STATUS(recovered_sessions, NULL, COUNT, "sessions likewise"),
        ROW("LOST AT START", status_lost),
        STATUS(namespaces_lost, NULL, COUNT,
                "namespaces that couldn't be taken over, with all "
                "their pages"),
        STATUS(pages_lost_checksum, NULL, COUNT,
                "pages not taken over: their record wasn't what had been written"),
        STATUS(pages_lost_parent, NULL, COUNT, "likewise: the page before them isn't there"),
        STATUS(pages_lost_duplicate, NULL, COUNT, "likewise: another page has their key"),
        STATUS(pages_lost_index, NULL, COUNT, "likewise: the index has no place for them"),
        ROW("CLIENTS TAKEN OVER", status_resumed),
        STATUS(clients_recovered, NULL, COUNT, "clients that the daemon before had"),
        STATUS(clients_resumed, NULL, COUNT, "of them those that came back"),
        STATUS(clients_waiting, NULL, COUNT, "of them those that are waited for now"),
        STATUS(clients_expired, NULL, COUNT,
                "of them those that ended first, or weren't taken over"),
        STATUS(clients_lost, NULL, COUNT,
                "of clients_expired those that weren't taken over, as kvleased had died more than "
                "once serving them"),
        STATUS(tenants_without_room, NULL, COUNT,
                "tenants that can lease no page, as limits and reservations are"),
        STATUS(no_room, NULL, TEXT, "why one of them can't, and what helps"),
        STATUS(tenants_refused, NULL, COUNT,
                "tenants whose new clients are refused, as kvleased died serving theirs"),
        STATUS(deaths, NULL, COUNT,
                "kvleaseds before this one that ended without a word in the last hour"),
        STATUS(deaths_for_memory, NULL, COUNT,
                "of deaths those while which the kernel killed processes for want of memory"),
        STATUS(memory_excess, NULL, TEXT,
                "why kvleased's control group can't hold all memory that may be leased; empty: it "
                "can"),
        STATUS(ready_msec, NULL, COUNT, "milliseconds from its start until it served"),
};

const struct column_table status_table = {"status", status_columns, ARRAY_SIZE(status_columns)};
