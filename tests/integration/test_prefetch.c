/*
 * Pages move up from host memory before a client asks for them: those of a text read piece by
 * piece, of a session about to return, and named ones. Every byte is compared. Other guesses:
 * tests/unit/test_prefetch_core.c.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/integration/harness.h"
#include "tests/integration/pattern.h"

#define CHAIN_PAGES  256  /* of 4 KiB */
#define DEVICE_PAGES 1024 /* the value of "memory" below */
#define N_FILLERS    8
#define FIRST        100 /* filler */
#define TAG          7

static const struct private_tenant some[] = {{"a", "evict = lru\nwarm_tags = 7\n"}, {NULL, NULL}};
#define DEVICE_LINES "memory = 4MiB\nextent = 2MiB\nhost_memory = 32MiB\n"
static const struct private_options options = {.tenants = some, .device_lines = DEVICE_LINES};
static const struct private_options kept = {
        .tenants = some, .device_lines = DEVICE_LINES, .is_kept = true};

/* ---- what the daemon says -------------------------------------------------------------------- */

static uint64_t number(const json_t *object, const char *key)
{
        const json_t *n = json_object_get(object, key);

        assert_non_null(n);
        return (uint64_t)json_integer_value(n);
}

/* Returns the row of namespace `cache`, which the caller releases; NULL: there is none. */
static json_t *cache_row(struct harness *h)
{
        json_t *reply = ctl_json(h, "namespaces"), *row, *found = NULL;
        size_t i;

        json_array_foreach(ctl_list(reply, "namespaces"), i, row)
        {
                if (strcmp(json_string_value(json_object_get(row, "name")), "cache") == 0)
                        found = json_incref(row);
        }
        json_decref(reply);
        return found;
}

/* 0 where there is no namespace `cache`. */
static uint64_t figure(struct harness *h, const char *key)
{
        json_t *row = cache_row(h);
        uint64_t value = row ? number(row, key) : 0;

        json_decref(row);
        return value;
}

static void await_figure(struct harness *h, const char *key, uint64_t least)
{
        unsigned n = 1000;

        while (figure(h, key) < least && --n > 0)
                sleep_msec(10);
        if (n == 0)
                fail_msg("%s is %llu after 10 s, should be %llu", key,
                        (unsigned long long)figure(h, key), (unsigned long long)least);
}

/* ---- what workers do ------------------------------------------------------------------------- */

static void release(struct worker *w, const uint32_t *pages, unsigned n)
{
        char line[4096] = "release";
        size_t at = strlen(line);

        for (unsigned i = 0; i < n; i++)
                at += (size_t)snprintf(line + at, sizeof(line) - at, " %u", pages[i]);
        worker_tell(w, "%s", line);
}

static void await_still(struct worker *w, const char *key)
{
        uint64_t was = UINT64_MAX, n = figure(w->harness, key);

        for (; n != was; n = figure(w->harness, key)) {
                was = n;
                sleep_msec(60);
        }
}

/* Device pages for the next text: free ones, those the worker has ready, and those of a set that
 * isn't bound. */
static uint64_t count_room(struct harness *h)
{
        json_t *row = cache_row(h);
        uint64_t bound = number(row, "n_sets") * number(row, "set_pages");
        uint64_t room = number(row, "pages_free") + number(row, "pages_ready");

        json_decref(row);
        return room + DEVICE_PAGES - bound;
}

/* Waits until as many pages were demoted as the next text needs, so that none is evicted for it. A
 * busy machine may take long to make the first memory of the lower tier. */
static void await_quiet(struct worker *w)
{
        struct harness *h = w->harness;

        for (unsigned n = 0; count_room(h) < CHAIN_PAGES; n++) {
                if (n == 1000)
                        fail_msg("%llu pages have room after 10 s, should be %u",
                                (unsigned long long)count_room(h), CHAIN_PAGES);
                sleep_msec(10);
        }
        await_still(w, "host_arrived");
}

static void publish(struct worker *w, unsigned chain)
{
        uint32_t pages[CHAIN_PAGES];

        worker_publish_chain(w, chain, CHAIN_PAGES, pages);
        release(w, pages, CHAIN_PAGES);
        await_quiet(w);
}

/* Publishes with the tag. */
static void publish_tagged(struct worker *w, unsigned chain)
{
        char line[4096];
        uint32_t pages[CHAIN_PAGES];
        int at;

        worker_tell(w, "lease %u", CHAIN_PAGES);
        assert_int_equal(worker_numbers(w, pages, CHAIN_PAGES), CHAIN_PAGES);
        at = snprintf(
                line, sizeof(line), "publish-with - %u 16 %u:0-%u -", TAG, chain, CHAIN_PAGES - 1);
        for (unsigned i = 0; i < CHAIN_PAGES; i++) {
                worker_tell(w, "fill %u %u", pages[i], 1000 * chain + i);
                at += snprintf(line + at, sizeof(line) - (size_t)at, " %u", pages[i]);
        }
        worker_tell(w, "%s", line);
        release(w, pages, CHAIN_PAGES);
        await_quiet(w);
}

/* Other texts take the device. */
static void push_down(struct worker *w)
{
        for (unsigned i = 0; i < N_FILLERS; i++)
                publish(w, FIRST + i);
}

/* And go. */
static void make_room(struct worker *w)
{
        for (unsigned i = 0; i < N_FILLERS; i++)
                worker_tell(w, "invalidate %u:0-0", FIRST + i);
}

/* Reads one piece of a text; an engine would compute for a while with it. */
static void read_piece(struct worker *w, unsigned chain, unsigned first, unsigned n)
{
        uint32_t pages[CHAIN_PAGES];

        worker_tell(w, "lookup %u:%u-%u", chain, first, first + n - 1);
        assert_int_equal(worker_numbers(w, pages, CHAIN_PAGES), n);
        for (unsigned i = 0; i < n; i++)
                worker_tell(w, "verify %u %u", pages[i], 1000 * chain + first + i);
        sleep_msec(30);
        release(w, pages, n);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Most pages of a cold text are on the device when the reader reaches them. */
HARNESS_TEST(test_stream, &options)
{
        struct worker *w = worker_start(h, "a", "cache", 1);
        uint64_t below, useful;

        publish(w, 0);
        push_down(w);
        make_room(w);
        below = figure(h, "host_pages_sealed");
        assert_true(below > CHAIN_PAGES / 2);
        for (unsigned i = 0; i < CHAIN_PAGES; i += 16)
                read_piece(w, 0, i, 16);
        useful = figure(h, "prefetch_stream_useful");
        print_message("of %llu cold pages %llu were there\n", (unsigned long long)below,
                (unsigned long long)useful);
        assert_true(useful > below / 2);
        assert_int_equal(figure(h, "prefetch_stream_wasted"), 0);
        assert_int_equal(
                figure(h, "prefetch_stream_begun"), useful + figure(h, "prefetch_stream_given_up") +
                                                            figure(h, "prefetch_stream_at_stake"));
        assert_int_equal(figure(h, "host_pages_sealed"), 0);
        worker_stop(w);
        ctl(h, "purge a --remove");
}

static void assert_warmed(struct harness *h, const char *words, uint64_t came, uint64_t there)
{
        json_t *reply = ctl_json(h, words);

        assert_false(json_is_true(json_object_get(reply, "running")));
        assert_int_equal(number(reply, "pages_came"), came);
        assert_int_equal(number(reply, "pages_there"), there);
        assert_int_equal(number(reply, "pages_left"), 0);
        json_decref(reply);
}

HARNESS_TEST(test_warm, &options)
{
        struct worker *w = worker_start(h, "a", "cache", 1);
        char words[256] = "warm a cache ";
        uint8_t key[32];
        uint64_t below;

        publish(w, 0);
        push_down(w);
        make_room(w);
        below = figure(h, "host_pages_sealed");
        assert_true(below > CHAIN_PAGES / 2);
        assert_warmed(h, "warm a cache", 0, 0);
        pattern_key(0, 15, key);
        for (unsigned i = 0; i < sizeof(key); i++)
                snprintf(words + strlen(words), 3, "%02x", key[i]);
        assert_warmed(h, words, 16, 0);
        assert_warmed(h, "warm a cache --all", below - 16, CHAIN_PAGES - below + 16);
        assert_int_equal(figure(h, "prefetch_warm_begun"), below);
        for (unsigned i = 0; i < CHAIN_PAGES; i += 64)
                read_piece(w, 0, i, 64);
        assert_int_equal(figure(h, "prefetch_warm_useful"), below);
        worker_stop(w);
        ctl(h, "purge a --remove");
}

/* Pages with the tag move up after the daemon's restart, and no others. */
HARNESS_TEST(test_warm_at_start, &kept)
{
        struct worker *w = worker_start(h, "a", "cache", 1);
        uint64_t below;

        if (!private_is_contiguous()) {
                worker_stop(w);
                print_message("skipped: this memory doesn't outlive the daemon\n");
                skip();
        }
        publish(w, 0);
        push_down(w);
        below = figure(h, "host_pages_sealed");
        publish_tagged(w, 1);
        push_down(w);
        make_room(w);
        below = figure(h, "host_pages_sealed");
        assert_true(below > CHAIN_PAGES);
        assert_int_equal(kill((pid_t)ctl_status(h, "pid"), SIGKILL), 0);
        assert_int_equal(private_daemon_await(&h->daemon), 0);
        ctl_wait_status(h, "n_clients", 1);
        await_figure(h, "prefetch_warm_begun", 1);
        ctl(h, "warm a cache");
        for (unsigned n = 0; figure(h, "host_pages_sealed") > CHAIN_PAGES && n < 1000; n++)
                sleep_msec(10);
        assert_true(figure(h, "host_pages_sealed") <= CHAIN_PAGES);
        assert_int_equal(figure(h, "prefetch_stream_begun"), 0);
        worker_tell(w, "invalidate 1000:0-0"); /* a client that makes only hits sends no messages */
        for (unsigned i = 0; i < CHAIN_PAGES; i += 64)
                read_piece(w, 1, i, 64);
        assert_int_equal(figure(h, "prefetch_warm_useful"), figure(h, "prefetch_warm_begun"));
        worker_stop(w);
        ctl(h, "purge a --remove");
}
