/* Sessions that move between hosts: stores of daemon/core, each with its own client of one real
 * redis-server. Processes are in test_exchange_hosts.c. */
/* Before cmocka, whose fail() is a macro. */
#include "tests/integration/exchange-host.h"

#include "daemon/core/clients/announce.h"
#include "daemon/core/clients/grants.h"
#include "daemon/exchange/export-all.h"
#include "daemon/exchange/session-load.h"
#include "daemon/core/sessions/session-truncate.h"
#include "daemon/core/sessions/session.h"
#include "daemon/exchange/format/session-record.h"

#define TEXT_TOKENS ((uint64_t)N_PAGES * PAGE_TOKENS)

static const uint8_t chat[] = "chat";
#define CHAT chat, sizeof(chat) - 1

/* ---- what hosts do --------------------------------------------------------------------------- */

static uint32_t open_session(struct host *h)
{
        uint32_t handle;
        bool created;

        assert_int_equal(session_open(h->w.attach,
                                 &(struct session_request){CHAT, false, 0, clock_now_nsec()},
                                 &handle, &created, NULL),
                0);
        return handle;
}

static void close_session(struct host *h, uint32_t handle)
{
        assert_int_equal(session_close(h->w.attach, handle, false, clock_now_nsec(), NULL), 0);
}

/* Publishes keys first.. to the session, behind the earlier ones. */
static void publish_turn(struct host *h, uint32_t handle, unsigned first, unsigned n)
{
        uint8_t keys[(N_PAGES + 1) * KEY_BYTES];
        uint32_t pages[N_PAGES], got[N_PAGES], n_got;
        struct publish p = {.pages = pages,
                .keys = keys + KEY_BYTES,
                .n = n,
                .parent_key = first > 0 ? keys : NULL,
                .last_tokens = PAGE_TOKENS,
                .session = handle};

        if (first > 0)
                make_keys(keys, first - 1, n + 1);
        else
                make_keys(keys + KEY_BYTES, 0, n);
        assert_int_equal(lease_pages(h->w.attach, n, 1, pages, NULL), 0);
        for (unsigned i = 0; i < n; i++)
                tier_fill(&h->w, pages[i], first + i);
        assert_int_equal(publish_pages(h->w.attach, &p, clock_now_nsec(), got, &n_got, NULL), 0);
        assert_int_equal(release_pages(h->w.attach, pages, n, 1, NULL), 0);
}

static void take_turn(struct host *h, unsigned first, unsigned n)
{
        uint32_t handle = open_session(h);

        publish_turn(h, handle, first, n);
        close_session(h, handle);
}

static void turn_until(struct host *h, bool (*is_so)(struct host *h, uint64_t n), uint64_t n)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (!is_so(h, n)) {
                assert_true(clock_now_nsec() < until);
                host_turn(h);
                poll(NULL, 0, 1);
        }
}

static bool has_told(struct host *h, uint64_t n)
{
        return counters_of(h).session_records >= n;
}

/* Ends a turn of n pages, the host's n_th, and waits until other hosts can load it. */
static void share_turn(struct host *h, unsigned first, unsigned n, unsigned n_th, uint64_t n_pages)
{
        take_turn(h, first, n);
        turn_until(h, has_told, n_th);
        host_await_exported(h, n_pages);
}

static bool has_no_record(struct host *h, uint64_t n)
{
        char *found = redis_cluster_call(&server, 0, "--raw keys kvl:1:a:*:session");
        bool is_gone = found && !strstr(found, "session");

        free(found);
        return is_gone;
}

/* Runs the script on each key `k` of the server that matches. Neither argument has a space. */
static void on_all_keys(const char *pattern, const char *script)
{
        free(redis_cluster_call(&server, 0,
                "eval for\n_,k\nin\nipairs(redis.call('keys','%s'))do\n%s\nend 0", pattern,
                script));
}

/* ---- loads ----------------------------------------------------------------------------------- */

static void on_loaded(uint32_t n_pages, int code, void *data)
{
        on_over(&(struct import_outcome){.n_pages = n_pages, .code = code}, data);
}

static int load_begin(struct host *h, unsigned msec, struct session_load **ret)
{
        h->is_over = false;
        return session_load_begin(h->w.attach,
                &(struct session_load_request){CHAT, in_msec(msec), on_loaded, h}, clock_now_nsec(),
                ret, &h->w.d);
}

/* Loads the session and returns the code; h->n_imported is set. */
static int load(struct host *h)
{
        struct session_load *l;
        int r = load_begin(h, LONG_MSEC, &l);

        if (r != 0)
                return r;
        import_await(h);
        return h->code;
}

static void assert_session(struct host *h, unsigned n_pages, uint64_t n_tokens)
{
        const struct session *s = session_find(h->w.ns, CHAT);
        uint8_t last[KEY_BYTES];
        struct session_info info;

        assert_non_null(s);
        session_info(s, &info);
        assert_int_equal(info.n_pages, n_pages);
        assert_int_equal(info.n_tokens, n_tokens);
        assert_int_equal(info.lost_tokens, n_tokens - (uint64_t)n_pages * PAGE_TOKENS);
        assert_int_equal(info.n_open, 0);
        if (n_pages == 0)
                return;
        make_keys(last, n_pages - 1, 1);
        assert_memory_equal(info.last_key, last, KEY_BYTES);
}

static void hosts_start(struct host *a, struct host *b)
{
        server_start();
        host_start(a, true);
        host_start(b, true);
}

static void hosts_end(struct host *a, struct host *b)
{
        host_end(b);
        host_end(a);
        redis_cluster_deinit(&server);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A conversation is continued by turns, each computed once. */
TEST_BARE(test_goes_on_elsewhere)
{
        struct host a, b;

        hosts_start(&a, &b);
        assert_int_equal(load(&b), KVL_STATUS_MISS);
        share_turn(&a, 0, 16, 1, 16);
        assert_int_equal(load(&b), 0);
        assert_int_equal(b.n_imported, 16);
        assert_session(&b, 16, 16 * PAGE_TOKENS);
        assert_cached(&b, 16);
        /* Neither host has anything new. */
        assert_int_equal(load(&b), KVL_STATUS_MISS);
        assert_int_equal(load(&a), KVL_STATUS_MISS);
        share_turn(&b, 16, 4, 1, 4);
        assert_int_equal(load(&a), 0);
        assert_session(&a, 16, 20 * PAGE_TOKENS); /* 64 tokens are sooner computed than loaded */
        assert_int_equal(counters_of(&a).sessions, 1);
        assert_int_equal(counters_of(&b).sessions, 1);
        hosts_end(&a, &b);
}

/* The session's first pages are here, and a client computes another page meanwhile. The load waits
 * for that client. */
TEST_BARE(test_waits_for_others)
{
        struct session_load *l;
        struct host a, b;
        uint32_t page, other, n;
        uint8_t key[KEY_BYTES];

        hosts_start(&a, &b);
        share_turn(&a, 0, N_PAGES, 1, N_PAGES);
        host_compute(&b, 2);
        make_keys(key, 2, 1);
        assert_int_equal(lease_pages(b.w.attach, 1, 1, &page, NULL), 0);
        assert_int_equal(announce_pages(b.w.attach, &page, key, 1, &n, &other, NULL), 0);
        assert_int_equal(load_begin(&b, LONG_MSEC, &l), 0);
        host_turn_often(&b, 100);
        assert_false(b.is_over);
        assert_int_equal(free_pages(b.w.attach, &page, 1, NULL), 0);
        import_await(&b);
        assert_int_equal(b.code, 0);
        assert_int_equal(b.n_imported, N_PAGES - 2);
        assert_session(&b, N_PAGES, TEXT_TOKENS);
        hosts_end(&a, &b);
}

/* A session ends before the first page that the servers have lost. */
TEST_BARE(test_pages_are_lost)
{
        struct host a, b;

        hosts_start(&a, &b);
        share_turn(&a, 0, N_PAGES, 1, N_PAGES);
        on_all_keys("kvl:1:a:*:0", "redis.call('del',k)");
        assert_int_equal(load(&b), 0);
        assert_int_equal(b.n_imported, 0);
        assert_session(&b, 0, TEXT_TOKENS);
        hosts_end(&a, &b);
}

/* Both hosts continue the session from the same place. Others follow the host that ended its turn
 * last. A turn not yet announced stays with its host. */
TEST_BARE(test_both_go_on)
{
        struct host a, b;
        uint32_t handle;

        hosts_start(&a, &b);
        share_turn(&a, 0, 16, 1, 16);
        assert_int_equal(load(&b), 0);
        handle = open_session(&a);
        share_turn(&b, 16, 2, 1, 2);
        assert_int_equal(load(&a), KVL_STATUS_MISS); /* it is open */
        publish_turn(&a, handle, 16, 1);
        close_session(&a, handle);
        turn_until(&a, has_told, 2);
        assert_session(&a, 17, 17 * PAGE_TOKENS);
        assert_int_equal(load(&b), 0);
        assert_session(&b, 17, 17 * PAGE_TOKENS);
        hosts_end(&a, &b);
}

/* A host that can't announce a turn keeps it, though other hosts announce theirs. */
TEST_BARE(test_others_arent_told)
{
        struct host a, b, reader;

        hosts_start(&a, &b);
        host_start(&reader, false);
        share_turn(&a, 0, 16, 1, 16);
        assert_int_equal(load(&b), 0);
        assert_int_equal(load(&reader), 0);
        share_turn(&b, 16, 1, 1, 1);
        assert_int_equal(load(&reader), 0);
        assert_session(&reader, 16, 17 * PAGE_TOKENS);
        take_turn(&reader, 16, 2);
        share_turn(&b, 17, 2, 2, 3);
        assert_int_equal(load(&reader), KVL_STATUS_MISS);
        assert_session(&reader, 18, 18 * PAGE_TOKENS);
        host_end(&reader);
        hosts_end(&a, &b);
}

/* No other host finds a session that was truncated, or dropped. */
TEST_BARE(test_truncated_and_dropped)
{
        struct session_truncation t;
        struct host a, b;
        uint32_t handle;

        hosts_start(&a, &b);
        share_turn(&a, 0, N_PAGES - 1, 1, N_PAGES - 1);
        assert_int_equal(load(&b), 0);
        handle = open_session(&a);
        assert_int_equal(truncation_begin_ends(&t, session_of(a.w.attach, handle, NULL),
                                 PAGE_TOKENS, PAGE_TOKENS, NULL),
                0);
        assert_true(truncation_is_over(&t));
        turn_until(&a, has_no_record, 0);
        assert_int_equal(load(&b), KVL_STATUS_MISS);
        close_session(&a, handle);
        share_turn(&b, N_PAGES - 1, 1, 1, 1);
        assert_int_equal(load(&a), KVL_STATUS_MISS); /* its own has a gap */
        handle = open_session(&a);
        assert_int_equal(session_close(a.w.attach, handle, true, clock_now_nsec(), NULL), 0);
        take_turn(&a, 0, N_PAGES);
        turn_until(&a, has_told, 2);
        handle = open_session(&a);
        assert_int_equal(session_close(a.w.attach, handle, true, clock_now_nsec(), NULL), 0);
        turn_until(&a, has_no_record, 0);
        assert_int_equal(load(&b), KVL_STATUS_MISS);
        hosts_end(&a, &b);
}

/* An invalidated session isn't found by any host. */
TEST_BARE(test_invalidated)
{
        struct host a, b;

        hosts_start(&a, &b);
        share_turn(&a, 0, N_PAGES, 1, N_PAGES);
        host_invalidate_all(&a);
        host_await_epoch(&a);
        assert_int_equal(load(&b), KVL_STATUS_MISS);
        assert_null(session_find(b.w.ns, CHAT));
        hosts_end(&a, &b);
}

/* A forged value costs a host the pages of others, and nothing else. */
TEST_BARE(test_lies)
{
        struct host a, b;

        hosts_start(&a, &b);
        share_turn(&a, 0, N_PAGES, 1, N_PAGES);
        on_all_keys("kvl:1:a:*:session", "redis.call('setrange',k,300,'x')");
        assert_int_equal(load(&b), KVL_STATUS_MISS);
        assert_null(session_find(b.w.ns, CHAT));
        turn_until(&b, has_no_record, 0);
        hosts_end(&a, &b);
}

static bool is_all_exported(struct host *h, uint64_t n)
{
        struct export_all_figures f;

        (void)tasks_work(&h->w.store);
        export_all_figures(&h->w.store, &f);
        return f.is_on && !f.is_running;
}

/* A client has the session open all the time while the host is drained. */
TEST_BARE(test_host_goes)
{
        uint32_t handle;
        struct host a, b;

        hosts_start(&a, &b);
        handle = open_session(&a);
        publish_turn(&a, handle, 0, N_PAGES);
        assert_int_equal(load(&b), KVL_STATUS_MISS);
        assert_int_equal(export_all_begin(&a.w.store), 1);
        turn_until(&a, is_all_exported, 0);
        assert_int_equal(counters_of(&a).session_records, 1);
        assert_int_equal(load(&b), 0);
        assert_session(&b, N_PAGES, TEXT_TOKENS);
        hosts_end(&a, &b);
}

/* The load is cancelled, or the exchange closes. */
TEST_BARE(test_called_off)
{
        struct session_load *l;
        struct host a, b;

        hosts_start(&a, &b);
        share_turn(&a, 0, N_PAGES, 1, N_PAGES);
        assert_int_equal(load_begin(&b, LONG_MSEC, &l), 0);
        session_load_cancel(l);
        assert_false(b.is_over);
        assert_int_equal(load_begin(&b, LONG_MSEC, &l), 0);
        exchange_close(b.w.a);
        assert_true(b.is_over);
        assert_int_equal(b.code, KVL_STATUS_MISS);
        hosts_end(&a, &b);
}
