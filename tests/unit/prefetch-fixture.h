/* Texts that lie below the device and are read, and what is brought up before
 * (daemon/core/reclaim/prefetch.h): on top of tier-fixture.h. */
#ifndef KVL_TESTS_PREFETCH_FIXTURE_H
#define KVL_TESTS_PREFETCH_FIXTURE_H

#include "base/clock.h"
#include "daemon/core/memory/sets.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/reclaim/prefetch.h"
#include "tests/unit/tier-fixture.h"

#define N_SETS   3  /* no guess goes to the last one */
#define N_DEVICE 96 /* pages */
#define FILLERS  10000
#define TEXT     48
#define ROOT     UINT32_MAX

/* Nothing is cached yet. */
static inline void start(struct tiers *w, const struct evict_ops *evict)
{
        tiers_start(w, evict, N_SETS, 12, 1, CODEC_NONE);
        w->a->attrs.prefetch_steps = 16;
        w->now_nsec = NSEC_PER_SEC;
}

/* Everything that is under way or due, and what follows from it. */
static inline void settle(struct tiers *w)
{
        struct pollfd fd = {.fd = mover_fd(w->store.moving.mover), .events = POLLIN};
        unsigned idle = 0, n_waits = 0;

        while (idle < 2) {
                (void)demote_turn(&w->store, w->now_nsec);
                (void)prefetch_work(&w->store, w->now_nsec);
                (void)transfer_work(&w->store);
                idle = w->store.moving.n_transfers > 0 ? 0 : idle + 1;
                if (w->store.moving.n_transfers > 0 && poll(&fd, 1, 10) == 0)
                        assert_true(++n_waits < 1000);
                (void)mover_reap(w->store.moving.mover);
                (void)transfer_work(&w->store);
        }
        tiers_check(w);
}

/* n pages that continue the one with key `parent`, published to a session (0: none). */
static inline void append(struct tiers *w, uint32_t session, unsigned parent, unsigned first,
        unsigned n, uint64_t tag)
{
        uint8_t key[KEY_BYTES], parent_key[KEY_BYTES];
        uint32_t page, sealed, n_sealed;
        struct publish p = {.pages = &page,
                .keys = key,
                .n = 1,
                .last_tokens = w->ns->layout.page_tokens,
                .session = session,
                .tag = tag};

        for (unsigned i = 0; i < n; i++, parent = first + i - 1) {
                make_keys(key, first + i, 1);
                make_keys(parent_key, parent, 1);
                p.parent_key = parent == ROOT ? NULL : parent_key;
                assert_int_equal(lease_pages(w->attach, 1, w->now_nsec, &page, NULL), 0);
                tier_fill(w, page, first + i);
                assert_int_equal(
                        publish_pages(w->attach, &p, w->now_nsec, &sealed, &n_sealed, NULL), 0);
                assert_int_equal(release_pages(w->attach, &sealed, 1, w->now_nsec, NULL), 0);
                settle(w);
        }
}

static inline void drop(struct tiers *w, unsigned first, unsigned n)
{
        uint8_t key[KEY_BYTES];
        uint64_t n_pages;

        for (unsigned i = 0; i < n; i++) {
                make_keys(key, first + i, 1);
                assert_int_equal(invalidate_key(w->attach, key, &n_pages, NULL), 0);
        }
        tiers_check(w);
}

/* Other texts take the device, so that what was cached before goes down. */
static inline void fill_up(struct tiers *w)
{
        for (unsigned i = 0; i < 2 * N_DEVICE; i++) {
                w->now_nsec += NSEC_PER_MSEC;
                assert_true(tier_cache(w, FILLERS + i, 1));
                settle(w);
        }
}

/* A text goes down, from its end. */
static inline void push_down(struct tiers *w, unsigned first, unsigned n)
{
        struct ns_tier *host = &w->ns->tiers[TIER_HOST];
        struct pollfd fd = {.fd = mover_fd(w->store.moving.mover), .events = POLLIN};

        for (unsigned key = first + n; key-- > first;) {
                struct extent_set *set = list_first(&host->sets_room, struct extent_set, room_link);
                uint32_t page = tier_find(w, key), to;

                if (page == PAGE_NONE || tier_of(w, key) != TIER_DEVICE)
                        continue;
                if (!set)
                        assert_int_equal(set_bind_in(w->ns, TIER_HOST, NULL, &set, NULL), 0);
                to = set_take_page(set, &(struct page_use){.state = PAGE_MOVING});
                assert_int_equal(transfer_begin(w->ns, TRANSFER_DOWN, page, to, false), 0);
                (void)transfer_start(&w->store);
                while (w->store.moving.n_demoting > 0) {
                        (void)poll(&fd, 1, 10);
                        (void)mover_reap(w->store.moving.mover);
                        (void)transfer_work(&w->store);
                }
        }
        tiers_check(w);
}

static inline void assert_tier(struct tiers *w, unsigned first, unsigned n, enum tier_kind kind)
{
        for (unsigned key = first; key < first + n; key++) {
                assert_int_equal(tier_of(w, key), kind);
                assert_true(tier_is_filled(w, tier_find(w, key), key));
        }
}

/* Number of these keys' pages that are on the device. */
static inline unsigned count_on_device(struct tiers *w, unsigned first, unsigned n)
{
        unsigned n_there = 0;

        for (unsigned key = first; key < first + n; key++) {
                uint32_t page = tier_find(w, key);

                if (page == PAGE_NONE)
                        continue;
                assert_true(tier_is_filled(w, page, key));
                n_there += tier_of(w, key) == TIER_DEVICE;
        }
        return n_there;
}

/* Figures of a kind of guess; zeros if there was none. */
static inline const struct prefetch *account(struct tiers *w, enum prefetch_kind kind)
{
        static const struct prefetch none;
        const struct prefetch *p = prefetch_of(w->ns, kind);

        return p ? p : &none;
}

/* One lookup of a reader, as the library makes it: pages that lie below are asked for, all of them
 * at once. Returns for how many it waited. */
static inline unsigned begin_read(
        struct tiers *w, unsigned first, unsigned n, uint32_t *pages, struct told *told)
{
        uint8_t keys[TEXT * KEY_BYTES];
        unsigned n_waits = 0;
        uint32_t n_found;
        uint64_t tokens;

        make_keys(keys, first, n);
        assert_int_equal(lookup_pages(w->attach, &(struct lookup_request){keys, n, w->now_nsec},
                                 pages, &n_found, &tokens, NULL),
                0);
        assert_int_equal(n_found, n);
        for (unsigned i = 0; i < n; i++)
                if (tier_of_page(&w->ns->geometry, pages[i]) != TIER_DEVICE) {
                        int r = tier_fetch(w, pages[i], PAGE_NONE, &told[i]);

                        assert_true(r == 0 || r == FETCH_THERE);
                        n_waits += r == 0;
                }
        return n_waits;
}

/* Like begin_read(), and waits for all pages, compares and releases them. */
static inline unsigned read_text(struct tiers *w, unsigned first, unsigned n)
{
        struct told told[TEXT] = {0};
        uint32_t pages[TEXT];
        unsigned n_waits = begin_read(w, first, n, pages, told);

        settle(w);
        for (unsigned i = 0; i < n; i++) {
                assert_true(told[i].n <= 1 && told[i].status == 0);
                assert_true(tier_is_filled(w, pages[i], first + i));
        }
        assert_int_equal(release_pages(w->attach, pages, n, w->now_nsec, NULL), 0);
        settle(w);
        w->now_nsec += 10 * NSEC_PER_MSEC;
        return n_waits;
}

/* A text of TEXT pages, keys 0.., all of which lie below. */
static inline void start_cold(struct tiers *w, const struct evict_ops *evict)
{
        start(w, evict);
        append(w, 0, ROOT, 0, TEXT, 0);
        push_down(w, 0, TEXT);
        assert_tier(w, 0, TEXT, TIER_HOST);
}

#define PREFETCH_SCENE_COLD(fn, ...) \
        TEST_ON(fn, struct tiers, w, start_cold, tiers_end, ##__VA_ARGS__)

#define PREFETCH_SCENE(fn, ...) TEST_ON(fn, struct tiers, w, start, tiers_end, ##__VA_ARGS__)

#endif
