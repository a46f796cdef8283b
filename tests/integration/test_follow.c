/*
 * A follower learns exactly what is cached: its picture equals kvl_probe() once all is quiet, after
 * publishes, evictions, demotions, invalidations, lost events and deaths of the daemon. Every event
 * is checked when it comes: parents first, leaves first, right token ids.
 */
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"

#define N_CHAINS     40 /* more pages than both tiers hold */
#define CHAIN_PAGES  64
#define PAGE_TOKENS  16
#define N_JOINS      50
#define DEVICE_LINES "memory = 4MiB\nextent = 2MiB\nhost_memory = 4MiB\n" /* 1,024 pages each */

static const struct private_tenant both[] = {
        {"a", "events = 64MiB\nwhen_full = queue\n"}, {"b", "events = 64MiB\n"}, {NULL, NULL}};
static const struct private_options plain = {.tenants = both};
static const struct private_options tiers = {.tenants = both, .device_lines = DEVICE_LINES};
static const struct private_options kept = {
        .tenants = both, .device_lines = DEVICE_LINES, .is_kept = true};
/* A namespace of 64 MiB reserves 11 MiB. */
static const struct private_tenant one_fits[] = {{"a", "events = 16MiB\n"}, {NULL, NULL}};
static const struct private_options small = {
        .tenants = one_fits, .device_lines = "memory = 64MiB\nextent = 2MiB\n"};

/* ---- the publisher --------------------------------------------------------------------------- */

struct text_key {
        uint32_t chain, index;
        uint8_t rest[KVL_KEY_BYTES - 8];
};

static void make_key(uint32_t chain, uint32_t index, uint8_t *ret_key)
{
        const uint32_t ends[2] = {chain, index};

        pattern_key(chain, index, ret_key);
        memcpy(ret_key, ends, sizeof(ends));
}

/* Publishers of odd chains give no token ids. */
static bool has_ids(uint32_t chain)
{
        return chain % 2 == 0;
}

static uint32_t token_id(uint32_t chain, uint32_t index, uint32_t i)
{
        return (chain * CHAIN_PAGES + index) * PAGE_TOKENS + i + 1000;
}

/* Texts with both names, as long as they may be, with one, and with none. */
static const char *lora_of(uint32_t chain)
{
        return chain % 4 == 0 ? "an adapter whose name is longer than a ring entry" : NULL;
}

static const char *salt_of(uint32_t chain)
{
        static const char longest[] =
                "012345678901234567890123456789012345678901234567890123456789012345678901234567";

        return chain % 8 >= 4 ? NULL : lora_of(chain) ? longest + strlen(lora_of(chain)) : longest;
}

static void assert_name(const char *name, const char *wanted)
{
        assert_string_equal(name ? name : "none", wanted ? wanted : "none");
}

struct client {
        struct kvl_conn *conn;
        struct kvl_ns *ns;
};

static void open_client(struct harness *h, const char *tenant, const char *name, struct client *ret)
{
        char socket[PRIVATE_PATH_MAX];
        const struct kvl_connect_options o = {.size = sizeof(o),
                .client_name = "publisher",
                .socket_path = private_daemon_socket(&h->daemon, tenant, socket)};
        const struct kvl_layout layout = {.size = sizeof(layout),
                .model = "follow",
                .version = "1",
                .dtype = KVL_DTYPE_F16,
                .n_layers = 1,
                .n_kv_heads = 1,
                .head_size = 64,
                .page_tokens = PAGE_TOKENS,
                .n_planes = 1,
                .plane_page_bytes = 4096,
                .tp_size = 1,
                .format = "f",
                .format_bytes = 1};

        assert_int_equal(kvl_connect(&o, &ret->conn), 0);
        assert_int_equal(kvl_ns_open(ret->conn, name, &layout, NULL, 0, &ret->ns), 0);
}

/* Publishes pages first..end-1 of a chain, unless their parent is gone or there is no room. */
static void publish_from(struct client *c, uint32_t chain, uint32_t first, uint32_t end)
{
        uint8_t keys[CHAIN_PAGES * KVL_KEY_BYTES], parent[KVL_KEY_BYTES];
        uint32_t pages[CHAIN_PAGES], got[CHAIN_PAGES], ids[CHAIN_PAGES * PAGE_TOKENS];
        uint32_t n = end - first, done = 0;
        struct kvl_publish p = {.size = sizeof(p),
                .pages = pages,
                .keys = keys,
                .n_pages = n,
                .last_tokens = PAGE_TOKENS,
                .tag = chain + 1,
                .token_ids = has_ids(chain) ? ids : NULL,
                .lora_name = lora_of(chain),
                .cache_salt = salt_of(chain)};

        for (uint32_t i = 0; i < n; i++) {
                make_key(chain, first + i, keys + i * KVL_KEY_BYTES);
                for (uint32_t t = 0; t < PAGE_TOKENS; t++)
                        ids[i * PAGE_TOKENS + t] = token_id(chain, first + i, t);
        }
        if (first > 0) {
                make_key(chain, first - 1, parent);
                p.parent_key = parent;
        }
        if (kvl_lease(c->ns, 0, n, pages) != 0)
                return;
        (void)kvl_publish(c->ns, &p, got, &done);
        kvl_release(c->ns, got, done);
        for (uint32_t i = 0; i < n; i++)
                if (i >= done || got[i] != pages[i])
                        kvl_free(c->ns, &pages[i], 1);
}

static void publish_chain(struct client *c, uint32_t chain)
{
        publish_from(c, chain, 0, CHAIN_PAGES);
}

static void invalidate_from(struct client *c, uint32_t chain, uint32_t index)
{
        uint8_t key[KVL_KEY_BYTES];

        make_key(chain, index, key);
        assert_true(kvl_invalidate(c->ns, key, NULL) >= 0);
}

/* ---- the follower ---------------------------------------------------------------------------- */

struct picture {
        struct kvl_follower *follower;
        const char *ns; /* name of the only namespace of interest */
        bool is_synced; /* no RESET since SYNCED */
        bool is_gone;
        unsigned counts[9]; /* by kind */
        struct {
                bool is_there, has_ids;
                uint8_t tier;
        } pages[N_CHAINS][CHAIN_PAGES];
};

static void follow_socket(const char *socket, const char *ns, struct picture *ret)
{
        const struct kvl_follow_options o = {.size = sizeof(o), .socket_path = socket};

        *ret = (struct picture){.ns = ns};
        assert_int_equal(kvl_follow_open(&o, &ret->follower), 0);
}

static void follow(struct harness *h, const char *ns, struct picture *ret)
{
        char socket[PRIVATE_PATH_MAX];

        follow_socket(private_daemon_socket(&h->daemon, "a", socket), ns, ret);
}

static void clear(struct picture *p)
{
        memset(p->pages, 0, sizeof(p->pages));
}

static void take_stored(struct picture *p, const struct kvl_follow_event *e, struct text_key k)
{
        uint8_t parent[KVL_KEY_BYTES];

        assert_int_equal(e->depth, k.index + 1);
        assert_int_equal(e->tag, k.chain + 1);
        assert_int_equal(e->n_tokens, PAGE_TOKENS);
        if (k.index == 0) {
                assert_null(e->parent_key);
        } else {
                make_key(k.chain, k.index - 1, parent);
                assert_memory_equal(e->parent_key, parent, KVL_KEY_BYTES);
                assert_true(p->pages[k.chain][k.index - 1].is_there);
        }
        assert_int_equal(e->token_ids != NULL, has_ids(k.chain));
        for (uint32_t t = 0; e->token_ids && t < PAGE_TOKENS; t++)
                assert_int_equal(e->token_ids[t], token_id(k.chain, k.index, t));
        assert_name(e->lora_name, e->token_ids && k.index == 0 ? lora_of(k.chain) : NULL);
        assert_name(e->cache_salt, e->token_ids && k.index == 0 ? salt_of(k.chain) : NULL);
        if (e->kind == KVL_FOLLOW_MOVED) {
                assert_true(p->pages[k.chain][k.index].is_there);
                assert_int_equal(p->pages[k.chain][k.index].tier, e->from_tier);
        } else {
                assert_false(p->pages[k.chain][k.index].is_there);
        }
        p->pages[k.chain][k.index].is_there = true;
        p->pages[k.chain][k.index].tier = e->tier;
}

static void take_removed(struct picture *p, const struct kvl_follow_event *e, struct text_key k)
{
        assert_true(p->pages[k.chain][k.index].is_there);
        assert_int_equal(p->pages[k.chain][k.index].tier, e->tier);
        assert_true(k.index + 1 == CHAIN_PAGES || !p->pages[k.chain][k.index + 1].is_there);
        p->pages[k.chain][k.index].is_there = false;
}

static void take_event(struct picture *p, const struct kvl_follow_event *e)
{
        struct text_key k = {0};

        if (strcmp(e->ns->name, p->ns) != 0)
                return;
        p->counts[e->kind]++;
        p->is_synced = e->kind == KVL_FOLLOW_RESET ? false : p->is_synced;
        if (e->key) {
                memcpy(&k, e->key, sizeof(k));
                assert_true(k.chain < N_CHAINS && k.index < CHAIN_PAGES);
        }
        switch (e->kind) {
        case KVL_FOLLOW_NAMESPACE:
                assert_string_equal(e->ns->model, "follow");
                assert_int_equal(e->ns->page_tokens, PAGE_TOKENS);
                assert_int_equal(e->ns->format_bytes, 1);
                break;
        case KVL_FOLLOW_RESET:
        case KVL_FOLLOW_CLEARED:
                clear(p);
                break;
        case KVL_FOLLOW_SYNCED:
                p->is_synced = true;
                break;
        case KVL_FOLLOW_STORED:
        case KVL_FOLLOW_MOVED:
                take_stored(p, e, k);
                break;
        case KVL_FOLLOW_REMOVED:
                take_removed(p, e, k);
                break;
        case KVL_FOLLOW_GONE:
                p->is_gone = true;
                clear(p);
        }
}

/* Takes all events until none has come for 50 ms. */
static void take_all(struct picture *p)
{
        struct kvl_follow_event e = {.size = sizeof(e)};
        int r;

        while ((r = kvl_follow_next(p->follower, 50, &e)) == 1)
                take_event(p, &e);
        assert_int_equal(r, 0);
}

static void await_count(struct picture *p, enum kvl_follow_kind kind, unsigned n)
{
        for (unsigned i = 0; i < 200 && p->counts[kind] < n; i++)
                take_all(p);
        assert_int_equal(p->counts[kind], n);
}

static unsigned count_pages(const struct picture *p)
{
        unsigned n = 0;

        for (uint32_t chain = 0; chain < N_CHAINS; chain++)
                for (uint32_t i = 0; i < CHAIN_PAGES; i++)
                        n += p->pages[chain][i].is_there;
        return n;
}

/* The picture equals what a client finds. */
static void assert_equal(struct picture *p, struct client *c)
{
        uint8_t keys[CHAIN_PAGES * KVL_KEY_BYTES], in[CHAIN_PAGES];

        assert_true(p->is_synced);
        for (uint32_t chain = 0; chain < N_CHAINS; chain++) {
                uint32_t n = 0;

                for (uint32_t i = 0; i < CHAIN_PAGES; i++)
                        make_key(chain, i, keys + i * KVL_KEY_BYTES);
                (void)kvl_probe(c->ns, keys, CHAIN_PAGES, in, &n);
                for (uint32_t i = 0; i < CHAIN_PAGES; i++) {
                        assert_int_equal(p->pages[chain][i].is_there, i < n);
                        if (i < n)
                                assert_int_equal(p->pages[chain][i].tier, in[i]);
                }
        }
}

static void assert_quiet_and_equal(struct harness *h, struct picture *p, struct client *c)
{
        ctl_wait_still(h, STILL_LOADED);
        take_all(p);
        assert_equal(p, c);
}

static void end(struct picture *p, struct client *c)
{
        kvl_follow_close(p->follower);
        kvl_disconnect(c->conn);
}

/* ---- what it sees ---------------------------------------------------------------------------- */

HARNESS_TEST(test_life, &plain)
{
        struct client c, duplicate;
        struct picture *p = calloc(1, sizeof(*p));

        open_client(h, "a", "ns", &c);
        publish_chain(&c, 0);
        follow(h, "ns", p);
        take_all(p);
        assert_int_equal(p->counts[KVL_FOLLOW_NAMESPACE], 1);
        assert_int_equal(p->counts[KVL_FOLLOW_STORED], CHAIN_PAGES); /* found there */
        publish_chain(&c, 1);
        publish_chain(&c, 2);
        take_all(p);
        assert_int_equal(count_pages(p), 3 * CHAIN_PAGES);
        open_client(h, "a", "ns", &duplicate);
        publish_chain(&duplicate, 2); /* changes nothing */
        kvl_disconnect(duplicate.conn);
        invalidate_from(&c, 2, 10);
        take_all(p);
        assert_int_equal(p->counts[KVL_FOLLOW_STORED], 3 * CHAIN_PAGES);
        assert_int_equal(p->counts[KVL_FOLLOW_REMOVED], CHAIN_PAGES - 10);
        assert_equal(p, &c);
        kvl_follow_reset(p->follower);
        take_all(p);
        assert_int_equal(p->counts[KVL_FOLLOW_RESET], 2);
        assert_equal(p, &c);
        assert_true(kvl_invalidate(c.ns, NULL, NULL) >= 0);
        publish_from(&c, 0, 0, 5);
        take_all(p);
        assert_int_equal(p->counts[KVL_FOLLOW_CLEARED], 1);
        assert_int_equal(count_pages(p), 5);
        kvl_disconnect(c.conn);
        ctl(h, "purge a --remove");
        await_count(p, KVL_FOLLOW_GONE, 1);
        kvl_follow_close(p->follower);
        free(p);
}

/* A client that publishes without token ids was first; the ids of the next one are added. */
HARNESS_TEST(test_late_ids, &plain)
{
        struct kvl_follow_event e = {.size = sizeof(e)};
        uint32_t pages[2], got, ids[PAGE_TOKENS], n_known = 0, n_unknown = 0;
        uint8_t key[KVL_KEY_BYTES];
        struct kvl_publish publish = {
                .size = sizeof(publish), .keys = key, .n_pages = 1, .last_tokens = PAGE_TOKENS};
        struct kvl_follow_options options = {.size = sizeof(options)};
        char socket[PRIVATE_PATH_MAX];
        struct kvl_follower *f;
        struct client c;

        for (uint32_t t = 0; t < PAGE_TOKENS; t++)
                ids[t] = token_id(0, 0, t);
        make_key(0, 0, key);
        open_client(h, "a", "ns", &c);
        options.socket_path = private_daemon_socket(&h->daemon, "a", socket);
        assert_int_equal(kvl_follow_open(&options, &f), 0);
        assert_int_equal(kvl_lease(c.ns, 0, 2, pages), 0);
        publish.pages = &pages[0];
        assert_int_equal(kvl_publish(c.ns, &publish, &got, NULL), 0);
        publish.pages = &pages[1];
        publish.token_ids = ids;
        publish.cache_salt = "late";
        assert_int_equal(kvl_publish(c.ns, &publish, &got, NULL), KVL_DUPLICATE);
        while (kvl_follow_next(f, 100, &e) == 1) {
                n_unknown += e.kind == KVL_FOLLOW_STORED && !e.token_ids;
                if (e.kind != KVL_FOLLOW_STORED || !e.token_ids)
                        continue;
                n_known++;
                assert_memory_equal(e.token_ids, ids, sizeof(ids));
                assert_name(e.cache_salt, "late");
        }
        assert_int_equal(n_known, 1);
        assert_true(n_unknown <= 1);
        kvl_follow_close(f);
        kvl_disconnect(c.conn);
}

/* Follows the pages of b's only chain on monitor.sock, and nothing of other tenants. */
static void follow_only_b(const char *monitor)
{
        const struct kvl_follow_options o = {
                .size = sizeof(o), .socket_path = monitor, .tenant = "b"};
        struct kvl_follow_event e = {.size = sizeof(e)};
        struct kvl_follower *f;
        unsigned n_stored = 0;

        assert_int_equal(kvl_follow_open(&o, &f), 0);
        while (kvl_follow_next(f, 50, &e) == 1) {
                assert_string_equal(e.ns->tenant, "b");
                n_stored += e.kind == KVL_FOLLOW_STORED;
        }
        assert_int_equal(n_stored, CHAIN_PAGES);
        kvl_follow_close(f);
}

/* A tenant's follower sees its own namespaces; one on monitor.sock sees all, or those of a tenant.
 */
HARNESS_TEST(test_tenants, &plain)
{
        struct picture *of_a = calloc(1, sizeof(*of_a)), *of_all = calloc(1, sizeof(*of_all));
        char monitor[PRIVATE_PATH_MAX + 16];
        struct client a, b;

        snprintf(monitor, sizeof(monitor), "%s/monitor.sock", h->daemon.runtime);
        follow(h, "of-b", of_a);
        follow_socket(monitor, "of-b", of_all);
        open_client(h, "a", "of-a", &a);
        open_client(h, "b", "of-b", &b);
        publish_chain(&a, 1);
        publish_chain(&b, 2);
        await_count(of_all, KVL_FOLLOW_NAMESPACE, 1);
        take_all(of_all);
        take_all(of_a);
        assert_int_equal(count_pages(of_all), CHAIN_PAGES);
        assert_int_equal(of_a->counts[KVL_FOLLOW_NAMESPACE], 0);
        follow_only_b(monitor);
        ctl(h, "tenants set b events=off");
        await_count(of_all, KVL_FOLLOW_GONE, 1);
        kvl_disconnect(b.conn);
        kvl_follow_close(of_all->follower);
        end(of_a, &a);
        free(of_a);
        free(of_all);
}

static void assert_said(struct harness *h, const char *words, const char *part)
{
        struct proc_output out;

        (void)ctl_run(h, words, &out);
        if (!strstr(out.out, part))
                fail_msg("no '%s' in: %s", part, out.out);
        proc_output_free(&out);
}

/* The second namespace doesn't fit the tenant's memory for events. */
HARNESS_TEST(test_no_room, &small)
{
        struct picture *p = calloc(1, sizeof(*p));
        struct client first, second;

        open_client(h, "a", "first", &first);
        assert_int_equal(ctl_status(h, "namespaces_without_events"), 0);
        open_client(h, "a", "second", &second);
        assert_int_equal(ctl_status(h, "namespaces_without_events"), 1);
        assert_said(h, "status --json", "namespace second of tenant a has no events: they reserve");
        assert_said(h, "doctor --json", "namespace second of tenant a has no events: they reserve");
        publish_chain(&second, 0);
        follow(h, "second", p);
        take_all(p);
        assert_int_equal(p->counts[KVL_FOLLOW_NAMESPACE], 0);
        ctl(h, "tenants set a events=64MiB");
        assert_said(
                h, "status --json", "namespace second of tenant a has no events until a restart");
        kvl_disconnect(first.conn);
        end(p, &second);
        free(p);
}

/* Pages move to host memory and back, and are evicted there. */
HARNESS_TEST(test_tiers, &tiers)
{
        struct picture *p = calloc(1, sizeof(*p));
        struct client c;

        open_client(h, "a", "ns", &c);
        follow(h, "ns", p);
        for (unsigned round = 0; round < 3; round++)
                for (uint32_t chain = 0; chain < N_CHAINS; chain++) {
                        publish_chain(&c, chain);
                        take_all(p);
                }
        assert_quiet_and_equal(h, p, &c);
        print_message("%u stored, %u moved, %u removed\n", p->counts[KVL_FOLLOW_STORED],
                p->counts[KVL_FOLLOW_MOVED], p->counts[KVL_FOLLOW_REMOVED]);
        if (!private_on_gpu())
                assert_true(p->counts[KVL_FOLLOW_MOVED] > 0);
        assert_true(p->counts[KVL_FOLLOW_REMOVED] > CHAIN_PAGES);
        assert_int_equal(p->counts[KVL_FOLLOW_RESET], 1);
        end(p, &c);
        free(p);
}

/* A follower that doesn't look for longer than the ring lasts begins anew, and ends with the right
 * picture. The publisher isn't slowed down, and the loop neither. */
HARNESS_TEST(test_overtaken, &tiers)
{
        struct picture *p = calloc(1, sizeof(*p));
        unsigned n_chains = 0;
        struct client c;

        open_client(h, "a", "ns", &c);
        follow(h, "ns", p);
        publish_chain(&c, 0);
        take_all(p);
        /* 16 tokens: 256 bytes a change, 32,768 of them. */
        while (n_chains * CHAIN_PAGES < 40000)
                publish_chain(&c, n_chains++ % N_CHAINS);
        ctl_wait_still(h, STILL_LOADED);
        take_all(p);
        assert_int_equal(p->counts[KVL_FOLLOW_RESET], 2);
        assert_equal(p, &c);
        harness_assert_prompt(h);
        end(p, &c);
        free(p);
}

struct busy {
        struct client client;
        atomic_bool ends;
};

static void *publish_on(void *data)
{
        struct busy *b = data;

        for (uint32_t chain = 0; !atomic_load(&b->ends); chain = (chain + 1) % N_CHAINS)
                publish_chain(&b->client, chain);
        return NULL;
}

/* Returns whether there was one. */
static bool take_next(struct picture *p)
{
        struct kvl_follow_event e = {.size = sizeof(e)};
        int r = kvl_follow_next(p->follower, 0, &e);

        if (r == 1)
                take_event(p, &e);
        assert_true(r >= 0);
        return r == 1;
}

/* Pages come and go while a follower copies the first picture: these changes are in it, too. */
HARNESS_TEST(test_joins_busy, &tiers)
{
        struct picture *p = calloc(N_JOINS, sizeof(*p));
        struct busy b = {0};
        pthread_t publisher;

        open_client(h, "a", "ns", &b.client);
        publish_chain(&b.client, 0);
        assert_int_equal(pthread_create(&publisher, NULL, publish_on, &b), 0);
        for (unsigned i = 0; i < N_JOINS; i++) {
                follow(h, "ns", &p[i]);
                take_next(&p[i]);
        }
        atomic_store(&b.ends, true);
        assert_int_equal(pthread_join(publisher, NULL), 0);
        ctl_wait_still(h, STILL_LOADED);
        for (unsigned i = 0; i < N_JOINS; i++) {
                while (take_next(&p[i]))
                        ;
                assert_int_equal(p[i].counts[KVL_FOLLOW_RESET], 1);
                assert_equal(&p[i], &b.client);
                kvl_follow_close(p[i].follower);
        }
        kvl_disconnect(b.client.conn);
        free(p);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

/* The daemon; `--keep` is its parent. */
/* Takes events up to the first of that kind. */
static void skip_to(struct kvl_follower *f, enum kvl_follow_kind kind)
{
        struct kvl_follow_event e = {.size = sizeof(e)};

        do
                assert_int_equal(kvl_follow_next(f, -1, &e), 1);
        while (e.kind != kind);
}

static uint64_t allocated(void)
{
        struct mallinfo2 info = mallinfo2();

        return info.uordblks + info.hblkhd;
}

/* The copy of the cached pages isn't malloc()'s: kvlease-events would take it for what peers use.
 */
HARNESS_TEST(test_memory, &tiers)
{
        struct picture *p = calloc(1, sizeof(*p));
        struct client c;
        uint64_t before;

        open_client(h, "a", "memory", &c);
        for (uint32_t i = 0; i < 12; i++)
                publish_chain(&c, 2 * i);
        follow(h, "memory", p);
        skip_to(p->follower, KVL_FOLLOW_NAMESPACE);
        before = allocated();
        skip_to(p->follower, KVL_FOLLOW_RESET);
        /* A pointer for each of 2,048 pages; the lines have 192 bytes each. */
        assert_in_range(allocated(), 0, before + 32768);
        end(p, &c);
        free(p);
}

static pid_t daemon_of(const struct harness *h)
{
        char path[64], text[64] = "";
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)h->daemon.pid,
                (int)h->daemon.pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read(fd, text, sizeof(text) - 1) < 0)
                text[0] = '\0';
        fd_close(fd);
        return (pid_t)atoi(text);
}

static void do_something(struct client *c, uint64_t *random)
{
        uint32_t chain = pattern_next(random) % N_CHAINS;
        uint32_t first = pattern_next(random) % CHAIN_PAGES;

        switch (pattern_next(random) % 16) {
        case 0:
                invalidate_from(c, chain, first);
                break;
        case 1:
                if (pattern_next(random) % 8 == 0)
                        assert_true(kvl_invalidate(c->ns, NULL, NULL) >= 0);
                break;
        case 2:
                assert_true(kvl_invalidate_tag(c->ns, chain + 1, NULL) >= 0);
                break;
        case 3:
        case 4:
                publish_from(
                        c, chain, first, first + 1 + pattern_next(random) % (CHAIN_PAGES - first));
                break;
        default:
                publish_chain(c, chain);
        }
}

/* In each round the daemon is killed, or the follower waits, while a client changes all. */
HARNESS_TEST(test_killed, &kept)
{
        unsigned n_rounds = private_full() ? 200 : private_short() ? 5 : 15;
        struct picture *p = calloc(1, sizeof(*p));
        uint64_t random = harness_seed();
        struct client c;

        harness_needs_kept_memory();
        open_client(h, "a", "ns", &c);
        follow(h, "ns", p);
        for (unsigned round = 0; round < n_rounds; round++) {
                for (unsigned i = 0; i < 40; i++) {
                        if (i == 20 && round % 3 != 2) {
                                kill(daemon_of(h), SIGKILL);
                                assert_int_equal(private_daemon_await(&h->daemon), 0);
                        }
                        do_something(&c, &random);
                        if (round % 2 == 0)
                                take_all(p);
                }
                assert_quiet_and_equal(h, p, &c);
        }
        assert_false(p->is_gone);
        assert_int_equal(p->counts[KVL_FOLLOW_NAMESPACE], 1);
        end(p, &c);
        free(p);
}

/* Without a descriptor store all is gone. */
HARNESS_TEST(test_restarted_empty, &plain)
{
        struct picture *p = calloc(1, sizeof(*p));
        struct client c;

        open_client(h, "a", "ns", &c);
        publish_chain(&c, 0);
        follow(h, "ns", p);
        take_all(p);
        kvl_disconnect(c.conn);
        harness_restart(h);
        await_count(p, KVL_FOLLOW_GONE, 1);
        open_client(h, "a", "ns", &c);
        publish_chain(&c, 1);
        await_count(p, KVL_FOLLOW_NAMESPACE, 2);
        p->is_gone = false;
        take_all(p);
        assert_equal(p, &c);
        end(p, &c);
        free(p);
}
