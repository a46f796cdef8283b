/* Which pages a host writes to the servers, and when. Two stores of daemon/core, each with its own
 * client of one real redis-server. test_exchange.c imports such pages. */
/* Before cmocka, whose fail() is a macro. */
#include "tests/integration/exchange-host.h"

#include "daemon/exchange/exchange-impl.h"

SERVER_TEST(test_what_nobody_finds_stays)
{
        struct host a;

        host_start(&a, true);
        host_compute(&a, N_PAGES);
        host_turn_often(&a, 50);
        assert_int_equal(counters_of(&a).exported_pages, 0);
        assert_int_equal(count_hits(a.w.attach, 0, N_PAGES), N_PAGES);
        host_await_exported(&a, N_PAGES);
        /* A page is exported once, however often it is found. */
        assert_int_equal(count_hits(a.w.attach, 0, N_PAGES), N_PAGES);
        host_turn_often(&a, 50);
        assert_int_equal(counters_of(&a).exported_pages, N_PAGES);
        assert_int_equal(counters_of(&a).there_pages, 0);
        host_end(&a);
}

/* A page found here again after a minute is marked as used on the server. A page that the server
 * has lost is written again. */
SERVER_TEST(test_what_is_used_stays_there)
{
        const uint64_t later = (EXCHANGE_AGAIN_SEC + 1) * NSEC_PER_SEC;
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        char *keys, *save = NULL;
        struct host a;
        unsigned n = 0;

        host_start(&a, true);
        host_share_text(&a);
        keys = redis_cluster_call(&server, 0, "--raw keys kvl:1:a:*:0");
        assert_non_null(keys);
        for (char *k = strtok_r(keys, "\r\n", &save); k && n < 3; n++) {
                free(redis_cluster_call(&server, 0, "del %s", k));
                k = strtok_r(NULL, "\r\n", &save);
        }
        free(keys);
        assert_int_equal(n, 3);
        /* The pages haven't been found yet. */
        for (unsigned i = 0; i < 50; i++) {
                host_turn_later(&a, later);
                poll(NULL, 0, 1);
        }
        assert_int_equal(counters_of(&a).exported_pages, N_PAGES);
        assert_int_equal(count_hits(a.w.attach, 0, N_PAGES), N_PAGES);
        while (counters_of(&a).exported_pages < N_PAGES + n ||
                counters_of(&a).there_pages < N_PAGES - n) {
                assert_true(clock_now_nsec() < until);
                host_turn_later(&a, later);
                poll(NULL, 0, 1);
        }
        assert_int_equal(counters_of(&a).exported_pages, N_PAGES + n);
        /* If pages can't be marked as used, nothing is lost, and nothing counted as lost. */
        free(redis_cluster_call(&server, 0, "acl setuser default -touch"));
        host_turn_later(&a, 2 * later);
        assert_int_equal(count_hits(a.w.attach, 0, N_PAGES), N_PAGES);
        for (unsigned i = 0; i < 300; i++) {
                host_turn_later(&a, 2 * later);
                poll(NULL, 0, 1);
        }
        assert_int_equal(counters_of(&a).exported_pages, N_PAGES + n);
        assert_int_equal(counters_of(&a).not_exported[EXCHANGE_REFUSED], 0);
        host_end(&a);
}

/* Lets the servers' user write only these pages' names, and those of epochs. */
static void allow_pages(const struct host *h, unsigned first, unsigned n)
{
        uint8_t keys[N_PAGES * KEY_BYTES];
        char name[EXCHANGE_NAME_MAX];

        make_keys(keys, first, n);
        for (unsigned i = 0; i < n; i++) {
                assert_int_equal(exchange_name_page(exchange_find_ns(h->w.ns),
                                         keys + (size_t)i * KEY_BYTES, name),
                        0);
                free(redis_cluster_call(&server, 0, "acl setuser default ~%s", name));
        }
}

/* A page in the middle of a text can't be written at first. It is written when the text is found
 * again, though the last page never failed. Only pages behind the gap are asked for again. */
EXCHANGE_SCENE(test_hole_is_filled, false)
{
        const unsigned hole = 5;

        free(redis_cluster_call(&server, 0, "acl setuser default resetkeys ~kvl:1:a:*:epoch"));
        allow_pages(a, 0, hole);
        allow_pages(a, hole + 1, N_PAGES - hole - 1);
        host_compute(a, N_PAGES);
        assert_int_equal(count_hits(a->w.attach, 0, N_PAGES), N_PAGES);
        host_await_exports(a);
        assert_int_equal(counters_of(a).not_exported[EXCHANGE_REFUSED], 1);
        assert_true(counters_of(a).exported_pages < N_PAGES);
        free(redis_cluster_call(&server, 0, "acl setuser default ~*"));
        assert_int_equal(count_hits(a->w.attach, 0, N_PAGES), N_PAGES);
        host_await_exported(a, N_PAGES);
        assert_int_equal(counters_of(a).exported_pages, N_PAGES);
        assert_in_range(counters_of(a).there_pages, 0, N_PAGES - hole - 1);
        assert_int_equal(import(b, 0, N_PAGES, LONG_MSEC), N_PAGES);
        assert_cached(b, N_PAGES);
}

/* A host that exports and imports nothing learns of the other's invalidation by itself. Pages that
 * it exports from then on are found. */
EXCHANGE_SCENE(test_exporter_learns_the_epoch, true)
{
        uint64_t until;

        host_share_text(a);
        host_invalidate_all(b);
        until = clock_now_nsec() + PATIENCE_NSEC;
        while (counters_of(b).epochs == 0) {
                assert_true(clock_now_nsec() < until);
                host_turn(b);
        }
        /* Pages cached before the host has learnt the epoch aren't exported. */
        while (counters_of(a).exported_pages < 2 * N_PAGES) {
                assert_true(clock_now_nsec() < until);
                /* Drops them here, too, as it does once it knows the epoch. */
                if (tier_find(&a->w, 0) != PAGE_NONE)
                        (void)tier_drop(&a->w, tier_find(&a->w, 0));
                host_compute(a, N_PAGES);
                assert_int_equal(count_hits(a->w.attach, 0, N_PAGES), N_PAGES);
                host_turn_often(a, 1100);
        }
        assert_int_equal(import(b, 0, N_PAGES, LONG_MSEC), N_PAGES);
        assert_cached(b, N_PAGES);
}

/* Imported pages are on the server already: they aren't exported, even in a long text. */
SERVER_TEST(test_imported_is_not_exported)
{
        const uint32_t page_tokens = EXCHANGE_LONG_TOKENS / (N_PAGES - 4);
        struct host a, b;

        host_start(&a, true);
        host_use_pages(&a, page_tokens, TIER_PAGE_BYTES);
        host_await_epoch(&a);
        host_share_text(&a);
        host_start(&b, true);
        host_use_pages(&b, page_tokens, TIER_PAGE_BYTES);
        assert_int_equal(import(&b, 0, N_PAGES, LONG_MSEC), N_PAGES);
        assert_cached(&b, N_PAGES);
        assert_int_equal(b.n_texts, 0);
        host_end(&b);
        host_end(&a);
}

/* ---- texts that wait ------------------------------------------------------------------------- */

/* Pages from this one on are long texts by themselves. */
#define FIRST_LONG 15

static void start_with_long_pages(struct host *h, bool may_write)
{
        host_start(h, may_write);
        h->last_tokens = EXCHANGE_LONG_TOKENS / (FIRST_LONG + 1);
        host_use_pages(h, h->last_tokens, TIER_PAGE_BYTES);
        if (may_write)
                host_await_epoch(h);
}

static uint32_t count_texts(const struct host *h)
{
        struct exchange_figures f;

        assert_true(exchange_figures(h->w.a, &f));
        return f.n_texts;
}

static void turn_until_none_waits(struct host *h)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (count_texts(h) > 0) {
                assert_true(clock_now_nsec() < until);
                host_turn(h);
                poll(NULL, 0, 1);
        }
}

/* A text that is published page by page counts as one text that grows. */
SERVER_TEST(test_text_grows)
{
        struct host a, b;

        start_with_long_pages(&a, true);
        start_with_long_pages(&b, false);
        host_compute(&a, N_PAGES);
        assert_int_equal(count_texts(&a), 1);
        /* A second continuation counts as a second text. */
        host_compute_behind(&a, ns_page(a.w.ns, tier_find(&a.w, FIRST_LONG))->key, 100, 2);
        assert_int_equal(count_texts(&a), 2);
        host_await_exported(&a, N_PAGES + 2);
        assert_int_equal(count_texts(&a), 0);
        assert_int_equal(import(&b, 0, N_PAGES, LONG_MSEC), N_PAGES);
        assert_cached(&b, N_PAGES);
        host_end(&b);
        host_end(&a);
}

/* The text grows while pages of its beginning are being written. */
SERVER_TEST(test_text_grows_meanwhile)
{
        uint8_t key[KEY_BYTES];
        struct host a;

        start_with_long_pages(&a, true);
        host_compute(&a, FIRST_LONG + 1);
        for (unsigned n = FIRST_LONG + 1; n < N_PAGES; n++) {
                make_keys(key, n - 1, 1);
                host_turn(&a);
                host_compute_behind(&a, key, n, 1);
        }
        host_await_exported(&a, N_PAGES);
        assert_int_equal(counters_of(&a).exported_pages, N_PAGES);
        assert_int_equal(counters_of(&a).there_pages, 0);
        host_end(&a);
}

/* The text's last page is dropped before its turn: the text is written up to its earlier length. */
SERVER_TEST(test_text_has_lost_its_end)
{
        struct host a;

        start_with_long_pages(&a, true);
        host_compute(&a, N_PAGES);
        assert_int_equal(tier_drop(&a.w, tier_find(&a.w, N_PAGES - 1)), 1);
        host_await_exported(&a, FIRST_LONG + 1);
        turn_until_none_waits(&a);
        assert_int_equal(counters_of(&a).exported_pages, FIRST_LONG + 1);
        assert_int_equal(counters_of(&a).not_exported[EXCHANGE_GONE], 1);
        /* The rest is exported when it is found again. */
        assert_int_equal(count_hits(a.w.attach, 0, N_PAGES), N_PAGES - 1);
        host_await_exported(&a, N_PAGES - 1);
        /* No page of it is left, so none is written. */
        host_compute_behind(&a, NULL, 200, FIRST_LONG + 2);
        assert_int_equal(tier_drop(&a.w, tier_find(&a.w, 200)), FIRST_LONG + 2);
        turn_until_none_waits(&a);
        assert_int_equal(counters_of(&a).exported_pages, N_PAGES - 1);
        assert_int_equal(counters_of(&a).not_exported[EXCHANGE_GONE], 3);
        host_end(&a);
}

/* One page is exported at once, the next one a minute later. */
static void start_slow(struct host *h)
{
        host_write_rate = 1;
        host_start(h, true);
        host_write_rate = UINT64_C(1) << 30;
        h->last_tokens = EXCHANGE_LONG_TOKENS / (FIRST_LONG + 1);
        host_use_pages(h, h->last_tokens, TIER_PAGE_BYTES / 4); /* there is room for more of them */
        host_await_epoch(h);
}

/* Only the page with this key was exported. */
static void assert_only_exported(struct host *h, unsigned key_number)
{
        char name[EXCHANGE_NAME_MAX], *found;
        uint8_t key[KEY_BYTES];

        host_await_exported(h, 1);
        make_keys(key, key_number, 1);
        assert_int_equal(exchange_name_page(exchange_find_ns(h->w.ns), key, name), 0);
        found = redis_cluster_call(&server, 0, "--raw exists %s", name);
        assert_int_equal(atoi(found), 1);
        free(found);
        assert_int_equal(counters_of(h).exported_pages, 1);
}

/* Found texts are exported before texts that were only published, the newest first within each
 * kind. */
TEST(test_whose_turn_it_is)
{
        static const struct {
                unsigned n_texts;
                bool is_found[3];
                unsigned first;
        } cases[] = {{2, {false, false}, 1}, {2, {true, false}, 0}, {3, {true, true, false}, 1}};

        for (size_t c = 0; c < ARRAY_SIZE(cases); c++) {
                struct host a;

                server_start();
                start_slow(&a);
                for (unsigned i = 0; i < cases[c].n_texts; i++) {
                        unsigned n = cases[c].is_found[i] ? 2 : FIRST_LONG + 1;

                        host_compute_behind(&a, NULL, 100 * i, n);
                        if (cases[c].is_found[i])
                                assert_int_equal(count_hits(a.w.attach, 100 * i, n), n);
                }
                assert_int_equal(count_texts(&a), cases[c].n_texts);
                assert_only_exported(&a, 100 * cases[c].first);
                host_end(&a);
                redis_cluster_deinit(&server);
        }
}

/* Without room for another text the one with the last turn is dropped. A text that was found is
 * never dropped for one that was only published. */
SERVER_TEST(test_too_many_texts)
{
        struct host a;

        start_slow(&a);
        for (unsigned i = 0; i < EXPORT_TEXTS_MAX + 1; i++) {
                unsigned n = i < 2 ? 2 : 1;

                host_compute_behind(&a, NULL, 1000 + 2 * i, n);
                assert_int_equal(count_hits(a.w.attach, 1000 + 2 * i, n), n);
        }
        assert_int_equal(count_texts(&a), EXPORT_TEXTS_MAX);
        assert_int_equal(counters_of(&a).not_exported[EXCHANGE_BUSY], 2);
        host_compute(&a, FIRST_LONG + 1);
        assert_int_equal(count_texts(&a), EXPORT_TEXTS_MAX);
        assert_int_equal(counters_of(&a).not_exported[EXCHANGE_BUSY], 2 + 1);
        assert_only_exported(&a, 1000 + 2 * EXPORT_TEXTS_MAX);
        host_end(&a);
}
