/* Administration: status, tenants, purge, check. */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/core.h"
#include "daemon/core/life/sizing.h"
#include "daemon/core/state/feed.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/reclaim/prealloc.h"
#include "daemon/core/state/suspect.h"
#include "daemon/core/sessions/session.h"
#include "daemon/remote/io/remote-io.h"
#include "daemon/server/handlers/list-page.h"
#include "daemon/server/handlers/tier-figures.h"
#include "daemon/server/peers/keeping.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/services/devices.h"
#include "daemon/server/services/remotes.h"
#include "daemon/server/config/config.h"
#include "daemon/server/peers/descriptors.h"
#include "daemon/server/base/log.h"
#include "daemon/server/services/tenant-changes.h"
#include "daemon/server/services/tenants.h"
#include "daemon/server/peers/checks.h"
#include "daemon/server/peers/durable.h"
#include "daemon/server/peers/followers.h"
#include "kvlease-version.h"
#include "policy/expect.h"
#include "proto/kvlease.pb-c.h"

static void count_peers(const struct server *s, struct figures_status *row)
{
        list_for_each (p, &s->peers.list, struct peer, links.all) {
                row->n_clients += p->member != NULL;
                row->peers_muted += p->muted;
                if (ring_is_open(&p->ring)) {
                        row->n_sharing++;
                        row->touches_dropped += ring_touches_dropped(&p->ring);
                }
                row->members_waiting_exit += peer_is_waiting(p);
                row->peers_held += p->held;
                row->peers_new += p->state == PEER_NEW || p->state == PEER_AUTH;
        }
}

static void count_overload(const struct server *s, struct figures_status *row)
{
        row->pending_bytes = s->peers.pending_bytes;
        row->max_pending_bytes = s->config.daemon.max_pending_bytes;
        row->pending_overflows = s->peers.n_overflows;
        list_for_each (t, &s->tenancies.list, struct tenancy, link) {
                row->tenants_paused += t->turns.paused;
                row->tenants_refused +=
                        suspect_is_tenant(&s->store, t->tenant->mark, server_now(s));
                row->connects_refused += t->turns.n_refused;
        }
}

static void count_policy(const struct ns *ns, struct figures_status *row)
{
        struct evict_usage usage;

        evict_usage(ns->evict, ns->policy, &usage);
        row->policy_page_bytes += usage.page_bytes;
        row->policy_ghost_bytes += usage.ghost_bytes;
        row->policy_table_bytes += usage.table_bytes;
        row->policy_ghosts += usage.ghosts;
        row->policy_ghost_limit_bytes += usage.ghost_limit_bytes;
}

static void count_pages(const struct server *s, struct figures_status *row)
{
        list_for_each (t, &s->store.tenants, struct tenant, link) {
                row->n_tenants++;
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        row->n_namespaces++;
                        row->n_sessions += sessions_count(ns);
                        row->pages_free +=
                                ns->device.n_pages[PAGE_FREE] + ns->device.n_pages[PAGE_MOVING];
                        row->pages_granted +=
                                ns->device.n_pages[PAGE_GRANTED] - ns->clients.n_ready;
                        row->pages_ready += ns->clients.n_ready;
                        row->pages_sealed += ns->device.n_pages[PAGE_SEALED];
                        row->pages_detached += ns->device.n_pages[PAGE_DETACHED];
                        row->pages_pinned += ns_find_pinned(ns, NULL, NULL);
                        row->pages_expected += expect_count_pages(ns->expect);
                        row->pages_promoted += ns->device.n_arrived;
                        count_policy(ns, row);
                }
        }
}

static void count_sets(const struct server *s, struct figures_status *row)
{
        list_for_each (t, &s->store.tenants, struct tenant, link)
                list_for_each (set, &t->nssets, struct nsset, link) {
                        row->n_ns_sets++;
                        row->set_keys_complete += set->n_complete;
                        row->set_keys_incomplete += set->n_incomplete;
                }
}

/* Counts waiting leases, and past leases of existing tenants that waited, or got less than they
 * asked for. */
static void count_leases(const struct server *s, struct figures_status *row)
{
        list_for_each (a, &s->store.waits.leases, struct attach, wait.link)
                row->n_waiting++;
        list_for_each (t, &s->store.tenants, struct tenant, link) {
                row->leases_waited += t->counters.waits;
                row->leases_degraded += t->counters.degraded;
        }
}

#define SEGMENTS_TEXT_MAX 128

/* The default file need not exist. */
static const char *config_file(const struct server *s)
{
        if (s->source.file)
                return s->source.file;
        if (s->config.has_file)
                return CONFIG_DEFAULT_FILE;
        return (s->config.files.n > 1 ? "none (" CONFIG_DEFAULT_FILE ".d alone)"
                                      : "none (built-in defaults)");
}

/* Formats "memfd (Operation not permitted)": with the reason if the better way isn't used. */
static const char *segment_guard_text(struct request *rq)
{
        const struct segment_room *room = &rq->server->store.room;
        const char *name = segment_guard_name(room->guard);
        char *text = arena_alloc(&rq->server->scratch.arena, SEGMENTS_TEXT_MAX);

        if (!text || room->why == 0)
                return name;
        snprintf(text, SEGMENTS_TEXT_MAX, "%s (%s)", name, strerror(-room->why));
        return text;
}

/* Fills in the recovery from the previous daemon. */
static void tell_recovery(const struct server *s, struct figures_status *row)
{
        const struct recovery *r = &s->life.recovery;

        row->deaths = lives_count(&s->rundir.lives, false);
        row->deaths_for_memory = lives_count(&s->rundir.lives, true);
        row->ready_msec = (s->life.ready_nsec - s->life.start_nsec) / NSEC_PER_MSEC;
        row->took_over = s->life.took_over;
        if (!s->life.took_over)
                return;
        row->recovered_pages = r->n_pages;
        row->recovered_namespaces = r->n_namespaces;
        row->recovered_sessions = r->n_sessions;
        row->namespaces_lost = r->n_lost;
        row->pages_lost_checksum = r->n_dropped[DROP_CHECKSUM];
        row->pages_lost_parent = r->n_dropped[DROP_PARENT];
        row->pages_lost_duplicate = r->n_dropped[DROP_DUPLICATE];
        row->pages_lost_index = r->n_dropped[DROP_INDEX];
        row->clients_recovered = r->n_clients;
        row->clients_resumed = s->peers.n_resumed;
        row->clients_waiting = s->peers.n_adopted;
        row->clients_expired = r->n_clients - s->peers.n_resumed - s->peers.n_adopted;
        row->clients_lost = r->n_suspects;
}

static void tell_remote(struct request *rq, const char *name, struct figures_remote *m)
{
        struct remote_store *store = remotes_find(rq->server, name);
        struct remote_summary sum;

        figures_init(&figures_table_remote, m);
        m->name = name;
        m->state = "not-open";
        if (!store)
                return;
        remote_summary(store, &sum);
        m->state = remote_state_name(sum.state);
        m->n_nodes = sum.n_nodes;
        m->n_nodes_open = sum.n_left_alone;
        m->node = arena_strdup(&rq->server->scratch.arena, sum.left_alone);
        if (*remote_summary_why(&sum))
                m->error = arena_strdup(&rq->server->scratch.arena, remote_summary_why(&sum));
}

/* 0 or -ENOMEM. */
static int tell_remotes(struct request *rq, struct figures_status *row)
{
        const struct config *c = &rq->server->config;
        struct figures_remote *remotes =
                arena_alloc(&rq->server->scratch.arena, CONFIG_REMOTES_MAX * sizeof(*remotes));

        for (size_t i = 0; remotes && i < c->n_remotes; i++) {
                tell_remote(rq, c->remotes[i].name, &remotes[i]);
                if (!remotes[i].node)
                        return -ENOMEM;
        }
        row->remotes = remotes;
        row->n_remotes = c->n_remotes;
        return remotes ? 0 : -ENOMEM;
}

static struct figures_turn make_turn(const struct turn_record *r, uint64_t now_nsec)
{
        struct timespec t;

        clock_gettime(CLOCK_REALTIME, &t);
        return (struct figures_turn){.time_msec = (uint64_t)t.tv_sec * 1000 +
                                                  (uint64_t)t.tv_nsec / NSEC_PER_MSEC -
                                                  (now_nsec - r->at_nsec) / NSEC_PER_MSEC,
                .nsec = r->nsec,
                .what = r->what,
                .what_nsec = r->what_nsec,
                .tenant = r->tenant[0] ? r->tenant : NULL};
}

/* 0 or -ENOMEM. */
static int tell_turns(struct request *rq, struct figures_status *row)
{
        const struct turn_watch *w = &rq->server->turn_watch;
        struct arena *arena = &rq->server->scratch.arena;
        struct figures_turn *longest = arena_alloc(arena, TURNS_LONGEST * sizeof(*longest));
        struct figures_turn *recent = arena_alloc(arena, TURNS_RECENT * sizeof(*recent));
        uint64_t now = clock_now_nsec();
        const struct turn_record *r;

        if (!longest || !recent)
                return -ENOMEM;
        for (size_t i = 0; i < TURNS_LONGEST && w->longest[i].at_nsec > 0; i++)
                longest[row->n_longest_turns++] = make_turn(&w->longest[i], now);
        for (size_t i = 0; (r = turn_watch_recent(w, i, now)); i++)
                recent[row->n_recent_turns++] = make_turn(r, now);
        row->longest_turns = longest;
        row->recent_turns = recent;
        return 0;
}

/* False: no memory. */
static bool tell_text(struct request *rq, const struct detail *d, const char **ret)
{
        *ret = arena_strdup(&rq->server->scratch.arena, d->text);
        return *ret;
}

static bool tell_small_tenants(struct request *rq, struct figures_status *row)
{
        struct detail d;

        row->tenants_without_room = tenant_room_count_small(rq->server, &d);
        return row->tenants_without_room == 0 || tell_text(rq, &d, &row->no_room);
}

static bool tell_missing_events(struct request *rq, struct figures_status *row)
{
        struct detail d;

        list_for_each (t, &rq->server->store.tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link)
                        row->namespaces_without_events += feed_is_missing(
                                ns, row->namespaces_without_events == 0 ? &d : NULL);
        return row->namespaces_without_events == 0 || tell_text(rq, &d, &row->no_events);
}

/* Its limit may change while the daemon runs. */
static bool tell_excess(struct request *rq, struct figures_status *row)
{
        struct detail d;

        return !config_exceeds_cgroup(devices_host_bytes(rq->server), &d) ||
               tell_text(rq, &d, &row->memory_excess);
}

static uint64_t pid_namespace(void)
{
        struct stat st;

        return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

static int make_status(struct request *rq, void *object, void *ret)
{
        struct server *s = rq->server;
        const struct store_counters *c = &s->store.counters;
        struct figures_status *row = ret;

        if (tier_figures_of_store(&s->scratch.arena, &s->store, row) < 0 ||
                tell_remotes(rq, row) < 0 || tell_turns(rq, row) < 0 ||
                !tell_small_tenants(rq, row) || !tell_missing_events(rq, row) ||
                !tell_excess(rq, row))
                return detail_set(&rq->detail, -ENOMEM, "no memory for the answer");
        row->daemon_version = KVLEASE_VERSION;
        row->pid = (uint64_t)getpid();
        row->pid_namespace = pid_namespace();
        row->uptime_sec = (clock_now_nsec() - s->life.start_nsec) / NSEC_PER_SEC;
        row->boot_epoch = s->store.boot_epoch;
        row->longest_turn_nsec = s->turn_watch.longest_nsec;
        row->draining = s->store.draining;
        row->options_pending = s->n_options_pending;
        row->options_unknown = s->db.unknown.n;
        count_peers(s, row);
        count_pages(s, row);
        count_leases(s, row);
        count_overload(s, row);
        list_for_each (pool, &s->store.pools, struct pool, link) {
                row->budget_bytes += pool->account.limit_bytes;
                row->charged_bytes += pool->account.charged_bytes;
        }
        row->lookups = c->lookups;
        row->lookup_keys = c->lookup_keys;
        row->lookup_hits = c->lookup_hits;
        row->publishes = c->publishes;
        row->duplicates = c->duplicates;
        row->evictions = c->evictions;
        row->leases_refused = c->leases_refused;
        row->unindexed = c->unindexed;
        row->fragmentation = compact_figure(&s->store);
        row->compacted_pages = c->compacted_pages;
        row->compacted_sets = c->compacted_sets;
        row->announced = c->announced;
        row->announces_pending = c->announces_pending;
        row->expected = c->expected.received;
        row->expected_fulfilled = c->expected.fulfilled;
        row->expected_expired = c->expected.expired;
        row->expected_dropped = c->expected.dropped;
        count_sets(s, row);
        row->pages_ahead = prealloc_figure(&s->store);
        row->pages_expired = c->pages_expired;
        row->sessions_expired = c->sessions_expired;
        row->recording = s->recorder.on;
        row->recording_lost = s->recorder.n_lost;
        row->recording_trouble = s->recorder.trouble;
        row->violations = s->peers.n_violations;
        row->kept_fds = keeping_count(s);
        row->kept_max = s->keeping.max;
        row->kept_released = s->keeping.n_released;
        row->kept_needed = keeping_is_on(&s->keeping) ? descriptors_kept_needed(s) : 0;
        row->open_files_needed = descriptors_needed(s);
        row->open_files_max = descriptors_limit();
        tell_recovery(s, row);
        row->segments = segment_guard_text(rq);
        row->config_file = config_file(s);
        row->runtime_dir = s->config.daemon.runtime_dir;
        row->state_dir = s->config.daemon.state_dir;
        return 0;
}

int handle_ADMIN_STATUS(struct request *rq)
{
        struct rows rows = rows_begin(rq);

        rows_add(&rows, 1, NULL);
        return rows_fill_page(&rows, make_status, &figures_table_status);
}

int handle_ADMIN_PROCESS(struct request *rq)
{
        Kvlease__V1__AdminProcessReply *reply = rq->reply;
        struct figures_status row = {0};

        count_peers(rq->server, &row);
        count_pages(rq->server, &row);
        reply->pages_sealed = row.pages_sealed;
        reply->pid = (uint64_t)getpid();
        reply->pid_namespace = pid_namespace();
        reply->n_clients = (uint32_t)row.n_clients;
        reply->members_waiting_exit = row.members_waiting_exit;
        return 0;
}

int handle_ADMIN_TENANT_SET(struct request *rq)
{
        return tenant_changes_ask(rq);
}

int handle_ADMIN_TENANT_REMOVE(struct request *rq)
{
        int r = durable_check(rq);

        return r < 0 ? r : tenant_changes_ask(rq);
}

int handle_ADMIN_PURGE(struct request *rq)
{
        const Kvlease__V1__AdminPurgeRequest *m = rq->message;
        Kvlease__V1__CountReply *reply = rq->reply;
        struct tenant *t;
        struct ns *ns;
        int r = request_tenant_ns(rq, m->tenant, m->ns, &t, &ns);

        if (r == 0)
                r = durable_check(rq);
        if (r < 0)
                return r;
        r = store_purge(&rq->server->store, t, ns, m->remove, &reply->count, &reply->kept);
        loop_kick(&rq->server->loop);
        return r == 0 ? durable_answer(rq) : r;
}

int handle_ADMIN_CHECK(struct request *rq)
{
        return checks_ask(rq);
}
