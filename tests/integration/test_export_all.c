/* A drained host exports all its cached pages: a store of daemon/core with its own client of one
 * real redis-server, and another one that reads them. Processes are in test_drain_export.c. */
/* Before cmocka, whose fail() is a macro. */
#include "tests/integration/exchange-host.h"

#include <signal.h>

#include "daemon/exchange/export-all.h"

#define TEXT_PAGE_BYTES (2 * TIER_PAGE_BYTES) /* of both planes */
#define N_IMPORTED      16                    /* the least that is loaded; and a batch of exports */

static void turn(struct host *h)
{
        for (unsigned i = 0; i < 4; i++)
                (void)tasks_work(&h->w.store);
        host_turn(h);
        tiers_check(&h->w);
}

static struct export_all_figures figures_of(const struct host *h)
{
        struct export_all_figures f;

        export_all_figures(&h->w.store, &f);
        return f;
}

static void await_all(struct host *h)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (figures_of(h).is_running) {
                assert_true(clock_now_nsec() < until);
                turn(h);
                poll(NULL, 0, 1);
        }
}

static void begin(struct host *h)
{
        assert_int_equal(export_all_begin(&h->w.store), 1);
        assert_true(figures_of(h).is_on && figures_of(h).is_running);
}

/* Advances the store's clock by `sec`. */
static void wait_sec(struct host *h, unsigned sec)
{
        store_set_now(&h->w.store, h->w.store.now_nsec + sec * NSEC_PER_SEC);
}

/* Counts the server's pages. */
static unsigned count_there(void)
{
        char *keys = redis_cluster_call(&server, 0, "--raw keys kvl:1:a:*:0"), *save = NULL;
        unsigned n = 0;

        assert_non_null(keys);
        for (char *k = strtok_r(keys, "\r\n", &save); k; k = strtok_r(NULL, "\r\n", &save))
                n++;
        free(keys);
        return n;
}

EXCHANGE_SCENE(test_what_nobody_found, false)
{
        struct export_all_figures f;

        assert_int_equal(export_all_begin(&b->w.store), 0); /* it may not write */
        host_compute(a, N_PAGES);
        begin(a);
        await_all(a);
        f = figures_of(a);
        assert_int_equal(f.written_pages, N_PAGES);
        assert_int_equal(f.written_bytes, N_PAGES * TEXT_PAGE_BYTES);
        assert_int_equal(f.there_pages + f.left_pages + f.old_pages, 0);
        assert_int_equal(import(b, 0, N_PAGES, LONG_MSEC), N_PAGES);
        assert_cached(b, N_PAGES);
        /* Pages that the server has aren't sent again. */
        begin(a);
        await_all(a);
        f = figures_of(a);
        assert_int_equal(f.there_pages, N_PAGES);
        assert_int_equal(f.written_pages, 0);
        /* Pages published from now on are exported, too. */
        host_compute_behind(a, NULL, 100, 3);
        assert_true(figures_of(a).is_running);
        await_all(a);
        assert_int_equal(figures_of(a).written_pages, 3);
        export_all_end(&a->w.store);
        assert_false(figures_of(a).is_on);
}

static void await_known(struct host *h)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        struct exchange_figures f;

        do {
                turn(h);
                assert_true(clock_now_nsec() < until);
                assert_true(exchange_figures(h->w.a, &f));
        } while (f.n_ready == 0);
}

/* Pages cached before the epoch was learnt aren't exported, nor are their continuations. */
SERVER_TEST(test_of_before_the_epoch)
{
        uint8_t keys[N_PAGES * KEY_BYTES];
        struct export_all_figures f;
        struct host a;

        host_start(&a, true);
        host_compute(&a, N_PAGES);
        host_invalidate_all(&a); /* as where another rank has invalidated something */
        begin(&a);
        assert_true(figures_of(&a).is_running);
        await_known(&a);
        await_all(&a);
        f = figures_of(&a);
        assert_int_equal(f.old_pages, N_PAGES);
        assert_int_equal(f.written_pages + f.there_pages + f.left_pages, 0);
        wait_sec(&a, 2);
        make_keys(keys, 0, N_PAGES);
        host_compute_behind(&a, keys + (N_PAGES - 1) * KEY_BYTES, 50, 2);
        host_compute_behind(&a, NULL, 100, 3);
        await_all(&a);
        f = figures_of(&a);
        assert_int_equal(f.old_pages, N_PAGES);
        assert_int_equal(f.written_pages, 3);
        assert_int_equal(f.left_pages, 2);
        assert_int_equal(count_there(), 3);
        host_end(&a);
}

/* Runs until so many were written, and no further writes are begun. */
static void export_some(struct host *h, unsigned n)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        begin(h);
        while (figures_of(h).written_pages < n) {
                assert_true(clock_now_nsec() < until);
                turn(h);
                poll(NULL, 0, 1);
        }
        export_all_end(&h->w.store);
        for (unsigned i = 0; i < 50; i++) {
                turn(h);
                poll(NULL, 0, 1);
        }
        assert_int_equal(count_there(), n);
}

/* The text used last is exported first, from its first page on, though its last page was the one
 * used. */
EXCHANGE_SCENE(test_order, false)
{
        host_compute_behind(a, NULL, 100, N_PAGES);
        host_compute(a, N_PAGES);
        wait_sec(a, 100);
        ns_note_use(a->w.ns, tier_find(&a->w, N_PAGES - 1));
        export_some(a, N_IMPORTED);
        assert_int_equal(import(b, 0, N_PAGES, LONG_MSEC), N_IMPORTED);
}

/* More texts than may wait, looked at in small slices, at so many bytes a second. */
SERVER_TEST(test_many_texts)
{
        const unsigned n = 100;
        struct export_all_figures f;
        struct host a;
        uint64_t began;

        host_write_rate = 80 * TEXT_PAGE_BYTES;
        host_start(&a, true);
        host_write_rate = UINT64_C(1) << 30;
        a.w.store.drop_slice_pages = 7;
        for (unsigned i = 0; i < n; i++)
                host_compute_behind(&a, NULL, 1000 + i, 1);
        began = clock_now_nsec();
        begin(&a);
        await_all(&a);
        f = figures_of(&a);
        assert_int_equal(f.written_pages, n);
        assert_int_equal(count_there(), n);
        /* 80 at once, and so many in each second. */
        assert_true(clock_now_nsec() - began >= (n - 80) * NSEC_PER_SEC / 80 * 8 / 10);
        assert_int_equal(counters_of(&a).not_exported[EXCHANGE_BUSY], 0);
        host_end(&a);
}

/* A server that doesn't answer delays the export, and is tried again until it does. */
SERVER_TEST(test_server_is_stopped)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        enum exchange_drop why;
        const struct ns *ns;
        struct host a;

        host_start(&a, true);
        host_compute(&a, N_IMPORTED); /* a batch, and a pass */
        assert_int_equal(kill(server.servers[0].pid, SIGSTOP), 0);
        begin(&a);
        assert_int_equal(export_all_obstacle(a.w.a, &why, &ns), OBSTACLE_NONE);
        while (export_all_obstacle(a.w.a, &why, &ns) == OBSTACLE_NONE) {
                assert_true(clock_now_nsec() < until);
                assert_true(figures_of(&a).is_running);
                turn(&a);
                poll(NULL, 0, 1);
        }
        /* Waits for the end of a pass without writes, and of another one. */
        while (counters_of(&a).not_exported[EXCHANGE_LATE] +
                        counters_of(&a).not_exported[EXCHANGE_UNREACHED] <
                2 * N_IMPORTED) {
                assert_true(clock_now_nsec() < until);
                assert_true(figures_of(&a).is_running);
                turn(&a);
                poll(NULL, 0, 1);
        }
        assert_int_equal(export_all_obstacle(a.w.a, &why, &ns), OBSTACLE_FAILS);
        assert_int_equal(figures_of(&a).written_pages, 0);
        assert_int_equal(kill(server.servers[0].pid, SIGCONT), 0);
        await_all(&a);
        assert_int_equal(export_all_obstacle(a.w.a, &why, &ns), OBSTACLE_NONE);
        assert_int_equal(figures_of(&a).left_pages, 0);
        assert_int_equal(count_there(), N_IMPORTED);
        host_end(&a);
}

/* A new rate holds for an export under way. With another secret, which other hosts read, all pages
 * are old. */
SERVER_TEST(test_other_options)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC / 2;
        struct host a;

        host_write_rate = 1;
        host_start(&a, true);
        host_compute(&a, N_PAGES);
        begin(&a);
        while (figures_of(&a).written_pages == 0)
                turn(&a);
        host_write_rate = UINT64_C(1) << 30;
        host_open_exchange(&a, true, NULL);
        await_all(&a);
        assert_int_equal(figures_of(&a).written_pages, N_PAGES);
        assert_true(clock_now_nsec() < until);
        wait_sec(&a, 2);
        host_open_exchange(&a, true, "0123456789abcdef");
        assert_false(figures_of(&a).is_on);
        begin(&a);
        await_all(&a);
        assert_int_equal(figures_of(&a).old_pages, N_PAGES);
        host_end(&a);
}

/* The namespace, or the exchange, ends during the export. */
SERVER_TEST(test_ends_meanwhile)
{
        struct host a;

        host_write_rate = TEXT_PAGE_BYTES;
        host_start(&a, true);
        host_write_rate = UINT64_C(1) << 30;
        host_compute(&a, N_PAGES);
        begin(&a);
        while (figures_of(&a).written_pages == 0)
                turn(&a);
        tenant_tell(a.w.a, ns_leaves, a.w.ns);
        assert_int_equal(figures_of(&a).apart_pages, N_PAGES);
        await_all(&a);
        tenant_tell(a.w.a, ns_enters, a.w.ns);
        host_await_epoch(&a);
        a.w.store.drop_slice_pages = 1;
        begin(&a);
        turn(&a);
        tenant_tell(a.w.a, ns_leaves, a.w.ns);
        await_all(&a);
        tenant_tell(a.w.a, ns_enters, a.w.ns);
        begin(&a);
        turn(&a);
        exchange_close(a.w.a);
        assert_false(figures_of(&a).is_on);
        assert_null(tasks_work(&a.w.store));
        assert_int_equal(export_all_begin(&a.w.store), 0);
        host_end(&a);
}
