#include "daemon/server/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

#include "base/fd.h"
#include "daemon/core/detail.h"
#include "daemon/core/group.h"
#include "daemon/core/store.h"
#include "daemon/core/tenant.h"
#include "daemon/server/log.h"
#include "daemon/server/server.h"
#include "daemon/server/tenants.h"

#define KEPT_PER_CLIENT 2 /* its process, its ring */

/* Its socket, its process; where they are kept, its ring. */
static uint64_t per_client(const struct server *s)
{
        return keeping_is_on(&s->keeping) ? 3 : 2;
}

uint32_t descriptors_per_ns(const struct server *s)
{
        return keeping_is_on(&s->keeping) ? 4 : 2;
}

/* Behind a queue it is exported once, for good; the host's memory is a file besides. */
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

/* Listeners; the loop's own and the locks are of the reserve. */
static uint64_t count_listeners(const struct server *s)
{
        uint64_t n = 2;

        list_for_each (t, &s->tenancies, struct tenancy, link)
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
        uint64_t n = DESCRIPTORS_RESERVE + count_listeners(s) +
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

static uint64_t count_extents(const struct ns *ns)
{
        uint64_t n = 0;

        for (unsigned i = 0; i < TIER_COUNT; i++)
                if (ns->tiers[i].pool)
                        n += per_extent(ns->tiers[i].pool) * ns->geometry.tiers[i].n_extents *
                             (ns->tiers[i].n_sets + ns->tiers[i].n_preparing);
        return n;
}

/* Namespaces, with their extents. */
static uint64_t count_memory(const struct server *s)
{
        uint64_t n = 0;

        list_for_each (t, &s->store.tenants, struct tenant, link)
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        n += descriptors_per_ns(s);
                        n += count_extents(ns);
                        list_for_each (a, &ns->attachments, struct attach, ns_link)
                                if (pins_is_open(&a->share))
                                        n += DESCRIPTORS_PER_SHARE;
                }
        return n;
}

/* Are n more left beside the reserve, of `limit`? */
static bool has_room(const struct server *s, uint64_t n, uint64_t limit)
{
        uint64_t used = per_client(s) * (uint64_t)s->n_peers + count_listeners(s) + count_memory(s);

        return used + n + DESCRIPTORS_RESERVE <= limit;
}

int descriptors_admit(const struct server *s, uint32_t n, struct detail *d)
{
        uint64_t limit = descriptors_limit();

        if (has_room(s, n, limit))
                return 0;
        return detail_set(d, -EMFILE,
                "kvleased may have %llu open files, too few for more shared memory: raise "
                "LimitNOFILE of kvleased",
                (unsigned long long)limit);
}

bool descriptors_hold(struct server *s)
{
        for (unsigned i = 0; i < DESCRIPTORS_ADMIN; i++) {
                if (s->admin_fds[i] < 0)
                        s->admin_fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
                if (s->admin_fds[i] < 0)
                        return false;
        }
        return true;
}

void descriptors_open(struct server *s)
{
        for (unsigned i = 0; i < DESCRIPTORS_ADMIN; i++)
                s->admin_fds[i] = fd_close(s->admin_fds[i]);
}

/* Likewise, kept for the next start. */
static int admit_kept(const struct server *s, uint32_t n, struct detail *d)
{
        struct detail why = {""};
        int r = keeping_admit(s, n, &why);

        if (r == 0)
                return 0;
        if (log_first_of("kept-descriptors"))
                log_message(LOG_NO_DESCRIPTORS, NULL,
                        "no further extents are made, though memory is left: %s", why.text);
        return detail_set(d, r, "%s", why.text);
}

/* Of struct store: may another set of the namespace be made? */
static int admit_extents(const struct ns *ns, enum tier_kind kind, struct detail *d, void *data)
{
        const struct server *s = data;
        uint64_t limit = descriptors_limit();
        uint32_t n = ns->geometry.tiers[kind].n_extents;

        if (has_room(s, per_extent(ns->tiers[kind].pool) * n, limit))
                return admit_kept(s, n, d);
        if (log_first_of("extent-descriptors"))
                log_message(LOG_NO_DESCRIPTORS, NULL,
                        "kvleased may have %llu open files: no further extents are made, though "
                        "memory is left; raise LimitNOFILE of kvleased, or 'extent' in [device]",
                        (unsigned long long)limit);
        return detail_set(d, -EMFILE,
                "kvleased may have %llu open files, too few for another extent set of %u extents: "
                "raise LimitNOFILE of kvleased, or 'extent' in [device]",
                (unsigned long long)limit, n);
}

void descriptors_attach(struct server *s)
{
        uint64_t needed = descriptors_needed(s), limit = descriptors_limit();
        uint64_t kept = descriptors_kept_needed(s);

        s->store.admit_extents = admit_extents;
        (void)descriptors_hold(s);
        if (needed > limit)
                log_warning("all memory as extents and max_clients = %u connections need %llu open "
                            "files, kvleased may have %llu: raise LimitNOFILE of kvleased",
                        s->config.daemon.max_clients, (unsigned long long)needed,
                        (unsigned long long)limit);
        if (keeping_is_on(&s->keeping) && kept > s->keeping.max)
                log_warning("all memory as extents and max_clients = %u connections are %llu "
                            "descriptors to be kept for the next start, the service manager keeps "
                            "%u: raise FileDescriptorStoreMax in kvleased.service (--keep-max with "
                            "kvleased --keep)",
                        s->config.daemon.max_clients, (unsigned long long)kept, s->keeping.max);
}
