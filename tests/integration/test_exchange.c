/*
 * Exchange of pages between hosts: two stores of daemon/core, each with its own client of one real
 * redis-server. Namespace sets are in test_exchange_sets.c. Processes, damaged values and lost
 * servers are in test_exchange_hosts.c.
 */
/* Before cmocka, whose fail() is a macro. */
#include "tests/integration/exchange-host.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "daemon/exchange/exchange-impl.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/requests/invalidate.h"

/* Another client of the host, with the same namespace, of this version; NULL: the present one. */
static struct attach *join_host(struct host *h, const char *version, struct member **ret_member)
{
        struct ns_layout l = h->w.ns->layout;
        struct attach *a;

        *ret_member = join(h->w.a);
        if (version)
                strcpy(l.version, version);
        assert_int_equal(attach_open(*ret_member, "n", &l, "", false, &a, NULL), 0);
        return a;
}

/* Loads that have ended, and how many of them took longer than computing. */
static void assert_loads(const struct host *h, unsigned n, unsigned n_lost)
{
        assert_int_equal(counters_of(h).loads, n);
        assert_int_equal(counters_of(h).loads_lost, n_lost);
}

/* ---- tests ----------------------------------------------------------------------------------- */

EXCHANGE_SCENE(test_last_page_is_partial, false)
{
        const struct page *last;

        a->last_tokens = 5;
        host_share_text(a);
        assert_int_equal(import(b, 0, N_PAGES, LONG_MSEC), N_PAGES);
        assert_cached(b, N_PAGES);
        last = ns_page(b->w.ns, tier_find(&b->w, N_PAGES - 1));
        assert_int_equal(last->tokens, 5);
        assert_int_equal(last->end_token, (N_PAGES - 1) * PAGE_TOKENS + 5);
}

/* Most of a text was demoted when it is found again: it is exported from the lower tier. */
SERVER_TEST(test_text_below_the_device)
{
        struct host a, b;
        unsigned n_below = 0;

        host_start_on(&a, true, NULL, 4);
        host_start(&b, false);
        host_compute(&a, N_PAGES);
        for (unsigned key = 1000; n_below < N_PAGES / 2; key++) {
                assert_true(tier_cache(&a.w, key, 1));
                tiers_settle(&a.w);
                n_below = 0;
                for (unsigned i = 0; i < N_PAGES; i++)
                        n_below += tier_of(&a.w, i) == TIER_HOST;
        }
        assert_int_equal(count_hits(a.w.attach, 0, N_PAGES), N_PAGES);
        host_await_exported(&a, N_PAGES);
        assert_int_equal(counters_of(&a).exported_pages, N_PAGES);
        assert_int_equal(import(&b, 0, N_PAGES, LONG_MSEC), N_PAGES);
        assert_cached(&b, N_PAGES);
        host_end(&b);
        host_end(&a);
}

SERVER_TEST(test_sealed_with_a_secret)
{
        struct host a, b, other;

        host_start_with(&a, true, "0123456789abcdef");
        host_start_with(&b, false, "0123456789abcdef");
        host_start_with(&other, false, "fedcba9876543210");
        host_share_text(&a);
        assert_int_equal(import(&other, 0, N_PAGES, LONG_MSEC), 0);
        assert_int_equal(import(&b, 0, N_PAGES, LONG_MSEC), N_PAGES);
        assert_cached(&b, N_PAGES);
        host_end(&other);
        host_end(&b);
        host_end(&a);
}

EXCHANGE_SCENE(test_continues_what_is_here, false)
{
        struct import *i;

        host_share_text(a);
        host_compute(b, 3);
        assert_int_equal(import_ask(b, b->w.attach, 0, 3, LONG_MSEC, &i), KVL_STATUS_DUPLICATE);
        assert_int_equal(import(b, 3, N_PAGES - 3, LONG_MSEC), N_PAGES - 3);
        assert_cached(b, N_PAGES);
        /* Pages behind a gap can't be reached. */
        assert_int_equal(
                import_ask(b, b->w.attach, N_PAGES + 1, 1, LONG_MSEC, &i), KVL_STATUS_NO_PARENT);
}

EXCHANGE_SCENE(test_invalidated_is_not_found, false)
{
        uint8_t key[KEY_BYTES];
        struct drop d;
        uint64_t until;

        host_share_text(a);
        make_keys(key, 1, 1);
        assert_int_equal(drop_key(&d, a->w.attach, key, NULL), 0);
        assert_true(drop_is_over(&d));
        until = clock_now_nsec() + PATIENCE_NSEC;
        while (counters_of(a).epochs == 0) {
                assert_true(clock_now_nsec() < until);
                host_turn(a);
        }
        assert_int_equal(import(b, 0, N_PAGES, LONG_MSEC), 0);
        assert_cached(b, 0);
        /* Nor does the host itself load it. */
        assert_int_equal(import(a, 1, N_PAGES - 1, LONG_MSEC), 0);
}

/* A store that seemed too slow is tried again after some time, by a short load. */
SERVER_TEST(test_slow_is_tried_again)
{
        const struct load_cost_ratio slow = {.amount = 1, .nsec = 1e15};
        const unsigned n_least = LOAD_COST_TOKENS_MIN / PAGE_TOKENS;
        struct load_cost_ratio *seen;
        struct host a, b;

        host_start(&a, true);
        host_share_text(&a);
        host_start(&b, false);
        seen = &exchange_of(b.w.a)->bandwidth;
        *seen = slow;
        exchange_of(b.w.a)->error.mean = 1;
        for (unsigned i = 1; i < IMPORT_TRIAL_AFTER; i++)
                assert_int_equal(import(&b, 0, N_PAGES, LONG_MSEC), 0);
        assert_int_equal(counters_of(&b).not_imported[EXCHANGE_NOT_WORTH],
                (IMPORT_TRIAL_AFTER - 1) * N_PAGES);
        assert_int_equal(import(&b, 0, N_PAGES, LONG_MSEC), n_least);
        assert_cached(&b, n_least);
        assert_true(seen->nsec < slow.nsec);
        assert_true(exchange_of(b.w.a)->error.mean == 0);
        /* A load that pays starts the count anew. */
        assert_int_equal(exchange_of(b.w.a)->n_refused, 0);
        /* No estimate said that a trial would pay. */
        assert_loads(&b, 0, 0);
        host_end(&b);
        host_end(&a);
}

/* A load loses if its tokens could have been computed meanwhile. One that ends at its deadline
 * loses if it loaded nothing. */
SERVER_TEST(test_load_that_lost)
{
        struct exchange_figures f;
        struct import *i;
        struct host a, b;

        host_start(&a, true);
        host_share_text(&a);
        host_start(&b, false);
        assert_true(exchange_figures(b.w.a, &f));
        assert_int_equal(f.import_bytes_per_sec, 0);
        assert_int_equal(f.prefill_tokens_per_sec, 0);
        exchange_of(b.w.a)->options.token_nsec = 0;
        exchange_note_prefill(b.w.ns, 2, NSEC_PER_SEC);
        assert_true(exchange_figures(b.w.a, &f));
        assert_int_equal(f.prefill_tokens_per_sec, 2);
        assert_int_equal(import_ask(&b, b.w.attach, 0, N_PAGES, LONG_MSEC, &i), 0);
        turn_until_loading(&b);
        exchange_find_ns(b.w.ns)->prefill = (struct load_cost_ratio){.amount = 1e9, .nsec = 1};
        import_await(&b);
        assert_int_equal(b.n_imported, N_PAGES);
        assert_loads(&b, 1, 1);
        assert_true(exchange_figures(b.w.a, &f));
        assert_true(f.load_error == exchange_of(b.w.a)->error.mean && f.load_error > 0);
        exchange_of(b.w.a)->bandwidth =
                (struct load_cost_ratio){.amount = 3000, .nsec = NSEC_PER_MSEC};
        assert_true(exchange_figures(b.w.a, &f));
        assert_int_equal(f.import_bytes_per_sec, 3000000);
        host_end(&b);
        host_start(&b, false);
        assert_int_equal(import_ask(&b, b.w.attach, 0, N_PAGES, SHORT_MSEC, &i), 0);
        turn_until_loading(&b);
        host_turn_later(&b, SHORT_MSEC * NSEC_PER_MSEC);
        assert_true(b.is_over);
        assert_loads(&b, 1, b.n_imported == 0);
        host_end(&b);
        host_end(&a);
}

/* Pages of another model version are never found; clients with the old version continue. */
SERVER_TEST(test_another_version)
{
        struct host a, b, c;
        struct import *i;
        struct attach *newer;
        struct member *m;

        host_start(&a, true);
        host_start(&b, true);
        host_start(&c, false);
        host_share_text(&a);
        newer = join_host(&b, "v2", &m);
        assert_int_equal(import_ask(&b, newer, 0, N_PAGES, LONG_MSEC, &i), 0);
        import_await(&b);
        assert_int_equal(b.n_imported, 0);
        assert_int_equal(counters_of(&b).found_pages, 0);
        assert_int_equal(import(&c, 0, N_PAGES, LONG_MSEC), N_PAGES);
        assert_cached(&c, N_PAGES);
        member_free(m);
        host_end(&c);
        host_end(&b);
        host_end(&a);
}

/* A second import that begins before the first has loaded anything learns of it. */
SERVER_TEST(test_both_look_for_it)
{
        struct host a, b, other = {.is_over = false};
        struct import *i, *second;
        struct attach *attach;
        struct member *m;

        host_start(&a, true);
        host_start(&b, false);
        host_share_text(&a);
        attach = join_host(&b, NULL, &m);
        assert_int_equal(import_ask(&b, b.w.attach, 0, N_PAGES, LONG_MSEC, &i), 0);
        other.w = b.w;
        assert_int_equal(import_ask(&other, attach, 0, N_PAGES, LONG_MSEC, &second), 0);
        import_await(&b);
        assert_true(other.is_over || b.n_imported == N_PAGES);
        while (!other.is_over)
                host_turn(&b);
        assert_int_equal(b.n_imported + other.n_imported, N_PAGES);
        assert_true(b.n_imported == 0 || b.code == 0);
        assert_true(b.n_imported > 0 || b.code == KVL_STATUS_PENDING);
        assert_true(other.n_imported > 0 || other.code == KVL_STATUS_PENDING ||
                    other.code == KVL_STATUS_DUPLICATE);
        assert_cached(&b, N_PAGES);
        member_free(m);
        host_end(&b);
        host_end(&a);
}

EXCHANGE_SCENE(test_single_flight_and_its_end, false)
{
        struct import *i, *second;
        struct attach *other;
        struct member *m;

        host_share_text(a);
        other = join_host(b, NULL, &m);
        assert_int_equal(import_ask(b, other, 0, N_PAGES, LONG_MSEC, &i), 0);
        turn_until_loading(b);
        assert_int_equal(
                import_ask(b, b->w.attach, 0, N_PAGES, LONG_MSEC, &second), KVL_STATUS_PENDING);
        /* The importing client leaves: its import ends, and pages not published yet are freed. */
        member_free(m);
        assert_true(b->is_over);
        tiers_check(&b->w);
        assert_cached(b, 0);
        assert_int_equal(import(b, 0, N_PAGES, LONG_MSEC), N_PAGES);
        assert_cached(b, N_PAGES);
}

/* Probes by a client that may only read. Returns how many of n pages the server has. No page is
 * loaded, and only counters of probes change. */
static uint32_t probe(struct host *h, struct attach *reader, unsigned n, unsigned msec)
{
        const struct exchange_counters before = counters_of(h);
        const struct exchange_ns *e = exchange_find_ns(reader->ns);
        const uint32_t n_decided = e->n_decided, n_sealed = h->w.ns->device.n_pages[PAGE_SEALED];
        struct exchange_counters after;
        struct import *i;

        assert_int_equal(probe_ask(h, reader, n, msec, &i), 0);
        import_await(h);
        assert_int_equal(h->code, h->n_imported > 0 ? 0 : KVL_STATUS_MISS);
        after = counters_of(h);
        assert_true(after.found_pages == before.found_pages + h->n_imported);
        assert_true(after.imported_pages == before.imported_pages);
        assert_memory_equal(after.not_imported, before.not_imported, sizeof(after.not_imported));
        assert_int_equal(e->n_decided, n_decided);
        assert_int_equal(h->w.ns->device.n_pages[PAGE_GRANTED], 0);
        assert_int_equal(h->w.ns->device.n_pages[PAGE_SEALED], n_sealed);
        assert_int_equal(h->w.ns->catalog.announced.n, 0);
        return h->n_imported;
}

/* A probe counts the server's pages, also if some are cached here or on their way. */
SERVER_TEST(test_probe)
{
        struct attach *reader;
        struct import *i, *second;
        struct host a, b, other = {.is_over = false};
        struct member *m;

        host_start(&a, true);
        host_start(&b, false);
        reader = join_host(&b, NULL, &m);
        member_set_read_only(m, true);
        assert_int_equal(probe(&b, reader, N_PAGES, LONG_MSEC), 0);
        host_share_text(&a);
        assert_int_equal(probe(&b, reader, N_PAGES, LONG_MSEC), N_PAGES);
        assert_true(b.would_load);
        assert_int_equal(probe(&b, reader, 15, LONG_MSEC), 15); /* too short to be loaded */
        assert_false(b.would_load);
        host_compute(&b, 3);
        assert_int_equal(probe(&b, reader, N_PAGES, LONG_MSEC), N_PAGES);
        assert_int_equal(import_ask(&b, b.w.attach, 3, N_PAGES - 3, LONG_MSEC, &i), 0);
        turn_until_loading(&b);
        other.w = b.w;
        assert_int_equal(probe_ask(&other, reader, N_PAGES, LONG_MSEC, &second), 0);
        while (!other.is_over)
                host_turn(&b);
        assert_int_equal(other.n_imported, N_PAGES);
        import_await(&b);
        assert_cached(&b, N_PAGES);
        assert_int_equal(probe(&b, reader, N_PAGES, LONG_MSEC), N_PAGES);
        member_free(m);
        host_end(&b);
        host_end(&a);
}

EXCHANGE_SCENE(test_probe_of_a_text_with_a_gap, false)
{
        char name[EXCHANGE_NAME_MAX];
        uint8_t key[KEY_BYTES];

        host_share_text(a);
        make_keys(key, 7, 1);
        assert_int_equal(exchange_name_page(exchange_find_ns(a->w.ns), key, name), 0);
        free(redis_cluster_call(&server, 0, "del %s", name));
        assert_int_equal(probe(b, b->w.attach, N_PAGES, LONG_MSEC), 7);
}

/* Probes end in time, as if nothing were there. They leave room for imports. */
EXCHANGE_SCENE(test_probes_without_an_answer, false)
{
        struct import *probes[PROBES_MAX], *i;
        uint64_t began;

        host_share_text(a);
        host_compute(b, 3);
        assert_int_equal(kill(server.servers[0].pid, SIGSTOP), 0);
        began = clock_now_nsec();
        assert_int_equal(probe(b, b->w.attach, N_PAGES, SHORT_MSEC), 0);
        /* A probe may use all of its time, unlike an import. */
        assert_true(clock_now_nsec() - began >= SHORT_MSEC * NSEC_PER_MSEC);
        assert_true(clock_now_nsec() - began < 5 * NSEC_PER_SEC);
        for (unsigned k = 0; k < PROBES_MAX; k++)
                assert_int_equal(probe_ask(b, b->w.attach, N_PAGES, LONG_MSEC, &probes[k]), 0);
        assert_int_equal(probe_ask(b, b->w.attach, N_PAGES, LONG_MSEC, &i), KVL_STATUS_MISS);
        assert_non_null(strstr(b->w.d.text, "32 imports of tenant a are under way"));
        assert_int_equal(import_ask(b, b->w.attach, 3, N_PAGES - 3, SHORT_MSEC, &i), 0);
        import_cancel(i);
        for (unsigned k = 0; k < PROBES_MAX; k++)
                import_cancel(probes[k]);
        kill(server.servers[0].pid, SIGCONT);
}

/* An import ends by itself at its deadline. The store's threads may be late; until they have let go
 * of their buffers there is nothing more to do. */
EXCHANGE_SCENE(test_store_is_late, false)
{
        uint64_t deadline_nsec, next;
        struct import *i;

        host_share_text(a);
        assert_int_equal(kill(server.servers[0].pid, SIGSTOP), 0);
        for (bool probes = false;; probes = true) {
                assert_int_equal(probes ? probe_ask(b, b->w.attach, N_PAGES, SHORT_MSEC, &i)
                                        : import_ask(b, b->w.attach, 0, N_PAGES, SHORT_MSEC, &i),
                        0);
                deadline_nsec = clock_now_nsec() + SHORT_MSEC * NSEC_PER_MSEC;
                next = exchange_work(&b->w.store, deadline_nsec - SHORT_MSEC / 2 * NSEC_PER_MSEC);
                assert_in_range(next, deadline_nsec - NSEC_PER_SEC, deadline_nsec);
                assert_false(b->is_over);
                next = exchange_work(&b->w.store, deadline_nsec);
                assert_true(b->is_over && next > deadline_nsec);
                assert_int_equal(b->n_imported, 0);
                assert_int_equal(b->code, KVL_STATUS_MISS);
                if (probes)
                        break;
        }
        assert_int_equal(counters_of(b).not_imported[EXCHANGE_LATE], N_PAGES);
        kill(server.servers[0].pid, SIGCONT);
}

/* An exchange that closes, or a namespace that is invalidated, ends its imports. */
EXCHANGE_SCENE(test_called_off, true)
{
        struct import *i;
        uint64_t n;

        host_share_text(a);
        assert_int_equal(import_ask(b, b->w.attach, 0, N_PAGES, LONG_MSEC, &i), 0);
        turn_until_loading(b);
        import_cancel(i);
        tiers_check(&b->w);
        assert_int_equal(b->w.ns->device.n_pages[PAGE_GRANTED], 0);
        assert_int_equal(import_ask(b, b->w.attach, 0, N_PAGES, LONG_MSEC, &i), 0);
        turn_until_loading(b);
        assert_int_equal(ns_invalidate(b->w.ns, CAUSE_NAMESPACE, &n), 0);
        import_await(b);
        tiers_check(&b->w);
        assert_int_equal(b->w.ns->device.n_pages[PAGE_GRANTED], 0);
        assert_int_equal(count_hits(b->w.attach, 0, N_PAGES), 0);
        assert_true(counters_of(b).not_imported[EXCHANGE_EPOCH] > 0);
        assert_loads(b, 0, 0);
}
