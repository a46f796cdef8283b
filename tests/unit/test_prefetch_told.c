/* Pages that are brought up because clients announced a need, on real memory: sessions whose turn
 * is next (daemon/core/reclaim/prefetch.h), and named texts (warm.h). */
#include <errno.h>

#include "daemon/core/core.h"
#include "daemon/core/requests/expected.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/reclaim/warm.h"
#include "tests/unit/prefetch-fixture.h"

/* ---- turns ----------------------------------------------------------------------------------- */

static uint32_t open_session(struct tiers *w, const char *id)
{
        uint32_t handle;
        bool created;

        assert_int_equal(session_open(w->attach, (const uint8_t *)id, (uint32_t)strlen(id), false,
                                 0, w->now_nsec, &handle, &created, NULL),
                0);
        return handle;
}

static void hint(struct tiers *w, uint32_t session, enum evict_hint h, uint64_t after_nsec)
{
        session_hint(session_of(w->attach, session, NULL), h, after_nsec, w->now_nsec);
}

/* The one of three sessions that is about to return comes up, and not long before. */
PREFETCH_SCENE(test_turn, &evict_lru)
{
        uint64_t start_nsec;
        uint32_t s[3];

        for (unsigned i = 0; i < 3; i++) {
                s[i] = open_session(w, i == 0 ? "soon" : i == 1 ? "later" : "done");
                append(w, s[i], ROOT, 100 * i, 12, 0);
                push_down(w, 100 * i, 12);
        }
        start_nsec = w->now_nsec;
        hint(w, s[0], EVICT_HINT_RETURNS, 30 * NSEC_PER_SEC);
        hint(w, s[1], EVICT_HINT_RETURNS, 600 * NSEC_PER_SEC);
        hint(w, s[2], EVICT_HINT_DONE, 0);
        assert_true(prefetch_look(&w->store, w->now_nsec) != UINT64_MAX);
        settle(w);
        assert_int_equal(account(w, PREFETCH_TURN)->n_begun, 0);
        w->now_nsec = start_nsec + 20 * NSEC_PER_SEC;
        (void)prefetch_look(&w->store, w->now_nsec);
        settle(w);
        assert_tier(w, 0, 12, TIER_DEVICE);
        assert_tier(w, 100, 12, TIER_HOST);
        assert_tier(w, 200, 12, TIER_HOST);
        assert_int_equal(read_text(w, 0, 12), 0);
        assert_int_equal(account(w, PREFETCH_TURN)->n_useful, 12);
        w->now_nsec = start_nsec + 700 * NSEC_PER_SEC; /* it didn't come */
        (void)prefetch_look(&w->store, w->now_nsec);
        settle(w);
        assert_tier(w, 100, 12, TIER_HOST);
}

/* Turns that come every four seconds, as their clients announce, and texts that aren't requested
 * again. */
static void teach(struct tiers *w)
{
        for (unsigned i = 0; i < 64; i++) {
                char id[16];
                uint32_t s;

                snprintf(id, sizeof(id), "session-%u", i);
                s = open_session(w, id);
                append(w, s, ROOT, 1000 * i, 2, 0);
                append(w, 0, ROOT, 100000 + i, 1, 0);
                for (unsigned turn = 1; turn < 4; turn++) {
                        hint(w, s, EVICT_HINT_CONTINUES, 0);
                        w->now_nsec += 4 * NSEC_PER_SEC;
                        read_text(w, 1000 * i, 2 * turn);
                        append(w, s, 1000 * i + 2 * turn - 1, 1000 * i + 2 * turn, 2, 0);
                        store_policy_work(&w->store, w->now_nsec);
                }
                drop(w, 1000 * i, 1);
                assert_int_equal(session_close(w->attach, s, true, w->now_nsec, NULL), 0);
        }
}

/* Without a time, by what the policy has learnt; also on a full device, where what is worth less
 * goes down for it. Not what has ended. */
TEST(test_turn_by_chance)
{
        for (unsigned is_full = 0; is_full < 2; is_full++) {
                struct tiers w;
                uint32_t s[2];

                start(&w, &evict_pgi);
                teach(&w);
                for (unsigned i = 0; i < 2; i++) {
                        s[i] = open_session(&w, i == 0 ? "next" : "over");
                        append(&w, s[i], ROOT, 500000 + 100 * i, 20, 0);
                        hint(&w, s[i], i == 0 ? EVICT_HINT_CONTINUES : EVICT_HINT_DONE, 0);
                        push_down(&w, 500000 + 100 * i, 20);
                }
                if (is_full)
                        fill_up(&w);
                (void)prefetch_look(&w.store, w.now_nsec);
                settle(&w);
                assert_tier(&w, 500000, 20, TIER_DEVICE);
                assert_tier(&w, 500100, 20, TIER_HOST);
                assert_int_equal(account(&w, PREFETCH_TURN)->n_begun, 20);
                assert_int_equal(account(&w, PREFETCH_TURN)->n_wasted, 0);
                assert_int_equal(w.store.counters.evictions, 0);
                for (unsigned i = 0; i < 2; i++)
                        assert_int_equal(session_close(w.attach, s[i], true, w.now_nsec, NULL), 0);
                tiers_end(&w);
        }
}

/* A policy that knows an order only lets nothing go for a guess. */
PREFETCH_SCENE(test_turn_stays_below, &evict_lru)
{
        uint32_t s;

        s = open_session(w, "s");
        append(w, s, ROOT, 0, 12, 0);
        push_down(w, 0, 12);
        fill_up(w);
        hint(w, s, EVICT_HINT_RETURNS, 5 * NSEC_PER_SEC);
        (void)prefetch_look(&w->store, w->now_nsec);
        settle(w);
        assert_true(account(w, PREFETCH_TURN)->n_begun <= 1); /* what was FREE */
        assert_int_equal(w->store.counters.evictions, 0);
}

/* ---- what is expected ------------------------------------------------------------------------ */

static void expect_text(struct tiers *w, unsigned first, unsigned n)
{
        uint8_t keys[TEXT * KEY_BYTES];

        make_keys(keys, first, n);
        assert_int_equal(expected_by_keys(w->attach, keys, n, 0, w->now_nsec, NULL), 0);
}

/* The expected one of two texts below the device comes up. On a full device it replaces unexpected
 * pages, also with a policy that knows only an order. */
TEST(test_expected)
{
        const struct evict_ops *const all[] = {&evict_lru, &evict_pgi};

        for (unsigned i = 0; i < 4; i++) {
                struct tiers w;

                start(&w, all[i / 2]);
                append(&w, 0, ROOT, 0, 12, 0);
                append(&w, 0, ROOT, 100, 12, 0);
                push_down(&w, 0, 12);
                push_down(&w, 100, 12);
                if (i % 2)
                        fill_up(&w);
                expect_text(&w, 0, 12);
                expect_text(&w, 0, 12);
                settle(&w);
                assert_tier(&w, 0, 12, TIER_DEVICE);
                assert_tier(&w, 100, 12, TIER_HOST);
                assert_int_equal(account(&w, PREFETCH_EXPECT)->n_begun, 12);
                assert_int_equal(w.store.counters.evictions, 0);
                assert_int_equal(read_text(&w, 0, 12), 0);
                assert_int_equal(account(&w, PREFETCH_EXPECT)->n_useful, 12);
                assert_int_equal(w.store.counters.expected.fulfilled, 1);
                tiers_end(&w);
        }
}

/* For a tenant without guesses nothing comes up; the text is kept where it is. */
PREFETCH_SCENE(test_expected_stays_below, &evict_lru)
{
        w->a->attrs.prefetch_steps = 0;
        append(w, 0, ROOT, 0, 12, 0);
        push_down(w, 0, 12);
        expect_text(w, 0, 12);
        settle(w);
        assert_tier(w, 0, 12, TIER_HOST);
}

/* ---- what is named --------------------------------------------------------------------------- */

static struct warm_figures warm(struct tiers *w, const struct warm_request *rq)
{
        struct warm_figures f;

        assert_int_equal(warm_begin(w->ns, rq, &w->d), 0);
        settle(w);
        warm_figures(w->ns, &f);
        assert_false(f.is_running);
        return f;
}

PREFETCH_SCENE_COLD(test_warm_keys, &evict_lru)
{
        uint8_t keys[3 * KEY_BYTES];
        struct warm_request rq = {.keys = keys, .n_keys = 3};
        struct warm_figures f;

        read_text(w, 0, 2);
        make_keys(keys, 19, 1);
        make_keys(keys + KEY_BYTES, 9, 1); /* of the same text */
        make_keys(keys + 2 * KEY_BYTES, 77777, 1);
        f = warm(w, &rq);
        assert_int_equal(f.n_there, 2);
        assert_int_equal(f.n_came, 18);
        assert_int_equal(f.n_left, 0);
        assert_int_equal(f.n_missing, 1);
        assert_tier(w, 0, 20, TIER_DEVICE);
        assert_tier(w, 20, TEXT - 20, TIER_HOST);
        read_text(w, 0, 10);
        assert_int_equal(account(w, PREFETCH_WARM)->n_useful, 8);
        assert_int_equal(account(w, PREFETCH_WARM)->n_stake, 10);
}

PREFETCH_SCENE(test_warm_tags, &evict_lru)
{
        const struct warm_request rq = {.n_tags = 2, .tags = {7, 9}};
        struct warm_figures f;

        append(w, 0, ROOT, 0, 4, 0);
        append(w, 0, 3, 4, 4, 7); /* with what comes before it */
        append(w, 0, 7, 8, 4, 0);
        append(w, 0, ROOT, 100, 4, 9);
        append(w, 0, ROOT, 200, 4, 8);
        push_down(w, 0, 12);
        push_down(w, 100, 4);
        push_down(w, 200, 4);
        f = warm(w, &rq);
        assert_int_equal(f.n_there, 0);
        assert_int_equal(f.n_came, 12);
        assert_int_equal(f.n_left, 0);
        assert_tier(w, 0, 8, TIER_DEVICE);
        assert_tier(w, 8, 4, TIER_HOST);
        assert_tier(w, 100, 4, TIER_DEVICE);
        assert_tier(w, 200, 4, TIER_HOST);
        f = warm(w, &rq);
        assert_int_equal(f.n_there, 12);
        assert_int_equal(f.n_came, 0);
}

/* Pages come up while there is room; a second request waits for the first. */
PREFETCH_SCENE(test_warm_all, &evict_lru)
{
        const struct warm_request rq = {0};
        struct warm_figures f;

        append(w, 0, ROOT, 0, TEXT, 0);
        append(w, 0, ROOT, 100, TEXT, 0);
        push_down(w, 0, TEXT);
        push_down(w, 100, TEXT);
        assert_int_equal(warm_begin(w->ns, &rq, &w->d), 0);
        assert_int_equal(warm_begin(w->ns, &rq, &w->d), -EBUSY);
        settle(w);
        warm_figures(w->ns, &f);
        assert_false(f.is_running);
        assert_true(f.is_full);
        assert_int_equal(f.n_there, 0);
        assert_int_equal(f.n_came + f.n_left, 2 * TEXT);
        assert_int_equal(f.n_came, N_DEVICE - TIER_SET_PAGES - 1); /* a 64th stays FREE */
        assert_int_equal(count_on_device(w, 0, 200), f.n_came);
}

PREFETCH_SCENE_COLD(test_warm_stops, &evict_lru)
{
        const struct warm_request rq = {0};
        struct warm_figures f;

        assert_int_equal(warm_begin(w->ns, &rq, &w->d), 0);
        (void)prefetch_work(&w->store, w->now_nsec);
        warm_stop(w->ns);
        warm_stop(w->ns);
        settle(w);
        warm_figures(w->ns, &f);
        assert_false(f.is_running || f.is_full);
        assert_int_equal(f.n_came, PREFETCHES_MAX / 2);
        assert_int_equal(count_on_device(w, 0, TEXT), PREFETCHES_MAX / 2);
}
