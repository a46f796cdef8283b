/*
 * Tenants that share a store. With a server that doesn't answer, one tenant's reads leave room for
 * the others'. Reads count until the store has let go of them. Two stores of daemon/core, like in
 * test_exchange.c, stand for the tenants: they have one client of the server.
 */
/* Before cmocka, whose fail() is a macro. */
#include "tests/integration/exchange-host.h"

#include <signal.h>

#include "base/macros.h"
#include "daemon/exchange/exchange-impl.h"

/* Probes so many keys; the server has none of them. */
static int ask_for_keys(struct host *h, unsigned n, struct import **ret)
{
        static uint8_t keys[IMPORT_KEYS_MAX * KEY_BYTES];
        const struct import_request rq = {.keys = keys,
                .n_keys = n,
                .deadline_nsec = in_msec(LONG_MSEC),
                .only_probes = true};

        make_keys(keys, 1000, n);
        h->is_over = false;
        return import_begin(h->w.attach, &rq, clock_now_nsec(), on_over, h, ret, &h->w.d);
}

/* Lets the second one use the first one's client of the server. */
static void share_store(struct host *a, struct host *b)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        exchange_close(b->w.a);
        remote_close(b->remote);
        b->remote = a->remote;
        host_open_exchange(b, true, NULL);
        while (exchange_find_ns(b->w.ns)->epoch->number == 0) {
                assert_true(clock_now_nsec() < until);
                host_turn(b);
        }
}

static void end_shared(struct host *a, struct host *b)
{
        exchange_close(b->w.a);
        tiers_end(&b->w);
        host_end(a);
}

static bool is_changing_epoch(const struct host *h)
{
        const struct exchange_epoch *p = exchange_find_ns(h->w.ns)->epoch;

        return p->must_change && p->asking;
}

static uint64_t bytes_under_way(const struct host *h)
{
        struct exchange_figures f;

        assert_true(exchange_figures(h->w.a, &f));
        return f.bytes_under_way;
}

/* Waits until the store holds nothing of theirs. */
static void await_nothing(struct host *a, struct host *b)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (exchange_of(a->w.a)->n_ops + exchange_of(b->w.a)->n_ops > 0 ||
                bytes_under_way(a) + bytes_under_way(b) > 0) {
                assert_true(clock_now_nsec() < until);
                host_turn(a);
                host_turn(b);
                poll(NULL, 0, 1);
        }
}

/* A tenant asks for all it can, and gets no answers: the other one may ask, and both may
 * invalidate. */
SERVER_TEST(test_asks_for_all)
{
        struct import *probes[PROBES_MAX], *i;
        struct remote_stats stats;
        unsigned room, n = 0;
        struct host a, b;

        host_start(&a, true);
        host_start(&b, true);
        share_store(&a, &b);
        assert_int_equal(kill(server.servers[0].pid, SIGSTOP), 0);
        room = remote_room(a.remote);
        for (unsigned n_keys = IMPORT_KEYS_MAX; n_keys > 0; n_keys /= 2)
                while (n < PROBES_MAX && ask_for_keys(&a, n_keys, &probes[n]) == 0)
                        n++;
        assert_in_range(n, 16, PROBES_MAX - 1);
        assert_non_null(strstr(a.w.d.text, "takes no more requests now"));
        remote_stats(a.remote, &stats);
        /* Reads of epochs, one of each, come on top. */
        assert_in_range(stats.n_waiting, room / 2 - 2, room / 2 + PROBES_MAX);
        assert_int_equal(stats.n_waiting, exchange_of(a.w.a)->n_ops);

        assert_int_equal(ask_for_keys(&b, IMPORT_KEYS_MAX, &i), 0);
        import_cancel(i);
        assert_int_equal(import_ask(&b, b.w.attach, 0, N_PAGES, LONG_MSEC, &i), 0);
        host_invalidate_all(&b);
        assert_true(is_changing_epoch(&b));
        host_invalidate_all(&a);
        assert_true(is_changing_epoch(&a));

        import_cancel(i);
        while (n-- > 0)
                import_cancel(probes[n]);
        kill(server.servers[0].pid, SIGCONT);
        await_nothing(&a, &b);
        assert_int_equal(remote_room(a.remote), room);
        end_shared(&a, &b);
}

/* If a tenant reads as many bytes as it may, an import waits with its pages. It continues when some
 * of those reads end. */
EXCHANGE_SCENE(test_reads_wait, false)
{
        const uint32_t all = 1u << 20;
        struct import *i;

        host_share_text(a);
        assert_int_equal(import_ask(b, b->w.attach, 0, N_PAGES, LONG_MSEC, &i), 0);
        while (counters_of(b).probes == 0)
                host_turn(b);
        exchange_of(b->w.a)->n_ops += all;
        turn_until_loading(b);
        host_turn_often(b, 50);
        assert_int_equal(exchange_of(b->w.a)->n_ops, all);
        assert_false(b->is_over);
        exchange_of(b->w.a)->n_ops -= all;
        import_await(b);
        assert_int_equal(b->n_imported, N_PAGES);
        assert_cached(b, N_PAGES);
}

/* An import whose pages were all asked of the stopped server. */
static void import_from_stopped(struct host *h, struct import **ret)
{
        const uint32_t all = 1u << 20;

        assert_int_equal(import_ask(h, h->w.attach, 0, N_PAGES, LONG_MSEC, ret), 0);
        while (counters_of(h).probes == 0)
                host_turn(h);
        exchange_of(h->w.a)->n_ops += all; /* nothing else can be asked for */
        turn_until_loading(h);
        assert_int_equal(kill(server.servers[0].pid, SIGSTOP), 0);
        exchange_of(h->w.a)->n_ops -= all;
        host_turn(h);
        assert_int_equal(exchange_of(h->w.a)->n_ops, N_PAGES);
        assert_true(bytes_under_way(h) >= N_PAGES * 2 * TIER_PAGE_BYTES);
}

/* A cancelled import counts until the store has let go of it. A client gains nothing by beginning
 * again and again. */
EXCHANGE_SCENE(test_called_off_counts, false)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC, bytes;
        struct import *i;

        host_share_text(a);
        import_from_stopped(b, &i);
        bytes = bytes_under_way(b);
        import_cancel(i);
        assert_int_equal(bytes_under_way(b), bytes);
        assert_int_equal(exchange_of(b->w.a)->n_ops, N_PAGES);
        while (bytes_under_way(b) > 0) {
                assert_true(clock_now_nsec() < until);
                host_turn(b);
        }
        assert_int_equal(exchange_of(b->w.a)->n_ops, 0);
        kill(server.servers[0].pid, SIGCONT);
}

/* After an exchange is closed, the store's late answers aren't looked at. A new exchange in its
 * place starts from zero. */
EXCHANGE_SCENE(test_closed_meanwhile, false)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        struct import *i;

        host_share_text(a);
        import_from_stopped(b, &i);
        exchange_close(b->w.a);
        assert_true(b->is_over);
        host_open_exchange(b, false, NULL);
        assert_int_equal(bytes_under_way(b) + exchange_of(b->w.a)->n_ops, 0);
        while (b->w.ns->device.n_pages[PAGE_MOVING] > 0) {
                assert_true(clock_now_nsec() < until);
                (void)remote_reap(b->remote);
        }
        assert_int_equal(bytes_under_way(b) + exchange_of(b->w.a)->n_ops, 0);
        kill(server.servers[0].pid, SIGCONT);
        assert_int_equal(import(b, 0, N_PAGES, LONG_MSEC), N_PAGES);
}
