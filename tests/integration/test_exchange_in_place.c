/* Pages of other hosts that are received in place: states of page and namespace meanwhile, and
 * pages that need a buffer instead. Two stores like in test_exchange.c. */
/* Before cmocka, whose fail() is a macro. */
#include "tests/integration/exchange-host.h"

#include <signal.h>

#include "base/macros.h"
#include "daemon/core/clients/grants.h"
#include "daemon/exchange/exchange-impl.h"
#include "daemon/core/moves/fill.h"
#include "daemon/core/reclaim/recall.h"

#define N_IN_FIRST 3 /* pages of a text in another set than the rest */

static bool is_receiving(const struct host *h)
{
        ns_for_each_set (set, h->w.ns)
                if (!list_is_empty(&set->moving.fills))
                        return true;
        return false;
}

/* Pages being received into stay moving until the store's client has let go of them. This holds for
 * an import that is called off, and for a namespace that ends. */
SERVER_TEST(test_called_off_while_received)
{
        struct import *i;
        struct host a, b;

        host_start(&a, true);
        host_start(&b, true);
        host_share_text(&a);
        assert_int_equal(import_ask(&b, b.w.attach, 0, N_PAGES, LONG_MSEC, &i), 0);
        turn_until_loading(&b);
        assert_true(is_receiving(&b));
        import_cancel(i);
        tiers_check(&b.w);
        assert_int_equal(b.w.ns->device.n_pages[PAGE_GRANTED], 0);
        assert_int_equal(b.w.ns->device.n_pages[PAGE_MOVING], fill_count_moving(b.w.ns));
        assert_true(fill_count_moving(b.w.ns) > 0);
        while (is_receiving(&b))
                host_turn(&b);
        tiers_check(&b.w);
        assert_int_equal(b.w.ns->device.n_pages[PAGE_MOVING], 0);
        assert_int_equal(import_ask(&b, b.w.attach, 0, N_PAGES, LONG_MSEC, &i), 0);
        turn_until_loading(&b);
        assert_true(is_receiving(&b));
        tiers_end(&b.w);
        remote_close(b.remote);
        host_end(&a);
}

static void count_call(void *data)
{
        ++*(unsigned *)data;
}

/* A client may give back a set before it hears of the recall. Pages that it leases then aren't
 * written to. */
EXCHANGE_SCENE(test_given_back_before_it_is_asked_for, false)
{
        uint32_t pages[N_PAGES];
        unsigned n = 0, n_wanted = 0;
        struct import *i;

        host_share_text(a);
        exchange_of(b->w.a)->import_bytes += IMPORT_BYTES_MAX; /* nothing can be asked for */
        assert_int_equal(import_ask(b, b->w.attach, 0, N_PAGES, LONG_MSEC, &i), 0);
        turn_until_loading(b);
        assert_false(is_receiving(b));
        for (uint32_t page = 0; n < N_PAGES; page++)
                if (ns_page(b->w.ns, page) && ns_page(b->w.ns, page)->state == PAGE_GRANTED)
                        pages[n++] = page;
        exchange_of(b->w.a)->options.on_work = count_call;
        exchange_of(b->w.a)->options.data = &n_wanted;
        assert_int_equal(free_pages(b->w.attach, pages, N_PAGES, NULL), 0);
        assert_true(n_wanted > 0);
        exchange_of(b->w.a)->options.on_work = NULL;
        exchange_of(b->w.a)->import_bytes -= IMPORT_BYTES_MAX;
        import_await(b);
        assert_int_equal(b->n_imported, 0);
        assert_int_equal(counters_of(b).not_imported[EXCHANGE_CALLED_OFF], N_PAGES);
        assert_cached(b, 0);
}

/* The set is recalled. The import, which has 20 s, ends long before that; the exchange reports
 * pending work. */
static void recall_while_importing(struct host *h, struct extent_set *set)
{
        unsigned n_wanted = 0;
        uint64_t until;

        exchange_of(h->w.a)->options.on_work = count_call;
        exchange_of(h->w.a)->options.data = &n_wanted;
        recall_set(set, RECALL_FORCED);
        assert_true(n_wanted > 0);
        until = clock_now_nsec() + LONG_MSEC / 4 * NSEC_PER_MSEC;
        while (!h->is_over || h->w.store.recalls.n > 0) {
                assert_true(clock_now_nsec() < until);
                host_turn(h);
                (void)recall_work(&h->w.store, clock_now_nsec(), PATIENCE_NSEC, UINT32_MAX);
                tiers_check(&h->w);
                poll(NULL, 0, 1);
        }
        exchange_of(h->w.a)->options.on_work = NULL;
        assert_int_equal(h->w.store.recalls.n_quarantined, 0);
}

/* The server doesn't answer, so a recall frees the pages at once. The client, which never heard of
 * them, isn't late. */
EXCHANGE_SCENE(test_recalled_while_nothing_comes, false)
{
        struct import *i;

        host_share_text(a);
        exchange_of(b->w.a)->import_bytes += IMPORT_BYTES_MAX; /* nothing can be asked for */
        assert_int_equal(import_ask(b, b->w.attach, 0, N_PAGES, LONG_MSEC, &i), 0);
        turn_until_loading(b);
        assert_int_equal(kill(server.servers[0].pid, SIGSTOP), 0);
        exchange_of(b->w.a)->import_bytes -= IMPORT_BYTES_MAX;
        host_turn(b);
        assert_true(is_receiving(b));
        recall_while_importing(b, b->w.ns->sets.at[0]);
        assert_int_equal(b->n_imported, 0);
        assert_int_equal(counters_of(b).not_imported[EXCHANGE_CALLED_OFF], N_PAGES);
        kill(server.servers[0].pid, SIGCONT);
}

/* A recall frees pages that have arrived and that the import pins until it is over. This also holds
 * if it waits for pages in another set. */
EXCHANGE_SCENE(test_recalled_after_some_have_come, false)
{
        const uint64_t bytes = 2 * TIER_PAGE_BYTES + ENVELOPE_BYTES;
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        uint32_t leased[TIER_SET_PAGES - N_IN_FIRST];
        struct import *i;

        host_share_text(a);
        assert_int_equal(lease_pages(b->w.attach, ARRAY_SIZE(leased), 1, leased, NULL), 0);
        exchange_of(b->w.a)->import_bytes += IMPORT_BYTES_MAX; /* nothing can be asked for */
        assert_int_equal(import_ask(b, b->w.attach, 0, N_PAGES, LONG_MSEC, &i), 0);
        turn_until_loading(b);
        while (b->w.ns->catalog.announced.n < N_PAGES)
                host_turn(b);
        exchange_of(b->w.a)->import_bytes -= bytes; /* one after the other */
        while (b->w.ns->device.n_pages[PAGE_SEALED] < N_IN_FIRST) {
                assert_true(clock_now_nsec() < until);
                host_turn(b);
        }
        assert_int_equal(kill(server.servers[0].pid, SIGSTOP), 0);
        assert_int_equal(free_pages(b->w.attach, leased, ARRAY_SIZE(leased), NULL), 0);
        assert_int_equal(b->w.ns->sets.at[0]->n_free, ARRAY_SIZE(leased));
        recall_while_importing(b, b->w.ns->sets.at[0]);
        assert_in_range(b->n_imported, N_IN_FIRST, N_PAGES - 1);
        assert_int_equal(count_hits(b->w.attach, 0, N_PAGES), 0);
        exchange_of(b->w.a)->import_bytes -= IMPORT_BYTES_MAX - bytes;
        kill(server.servers[0].pid, SIGCONT);
}

/* Imports pages of so many planes. Are they received in place? */
static bool import_planes(unsigned n_planes)
{
        struct import *i;
        struct host a, b;
        bool in_place;

        server_start();
        host_planes = n_planes;
        host_start(&a, true);
        host_use_pages(&a, PAGE_TOKENS, 4096);
        host_await_epoch(&a);
        host_share_text(&a);
        host_start(&b, false);
        host_use_pages(&b, PAGE_TOKENS, 4096);
        assert_int_equal(import_ask(&b, b.w.attach, 0, N_PAGES, LONG_MSEC, &i), 0);
        turn_until_loading(&b);
        in_place = is_receiving(&b);
        import_await(&b);
        assert_int_equal(b.n_imported, N_PAGES);
        assert_cached(&b, N_PAGES);
        host_end(&b);
        host_end(&a);
        host_planes = 2;
        redis_cluster_deinit(&server);
        return in_place;
}

/* A page with more pieces than one operation of the store's client uses a buffer. */
TEST(test_many_planes)
{
        assert_true(import_planes(REMOTE_IOV_MAX - 1));
        assert_false(import_planes(REMOTE_IOV_MAX));
}
