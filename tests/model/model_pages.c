/*
 * Model test of daemon/core: random operations on the real state and on the naive model of model.h.
 * After each the answers and the whole state are compared, and the invariant checker is run.
 *
 *   model_pages [--seed N] [--steps N] [--seeds N] [--full]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/core/cache/drop.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/clients/request.h"
#include "daemon/core/core.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/life/open.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "proto/status.h"
#include "tests/model/model.h"
#include "tests/unit/at-once.h"

/* ---- operations ----------------------------------------------------------------------------- */

/* Clients that share memory seldom use the socket for calls that memory can do. True: done. */
static bool in_segment(struct model_member *m, struct model_ns *ns, struct model_attach *a,
        void (*run)(const struct shared_case *s))
{
        if (!a->shared || rnd(8) == 0)
                return false;
        run(&(struct shared_case){.m = m, .ns = ns, .a = a});
        return true;
}

static void op_join(void)
{
        uint32_t i = rnd(N_MEMBERS), t = rnd(N_TENANTS), n = 0;
        struct model_member *m = &members[i], *friend = any_member();
        struct detail d;
        int r;

        op = "join";
        if (m->real)
                return;
        if (friend)
                t = (uint32_t) friend->tenant;
        for (int k = 0; k < N_MEMBERS; k++)
                n += members[k].real && members[k].tenant == (int)t;
        *m = (struct model_member){.tenant = (int)t, .metadata_only = rnd(4) == 0};
        r = member_new(tenants[t], friend ? friend->real->group->token : NULL, m->metadata_only,
                &m->real, &d);
        CHECK(r == (n >= MAX_CLIENTS ? -EMFILE : 0), "%d", r);
        if (r < 0)
                m->real = NULL;
        m->group = friend ? friend->group : ++last_group;
}

/*
 * Usage above a lowered limit is freed as soon as it isn't mapped. Without clients the limit holds.
 */
static void learn_leave(int t)
{
        bool left = false;

        learn(NULL, MAY_TAKE_BACK);
        for (int k = 0; k < N_MEMBERS; k++)
                left |= members[k].real && members[k].tenant == t;
        CHECK(left || usage_of(t) <= limits[t], "tenant %d: %llu bytes in use, %llu allowed", t,
                (unsigned long long)usage_of(t), (unsigned long long)limits[t]);
}

static void op_leave(void)
{
        struct model_member *m = any_member();
        int t;

        op = "leave";
        if (!m)
                return;
        t = m->tenant;
        member_free(m->real);
        for (int slot = 0; slot < N_NS; slot++)
                if (m->attach[slot].real)
                        model_close(m, slot);
        m->real = NULL;
        learn_leave(t);
}

static struct ns_layout layout_of(uint32_t slot, unsigned version)
{
        struct ns_layout l = {
                .model = "toy",
                .dtype = 3,
                .n_layers = 2,
                .n_kv_heads = 1,
                .head_size = 8,
                .page_tokens = 16,
                .n_planes = shapes[slot].n_planes,
                .plane_page_bytes = shapes[slot].plane_page_bytes,
                .tp_size = 1,
        };

        snprintf(l.version, sizeof(l.version), "v%u", version);
        return l;
}

static void model_make_ns(struct model_ns *ns, int tenant, uint32_t slot, unsigned version)
{
        bool has_null_set = shapes[slot].keep_zero && !device.device.props.is_cpu_memory;

        *ns = (struct model_ns){
                .exists = true,
                .tenant = tenant,
                .version = version,
                .keep_zero = shapes[slot].keep_zero && !has_null_set,
                .has_null_set = has_null_set,
                .set_pages = shapes[slot].set_pages,
                .n_pages = shapes[slot].set_pages * (shapes[slot].n_sets + has_null_set),
                .set_bytes = shapes[slot].set_bytes,
        };
        for (int key = 0; key < N_KEYS; key++)
                ns->where[key] = NONE;
}

static void op_open(void)
{
        struct model_member *m = any_member();
        uint32_t slot = rnd(N_NS);
        unsigned version;
        struct model_ns *ns;
        struct ns_layout l;
        struct detail d;
        char name[16];
        int r;

        op = "open";
        if (!m)
                return;
        ns = &spaces[m->tenant][slot];
        version = ns->exists && rnd(60) ? ns->version : rnd(3);
        l = layout_of(slot, version);
        snprintf(name, sizeof(name), "n%u", slot);
        if (m->attach[slot].real) {
                struct attach *unused;

                CHECK(attach_open(m->real, name, &l, "", false, &unused, &d) == -EEXIST, "twice");
                return;
        }
        if (ns->exists && rnd(10) == 0) {
                l.page_tokens = 32;
                r = attach_open(m->real, name, &l, "", false, &m->attach[slot].real, &d);
                CHECK(r == KVL_STATUS_LAYOUT && strstr(d.text, "page_tokens"), "%d", r);
                return;
        }
        r = attach_open(m->real, name, &l, NULL, shapes[slot].keep_zero, &m->attach[slot].real, &d);
        if (!ns->exists && store.draining) {
                CHECK(r == KVL_STATUS_DRAINING, "%d", r);
                return;
        }
        CHECK(r == 0, "%d %s", r, d.text);
        if (!ns->exists)
                model_make_ns(ns, m->tenant, slot, version);
        CHECK(m->attach[slot].real->ns->geometry.capacity_pages == ns->n_pages &&
                        m->attach[slot].real->ns->geometry.set_bytes == ns->set_bytes,
                "geometry");
        if (version != ns->version) {
                model_invalidate(ns);
                ns->version = version;
                ns->version_epoch++;
        }
        m->attach[slot].version_epoch = ns->version_epoch;
        if (rnd(2))
                shared_open(&m->attach[slot]);
}

static void op_close(void)
{
        struct model_member *m;
        struct model_attach *a;
        struct model_ns *ns;

        op = "close";
        a = any_attach(&m, &ns);
        if (!a)
                return;
        attach_close(a->real);
        model_close(m, (int)(a - m->attach));
        learn_leave(m->tenant);
}

static int model_publish(struct model_member *m, struct model_ns *ns, struct model_attach *a,
        const struct publish_case *c, uint32_t *ret_pages, uint32_t *ret_n)
{
        int parent = c->parent, r = 0, result = 0;
        uint32_t i;

        *ret_n = 0;
        if (is_old(a, ns))
                return KVL_STATUS_STALE;
        if (parent != NONE && ns->where[parent] == NONE)
                return KVL_STATUS_NO_PARENT;
        for (i = 0; i < c->n; i++) {
                r = model_publish_one(m, ns, a->pins, c->pages[i], c->keys[i], parent,
                        i + 1 < c->n ? 16 : c->last_tokens, &ret_pages[i]);
                if (r != 0 && r != KVL_STATUS_DUPLICATE)
                        break;
                result = r ? r : result;
                parent = c->keys[i];
        }
        *ret_n = i;
        return i < c->n ? r : result;
}

static void op_publish(void)
{
        uint8_t keys[N_KEYS * KEY_BYTES], parent_key[KEY_BYTES];
        uint32_t pages[N_KEYS], expected[N_KEYS], n, n_expected;
        struct model_member *m;
        static const uint8_t token_ids[MAX_REQUEST * 16 * sizeof(uint32_t)];
        struct model_attach *a;
        struct publish_case c;
        struct model_ns *ns;
        struct publish p;
        struct detail d;
        int r, r_expected;

        op = "publish";
        a = any_attach(&m, &ns);
        if (!a || in_segment(m, ns, a, shared_publish))
                return;
        c = make_publish(m, ns);
        for (uint32_t i = 0; i < c.n; i++)
                key_bytes(c.keys[i], keys + i * KEY_BYTES);
        if (c.parent != NONE)
                key_bytes(c.parent, parent_key);
        p = (struct publish){.pages = c.pages,
                .keys = keys,
                .n = c.n,
                .parent_key = c.parent == NONE ? NULL : parent_key,
                .last_tokens = c.last_tokens,
                .token_ids = rnd(2) ? token_ids : NULL};
        r_expected = model_publish(m, ns, a, &c, expected, &n_expected);
        r = publish_pages(a->real, &p, now_nsec, pages, &n, &d);
        CHECK(r == r_expected, "%d, expected %d", r, r_expected);
        CHECK(n == n_expected, "%u handled, expected %u", n, n_expected);
        for (uint32_t i = 0; i < n; i++)
                CHECK(pages[i] == expected[i], "page %u, expected %u", pages[i], expected[i]);
        for (uint32_t i = 0; i < n; i++)
                CHECK(learn_unindexed(ns, c.keys[i]) || pages[i] != c.pages[i] ||
                                !ns->recalled[pages[i] / ns->set_pages],
                        "page %u of a recalled set is cached", pages[i]);
}

static void op_lookup(void)
{
        uint8_t keys[N_KEYS * KEY_BYTES];
        uint32_t pages[N_KEYS], n, len, n_expected = 0;
        uint64_t tokens = 0, tokens_expected = 0;
        struct model_member *m;
        struct model_attach *a;
        struct model_ns *ns;
        struct detail d;
        int r, path[N_KEYS] = {0};

        op = "lookup";
        a = any_attach(&m, &ns);
        if (!a || in_segment(m, ns, a, shared_lookup))
                return;
        len = path_to((int)rnd(N_KEYS), path);
        if (rnd(30) == 0)
                path[len - 1] = path[0]; /* twice the same key */
        for (uint32_t i = 0; i < len; i++)
                key_bytes(path[i], keys + i * KEY_BYTES);
        r = lookup_pages(a->real, &(struct lookup_request){keys, len, now_nsec, step}, pages, &n,
                &tokens, &d);
        if (is_old(a, ns)) {
                CHECK(r == KVL_STATUS_STALE && n == 0, "%d", r);
                return;
        }
        for (; n_expected < len && ns->where[path[n_expected]] != NONE; n_expected++)
                tokens_expected += ns->tokens[path[n_expected]];
        CHECK(n == n_expected, "%u found, expected %u", n, n_expected);
        CHECK(r == (n ? 0 : KVL_STATUS_MISS), "%d", r);
        CHECK(tokens == tokens_expected, "%llu tokens", (unsigned long long)tokens);
        for (uint32_t i = 0; i < n; i++) {
                CHECK(pages[i] == (uint32_t)ns->where[path[i]], "page %u", pages[i]);
                a->pins[pages[i]]++;
        }
}

/* Picks pinned pages, one or a few, now and then one too often or one that isn't. */
static uint32_t pick_pinned(
        const struct model_ns *ns, const struct model_attach *a, uint32_t *pages)
{
        uint32_t n = 0, most = rnd(3) == 0 ? 4 : MAX_REQUEST;

        for (uint32_t i = 0, start = rnd(ns->n_pages); i < ns->n_pages && n + 2 < most; i++) {
                uint32_t page = (start + i) % ns->n_pages;

                for (unsigned k = 0; k < a->pins[page] && n + 2 < most; k++)
                        pages[n++] = page;
        }
        if (n > 0 && rnd(15) == 0) {
                pages[n] = pages[rnd(n)];
                n++;
        }
        if (rnd(25) == 0)
                pages[n++] = rnd(ns->n_pages + 2);
        return n;
}

static void op_release(void)
{
        uint32_t pages[MAX_REQUEST], n, wanted[MAX_PAGES + 2] = {0};
        struct model_member *m;
        struct model_attach *a;
        struct model_ns *ns;
        struct detail d;
        bool ok = true;
        int r;

        op = "release";
        a = any_attach(&m, &ns);
        if (!a || in_segment(m, ns, a, shared_release))
                return;
        n = pick_pinned(ns, a, pages);
        for (uint32_t i = 0; i < n; i++)
                ok &= pages[i] < ns->n_pages && ++wanted[pages[i]] <= a->pins[pages[i]];
        r = release_pages(a->real, pages, n, now_nsec, &d);
        CHECK(r == (ok ? 0 : -EINVAL), "%d", r);
        for (uint32_t i = 0; ok && i < n; i++)
                model_unpin(a, ns, pages[i], 1);
}

static void op_free(void)
{
        uint32_t pages[8], n = 1 + rnd(4);
        struct model_member *m;
        struct model_attach *a;
        struct model_ns *ns;
        struct detail d;
        bool ok;
        int r;

        op = "free";
        a = any_attach(&m, &ns);
        if (!a || in_segment(m, ns, a, shared_free))
                return;
        pick_some_granted(ns, m->group, n, pages);
        ok = model_free(m, ns, pages, n);
        r = free_pages(a->real, pages, n, &d);
        CHECK(r == (ok ? 0 : -EINVAL), "%d", r);
}

static void note_done(struct drop *drop)
{
        CHECK(drop_is_over(drop), "told too early");
}

/* In slices; with no steps between them here, so that the count is the model's. */
static void op_invalidate_key(void)
{
        int key = (int)rnd(N_KEYS), r;
        uint8_t bytes[KEY_BYTES];
        struct model_member *m;
        struct model_attach *a;
        struct model_ns *ns;
        struct detail d;
        struct drop drop;
        uint64_t n_pages, n_sets;

        op = "invalidate key";
        a = any_attach(&m, &ns);
        if (!a)
                return;
        for (int i = 0; i < N_KEYS && rnd(8) && ns->where[key] == NONE; i++)
                key = (key + 1) % N_KEYS;
        key_bytes(key, bytes);
        store.drop_slice_pages = 1 + rnd(8);
        r = drop_key(&drop, a->real, bytes, &d);
        if (is_old(a, ns)) {
                store.drop_slice_pages = DROP_SLICE_PAGES;
                CHECK(r == KVL_STATUS_STALE, "%d", r);
                return;
        }
        CHECK(r == 0, "%d", r);
        if (!drop_is_over(&drop))
                drop_queue(&drop, note_done);
        while (tasks_work(&store))
                CHECK(store_check(&store, &n_pages, &n_sets, &d) == 0, "%s", d.text);
        /* Elsewhere the model expects that a lower limit drops pages at once. */
        store.drop_slice_pages = DROP_SLICE_PAGES;
        CHECK(drop.n_pages == (ns->where[key] == NONE ? 0 : model_drop_subtree(ns, key)), "%llu",
                (unsigned long long)drop.n_pages);
}

static void op_invalidate_ns(void)
{
        struct model_ns *ns = &spaces[rnd(N_TENANTS)][rnd(N_NS)];
        uint64_t n;

        op = "invalidate namespace";
        if (!ns->exists)
                return;
        CHECK(ns_invalidate(real_ns(ns), CAUSE_NAMESPACE, &n) == 0, "no memory");
        CHECK(n == model_invalidate(ns), "%llu pages", (unsigned long long)n);
}

static void op_purge(void)
{
        uint32_t t = rnd(N_TENANTS), slot = rnd(N_NS);
        bool all = rnd(2), remove = rnd(2), open;
        struct model_ns *ns = &spaces[t][slot];
        uint64_t n, n_kept, expected = 0, kept = 0;

        op = "purge";
        if (!all && !ns->exists)
                return;
        CHECK(store_purge(&store, tenants[t], all ? NULL : real_ns(ns), remove, &n, &n_kept) == 0,
                "memory");
        for (uint32_t i = 0; i < N_NS; i++) {
                ns = &spaces[t][i];
                if (!ns->exists || (!all && i != slot))
                        continue;
                expected += model_invalidate(ns);
                open = false;
                for (int k = 0; k < N_MEMBERS; k++)
                        open |= members[k].real && members[k].tenant == (int)t &&
                                members[k].attach[i].real;
                kept += remove && open;
                if (remove && !open)
                        *ns = (struct model_ns){.tenant = (int)t};
        }
        CHECK(n == expected && n_kept == kept, "%llu pages, %llu namespaces kept",
                (unsigned long long)n, (unsigned long long)n_kept);
}

static void op_limit(void)
{
        uint32_t t = rnd(N_TENANTS);
        struct tenant_attrs attrs = tenants[t]->attrs;
        uint64_t bytes, usage, before;
        unsigned taken = n_taken_back;
        struct detail d;

        op = "limit";
        attrs.limit_bytes = limits[t] = rnd(3) ? TENANT_LIMIT : 768 + rnd(TENANT_LIMIT);
        attrs.weight = 1 + rnd(3);
        CHECK(tenant_set_attrs(tenants[t], &attrs, &d) == 0, "%s", d.text);
        bytes = learn_recalled(true);
        learn(NULL, MAY_TAKE_BACK);
        usage = usage_of((int)t);
        before = recalled_bytes((int)t) - bytes;
        check_recalled(
                (int)t, usage > limits[t] + before ? usage - limits[t] - before : 0, bytes, taken);
}

static void op_map(void)
{
        struct extent_handle handles[4];
        struct model_member *m;
        struct model_attach *a;
        struct model_ns *ns;
        struct detail d;
        uint32_t set, planes;
        int r;

        op = "map";
        a = any_attach(&m, &ns);
        if (!a)
                return;
        set = rnd(ns->n_pages / ns->set_pages);
        planes = shapes[a - m->attach].n_planes;
        r = attach_map_set(a->real, set, 0, 4, handles, &d);
        if (m->metadata_only) {
                CHECK(r == -EACCES, "%d", r);
        } else if (!set_is_bound(ns, set) || (ns->recalled[set] && !set_is_used(ns, set))) {
                CHECK(r == -ENOENT, "%d", r);
        } else {
                CHECK(r == (int)planes, "%d", r);
                a->mapped[set] = true;
        }
}

static void op_sweep(void)
{
        op = "sweep";
        store_work(&store, 1 + rnd(64));
        learn(NULL, MAY_SWEEP);
}

static void op_drain(void)
{
        op = "drain";
        store.draining = rnd(12) == 0;
}

static void op_request_end(void)
{
        struct model_member *m;
        struct model_attach *a;
        struct model_ns *ns;

        op = "request end";
        a = any_attach(&m, &ns);
        if (a && !in_segment(m, ns, a, shared_request_end))
                request_end(a->real, step, step % 5, now_nsec);
}

/* Runs an operation that only clients with a segment have. */
static void op_shared(const char *name, void (*run)(const struct shared_case *s))
{
        struct shared_case s;

        op = name;
        s.a = any_attach(&s.m, &s.ns);
        if (s.a && s.a->shared)
                run(&s);
}

static void op_claim(void)
{
        op_shared("claim", shared_claim);
}

static void op_refill(void)
{
        op_shared("refill", shared_refill);
}

static void op_touch(void)
{
        op_shared("touch", shared_touch);
}

static const struct {
        void (*run)(void);
        unsigned weight;
} operations[] = {
        {op_join, 20},
        {op_leave, 4},
        {op_open, 40},
        {op_close, 5},
        {op_lease, 110},
        {op_publish, 300},
        {op_lookup, 150},
        {op_release, 250},
        {op_free, 90},
        {op_map, 30},
        {op_invalidate_key, 8},
        {op_invalidate_ns, 1},
        {op_purge, 1},
        {op_limit, 5},
        {op_recall, 6},
        {op_recall_work, 40},
        {op_unmapped, 30},
        {op_sweep, 30},
        {op_drain, 12},
        {op_request_end, 5},
        {op_claim, 100},
        {op_refill, 60},
        {op_touch, 5},
};

static void one_step(void)
{
        uint32_t total = 0, pick;

        for (size_t i = 0; i < ARRAY_SIZE(operations); i++)
                total += operations[i].weight;
        pick = rnd(total);
        /* More than the time for which a refused tenant counts as wanting memory. */
        now_nsec += rnd(100) ? rnd(1000) : UINT64_C(2000000000);
        for (size_t i = 0; i < ARRAY_SIZE(operations); i++) {
                if (pick < operations[i].weight) {
                        operations[i].run();
                        break;
                }
                pick -= operations[i].weight;
        }
        compare();
}

static void start(void)
{
        struct tenant_attrs attrs = {.limit_bytes = TENANT_LIMIT,
                .weight = 1,
                .priority = 50,
                .max_clients = MAX_CLIENTS,
                .events_bytes = seed % 3 ? UINT64_C(1) << 40 : 0};
        struct detail d = {0};
        char name[24];

        memset(spaces, 0, sizeof(spaces));
        memset(members, 0, sizeof(members));
        now_nsec = last_group = n_evicted = n_refused = n_claimed = n_taken_back = 0;
        n_recalled = n_unmapped = 0;
        fake_device_init(&device, "fake", GRANULARITY);
        device.device.props.is_cpu_memory = seed % 2;
        store_init(&store, &evict_lru);
        store.min_page_bytes = 64;
        CHECK(store_add_pool(&store, &device.device, BUDGET_BYTES, EXTENT_BYTES, &d) == 0, "%s",
                d.text);
        for (int t = 0; t < N_TENANTS; t++) {
                snprintf(name, sizeof(name), "tenant%d", t);
                CHECK(tenant_new(&store, name, &attrs, &tenants[t], &d) == 0, "%s", d.text);
                limits[t] = TENANT_LIMIT;
                for (int i = 0; i < N_NS; i++)
                        spaces[t][i].tenant = t;
        }
}

static void run_seed(unsigned long n_steps)
{
        rng_state = seed;
        start();
        for (step = 1; step <= n_steps; step++)
                one_step();
        op = "end";
        for (int m = 0; m < N_MEMBERS; m++)
                if (members[m].real)
                        member_free(members[m].real);
        store_deinit(&store);
        CHECK(device.n_extents == 0 && device.closed, "%u extents left", device.n_extents);
        printf("model_pages: --seed %llu: %lu steps, %u pages evicted, %u leases refused, %u pages "
               "claimed from magazines, %u taken back, %u sets recalled, %u unmapped: ok\n",
                (unsigned long long)seed, n_steps, n_evicted, n_refused, n_claimed, n_taken_back,
                n_recalled, n_unmapped);
        CHECK(n_steps < 10000 ||
                        (n_evicted && n_refused && n_claimed && n_taken_back && n_recalled),
                "nothing was evicted, refused, claimed, taken back or recalled");
        CHECK(n_steps < 100000 || n_unmapped, "nothing was unmapped");
}

int main(int argc, char **argv)
{
        unsigned long n_steps = 20000, n_seeds = 2;

        seed = (uint64_t)time(NULL);
        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--full") == 0) {
                        n_steps = 1000000;
                        n_seeds = 1;
                } else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
                        seed = strtoull(argv[++i], NULL, 0);
                        n_seeds = 1;
                } else if (i + 1 < argc && strcmp(argv[i], "--steps") == 0) {
                        n_steps = strtoul(argv[++i], NULL, 0);
                } else if (i + 1 < argc && strcmp(argv[i], "--seeds") == 0) {
                        n_seeds = strtoul(argv[++i], NULL, 0);
                } else {
                        fprintf(stderr,
                                "usage: model_pages [--seed N] [--steps N] [--seeds N] [--full]\n");
                        return 2;
                }
        }
        for (; n_seeds > 0; n_seeds--, seed++)
                run_seed(n_steps);
        return 0;
}
