/* Namespace sets of several hosts: a page missing in one namespace of a set isn't loaded for the
 * others. Set up like test_exchange.c. */
/* Before cmocka, whose fail() is a macro. */
#include "tests/integration/exchange-host.h"

#include "daemon/core/clients/announce.h"
#include "daemon/exchange/exchange-impl.h"
#include "daemon/exchange/forecast.h"
#include "daemon/core/state/nsset-keys.h"
#include "daemon/core/requests/invalidate.h"

#define N_RANKS 2

/* Pages of rank 1 in most tests: enough that loading pays. */
#define N_SHORT (N_PAGES - 3)

/* A host with namespaces of a set whose layouts don't tell them apart. */
struct set_host {
        struct host h;
        const char *version; /* NULL: the first */
        uint32_t size;
        struct attach *attaches[NSSET_MAX_SIZE]; /* by rank; NULL: it isn't open */
};

static void start(struct set_host *s, bool may_write)
{
        *s = (struct set_host){.size = N_RANKS};
        host_start(&s->h, may_write);
}

static void open_rank(struct set_host *s, unsigned rank)
{
        const struct attach_options options = {.set = "s", .set_size = s->size};
        struct ns_layout l = s->h.w.ns->layout;
        char name[16];

        (void)snprintf(name, sizeof(name), "n.%u", rank);
        if (s->version)
                strcpy(l.version, s->version);
        if (attach_open_with(s->h.w.m, name, &l, &options, &s->attaches[rank], &s->h.w.d) != 0)
                fail_msg("%s", s->h.w.d.text);
}

/* The host acts as this rank from now on. */
static struct host *as_rank(struct set_host *s, unsigned rank)
{
        if (!s->attaches[rank])
                open_rank(s, rank);
        s->h.w.attach = s->attaches[rank];
        s->h.w.ns = s->attaches[rank]->ns;
        s->h.rank = rank;
        return &s->h;
}

/* Computes and exports the first n pages of this rank's part of a text. */
static void share_as_rank(struct set_host *s, unsigned rank, unsigned n)
{
        struct host *h = as_rank(s, rank);
        uint64_t before = counters_of(h).exported_pages;

        host_await_epoch(h);
        host_compute(h, n);
        assert_int_equal(count_hits(h->w.attach, 0, N_PAGES), n);
        host_await_exported(h, before + n);
}

/* A host with all of rank 0, and less of rank 1. */
static void start_and_share(struct set_host *s)
{
        start(s, true);
        share_as_rank(s, 0, N_PAGES);
        share_as_rank(s, 1, N_SHORT);
}

/* A host with all ranks open, which writes nothing. */
static void start_and_open(struct set_host *s)
{
        start(s, false);
        for (unsigned rank = 0; rank < N_RANKS; rank++)
                open_rank(s, rank);
}

static void start_both(struct set_host *a, struct set_host *b)
{
        server_start();
        start_and_share(a);
        start_and_open(b);
}

static void end(struct set_host *s)
{
        host_end(&s->h);
}

static void end_both(struct set_host *a, struct set_host *b)
{
        end(b);
        end(a);
        redis_cluster_deinit(&server);
}

/* ---- how far an import goes ------------------------------------------------------------------ */

/* Each rank has its own bytes. */
TEST(test_all_ranks)
{
        struct set_host a, b;

        server_start();
        start(&a, true);
        start_and_open(&b);
        for (unsigned rank = 0; rank < N_RANKS; rank++)
                share_as_rank(&a, rank, N_PAGES);
        for (unsigned rank = 0; rank < N_RANKS; rank++) {
                assert_int_equal(import(as_rank(&b, rank), 0, N_PAGES, LONG_MSEC), N_PAGES);
                assert_cached(&b.h, N_PAGES);
        }
        end_both(&a, &b);
}

static void assert_loads_the_shortest(struct set_host *b)
{
        struct exchange_counters c;

        for (unsigned rank = 0; rank < N_RANKS; rank++) {
                assert_int_equal(import(as_rank(b, rank), 0, N_PAGES, LONG_MSEC), N_SHORT);
                assert_cached(&b->h, N_SHORT);
        }
        c = counters_of(&b->h);
        assert_int_equal(c.probed_pages, N_RANKS * N_PAGES);
        assert_int_equal(c.found_pages, N_RANKS * N_SHORT);
        assert_int_equal(c.imported_pages, N_RANKS * N_SHORT);
        for (unsigned i = 0; i < N_EXCHANGE_DROPS; i++)
                assert_int_equal(c.not_imported[i], 0);
        /* No key is incomplete. */
        assert_int_equal(b->h.w.ns->catalog.set->n_complete, N_SHORT);
        assert_int_equal(b->h.w.ns->catalog.set->n_incomplete, 0);
}

/* kvleasectl explain tells why a page isn't here. */
static void assert_tells_of_the_set(const struct set_host *s)
{
        struct detail of_set, of_none;

        assert_int_equal(exchange_forecast(s->attaches[0]->ns, "x", &of_set), FORECAST_ASKS);
        assert_non_null(strstr(of_set.text, ", and no page that another namespace lacks of set s"));
        assert_int_equal(exchange_forecast(ns_find(s->h.w.a, "n"), "x", &of_none), FORECAST_ASKS);
        assert_null(strstr(of_none.text, "namespace"));
}

/* If the other rank isn't open its part can't be asked for. */
TEST(test_cut_to_the_shortest)
{
        struct set_host a, b, alone;

        start_both(&a, &b);
        start(&alone, false);
        assert_loads_the_shortest(&b);
        assert_tells_of_the_set(&b);
        assert_int_equal(import(as_rank(&alone, 0), 0, N_PAGES, LONG_MSEC), N_PAGES);
        end(&alone);
        end_both(&a, &b);
}

/* The rest here is too short before its worth is computed. */
TEST(test_too_short_for_one)
{
        const unsigned n = LOAD_COST_TOKENS_MIN / PAGE_TOKENS - 1;
        struct set_host a, b;

        server_start();
        start(&a, true);
        share_as_rank(&a, 0, N_PAGES);
        share_as_rank(&a, 1, n);
        start_and_open(&b);
        assert_int_equal(import(as_rank(&b, 0), 0, N_PAGES, LONG_MSEC), 0);
        assert_int_equal(counters_of(&b.h).found_pages, n);
        assert_int_equal(counters_of(&b.h).not_imported[EXCHANGE_NOT_WORTH], n);
        end_both(&a, &b);
}

/* Pages that the other rank has cached aren't asked for. They may be on the server or not. */
TEST(test_cached_in_the_other)
{
        struct set_host a, b;

        start_both(&a, &b);
        host_compute(as_rank(&b, 1), N_PAGES);
        assert_int_equal(import(as_rank(&b, 0), 0, N_PAGES, LONG_MSEC), N_PAGES);
        assert_cached(&b.h, N_PAGES);
        end_both(&a, &b);
}

/* The page is asked for if the other rank is about to drop it, because this rank has dropped it. */
TEST(test_going_in_the_other)
{
        struct set_host a, b;

        start_both(&a, &b);
        for (unsigned rank = N_RANKS; rank-- > 0;)
                host_compute(as_rank(&b, rank), N_PAGES);
        (void)tier_drop(&b.h.w, tier_find(&b.h.w, 0));
        assert_int_equal(count_hits(b.attaches[1], 0, N_PAGES), N_PAGES);
        assert_int_equal(import(as_rank(&b, 0), 0, N_PAGES, LONG_MSEC), N_SHORT);
        assert_cached(&b.h, N_SHORT);
        end_both(&a, &b);
}

/* A client computes the pages that the other rank lacks. */
TEST(test_announced_in_the_other)
{
        uint8_t keys[N_PAGES * KEY_BYTES];
        uint32_t pages[N_PAGES], n, other;
        struct set_host a, b;

        start_both(&a, &b);
        make_keys(keys, 0, N_PAGES);
        assert_int_equal(lease_pages(b.attaches[1], N_PAGES, 1, pages, NULL), 0);
        assert_int_equal(announce_pages(b.attaches[1], pages, keys, N_PAGES, &n, &other, NULL), 0);
        assert_int_equal(import(as_rank(&b, 0), 0, N_PAGES, LONG_MSEC), N_PAGES);
        assert_cached(&b.h, N_PAGES);
        end_both(&a, &b);
}

TEST(test_both_at_once)
{
        struct host other = {.is_over = false};
        struct set_host a, b;
        struct import *i;

        start_both(&a, &b);
        assert_int_equal(import_ask(&b.h, b.attaches[0], 0, N_PAGES, LONG_MSEC, &i), 0);
        other.w = b.h.w;
        assert_int_equal(import_ask(&other, b.attaches[1], 0, N_PAGES, LONG_MSEC, &i), 0);
        import_await(&b.h);
        while (!other.is_over)
                host_turn(&b.h);
        assert_int_equal(b.h.n_imported, N_SHORT);
        assert_int_equal(other.n_imported, N_SHORT);
        for (unsigned rank = 0; rank < N_RANKS; rank++) {
                as_rank(&b, rank);
                assert_cached(&b.h, N_SHORT);
        }
        end_both(&a, &b);
}

/* A namespace of the set that takes no part is never asked for. */
TEST(test_other_takes_no_part)
{
        struct set_host a, b;

        server_start();
        start(&a, true);
        share_as_rank(&a, 0, N_PAGES);
        start_and_open(&b);
        tenant_tell(b.attaches[1]->ns->tenant, ns_leaves, b.attaches[1]->ns);
        assert_false(exchange_has_ns(b.attaches[1]->ns, NULL));
        assert_int_equal(import(as_rank(&b, 0), 0, N_PAGES, LONG_MSEC), N_PAGES);
        end_both(&a, &b);
}

/* The largest set may ask for as many keys as there may be names. */
SERVER_TEST(test_largest_set)
{
        static uint8_t keys[IMPORT_KEYS_MAX * KEY_BYTES];
        struct import_request rq = {.keys = keys, .n_keys = IMPORT_KEYS_MAX};
        struct set_host a;
        struct import *i;

        start(&a, true);
        a.size = NSSET_MAX_SIZE;
        for (unsigned rank = 0; rank < NSSET_MAX_SIZE; rank++)
                open_rank(&a, rank);
        share_as_rank(&a, 0, N_PAGES);
        make_keys(keys, N_PAGES, IMPORT_KEYS_MAX);
        rq.deadline_nsec = in_msec(LONG_MSEC);
        assert_int_equal(
                import_begin(a.attaches[0], &rq, clock_now_nsec(), on_over, &a.h, &i, &a.h.w.d), 0);
        import_await(&a.h);
        assert_int_equal(a.h.n_imported, 0);
        assert_int_equal(counters_of(&a.h).probes, 1);
        assert_int_equal(counters_of(&a.h).probed_pages, SET_PROBE_NAMES_MAX / NSSET_MAX_SIZE);
        for (unsigned n = 0; n < N_EXCHANGE_DROPS; n++)
                assert_int_equal(counters_of(&a.h).not_imported[n], 0);
        end(&a);
}

/* ---- names ----------------------------------------------------------------------------------- */

#define N_MASTERS 3

/* Places of pages: number of parts at each place, each on one master alone. */
struct places {
        unsigned n, n_parts, n_masters;
        char tags[N_RANKS * N_PAGES][2 * EXCHANGE_PLACE_BYTES + 1];
        unsigned masters[N_RANKS * N_PAGES];
};

static void note_place(struct places *p, const char *name, unsigned master)
{
        const char *tag = strchr(name, '{');
        unsigned i = 0;

        assert_non_null(tag);
        while (i < p->n && strncmp(p->tags[i], tag + 1, 2 * EXCHANGE_PLACE_BYTES) != 0)
                i++;
        if (i == p->n) {
                assert_true(p->n < ARRAY_SIZE(p->tags));
                memcpy(p->tags[p->n], tag + 1, 2 * EXCHANGE_PLACE_BYTES);
                p->masters[p->n++] = master;
        }
        assert_int_equal(p->masters[i], master);
        p->n_parts++;
}

static void find_places(struct places *p)
{
        *p = (struct places){.n = 0};
        for (unsigned i = 0; i < server.n; i++) {
                char *names = redis_cluster_call(&server, i, "--raw keys kvl:1:a:*}:[0-9]*");
                char *save = NULL;
                unsigned before = p->n;

                assert_non_null(names);
                for (char *name = strtok_r(names, "\r\n", &save); name;
                        name = strtok_r(NULL, "\r\n", &save))
                        note_place(p, name, i);
                p->n_masters += p->n > before;
                free(names);
        }
}

/* All ranks' parts of a page lie on one node of a cluster; pages are spread over all nodes. */
TEST(test_one_place_of_a_page)
{
        struct set_host a, b;
        struct places p;

        redis_needed(&server);
        assert_int_equal(redis_cluster_create(&server, N_MASTERS, false), 0);
        start_and_share(&a);
        find_places(&p);
        assert_int_equal(p.n, N_PAGES);
        assert_int_equal(p.n_parts, N_PAGES + N_SHORT);
        assert_true(p.n_masters > 1);
        start_and_open(&b);
        assert_loads_the_shortest(&b);
        end_both(&a, &b);
}

/* A page that one rank has invalidated isn't found by the other. This holds for hosts where only
 * that rank is open. */
TEST(test_invalidated_by_one_rank)
{
        struct set_host a, b, c, has_all;
        uint8_t key[KEY_BYTES];
        struct drop d;
        uint64_t until;

        server_start();
        start_and_share(&a);
        start(&b, true);
        start(&c, false);
        start_and_open(&has_all);
        host_await_epoch(&has_all.h);
        for (unsigned rank = 0; rank < N_RANKS; rank++)
                host_compute(as_rank(&has_all, rank), N_PAGES);
        for (unsigned rank = 0; rank < N_RANKS; rank++)
                assert_int_equal(count_hits(has_all.attaches[rank], 0, N_PAGES), N_PAGES);
        assert_int_equal(import(as_rank(&b, 0), 0, N_PAGES, LONG_MSEC), N_PAGES);
        make_keys(key, 1, 1);
        assert_int_equal(drop_key(&d, b.attaches[0], key, NULL), 0);
        assert_true(drop_is_over(&d));
        until = clock_now_nsec() + PATIENCE_NSEC;
        while (counters_of(&b.h).epochs == 0) {
                assert_true(clock_now_nsec() < until);
                host_turn(&b.h);
        }
        assert_int_equal(import(as_rank(&c, 1), 0, N_PAGES, LONG_MSEC), 0);
        assert_cached(&c.h, 0);
        /* All ranks drop the page, also if another host has computed it. */
        for (unsigned rank = 0; rank < N_RANKS; rank++)
                while (count_hits(has_all.attaches[rank], 0, N_PAGES) != 1) {
                        assert_true(clock_now_nsec() < until);
                        host_turn(&has_all.h);
                        (void)tasks_work(&has_all.h.w.store);
                        poll(NULL, 0, 1);
                }
        end(&has_all);
        end(&c);
        end_both(&a, &b);
}

/* Hosts get another version of the model under the same names, one after the other. Neither version
 * finds, overwrites or removes the other's values. */
SERVER_TEST(test_another_version)
{
        struct set_host a, b, newer;

        start(&a, true);
        share_as_rank(&a, 0, N_PAGES);
        start(&newer, true);
        newer.version = "v2";
        assert_int_equal(import(as_rank(&newer, 0), 0, N_PAGES, LONG_MSEC), 0);
        assert_int_equal(counters_of(&newer.h).found_pages, 0);
        newer.h.rank = N_RANKS; /* it computes other bytes */
        host_compute(&newer.h, N_PAGES);
        assert_int_equal(count_hits(newer.h.w.attach, 0, N_PAGES), N_PAGES);
        host_await_exported(&newer.h, N_PAGES);
        assert_int_equal(counters_of(&newer.h).there_pages, 0);
        start_and_open(&b);
        host_compute(as_rank(&b, 1), N_PAGES);
        assert_int_equal(import(as_rank(&b, 0), 0, N_PAGES, LONG_MSEC), N_PAGES);
        assert_cached(&b.h, N_PAGES);
        end(&b);
        end(&newer);
        end(&a);
}
