/* State of pages stays with them in lower tiers: sessions, tags, invalidation, expiry and namespace
 * sets, on real memory. */
#include "base/clock.h"
#include "daemon/core/cache/expire.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/core.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/reclaim/reclaim.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/sessions/session-truncate.h"
#include "tests/unit/tier-fixture.h"

#define N_TEXT 8 /* pages */

/* Two sets of the device, two below it. */
static void start(struct tiers *w)
{
        tiers_start(w, &evict_pgi, 2, 2, 1, CODEC_NONE);
}

#define SCENE(fn, ...) TEST_ON(fn, struct tiers, w, start, tiers_end, ##__VA_ARGS__)

/* ---- pages ----------------------------------------------------------------------------------- */

/* FREE before, MOVING from now on. */
static uint32_t take_below(struct tiers *w)
{
        struct extent_set *set =
                list_first(&w->ns->tiers[TIER_HOST].sets_room, struct extent_set, room_link);

        if (!set)
                assert_int_equal(set_bind_in(w->ns, TIER_HOST, NULL, &set, &w->d), 0);
        return set_take_page(set, &(struct page_use){.state = PAGE_MOVING});
}

/* Keys first.. of a text, its end first. */
static void send_down(struct tiers *w, unsigned first, unsigned n)
{
        for (unsigned key = first + n; key-- > first;) {
                assert_int_equal(tier_of(w, key), TIER_DEVICE);
                assert_int_equal(transfer_begin(w->ns, TRANSFER_DOWN, tier_find(w, key),
                                         take_below(w), false),
                        0);
                tiers_settle(w);
                assert_int_equal(tier_of(w, key), TIER_HOST);
        }
}

static void bring_up(struct tiers *w, unsigned key)
{
        struct told told;

        assert_int_equal(tier_fetch(w, tier_find(w, key), PAGE_NONE, &told), 0);
        tiers_settle(w);
        assert_int_equal(told.n, 1);
        assert_int_equal(told.status, 0);
        assert_int_equal(told.page, tier_find(w, key));
}

static void assert_filled(struct tiers *w, unsigned first, unsigned n)
{
        for (unsigned key = first; key < first + n; key++)
                assert_true(tier_is_filled(w, tier_find(w, key), key));
}

static unsigned count_below(struct tiers *w, unsigned first, unsigned n)
{
        unsigned n_below = 0;

        for (unsigned key = first; key < first + n; key++)
                n_below += tier_find(w, key) != PAGE_NONE && tier_of(w, key) == TIER_HOST;
        return n_below;
}

/* Nothing is below the device, and nothing of it is bound. */
static void assert_nothing_below(struct tiers *w)
{
        tiers_settle(w);
        assert_int_equal(w->ns->tiers[TIER_HOST].n_pages[PAGE_SEALED], 0);
        assert_int_equal(w->ns->tiers[TIER_HOST].n_pages[PAGE_DETACHED], 0);
}

/* Arguments of a publish. */
struct what {
        uint32_t session;
        uint64_t tag;
        bool continues; /* key first - 1 */
};

static void publish(struct tiers *w, struct what what, unsigned first, unsigned n)
{
        uint8_t keys[N_TEXT * KEY_BYTES], parent[KEY_BYTES];
        uint32_t pages[N_TEXT], sealed[N_TEXT], n_sealed;
        const struct publish p = {.pages = pages,
                .keys = keys,
                .n = n,
                .parent_key = what.continues ? parent : NULL,
                .last_tokens = w->ns->layout.page_tokens,
                .session = what.session,
                .tag = what.tag};

        assert_true(n <= N_TEXT);
        make_keys(keys, first, n);
        make_keys(parent, first - 1, 1);
        assert_int_equal(lease_pages(w->attach, n, w->now_nsec, pages, NULL), 0);
        for (unsigned i = 0; i < n; i++)
                tier_fill(w, pages[i], first + i);
        assert_int_equal(publish_pages(w->attach, &p, w->now_nsec, sealed, &n_sealed, &w->d), 0);
        assert_int_equal(release_pages(w->attach, sealed, n, w->now_nsec, NULL), 0);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static uint32_t open_session(struct tiers *w, bool must_exist)
{
        uint32_t handle = 0;
        bool created;
        int r = session_open(w->attach,
                &(struct session_request){(const uint8_t *)"s", 1, must_exist, 0, w->now_nsec},
                &handle, &created, &w->d);

        assert_true(r == 0 || (must_exist && r == -ENOENT));
        return handle;
}

/* Its pages, one after the other, are those of these keys with their bytes; in which tiers. */
static void assert_pages(struct tiers *w, uint32_t handle, unsigned n, const char *tiers)
{
        struct session *s = session_of(w->attach, handle, &w->d);
        struct session_page pages[2 * N_TEXT];
        char found[2 * N_TEXT + 1] = "";
        uint32_t n_found;

        assert_int_equal(session_pages(w->attach, s, (struct session_range){0, ARRAY_SIZE(pages)},
                                 w->now_nsec, pages, &n_found, &w->d),
                0);
        assert_int_equal(n_found, n);
        for (uint32_t i = 0; i < n; i++) {
                unsigned key;

                memcpy(&key, ns_page(w->ns, pages[i].page)->key, sizeof(key));
                assert_true(tier_is_filled(w, pages[i].page, key - 1));
                assert_int_equal(
                        pages[i].first_token, (key - 1) * (uint64_t)w->ns->layout.page_tokens);
                found[i] = tier_of_page(&w->ns->geometry, pages[i].page) == TIER_HOST ? 'h' : 'd';
                assert_int_equal(release_pages(w->attach, &pages[i].page, 1, w->now_nsec, NULL), 0);
        }
        assert_string_equal(found, tiers);
}

/* Ranges are kept wherever their pages are, in the head and in the window, and again. */
SCENE(test_session_keeps)
{
        struct token_range ranges[3];
        uint64_t n_left, page;
        uint32_t s;

        page = w->ns->layout.page_tokens;
        s = open_session(w, false);
        publish(w, (struct what){.session = s}, 0, 8);
        send_down(w, 5, 3);
        ranges[0] = (struct token_range){0, 3 * page};
        ranges[1] = (struct token_range){4 * page, 6 * page};
        ranges[2] = (struct token_range){7 * page, TOKEN_RANGE_END};
        assert_int_equal(
                session_keep(session_of(w->attach, s, NULL), ranges, 3, &n_left, &w->d), 0);
        assert_int_equal(n_left, 2);
        assert_pages(w, s, 6, "ddddhh");
        assert_int_equal(tier_find(w, 6), PAGE_NONE);
        send_down(w, 1, 2);
        assert_pages(w, s, 6, "dhhdhh");
        /* Keeps a page of the head that is below, which moves to the window, and one of that. */
        ranges[0] = (struct token_range){0, page};
        ranges[1] = (struct token_range){2 * page, 3 * page};
        ranges[2] = (struct token_range){7 * page, 8 * page};
        assert_int_equal(
                session_keep(session_of(w->attach, s, NULL), ranges, 3, &n_left, &w->d), 0);
        assert_int_equal(n_left, 3);
        assert_pages(w, s, 3, "dhh");
        assert_int_equal(session_close(w->attach, s, true, w->now_nsec, &w->d), 0);
        assert_nothing_below(w);
        assert_int_equal(w->ns->device.n_pages[PAGE_DETACHED], 0);
}

/* ---- invalidation ---------------------------------------------------------------------------- */

/* A tag's pages go wherever they lie, or are on their way to; and so does what continues them. */
SCENE(test_tag)
{
        uint32_t page, n;
        uint8_t key[KEY_BYTES];
        uint64_t count;

        publish(w, (struct what){.tag = 7}, 0, 4);
        publish(w, (struct what){.continues = true}, 4, 2);
        publish(w, (struct what){.tag = 7}, 20, 2);
        publish(w, (struct what){.tag = 8}, 30, 2);
        send_down(w, 2, 4);
        send_down(w, 20, 2);
        bring_up(w, 20);
        send_down(w, 31, 1);
        /* One is read below, another one moves. */
        make_keys(key, 5, 1);
        assert_int_equal(lookup_pages(w->attach, &(struct lookup_request){key, 1, 2}, &page, &n,
                                 &count, NULL),
                0);
        assert_int_equal(
                transfer_begin(w->ns, TRANSFER_DOWN, tier_find(w, 20), take_below(w), false), 0);
        assert_int_equal(invalidate_tag(w->attach, 7, &count, &w->d), 0);
        assert_int_equal(count, 8);
        assert_true(tier_is_filled(w, page, 5));
        tiers_settle(w);
        assert_int_equal(count_hits(w->attach, 0, 6), 0);
        assert_int_equal(count_hits(w->attach, 20, 2), 0);
        assert_int_equal(count_hits(w->attach, 30, 2), 2);
        assert_true(tier_is_filled(w, page, 5));
        assert_int_equal(release_pages(w->attach, &page, 1, 2, NULL), 0);
        assert_int_equal(invalidate_tag(w->attach, 8, &count, &w->d), 0);
        assert_int_equal(count, 2);
        assert_nothing_below(w);
}

SCENE(test_key)
{
        uint8_t key[KEY_BYTES];
        uint64_t count;

        publish(w, (struct what){0}, 0, 6);
        send_down(w, 3, 3);
        make_keys(key, 4, 1);
        assert_int_equal(invalidate_key(w->attach, key, &count, &w->d), 0);
        assert_int_equal(count, 2);
        assert_int_equal(count_hits(w->attach, 0, 6), 4);
        make_keys(key, 0, 1);
        assert_int_equal(invalidate_key(w->attach, key, &count, &w->d), 0);
        assert_int_equal(count, 4);
        assert_nothing_below(w);
}

/* The sweep frees stale pages of lower tiers, and those on their way up. */
SCENE(test_namespace)
{
        struct told told;
        uint64_t count;

        publish(w, (struct what){0}, 0, 6);
        send_down(w, 3, 3);
        assert_int_equal(tier_fetch(w, tier_find(w, 3), PAGE_NONE, &told), 0);
        assert_int_equal(ns_invalidate(w->ns, CAUSE_NAMESPACE, &count), 0);
        assert_int_equal(count, 6);
        assert_int_equal(count_hits(w->attach, 0, 6), 0);
        publish(w, (struct what){0}, 0, 6);
        while (ns_sweep(w->ns, 64))
                ;
        tiers_settle(w);
        assert_int_equal(told.n, 1);
        assert_int_equal(told.status, -ENOENT);
        assert_int_equal(count_hits(w->attach, 0, 6), 6);
        assert_int_equal(count_below(w, 0, 6), 0);
        assert_filled(w, 0, 6);
        assert_nothing_below(w);
}

/* ---- namespace sets -------------------------------------------------------------------------- */

#define RANKS 2

/* A key goes in all or stays in all, wherever each of them has it. */
SCENE(test_set)
{
        struct attach_options o = {.set = "model", .set_size = RANKS};
        struct attach *ranks[RANKS];
        struct ns_layout l;
        uint32_t held, n;
        uint8_t key[KEY_BYTES];
        uint64_t tokens;

        l = w->ns->layout;
        for (int i = 0; i < RANKS; i++) {
                assert_int_equal(
                        attach_open_with(w->m, i ? "r1" : "r0", &l, &o, &ranks[i], &w->d), 0);
                w->attach = ranks[i];
                w->ns = ranks[i]->ns;
                publish(w, (struct what){0}, 0, 6);
                send_down(w, i == 0 ? 2 : 4, i == 0 ? 4 : 2);
        }
        assert_int_equal(w->ns->catalog.set->n_complete, 6);
        make_keys(key, 5, 1);
        assert_int_equal(lookup_pages(ranks[1], &(struct lookup_request){key, 1, 2}, &held, &n,
                                 &tokens, NULL),
                0);
        assert_int_equal(tier_of_page(&w->ns->geometry, held), TIER_HOST);
        w->ns = ranks[0]->ns;
        assert_false(ns_evict_leaf(w->ns, tier_find(w, 5), NULL));
        assert_int_equal(release_pages(ranks[1], &held, 1, 2, NULL), 0);
        assert_true(ns_evict_leaf(w->ns, tier_find(w, 5), NULL));
        while (store_work(&w->store, 64))
                ;
        assert_int_equal(count_hits(ranks[0], 0, 6), 5);
        assert_int_equal(count_hits(ranks[1], 0, 6), 5);
        assert_int_equal(w->ns->catalog.set->n_complete, 5);
        make_keys(key, 0, 1);
        assert_int_equal(invalidate_key(ranks[1], key, &tokens, &w->d), 0);
        while (store_work(&w->store, 64))
                ;
        assert_int_equal(w->ns->catalog.set->n_complete + w->ns->catalog.set->n_incomplete, 0);
        for (int i = 0; i < RANKS; i++) {
                w->attach = ranks[i];
                w->ns = ranks[i]->ns;
                assert_nothing_below(w);
        }
}
