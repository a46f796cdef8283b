/* Sessions that are there again after a restart: what is written down, and what is made of it. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/alloc-fail.h"
#include "tests/unit/child.h"
#include "tests/unit/session-log-fixture.h"
#include "tests/unit/test-random.h"

static void test_off(void **state)
{
        struct bench w;

        begin(&w, 4);
        append(w.a, open_session(w.a, "s"), ROOT, 0, 3);
        assert_null(w.ns->sessions->log.head);
        assert_int_equal(w.keeper.fd, -1);
        forget(&w);
        recover(&w);
        assert_null(w.ns->sessions);
        end(&w);
}

static void test_restart(void **state)
{
        struct bench w;
        uint32_t s, t;
        bool created;

        begin(&w, 8);
        s = open_logged(&w, "s");
        append(w.a, s, ROOT, 0, 4);
        t = open_logged(&w, "another");
        append(w.a, t, 1, 10, 3);
        session_hint(session_of(w.a, t, NULL), EVICT_HINT_RETURNS, 5, 1);
        assert_int_equal(session_open(w.a, (const uint8_t *)"", 0, false, 7, 1, &s, &created, NULL),
                -EINVAL);
        assert_int_equal(
                session_open(w.a, (const uint8_t *)"t", 1, false, 7, 1, &s, &created, NULL), 0);
        expect_restart(&w);
        assert_int_equal(w.ns->sessions->recovered.n_sessions, 3);
        assert_int_equal(w.ns->sessions->recovered.n_shorter, 0);
        s = open_session(w.a, "s");
        expect_pages(w.a, s, "0@0 1@1 2@2 3@3");
        expect_tokens(w.a, s, 4, 0);
        assert_int_equal(info_of(w.a, open_session(w.a, "another")).hint, EVICT_HINT_RETURNS);
        /* It goes on where it was. */
        append(w.a, s, 3, 4, 2);
        assert_int_equal(session_close(w.a, open_session(w.a, "another"), true, 1, NULL), 0);
        expect_restart(&w);
        assert_int_equal(sessions_count(w.ns), 2);
        end(&w);
}

/* Where a page goes, the sessions that end there end at its parent. */
static void test_ends(void **state)
{
        struct bench w;
        uint32_t s;

        begin(&w, 8);
        s = open_logged(&w, "s");
        append(w.a, s, ROOT, 0, 4);
        append(w.a, open_logged(&w, "t"), ROOT, 0, 4);
        append(w.a, open_logged(&w, "u"), ROOT, 0, 2);
        evict(w.a, 3);
        evict(w.a, 2);
        expect_restart(&w);
        s = open_session(w.a, "s");
        expect_pages(w.a, s, "0@0 1@1");
        expect_tokens(w.a, s, 4, 2);
        evict(w.a, 1);
        evict(w.a, 0);
        expect_restart(&w);
        expect_pages(w.a, open_session(w.a, "t"), "");
        expect_tokens(w.a, open_session(w.a, "t"), 4, 4);
        end(&w);
}

/* What the log says of a page's end counts where the page is gone, not where it is there. */
static void test_page_first(void **state)
{
        struct bench w;
        uint8_t key[KEY_BYTES];
        uint32_t s;

        begin(&w, 8);
        s = open_logged(&w, "s");
        append(w.a, s, ROOT, 0, 3);
        make_keys(key, 2, 1);
        session_log_moved(w.ns, ns_find_page(w.ns, key), ns_find_page(w.ns, key) - 1);
        restart(&w);
        expect_pages(w.a, open_session(w.a, "s"), "0@0 1@1 2@2");
        end(&w);
}

static void test_windows(void **state)
{
        struct bench w;
        uint32_t s;

        begin(&w, 8);
        s = open_logged(&w, "s");
        append(w.a, s, ROOT, 0, 10);
        truncate_pages(w.a, s, 2, 4, 4);
        append(w.a, s, 9, 10, 3);
        expect_restart(&w);
        s = open_session(w.a, "s");
        expect_pages(w.a, s, "0@0 1@1 6@6 7@7 8@8 9@9 10@10 11@11 12@12");
        append(w.a, s, 9, 20, 1); /* back from 12 to 9 */
        truncate_pages(w.a, s, 2, 3, 2);
        expect_restart(&w);
        s = open_session(w.a, "s");
        expect_pages(w.a, s, "0@0 1@1 8@8 9@9 20@10");
        expect_tokens(w.a, s, 11, 0);
        /* Others end there, too. */
        append(w.a, open_session(w.a, "t"), ROOT, 0, 2);
        assert_int_equal(w.ns->device.n_pages[PAGE_DETACHED], 3);
        assert_int_equal(session_close(w.a, s, true, 1, NULL), 0);
        expect_restart(&w);
        assert_int_equal(w.ns->device.n_pages[PAGE_DETACHED], 0);
        end(&w);
}

/* A text that is as long as any can be; and one of a daemon that let positions begin anew at 2^32:
 * what comes after that isn't there, and no position is less than nothing. */
static void test_longest_text(void **state)
{
        const uint64_t most = (UINT64_C(1) << 32) - 8 * PAGE_TOKENS; /* page 7 ends at 2^32 */
        struct session_info info;
        struct bench w;
        uint32_t s;

        begin(&w, 8);
        s = open_logged(&w, "s");
        append(w.a, s, ROOT, 0, 7);
        truncate_pages(w.a, s, 1, 2, 4);
        push_window(w.a, s, most);
        session_log_put(session_of(w.a, s, NULL));
        expect_restart(&w);
        s = open_session(w.a, "s");
        expect_pages(w.a, s, "0@0 5@268435453 6@268435454");
        end(&w);

        begin(&w, 8);
        s = open_logged(&w, "s");
        append(w.a, s, ROOT, 0, 8);
        truncate_pages(w.a, s, 1, 3, 4);
        push_window(w.a, s, most); /* 5, 6, and 7, whose end is 0 */
        session_log_put(session_of(w.a, s, NULL));
        restart(&w);
        fixture_check(&w.f);
        s = open_session(w.a, "s");
        expect_pages(w.a, s, "0@0 5@268435453 6@268435454");
        assert_int_equal(info_of(w.a, s).n_tokens, TEXT_TOKENS_MAX);
        end(&w);

        begin(&w, 8);
        s = open_logged(&w, "s");
        append(w.a, s, ROOT, 0, 8);
        truncate_pages(w.a, s, 1, 1, 6);
        push_window(w.a, s, most + 4); /* its page began before, and ends at 4 */
        session_log_put(session_of(w.a, s, NULL));
        restart(&w);
        fixture_check(&w.f);
        s = open_session(w.a, "s");
        info = info_of(w.a, s);
        assert_int_equal(info.n_pages, 1);
        assert_int_equal(info.n_tokens, TEXT_TOKENS_MAX);
        assert_true(info.lost_tokens <= info.n_tokens);
        truncate_pages(w.a, s, 1, 0, 0);
        expect_tokens(w.a, s, 1, 0);
        append(w.a, s, 0, 20, 1);
        expect_pages(w.a, s, "0@0 20@1");
        end(&w);
}

/* Windows give way in the order in which they were used. */
static void test_window_order(void **state)
{
        struct bench w;
        char id[2] = "a";

        begin(&w, 8);
        for (unsigned i = 0; i < 4; i++, id[0]++) {
                uint32_t s = open_logged(&w, id);

                append(w.a, s, ROOT, 10 * i, 4);
                truncate_pages(w.a, s, 1, 2, 1);
        }
        for (unsigned i = 0; i < 4; i++) {
                id[0] = (char)('a' + (3 * i + 1) % 4);
                session_use(session_find(w.ns, (uint8_t *)id, 1), (i + 2) * NSEC_PER_SEC);
                session_log_used(session_find(w.ns, (uint8_t *)id, 1));
        }
        store_set_now(&w.f.store, 9 * NSEC_PER_SEC);
        expect_restart(&w);
        for (unsigned i = 0; i < 4; i++) {
                id[0] = (char)('a' + (3 * i + 1) % 4);
                assert_true(sessions_give_way(w.ns, false));
                assert_int_equal(session_find(w.ns, (uint8_t *)id, 1)->n_window, 0);
        }
        expect_restart(&w);
        end(&w);
}

/* That it is used is written at most once a second; nobody loses more than that. */
static void test_used(void **state)
{
        struct session_log *log;
        struct bench w;
        uint64_t tail;
        struct session *s;

        begin(&w, 4);
        s = session_of(w.a, open_logged(&w, "s"), NULL);
        log = &w.ns->sessions->log;
        tail = log->head->tails[0];
        for (unsigned i = 1; i < 10; i++) {
                session_use(s, 1 + i * NSEC_PER_SEC / 10);
                session_log_used(s);
        }
        assert_int_equal(log->head->tails[0], tail);
        session_use(s, 1 + NSEC_PER_SEC);
        session_log_used(s);
        assert_true(log->head->tails[0] > tail);
        store_set_now(&w.f.store, 2 * NSEC_PER_SEC);
        restart(&w);
        s = session_find(w.ns, (const uint8_t *)"s", 1);
        assert_int_equal(s->used_nsec, 1 + NSEC_PER_SEC);
        /* Nobody opened it: it expires. */
        s->expire_nsec = NSEC_PER_SEC;
        (void)sessions_expire(w.ns, 3 * NSEC_PER_SEC, UINT32_MAX);
        assert_int_equal(sessions_count(w.ns), 0);
        expect_restart(&w);
        end(&w);
}

/* An invalidation ends them by the epoch alone. */
static void test_epoch(void **state)
{
        struct bench w;
        uint64_t n;

        begin(&w, 4);
        append(w.a, open_logged(&w, "s"), ROOT, 0, 2);
        assert_int_equal(ns_invalidate(w.ns, &n), 0);
        restart(&w);
        assert_int_equal(sessions_count(w.ns), 0);
        while (ns_sweep(w.ns, 1000))
                continue;
        open_logged(&w, "t");
        expect_restart(&w);
        assert_int_equal(sessions_count(w.ns), 1);
        end(&w);
}

static void test_not_kept(void **state)
{
        struct bench w;
        struct detail d;
        uint32_t handle;
        bool created;

        begin(&w, 4);
        keep_logs(&w, true);
        w.keeper.fails = -EMFILE;
        assert_int_equal(
                session_open(w.a, (const uint8_t *)"s", 1, false, 0, 1, &handle, &created, &d),
                -EMFILE);
        assert_string_equal(d.text, "no room to keep it");
        assert_null(w.ns->sessions);
        w.keeper.fails = 0;
        alloc_fail_each(n)
        {
                int r = session_open(
                        w.a, (const uint8_t *)"s", 1, false, 0, 1, &handle, &created, &d);

                if (alloc_fail_happened())
                        assert_int_equal(r, -ENOMEM);
                else
                        assert_int_equal(r, 0);
                w.keeper.fd = r == 0 ? w.keeper.fd : fd_close(w.keeper.fd);
        }
        keep_logs(&w, false);
        end(&w);
}

/* ---- the two halves -------------------------------------------------------------------------- */

/* Whatever is live, the log has at most twice as much, and what is copied meanwhile. */
static void test_copies(void **state)
{
        uint64_t live, worst = 0, before, most_step = 0;
        struct session_log *log;
        uint64_t expire_nsec[2000];
        struct session *s;
        struct bench w;
        char id[8];

        begin(&w, 8);
        append(w.a, open_logged(&w, "s"), ROOT, 0, 4);
        log = &w.ns->sessions->log;
        for (unsigned i = 0; i < 2000; i++) {
                snprintf(id, sizeof(id), "%u", i);
                append(w.a, open_session(w.a, id), ROOT, i % 4, 1);
                assert_int_equal(session_close(w.a, w.a->last_session, i % 2, 1, NULL), 0);
        }
        live = w.ns->sessions->n_live * (sizeof(struct session_put) + SESSION_ID_MAX);
        for (unsigned i = 0; i < 20000; i++) {
                uint64_t copied = log->head->tails[!log->head->half];

                s = w.ns->sessions->slots[i % 1001].session;
                if (s) {
                        before = log->n_copies;
                        s->expire_nsec = i + 1; /* what is copied changes again */
                        session_log_put(s);
                        if (log->is_copying && log->n_copies == before &&
                                log->head->tails[!log->head->half] > copied)
                                most_step =
                                        MAX(most_step, log->head->tails[!log->head->half] - copied);
                }
                worst = MAX(worst, log_memory(&w));
        }
        assert_true(log->n_copies >= 3);
        assert_in_range(most_step, 1, 4096 + 3 * (sizeof(struct session_put) + SESSION_ID_MAX));
        /* One of them is twice what is live when the other is begun, and has what is written until
         * that is complete; the other is what is live, and the same again. */
        assert_in_range(worst, live, 4 * live + 65536);
        memset(expire_nsec, 0, sizeof(expire_nsec));
        for (unsigned i = 0; i < 2000; i++) {
                snprintf(id, sizeof(id), "%u", i);
                s = session_find(w.ns, (const uint8_t *)id, (uint32_t)strlen(id));
                expire_nsec[i] = s ? s->expire_nsec : 0;
        }
        while (!log->is_copying)
                session_log_put(w.ns->sessions->slots[1000].session);
        session_log_put(w.ns->sessions->slots[1000].session);
        s = w.ns->sessions->slots[20].session; /* copied already */
        s->expire_nsec = 77;
        session_log_put(s);
        snprintf(id, sizeof(id), "%.*s", (int)s->id_len, (const char *)s->id);
        expire_nsec[atoi(id)] = 77;
        while (log->is_copying)
                session_log_put(w.ns->sessions->slots[1000].session);
        restart(&w);
        assert_int_equal(sessions_count(w.ns), 1001);
        for (unsigned i = 0; i < 2000; i++) {
                snprintf(id, sizeof(id), "%u", i);
                s = session_find(w.ns, (const uint8_t *)id, (uint32_t)strlen(id));
                assert_int_equal(expire_nsec[i], s ? s->expire_nsec : 0);
        }
        assert_false(w.ns->sessions->recovered.is_damaged);
        assert_in_range(log_memory(&w), live / 2, live + 65536);
        end(&w);
}

/* Where a half lacks room, all is copied at once: into the one that is begun, or anew. */
static void test_full(void **state)
{
        struct session_log *log;
        struct bench w;
        uint32_t s;

        begin(&w, 8);
        s = open_logged(&w, "s");
        append(w.a, s, ROOT, 0, 12);
        truncate_pages(w.a, s, 2, 8, 2);
        log = &w.ns->sessions->log;
        log->limit_bytes = 1024; /* three times what is live, and a bit */
        for (unsigned i = 0; i < 100; i++) {
                session_log_put(session_of(w.a, s, NULL));
                assert_true(log->head->tails[log->head->half] <= 1024);
        }
        assert_true(log->n_copies > 5);
        expect_restart(&w);
        /* While it is copied. */
        log = &w.ns->sessions->log;
        open_session(w.a, "t");
        s = open_session(w.a, "s");
        log->limit_bytes = 1024;
        for (unsigned i = 0; i < 100; i++) {
                if (!log->is_copying) {
                        log->is_copying = true;
                        log->copy_slot = 1;
                        log->head->tails[!log->head->half] = 0;
                        session_log_put(session_of(w.a, s, NULL));
                }
                session_log_put(session_of(w.a, s, NULL));
        }
        assert_true(log->n_copies > 5);
        end(&w);
}

/* ---- long windows ---------------------------------------------------------------------------- */

#define PIECE 4
#define LONG  700 /* pages: several records' share of a copy */

static bool truncation_is_done;

static void on_done(struct session_truncation *t)
{
        truncation_is_done = true;
}

/* A long text that is being truncated, all but some of which is to be the window. */
static struct session *begin_truncation(struct bench *w, struct session_truncation *t)
{
        struct session_truncation first;
        struct session *s;
        uint32_t handle;

        begin(w, 128);
        w->f.store.drop_slice_pages = 16;
        handle = open_logged(w, "s");
        w->ns->sessions->log.piece_pages = PIECE;
        for (unsigned i = 0; i < LONG; i += 50)
                append(w->a, handle, i == 0 ? ROOT : i - 1, i, 50);
        s = session_of(w->a, handle, NULL);
        assert_int_equal(
                truncation_begin(&first, s, PAGE_TOKENS, (LONG - 50) * PAGE_TOKENS, NULL), 0);
        truncation_is_done = false;
        truncation_queue(&first, t, on_done);
        return s;
}

/* Whenever it is that the daemon ends, the next one has it as before, and then all of it, whether
 * the log is copied meanwhile or other records come between. */
static void test_long_window(void **state)
{
        for (unsigned n_slices = 1;; n_slices += 37) {
                struct session_truncation t;
                struct bench w;
                struct session *s = begin_truncation(&w, &t);
                struct session_log *log = &w.ns->sessions->log;
                bool is_done;

                for (unsigned n = 0; n < n_slices && !truncation_is_done; n++) {
                        uint32_t before = s->n_logged[log->head->half];

                        if (n % 8 == 7)
                                session_hint(s, n % 4, 1, 1);
                        if (n % 64 == 63) /* as if there were much in it that isn't live */
                                session_log_rewrite(w.ns);
                        before = s->n_logged[log->head->half];
                        (void)chores_work(&w.f.store);
                        assert_true(s->n_logged[log->head->half] - before <= 16);
                        if (n % 32 == 0)
                                fixture_check(&w.f);
                }
                is_done = truncation_is_done;
                assert_int_equal(s->is_truncated, is_done);
                assert_int_equal(s->n_window, is_done ? LONG - 50 : 0);
                expect_restart(&w);
                assert_true(truncation_is_done); /* whoever asked for it heard of that */
                end(&w);
                if (is_done)
                        break;
        }
}

/* A copy takes it in pieces, while pages are published to it and leave it. */
static void test_long_window_is_copied(void **state)
{
        struct session_truncation t;
        struct session_log *log;
        unsigned n_pieces = 0, key = LONG;
        struct bench w;
        struct session *s = begin_truncation(&w, &t);

        while (!truncation_is_done)
                (void)chores_work(&w.f.store);
        log = &w.ns->sessions->log;
        for (unsigned n = 0; n < 40; n++) {
                uint32_t handle;

                while (!log->is_copying)
                        session_log_put(s);
                for (unsigned i = 0; i <= n && log->is_copying; i++) {
                        if (i % 3 == 0)
                                session_log_put(s);
                        n_pieces += log->is_in_slot;
                        append(w.a, w.a->last_session, key - 1, key, 1);
                        key++;
                        if (i % 4 == 3)
                                truncate_pages(w.a, w.a->last_session, 1, s->n_window - 3, 3);
                }
                if (n % 2 == 0) {
                        while (log->is_copying)
                                session_log_put(s);
                }
                expect_restart(&w);
                handle = open_session(w.a, "s");
                s = session_of(w.a, handle, NULL);
                log = &w.ns->sessions->log;
                log->piece_pages = PIECE;
        }
        assert_true(n_pieces > 20);
        end(&w);
}

/* It ends before all of it is copied; another one has its place, or nobody. */
static void test_long_window_ends(void **state)
{
        for (int is_dropped = 0; is_dropped < 2; is_dropped++) {
                struct session_truncation t;
                struct bench w;
                struct session *s = begin_truncation(&w, &t);
                struct session_log *log = &w.ns->sessions->log;
                uint32_t handle = w.a->last_session, other = open_session(w.a, "t");
                uint64_t n;

                while (!truncation_is_done)
                        (void)chores_work(&w.f.store);
                while (!log->is_in_slot)
                        session_log_put(s);
                if (is_dropped)
                        assert_int_equal(session_close(w.a, handle, true, 1, NULL), 0);
                else
                        assert_int_equal(ns_invalidate(w.ns, &n), 0);
                while (ns_sweep(w.ns, 1000))
                        ;
                if (!is_dropped)
                        (void)open_session(w.a, "u"); /* in the place of the other one */
                s = session_of(w.a, is_dropped ? other : open_session(w.a, "v"), NULL);
                assert_int_equal(s->slot, is_dropped);
                while (log->is_copying)
                        session_log_put(s);
                expect_restart(&w);
                assert_int_equal(sessions_count(w.ns), is_dropped ? 1 : 2);
                end(&w);
        }
}

/* ---- killed ---------------------------------------------------------------------------------- */

#define N_IDS 5
#define N_OPS 1500

struct actor {
        struct bench w;
        uint32_t handles[N_IDS]; /* 0: not open */
};

static void act_begin(struct actor *x)
{
        static const char *const ids[N_IDS] = {"a", "b", "c", "d", "e"};

        begin(&x->w, 64);
        for (unsigned i = 0; i < N_IDS; i++)
                x->handles[i] = open_logged(&x->w, ids[i]);
        x->w.ns->sessions->log.piece_pages = 1;
}

/* A page with one of two keys below the session's end, or below a page before it. */
static void act_append(struct actor *x, uint32_t handle, const struct session *s)
{
        const struct ns *ns = x->w.ns;
        uint32_t page = s->n_window > 0 ? s->window[s->n_window - 1] : session_tail(s);
        unsigned parent = ROOT, key;
        int r;

        if (s->n_window > 1 && random_below(4) == 0)
                page = s->window[s->n_window - 2];
        else if (s->n_window == 0 && page != PAGE_NONE && random_below(4) == 0)
                page = tree_parent(&ns->tree, page);
        if (page != PAGE_NONE) {
                memcpy(&parent, ns_page(ns, page)->key, sizeof(parent));
                parent--;
        }
        key = (parent == ROOT ? 0 : 2 * (parent % 100000) + 2) + random_below(2);
        r = publish_tail(x->w.a, handle, parent, key, 1, PAGE_TOKENS, &page);
        if (r == 0 || r == KVL_STATUS_DUPLICATE)
                assert_int_equal(release_pages(x->w.a, &page, 1, 1, NULL), 0);
        else
                assert_int_equal(r, KVL_STATUS_NO_PARENT);
}

static void act_evict(struct actor *x, const struct session *s)
{
        uint32_t tail = session_tail(s);

        if (tail != PAGE_NONE && tree_is_leaf(&x->w.ns->tree, tail))
                (void)ns_evict_leaf(x->w.ns, tail);
}

static void act_on(struct actor *x, uint32_t *handle, struct session *s, unsigned what)
{
        struct attach *a = x->w.a;
        uint64_t n, now_nsec = x->w.f.store.now_nsec;

        if (what < 10)
                act_append(x, *handle, s);
        else if (what < 12)
                (void)session_truncate(
                        s, random_below(6) * PAGE_TOKENS, random_below(6) * PAGE_TOKENS, &n, NULL);
        else if (what == 12)
                session_hint(s, random_below(4), 1, now_nsec);
        else if (what < 15)
                act_evict(x, s);
        else if (what == 15)
                assert_int_equal(session_close(a, *handle, random_below(2), now_nsec, NULL), 0);
        else if (what == 16)
                (void)sessions_give_way(x->w.ns, true);
        else
                store_set_now(&x->w.f.store, now_nsec + NSEC_PER_SEC / 3);
}

/* The number says all of what is done. */
static void act(struct actor *x, uint64_t seed, unsigned number)
{
        unsigned i;
        uint64_t n;
        struct session *s;

        random_state = seed + number * UINT64_C(0x10001);
        i = random_below(N_IDS);
        s = session_of(x->w.a, x->handles[i], NULL);
        if (number % 150 == 149) {
                assert_int_equal(ns_invalidate(x->w.ns, &n), 0);
                while (ns_sweep(x->w.ns, 1000))
                        continue;
                memset(x->handles, 0, sizeof(x->handles));
        } else if (s) {
                act_on(x, &x->handles[i], s, random_below(18));
        } else {
                char id[2] = {(char)('a' + i)};

                x->handles[i] = open_session(x->w.a, id);
        }
}

/* A log as the dead process left it; owned fd. */
static int copy_log(int fd)
{
        struct session_log_head *from, *to;
        struct stat st;
        int copy;

        assert_int_equal(fstat(fd, &st), 0);
        copy = memfd_create_sized("copy", (uint64_t)st.st_size);
        from = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        to = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, copy, 0);
        assert_true(copy >= 0 && from != MAP_FAILED && to != MAP_FAILED);
        memcpy(to, from, sizeof(*from));
        for (unsigned i = 0; i < 2; i++)
                memcpy((char *)to + SESSION_LOG_HEAD + i * from->half_bytes,
                        (char *)from + SESSION_LOG_HEAD + i * from->half_bytes, from->tails[i]);
        munmap(from, (size_t)st.st_size);
        munmap(to, (size_t)st.st_size);
        return copy;
}

/* With the pages as they are after n operations: what there is, is that what there was? */
static bool is_as_after(unsigned n, uint64_t seed, int log)
{
        char before[DUMP_BYTES], after[DUMP_BYTES];
        struct actor x = {0};
        bool is_same;

        act_begin(&x);
        session_log_close(x.w.ns);
        for (unsigned i = 0; i < n; i++)
                act(&x, seed, i);
        dump(x.w.ns, before);
        fd_close(x.w.keeper.fd);
        x.w.keeper.fd = copy_log(log);
        restart(&x.w);
        dump(x.w.ns, after);
        is_same = strcmp(before, after) == 0 && !x.w.ns->sessions->recovered.is_damaged;
        if (is_same) /* and it goes on */
                for (unsigned i = n; i < n + 50; i++) {
                        memset(x.handles, 0, i == n ? sizeof(x.handles) : 0);
                        act(&x, seed + 1, i);
                        fixture_check(&x.w.f);
                }
        if (is_same)
                expect_restart(&x.w);
        end(&x.w);
        return is_same;
}

/* What a child doesn't get by fork(): an index of its own, and the log. */
static void begin_child(struct bench *w)
{
        const struct segment *index = &w->ns->shared.segment;

        if (mmap(index->base, index->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
                    index->fd, 0) == MAP_FAILED ||
                session_log_map(w->ns, fcntl(w->keeper.fd, F_DUPFD_CLOEXEC, 0)) < 0)
                _exit(2);
        w->ns->sessions->log.piece_pages = 1;
}

/* False: it came to the end. */
static bool kill_at(const char *point, unsigned pass, uint64_t seed)
{
        atomic_uint *n_done = mmap(
                NULL, sizeof(*n_done), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        struct actor x = {0};
        bool was_killed;
        int status;
        pid_t pid;

        assert_ptr_not_equal(n_done, MAP_FAILED);
        act_begin(&x);
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                char text[16];

                snprintf(text, sizeof(text), "%u", pass);
                setenv("KVL_FAULT_PASS", text, 1);
                setenv("KVL_FAULT_POINT", point, 1);
                begin_child(&x.w);
                for (unsigned i = 0; i < N_OPS; i++) {
                        act(&x, seed, i);
                        atomic_store(n_done, i + 1);
                }
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        was_killed = WIFSIGNALED(status);
        if (was_killed)
                assert_int_equal(WTERMSIG(status), SIGKILL);
        else
                assert_int_equal(WEXITSTATUS(status), 0);
        if (!is_as_after(*n_done, seed, x.w.keeper.fd) &&
                !is_as_after(*n_done + 1, seed, x.w.keeper.fd))
                fail_msg("killed at pass %u of %s, after %u operations of seed %#llx: sessions "
                         "aren't as before or after",
                        pass, point, *n_done, (unsigned long long)seed);
        end(&x.w);
        munmap(n_done, sizeof(*n_done));
        return was_killed;
}

static void test_killed(void **state)
{
        static const char *const points[] = {"session-log-before-tail", "session-log-after-tail",
                "session-log-half-put", "session-log-punch", "session-log-before-flip",
                "session-log-after-flip", "session-log-copied", "page-before-turn",
                "page-after-turn"};

        for (unsigned i = 0; i < ARRAY_SIZE(points); i++)
                for (unsigned n = 0; n < 6; n++) {
                        unsigned pass = n == 0 ? 1 : 1 + random_below(1u << (2 * n));
                        uint64_t seed = random_u64(), then = random_state;
                        bool was_killed = kill_at(points[i], pass, seed);

                        random_state = then;
                        if (n == 0 && !was_killed)
                                fail_msg("never came to %s", points[i]);
                }
}

/* ---- damaged --------------------------------------------------------------------------------- */

static void test_damaged(void **state)
{
        for (unsigned n = 0; n < 300; n++) {
                struct actor x = {0};
                struct session_log_head *h;
                uint64_t seed = random_u64(), then, size, at;
                int log;

                then = random_state;
                act_begin(&x);
                for (unsigned i = 0; i < 100; i++)
                        act(&x, seed, i);
                random_state = then;
                log = copy_log(x.w.keeper.fd);
                fd_close(x.w.keeper.fd);
                x.w.keeper.fd = log;
                h = mmap(NULL, 1u << 20, PROT_READ | PROT_WRITE, MAP_SHARED, log, 0);
                assert_ptr_not_equal(h, MAP_FAILED);
                size = h->tails[h->half];
                at = n % 5 == 0 ? random_below(sizeof(*h))
                                : SESSION_LOG_HEAD + random_below((uint32_t)size);
                ((uint8_t *)h)[at] ^= (uint8_t)(1u << random_below(8));
                munmap(h, 1u << 20);
                restart(&x.w);
                if (at >= SESSION_LOG_HEAD)
                        assert_true(x.w.ns->sessions->recovered.is_damaged);
                end(&x.w);
        }
}

static void test_no_memory(void **state)
{
        struct actor x = {0};
        int log;

        act_begin(&x);
        for (unsigned i = 0; i < 100; i++)
                act(&x, 5, i);
        log = x.w.keeper.fd;
        alloc_fail_each(n)
        {
                x.w.keeper.fd = copy_log(log);
                forget(&x.w);
                keep_logs(&x.w, true);
                sessions_recover(x.w.ns);
                keep_logs(&x.w, false);
                assert_true(alloc_fail_happened() || x.w.ns->sessions);
                if (!x.w.ns->sessions)
                        assert_int_equal(x.w.keeper.fd, -1);
                assert_null(sessions_check(x.w.ns));
                x.w.keeper.fd = fd_close(x.w.keeper.fd);
        }
        free_unheld(&x.w);
        assert_true(sessions_count(x.w.ns) > 0);
        x.w.keeper.fd = log;
        end(&x.w);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_off),
                cmocka_unit_test(test_restart),
                cmocka_unit_test(test_ends),
                cmocka_unit_test(test_page_first),
                cmocka_unit_test(test_windows),
                cmocka_unit_test(test_longest_text),
                cmocka_unit_test(test_window_order),
                cmocka_unit_test(test_used),
                cmocka_unit_test(test_epoch),
                cmocka_unit_test(test_not_kept),
                cmocka_unit_test(test_copies),
                cmocka_unit_test(test_full),
                cmocka_unit_test(test_long_window),
                cmocka_unit_test(test_long_window_is_copied),
                cmocka_unit_test(test_long_window_ends),
                cmocka_unit_test(test_killed),
                cmocka_unit_test(test_damaged),
                cmocka_unit_test(test_no_memory),
        };

        random_start("test_session_log");
        return cmocka_run_group_tests(tests, NULL, NULL);
}
