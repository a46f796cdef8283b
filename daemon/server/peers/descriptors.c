#include "daemon/server/peers/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

#include "base/fd.h"
#include "base/macros.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/life/idle.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/region.h"
#include "daemon/server/peers/keeper.h"
#include "daemon/server/peers/keeping.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/listener.h"
#include "daemon/server/base/fd-parts.h"
#include "daemon/server/base/log.h"

#define PER_STRANGER    2 /* of a connection without a tenant: its socket, its process */
#define KEPT_PER_CLIENT 2 /* its process, its ring */
#define KEPT_PER_NS     4 /* records, index, its reader's, the log of sessions */
#define PER_FEED        2 /* of a namespace's events, open and kept: the daemon's, the followers' */
#define KEPT_OF_DAEMON  2 /* the root, the tables of clients */

/* Descriptors of an attachment: its pin segment; and, if they are stored, the pins taken over the
 * socket. */
#define PER_ATTACHMENT      1
#define KEPT_PER_ATTACHMENT 2

/* Part 1/n of a tenant's part stays free of extents, for connections up to its max_clients. Not
 * tuned. */
#define CLIENTS_PART 8

/* Idle namespaces removed for a new one. Not tuned. */
#define IDLE_AT_ONCE 8

/* In struct tenancy.descriptors_refused. */
enum { REFUSED_CONNECTIONS, REFUSED_NAMESPACES, REFUSED_EXTENTS };

/* Descriptors of a client: its socket and its process; its ring, too, if it is stored for the next
 * daemon. */
static uint64_t per_client(const struct server *s)
{
        return keeping_is_on(&s->keeping) ? 3 : 2;
}

/* Descriptors of a namespace: two of its index segment (the daemon's, the readers'). If they are
 * stored for the next daemon, also those of its records and of its sessions' log. */
static uint64_t per_ns(const struct server *s)
{
        return keeping_is_on(&s->keeping) ? 4 : 2;
}

/* Behind a queue an extent is exported once, for its lifetime; host memory is a file besides. */
static uint64_t per_extent(const struct pool *pool)
{
        return pool->queue && pool->props->is_cpu_memory ? 2 : 1;
}

uint64_t descriptors_limit(void)
{
        struct rlimit limit;

        return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : UINT64_MAX;
}

void descriptors_raise_limit(void)
{
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
                limit.rlim_cur = limit.rlim_max;
                if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
                        log_warning("cannot raise the limit of open files: %s", strerror(errno));
        }
}

/* Connections to stores that hosts share: as many as these have nodes. */
static uint64_t count_remotes(const struct server *s)
{
        return s->services.remotes.n_descriptors;
}

/* Counts listeners; the loop's own descriptors and the locks are part of the reserve. */
static uint64_t count_listeners(const struct server *s)
{
        uint64_t n = 2;

        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                n++;
        return n;
}

/* Sets on a disk have none. */
static uint64_t most_extents(const struct pool *pool)
{
        return pool->tier == TIER_DISK ? 0 : pool->account.limit_bytes / pool->extent_bytes;
}

uint64_t descriptors_needed(const struct server *s)
{
        uint64_t n = DESCRIPTORS_RESERVE + count_listeners(s) + count_remotes(s) +
                     per_client(s) * (uint64_t)s->config.daemon.max_clients;

        store_for_each_pool (pool, &s->store)
                n += per_extent(pool) * most_extents(pool);
        return n;
}

uint64_t descriptors_kept_needed(const struct server *s)
{
        uint64_t n = count_listeners(s) + KEPT_PER_CLIENT * (uint64_t)s->config.daemon.max_clients;

        store_for_each_pool (pool, &s->store)
                n += most_extents(pool);
        return n;
}

/* ---- parts of tenants ------------------------------------------------------------------------ */

/* Descriptors by budget. */
struct count {
        uint64_t n[N_DESCRIPTORS];
};

static void add_times(struct count *to, uint64_t times, uint64_t open, uint64_t kept)
{
        to->n[DESCRIPTORS_OPEN] += times * open;
        to->n[DESCRIPTORS_KEPT] += times * kept;
}

static void add_connections(const struct server *s, uint64_t n, struct count *to)
{
        add_times(to, n, per_client(s), KEPT_PER_CLIENT);
}

static void add_namespaces(const struct server *s, uint64_t n, struct count *to)
{
        add_times(to, n, per_ns(s), KEPT_PER_NS);
}

static void add_feeds(uint64_t n, struct count *to)
{
        add_times(to, n, PER_FEED, PER_FEED);
}

static void add_attachments(uint64_t n, struct count *to)
{
        add_times(to, n, PER_ATTACHMENT, KEPT_PER_ATTACHMENT);
}

static void add_extents(const struct pool *pool, uint64_t n, struct count *to)
{
        add_times(to, n, per_extent(pool), pool->props->survives_restart);
}

static struct count count_tenant(const struct tenancy *t)
{
        struct count c = {{0}};

        add_connections(t->server, t->n_peers, &c);
        add_namespaces(t->server, t->tenant->n_namespaces, &c);
        add_feeds(t->tenant->n_feeds, &c);
        add_attachments(t->tenant->n_attachments, &c);
        list_for_each (s, &t->tenant->shares, struct pool_share, tenant_link)
                add_extents(s->pool, s->n_extents, &c);
        return c;
}

/* Budget for tenants, and for connections without a tenant. */
static uint64_t room_of(const struct server *s, enum descriptors_kind kind)
{
        uint64_t own = count_listeners(s);

        if (kind == DESCRIPTORS_OPEN)
                return minus_u64(descriptors_limit(), own + count_remotes(s) + DESCRIPTORS_RESERVE);
        own += KEPT_OF_DAEMON;
        list_for_each (pool, &s->store.pools, struct pool, link)
                own += MAX(pool->props->n_members, 1u); /* its canaries */
        return keeping_is_on(&s->keeping) ? minus_u64(keeper_room(s->keeping.keeper), own)
                                          : UINT32_MAX;
}

static uint64_t reserved_bytes(const struct tenant *t)
{
        uint64_t bytes = 0;

        list_for_each (s, &t->shares, struct pool_share, tenant_link)
                bytes += s->reserve_bytes;
        return bytes;
}

/* Both budgets, and the tenant's part of them. */
struct parts {
        struct fd_room rooms[N_DESCRIPTORS];
        struct fd_part part[N_DESCRIPTORS];
};

/* Counts descriptors in use without a tenant: connections, and extents of freed sets that the
 * device hasn't returned yet. */
static void count_nobodys(const struct server *s, struct fd_room *rooms)
{
        uint64_t n_peers = 0, n_extents = 0, n_kept;

        list_for_each (t, &s->tenancies.list, struct tenancy, link) {
                n_peers += t->n_peers;
                list_for_each (share, &t->tenant->shares, struct pool_share, tenant_link)
                        n_extents += share->pool->props->survives_restart ? share->n_extents : 0;
        }
        rooms[DESCRIPTORS_OPEN].nobodys = PER_STRANGER * (s->peers.n_peers - n_peers);
        n_kept = keeping_is_on(&s->keeping) ? keeper_count_extents(s->keeping.keeper) : 0;
        rooms[DESCRIPTORS_KEPT].nobodys = minus_u64(n_kept, n_extents);
}

static struct parts look_at_parts(const struct tenancy *of)
{
        const struct server *s = of->server;
        uint64_t n_tenants = 0, memory_bytes = 0;
        struct parts p = {0};

        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                n_tenants++;
        list_for_each (pool, &s->store.pools, struct pool, link)
                memory_bytes += pool->account.limit_bytes;
        for (unsigned i = 0; i < N_DESCRIPTORS; i++)
                p.rooms[i].max = room_of(s, (enum descriptors_kind)i);
        count_nobodys(s, p.rooms);
        list_for_each (t, &s->tenancies.list, struct tenancy, link) {
                struct count c = count_tenant(t);

                for (unsigned i = 0; i < N_DESCRIPTORS; i++) {
                        const struct fd_part part = {.used = c.n[i],
                                .sure = fd_part_sure(p.rooms[i].max, n_tenants,
                                        reserved_bytes(t->tenant), memory_bytes)};

                        fd_room_add(&p.rooms[i], &part);
                        if (t == of)
                                p.part[i] = part;
                }
        }
        return p;
}

struct descriptors_part descriptors_of(const struct tenancy *t, enum descriptors_kind kind)
{
        struct parts p = look_at_parts(t);

        return (struct descriptors_part){
                .used = p.part[kind].used,
                .sure = p.part[kind].sure,
                .limit = fd_part_limit(&p.rooms[kind], &p.part[kind]),
        };
}

static int explain_limit(const struct tenancy *t, enum descriptors_kind kind, uint64_t limit,
        const struct fd_part *part, uint64_t n, struct detail *d)
{
        const char *name = t->config.name;

        if (kind == DESCRIPTORS_OPEN)
                return detail_set(d, -EMFILE,
                        "kvleased may have %llu open files, tenant %s %llu of them now: it has "
                        "%llu, and this takes %llu; end clients, drop unused namespaces "
                        "(kvleasectl purge %s --remove), raise LimitNOFILE of kvleased, or 'extent' in [device]",
                        (unsigned long long)descriptors_limit(), name, (unsigned long long)limit,
                        (unsigned long long)part->used, (unsigned long long)n, name);
        return detail_set(d, -EMFILE,
                "%llu descriptors of kvleased can be kept for its next start, of tenant %s %llu of "
                "them now: it has %llu, and this takes %llu; end clients, drop unused namespaces "
                "(kvleasectl purge %s --remove), raise FileDescriptorStoreMax of kvleased.service "
                "(--keep-max with kvleased --keep), or 'extent' in [device]",
                (unsigned long long)keeper_room(t->server->keeping.keeper), name,
                (unsigned long long)limit, (unsigned long long)part->used, (unsigned long long)n,
                name);
}

/* May the tenant have n[] more, of limits[]? */
static int admit_within(const struct tenancy *t, const struct parts *p, struct count more,
        struct count limits, struct detail *d)
{
        for (unsigned i = 0; i < N_DESCRIPTORS; i++) {
                if (i == DESCRIPTORS_KEPT && !keeping_is_on(&t->server->keeping))
                        continue;
                if (p->part[i].used + more.n[i] > limits.n[i])
                        return explain_limit(t, (enum descriptors_kind)i, limits.n[i], &p->part[i],
                                more.n[i], d);
        }
        return 0;
}

static struct count limits_of(const struct parts *p)
{
        struct count limits;

        for (unsigned i = 0; i < N_DESCRIPTORS; i++)
                limits.n[i] = fd_part_limit(&p->rooms[i], &p->part[i]);
        return limits;
}

static int admit_more(const struct tenancy *t, struct count more, struct detail *d)
{
        struct parts p = look_at_parts(t);

        return admit_within(t, &p, more, limits_of(&p), d);
}

/* May so many extents be made? They last as long as their contents, so a part is left for later
 * clients. */
static int admit_lasting(const struct tenancy *t, struct count more, struct detail *d)
{
        uint32_t most = MIN(t->config.max_clients, t->server->config.daemon.max_clients);
        struct parts p = look_at_parts(t);
        struct count limits = limits_of(&p), to_come = {{0}};

        add_connections(t->server, minus_u64(most, t->n_peers), &to_come);
        for (unsigned i = 0; i < N_DESCRIPTORS; i++)
                limits.n[i] -= MIN(to_come.n[i], limits.n[i] / CLIENTS_PART);
        return admit_within(t, &p, more, limits, d);
}

/* Logs a refusal, once for each tenant and kind. */
static int refuse_more(struct tenancy *t, unsigned what, int r, const struct detail *why)
{
        static const char *const names[] = {
                [REFUSED_CONNECTIONS] = "connections are taken",
                [REFUSED_NAMESPACES] = "namespaces are opened",
                [REFUSED_EXTENTS] = "extents are made, though memory is left",
        };

        if (!(t->descriptors_refused & 1u << what))
                log_message(LOG_NO_DESCRIPTORS, NULL, "tenant %s: no further %s: %s",
                        t->config.name, names[what], why->text);
        t->descriptors_refused |= 1u << what;
        return r;
}

/* Clients that wait to resume aren't counted for a new connection, which may be theirs. */
int descriptors_admit_connection(struct tenancy *t, bool is_there, struct detail *d)
{
        struct parts p = look_at_parts(t);
        struct count limits = limits_of(&p), more = {{0}}, waiting = {{0}};
        int r;

        if (!is_there) {
                add_connections(t->server, 1, &more);
                add_connections(t->server, t->n_adopted, &waiting);
        }
        for (unsigned i = 0; i < N_DESCRIPTORS; i++)
                p.part[i].used -= waiting.n[i];
        r = admit_within(t, &p, more, limits, d);
        return r < 0 ? refuse_more(t, REFUSED_CONNECTIONS, r, d) : 0;
}

int descriptors_admit_ns(struct tenancy *t, bool is_there, struct detail *d)
{
        struct count more = {{0}};
        int r;

        add_namespaces(t->server, !is_there, &more);
        add_feeds(!is_there && t->tenant->attrs.events_bytes > 0, &more);
        add_attachments(1, &more);
        r = admit_more(t, more, d);
        if (r < 0 && idle_drop(t->tenant, IDLE_AT_ONCE) > 0)
                r = admit_more(t, more, d);
        return r < 0 ? refuse_more(t, REFUSED_NAMESPACES, r, d) : 0;
}

/* Half of the reserve; the rest is for monitors. */
uint32_t descriptors_most_refused(const struct server *s)
{
        uint64_t most = fd_nobodys(room_of(s, DESCRIPTORS_OPEN)) / (2 * PER_STRANGER);

        return (uint32_t)MAX(MIN(most, (uint64_t)PEER_MAX_REFUSED), UINT64_C(1));
}

/* ---- the store and the start ----------------------------------------------------------------- */

/* store.owner.admit_extents: may another set of the namespace be made? */
static int admit_extents(const struct ns *ns, enum tier_kind kind, struct detail *d, void *data)
{
        const struct server *s = data;
        uint32_t n = ns->geometry.tiers[kind].n_extents;
        struct count more = {{0}};
        struct detail why = {""};
        int r;

        add_extents(ns->tiers[kind].pool, n, &more);
        r = admit_lasting(ns->tenant->server_data, more, &why);
        if (r == 0)
                r = keeping_admit(s, n, &why);
        if (r == 0)
                return 0;
        return detail_set(
                d, refuse_more(ns->tenant->server_data, REFUSED_EXTENTS, r, &why), "%s", why.text);
}

/*
 * Grows the process's table of descriptors. The kernel doubles a full table. If threads share it,
 * that waits until all processors have passed a quiescent state (synchronize_rcu()): tens of ms, on
 * a busy machine a second. A connecting client would block the loop that long. The table never
 * shrinks, so it is grown at the start. If that fails it grows as needed.
 */
static void grow_table(const struct server *s, uint64_t n_files)
{
        int from = uv_backend_fd(&s->loop.uv);

        if (from >= 0 && n_files > 1 && n_files <= INT32_MAX)
                fd_close(fcntl(from, F_DUPFD_CLOEXEC, (int)(n_files - 1)));
}

void descriptors_attach(struct server *s)
{
        uint64_t needed = descriptors_needed(s), limit = descriptors_limit();
        uint64_t kept = descriptors_kept_needed(s);

        grow_table(s, MIN(needed, limit));
        s->store.owner.admit_extents = admit_extents;
        (void)admin_fds_hold(s);
        if (needed > limit)
                log_warning("all memory as extents and max_clients = %u connections need %llu open "
                            "files, kvleased may have %llu: raise LimitNOFILE of kvleased",
                        s->config.daemon.max_clients, (unsigned long long)needed,
                        (unsigned long long)limit);
        if (keeping_is_on(&s->keeping) && kept > s->keeping.max)
                log_warning(
                        "all memory as extents and max_clients = %u connections are %llu "
                        "descriptors to be kept for the next start, the service manager keeps "
                        "%u: raise FileDescriptorStoreMax in kvleased.service (--keep-max with kvleased --keep)",
                        s->config.daemon.max_clients, (unsigned long long)kept, s->keeping.max);
}
