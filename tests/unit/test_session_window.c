/* Sessions that were truncated: a head in the tree, and a window that they hold by themselves. What
 * is cut, and what can be published to them; how windows go is in test_session_window_gone.c. */
#include "daemon/core/clients/attach.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/state/shared.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/session-window-fixture.h"

SESSION_WINDOW_SCENE(test_truncate, 8, 4, 4)
{
        uint32_t s;

        s = open_session(w->a, "s");
        append(w->a, s, ROOT, 0, 8);
        truncate_pages(w->a, s, 1, 2, 5);
        fixture_check(&w->f);
        expect_pages(w->a, s, "0@0 6@6 7@7");
        expect_tokens(w->a, s, 8, 0);
        assert_true(info_of(w->a, s).is_truncated);
        /* By key there is the head alone; what is between has gone, what is after it is the
         * session's. */
        assert_int_equal(count_hits(w->a, 0, 8), 1);
        assert_int_equal(w->ns->device.n_pages[PAGE_SEALED], 1);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 2);
        assert_int_equal(w->ns->catalog.watched.n, 0);
        /* Other clients that open it find it. */
        attach_close(w->a);
        w->a = open_ns(w->m, "x");
        assert_int_equal(attach_share(w->a, NULL), 0);
        s = open_session(w->a, "s");
        expect_pages(w->a, s, "0@0 6@6 7@7");
        assert_int_equal(session_close(w->a, s, true, 1, NULL), 0);
        assert_int_equal(
                w->ns->device.n_pages[PAGE_SEALED] + w->ns->device.n_pages[PAGE_DETACHED], 0);
}

SESSION_WINDOW_SCENE(test_ranges, 8, 4, 4)
{
        struct detail d;
        uint64_t n;
        uint32_t s;

        s = open_session(w->a, "s");
        truncate_pages(w->a, s, 1, 1, 0); /* it has none */
        append(w->a, s, ROOT, 0, 6);
        assert_int_equal(session_truncate(session_of(w->a, s, NULL), 0, 0, &n, &d), -EINVAL);
        assert_non_null(strstr(d.text, "drop the session"));
        /* Nothing lies between. */
        truncate_pages(w->a, s, 3, 3, 0);
        truncate_pages(w->a, s, 100, 0, 0);
        truncate_pages(w->a, s, 0, 100, 0);
        assert_false(info_of(w->a, s).is_truncated);
        assert_int_equal(count_hits(w->a, 0, 6), 6);
        /* Whole pages: those with the first 17 and with the last token. */
        assert_int_equal(
                session_truncate(session_of(w->a, s, NULL), PAGE_TOKENS + 1, 1, &n, NULL), 0);
        assert_int_equal(n, 3);
        expect_pages(w->a, s, "0@0 1@1 5@5");
        assert_int_equal(
                session_truncate(session_of(w->a, s, NULL), 5 * PAGE_TOKENS + 1, 1, &n, &d),
                -EINVAL);
        assert_non_null(strstr(d.text, "the gap"));
        /* A larger gap, at its beginning and at its end. */
        append(w->a, s, 5, 6, 3);
        expect_pages(w->a, s, "0@0 1@1 5@5 6@6 7@7 8@8");
        truncate_pages(w->a, s, 1, 2, 3);
        expect_pages(w->a, s, "0@0 7@7 8@8");
        expect_tokens(w->a, s, 9, 0);
        fixture_check(&w->f);
        truncate_pages(w->a, s, 0, 1, 2);
        expect_pages(w->a, s, "8@8");
        assert_false(is_cached(w->a, 0));
        /* Without an end it is what it was before the gap. */
        truncate_pages(w->a, s, 1, 0, 1);
        expect_pages(w->a, s, "");
        expect_tokens(w->a, s, 0, 0);
        assert_false(info_of(w->a, s).is_truncated);
        append(w->a, s, ROOT, 20, 4);
        truncate_pages(w->a, s, 3, 0, 1);
        expect_pages(w->a, s, "20@0 21@1 22@2");
        expect_tokens(w->a, s, 3, 0);
        assert_false(info_of(w->a, s).is_truncated || is_cached(w->a, 23));
}

SESSION_WINDOW_SCENE(test_published_to, 8, 8, 4)
{
        uint32_t s, t, pages[2];

        s = truncated(w, "s", 0, 6, 2);
        append(w->a, s, 5, 6, 2);
        expect_pages(w->a, s, "0@0 1@1 4@4 5@5 6@6 7@7");
        expect_tokens(w->a, s, 8, 0);
        assert_int_equal(w->f.store.counters.unindexed, 0);
        /* Not where its key says that it belongs: another text with the same keys is another. */
        assert_false(is_cached(w->a, 6));
        t = open_session(w->a, "t");
        append(w->a, t, ROOT, 0, 8);
        assert_int_equal(w->ns->counters.duplicates, 2);
        expect_pages(w->a, t, "0@0 1@1 2@2 3@3 4@4 5@5 6@6 7@7");
        append(w->a, s, 7, 2, 1); /* nor is what is cached of any use to it */
        assert_int_equal(w->ns->counters.duplicates, 2);
        expect_pages(w->a, s, "0@0 1@1 4@4 5@5 6@6 7@7 2@8");
        fixture_check(&w->f);
        /* Its pages continue nothing else. */
        append(w->a, s, 2, 40, 1);
        assert_int_equal(
                publish_tail(w->a, 0, 40, 41, 1, PAGE_TOKENS, pages), KVL_STATUS_NO_PARENT);
        assert_int_equal(
                publish_tail(w->a, t, 40, 41, 1, PAGE_TOKENS, pages), KVL_STATUS_NO_PARENT);
        /* An earlier one of its own is gone back to, a partial last page is left behind. */
        append(w->a, s, 6, 50, 1);
        expect_pages(w->a, s, "0@0 1@1 4@4 5@5 6@6 50@7");
        assert_int_equal(publish_tail(w->a, s, 50, 51, 1, 3, pages), 0);
        assert_int_equal(release_pages(w->a, pages, 1, 1, NULL), 0);
        assert_int_equal(info_of(w->a, s).n_tokens, 8 * PAGE_TOKENS + 3);
        append(w->a, s, 50, 52, 1);
        expect_pages(w->a, s, "0@0 1@1 4@4 5@5 6@6 50@7 52@8");
        /* From its head on, it is computed anew. */
        append(w->a, s, 1, 60, 1);
        expect_pages(w->a, s, "0@0 1@1 60@4");
        expect_tokens(w->a, s, 5, 0);
}

static int publish_one_shared(
        struct attach *a, uint32_t session, unsigned key, uint32_t parent, uint32_t *ret_page)
{
        uint8_t bytes[KEY_BYTES];
        struct publish_one o = {
                .key = bytes, .parent = parent, .tokens = PAGE_TOKENS, .session = session};
        int r;

        make_keys(bytes, key, 1);
        assert_int_equal(lease_pages(a, 1, 1, &o.page, NULL), 0);
        pins_add(&a->share, o.page);
        r = publish_shared(a, &o, 1, ret_page, NULL);
        atomic_fetch_sub(&a->share.counters[o.page], 1);
        if (r != 0)
                assert_int_equal(free_pages(a, &o.page, 1, NULL), 0);
        return r;
}

TEST(test_published_through_shared_memory)
{
        uint32_t s, page, next;
        uint8_t key[KEY_BYTES];
        struct bench w;

        begin(&w, 8, 4, 4);
        assert_int_equal(attach_share(w.a, NULL), 0);
        s = truncated(&w, "s", 0, 6, 1);
        make_keys(key, 5, 1);
        page = session_find_parent(w.a, s, key);
        assert_int_equal(session_find_parent(w.a, 0, key), PAGE_NONE);
        assert_int_equal(publish_one_shared(w.a, s, 6, page, &next), 0);
        assert_int_equal(publish_one_shared(w.a, s, 7, next, &page), 0);
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_DETACHED);
        assert_int_equal(w.ns->catalog.watched.n, 0);
        expect_pages(w.a, s, "0@0 5@5 6@6 7@7");
        fixture_check(&w.f);
        assert_int_equal(publish_one_shared(w.a, 0, 8, page, &next), KVL_STATUS_NO_PARENT);
        assert_int_equal(publish_one_shared(w.a, 99, 8, page, &next), -ENOENT);
        end(&w);
}

/* A page that would end beyond the last token that a text can have isn't published; what is there
 * stays as it is, and can be continued further back. */
SESSION_WINDOW_SCENE(test_longest_text, 8, 4, 4)
{
        const uint64_t most = (UINT64_C(1) << 32) - 6 * PAGE_TOKENS; /* then page 5 ends at 2^32 */
        uint32_t s, page, next, pages[2];
        uint8_t key[KEY_BYTES];

        s = truncated(w, "s", 0, 6, 1);
        push_window(w->a, s, most - 2 * PAGE_TOKENS);
        append(w->a, s, 5, 6, 1);
        assert_int_equal(publish_tail(w->a, s, 6, 7, 1, PAGE_TOKENS, &page), -EINVAL);
        assert_int_equal(publish_tail(w->a, s, 6, 7, 1, PAGE_TOKENS - 1, &page), 0);
        assert_int_equal(release_pages(w->a, &page, 1, 1, NULL), 0);
        assert_int_equal(info_of(w->a, s).n_tokens, TEXT_TOKENS_MAX);
        fixture_check(&w->f);
        assert_int_equal(publish_tail(w->a, s, 7, 8, 1, 1, &page), -EINVAL);
        /* In the middle of what one message publishes. */
        assert_int_equal(publish_tail(w->a, s, 5, 9, 2, PAGE_TOKENS, pages), -EINVAL);
        assert_int_equal(info_of(w->a, s).n_tokens, TEXT_TOKENS_MAX + 1 - PAGE_TOKENS);
        assert_int_equal(attach_share(w->a, NULL), 0);
        make_keys(key, 9, 1);
        page = session_find_parent(w->a, s, key);
        assert_int_equal(publish_one_shared(w->a, s, 10, page, &next), -EINVAL);
        truncate_pages(w->a, s, 1, 1, 1);
        truncate_pages(w->a, s, 1, 0, 1);
        expect_pages(w->a, s, "0@0");
}

/* A text without a gap. */
SESSION_WINDOW_SCENE(test_longest_text_of_a_tree, 8, 4, 4)
{
        uint8_t key[KEY_BYTES];
        uint32_t page;

        append(w->a, 0, ROOT, 0, 1);
        make_keys(key, 0, 1);
        page = ns_find_page(w->ns, key);
        ns_page(w->ns, page)->end_token = TEXT_TOKENS_MAX - PAGE_TOKENS + 1;
        records_reparent(w->ns, page, ns_note(w->ns, page)->place.parent);
        assert_int_equal(publish_tail(w->a, 0, 0, 1, 1, PAGE_TOKENS, &page), -EINVAL);
        assert_int_equal(publish_tail(w->a, 0, 0, 1, 1, PAGE_TOKENS - 1, &page), 0);
        assert_int_equal(ns_page(w->ns, page)->end_token, TEXT_TOKENS_MAX);
        assert_int_equal(release_pages(w->a, &page, 1, 1, NULL), 0);
}

/* The search goes back SESSION_REWIND_PAGES at most. */
SESSION_WINDOW_SCENE(test_rewind_is_bounded, 64, 64, 4)
{
        uint32_t s, pages[1];

        s = truncated(w, "s", 0, 6, 1);
        for (unsigned i = 0; i < SESSION_REWIND_PAGES; i++)
                append(w->a, s, 5 + i, 6 + i, 1);
        assert_int_equal(
                publish_tail(w->a, s, 5, 999, 1, PAGE_TOKENS, pages), KVL_STATUS_NO_PARENT);
        append(w->a, s, 6, 999, 1);
        expect_pages(w->a, s, "0@0 5@5 6@6 999@7");
}

SESSION_WINDOW_SCENE(test_shared_pages_stay, 8, 8, 4)
{
        uint32_t s, t, pinned[2];

        s = open_session(w->a, "s");
        t = open_session(w->a, "t");
        append(w->a, s, ROOT, 0, 8);
        append(w->a, t, ROOT, 0, 7);
        append(w->a, 0, 4, 30, 1); /* another text from 4 on */
        truncate_pages(w->a, s, 1, 4, 3);
        fixture_check(&w->f);
        expect_pages(w->a, s, "0@0 4@4 5@5 6@6 7@7");
        expect_pages(w->a, t, "0@0 1@1 2@2 3@3 4@4 5@5 6@6");
        assert_false(is_cached(w->a, 7));
        /* When it leaves the cache, it is still in the window. */
        evict(w->a, 6);
        evict(w->a, 5);
        fixture_check(&w->f);
        expect_tokens(w->a, t, 7, 2);
        expect_pages(w->a, s, "0@0 4@4 5@5 6@6 7@7");
        /* A page in two windows. */
        evict(w->a, 30);
        append(w->a, t, 4, 35, 1);
        truncate_pages(w->a, t, 1, 2, 3);
        expect_pages(w->a, t, "0@0 4@4 35@5");
        fixture_check(&w->f);
        assert_int_equal(session_close(w->a, s, true, 1, NULL), 0);
        fixture_check(&w->f);
        expect_pages(w->a, t, "0@0 4@4 35@5");
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 2);
        assert_int_equal(session_close(w->a, t, true, 1, NULL), 0);
        assert_int_equal(
                w->ns->device.n_pages[PAGE_DETACHED] + w->ns->device.n_pages[PAGE_SEALED], 0);
        /* Pinned pages can still be found by the client that pins them. */
        s = open_session(w->a, "s");
        append(w->a, s, ROOT, 0, 4);
        assert_int_equal(publish_tail(w->a, s, 3, 4, 2, PAGE_TOKENS, pinned), 0);
        truncate_pages(w->a, s, 1, 2, 3);
        assert_true(is_cached(w->a, 5) && is_cached(w->a, 2));
        assert_int_equal(release_pages(w->a, pinned, 2, 1, NULL), 0);
        evict(w->a, 5);
        fixture_check(&w->f);
        expect_pages(w->a, s, "0@0 4@4 5@5");
}

/* Sessions may end in the same text: what their windows take is bounded all the same. */
SESSION_WINDOW_SCENE(test_windows_are_bounded, 8, 4, 4)
{
        uint32_t most, s = 0, n = 0;
        uint64_t left;
        int r = 0;

        append(w->a, open_session(w->a, "all"), ROOT, 0, 8);
        most = SESSION_WINDOWS_SHARE * w->ns->geometry.capacity_pages;
        for (; n <= most / 6 && r == 0; n++) {
                char id[16];

                snprintf(id, sizeof(id), "%u", n);
                s = open_session(w->a, id);
                append(w->a, s, ROOT, 0, 8);
                r = session_truncate(
                        session_of(w->a, s, NULL), PAGE_TOKENS, 6 * PAGE_TOKENS, &left, NULL);
        }
        fixture_check(&w->f);
        assert_int_equal(r, -ENOMEM);
        assert_int_equal(n, most / 6 + 1);
        assert_int_equal(info_of(w->a, s).n_pages, 8);
        /* A closed session is removed for it. */
        assert_int_equal(session_close(w->a, 2, false, 1, NULL), 0);
        truncate_pages(w->a, s, 1, 6, 1);
        fixture_check(&w->f);
        assert_int_equal(info_of(w->a, open_session(w->a, "0")).n_pages, 1);
}

SESSION_WINDOW_SCENE(test_no_memory, 8, 4, 4)
{
        uint64_t left;
        uint32_t s;
        int r;

        s = open_session(w->a, "s");
        append(w->a, s, ROOT, 0, 6);
        alloc_fail_at(1);
        r = session_truncate(session_of(w->a, s, NULL), PAGE_TOKENS, PAGE_TOKENS, &left, NULL);
        assert_true(alloc_fail_end());
        assert_int_equal(r, -ENOMEM);
        assert_int_equal(info_of(w->a, s).n_pages, 6);
        fixture_check(&w->f);
        truncate_pages(w->a, s, 1, 1, 4);
}

/* A publish that the window has no memory for changes nothing. */
TEST(test_no_memory_for_publish)
{
        uint8_t keys[KEY_BYTES], parent[KEY_BYTES];
        uint32_t s, page, sealed, n_sealed;
        struct bench w;
        struct publish p = {.pages = &page,
                .keys = keys,
                .n = 1,
                .parent_key = parent,
                .last_tokens = PAGE_TOKENS};

        begin(&w, 8, 4, 4);
        p.session = s = truncated(&w, "s", 0, 6, 1);
        make_keys(keys, 6, 1);
        make_keys(parent, 5, 1);
        assert_int_equal(lease_pages(w.a, 1, 1, &page, NULL), 0);
        alloc_fail_at(1);
        assert_int_equal(publish_pages(w.a, &p, 1, &sealed, &n_sealed, NULL), -ENOMEM);
        assert_true(alloc_fail_end());
        assert_int_equal(ns_page(w.ns, page)->state, PAGE_GRANTED);
        fixture_check(&w.f);
        assert_int_equal(publish_pages(w.a, &p, 1, &sealed, &n_sealed, NULL), 0);
        assert_int_equal(release_pages(w.a, &sealed, 1, 1, NULL), 0);
        expect_pages(w.a, s, "0@0 5@5 6@6");
        end(&w);
}
