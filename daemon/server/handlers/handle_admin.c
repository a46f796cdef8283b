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
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/reclaim/stock.h"
#include "daemon/core/state/culprit.h"
#include "daemon/core/sessions/session.h"
#include "daemon/remote/store/remote.h"
#include "daemon/server/handlers/admin-handlers.h"
#include "daemon/server/handlers/tier-figures.h"
#include "daemon/server/handlers/client-handlers.h"
#include "daemon/server/peers/keeping.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/tenancy.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/services/devices.h"
#include "daemon/server/services/remotes.h"
#include "daemon/server/config/config-warn.h"
#include "daemon/server/peers/descriptors.h"
#include "daemon/server/base/log.h"
#include "daemon/server/services/tenant-changes.h"
#include "daemon/server/services/tenant-room.h"
#include "daemon/server/peers/checks.h"
#include "daemon/server/peers/durable.h"
#include "daemon/server/peers/followers.h"
#include "kvlease-version.h"
#include "policy/expect.h"
#include "proto/kvlease.pb-c.h"

static void count_peers(const struct server *s, Kvlease__V1__AdminStatusReply *reply)
{
        list_for_each (p, &s->peers.list, struct peer, links.all) {
                reply->n_clients += p->member != NULL;
                reply->peers_muted += p->muted;
                if (ring_is_open(&p->ring)) {
                        reply->n_sharing++;
                        reply->touches_dropped += ring_touches_dropped(&p->ring);
                }
                reply->members_waiting_exit += peer_is_waiting(p);
                reply->peers_held += p->held;
                reply->peers_new += p->state == PEER_NEW || p->state == PEER_AUTH;
        }
}

static void count_overload(const struct server *s, Kvlease__V1__AdminStatusReply *reply)
{
        reply->pending_bytes = s->peers.pending_bytes;
        reply->max_pending_bytes = s->config.daemon.max_pending_bytes;
        reply->pending_overflows = s->peers.n_overflows;
        list_for_each (t, &s->tenancies.list, struct tenancy, link) {
                reply->tenants_paused += t->turns.paused;
                reply->tenants_refused +=
                        culprit_is_tenant(&s->store, t->tenant->mark, server_now(s));
                reply->connects_refused += t->turns.n_refused;
        }
}

static void count_policy(const struct ns *ns, Kvlease__V1__AdminStatusReply *reply)
{
        struct evict_usage usage;

        evict_usage(ns->evict, ns->policy, &usage);
        reply->policy_page_bytes += usage.page_bytes;
        reply->policy_ghost_bytes += usage.ghost_bytes;
        reply->policy_table_bytes += usage.table_bytes;
        reply->policy_ghosts += usage.ghosts;
        reply->policy_ghost_limit_bytes += usage.ghost_limit_bytes;
}

static void count_pages(const struct server *s, Kvlease__V1__AdminStatusReply *reply)
{
        list_for_each (t, &s->store.tenants, struct tenant, link) {
                reply->n_tenants++;
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        reply->n_namespaces++;
                        reply->n_sessions += sessions_count(ns);
                        reply->pages_free +=
                                ns->device.n_pages[PAGE_FREE] + ns->device.n_pages[PAGE_MOVING];
                        reply->pages_granted +=
                                ns->device.n_pages[PAGE_GRANTED] - ns->clients.n_ready;
                        reply->pages_ready += ns->clients.n_ready;
                        reply->pages_sealed += ns->device.n_pages[PAGE_SEALED];
                        reply->pages_detached += ns->device.n_pages[PAGE_DETACHED];
                        reply->pages_pinned += ns_find_pinned(ns, NULL, NULL);
                        reply->pages_expected += expect_count_pages(ns->expect);
                        reply->pages_promoted += ns->device.n_arrived;
                        count_policy(ns, reply);
                }
        }
}

static void count_sets(const struct server *s, Kvlease__V1__AdminStatusReply *reply)
{
        list_for_each (t, &s->store.tenants, struct tenant, link)
                list_for_each (set, &t->nssets, struct nsset, link) {
                        reply->n_ns_sets++;
                        reply->set_keys_complete += set->n_complete;
                        reply->set_keys_incomplete += set->n_incomplete;
                }
}

/* Counts waiting leases, and past leases of existing tenants that waited, or got less than they
 * asked for. */
static void count_leases(const struct server *s, Kvlease__V1__AdminStatusReply *reply)
{
        list_for_each (a, &s->store.waits.leases, struct attach, wait.link)
                reply->n_waiting++;
        list_for_each (t, &s->store.tenants, struct tenant, link) {
                reply->leases_waited += t->counters.waits;
                reply->leases_degraded += t->counters.degraded;
        }
}

#define SEGMENTS_TEXT_MAX 128

/* The default file need not exist. */
static char *config_file(const struct server *s)
{
        if (s->source.file)
                return (char *)s->source.file;
        if (s->config.has_file)
                return (char *)CONFIG_DEFAULT_FILE;
        return (char *)(s->config.files.n > 1 ? "none (" CONFIG_DEFAULT_FILE ".d alone)"
                                              : "none (built-in defaults)");
}

/* Formats "memfd (Operation not permitted)": with the reason if the better way isn't used. */
static char *segment_guard_text(struct request *rq)
{
        const struct segment_room *room = &rq->server->store.room;
        const char *name = segment_guard_name(room->guard);
        char *text = arena_alloc(&rq->server->scratch.arena, SEGMENTS_TEXT_MAX);

        if (!text || room->why == 0)
                return (char *)name;
        snprintf(text, SEGMENTS_TEXT_MAX, "%s (%s)", name, strerror(-room->why));
        return text;
}

/* Fills in the recovery from the previous daemon. */
static void tell_recovery(const struct server *s, Kvlease__V1__AdminStatusReply *reply)
{
        const struct recovery *r = &s->life.recovery;

        reply->deaths = lives_count(&s->rundir.lives, false);
        reply->deaths_for_memory = lives_count(&s->rundir.lives, true);
        reply->ready_msec = (s->life.ready_nsec - s->life.start_nsec) / NSEC_PER_MSEC;
        reply->took_over = s->life.took_over;
        if (!s->life.took_over)
                return;
        reply->recovered_pages = r->n_pages;
        reply->recovered_namespaces = r->n_namespaces;
        reply->recovered_sessions = r->n_sessions;
        reply->namespaces_lost = r->n_lost;
        reply->pages_lost_checksum = r->n_dropped[DROP_CHECKSUM];
        reply->pages_lost_parent = r->n_dropped[DROP_PARENT];
        reply->pages_lost_duplicate = r->n_dropped[DROP_DUPLICATE];
        reply->pages_lost_index = r->n_dropped[DROP_INDEX];
        reply->clients_recovered = r->n_clients;
        reply->clients_resumed = s->peers.n_resumed;
        reply->clients_waiting = s->peers.n_adopted;
        reply->clients_expired = r->n_clients - s->peers.n_resumed - s->peers.n_adopted;
        reply->clients_lost = r->n_culprits;
}

/* NULL: no memory. */
static Kvlease__V1__AdminRemote *make_remote(struct request *rq, const char *name)
{
        struct arena *arena = &rq->server->scratch.arena;
        Kvlease__V1__AdminRemote *m = arena_alloc(arena, sizeof(*m));
        struct remote_store *store = remotes_find(rq->server, name);
        struct remote_summary *sum = arena_alloc(arena, sizeof(*sum));

        if (!m || !sum)
                return NULL;
        kvlease__v1__admin_remote__init(m);
        m->name = (char *)name;
        m->state = (char *)"not-open";
        if (!store)
                return m;
        remote_summary(store, sum);
        m->state = (char *)remote_state_name(sum->state);
        m->n_nodes = sum->n_nodes;
        m->n_nodes_open = sum->n_left_alone;
        m->node = sum->left_alone;
        if (sum->last_error < 0)
                m->error = (char *)remote_error_text(sum->last_error);
        return m;
}

/* 0 or -ENOMEM. */
static int tell_remotes(struct request *rq, Kvlease__V1__AdminStatusReply *reply)
{
        const struct config *c = &rq->server->config;

        reply->remotes =
                arena_alloc(&rq->server->scratch.arena, CONFIG_REMOTES_MAX * sizeof(void *));
        for (size_t i = 0; reply->remotes && i < c->n_remotes; i++) {
                reply->remotes[i] = make_remote(rq, c->remotes[i].name);
                if (!reply->remotes[i])
                        return -ENOMEM;
                reply->n_remotes++;
        }
        return reply->remotes ? 0 : -ENOMEM;
}

/* NULL: no memory. */
static Kvlease__V1__AdminTurn *make_turn(
        struct arena *arena, const struct turn_record *r, uint64_t now_nsec)
{
        Kvlease__V1__AdminTurn *m = arena_alloc(arena, sizeof(*m));
        struct timespec t;

        if (!m)
                return NULL;
        kvlease__v1__admin_turn__init(m);
        clock_gettime(CLOCK_REALTIME, &t);
        m->time_msec = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / NSEC_PER_MSEC -
                       (now_nsec - r->at_nsec) / NSEC_PER_MSEC;
        m->nsec = r->nsec;
        m->what = (char *)(r->what ? r->what : "");
        m->what_nsec = r->what_nsec;
        m->tenant = (char *)r->tenant;
        return m;
}

/* 0 or -ENOMEM. */
static int tell_turns(struct request *rq, Kvlease__V1__AdminStatusReply *reply)
{
        const struct turn_watch *w = &rq->server->turn_watch;
        struct arena *arena = &rq->server->scratch.arena;
        uint64_t now = clock_now_nsec();
        const struct turn_record *r;

        reply->longest_turns = arena_alloc(arena, TURNS_LONGEST * sizeof(void *));
        reply->recent_turns = arena_alloc(arena, TURNS_RECENT * sizeof(void *));
        if (!reply->longest_turns || !reply->recent_turns)
                return -ENOMEM;
        for (size_t i = 0; i < TURNS_LONGEST && w->longest[i].at_nsec > 0; i++) {
                reply->longest_turns[i] = make_turn(arena, &w->longest[i], now);
                if (!reply->longest_turns[i])
                        return -ENOMEM;
                reply->n_longest_turns++;
        }
        for (size_t i = 0; (r = turn_watch_recent(w, i, now)); i++) {
                reply->recent_turns[i] = make_turn(arena, r, now);
                if (!reply->recent_turns[i])
                        return -ENOMEM;
                reply->n_recent_turns++;
        }
        return 0;
}

/* False: no memory. */
static bool tell_text(struct request *rq, const struct detail *d, char **ret)
{
        *ret = arena_strdup(&rq->server->scratch.arena, d->text);
        return *ret;
}

static bool tell_small_tenants(struct request *rq, Kvlease__V1__AdminStatusReply *reply)
{
        struct detail d;

        reply->tenants_without_room = tenant_room_count_small(rq->server, &d);
        return reply->tenants_without_room == 0 || tell_text(rq, &d, &reply->no_room);
}

/* Its limit may change while the daemon runs. */
static bool tell_excess(struct request *rq, Kvlease__V1__AdminStatusReply *reply)
{
        struct detail d;

        return !config_exceeds_cgroup(devices_host_bytes(rq->server), &d) ||
               tell_text(rq, &d, &reply->memory_excess);
}

static uint64_t pid_namespace(void)
{
        struct stat st;

        return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

int handle_ADMIN_STATUS(struct request *rq)
{
        struct server *s = rq->server;
        const struct store_counters *c = &s->store.counters;
        Kvlease__V1__AdminStatusReply *reply = rq->reply;

        if (tier_figures_of_store(&s->scratch.arena, &s->store, TIER_HOST, &reply->host) < 0 ||
                tier_figures_of_store(&s->scratch.arena, &s->store, TIER_DISK, &reply->disk) < 0 ||
                tell_remotes(rq, reply) < 0 || tell_turns(rq, reply) < 0 ||
                !tell_small_tenants(rq, reply) || !tell_excess(rq, reply))
                return detail_set(&rq->detail, -ENOMEM, "no memory for the answer");
        reply->daemon_version = (char *)KVLEASE_VERSION;
        reply->pid = (uint64_t)getpid();
        reply->pid_namespace = pid_namespace();
        reply->uptime_sec = (clock_now_nsec() - s->life.start_nsec) / NSEC_PER_SEC;
        reply->boot_epoch = s->store.boot_epoch;
        reply->longest_turn_nsec = s->turn_watch.longest_nsec;
        reply->draining = s->store.draining;
        reply->options_pending = s->n_options_pending;
        reply->options_unknown = (uint32_t)s->db.unknown.n;
        count_peers(s, reply);
        count_pages(s, reply);
        count_leases(s, reply);
        count_overload(s, reply);
        list_for_each (pool, &s->store.pools, struct pool, link) {
                reply->budget_bytes += pool->account.limit_bytes;
                reply->charged_bytes += pool->account.charged_bytes;
        }
        reply->lookups = c->lookups;
        reply->lookup_keys = c->lookup_keys;
        reply->lookup_hits = c->lookup_hits;
        reply->publishes = c->publishes;
        reply->duplicates = c->duplicates;
        reply->evictions = c->evictions;
        reply->leases_refused = c->leases_refused;
        reply->unindexed = c->unindexed;
        reply->fragmentation = compact_figure(&s->store);
        reply->compacted_pages = c->compacted_pages;
        reply->compacted_sets = c->compacted_sets;
        reply->announced = c->announced;
        reply->announces_pending = c->announces_pending;
        reply->expected = c->expected.received;
        reply->expected_fulfilled = c->expected.fulfilled;
        reply->expected_expired = c->expected.expired;
        reply->expected_dropped = c->expected.dropped;
        count_sets(s, reply);
        reply->pages_ahead = stock_figure(&s->store);
        reply->pages_expired = c->pages_expired;
        reply->sessions_expired = c->sessions_expired;
        reply->recording = s->recorder.on;
        reply->recording_lost = s->recorder.n_lost;
        reply->recording_trouble = s->recorder.trouble;
        reply->violations = s->peers.n_violations;
        reply->kept_fds = keeping_count(s);
        reply->kept_max = s->keeping.max;
        reply->kept_released = s->keeping.n_released;
        reply->kept_needed = keeping_is_on(&s->keeping) ? descriptors_kept_needed(s) : 0;
        reply->open_files_needed = descriptors_needed(s);
        reply->open_files_max = descriptors_limit();
        tell_recovery(s, reply);
        reply->segments = segment_guard_text(rq);
        reply->config_file = config_file(s);
        reply->runtime_dir = s->config.daemon.runtime_dir;
        reply->state_dir = s->config.daemon.state_dir;
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
