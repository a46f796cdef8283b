/*
 * prefetch-stream: a cold text in host memory is read piece by piece. Measures a lookup, and the
 * whole text, beside a tenant whose prefetch_steps is 0. The engine reads the bytes of each piece
 * (-0ms: the next copy has that long), or also waits for a device of its own (-5ms). Engine, daemon
 * and its copying thread need a core each; on fewer, copies ahead take the engine's time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "tests/bench/fixture.h"
#include "lab/bench/tiers.h"
#include "tests/integration/pattern.h"

#define PAGE_BYTES  (256u << 10)
#define PIECE       8   /* pages of a lookup: 2 MiB */
#define TEXT        128 /* pages: 32 MiB */
#define MAX_FILLERS 8   /* the device holds three texts */
#define MAX_TRIES   5
#define MAX_ROUNDS  7u /* making texts cold takes seconds */
#define PAUSE_USEC  5000u

enum { WITH, WITHOUT, N_READERS };

static const unsigned waits_msec[] = {0, 5};
#define N_WAITS ARRAY_SIZE(waits_msec)

static const struct private_tenant tenants[] = {{"with", "evict = lru\nlimit = 96MiB\n"},
        {"without", "evict = lru\nlimit = 96MiB\nprefetch_steps = 0\n"}, {NULL, NULL}};
static const struct private_options options = {.tenants = tenants,
        .device_lines = "memory = 192MiB\nextent = 8MiB\nhost_memory = 256MiB\n"};

struct reading {
        struct fixture f;
        struct fixture_client clients[N_READERS];
        struct series lookups[N_WAITS][N_READERS], texts[N_WAITS][N_READERS];
        uint64_t last_text;  /* of those that took the device */
        unsigned pause_usec; /* after each piece that is published */
        volatile uint64_t sum;
};

static void make_keys(uint64_t text, uint32_t first, uint32_t n, uint8_t *keys)
{
        for (uint32_t i = 0; i < n; i++)
                pattern_key(text, first + i, keys + (size_t)i * KVL_KEY_BYTES);
}

/* Publishes one piece that continues a text; it stays pinned. */
static int publish_piece(struct kvl_ns *ns, uint64_t text, uint32_t at, uint32_t *pages)
{
        uint8_t keys[PIECE * KVL_KEY_BYTES], parent[KVL_KEY_BYTES];
        struct kvl_publish p = {.size = sizeof(p),
                .pages = pages,
                .keys = keys,
                .n_pages = PIECE,
                .parent_key = at > 0 ? parent : NULL,
                .last_tokens = FIXTURE_PAGE_TOKENS};
        int r = kvl_lease(ns, 0, PIECE, pages);

        make_keys(text, at, PIECE, keys);
        if (at > 0)
                make_keys(text, at - 1, 1, parent);
        for (uint32_t i = 0; r == 0 && i < PIECE; i++)
                memset(kvl_page_ptr(ns, pages[i], 0), (int)(text + at + i), PAGE_BYTES);
        if (r == 0)
                r = kvl_publish(ns, &p, NULL, NULL);
        return r == 0 ? 0 : bench_fail(kvl_last_error(), r);
}

/* Publishes so slowly that pages are demoted first, and none is evicted. */
static int publish(struct reading *b, struct kvl_ns *ns, uint64_t text)
{
        uint32_t pages[TEXT];
        int r = 0;

        for (uint32_t at = 0; r == 0 && at < TEXT; at += PIECE) {
                r = publish_piece(ns, text, at, pages + at);
                usleep(b->pause_usec);
        }
        if (r != 0)
                return r;
        r = kvl_release(ns, pages, TEXT);
        return r == 0 ? 0 : bench_fail(kvl_last_error(), r);
}

/*
 * Counts the text's pages on the device. -ENOENT: one isn't cached any more; -errno, with a line.
 */
static int count_there(struct kvl_ns *ns, uint64_t text)
{
        uint8_t keys[TEXT * KVL_KEY_BYTES];
        uint32_t pages[TEXT], n = 0;
        uint64_t n_tokens;
        int r, n_there = 0;

        make_keys(text, 0, TEXT, keys);
        r = kvl_find(ns, 0, keys, TEXT, pages, &n, &n_tokens);
        if (r != 0 && r != KVL_MISS)
                return bench_fail(kvl_last_error(), r);
        for (uint32_t i = 0; i < n; i++)
                n_there += kvl_page_tier(ns, pages[i]) == KVL_TIER_DEVICE;
        r = n > 0 ? kvl_release(ns, pages, n) : 0;
        if (r != 0)
                return bench_fail(kvl_last_error(), r);
        return n < TEXT ? -ENOENT : n_there;
}

static int drop(struct kvl_ns *ns, uint64_t text)
{
        uint8_t key[KVL_KEY_BYTES];
        int r;

        pattern_key(text, 0, key);
        r = kvl_invalidate(ns, key, NULL);
        return r == 0 ? 0 : bench_fail(kvl_last_error(), r);
}

/* Publishes and drops other texts until all of this one is in the lower tier. On a busy machine
 * leases are faster than demotions, and a page is evicted: -ENOENT. */
static int push_down(struct reading *b, struct kvl_ns *ns, uint64_t text)
{
        uint64_t first = b->last_text + 1;
        int r = 0, n = 1;

        for (unsigned i = 0; r == 0 && n > 0 && i < MAX_FILLERS; i++) {
                r = publish(b, ns, ++b->last_text);
                n = r == 0 ? count_there(ns, text) : 0;
        }
        if (r == 0)
                r = n > 0 ? -ENOENT : n;
        for (; first <= b->last_text; first++)
                if (drop(ns, first) < 0)
                        return -EIO;
        return r;
}

static int cool(struct reading *b, struct kvl_ns *ns, uint64_t text)
{
        int r = -ENOENT;

        for (unsigned i = 0; r == -ENOENT && i < MAX_TRIES; i++) {
                b->pause_usec = PAUSE_USEC << i;
                r = drop(ns, text);
                if (r == 0)
                        r = publish(b, ns, text);
                if (r == 0)
                        r = push_down(b, ns, text);
        }
        return r == -ENOENT ? bench_fail("a text that doesn't stay in memory of the host", r) : r;
}

/* Reads a piece, like an engine. */
static void compute(struct reading *b, struct kvl_ns *ns, const uint32_t *pages)
{
        uint64_t sum = 0;

        for (uint32_t i = 0; i < PIECE; i++) {
                const uint64_t *words = kvl_page_ptr(ns, pages[i], 0);

                for (size_t k = 0; k < PAGE_BYTES / sizeof(*words); k++)
                        sum += words[k];
        }
        b->sum += sum;
}

static int read_text(struct reading *b, unsigned wait, unsigned reader, uint64_t text)
{
        struct kvl_ns *ns = b->clients[reader].ns;
        uint64_t start_nsec = clock_now_nsec(), n_tokens;
        uint8_t keys[PIECE * KVL_KEY_BYTES];
        uint32_t pages[PIECE], n;

        for (uint32_t at = 0; at < TEXT; at += PIECE) {
                uint64_t begin_nsec = clock_now_nsec();
                int r;

                make_keys(text, at, PIECE, keys);
                r = kvl_lookup(ns, 0, keys, PIECE, pages, &n, &n_tokens);
                if (r != 0 || n < PIECE)
                        return bench_fail(kvl_last_error(), r != 0 ? r : -ENOENT);
                series_add(&b->lookups[wait][reader], bench_usec_since(begin_nsec));
                compute(b, ns, pages);
                usleep(1000 * waits_msec[wait]);
                r = kvl_release(ns, pages, PIECE);
                if (r != 0)
                        return bench_fail(kvl_last_error(), r);
        }
        series_add(&b->texts[wait][reader], bench_usec_since(start_nsec));
        return 0;
}

static int open_all(struct reading *b)
{
        int r = private_daemon_init(&b->f.daemon, &options);

        if (r == 0)
                r = private_daemon_start(&b->f.daemon);
        if (r < 0)
                return bench_fail("private kvleased", r);
        b->f.page_bytes = PAGE_BYTES;
        for (unsigned i = 0; r == 0 && i < N_READERS; i++) {
                private_daemon_socket(&b->f.daemon, tenants[i].name, b->f.socket);
                r = fixture_connect(&b->f, 0, &b->clients[i]);
        }
        b->last_text = N_READERS;
        return r;
}

static int one_round(struct reading *b, unsigned wait, unsigned rounds)
{
        int r = 0;

        for (unsigned i = 0; r == 0 && i < N_READERS; i++) {
                struct series *lookups = &b->lookups[wait][i], *texts = &b->texts[wait][i];

                if (!lookups->samples)
                        r = series_init(lookups, TEXT / PIECE, rounds);
                if (r == 0 && !texts->samples)
                        r = series_init(texts, 1, rounds);
                if (r == 0)
                        r = cool(b, b->clients[i].ns, i);
                if (r == 0)
                        r = read_text(b, wait, i, i);
                series_close_round(lookups);
                series_close_round(texts);
        }
        return r;
}

static void report(struct reading *b, unsigned wait, struct bench_run *run)
{
        unsigned msec = waits_msec[wait];

        series_report(bench_add(run, "us", "prefetch-stream-%ums", msec), &b->lookups[wait][WITH],
                &b->lookups[wait][WITHOUT], "without");
        series_report(bench_add(run, "us", "prefetch-stream-%ums-text", msec),
                &b->texts[wait][WITH], &b->texts[wait][WITHOUT], "without");
}

int tiers_prefetch(struct bench_run *run)
{
        unsigned rounds = run->quick ? 1 : MIN(run->rounds, MAX_ROUNDS);
        struct reading b = {.f = FIXTURE_INIT};
        int r = open_all(&b);

        for (unsigned k = 0; r == 0 && k < rounds; k++)
                for (unsigned wait = 0; r == 0 && wait < N_WAITS; wait++)
                        r = one_round(&b, wait, rounds);
        for (unsigned wait = 0; wait < N_WAITS; wait++) {
                if (r == 0)
                        report(&b, wait, run);
                for (unsigned i = 0; i < N_READERS; i++) {
                        series_deinit(&b.lookups[wait][i]);
                        series_deinit(&b.texts[wait][i]);
                }
        }
        for (unsigned i = 0; i < N_READERS; i++)
                fixture_disconnect(&b.clients[i]);
        fixture_close(&b.f);
        return r;
}
