/* A store whose recalls can be watched, with time in the test's hands. */
#ifndef KVL_TESTS_RECALL_FIXTURE_H
#define KVL_TESTS_RECALL_FIXTURE_H

#include "base/fd.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/reclaim/recall.h"
#include "tests/unit/core-fixture.h"

#define MSEC    UINT64_C(1000000)
#define TIMEOUT (100 * MSEC) /* the default one */
#define PLENTY  100000

struct told {
        struct attach *a;
        uint32_t set;
        bool idle;
        uint64_t timeout_nsec;
};

struct world {
        struct fixture f;
        uint64_t now_nsec;
        struct told told[64];
        unsigned n_told, n_work;
        const struct attach *busy; /* can't be told */
        const struct attach *late[16];
        unsigned n_late;
};

static inline bool note_told(struct attach *a, const struct extent_set *set, bool idle,
        uint64_t timeout_nsec, void *data)
{
        struct world *w = data;

        if (a == w->busy)
                return false;
        assert_true(w->n_told < ARRAY_SIZE(w->told));
        w->told[w->n_told++] = (struct told){a, set->index, idle, timeout_nsec};
        return true;
}

static inline void note_late(struct attach *a, const struct extent_set *set, void *data)
{
        struct world *w = data;

        assert_true(w->n_late < ARRAY_SIZE(w->late));
        w->late[w->n_late++] = a;
}

static inline void note_work(void *data)
{
        ((struct world *)data)->n_work++;
}

/* Starts with `sets` sets, all of which tenant a may use. */
static inline void start(struct world *w, unsigned sets)
{
        *w = (struct world){.now_nsec = 1000};
        fixture_start(&w->f, sets, sets, sets);
        w->f.store.owner.on_pressure = NULL;
        w->f.store.owner.on_stale = NULL;
        w->f.store.owner.on_recall = note_told;
        w->f.store.owner.on_late = note_late;
        w->f.store.owner.on_recall_work = note_work;
        w->f.store.owner.data = w;
}

static inline void recall_end(struct world *w)
{
        fixture_end(&w->f);
}

/* Does all work that is due, in steps of `budget`. */
static inline enum recall_next work_in_steps(struct world *w, uint32_t budget)
{
        enum recall_next next;

        recall_poll(&w->f.store);
        do {
                next = recall_work(&w->f.store, w->now_nsec, TIMEOUT, budget);
                fixture_check(&w->f);
        } while (next == RECALL_MORE);
        return next;
}

static inline enum recall_next work(struct world *w)
{
        return work_in_steps(w, PLENTY);
}

static inline enum recall_next work_later(struct world *w, uint64_t nsec)
{
        w->now_nsec += nsec;
        return work(w);
}

static inline uint32_t recall_all(struct world *w)
{
        uint32_t n = recall_sets(w->f.a, NULL, UINT64_MAX, 0);

        fixture_check(&w->f);
        return n;
}

static inline void assert_told(const struct world *w, unsigned i, const struct attach *a,
        uint32_t set, bool idle, uint64_t timeout_nsec)
{
        assert_true(i < w->n_told);
        assert_ptr_equal(w->told[i].a, a);
        assert_int_equal(w->told[i].set, set);
        assert_int_equal(w->told[i].idle, idle);
        assert_int_equal(w->told[i].timeout_nsec, timeout_nsec);
}

static inline int map_set(struct attach *a, uint32_t set)
{
        struct extent_handle handle = {.fd = -1};
        int r = attach_map_set(a, set, 0, 1, &handle, NULL);

        fd_close(handle.fd);
        return r;
}

static inline struct member *join_group(struct tenant *t, struct member *first)
{
        struct member *m = NULL;

        assert_int_equal(member_new(t, first->group->token, false, &m, NULL), 0);
        return m;
}

static inline unsigned n_sets(const struct world *w)
{
        return w->f.device.n_extents;
}

static inline void give_back(struct world *w, struct attach *a, const uint32_t *pages, unsigned n)
{
        assert_int_equal(free_pages(a, pages, n, NULL), 0);
        fixture_check(&w->f);
}

static inline void unmap_set(struct world *w, struct attach *a, uint32_t set)
{
        assert_int_equal(attach_unmapped(a, set, NULL), 0);
        fixture_check(&w->f);
}

#define RECALL_SCENE(fn, ...) TEST_ON(fn, struct world, w, start, recall_end, ##__VA_ARGS__)

#endif
