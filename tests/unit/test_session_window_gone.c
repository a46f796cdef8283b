/* How windows of sessions that were truncated go: they give way to leases, leave sets that are
 * taken back, and end with what invalidates or expires them; and sets with windows are not
 * compacted. */
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/core.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/settle.h"
#include "daemon/core/reclaim/sweep.h"
#include "daemon/core/reclaim/recall-work.h"
#include "tests/unit/compact-fixture.h"
#include "tests/unit/session-window-fixture.h"

/* Its head is evicted as anything else. */
SESSION_WINDOW_SCENE(test_head_goes, 8, 4, 4)
{
        uint32_t s;

        s = truncated(w, "s", 0, 8, 2);
        evict(w->a, 1);
        fixture_check(&w->f);
        expect_pages(w->a, s, "0@0 6@6 7@7");
        expect_tokens(w->a, s, 8, 1);
        evict(w->a, 0);
        expect_pages(w->a, s, "6@6 7@7");
        expect_tokens(w->a, s, 8, 2);
}

SESSION_WINDOW_SCENE(test_lost_window, 8, 4, 4)
{
        uint32_t s;

        s = truncated(w, "s", 0, 8, 2);
        assert_true(sessions_give_way(w->ns, true));
        settle_all(&w->f.store);
        assert_false(sessions_give_way(w->ns, true));
        fixture_check(&w->f);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 0);
        expect_pages(w->a, s, "0@0 1@1");
        expect_tokens(w->a, s, 8, 2);
        assert_true(info_of(w->a, s).is_truncated);
        truncate_pages(w->a, s, 2, 1, 0);
        /* Computed again, at its place. */
        append(w->a, s, 1, 6, 2);
        expect_pages(w->a, s, "0@0 1@1 6@6 7@7");
        expect_tokens(w->a, s, 8, 0);
        assert_false(is_cached(w->a, 6));
}

/* A lease evicts windows of closed sessions before cached pages, and those of open ones after. */
SESSION_WINDOW_SCENE(test_gives_way, 4, 4, 4)
{
        uint32_t one, two, open, pages[32];
        uint64_t room;

        open = truncated(w, "open", 0, 6, 1);
        one = truncated(w, "one", 10, 6, 1);
        two = truncated(w, "two", 20, 6, 1);
        cache_chain(w->a, 50, 4);
        assert_int_equal(session_close(w->a, two, false, 2, NULL), 0);
        assert_int_equal(session_close(w->a, one, false, 3, NULL), 0);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 3);
        /* A window is a page here: room for one more than there is. */
        room = 4 * SET_PAGES - 10;
        assert_int_equal(lease_pages(w->a, (uint32_t)room, 1, pages, NULL), 0);
        assert_int_equal(free_pages(w->a, pages, (uint32_t)room, NULL), 0);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 3);
        assert_int_equal(lease_pages(w->a, (uint32_t)room + 1, 1, pages, NULL), 0);
        assert_int_equal(free_pages(w->a, pages, (uint32_t)room + 1, NULL), 0);
        fixture_check(&w->f);
        one = open_session(w->a, "one");
        two = open_session(w->a, "two");
        expect_tokens(w->a, one, 6, 0);
        expect_tokens(w->a, two, 6, 1); /* the one used least recently */
        assert_int_equal(count_hits(w->a, 50, 4), 4);
        /* From here on all are open: what is cached goes first. */
        assert_int_equal(lease_pages(w->a, (uint32_t)room + 5, 1, pages, NULL), 0);
        assert_int_equal(free_pages(w->a, pages, (uint32_t)room + 5, NULL), 0);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 2);
        assert_int_equal(lease_pages(w->a, 4 * SET_PAGES, 1, pages, NULL), 0);
        assert_int_equal(free_pages(w->a, pages, 4 * SET_PAGES, NULL), 0);
        fixture_check(&w->f);
        expect_tokens(w->a, open, 6, 2);
}

/* Sets with windows go to others as those with cached pages do. */
SESSION_WINDOW_SCENE(test_sets_are_given, 4, 2, 2)
{
        struct attach *y;
        uint32_t s, pages[2 * SET_PAGES];

        y = open_ns(w->m, "y");
        s = truncated(w, "s", 0, 14, 6);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 6);
        assert_int_equal(lease_pages(y, 2 * SET_PAGES, 1, pages, NULL), 0);
        fixture_check(&w->f);
        assert_int_equal(w->ns->device.n_sets, 0);
        expect_tokens(w->a, s, 14, 12);
        /* Except for pages with readers. */
        assert_int_equal(free_pages(y, pages, 2 * SET_PAGES, NULL), 0);
        assert_int_equal(session_close(w->a, s, true, 1, NULL), 0);
        s = truncated(w, "s", 0, 14, 6);
        {
                struct session_page last;
                uint32_t n;

                assert_int_equal(
                        session_pages(w->a, session_of(w->a, s, NULL), 11, 1, 1, &last, &n, NULL),
                        0);
                assert_int_equal(lease_pages(y, 2 * SET_PAGES, 1, pages, NULL), KVL_STATUS_QUOTA);
                fixture_check(&w->f);
                assert_int_equal(ns_page(w->ns, last.page)->n_pins, 1);
                assert_int_equal(release_pages(w->a, &last.page, 1, 1, NULL), 0);
        }
}

SESSION_WINDOW_SCENE(test_recall, 8, 4, 4)
{
        uint32_t s, t;

        s = truncated(w, "s", 0, 7, 3); /* all in the first set */
        t = open_session(w->a, "t");
        append(w->a, t, ROOT, 20, 3);
        assert_int_equal(w->ns->device.n_sets, 2);
        recall_set(w->ns->sets.at[0], RECALL_FORCED);
        fixture_check(&w->f);
        while (recall_work(&w->f.store, 1, TIMEOUT, 2) == RECALL_MORE)
                fixture_check(&w->f);
        fixture_check(&w->f);
        assert_null(w->ns->sets.at[0]);
        expect_tokens(w->a, s, 7, 6);
}

/* Pages of a recalled set can't be kept. */
SESSION_WINDOW_SCENE(test_truncate_in_recalled_set, 8, 4, 4)
{
        uint8_t key[KEY_BYTES];
        uint32_t s, t, page, sealed, n;
        struct publish p = {.pages = &page,
                .keys = key,
                .n = 1,
                .last_tokens = PAGE_TOKENS,
                .parent_key = NULL};

        s = open_session(w->a, "s");
        append(w->a, s, ROOT, 0, 4);
        t = truncated(w, "t", 10, 3, 1);
        assert_int_equal(w->ns->device.n_sets, 1);
        assert_int_equal(lease_pages(w->a, 1, 1, &page, NULL), 0);
        recall_set(w->ns->sets.at[page / SET_PAGES], RECALL_FORCED);
        truncate_pages(w->a, s, 1, 1, 2);
        fixture_check(&w->f);
        expect_pages(w->a, s, "0@0");
        expect_tokens(w->a, s, 4, 1);
        make_keys(key, 13, 1);
        p.session = t;
        assert_int_equal(publish_pages(w->a, &p, 1, &sealed, &n, NULL), 0);
        fixture_check(&w->f);
        assert_int_equal(info_of(w->a, t).n_pages, 1);
        assert_int_equal(release_pages(w->a, &sealed, 1, 1, NULL), 0);
        while (recall_work(&w->f.store, 1, TIMEOUT, PLENTY) == RECALL_MORE)
                ;
        assert_int_equal(w->ns->device.n_sets, 0);
}

SESSION_WINDOW_SCENE(test_pinned_window_goes, 8, 4, 4)
{
        struct session_page pages[4];
        struct attach *b = enter(w->f.a, "x");
        uint32_t s, t, n;

        assert_int_equal(attach_share(b, NULL), 0);
        s = truncated(w, "s", 0, 6, 2);
        t = open_session(b, "s");
        assert_int_equal(
                session_pages(w->a, session_of(w->a, s, NULL), 2, 1, 1, pages, &n, NULL), 0);
        assert_int_equal(session_pages(b, session_of(b, t, NULL), 3, 1, 1, pages + 1, &n, NULL), 0);
        assert_int_equal(session_close(w->a, s, true, 1, NULL), 0);
        fixture_check(&w->f);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 2);
        assert_int_equal(w->ns->catalog.watched.n, 1);
        assert_int_equal(release_pages(w->a, &pages[0].page, 1, 1, NULL), 0);
        atomic_fetch_sub(&b->share.counters[pages[1].page], 1);
        ns_look_again(w->ns, 10);
        settle_all(&w->f.store);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 0);
        /* One that is pinned while its window has it, and not when that goes. */
        s = truncated(w, "s", 0, 6, 2);
        assert_int_equal(
                session_pages(w->a, session_of(w->a, s, NULL), 2, 1, 1, pages, &n, NULL), 0);
        assert_int_equal(release_pages(w->a, &pages[0].page, 1, 1, NULL), 0);
        fixture_check(&w->f);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 2);
}

SESSION_WINDOW_SCENE(test_invalidation, 8, 4, 4)
{
        uint64_t n;
        uint32_t s;

        s = truncated(w, "s", 0, 6, 2);
        assert_int_equal(ns_invalidate(w->ns, CAUSE_NAMESPACE, &n), 0);
        fixture_check(&w->f);
        assert_null(session_of(w->a, s, NULL));
        while (ns_sweep(w->ns, 1))
                fixture_check(&w->f);
        settle_all(&w->f.store);
        assert_int_equal(
                w->ns->device.n_pages[PAGE_DETACHED] + w->ns->device.n_pages[PAGE_SEALED], 0);
        /* Pages in tree and window: the sweep meets one before the other. */
        s = open_session(w->a, "s");
        append(w->a, s, ROOT, 0, 6);
        append(w->a, 0, 5, 6, 1);
        truncate_pages(w->a, s, 2, 2, 2);
        assert_int_equal(ns_invalidate(w->ns, CAUSE_NAMESPACE, &n), 0);
        for (uint32_t page = 0; page < SET_PAGES; page++)
                if (ns_page(w->ns, page))
                        ns_sweep_page(w->ns, page);
        fixture_check(&w->f);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 2);
        while (ns_sweep(w->ns, 100))
                ;
        settle_all(&w->f.store);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 0);
}

/* Where windows are all there is, they are swept all the same. */
SESSION_WINDOW_SCENE(test_invalidation_of_windows_alone, 8, 4, 4)
{
        uint64_t n;
        uint32_t s;

        s = truncated(w, "s", 0, 6, 2);
        evict(w->a, 1);
        evict(w->a, 0);
        assert_int_equal(info_of(w->a, s).n_pages, 2);
        assert_int_equal(ns_invalidate(w->ns, CAUSE_NAMESPACE, &n), 0);
        assert_int_equal(n, 0);
        while (store_work(&w->f.store, 1))
                ;
        fixture_check(&w->f);
        assert_int_equal(w->ns->device.n_sets, 0);
}

SESSION_WINDOW_SCENE(test_expiry_and_purge, 8, 4, 4)
{
        struct session_purge purge;
        uint32_t s;

        s = truncated(w, "s", 0, 6, 2);
        assert_int_equal(session_close(w->a, s, false, 1, NULL), 0);
        w->f.a->attrs.session_expire_nsec = 5;
        while (sessions_expire(w->ns, 6, 1) == 6)
                ;
        fixture_check(&w->f);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 0);
        assert_int_equal(count_hits(w->a, 0, 2), 2);
        (void)truncated(w, "s", 0, 6, 2);
        session_purge_init(&purge, w->f.a, 0, 7);
        assert_false(session_purge_begin(&purge));
        assert_int_equal(purge.n_sessions, 1);
        assert_int_equal(
                w->ns->device.n_pages[PAGE_DETACHED] + w->ns->device.n_pages[PAGE_SEALED], 0);
}

static void compact(struct bench *w)
{
        for (uint64_t i = 1; i < 40; i++) {
                (void)compact_turn(&w->f.store, LATER + i * SECOND / 10);
                (void)recall_work(&w->f.store, LATER + i * SECOND / 10, TIMEOUT, PLENTY);
                fixture_check(&w->f);
        }
}

/* Two pages alone in a set, for which there is room in the other one. */
static void compact_two(bool in_window, uint32_t n_sets)
{
        uint32_t s, t, pages[3];
        struct bench w;

        begin(&w, 8, 8, 4);
        cache_chain(w.a, 50, 5);
        assert_int_equal(lease_pages(w.a, 3, 1, pages, NULL), 0);
        s = open_session(w.a, "s");
        t = open_session(w.a, "t");
        append(w.a, s, ROOT, 0, 2);
        append(w.a, t, ROOT, 0, 2);
        if (in_window)
                truncate_pages(w.a, s, 0, 1, 1);
        assert_int_equal(free_pages(w.a, pages, 3, NULL), 0);
        assert_int_equal(w.ns->device.n_sets, 2);
        compact(&w);
        assert_int_equal(w.ns->device.n_sets, n_sets);
        expect_pages(w.a, s, in_window ? "1@1" : "0@0 1@1");
        expect_pages(w.a, t, "0@0 1@1");
        end(&w);
}

/* Also where others have the page of a window in the tree. */
TEST(test_compaction_leaves_windows)
{
        compact_two(false, 1);
        compact_two(true, 2);
}

/* Sets with windows aren't compacted; an end in the tree moves with its page. */
SESSION_WINDOW_SCENE(test_compaction, 8, 8, 4)
{
        uint8_t key[KEY_BYTES];
        uint32_t s, t, before, pages[SET_PAGES];

        s = truncated(w, "s", 0, 4, 1);
        assert_int_equal(lease_pages(w->a, SET_PAGES - 2, 1, pages, NULL), 0);
        t = open_session(w->a, "t");
        append(w->a, t, ROOT, 10, 2);
        assert_int_equal(free_pages(w->a, pages, SET_PAGES - 2, NULL), 0);
        make_keys(key, 11, 1);
        before = ns_find_page(w->ns, key);
        compact(w);
        assert_int_not_equal(ns_find_page(w->ns, key), before);
        assert_int_equal(w->ns->device.n_sets, 1);
        expect_pages(w->a, s, "0@0 3@3");
        expect_pages(w->a, t, "10@0 11@1");
}
