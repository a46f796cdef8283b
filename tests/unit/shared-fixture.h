/* A namespace whose client the test plays, in the segments it shares with the daemon. */
#ifndef KVL_TESTS_SHARED_FIXTURE_H
#define KVL_TESTS_SHARED_FIXTURE_H

#include "daemon/core/clients/attach.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/requests/submit.h"
#include "tests/unit/core-fixture.h"

struct world {
        struct fixture f;
        struct member *m;
        struct attach *a;
        struct ns *ns;
        struct submit_chain chain;
        uint64_t now_nsec;
};

static inline void start(struct world *w, unsigned sets)
{
        *w = (struct world){0};
        fixture_start(&w->f, sets, sets, sets);
        w->m = join(w->f.a);
        w->a = open_ns(w->m, "x");
        w->ns = w->a->ns;
        assert_int_equal(attach_share(w->a, NULL), 0);
}

static inline void end(struct world *w)
{
        fixture_check(&w->f);
        member_free(w->m);
        fixture_end(&w->f);
}

static inline struct submit_result submit(struct world *w, struct shm_submission s)
{
        struct submit_result result;

        if (s.ns_id == 0)
                s.ns_id = w->a->id;
        submit_one(w->m, &w->chain, &s, ++w->now_nsec, &result);
        fixture_check(&w->f);
        return result;
}

static inline void pin(struct world *w, uint32_t page)
{
        w->a->share.counters[page]++;
}

static inline void unpin(struct world *w, uint32_t page)
{
        w->a->share.counters[page]--;
}

static inline uint32_t pins(const struct world *w, uint32_t page)
{
        return w->a->share.counters[page];
}

static inline struct shm_submission publishing(uint32_t page, unsigned key, unsigned flags)
{
        struct shm_submission s = {
                .op = SHM_OP_PUBLISH, .flags = (uint8_t)flags, .tokens = PAGE_TOKENS, .page = page};

        make_keys(s.key, key, 1);
        return s;
}

static inline uint32_t lease_one(struct world *w)
{
        uint32_t page;

        assert_int_equal(lease_pages(w->a, 1, 1, &page, NULL), 0);
        return page;
}

/* Publishes as a client does: pinned first. Returns the page, still pinned. */
static inline uint32_t publish_root(struct world *w, unsigned key)
{
        uint32_t page = lease_one(w);
        struct submit_result r;

        pin(w, page);
        r = submit(w, publishing(page, key, SHM_PUBLISH_ROOT));
        assert_null(r.violation);
        assert_true(r.completes);
        assert_int_equal(r.status, 0);
        assert_int_equal(r.page, page);
        return page;
}

static inline enum page_state shown(const struct world *w, uint32_t page)
{
        return (enum page_state)(w->ns->shared.lines[page].state & 0xff);
}

/* Does a client find the key in the segment, as proto/shm.h says it should look? */
static inline uint32_t seen(const struct world *w, unsigned key)
{
        const struct shared *s = &w->ns->shared;
        uint8_t bytes[KEY_BYTES];
        uint64_t hash;

        make_keys(bytes, key, 1);
        hash = hash_digest((struct hash_seed){s->header->seed[0], s->header->seed[1]}, bytes);
        for (unsigned i = 0; i < 16; i++) {
                uint64_t slot = s->buckets[shm_bucket_index(hash, s->header->n_buckets, i / 8)]
                                        .slots[i % 8];
                const struct shm_line *line = &s->lines[(uint32_t)slot - 1];

                if (slot >> 32 == hash >> 32 && (uint32_t)slot != 0 &&
                        (line->state & 0xff) == PAGE_SEALED &&
                        memcmp(line->key, bytes, KEY_BYTES) == 0 && line->epoch == s->header->epoch)
                        return (uint32_t)slot - 1;
        }
        return PAGE_NONE;
}

#define SHARED_SCENE(fn, ...) TEST_ON(fn, struct world, w, start, end, ##__VA_ARGS__)

#endif
