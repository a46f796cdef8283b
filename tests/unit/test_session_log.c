/* Sessions that are there again after a restart: what is written down, and what is made of it.
 * Where the daemon was killed is in test_session_log_killed.c. */
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/reclaim/reclaim.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/session-log-fixture.h"

SESSION_LOG_SCENE(test_off, 4)
{
        append(w->a, open_session(w->a, "s"), ROOT, 0, 3);
        assert_null(w->ns->sessions->log.head);
        assert_int_equal(w->keeper.fd, -1);
        forget(w);
        recover(w);
        assert_null(w->ns->sessions);
}

SESSION_LOG_SCENE(test_restart, 8)
{
        uint32_t s, t;
        bool created;

        s = open_logged(w, "s");
        append(w->a, s, ROOT, 0, 4);
        t = open_logged(w, "another");
        append(w->a, t, 1, 10, 3);
        session_hint(session_of(w->a, t, NULL), EVICT_HINT_RETURNS, 5, 1);
        assert_int_equal(
                session_open(w->a, &(struct session_request){(const uint8_t *)"", 0, false, 7, 1},
                        &s, &created, NULL),
                -EINVAL);
        assert_int_equal(
                session_open(w->a, &(struct session_request){(const uint8_t *)"t", 1, false, 7, 1},
                        &s, &created, NULL),
                0);
        expect_restart(w);
        assert_int_equal(w->found.n_sessions, 3);
        s = open_session(w->a, "s");
        expect_pages(w->a, s, "0@0 1@1 2@2 3@3");
        expect_tokens(w->a, s, 4, 0);
        assert_int_equal(info_of(w->a, open_session(w->a, "another")).hint, EVICT_HINT_RETURNS);
        /* The log continues. */
        append(w->a, s, 3, 4, 2);
        assert_int_equal(session_close(w->a, open_session(w->a, "another"), true, 1, NULL), 0);
        expect_restart(w);
        assert_int_equal(sessions_count(w->ns), 2);
}

static struct session *find_session(const struct bench *w, const char *id)
{
        struct session *s = session_find(w->ns, (const uint8_t *)id, (uint32_t)strlen(id));

        assert_non_null(s);
        return s;
}

static void expect_told(struct bench *w, const char *id, bool is_told)
{
        enum session_told told = is_told ? SESSION_TOLD : SESSION_UNTOLD;

        for (int n = 0; n < 2; n++) { /* what a daemon read it writes down, too */
                expect_restart(w);
                assert_int_equal(find_session(w, id)->told, told);
        }
}

static void tell(struct session *s, bool is_done)
{
        session_begin_telling(s);
        session_end_telling(s, is_done);
}

/* Other hosts know what a session is once they were told, and until it changes. */
SESSION_LOG_SCENE(test_told, 8)
{
        uint32_t handle;

        append(w->a, open_logged(w, "s"), ROOT, 0, 4);
        expect_told(w, "s", false);
        session_begin_telling(find_session(w, "s"));
        session_log_put(find_session(w, "s"));
        expect_told(w, "s", false);
        tell(find_session(w, "s"), false);
        expect_told(w, "s", false);
        tell(find_session(w, "s"), true);
        expect_told(w, "s", true);
        session_hint(find_session(w, "s"), EVICT_HINT_RETURNS, 5, 1);
        evict(w->a, 3);
        expect_told(w, "s", true);
        assert_int_equal(find_session(w, "s")->hint, EVICT_HINT_RETURNS);
        handle = open_session(w->a, "s");
        session_begin_telling(find_session(w, "s"));
        append(w->a, handle, 2, 3, 1);
        session_end_telling(find_session(w, "s"), true);
        expect_told(w, "s", false);
        tell(find_session(w, "s"), true);
        truncate_pages(w->a, open_session(w->a, "s"), 1, 1, 2);
        expect_told(w, "s", false);
        tell(find_session(w, "s"), true);
        expect_told(w, "s", true);
}

/* Another host's version counts as known to others. It replaces one only once that is known, too.
 */
SESSION_LOG_SCENE(test_replaced, 8)
{
        uint8_t key[KEY_BYTES];
        uint32_t page;

        append(w->a, open_logged(w, "s"), ROOT, 0, 4);
        append(w->a, open_session(w->a, "t"), ROOT, 0, 2);
        make_keys(key, 3, 1);
        page = ns_find_page(w->ns, key);
        expect_told(w, "t", false);
        assert_false(session_may_be_replaced(find_session(w, "t")));
        session_begin_telling(find_session(w, "t"));
        assert_false(session_may_be_replaced(find_session(w, "t")));
        assert_int_equal(
                session_replace(w->ns, (const uint8_t *)"t", 1, page, 64, 1, NULL), -EBUSY);
        session_end_telling(find_session(w, "t"), true);
        expect_told(w, "t", true);
        assert_int_equal(session_replace(w->ns, (const uint8_t *)"t", 1, page, 64, 1, NULL), 0);
        assert_int_equal(session_replace(w->ns, (const uint8_t *)"u", 1, page, 64, 1, NULL), 0);
        expect_told(w, "t", true);
        expect_told(w, "u", true);
        expect_pages(w->a, open_session(w->a, "t"), "0@0 1@1 2@2 3@3");
}

/* A hint that there isn't is none, and nothing is believed that comes with it. */
SESSION_LOG_SCENE(test_no_hint, 4)
{
        struct session *s;

        append(w->a, open_logged(w, "s"), ROOT, 0, 1);
        s = find_session(w, "s");
        tell(s, true);
        s->hint = EVICT_HINT_RETURNS + 1;
        session_log_put(s);
        restart(w);
        assert_false(w->found.is_damaged);
        s = find_session(w, "s");
        assert_int_equal(s->hint, EVICT_HINT_UNKNOWN);
        assert_int_equal(s->told, SESSION_UNTOLD);
}

/* Where a page goes, the sessions that end there end at its parent. */
SESSION_LOG_SCENE(test_ends, 8)
{
        uint32_t s;

        s = open_logged(w, "s");
        append(w->a, s, ROOT, 0, 4);
        append(w->a, open_logged(w, "t"), ROOT, 0, 4);
        append(w->a, open_logged(w, "u"), ROOT, 0, 2);
        evict(w->a, 3);
        evict(w->a, 2);
        expect_restart(w);
        s = open_session(w->a, "s");
        expect_pages(w->a, s, "0@0 1@1");
        expect_tokens(w->a, s, 4, 2);
        evict(w->a, 1);
        evict(w->a, 0);
        expect_restart(w);
        expect_pages(w->a, open_session(w->a, "t"), "");
        expect_tokens(w->a, open_session(w->a, "t"), 4, 4);
}

/* The log's place of the text's end counts only if the page is gone. */
SESSION_LOG_SCENE(test_page_first, 8)
{
        uint8_t key[KEY_BYTES];
        uint32_t s;

        s = open_logged(w, "s");
        append(w->a, s, ROOT, 0, 3);
        make_keys(key, 2, 1);
        session_log_moved(w->ns, ns_find_page(w->ns, key), ns_find_page(w->ns, key) - 1);
        restart(w);
        expect_pages(w->a, open_session(w->a, "s"), "0@0 1@1 2@2");
}

SESSION_LOG_SCENE(test_windows, 8)
{
        uint32_t s;

        s = open_logged(w, "s");
        append(w->a, s, ROOT, 0, 10);
        truncate_pages(w->a, s, 2, 4, 4);
        append(w->a, s, 9, 10, 3);
        expect_restart(w);
        s = open_session(w->a, "s");
        expect_pages(w->a, s, "0@0 1@1 6@6 7@7 8@8 9@9 10@10 11@11 12@12");
        append(w->a, s, 9, 20, 1); /* back from 12 to 9 */
        truncate_pages(w->a, s, 2, 3, 2);
        expect_restart(w);
        s = open_session(w->a, "s");
        expect_pages(w->a, s, "0@0 1@1 8@8 9@9 20@10");
        expect_tokens(w->a, s, 11, 0);
        /* Others end there, too. */
        append(w->a, open_session(w->a, "t"), ROOT, 0, 2);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 3);
        assert_int_equal(session_close(w->a, s, true, 1, NULL), 0);
        expect_restart(w);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 0);
}

/* Windows with gaps: what is kept of one is written behind it. */
SESSION_LOG_SCENE(test_keeps, 8)
{
        const struct token_range first[] = {
                {0, 2 * PAGE_TOKENS}, {4 * PAGE_TOKENS, 8 * PAGE_TOKENS}, {160, TOKEN_RANGE_END}};
        const struct token_range then[] = {
                {0, PAGE_TOKENS}, {5 * PAGE_TOKENS, 6 * PAGE_TOKENS}, {176, 177}};
        uint64_t left;
        uint32_t s;

        s = open_logged(w, "s");
        append(w->a, s, ROOT, 0, 12);
        assert_int_equal(session_keep(session_of(w->a, s, NULL), first, 3, &left, NULL), 0);
        assert_int_equal(left, 4);
        expect_restart(w);
        s = open_session(w->a, "s");
        expect_pages(w->a, s, "0@0 1@1 4@4 5@5 6@6 7@7 10@10 11@11");
        append(w->a, s, 11, 12, 1);
        w->ns->sessions->log.piece_pages = 1;
        assert_int_equal(session_keep(session_of(w->a, s, NULL), then, 3, &left, NULL), 0);
        assert_int_equal(left, 6);
        expect_restart(w);
        s = open_session(w->a, "s");
        expect_pages(w->a, s, "0@0 5@5 11@11");
        expect_tokens(w->a, s, 12, 0);
        append(w->a, s, 5, 20, 1);
        expect_restart(w);
        expect_pages(w->a, open_session(w->a, "s"), "0@0 5@5 20@6");
}

/* A text that is as long as any can be; and one of a daemon that let positions begin anew at 2^32:
 * what comes after that isn't there, and no position is less than nothing. */
SESSION_LOG_SCENE(test_longest_text, 8)
{
        const uint64_t most = (UINT64_C(1) << 32) - 8 * PAGE_TOKENS; /* page 7 ends at 2^32 */
        struct session_info info;
        uint32_t s;

        s = open_logged(w, "s");
        append(w->a, s, ROOT, 0, 7);
        truncate_pages(w->a, s, 1, 2, 4);
        push_window(w->a, s, most);
        session_log_put(session_of(w->a, s, NULL));
        expect_restart(w);
        s = open_session(w->a, "s");
        expect_pages(w->a, s, "0@0 5@268435453 6@268435454");
        end(w);

        begin(w, 8);
        s = open_logged(w, "s");
        append(w->a, s, ROOT, 0, 8);
        truncate_pages(w->a, s, 1, 3, 4);
        push_window(w->a, s, most); /* 5, 6, and 7, whose end is 0 */
        session_log_put(session_of(w->a, s, NULL));
        restart(w);
        fixture_check(&w->f);
        s = open_session(w->a, "s");
        expect_pages(w->a, s, "0@0 5@268435453 6@268435454");
        assert_int_equal(info_of(w->a, s).n_tokens, TEXT_TOKENS_MAX);
        end(w);

        begin(w, 8);
        s = open_logged(w, "s");
        append(w->a, s, ROOT, 0, 8);
        truncate_pages(w->a, s, 1, 1, 6);
        push_window(w->a, s, most + 4); /* its page began before, and ends at 4 */
        session_log_put(session_of(w->a, s, NULL));
        restart(w);
        fixture_check(&w->f);
        s = open_session(w->a, "s");
        info = info_of(w->a, s);
        assert_int_equal(info.n_pages, 1);
        assert_int_equal(info.n_tokens, TEXT_TOKENS_MAX);
        assert_true(info.lost_tokens <= info.n_tokens);
        truncate_pages(w->a, s, 1, 0, 0);
        expect_tokens(w->a, s, 1, 0);
        append(w->a, s, 0, 20, 1);
        expect_pages(w->a, s, "0@0 20@1");
}

/* Windows give way in the order in which they were used. */
SESSION_LOG_SCENE(test_window_order, 8)
{
        char id[2] = "a";

        for (unsigned i = 0; i < 4; i++, id[0]++) {
                uint32_t s = open_logged(w, id);

                append(w->a, s, ROOT, 10 * i, 4);
                truncate_pages(w->a, s, 1, 2, 1);
        }
        for (unsigned i = 0; i < 4; i++) {
                id[0] = (char)('a' + (3 * i + 1) % 4);
                session_use(session_find(w->ns, (uint8_t *)id, 1), (i + 2) * NSEC_PER_SEC);
                session_log_used(session_find(w->ns, (uint8_t *)id, 1));
        }
        store_set_now(&w->f.store, 9 * NSEC_PER_SEC);
        expect_restart(w);
        for (unsigned i = 0; i < 4; i++) {
                id[0] = (char)('a' + (3 * i + 1) % 4);
                assert_true(sessions_give_way(w->ns, false));
                idle_sets_drain(&w->f.store);
                assert_int_equal(session_find(w->ns, (uint8_t *)id, 1)->window.n, 0);
        }
        expect_restart(w);
}

/* Uses are logged at most once a second; a crash loses no more than that. */
SESSION_LOG_SCENE(test_used, 4)
{
        struct session_log *log;
        uint64_t tail;
        struct session *s;

        s = session_of(w->a, open_logged(w, "s"), NULL);
        log = &w->ns->sessions->log;
        tail = log->head->tails[0];
        for (unsigned i = 1; i < 10; i++) {
                session_use(s, 1 + i * NSEC_PER_SEC / 10);
                session_log_used(s);
        }
        assert_int_equal(log->head->tails[0], tail);
        session_use(s, 1 + NSEC_PER_SEC);
        session_log_used(s);
        assert_true(log->head->tails[0] > tail);
        store_set_now(&w->f.store, 2 * NSEC_PER_SEC);
        restart(w);
        s = session_find(w->ns, (const uint8_t *)"s", 1);
        assert_int_equal(s->used_nsec, 1 + NSEC_PER_SEC);
        /* Without an opener the session expires. */
        s->expire_nsec = NSEC_PER_SEC;
        (void)sessions_expire(w->ns, 3 * NSEC_PER_SEC, UINT32_MAX);
        assert_int_equal(sessions_count(w->ns), 0);
        expect_restart(w);
}

/* An invalidation ends them by the epoch alone. */
SESSION_LOG_SCENE(test_epoch, 4)
{
        uint64_t n;

        append(w->a, open_logged(w, "s"), ROOT, 0, 2);
        assert_int_equal(ns_invalidate(w->ns, CAUSE_NAMESPACE, &n), 0);
        restart(w);
        assert_int_equal(sessions_count(w->ns), 0);
        while (ns_sweep(w->ns, 1000))
                continue;
        idle_sets_drain(&w->f.store);
        open_logged(w, "t");
        expect_restart(w);
        assert_int_equal(sessions_count(w->ns), 1);
}

SESSION_LOG_SCENE(test_not_kept, 4)
{
        struct detail d;
        uint32_t handle;
        bool created;

        keep_logs(w, true);
        w->keeper.fails = -EMFILE;
        assert_int_equal(
                session_open(w->a, &(struct session_request){(const uint8_t *)"s", 1, false, 0, 1},
                        &handle, &created, &d),
                -EMFILE);
        assert_string_equal(d.text, "no room to keep it");
        assert_null(w->ns->sessions);
        w->keeper.fails = 0;
        alloc_fail_each(n)
        {
                int r = session_open(w->a,
                        &(struct session_request){(const uint8_t *)"s", 1, false, 0, 1}, &handle,
                        &created, &d);

                if (alloc_fail_happened())
                        assert_int_equal(r, -ENOMEM);
                else
                        assert_int_equal(r, 0);
                w->keeper.fd = r == 0 ? w->keeper.fd : fd_close(w->keeper.fd);
        }
        keep_logs(w, false);
}

/* ---- the two halves -------------------------------------------------------------------------- */

/* The log has at most twice the live bytes, plus the records that come during a copy. */
SESSION_LOG_SCENE(test_copies, 8)
{
        uint64_t live, worst = 0, before, most_step = 0;
        struct session_log *log;
        uint64_t expire_nsec[2000];
        struct session *s;
        char id[8];

        append(w->a, open_logged(w, "s"), ROOT, 0, 4);
        log = &w->ns->sessions->log;
        for (unsigned i = 0; i < 2000; i++) {
                snprintf(id, sizeof(id), "%u", i);
                append(w->a, open_session(w->a, id), ROOT, i % 4, 1);
                assert_int_equal(session_close(w->a, w->a->last_session, i % 2, 1, NULL), 0);
        }
        live = w->ns->sessions->n_live * (sizeof(struct session_put) + SESSION_ID_MAX);
        for (unsigned i = 0; i < 20000; i++) {
                uint64_t copied = log->head->tails[!log->head->half];

                s = w->ns->sessions->slots[i % 1001].session;
                if (s) {
                        before = log->n_copies;
                        s->expire_nsec = i + 1; /* what is copied changes again */
                        session_log_put(s);
                        if (log->is_copying && log->n_copies == before &&
                                log->head->tails[!log->head->half] > copied)
                                most_step =
                                        MAX(most_step, log->head->tails[!log->head->half] - copied);
                }
                worst = MAX(worst, log_memory(w));
        }
        assert_true(log->n_copies >= 3);
        assert_in_range(most_step, 1, 4096 + 3 * (sizeof(struct session_put) + SESSION_ID_MAX));
        /* One of them is twice what is live when the other is begun, and has what is written until
         * that is complete; the other is what is live, and the same again. */
        assert_in_range(worst, live, 4 * live + 65536);
        memset(expire_nsec, 0, sizeof(expire_nsec));
        for (unsigned i = 0; i < 2000; i++) {
                snprintf(id, sizeof(id), "%u", i);
                s = session_find(w->ns, (const uint8_t *)id, (uint32_t)strlen(id));
                expire_nsec[i] = s ? s->expire_nsec : 0;
        }
        while (!log->is_copying)
                session_log_put(w->ns->sessions->slots[1000].session);
        session_log_put(w->ns->sessions->slots[1000].session);
        s = w->ns->sessions->slots[20].session; /* copied already */
        s->expire_nsec = 77;
        session_log_put(s);
        snprintf(id, sizeof(id), "%.*s", (int)s->id_len, (const char *)s->id);
        expire_nsec[atoi(id)] = 77;
        while (log->is_copying)
                session_log_put(w->ns->sessions->slots[1000].session);
        restart(w);
        assert_int_equal(sessions_count(w->ns), 1001);
        for (unsigned i = 0; i < 2000; i++) {
                snprintf(id, sizeof(id), "%u", i);
                s = session_find(w->ns, (const uint8_t *)id, (uint32_t)strlen(id));
                assert_int_equal(expire_nsec[i], s ? s->expire_nsec : 0);
        }
        assert_false(w->found.is_damaged);
        assert_in_range(log_memory(w), live / 2, live + 65536);
}

/* Where a half lacks room, all is copied at once: into the one that is begun, or anew. */
SESSION_LOG_SCENE(test_full, 8)
{
        struct session_log *log;
        uint32_t s;

        s = open_logged(w, "s");
        append(w->a, s, ROOT, 0, 12);
        truncate_pages(w->a, s, 2, 8, 2);
        log = &w->ns->sessions->log;
        log->limit_bytes = 1024; /* three times what is live, and a bit */
        for (unsigned i = 0; i < 100; i++) {
                session_log_put(session_of(w->a, s, NULL));
                assert_true(log->head->tails[log->head->half] <= 1024);
        }
        assert_true(log->n_copies > 5);
        expect_restart(w);
        /* While it is copied. */
        log = &w->ns->sessions->log;
        open_session(w->a, "t");
        s = open_session(w->a, "s");
        log->limit_bytes = 1024;
        for (unsigned i = 0; i < 100; i++) {
                if (!log->is_copying) {
                        log->is_copying = true;
                        log->copy_slot = 1;
                        log->head->tails[!log->head->half] = 0;
                        session_log_put(session_of(w->a, s, NULL));
                }
                session_log_put(session_of(w->a, s, NULL));
        }
        assert_true(log->n_copies > 5);
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
                truncation_begin_ends(&first, s, PAGE_TOKENS, (LONG - 50) * PAGE_TOKENS, NULL), 0);
        truncation_is_done = false;
        truncation_queue(&first, t, on_done);
        return s;
}

/* Whenever the daemon ends, the next one has the session as before, and later as truncated. The log
 * may be copied meanwhile, and other records may come between. */
TEST_BARE(test_long_window)
{
        for (unsigned n_slices = 1;; n_slices += 37) {
                struct session_truncation t;
                struct bench w;
                struct session *s = begin_truncation(&w, &t);
                struct session_log *log = &w.ns->sessions->log;
                bool is_done;

                for (unsigned n = 0; n < n_slices && !truncation_is_done; n++) {
                        uint32_t before = s->logged.n_pages[log->head->half];

                        if (n % 8 == 7)
                                session_hint(s, n % 4, 1, 1);
                        if (n % 64 == 63) /* as if there were much in it that isn't live */
                                session_log_rewrite(w.ns);
                        before = s->logged.n_pages[log->head->half];
                        (void)tasks_work(&w.f.store);
                        assert_true(s->logged.n_pages[log->head->half] - before <= 16);
                        if (n % 32 == 0)
                                fixture_check(&w.f);
                }
                is_done = truncation_is_done;
                assert_int_equal(s->is_truncated, is_done);
                assert_int_equal(s->window.n, is_done ? LONG - 50 : 0);
                expect_restart(&w);
                assert_true(truncation_is_done); /* the caller got its answer */
                end(&w);
                if (is_done)
                        break;
        }
}

#define N_KEPT ((LONG - 50) / 2)

/* Half of what a long window has, and some of the head: the daemon may end whenever it is. */
static struct session *begin_keeping(struct bench *w, struct session_truncation *t)
{
        static struct token_range ranges[N_KEPT + 1];
        struct session *s = begin_truncation(w, t);
        struct session_truncation next;

        while (tasks_work(&w->f.store))
                continue;
        ranges[0] = (struct token_range){0, PAGE_TOKENS};
        for (unsigned i = 1; i <= N_KEPT; i++)
                ranges[i] = (struct token_range){
                        (49 + 2 * i) * PAGE_TOKENS, (50 + 2 * i) * PAGE_TOKENS};
        assert_int_equal(truncation_begin(&next, s, ranges, N_KEPT + 1, NULL), 0);
        truncation_is_done = false;
        truncation_queue(&next, t, on_done);
        return s;
}

TEST_BARE(test_long_window_with_gaps)
{
        for (unsigned n_slices = 1;; n_slices += 11) {
                struct session_truncation t;
                struct bench w;
                struct session *s = begin_keeping(&w, &t);
                struct session_log *log = &w.ns->sessions->log;
                bool is_done, is_new, is_disturbed = n_slices % 2;

                for (unsigned n = 0; n < n_slices && !truncation_is_done; n++) {
                        if (n % 8 == 7)
                                session_hint(s, n % 4, 1, 1);
                        if (is_disturbed &&
                                n % 16 == 15) /* as if there were much in it that isn't live */
                                session_log_rewrite(w.ns);
                        if (is_disturbed && n % 16 == 3 && !log->is_copying) {
                                log->is_copying = true;
                                log->copy_slot = 0;
                                log->is_in_slot = false;
                                log->head->tails[!log->head->half] = 0;
                        }
                        (void)tasks_work(&w.f.store);
                        fixture_check(&w.f);
                }
                is_done = truncation_is_done;
                is_new = !s->truncation;
                assert_true(is_new || !is_done);
                assert_int_equal(s->window.n, is_new ? N_KEPT : LONG - 50);
                expect_restart(&w);
                assert_int_equal(w.ns->device.n_pages[PAGE_DETACHED], is_new ? N_KEPT : LONG - 50);
                end(&w);
                if (is_done)
                        break;
        }
}

/* A session whose window was lost gets one that is made of its head. What was written of that is
 * of no session until the record that says so. */
TEST_BARE(test_window_of_head)
{
        struct token_range ranges[25];
        bool is_done = false;

        for (unsigned i = 0; i < ARRAY_SIZE(ranges); i++)
                ranges[i] = (struct token_range){2 * i * PAGE_TOKENS, (2 * i + 1) * PAGE_TOKENS};
        for (unsigned n_slices = 1; !is_done; n_slices++) {
                struct session_truncation t, queued;
                struct session *s;
                struct bench w;
                uint32_t handle;

                begin(&w, 16);
                handle = open_logged(&w, "s");
                append(w.a, handle, ROOT, 0, 60);
                truncate_pages(w.a, handle, 50, 5, 5);
                s = session_of(w.a, handle, NULL);
                assert_true(sessions_give_way(w.ns, true));
                w.ns->sessions->log.piece_pages = PIECE;
                w.f.store.drop_slice_pages = 16;
                assert_int_equal(truncation_begin(&t, s, ranges, ARRAY_SIZE(ranges), NULL), 0);
                truncation_is_done = false;
                truncation_queue(&t, &queued, on_done);
                for (unsigned n = 0; n < n_slices && !truncation_is_done; n++)
                        (void)tasks_work(&w.f.store);
                is_done = truncation_is_done;
                assert_int_equal(s->window.n, s->truncation ? 0 : ARRAY_SIZE(ranges) - 1);
                expect_restart(&w);
                end(&w);
        }
}

/* A copy takes it in pieces, while pages are published to it and leave it. */
TEST_BARE(test_long_window_is_copied)
{
        struct session_truncation t;
        struct session_log *log;
        unsigned n_pieces = 0, key = LONG;
        struct bench w;
        struct session *s = begin_truncation(&w, &t);

        while (!truncation_is_done)
                (void)tasks_work(&w.f.store);
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
                                truncate_pages(w.a, w.a->last_session, 1, s->window.n - 3, 3);
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

/* The session ends before all of it is copied; another one has its place, or none. */
TEST_BARE(test_long_window_ends)
{
        for (int is_dropped = 0; is_dropped < 2; is_dropped++) {
                struct session_truncation t;
                struct bench w;
                struct session *s = begin_truncation(&w, &t);
                struct session_log *log = &w.ns->sessions->log;
                uint32_t handle = w.a->last_session, other = open_session(w.a, "t");
                uint64_t n;

                while (!truncation_is_done)
                        (void)tasks_work(&w.f.store);
                while (!log->is_in_slot)
                        session_log_put(s);
                if (is_dropped)
                        assert_int_equal(session_close(w.a, handle, true, 1, NULL), 0);
                else
                        assert_int_equal(ns_invalidate(w.ns, CAUSE_NAMESPACE, &n), 0);
                while (ns_sweep(w.ns, 1000))
                        ;
                idle_sets_drain(&w.f.store);
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
