/* Two groups and one namespace, in which the first announces pages
 * (daemon/core/clients/announce.h): on top of core-fixture.h. */
#ifndef KVL_TESTS_ANNOUNCE_FIXTURE_H
#define KVL_TESTS_ANNOUNCE_FIXTURE_H

#include "daemon/core/clients/announce.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/reclaim/recall.h"
#include "tests/unit/core-fixture.h"

#define N_PAGES 4

struct world {
        struct fixture f;
        struct member *m, *other;
        struct attach *a, *b; /* of these, of one namespace; not of one group */
        uint8_t keys[N_PAGES * KEY_BYTES];
        uint32_t pages[N_PAGES]; /* granted to m's group */
        unsigned n_ends;
        uint8_t last_key[KEY_BYTES];
};

/* For store.owner.on_announce_end. */
static inline void note_end(struct ns *ns, const uint8_t key[KEY_BYTES], void *data)
{
        struct world *w = container_of((struct fixture *)data, struct world, f);

        w->n_ends++;
        memcpy(w->last_key, key, KEY_BYTES);
}

static inline void start(struct world *w)
{
        *w = (struct world){0};
        fixture_start(&w->f, 8, 4, 4);
        w->f.store.owner.on_announce_end = note_end;
        w->m = join(w->f.a);
        w->other = join(w->f.a);
        w->a = open_ns(w->m, "x");
        w->b = open_ns(w->other, "x");
        make_keys(w->keys, 0, N_PAGES);
        assert_int_equal(lease_pages(w->a, N_PAGES, 1, w->pages, NULL), 0);
}

static inline void end(struct world *w)
{
        fixture_check(&w->f);
        if (w->m)
                member_free(w->m);
        if (w->other)
                member_free(w->other);
        fixture_end(&w->f);
}

/* The i-th of its keys. */
static inline const uint8_t *key(const struct world *w, unsigned i)
{
        return w->keys + i * KEY_BYTES;
}

/* Announces pages[first..], with the keys of the same indices. */
static inline int announce(
        struct world *w, unsigned first, unsigned n, uint32_t *ret_n, uint32_t *ret_page)
{
        int r = announce_pages(w->a, w->pages + first, key(w, first), n, ret_n, ret_page, &w->f.d);

        fixture_check(&w->f);
        return r;
}

static inline void announce_all(struct world *w)
{
        uint32_t n, page;

        assert_int_equal(announce(w, 0, N_PAGES, &n, &page), 0);
        assert_int_equal(n, N_PAGES);
}

/* The page's state word, as readers in shared memory see it. */
static inline uint64_t word(const struct world *w, uint32_t page)
{
        return w->a->ns->shared.lines[page].state;
}

static inline enum page_state shown(const struct world *w, uint32_t page)
{
        return word(w, page) & 0xff;
}

static inline int publish(struct attach *a, uint32_t page, const uint8_t *k, uint32_t *ret_page)
{
        struct publish p = {.pages = &page, .keys = k, .n = 1, .last_tokens = PAGE_TOKENS};
        uint32_t n;

        return publish_pages(a, &p, 1, ret_page, &n, NULL);
}

/* Leased by the other group, published under the key. */
static inline uint32_t publish_by_other(struct world *w, unsigned i)
{
        uint32_t page, got;

        assert_int_equal(lease_pages(w->b, 1, 1, &page, NULL), 0);
        assert_int_equal(publish(w->b, page, key(w, i), &got), 0);
        assert_int_equal(got, page);
        return page;
}

#define ANNOUNCE_SCENE(fn, ...) TEST_ON(fn, struct world, w, start, end, ##__VA_ARGS__)

#endif
