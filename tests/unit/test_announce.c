/* Single flight in the daemon's state: announcements, and their view by readers.
 * test_announce_ends.c tests how they end. */
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/requests/refill.h"
#include "tests/unit/announce-fixture.h"

/* ---- what is seen ---------------------------------------------------------------------------- */

ANNOUNCE_SCENE(test_pending_until_published)
{
        const struct shm_line *line;
        uint32_t got;
        uint64_t n;

        line = &w->a->ns->shared.lines[w->pages[1]];
        assert_int_equal(announce_state(w->b, key(w, 1), NULL), KVL_STATUS_MISS);
        announce_all(w);
        assert_int_equal(announce_state(w->b, key(w, 1), NULL), KVL_STATUS_PENDING);
        assert_int_equal(shown(w, w->pages[1]), PAGE_PENDING);
        assert_int_equal(word(w, w->pages[1]) >> 8, ns_page(w->a->ns, w->pages[1])->generation);
        assert_memory_equal(line->key, key(w, 1), KEY_BYTES);
        assert_int_equal(line->epoch, w->a->ns->shared.header->epoch);
        assert_int_equal(ns_note(w->a->ns, w->pages[1])->client, w->m->id);
        assert_int_equal(w->f.store.counters.announced, N_PAGES);
        /* A miss for everybody, its announcer included. */
        assert_int_equal(count_hits(w->a, 0, N_PAGES), 0);
        assert_int_equal(invalidate_key(w->b, key(w, 1), &n, NULL), 0);
        assert_int_equal(n, 0);
        assert_int_equal(w->n_ends, 0);

        assert_int_equal(publish(w->a, w->pages[1], key(w, 1), &got), 0);
        assert_int_equal(got, w->pages[1]);
        assert_int_equal(shown(w, got), PAGE_SEALED);
        assert_int_equal(line->tokens, PAGE_TOKENS);
        assert_int_equal(announce_state(w->b, key(w, 1), NULL), 0);
        assert_int_equal(count_hits(w->b, 1, 1), 1);
        assert_int_equal(w->n_ends, 1);
        assert_memory_equal(w->last_key, key(w, 1), KEY_BYTES);
        assert_int_equal(announce_state(w->b, key(w, 2), NULL), KVL_STATUS_PENDING);
}

ANNOUNCE_SCENE(test_stops_at_what_others_have)
{
        uint32_t cached, mine[N_PAGES], n, page;

        cached = publish_by_other(w, 2);
        assert_int_equal(announce(w, 0, N_PAGES, &n, &page), KVL_STATUS_DUPLICATE);
        assert_int_equal(n, 2);
        assert_int_equal(page, cached);
        assert_int_equal(lease_pages(w->b, N_PAGES, 1, mine, NULL), 0);
        assert_int_equal(announce_pages(w->b, mine, w->keys, N_PAGES, &n, &page, &w->f.d),
                KVL_STATUS_PENDING);
        assert_int_equal(n, 0);
        assert_int_equal(page, w->pages[0]);
        assert_non_null(strstr(w->f.d.text, "wait for it"));
        assert_int_equal(w->f.store.counters.announces_pending, 1);
        assert_int_equal(announce_pages(w->b, mine, key(w, 3), 1, &n, &page, NULL), 0);
        assert_int_equal(n, 1);
}

ANNOUNCE_SCENE(test_what_cannot_be_announced)
{
        uint32_t n, page = 0, far = 1000000, theirs, ready;

        assert_int_equal(announce_pages(w->a, &far, w->keys, 1, &n, &page, &w->f.d), -EINVAL);
        assert_non_null(strstr(w->f.d.text, "page 1000000"));
        assert_int_equal(lease_pages(w->b, 1, 1, &theirs, NULL), 0);
        assert_int_equal(announce_pages(w->a, &theirs, w->keys, 1, &n, &page, &w->f.d), -EINVAL);
        assert_non_null(strstr(w->f.d.text, "another group"));
        assert_int_equal(announce(w, 0, 1, &n, &page), 0);
        assert_int_equal(announce_pages(w->a, w->pages, key(w, 1), 1, &n, &page, &w->f.d), -EINVAL);
        assert_non_null(strstr(w->f.d.text, "announced already"));
        assert_int_equal(announce_state(w->a, key(w, 1), NULL), KVL_STATUS_MISS);
        assert_int_equal(attach_share(w->a, NULL), 0);
        assert_true(magazine_refill(w->a, 1, 1));
        ready = w->a->share.magazine[0] - 1;
        assert_true(ns_page(w->a->ns, ready)->ready);
        assert_int_equal(announce_pages(w->a, &ready, key(w, 1), 1, &n, &page, &w->f.d), -EINVAL);
        assert_non_null(strstr(w->f.d.text, "magazine"));
        assert_int_equal(n, 0);
}

ANNOUNCE_SCENE(test_stale_is_not_announced)
{
        struct ns_layout l = test_layout();
        struct attach *newer;
        uint32_t n, page;
        uint64_t gone;

        assert_int_equal(ns_invalidate(w->a->ns, CAUSE_NAMESPACE, &gone), 0);
        assert_int_equal(announce(w, 0, 1, &n, &page), KVL_STATUS_STALE);
        assert_non_null(strstr(w->f.d.text, "before namespace x was invalidated"));
        attach_close(w->b);
        strcpy(l.version, "v2");
        assert_int_equal(attach_open(w->other, "x", &l, "", false, &newer, NULL), 0);
        assert_int_equal(announce(w, 0, 1, &n, &page), KVL_STATUS_STALE);
        assert_int_equal(announce_state(w->a, w->keys, NULL), KVL_STATUS_STALE);
        assert_int_equal(announce_state(newer, w->keys, NULL), KVL_STATUS_MISS);
}

TEST(test_its_own_way_to_another_key)
{
        struct world w;
        uint32_t got;

        start(&w);
        announce_all(&w);
        assert_int_equal(publish(w.a, w.pages[0], key(&w, 1), &got), 0);
        assert_int_equal(got, w.pages[0]);
        assert_int_equal(announce_state(w.b, key(&w, 0), NULL), KVL_STATUS_MISS);
        assert_int_equal(announce_state(w.b, key(&w, 1), NULL), 0);
        /* That was reserved for another page. */
        assert_int_equal(shown(&w, w.pages[1]), PAGE_FREE);
        assert_int_equal(ns_page(w.a->ns, w.pages[1])->state, PAGE_GRANTED);
        assert_int_equal(w.n_ends, 2);
        end(&w);
}

ANNOUNCE_SCENE(test_somebody_else_publishes)
{
        uint32_t theirs, got;
        uint64_t before;

        announce_all(w);
        before = w->a->ns->shared.n_indexed;
        theirs = publish_by_other(w, 0);
        assert_int_equal(w->a->ns->shared.n_indexed, before); /* the same slot */
        fixture_check(&w->f);
        assert_int_equal(ns_find_page(w->a->ns, w->keys), theirs);
        assert_int_equal(shown(w, w->pages[0]), PAGE_FREE);
        assert_int_equal(w->n_ends, 1);
        assert_int_equal(publish(w->a, w->pages[0], w->keys, &got), KVL_STATUS_DUPLICATE);
        assert_int_equal(got, theirs);
        assert_int_equal(free_pages(w->a, w->pages, N_PAGES, NULL), 0);
        assert_int_equal(w->n_ends, N_PAGES);
}

/* In the place of an announced page, though the index is full there. */
TEST(test_no_slot)
{
        uint32_t pages[18], n, page, got, home;
        uint8_t keys[18 * KEY_BYTES], k[KEY_BYTES];
        struct world w;
        const struct shared *s;

        start(&w);
        s = &w.a->ns->shared;
        home = shm_bucket_index(shared_hash(s, w.keys), s->n_buckets, 0);
        for (unsigned i = 100, have = 0; have < 18; i++) {
                make_keys(k, i, 1);
                if (shm_bucket_index(shared_hash(s, k), s->n_buckets, 0) == home)
                        memcpy(keys + have++ * KEY_BYTES, k, KEY_BYTES);
        }
        assert_int_equal(lease_pages(w.a, 18, 1, pages, &w.f.d), 0);
        assert_int_equal(announce_pages(w.a, pages, keys, 18, &n, &page, &w.f.d), -ENOSPC);
        assert_int_equal(n, 16);
        assert_non_null(strstr(w.f.d.text, "no slot left"));
        assert_int_equal(shown(&w, pages[16]), PAGE_FREE);
        fixture_check(&w.f);
        /* Announced pages keep their slots; another published page gets none. */
        assert_int_equal(publish(w.a, pages[17], keys + 17 * KEY_BYTES, &got), 0);
        assert_int_equal(ns_page(w.a->ns, got)->state, PAGE_DETACHED);
        assert_int_equal(publish(w.a, pages[3], keys + 3 * KEY_BYTES, &got), 0);
        assert_int_equal(ns_page(w.a->ns, got)->state, PAGE_SEALED);
        end(&w);
}

/* A page that continues one without a slot can't be found either. */
TEST(test_below_a_page_without_slot)
{
        uint32_t pages[SET_PAGES], got, n, page, far = SET_PAGES - 1;
        struct publish_one o = {.tokens = PAGE_TOKENS};
        struct world w;

        start(&w);
        assert_int_equal(attach_share(w.b, NULL), 0);
        assert_int_equal(lease_pages(w.b, SET_PAGES, 1, pages, NULL), 0);
        assert_ptr_not_equal(ns_set_of(w.b->ns, pages[0]), ns_set_of(w.b->ns, pages[far]));
        assert_int_equal(announce_pages(w.b, pages + far, key(&w, 1), 1, &n, &page, NULL), 0);
        recall_set(ns_set_of(w.b->ns, pages[0]), RECALL_FORCED);
        assert_int_equal(announce_pages(w.b, pages, w.keys, 1, &n, &page, &w.f.d), -ENOSPC);
        assert_non_null(strstr(w.f.d.text, "taken back"));
        assert_int_equal(publish(w.b, pages[0], w.keys, &got), 0);
        assert_true(ns_page(w.b->ns, got)->unindexed);
        assert_int_equal(w.n_ends, 0);
        o.page = pages[far];
        o.key = key(&w, 1);
        o.parent = got;
        pins_add(&w.b->share, o.page);
        assert_int_equal(publish_shared(w.b, &o, 1, &page, NULL), 0);
        assert_int_equal(ns_page(w.b->ns, o.page)->state, PAGE_DETACHED);
        assert_int_equal(announce_state(w.a, o.key, NULL), KVL_STATUS_MISS);
        assert_int_equal(w.n_ends, 1);
        end(&w);
}

/* A mate that has given a page back to a group with a dead member: it stays GRANTED. */
ANNOUNCE_SCENE(test_given_back)
{
        struct extent_handle handle;
        struct member *mate;
        struct attach *a;

        announce_all(w);
        assert_int_equal(member_new(w->f.a, w->m->group->token, false, &mate, NULL), 0);
        a = open_ns(mate, "x");
        assert_int_equal(attach_map_set(a, 0, 0, 1, &handle, NULL), 1);
        member_linger(mate);
        assert_int_equal(free_pages(w->a, w->pages, 1, NULL), 0);
        assert_true(ns_page(w->a->ns, w->pages[0])->given_back);
        assert_int_equal(announce_state(w->b, w->keys, NULL), KVL_STATUS_MISS);
}

/* A reader that saw the word before must not mistake the later one for it. */
ANNOUNCE_SCENE(test_word_does_not_come_back)
{
        uint64_t first, second;
        uint32_t n, page;

        assert_int_equal(announce(w, 0, 1, &n, &page), 0);
        first = word(w, w->pages[0]);
        (void)publish_by_other(w, 0);
        assert_int_equal(announce_pages(w->a, w->pages, key(w, 1), 1, &n, &page, NULL), 0);
        second = word(w, w->pages[0]);
        assert_int_equal(second & 0xff, PAGE_PENDING);
        assert_int_not_equal(first, second);
}

/* ---- the checker ---------------------------------------------------------------------------- */

static void expect_broken(struct world *w, const char *why)
{
        uint64_t n_pages, n_sets;

        assert_int_equal(store_check(&w->f.store, &n_pages, &n_sets, &w->f.d), -EUCLEAN);
        if (!strstr(w->f.d.text, why))
                fail_msg("%s, not %s", w->f.d.text, why);
}

#define BREAK(w, lvalue, value, why)               \
        do {                                       \
                __typeof__(lvalue) was = lvalue;   \
                                                   \
                lvalue = (__typeof__(was))(value); \
                expect_broken(w, why);             \
                lvalue = was;                      \
        } while (0)

TEST(test_checker)
{
        struct page_extra *extra;
        struct page *p;
        struct world w;

        start(&w);
        announce_all(&w);
        p = ns_page(w.a->ns, w.pages[0]);
        extra = ns_make_extra(w.a->ns, w.pages[0]);
        {
                uint16_t was = p->announced;

                p->announced = 0;
                expect_broken(&w, "shown in a state it isn't in");
                p->announced = was;
        }
        BREAK(&w, p->key[3], 77, "has no slot");
        BREAK(&w, extra->announcer, 9999, "announced by nobody");
        BREAK(&w, ns_make_extra(w.a->ns, w.pages[1])->announced_next, 0,
                "counts its announced pages wrong");
        BREAK(&w, extra->announced_prev, 3, "neighbours disagree");
        BREAK(&w, ns_set_of(w.a->ns, w.pages[0])->first_announced, 0, "set without announced");
        BREAK(&w, w.a->ns->catalog.announced.n, 3, "count of announced pages");
        BREAK(&w, w.m->is_over, true, "can't publish it");
        BREAK(&w, w.a->ns->shared.lines[w.pages[0]].state, 0, "another state");
        BREAK(&w, w.a->ns->shared.lines[w.pages[0]].key[3], 77, "another key");
        end(&w);
}
