#include "tests/model/qos_world.h"
#include "tests/unit/at-once.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/core.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/open.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/memory/wait.h"
#include "daemon/core/reclaim/compact.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/reclaim/room.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "policy/admission.h"
#include "proto/status.h"
#include "tests/unit/fake-device.h"
#include "tests/unit/toy-layout.h"

#define REVOKE_NSEC (1000 * MSEC)

/* Worked out by hand from EXTENT and the granularity. */
static const struct {
        uint64_t plane_page_bytes, set_bytes;
        uint32_t set_pages;
} shapes[] = {{128, 1024, 8}, {192, 768, 4}};

struct store store;
struct pool *pools[MAX_POOLS];
uint32_t n_pools;
struct q_tenant tenants[MAX_TENANTS];
uint32_t n_tenants;
uint64_t now_nsec;
uint64_t seed;
unsigned long step;
const char *op = "start";
struct rng rng;
struct world_counters counters;
bool compacts;

static struct fake_device devices[MAX_POOLS];
static const char *const device_names[MAX_POOLS] = {"gpu0", "gpu1"};
static uint64_t last_missing[MAX_POOLS];
static bool woken;
static struct rng kernel; /* in place of the kernel's */

static void describe(const struct q_tenant *t)
{
        const struct tenant_attrs *a = &t->real->attrs;
        const struct pool_share *s = t->share;

        fprintf(stderr,
                "  %s on %s: charged %llu reserve %llu recalled %llu fair %llu limit %llu weight "
                "%u priority %u %s when_full %u burst %u lend %d safepoints %d set %llu pages %u wants for %lld ms\n",
                t->name, s->pool->props->name, (unsigned long long)s->charged_bytes,
                (unsigned long long)s->reserve_bytes, (unsigned long long)s->recalled_bytes,
                (unsigned long long)region_fair(s), (unsigned long long)a->limit_bytes, a->weight,
                a->priority, a->class == TENANT_PINNED ? "pinned" : "dynamic", a->when_full,
                a->burst, a->lend_idle_reserve, t->safepoints, (unsigned long long)set_bytes_of(t),
                set_pages_of(t),
                ((long long)s->wants_until_nsec - (long long)now_nsec) / (long long)MSEC);
        for (uint32_t i = 0; i < N_CLIENTS; i++)
                if (t->clients[i].rq.n > 0)
                        fprintf(stderr, "    client %u waits for %u pages: %s\n", i,
                                t->clients[i].rq.n,
                                lease_reason_name(t->clients[i].attach->wait.reason));
}

void fail(const char *condition, int line, const char *format, ...)
{
        va_list ap;

        fprintf(stderr,
                "model_qos: --seed %llu, step %lu, %s: line %d: %s: ", (unsigned long long)seed,
                step, op, line, condition);
        va_start(ap, format);
        vfprintf(stderr, format, ap);
        va_end(ap);
        fputc('\n', stderr);
        for (uint32_t i = 0; i < n_tenants; i++)
                describe(&tenants[i]);
        exit(1);
}

/* splitmix64, in the public domain */
uint64_t draw(struct rng *r)
{
        uint64_t z = r->state += 0x9e3779b97f4a7c15;

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
}

uint32_t draw_below(struct rng *r, uint32_t n)
{
        return (uint32_t)(draw(r) % n);
}

uint32_t rnd(uint32_t n)
{
        return draw_below(&rng, n);
}

/* Replaces getrandom() at link time. Its bytes determine, by hashes, the order of maps: one seed
 * gives one history. */
ssize_t __wrap_getrandom(void *buf, size_t n, unsigned flags);
ssize_t __wrap_getrandom(void *buf, size_t n, unsigned flags)
{
        for (size_t i = 0; i < n; i++)
                ((uint8_t *)buf)[i] = (uint8_t)draw(&kernel);
        return (ssize_t)n;
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static struct client *client_of(const struct attach *a)
{
        for (uint32_t t = 0; t < n_tenants; t++)
                for (uint32_t i = 0; i < N_CLIENTS; i++)
                        if (tenants[t].clients[i].attach == a)
                                return &tenants[t].clients[i];
        fail("client_of", __LINE__, "an attachment that nobody has");
}

static void note_room(void *data)
{
        woken = true;
}

/* Makes a client with pages of the set release them soon. */
static void hurry(struct client *c, const struct extent_set *set)
{
        uint32_t set_pages = set_pages_of(c->tenant);

        for (uint32_t h = 0; h < MAX_HOLDS; h++)
                for (uint32_t i = 0; i < c->holds[h].n; i++)
                        if (c->holds[h].pages[i] / set_pages == set->index)
                                c->holds[h].until_nsec =
                                        MIN(c->holds[h].until_nsec, now_nsec + rnd(5) * TICK_NSEC);
}

static bool note_recall(struct attach *a, const struct extent_set *set, bool idle,
        uint64_t timeout_nsec, void *data)
{
        struct client *c = client_of(a);

        if (rnd(16) == 0)
                return false;
        counters.recalled++;
        counters.compacted += set->recall.kind == RECALL_COMPACT;
        CHECK(idle || set->recall.kind == RECALL_FORCED, "holders are told of a soft recall");
        CHECK(set->recall.kind == RECALL_FORCED || a->member->safepoints,
                "a soft recall from %s, who keeps no safe points", c->tenant->name);
        if (!idle) {
                hurry(c, set);
        } else if (c->mapped[set->index]) {
                c->unmap_nsec[set->index] = now_nsec + 1 + rnd(6) * TICK_NSEC;
        }
        return true;
}

/* ---- the world ------------------------------------------------------------------------------- */

void world_start(uint32_t pools_wanted, uint32_t sets)
{
        struct detail d = {0};

        kernel.state = ~seed;
        now_nsec = 1000 * MSEC;
        n_tenants = 0;
        n_pools = pools_wanted;
        woken = false;
        memset(tenants, 0, sizeof(tenants));
        memset(last_missing, 0, sizeof(last_missing));
        store_init(&store, &evict_lru);
        store.min_page_bytes = 64;
        store.owner.on_room = note_room;
        store.owner.on_recall = note_recall;
        for (uint32_t i = 0; i < n_pools; i++) {
                fake_device_init(&devices[i], device_names[i], 256);
                CHECK(store_add_pool(&store, &devices[i].device, sets * EXTENT, EXTENT, &d) == 0,
                        "%s", d.text);
                pools[i] = store_find_pool(&store, device_names[i]);
        }
        store_set_now(&store, now_nsec);
}

void world_end(void)
{
        op = "end";
        for (uint32_t t = 0; t < n_tenants; t++)
                for (uint32_t i = 0; i < N_CLIENTS; i++)
                        client_die(&tenants[t].clients[i]);
        world_check();
        store_deinit(&store);
        n_tenants = 0;
        for (uint32_t i = 0; i < n_pools; i++)
                CHECK(devices[i].n_extents == 0 && devices[i].closed, "%u extents left",
                        devices[i].n_extents);
}

struct tenant_attrs plain_attrs(void)
{
        return (struct tenant_attrs){.limit_bytes = 1 << 20,
                .weight = 1,
                .priority = 50,
                .max_clients = 16,
                .max_wait_nsec = FOREVER,
                .placement = PLACE_DEVICE};
}

static void set_device(struct tenant_attrs *attrs, const char *name)
{
        snprintf(attrs->device, sizeof(attrs->device), "%s", name);
}

struct q_tenant *world_add_tenant(
        const struct tenant_attrs *attrs, uint32_t shape, uint32_t pool, bool safepoints)
{
        struct q_tenant *t = &tenants[n_tenants];
        struct tenant_attrs a = *attrs;
        struct detail d = {0};

        snprintf(t->name, sizeof(t->name), "%c", 'a' + (int)n_tenants);
        set_device(&a, device_names[pool]);
        t->shape = shape;
        t->safepoints = safepoints;
        t->maps = true;
        CHECK(tenant_new(&store, t->name, &a, &t->real, &d) == 0, "%s", d.text);
        t->share = pool_share_find(t->real, pools[pool]);
        n_tenants++;
        for (uint32_t i = 0; i < N_CLIENTS; i++) {
                t->clients[i].tenant = t;
                client_join(&t->clients[i]);
        }
        return t;
}

uint64_t set_bytes_of(const struct q_tenant *t)
{
        return shapes[t->shape].set_bytes;
}

uint32_t set_pages_of(const struct q_tenant *t)
{
        return shapes[t->shape].set_pages;
}

struct pool *pool_of(const struct q_tenant *t)
{
        return t->share->pool;
}

/* ---- clients --------------------------------------------------------------------------------- */

void client_join(struct client *c)
{
        struct ns_layout l = toy_layout(shapes[c->tenant->shape].plane_page_bytes);
        struct detail d = {0};

        CHECK(member_new(c->tenant->real, NULL, false, &c->member, &d) == 0, "%s", d.text);
        c->member->safepoints = c->tenant->safepoints;
        CHECK(attach_open(c->member, "ns", &l, pool_of(c->tenant)->props->name, false, &c->attach,
                      &d) == 0,
                "%s", d.text);
        CHECK(c->attach->ns->geometry.set_bytes == set_bytes_of(c->tenant) &&
                        c->attach->ns->geometry.set_pages == set_pages_of(c->tenant) &&
                        c->attach->ns->geometry.n_set_slots <= MAX_SLOTS,
                "shape %u", c->tenant->shape);
}

void client_die(struct client *c)
{
        struct q_tenant *t = c->tenant;

        if (!c->member)
                return;
        member_free(c->member);
        *c = (struct client){.tenant = t};
        counters.deaths++;
}

bool client_waits(const struct client *c)
{
        return c->rq.n > 0;
}

struct hold *client_free_hold(struct client *c)
{
        for (uint32_t i = 0; i < MAX_HOLDS; i++)
                if (c->holds[i].n == 0)
                        return &c->holds[i];
        return NULL;
}

uint32_t client_held_pages(const struct client *c)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < MAX_HOLDS; i++)
                n += c->holds[i].n;
        return n;
}

static void map_sets(struct client *c, const struct hold *h)
{
        struct extent_handle handle;
        struct detail d = {0};

        for (uint32_t i = 0; c->tenant->maps && i < h->n; i++) {
                uint32_t set = h->pages[i] / set_pages_of(c->tenant);

                if (c->mapped[set])
                        continue;
                CHECK(attach_map_set(c->attach, set, 0, 1, &handle, &d) == 1, "%s", d.text);
                c->mapped[set] = true;
                c->unmap_nsec[set] = 0;
        }
}

/* Bytes that `n` pages more would bind. */
static uint64_t need_bytes(const struct client *c, uint32_t n)
{
        uint64_t room = ns_n_room(c->attach->ns), per_set = set_pages_of(c->tenant);

        return n <= room ? 0 : (n - room + per_set - 1) / per_set * set_bytes_of(c->tenant);
}

/* Within the reservation? */
static bool is_reserved(const struct client *c, uint32_t n)
{
        const struct pool_share *s = c->tenant->share;
        uint64_t most = MIN(s->reserve_bytes, c->tenant->real->account.limit_bytes);

        return s->charged_bytes + need_bytes(c, n) <= most;
}

/* The reserved memory is free of other tenants, and no lease of its own tenant came before. */
static bool is_guaranteed(const struct client *c, uint32_t n)
{
        const struct ns *ns = c->attach->ns;

        return ns->waits.n_queued == 0 && need_bytes(c, n) > 0 && is_reserved(c, n) &&
               region_missing(pool_of(c->tenant)) == 0 &&
               ns->device.n_sets + need_bytes(c, n) / set_bytes_of(c->tenant) <=
                       ns->geometry.n_set_slots;
}

static void check_refusal(const struct client *c, int r, const struct lease_request *rq,
        const struct lease_result *res, const char *text)
{
        const struct tenant_attrs *a = &c->tenant->real->attrs;
        uint64_t max_wait = MIN(a->max_wait_nsec, rq->take_back_nsec);

        max_wait = MIN(max_wait, rq->max_wait_nsec);
        CHECK(res->n == 0, "%u pages", res->n);
        CHECK(text[0], "no sentence");
        switch (r) {
        case KVL_STATUS_QUOTA:
                CHECK(res->reason == LEASE_REASON_QUOTA, "%s: %s", lease_reason_name(res->reason),
                        text);
                break;
        case KVL_STATUS_FULL:
                CHECK(res->reason == LEASE_REASON_POOL_FULL, "%s: %s",
                        lease_reason_name(res->reason), text);
                break;
        case KVL_STATUS_RESERVATION:
                CHECK(res->reason == LEASE_REASON_RESERVATION_FULL, "%s: %s",
                        lease_reason_name(res->reason), text);
                CHECK(a->burst == BURST_NONE || c->attach->ns->waits.n_queued > 0, "%s", text);
                break;
        case KVL_STATUS_TIMEOUT:
                CHECK(res->reason == LEASE_REASON_DEADLINE, "%s: %s",
                        lease_reason_name(res->reason), text);
                CHECK(res->waited_nsec >= max_wait, "after %llu of %llu ms: %s",
                        (unsigned long long)(res->waited_nsec / MSEC),
                        (unsigned long long)(max_wait / MSEC), text);
                counters.timeouts++;
                break;
        default:
                fail("a lease", __LINE__, "%d: %s", r, text);
        }
        counters.refused++;
}

static void take_grant(struct client *c, const struct lease_request *rq, uint64_t hold_nsec,
        const uint32_t *pages, const struct lease_result *res)
{
        const struct tenant_attrs *a = &c->tenant->real->attrs;
        struct hold *h = client_free_hold(c);

        CHECK(h, "no hold left");
        CHECK(res->n == rq->n || (a->when_full == WHEN_FULL_DEGRADE && res->n >= rq->min &&
                                         res->n < rq->n && res->reason == LEASE_REASON_DEGRADED),
                "%u of %u pages, at least %u: %s", res->n, rq->n, rq->min,
                lease_reason_name(res->reason));
        *h = (struct hold){.n = res->n, .until_nsec = now_nsec + hold_nsec};
        memcpy(h->pages, pages, res->n * sizeof(*pages));
        counters.granted++;
        counters.degraded += res->n < rq->n;
        counters.longest_wait_nsec = MAX(counters.longest_wait_nsec, res->waited_nsec);
        map_sets(c, h);
}

/* The tenant's limit of a wait, or the time in which others must give back its reservation. */
static uint64_t longest_wait(const struct client *c, const struct lease_request *rq, bool reserved)
{
        uint64_t most = c->tenant->real->attrs.max_wait_nsec;

        if (reserved)
                most = MAX(most, rq->take_back_nsec);
        return MIN(most, rq->max_wait_nsec);
}

/* The lease that it waits for, or is about to. */
static int ask(struct client *c, struct lease_result *ret)
{
        const struct lease_request rq = c->rq;
        bool guaranteed = is_guaranteed(c, rq.n), reserved = is_reserved(c, rq.n);
        bool is_first = c->attach->wait.n_wanted == 0;
        uint32_t pages[MAX_PAGES];
        struct detail d = {0};
        int r = lease_ask(c->attach, &rq, now_nsec, pages, ret, &d);

        counters.within_reserve += guaranteed;
        CHECK(!guaranteed || (r == 0 && ret->n == rq.n), "%s has reserved it: %u pages: %d: %s",
                c->tenant->name, rq.n, r, d.text);
        CHECK((r == -EINPROGRESS) == (c->attach->wait.n_wanted > 0), "%d", r);
        if (r == -EINPROGRESS) {
                CHECK(reserved || c->tenant->real->attrs.when_full == WHEN_FULL_QUEUE || !is_first,
                        "%s waits and doesn't queue", c->tenant->name);
                CHECK(now_nsec - c->since_nsec < longest_wait(c, &rq, reserved),
                        "%s waits longer than it may", c->tenant->name);
                counters.waited += is_first;
                return r;
        }
        CHECK(ret->waited_nsec == now_nsec - c->since_nsec, "%llu ns, not %llu",
                (unsigned long long)ret->waited_nsec,
                (unsigned long long)(now_nsec - c->since_nsec));
        c->rq.n = 0;
        if (r == 0)
                take_grant(c, &rq, c->hold_nsec, pages, ret);
        else
                check_refusal(c, r, &rq, ret, d.text);
        counters.at_once += r == 0 && is_first;
        return r;
}

int client_lease(struct client *c, const struct lease_request *rq, uint64_t hold_nsec,
        struct lease_result *ret)
{
        CHECK(c->rq.n == 0 && rq->n <= MAX_PAGES, "it waits");
        c->rq = *rq;
        c->since_nsec = now_nsec;
        c->hold_nsec = hold_nsec;
        return ask(c, ret);
}

static void chain_keys(uint32_t chain, uint32_t n, uint8_t *ret_keys)
{
        memset(ret_keys, 0, (size_t)n * KEY_BYTES);
        for (uint32_t i = 0; i < n; i++) {
                uint32_t name[2] = {chain + 1, i};

                memcpy(ret_keys + (size_t)i * KEY_BYTES, name, sizeof(name));
        }
}

void client_publish(struct client *c, struct hold *h, uint32_t chain)
{
        uint8_t keys[MAX_PAGES * KEY_BYTES];
        struct publish p = {.pages = h->pages, .keys = keys, .n = h->n, .last_tokens = 16};
        uint32_t sealed[MAX_PAGES], n_sealed;
        struct detail d = {0};
        int r;

        chain_keys(chain, h->n, keys);
        r = publish_pages(c->attach, &p, now_nsec, sealed, &n_sealed, &d);
        CHECK(r == 0 && n_sealed == h->n, "%d: %s", r, d.text);
        h->is_pinned = true;
        c->tenant->chain_len[chain % 64] = h->n;
}

uint32_t client_lookup(struct client *c, uint32_t chain, uint32_t len, uint64_t hold_nsec)
{
        struct hold *h = client_free_hold(c);
        uint8_t keys[MAX_PAGES * KEY_BYTES];
        uint64_t tokens;
        uint32_t found;
        int r;

        CHECK(h, "no hold left");
        chain_keys(chain, len, keys);
        r = lookup_pages(c->attach, &(struct lookup_request){keys, len, now_nsec}, h->pages, &found,
                &tokens, NULL);
        CHECK(r == (found > 0 ? 0 : KVL_STATUS_MISS), "%d", r);
        h->n = found;
        h->is_pinned = true;
        h->until_nsec = now_nsec + hold_nsec;
        counters.hits += found;
        map_sets(c, h);
        return found;
}

void client_let_go(struct client *c, struct hold *h)
{
        struct detail d = {0};
        int r = 0;

        if (h->n > 0)
                r = h->is_pinned ? release_pages(c->attach, h->pages, h->n, now_nsec, &d)
                                 : free_pages(c->attach, h->pages, h->n, &d);
        CHECK(r == 0, "%d: %s", r, d.text);
        h->n = 0;
}

void client_call_off(struct client *c)
{
        lease_call_off(c->attach);
        c->rq.n = 0;
}

/* ---- the server ------------------------------------------------------------------------------ */

/* Bytes reserved in the pool for others than t. */
static uint64_t reserved_for_others(const struct q_tenant *t)
{
        return pool_of(t)->reserved_bytes - t->share->reserve_bytes;
}

bool world_set_attrs(struct q_tenant *t, const struct tenant_attrs *attrs)
{
        struct tenant_attrs before = t->real->attrs, a = *attrs;
        uint64_t reserve = t->share->reserve_bytes, want = a.reserve_bytes;
        struct detail d = {0};
        bool fits;
        int r;

        CHECK(want % EXTENT == 0, "%llu", (unsigned long long)want);
        fits = want <= pool_of(t)->account.limit_bytes - reserved_for_others(t);
        set_device(&a, pool_of(t)->props->name);
        r = tenant_set_attrs(t->real, &a, &d);
        CHECK(r == (fits ? 0 : -ENOSPC), "reserve %llu: %d: %s", (unsigned long long)want, r,
                d.text);
        CHECK(t->share->reserve_bytes == (fits ? want : reserve), "%llu reserved",
                (unsigned long long)t->share->reserve_bytes);
        CHECK(fits || memcmp(&before, &t->real->attrs, sizeof(before)) == 0, "attributes changed");
        counters.set_attrs += fits;
        counters.no_room_to_reserve += !fits;
        for (uint32_t i = 0; i < n_pools; i++)
                last_missing[i] = UINT64_MAX;
        return fits;
}

static struct admission_request request_of(const struct attach *a)
{
        return (struct admission_request){.priority = a->ns->tenant->attrs.priority,
                .weight = a->ns->tenant->attrs.weight,
                .arrived_nsec = a->wait.arrived_nsec,
                .deadline_nsec = a->wait.deadline_nsec,
                .served_bytes = pool_share_borrowed(a->ns->device.share),
                .number = a->wait.number};
}

static uint32_t order_of_waits(struct attach **ret)
{
        uint32_t n = wait_order(&store, NULL, ret, MAX_TENANTS * N_CLIENTS), n_waiting = 0;

        for (uint32_t i = 0; i + 1 < n; i++) {
                struct admission_request a = request_of(ret[i]), b = request_of(ret[i + 1]);

                CHECK(admission_compare(&a, &b, now_nsec) < 0, "%u before %u", i, i + 1);
        }
        for (uint32_t t = 0; t < n_tenants; t++)
                for (uint32_t i = 0; i < N_CLIENTS; i++)
                        n_waiting += client_waits(&tenants[t].clients[i]);
        CHECK(n == n_waiting, "%u wait, %u in order", n_waiting, n);
        return n;
}

void world_retry(void)
{
        for (unsigned round = 0; round < 8; round++) {
                struct attach *order[MAX_TENANTS * N_CLIENTS];
                uint32_t n = order_of_waits(order);

                woken = false;
                for (uint32_t i = 0; i < n; i++) {
                        struct lease_result res;

                        (void)ask(client_of(order[i]), &res);
                        world_check();
                }
                if (!woken)
                        return;
        }
}

static void recall_round(void)
{
        enum recall_next next;
        unsigned rounds = 0;

        recall_poll(&store);
        do {
                next = recall_work(&store, now_nsec, REVOKE_NSEC, 1 + rnd(200));
                CHECK(++rounds < 1000, "it goes on and on");
        } while (next == RECALL_MORE && rnd(8));
}

static void unmap_due(struct client *c)
{
        struct detail d = {0};

        for (uint32_t set = 0; set < MAX_SLOTS; set++) {
                if (c->unmap_nsec[set] == 0 || c->unmap_nsec[set] > now_nsec)
                        continue;
                CHECK(c->mapped[set] && attach_unmapped(c->attach, set, &d) == 0, "%s", d.text);
                c->mapped[set] = false;
                c->unmap_nsec[set] = 0;
                counters.unmapped++;
        }
}

void world_tick(void)
{
        const char *was = op;

        op = "tick";
        now_nsec += TICK_NSEC;
        store_set_now(&store, now_nsec);
        store_work(&store, 64);
        for (uint32_t t = 0; t < n_tenants; t++)
                for (uint32_t i = 0; i < N_CLIENTS; i++) {
                        struct client *c = &tenants[t].clients[i];

                        if (!c->member)
                                continue;
                        for (uint32_t h = 0; h < MAX_HOLDS; h++)
                                if (c->holds[h].n > 0 && c->holds[h].until_nsec <= now_nsec)
                                        client_let_go(c, &c->holds[h]);
                        unmap_due(c);
                }
        if (compacts && rnd(4) == 0)
                (void)compact_turn(&store, now_nsec);
        recall_round();
        for (uint32_t i = 0; i < n_pools; i++)
                region_work(pools[i]);
        world_check();
        world_retry();
        op = was;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void check_tenant(struct q_tenant *t)
{
        const struct pool_share *s = t->share;
        const struct tenant_attrs *a = &t->real->attrs;

        CHECK(s->charged_bytes == t->real->account.charged_bytes, "%s: charged %llu and %llu",
                t->name, (unsigned long long)s->charged_bytes,
                (unsigned long long)t->real->account.charged_bytes);
        CHECK(s->charged_bytes <= MAX(t->real->account.limit_bytes, t->last_charged),
                "%s: %llu over its limit", t->name, (unsigned long long)s->charged_bytes);
        CHECK(a->burst == BURST_POOL || a->class == TENANT_DYNAMIC ||
                        pool_share_borrowed(s) <= t->last_excess ||
                        s->charged_bytes <= t->last_charged,
                "%s: goes beyond its reservation", t->name);
        CHECK(s->reserve_bytes == (a->class == TENANT_PINNED ? a->reserve_bytes : 0),
                "%s: %llu reserved", t->name, (unsigned long long)s->reserve_bytes);
        t->last_charged = s->charged_bytes;
        t->last_excess = pool_share_borrowed(s);
}

static void check_pool(uint32_t i)
{
        const struct pool *p = pools[i];
        uint64_t charged = 0, reserved = 0, idle = 0, missing = region_missing(p);
        const char *wrong = region_check(p);
        bool lends = false;

        CHECK(!wrong, "%s", wrong);
        for (uint32_t t = 0; t < n_tenants; t++) {
                if (pool_of(&tenants[t]) != p)
                        continue;
                charged += tenants[t].share->charged_bytes;
                reserved += tenants[t].share->reserve_bytes;
                idle += pool_share_idle(tenants[t].share);
                lends |= tenants[t].real->attrs.lend_idle_reserve;
        }
        CHECK(charged == p->account.charged_bytes && charged <= p->account.limit_bytes,
                "%llu charged", (unsigned long long)charged);
        CHECK(reserved == p->reserved_bytes && reserved <= p->account.limit_bytes, "%llu reserved",
                (unsigned long long)reserved);
        CHECK(idle == p->idle_reserve_bytes, "%llu idle", (unsigned long long)idle);
        CHECK(lends || missing <= last_missing[i], "%llu bytes of reservations are missing",
                (unsigned long long)missing);
        last_missing[i] = missing;
}

void world_check(void)
{
        uint64_t pages, sets;
        struct detail d = {0};

        step++;
        idle_sets_drain(&store);
        CHECK(store_check(&store, &pages, &sets, &d) == 0, "%s", d.text);
        for (uint32_t t = 0; t < n_tenants; t++)
                check_tenant(&tenants[t]);
        for (uint32_t i = 0; i < n_pools; i++)
                check_pool(i);
}

/* The most that a share may have beyond its reservation. */
static double most_excess(const struct q_tenant *t)
{
        const struct tenant_attrs *a = &t->real->attrs;
        uint64_t limit = t->real->account.limit_bytes;

        limit -= limit % set_bytes_of(t);
        if (a->class == TENANT_PINNED && a->burst == BURST_NONE)
                return (double)pool_share_borrowed(
                        t->share); /* no more than from before it was so */
        return limit > t->share->reserve_bytes ? (double)(limit - t->share->reserve_bytes) : 0;
}

void world_ideal(const struct pool *pool, const bool *want, double *ret_ideal)
{
        double low = 0, high = 1e9, most[MAX_TENANTS];
        double capacity = (double)region_dynamic_bytes(pool);

        for (uint32_t i = 0; i < n_tenants; i++)
                most[i] = pool_of(&tenants[i]) != pool ? 0
                          : want[i]                    ? most_excess(&tenants[i])
                                    : (double)pool_share_borrowed(tenants[i].share);
        for (unsigned round = 0; round < 100; round++) {
                double level = (low + high) / 2, sum = 0;

                for (uint32_t i = 0; i < n_tenants; i++)
                        sum += MIN(most[i], level * tenants[i].real->attrs.weight);
                if (sum <= capacity)
                        low = level;
                else
                        high = level;
        }
        for (uint32_t i = 0; i < n_tenants; i++)
                ret_ideal[i] = MIN(most[i], low * tenants[i].real->attrs.weight);
}
