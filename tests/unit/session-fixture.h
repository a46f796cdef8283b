/* Fixture of the tests of sessions, on top of core-fixture.h. */
#ifndef KVL_TESTS_SESSION_FIXTURE_H
#define KVL_TESTS_SESSION_FIXTURE_H

#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/records.h"
#include "daemon/core/sessions/session-impl.h"
#include "tests/unit/core-fixture.h"

#define ROOT UINT32_MAX /* no parent */
#define SEC  UINT64_C(1000000000)

/* Like session_open(), at 1 ns, without an expiry of its own. */
static inline int try_open(struct attach *a, const void *id, uint32_t len, bool must_exist,
        uint32_t *ret_handle, bool *ret_created)
{
        return session_open(a, &(struct session_request){id, len, must_exist, 0, 1}, ret_handle,
                ret_created, NULL);
}

static inline uint32_t open_session(struct attach *a, const char *id)
{
        uint32_t handle;
        bool created;

        assert_int_equal(session_open(a,
                                 &(struct session_request){
                                         (const uint8_t *)id, (uint32_t)strlen(id), false, 0, 1},
                                 &handle, &created, NULL),
                0);
        return handle;
}

/* Publishes n pages, keys first.., below the page with key `parent`, the last one with `tokens`;
 * they stay pinned. Returns the status. */
static inline int publish_tail(struct attach *a, uint32_t session, unsigned parent, unsigned first,
        unsigned n, uint32_t tokens, uint32_t *ret_pages)
{
        uint8_t keys[64 * KEY_BYTES], parent_key[KEY_BYTES];
        struct publish p = {.pages = ret_pages,
                .keys = keys,
                .n = n,
                .parent_key = parent == ROOT ? NULL : parent_key,
                .last_tokens = tokens,
                .session = session};
        uint32_t leased[64], n_sealed;
        int r;

        assert_true(n <= 64);
        make_keys(keys, first, n);
        make_keys(parent_key, parent, 1);
        assert_int_equal(lease_pages(a, n, 1, leased, NULL), 0);
        p.pages = leased;
        r = publish_pages(a, &p, 1, ret_pages, &n_sealed, NULL);
        for (uint32_t i = 0; i < n; i++)
                if (i >= n_sealed || ret_pages[i] != leased[i])
                        assert_int_equal(free_pages(a, &leased[i], 1, NULL), 0);
        if (r != 0 && r != KVL_STATUS_DUPLICATE && n_sealed > 0)
                assert_int_equal(release_pages(a, ret_pages, n_sealed, 1, NULL), 0);
        return r;
}

/* Like publish_tail() with full pages, and releases them. */
static inline void append(
        struct attach *a, uint32_t session, unsigned parent, unsigned first, unsigned n)
{
        uint32_t pages[64];
        int r = publish_tail(a, session, parent, first, n, PAGE_TOKENS, pages);

        assert_true(r == 0 || r == KVL_STATUS_DUPLICATE);
        assert_int_equal(release_pages(a, pages, n, 1, NULL), 0);
}

static inline struct session_info info_of(struct attach *a, uint32_t session)
{
        struct session *s = session_of(a, session, NULL);
        struct session_info info;

        assert_non_null(s);
        session_info(s, &info);
        return info;
}

/* Its pages are these keys, each with its first token / PAGE_TOKENS: "0@0 4@4". */
static inline void expect_pages(struct attach *a, uint32_t session, const char *expected)
{
        struct session *s = session_of(a, session, NULL);
        struct session_page pages[64];
        char text[512] = "";
        uint32_t n, total = 0;

        assert_non_null(s);
        /* Two at a time: the index they are asked for from matters. */
        while (session_pages(a, s, (struct session_range){total, 2}, 1, pages, &n, NULL) == 0) {
                for (uint32_t i = 0; i < n; i++) {
                        unsigned key;
                        size_t len = strlen(text);

                        memcpy(&key, ns_page(a->ns, pages[i].page)->key, sizeof(key));
                        assert_int_equal(pages[i].first_token % PAGE_TOKENS, 0);
                        snprintf(text + len, sizeof(text) - len, "%s%u@%u", len > 0 ? " " : "",
                                key - 1, (unsigned)(pages[i].first_token / PAGE_TOKENS));
                        if (pins_is_open(&a->share))
                                atomic_fetch_sub(&a->share.counters[pages[i].page], 1);
                        else
                                assert_int_equal(release_pages(a, &pages[i].page, 1, 1, NULL), 0);
                }
                total += n;
        }
        assert_int_equal(n, 0);
        assert_string_equal(text, expected);
        assert_int_equal(info_of(a, session).n_pages, total);
}

static inline void truncate_pages(
        struct attach *a, uint32_t session, unsigned first, unsigned last, unsigned left)
{
        uint64_t n;

        assert_int_equal(session_truncate(session_of(a, session, NULL), first * PAGE_TOKENS,
                                 last * PAGE_TOKENS, &n, NULL),
                0);
        assert_int_equal(n, left);
}

static inline void expect_tokens(
        struct attach *a, uint32_t session, unsigned n_pages, unsigned lost_pages)
{
        struct session_info info = info_of(a, session);

        assert_int_equal(info.n_tokens, n_pages * PAGE_TOKENS);
        assert_int_equal(info.lost_tokens, lost_pages * PAGE_TOKENS);
}

/* Moves the window as if the text before it were longer by `tokens` (a multiple of PAGE_TOKENS). */
static inline void push_window(struct attach *a, uint32_t session, uint64_t tokens)
{
        struct session *s = session_of(a, session, NULL);

        for (uint32_t i = 0; i < s->window.n; i++) {
                uint32_t page = s->window.pages[i];

                ns_page(a->ns, page)->end_token += (uint32_t)tokens;
                records_reparent(a->ns, page, ns_note(a->ns, page)->place.parent); /* the sum */
        }
        s->window.token += tokens;
        s->n_tokens += tokens;
}

/* Evicts the idle leaf with this key. */
static inline void evict(struct attach *a, unsigned key)
{
        uint8_t bytes[KEY_BYTES];
        uint32_t page;

        make_keys(bytes, key, 1);
        page = ns_find_page(a->ns, bytes);
        assert_int_not_equal(page, PAGE_NONE);
        assert_true(tree_is_leaf(&a->ns->tree, page));
        assert_true(ns_evict_leaf(a->ns, page, NULL));
        idle_sets_drain(a->ns->store);
}

static inline bool is_cached(struct attach *a, unsigned key)
{
        uint8_t bytes[KEY_BYTES];

        make_keys(bytes, key, 1);
        return ns_find_page(a->ns, bytes) != PAGE_NONE;
}

#endif
