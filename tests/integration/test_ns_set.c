/*
 * Namespace sets: the ranks of a tensor-parallel model, a process each, and a scheduler that looks
 * up in all of them.
 */
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

#define N_RANKS 4

/* A set of 512 pages for each rank. */
static const struct private_tenant one[] = {{"a", "limit = 8MiB\n"}, {NULL, NULL}};
static const struct private_options small_cache = {.tenants = one};

struct model {
        struct harness *h;
        struct worker *ranks[N_RANKS];
        struct worker *scheduler; /* metadata-only, with the namespaces of all ranks open */
};

static void open_rank(struct worker *w, unsigned rank)
{
        worker_tell(w, "set-open rank-%u 1 model %u %u", rank, N_RANKS, rank);
}

static struct worker *start_rank(struct harness *h, unsigned rank)
{
        struct worker *w = worker_spawn(h);
        char socket[PRIVATE_PATH_MAX];

        worker_tell(w, "connect %s", private_daemon_socket(&h->daemon, "a", socket));
        open_rank(w, rank);
        return w;
}

static void start_model(struct model *m, struct harness *h)
{
        char socket[PRIVATE_PATH_MAX];

        m->h = h;
        for (unsigned i = 0; i < N_RANKS; ++i)
                m->ranks[i] = start_rank(h, i);
        m->scheduler = worker_spawn(h);
        worker_tell(m->scheduler, "connect %s - metadata",
                private_daemon_socket(&h->daemon, "a", socket));
        for (unsigned i = 0; i < N_RANKS; ++i)
                open_rank(m->scheduler, i);
}

static void stop_model(struct model *m)
{
        for (unsigned i = 0; i < N_RANKS; ++i)
                if (m->ranks[i])
                        worker_stop(m->ranks[i]);
        worker_stop(m->scheduler);
}

/* The first n pages of the text, in one rank; they stay pinned. */
struct text {
        unsigned chain, n;
        uint32_t pages[64];
};

static void publish(struct model *m, unsigned rank, struct text *t)
{
        worker_publish_chain(m->ranks[rank], t->chain, t->n, t->pages);
}

static void release(struct model *m, unsigned rank, const struct text *t)
{
        char line[1024];
        int at = snprintf(line, sizeof(line), "release");

        for (unsigned i = 0; i < t->n; ++i)
                at += snprintf(line + at, sizeof(line) - (size_t)at, " %u", t->pages[i]);
        worker_tell(m->ranks[rank], "%s", line);
}

/* Publishes in all ranks before it releases in any. */
static void publish_in_all(struct model *m, unsigned chain, unsigned n, unsigned n_ranks)
{
        struct text texts[N_RANKS];

        for (unsigned i = 0; i < n_ranks; ++i) {
                texts[i] = (struct text){.chain = chain, .n = n};
                publish(m, i, &texts[i]);
        }
        for (unsigned i = 0; i < n_ranks; ++i)
                release(m, i, &texts[i]);
}

static uint64_t set_figure(struct harness *h, const char *name)
{
        json_t *reply = ctl_json(h, "sets"), *set;
        uint64_t value;

        assert_int_equal(json_array_size(ctl_list(reply, "sets")), 1);
        set = json_array_get(ctl_list(reply, "sets"), 0);
        assert_string_equal(json_string_value(json_object_get(set, "name")), "model");
        assert_string_equal(json_string_value(json_object_get(set, "tenant")), "a");
        assert_true(json_is_integer(json_object_get(set, name)));
        value = (uint64_t)json_integer_value(json_object_get(set, name));
        json_decref(reply);
        return value;
}

static void assert_found(struct model *m, unsigned chain, unsigned n_keys, unsigned n)
{
        uint32_t found[2];
        int code = worker_ask(m->scheduler, "set-lookup %u:0-%u", chain, n_keys - 1);

        assert_int_equal(code, n > 0 ? 0 : KVL_MISS);
        if (n == 0)
                return;
        assert_int_equal(worker_numbers(m->scheduler, found, 2), 2);
        assert_int_equal(found[0], n);
        assert_int_equal(found[1], 16 * n);
}

/* The longest run that all ranks have; beyond it nothing is held. */
HARNESS_TEST(test_lookup, &small_cache)
{
        static const unsigned lengths[N_RANKS] = {10, 8, 9, 10};
        struct text texts[N_RANKS];
        struct model m;

        start_model(&m, h);
        for (unsigned i = 0; i < N_RANKS; ++i) {
                texts[i] = (struct text){.chain = 1, .n = lengths[i]};
                publish(&m, i, &texts[i]);
        }
        for (unsigned i = 0; i < N_RANKS; ++i)
                release(&m, i, &texts[i]);
        publish_in_all(&m, 2, 4, N_RANKS - 1);
        assert_int_equal(ctl_status(m.h, "pages_pinned"), 0);
        assert_found(&m, 1, 10, 8);
        assert_int_equal(ctl_status(m.h, "pages_pinned"), 8 * N_RANKS);
        worker_tell(m.scheduler, "set-release");
        assert_int_equal(ctl_status(m.h, "pages_pinned"), 0);
        assert_found(&m, 1, 5, 5);
        worker_tell(m.scheduler, "set-release");
        assert_found(&m, 2, 4, 0);
        assert_int_equal(ctl_status(m.h, "pages_pinned"), 0);

        assert_int_equal(ctl_status(m.h, "n_ns_sets"), 1);
        assert_int_equal(ctl_status(m.h, "set_keys_complete"), 8);
        assert_int_equal(ctl_status(m.h, "set_keys_incomplete"), 2 + 4);
        assert_int_equal(set_figure(m.h, "size"), N_RANKS);
        assert_int_equal(set_figure(m.h, "n_namespaces"), N_RANKS);
        assert_int_equal(set_figure(m.h, "keys_complete"), 8);
        assert_int_equal(set_figure(m.h, "keys_incomplete"), 2 + 4);
        stop_model(&m);
}

/* ---- eviction ------------------------------------------------------------------------------- */

#define TEXT_PAGES 16
#define N_TEXTS    60 /* 960 pages in each rank, of which little more than half fit */
/*
 * For a loaded machine, and less than the ten seconds after which a lone key is dropped; not tuned.
 */
#define SETTLE_MSEC 5000

struct spread {
        unsigned n_whole, n_partial; /* keys in all ranks, in some */
};

static struct spread spread_of(struct model *m, unsigned chain)
{
        uint32_t counts[TEXT_PAGES];
        struct spread s = {0};

        worker_tell(m->scheduler, "set-counts %u %d", chain, TEXT_PAGES);
        assert_int_equal(worker_numbers(m->scheduler, counts, TEXT_PAGES), TEXT_PAGES);
        for (unsigned i = 0; i < TEXT_PAGES; ++i) {
                s.n_whole += counts[i] == N_RANKS;
                s.n_partial += counts[i] != 0 && counts[i] != N_RANKS;
        }
        return s;
}

/* How many of the text's keys are in all ranks. A key dropped in one rank is soon dropped in the
 * others: waits until none is in some only. */
static unsigned n_whole(struct model *m, unsigned chain)
{
        struct spread s = spread_of(m, chain);

        for (unsigned msec = 0; s.n_partial > 0 && msec < SETTLE_MSEC; msec += 5) {
                sleep_msec(5);
                s = spread_of(m, chain);
        }
        if (s.n_partial > 0)
                fail_msg("%u keys of text %u stay in some ranks", s.n_partial, chain);
        return s.n_whole;
}

HARNESS_TEST(test_eviction, &small_cache)
{
        uint64_t n_complete = 0;
        struct model m;

        start_model(&m, h);
        for (unsigned chain = 0; chain < N_TEXTS; ++chain)
                publish_in_all(&m, chain, TEXT_PAGES, N_RANKS);
        sleep_msec(200); /* pages kept ready may take some */
        assert_true(ctl_status(m.h, "evictions") > 0);
        for (unsigned chain = 0; chain < N_TEXTS; ++chain)
                n_complete += n_whole(&m, chain);
        print_message(
                "%llu of %d keys left\n", (unsigned long long)n_complete, N_TEXTS * TEXT_PAGES);
        /* Up to half of a rank's 512 pages may be granted ahead. */
        assert_in_range(n_complete, 128, 512);
        assert_int_equal(ctl_status(m.h, "set_keys_complete"), n_complete);
        assert_int_equal(ctl_status(m.h, "set_keys_incomplete"), 0);
        /* Held in one rank alone it stays in all. */
        worker_tell(m.ranks[0], "lookup %d:0-%d", N_TEXTS - 1, TEXT_PAGES - 1);
        for (unsigned chain = N_TEXTS; chain < 2 * N_TEXTS; ++chain)
                publish_in_all(&m, chain, TEXT_PAGES, N_RANKS);
        sleep_msec(200);
        assert_int_equal(n_whole(&m, N_TEXTS - 1), TEXT_PAGES);
        ctl(m.h, "check");
        stop_model(&m);
}
