/*
 * Clients that write anything into the memory they share with the daemon: one attack each, then
 * random bytes. The daemon stays consistent. Clients beside them, of the same tenant and of another
 * one, aren't affected. A client that broke a rule is counted and muted.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"
#include "proto/status.h"
#include "tests/fault/good.h"
#include "tests/fault/raw-shm.h"
#include "tests/integration/pattern.h"

#define PING_MSEC 10000

static const struct private_tenant two[] = {
        {"a", "limit = 32MiB\nevents = 1GiB\n"}, {"b", "limit = 32MiB\n"}, {NULL, NULL}};
static const struct private_options two_tenants = {.tenants = two};
static const struct private_tenant one[] = {{"a", "limit = 2MiB\n"}, {NULL, NULL}};
static const struct private_options small_cache = {.tenants = one};

static uint32_t status_of(struct raw_shm *s, const struct shm_submission *entry)
{
        return raw_complete(s, entry).status;
}

/* Violations by entries. */
static void send_entry(struct raw_shm *s, struct shm_submission entry)
{
        entry.ns_id = s->ns_id;
        raw_submit(s, &entry);
        raw_ring(s);
}

static struct shm_submission publish_of(struct raw_shm *s, uint32_t page, uint8_t key)
{
        struct shm_submission p = {.op = SHM_OP_PUBLISH,
                .flags = SHM_PUBLISH_ROOT,
                .tokens = 16,
                .ns_id = s->ns_id,
                .page = page};

        memset(p.key, key, sizeof(p.key));
        return p;
}

static struct shm_submission free_of(struct raw_shm *s, uint32_t page)
{
        return (struct shm_submission){
                .op = SHM_OP_FREE, .tokens = 1, .ns_id = s->ns_id, .pages = {page}};
}

/* ---- what breaks a rule ---------------------------------------------------------------------- */

static void tail_ahead(struct raw_shm *s)
{
        atomic_fetch_add(&s->client->sub_tail, SHM_SUB_ENTRIES + 1);
        raw_ring(s);
}

static void tail_far(struct raw_shm *s)
{
        atomic_fetch_add(&s->client->sub_tail, UINT64_MAX / 2);
        raw_ring(s);
}

static void tail_back(struct raw_shm *s)
{
        for (unsigned i = 0; i < 3; ++i)
                send_entry(s, (struct shm_submission){.op = SHM_OP_REQUEST_END, .request_id = 1});
        assert_true(raw_ping(s, PING_MSEC));
        atomic_fetch_sub(&s->client->sub_tail, 1);
        raw_ring(s);
}

static void completions_unread(struct raw_shm *s);

/* Entries that are taken back wait for room for their completions. */
static void tail_back_waiting(struct raw_shm *s)
{
        const struct shm_submission f = free_of(s, UINT32_MAX);

        completions_unread(s);
        for (unsigned i = 0; i < SHM_COMP_ENTRIES; ++i) {
                while (atomic_load(&s->client->sub_tail) - atomic_load(&s->client->sub_head) >=
                        SHM_SUB_ENTRIES)
                        assert_true(raw_ring(s) && raw_ping(s, PING_MSEC));
                raw_submit(s, &f);
        }
        assert_true(raw_ring(s) && raw_ping(s, PING_MSEC));
        atomic_fetch_sub(&s->client->sub_tail, 5);
        raw_ring(s);
}

static void head_ahead(struct raw_shm *s)
{
        atomic_store(&s->client->comp_head, 1);
        raw_ring(s);
}

static void op_zero(struct raw_shm *s)
{
        send_entry(s, (struct shm_submission){.op = 0});
}

static void op_unknown(struct raw_shm *s)
{
        send_entry(s, (struct shm_submission){.op = SHM_OP_LAST + 1});
}

static void op_largest(struct raw_shm *s)
{
        send_entry(s, (struct shm_submission){.op = 255});
}

static void flags_of_free(struct raw_shm *s)
{
        struct shm_submission entry = free_of(s, raw_claim(s));

        entry.flags = 1;
        send_entry(s, entry);
}

static void flags_of_fetch(struct raw_shm *s)
{
        send_entry(s, (struct shm_submission){.op = SHM_OP_FETCH, .flags = SHM_FETCH_DOWN << 1});
}

static void flags_both(struct raw_shm *s)
{
        struct shm_submission entry = publish_of(s, raw_claim(s), 1);

        entry.flags = SHM_PUBLISH_ROOT | SHM_PUBLISH_CHAIN;
        send_entry(s, entry);
}

static void flags_unknown(struct raw_shm *s)
{
        struct shm_submission entry = publish_of(s, raw_claim(s), 1);

        entry.flags |= 0x80;
        send_entry(s, entry);
}

static void free_none(struct raw_shm *s)
{
        struct shm_submission entry = free_of(s, raw_claim(s));

        entry.tokens = 0;
        send_entry(s, entry);
}

static void free_many(struct raw_shm *s)
{
        struct shm_submission entry = free_of(s, raw_claim(s));

        entry.tokens = SHM_FREE_PAGES + 1;
        send_entry(s, entry);
}

/* The entries behind a broken one aren't executed. */
static void broken_in_the_middle(struct raw_shm *s)
{
        struct shm_submission good = publish_of(s, raw_claim(s), 1), bad = {.op = 77};

        raw_submit(s, &good);
        raw_submit(s, &bad);
        good = publish_of(s, raw_claim(s), 2);
        raw_submit(s, &good);
        raw_ring(s);
}

/* Overwrites the magazine with other pages, as if the daemon had granted them. */
static void magazine_overwritten(struct raw_shm *s)
{
        raw_claim(s);
        for (uint32_t slot = 0; slot < SHM_MAGAZINE_SLOTS; ++slot)
                atomic_store(&s->magazine[slot], slot + 1);
        raw_ring(s);
}

static void magazine_of_nonsense(struct raw_shm *s)
{
        raw_claim(s);
        for (uint32_t slot = 0; slot < SHM_MAGAZINE_SLOTS; ++slot)
                atomic_store(&s->magazine[slot], UINT32_MAX - slot % 3);
        raw_ring(s);
}

/* ---- what is refused, and what harms only itself --------------------------------------------- */

static void pages_out_of_range(struct raw_shm *s)
{
        const uint32_t pages[] = {s->capacity_pages, s->capacity_pages + 1, 0x7fffffff, UINT32_MAX,
                s->capacity_pages - 1};

        for (unsigned i = 0; i < ARRAY_SIZE(pages); ++i) {
                struct shm_submission p = publish_of(s, pages[i], 1), f = free_of(s, pages[i]);

                assert_int_equal(status_of(s, &p), WIRE_INVALID);
                assert_int_equal(status_of(s, &f), WIRE_INVALID);
                send_entry(s, (struct shm_submission){.op = SHM_OP_TOUCH,
                                      .page = pages[i],
                                      .touch = {.n_keys = UINT32_MAX, .n_hits = UINT32_MAX}});
                send_entry(s, (struct shm_submission){.op = SHM_OP_EXPECT,
                                      .ns_id = s->ns_id,
                                      .page = pages[i],
                                      .expect = {.ttl_msec = UINT32_MAX}});
        }
        assert_true(raw_ping(s, PING_MSEC));
}

static struct shm_submission fetch_of(struct raw_shm *s, uint32_t page)
{
        return (struct shm_submission){.op = SHM_OP_FETCH,
                .ns_id = s->ns_id,
                .page = page,
                .aux = page < s->capacity_pages ? (uint32_t)raw_generation(s, page) : 0};
}

/* FETCHes of pages that it hasn't pinned, with wrong data, or into pages that aren't its own. */
static void fetches(struct raw_shm *s)
{
        const uint32_t pages[] = {s->capacity_pages, 0x7fffffff, UINT32_MAX, s->capacity_pages - 1};
        static const uint32_t planes[][2] = {{0, 0}, {1, 0}, {1, 1}, {0, 2}, {UINT32_MAX, 1},
                {1, UINT32_MAX}, {0, UINT32_MAX}, {UINT32_MAX, UINT32_MAX}};
        uint32_t page = raw_claim(s), other = raw_claim(s);
        struct shm_submission p = publish_of(s, page, 31), f;

        for (unsigned i = 0; i < ARRAY_SIZE(pages); ++i) {
                f = fetch_of(s, pages[i]);
                assert_int_equal(status_of(s, &f), WIRE_INVALID);
        }
        assert_int_equal(status_of(s, &p), WIRE_OK);
        f = fetch_of(s, page);
        assert_int_equal(status_of(s, &f), WIRE_INVALID);
        atomic_fetch_add(&s->counters[page], 1);
        assert_int_equal(raw_complete(s, &f).page, page);
        f.aux++;
        assert_int_not_equal(status_of(s, &f), WIRE_OK);
        f = fetch_of(s, page);
        f.flags = SHM_FETCH_COPY;
        f.copy.to = page;
        assert_int_equal(status_of(s, &f), WIRE_INVALID);
        f.copy.to = UINT32_MAX;
        assert_int_equal(status_of(s, &f), WIRE_INVALID);
        /* Planes that there aren't: pages have one. */
        for (unsigned i = 0; i < ARRAY_SIZE(planes); ++i) {
                f = fetch_of(s, page);
                f.op = SHM_OP_FETCH_PLANES;
                f.copy.to = other;
                f.copy.first_plane = planes[i][0];
                f.copy.n_planes = planes[i][1];
                assert_int_equal(status_of(s, &f), WIRE_INVALID);
        }
        f.copy.first_plane = 0;
        f.copy.n_planes = 1;
        assert_int_equal(status_of(s, &f), WIRE_IO); /* there is no lower tier */
        /* The page is pinned only in the client's memory. */
        atomic_fetch_add(&s->counters[s->capacity_pages - 1], 1);
        f = fetch_of(s, s->capacity_pages - 1);
        assert_int_not_equal(status_of(s, &f), WIRE_OK);
        f = free_of(s, other);
        assert_int_equal(status_of(s, &f), WIRE_OK);
        atomic_fetch_sub(&s->counters[s->capacity_pages - 1], 1);
        atomic_fetch_sub(&s->counters[page], 1);
}

static void other_namespaces(struct raw_shm *s)
{
        struct shm_submission f = free_of(s, raw_claim(s));

        for (unsigned i = 0; i < 3; ++i) {
                f.ns_id = i == 0 ? 0 : i == 1 ? s->ns_id + 1 : UINT32_MAX;
                assert_int_equal(status_of(s, &f), WIRE_NOT_FOUND);
        }
}

/* Every kind of page: free ones, others' grants and cached pages, those in its own magazine. It has
 * claimed none of them. */
static void pages_of_others(struct raw_shm *s)
{
        struct shm_submission claimed = free_of(s, raw_claim(s));

        assert_int_equal(status_of(s, &claimed), WIRE_OK);
        assert_true(s->pins->n_put > 1);
        for (uint32_t page = 0; page < 2 * s->set_pages; ++page) {
                struct shm_submission p = publish_of(s, page, 1), f = free_of(s, page);

                assert_int_equal(status_of(s, &p), WIRE_INVALID);
                assert_int_equal(status_of(s, &f), WIRE_INVALID);
        }
}

static void free_twice(struct raw_shm *s)
{
        uint32_t page = raw_claim(s), other = raw_claim(s);
        struct shm_submission f = free_of(s, page), both = free_of(s, other);

        assert_int_equal(status_of(s, &f), WIRE_OK);
        assert_int_equal(status_of(s, &f), WIRE_INVALID);
        both.tokens = 2;
        both.pages[1] = other;
        assert_int_equal(status_of(s, &both), WIRE_INVALID);
        both.pages[1] = page;
        assert_int_equal(status_of(s, &both), WIRE_INVALID);
        both.tokens = 1;
        assert_int_equal(status_of(s, &both), WIRE_OK);
}

static void publish_twice(struct raw_shm *s)
{
        uint32_t page = raw_claim(s);
        struct shm_submission p = publish_of(s, page, 11), f = free_of(s, page);

        p.tokens = 0;
        assert_int_equal(status_of(s, &p), WIRE_INVALID);
        p.tokens = 17;
        assert_int_equal(status_of(s, &p), WIRE_INVALID);
        p.tokens = 16;
        assert_int_equal(status_of(s, &p), WIRE_OK);
        assert_int_equal(status_of(s, &p), WIRE_INVALID);
        p = publish_of(s, page, 12);
        assert_int_equal(status_of(s, &p), WIRE_INVALID);
        assert_int_equal(status_of(s, &f), WIRE_INVALID);
}

/* Entries that depend on a parent that is absent, or failed. */
static void chain_on_nothing(struct raw_shm *s)
{
        struct shm_submission p = publish_of(s, raw_claim(s), 21), f;
        const struct shm_submission parent = {
                .op = SHM_OP_PARENT, .ns_id = s->ns_id, .key = {0xee}};

        p.flags = SHM_PUBLISH_CHAIN;
        assert_int_equal(status_of(s, &p), WIRE_NO_PARENT);
        raw_submit(s, &parent);
        assert_int_equal(status_of(s, &p), WIRE_NO_PARENT);
        assert_int_equal(status_of(s, &p), WIRE_NO_PARENT);
        f = free_of(s, p.page);
        assert_int_equal(status_of(s, &f), WIRE_OK);
        /* Its first page's parent would be itself. */
        p.page = raw_claim(s);
        p.flags = SHM_PUBLISH_ROOT;
        assert_int_equal(status_of(s, &p), WIRE_OK);
        p.flags = SHM_PUBLISH_CHAIN;
        assert_int_not_equal(status_of(s, &p), WIRE_OK);
}

static void refill_everything(struct raw_shm *s)
{
        for (unsigned i = 0; i < 2000; ++i) {
                send_entry(s, (struct shm_submission){.op = SHM_OP_REFILL, .aux = UINT32_MAX - i});
                if (i % 100 == 0)
                        assert_true(raw_ping(s, PING_MSEC));
        }
}

static void counters_at_most(struct raw_shm *s)
{
        for (uint32_t page = 0; page < s->capacity_pages; ++page)
                atomic_store(&s->counters[page], UINT32_MAX);
        assert_true(raw_ping(s, PING_MSEC));
}

/* Every number of the headers that the daemon wrote and the client can overwrite. */
static void headers_overwritten(struct raw_shm *s)
{
        memset(&s->client->header, 0xff, offsetof(struct shm_client, sub_tail));
        memset(&s->pins->header, 0xff, sizeof(*s->pins));
        for (unsigned i = 0; i < 3; ++i)
                send_entry(s, (struct shm_submission){.op = SHM_OP_REFILL, .aux = 3});
        assert_true(raw_ping(s, PING_MSEC));
        atomic_store(&s->client->sub_head, UINT64_MAX);
        atomic_store(&s->client->comp_tail, UINT64_MAX);
        send_entry(s, (struct shm_submission){.op = SHM_OP_REQUEST_END, .request_id = 1});
        assert_true(raw_ping(s, PING_MSEC));
}

static void resized(struct raw_shm *s)
{
        assert_int_equal(ftruncate(s->client_fd, 0), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(ftruncate(s->client_fd, 1 << 30), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(ftruncate(s->pins_fd, 0), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(ftruncate(s->index_fd, 0), -1);
        assert_int_equal(pwrite(s->index_fd, "x", 1, 0), -1);
        assert_true(mmap(NULL, s->index_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->index_fd,
                            0) == MAP_FAILED);
        assert_int_equal(mprotect((void *)s->index, s->index_bytes, PROT_READ | PROT_WRITE), -1);
        assert_true(raw_ping(s, PING_MSEC));
}

/* No entry is executed whose completion has no room. No other client waits for this one. */
static void completions_unread(struct raw_shm *s)
{
        const struct shm_submission f = free_of(s, UINT32_MAX);
        uint64_t n = SHM_COMP_ENTRIES + SHM_SUB_ENTRIES;

        for (uint64_t i = 0; i < n; ++i) {
                while (i - atomic_load(&s->client->sub_head) >= SHM_SUB_ENTRIES)
                        assert_true(raw_ring(s) && raw_ping(s, PING_MSEC));
                raw_submit(s, &f);
        }
        assert_true(raw_ring(s) && raw_ping(s, PING_MSEC));
        assert_int_equal(atomic_load(&s->client->sub_head), SHM_COMP_ENTRIES);
        assert_int_equal(atomic_load(&s->client->comp_tail), SHM_COMP_ENTRIES);
        atomic_store(&s->client->comp_head, SHM_COMP_ENTRIES);
        assert_true(raw_ring(s) && raw_ping(s, PING_MSEC));
        assert_int_equal(atomic_load(&s->client->comp_tail), n);
}

/* The client flips its sleep flag at random. */
static void sleeps_flipped(struct raw_shm *s)
{
        static const uint32_t values[] = {0, 1, 2, UINT32_MAX};

        for (unsigned i = 0; i < 2000; ++i) {
                const struct shm_submission e = {
                        .op = SHM_OP_REQUEST_END, .ns_id = s->ns_id, .request_id = i};

                atomic_store(&s->client->client_sleeps, values[i % 4]);
                raw_submit(s, &e);
                atomic_store(&s->client->daemon_sleeps, values[i / 4 % 4]);
                if (i % 3 == 0)
                        raw_ring(s);
                if (i % 200 == 0)
                        assert_true(raw_ping(s, PING_MSEC));
        }
        assert_true(raw_ping(s, PING_MSEC));
        assert_int_equal(atomic_load(&s->client->sub_head), 2000);
}

/* Rings the doorbell without end. */
static void doorbells(struct raw_shm *s)
{
        for (unsigned i = 0; i < 20000; ++i)
                assert_true(raw_ring(s));
        assert_true(raw_ping(s, PING_MSEC));
}

struct changer {
        struct raw_shm *shm;
        _Atomic bool stop;
};

static void *change(void *data)
{
        struct changer *c = data;
        uint64_t random = 1;

        while (!c->stop) {
                uint64_t n = pattern_next(&random);
                struct shm_submission *e = &c->shm->subs[n % SHM_SUB_ENTRIES];

                /* The ring's rules are kept, but an entry changes between the daemon's first and
                 * second look. */
                e->page = (uint32_t)(n >> 32) % (2 * c->shm->set_pages);
                e->key[0] = (uint8_t)(n >> 16);
                e->tokens = (uint16_t)(1 + (n >> 24) % 8);
                e->op = n & (1 << 20) ? SHM_OP_FREE : SHM_OP_PARENT;
        }
        return NULL;
}

static void entries_change(struct raw_shm *s)
{
        struct changer c = {.shm = s};
        uint64_t end = now_nsec() + UINT64_C(300000000);
        pthread_t thread;

        for (unsigned i = 0; i < SHM_SUB_ENTRIES; ++i)
                s->subs[i] = free_of(s, i);
        assert_int_equal(pthread_create(&thread, NULL, change, &c), 0);
        while (now_nsec() < end) {
                uint64_t head = atomic_load(&s->client->sub_head);

                atomic_store(&s->client->comp_head, atomic_load(&s->client->comp_tail));
                atomic_store(&s->client->sub_tail, head + SHM_SUB_ENTRIES / 2);
                raw_ring(s);
                assert_true(raw_ping(s, PING_MSEC));
        }
        c.stop = true;
        pthread_join(thread, NULL);
}

struct attack {
        const char *name;
        void (*fn)(struct raw_shm *s);
        bool is_violation;
};

static const struct attack attacks[] = {
        {"tail-ahead", tail_ahead, true},
        {"tail-far", tail_far, true},
        {"tail-back", tail_back, true},
        {"tail-back-waiting", tail_back_waiting, true},
        {"head-ahead", head_ahead, true},
        {"op-zero", op_zero, true},
        {"op-unknown", op_unknown, true},
        {"op-largest", op_largest, true},
        {"flags-of-free", flags_of_free, true},
        {"flags-of-fetch", flags_of_fetch, true},
        {"flags-both", flags_both, true},
        {"flags-unknown", flags_unknown, true},
        {"free-none", free_none, true},
        {"free-many", free_many, true},
        {"broken-in-the-middle", broken_in_the_middle, true},
        {"magazine-overwritten", magazine_overwritten, true},
        {"magazine-of-nonsense", magazine_of_nonsense, true},
        {"pages-out-of-range", pages_out_of_range, false},
        {"fetches", fetches, false},
        {"other-namespaces", other_namespaces, false},
        {"pages-of-others", pages_of_others, false},
        {"free-twice", free_twice, false},
        {"publish-twice", publish_twice, false},
        {"chain-on-nothing", chain_on_nothing, false},
        {"refill-everything", refill_everything, false},
        {"counters-at-most", counters_at_most, false},
        {"headers-overwritten", headers_overwritten, false},
        {"resized", resized, false},
        {"completions-unread", completions_unread, false},
        {"sleeps-flipped", sleeps_flipped, false},
        {"doorbells", doorbells, false},
        {"entries-change", entries_change, false},
};

static void run_attack(struct harness *h, void *data)
{
        const struct attack *attack = data;
        static struct raw_shm s;

        raw_share(&s, h, "good");
        attack->fn(&s);
}

HARNESS_TEST(test_attacks, &two_tenants)
{
        struct good same, other;

        good_start(&same, h, "a");
        good_start(&other, h, "b");
        for (unsigned i = 0; i < ARRAY_SIZE(attacks); ++i) {
                struct raw_child child;

                print_message("%s\n", attacks[i].name);
                child = raw_fork(h, run_attack, (void *)&attacks[i]);
                h->violations += attacks[i].is_violation;
                good_round(&same);
                good_round(&other);
                ctl_wait_status(h, "violations", h->violations);
                assert_int_equal(ctl_status(h, "peers_muted"), attacks[i].is_violation);
                ctl(h, "check");
                raw_join(&child);
                ctl_wait_status(h, "n_clients", 2);
                ctl_wait_status(h, "peers_muted", 0);
                assert_int_equal(ctl_status(h, "pages_granted"), 2);
                assert_int_equal(ctl_status(h, "pages_pinned"), 8);
                good_round(&same);
        }
        good_stop(&same);
        good_stop(&other);
}

/* ---- counters as a lie about other people's pins --------------------------------------------- */

/* Pins of all clients are summed: one client's counter must not make the sum zero. */
static void wrap_counters(struct harness *h, void *data)
{
        static struct raw_shm s;
        const uint32_t *pages = data;

        raw_share(&s, h, "good");
        for (unsigned i = 0; i < 4; ++i)
                atomic_store(&s.counters[pages[i]], UINT32_MAX);
}

HARNESS_TEST(test_counters_wrap, &small_cache)
{
        struct worker *reader = worker_start(h, "a", "good", 1), *other;
        struct raw_child child;
        uint32_t pages[4];

        worker_publish_chain(reader, 1, 4, pages);
        child = raw_fork(h, wrap_counters, pages);
        other = worker_start(h, "a", "good", 1);
        worker_tell(other, "lease 508");
        assert_int_equal(worker_ask(other, "lease 1"), 3); /* KVL_QUOTA */
        worker_tell(reader, "invalidate 1:0");
        assert_int_equal(worker_ask(other, "lease 1"), 3);
        for (unsigned i = 0; i < 4; ++i)
                worker_tell(reader, "verify %u %u", pages[i], 1000 + i);
        worker_stop(reader);
        assert_int_equal(worker_ask(other, "lease 1"), 3); /* the liar keeps them, while it lives */
        raw_join(&child);
        ctl_wait_status(h, "n_clients", 1);
        worker_tell(other, "lease 4");
}

/* ---- random bytes ---------------------------------------------------------------------------- */

/* Writes anywhere it can; the daemon's next look at the ring mostly ends it. */
static void scribble_anywhere(struct raw_shm *s, uint64_t *random)
{
        uint64_t n = pattern_next(random);
        uint8_t *base = n & 1 ? (uint8_t *)s->client : (uint8_t *)s->pins;
        size_t bytes = n & 1 ? SHM_CLIENT_BYTES : MIN(s->pins_bytes, (size_t)65536);
        uint64_t value = pattern_next(random) >> (pattern_next(random) % 64);

        memcpy(base + (n >> 8) % (bytes - 8), &value, 8);
}

/* Entries that break no rule of the ring, with random contents. */
static void scribble_entries(struct raw_shm *s, uint64_t *random)
{
        uint64_t n = pattern_next(random), tail = atomic_load(&s->client->sub_tail);
        struct shm_submission e;

        for (unsigned i = 0; i < sizeof(e) / 8; ++i)
                ((uint64_t *)(void *)&e)[i] = pattern_next(random);
        e.op = (uint8_t)(1 + n % SHM_OP_LAST);
        e.flags = e.op == SHM_OP_PUBLISH ? (uint8_t)(1 + (n >> 8) % 2) : 0;
        if (e.op == SHM_OP_FETCH)
                e.flags = (uint8_t)((n >> 8) % 2);
        e.tokens = (uint16_t)(1 + (n >> 16) % SHM_FREE_PAGES);
        e.ns_id = n & (15 << 20) ? s->ns_id : e.ns_id;
        e.page %= 2 * s->set_pages;
        if (e.op == SHM_OP_PUBLISH)
                memset(e.key, (int)(n >> 32) % 16, sizeof(e.key));
        for (unsigned i = 0; e.op == SHM_OP_FREE && i < SHM_FREE_PAGES; ++i)
                e.pages[i] %= 2 * s->set_pages;
        if (tail - atomic_load(&s->client->sub_head) < SHM_SUB_ENTRIES)
                raw_submit(s, &e);
        atomic_store(&s->client->comp_head, atomic_load(&s->client->comp_tail));
}

/* Scribbles into counters and magazine; takes pages, and puts some back. */
static void scribble_pins(struct raw_shm *s, uint64_t *random)
{
        uint64_t n = pattern_next(random);
        uint32_t slot = (uint32_t)(n >> 8) % 64;

        atomic_store(
                &s->counters[(n >> 32) % (2 * s->set_pages)], (uint32_t)pattern_next(random) % 4);
        if (n % 4 == 0)
                atomic_exchange(&s->magazine[slot], 0);
        if (n % 512 == 1)
                atomic_store(&s->magazine[slot], (uint32_t)(n >> 40) % (2 * s->set_pages));
        if (n % 16 == 2)
                send_entry(s, (struct shm_submission){.op = SHM_OP_REFILL, .aux = 8});
}

static void scribble(struct harness *h, void *data)
{
        static void (*const ways[])(struct raw_shm * s, uint64_t * random) = {
                scribble_anywhere, scribble_entries, scribble_pins};
        static struct raw_shm s;
        uint64_t random = *(uint64_t *)data;
        unsigned way = (unsigned)(pattern_next(&random) % ARRAY_SIZE(ways));

        raw_share(&s, h, "good");
        for (unsigned i = 0; i < 200; ++i) {
                for (unsigned k = 0; k < 50; ++k)
                        ways[way](&s, &random);
                /* The client is muted: no answer comes any more. */
                if (!raw_ring(&s) || !raw_ping(&s, 200))
                        break;
        }
}

static bool is_over(const struct raw_child *c)
{
        struct pollfd p = {c->fd, POLLIN, 0};

        return poll(&p, 1, 0) > 0;
}

HARNESS_TEST(test_random, &two_tenants)
{
        uint64_t seed = harness_seed(), seconds = private_full() ? 60 : 3;
        uint64_t end = now_nsec() + seconds * 1000000000;
        struct raw_child child = {.fd = -1};
        struct good same, other;
        unsigned n_lives = 0;

        good_start(&same, h, "a");
        good_start(&other, h, "b");
        /* On a busy machine, or under valgrind, that is too short for one violation. */
        while (now_nsec() < end || child.fd >= 0 || h->violations == 0) {
                assert_true(n_lives < 10000);
                if (child.fd < 0) {
                        seed = pattern_mix(seed);
                        child = raw_fork_start(h, scribble, &seed);
                        n_lives++;
                }
                good_round(&same);
                good_round(&other);
                if (n_lives % 8 == 0)
                        ctl(h, "check");
                if (is_over(&child)) {
                        raw_join(&child);
                        h->violations = ctl_status(h, "violations");
                }
        }
        ctl(h, "check");
        h->violations = ctl_status(h, "violations");
        print_message("%u lives, %llu violations\n", n_lives, (unsigned long long)h->violations);
        good_stop(&same);
        good_stop(&other);
}
