/* daemon/core: leases of pages with consecutive numbers. */
#include "daemon/core/clients/grants.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/run.h"
#include "tests/unit/core-fixture.h"

#define ALL (8 * SET_PAGES)

struct world {
        struct fixture f;
        struct member *m;
        struct attach *a;
        uint32_t pages[ALL];
        struct lease_result result;
};

/* A device of 8 sets, and a tenant that may have `limit` of them. */
static void start(struct world *w, unsigned limit)
{
        *w = (struct world){0};
        fixture_start(&w->f, 8, limit, 8);
        w->m = join(w->f.a);
        w->a = open_ns(w->m, "x");
}

static void end(struct world *w)
{
        member_free(w->m);
        fixture_end(&w->f);
}

#define SCENE(fn, ...) TEST_ON(fn, struct world, w, start, end, ##__VA_ARGS__)

static int ask(struct world *w, uint32_t n, uint32_t min, enum lease_how how)
{
        const struct lease_request rq = {
                .n = n, .min = min, .max_wait_nsec = UINT64_MAX, .how = how};
        int r = lease_ask(w->a, &rq, 1, w->pages, &w->result, &w->f.d);

        fixture_check(&w->f);
        return r;
}

static void give_back(struct world *w, const uint32_t *pages, uint32_t n)
{
        assert_int_equal(free_pages(w->a, pages, n, &w->f.d), 0);
        fixture_check(&w->f);
}

/* All of the limit is leased, but for what `is_free` names: pages 0 to n - 1. */
static void fragment(struct world *w, uint32_t n, const char *is_free)
{
        assert_int_equal(ask(w, n, n, LEASE_ANY), 0);
        for (uint32_t i = 0; is_free[i]; i++)
                if (is_free[i] == '.')
                        give_back(w, &i, 1);
}

static void assert_run(const struct world *w, uint32_t first, uint32_t n)
{
        assert_int_equal(w->result.n, n);
        for (uint32_t i = 0; i < n; i++)
                assert_int_equal(w->pages[i], first + i);
}

SCENE(test_refused, 2)
{
        fragment(w, 2 * SET_PAGES, "..x.x.xxx...xxxx");
        assert_int_equal(ask(w, 4, 2, LEASE_RUN), KVL_STATUS_FULL);
        assert_int_equal(w->result.reason, LEASE_REASON_NO_RUN);
        assert_non_null(strstr(w->f.d.text, "of the 7 free pages of namespace x at most 3 have"));
        assert_int_equal(w->f.a->counters.by_reason[LEASE_REASON_NO_RUN], 1);
        /* By number there aren't enough: refused like any. */
        assert_int_equal(ask(w, 8, 8, LEASE_RUN), KVL_STATUS_QUOTA);
        assert_int_equal(w->result.reason, LEASE_REASON_QUOTA);
        assert_int_equal(ask(w, 4, 4, (enum lease_how)3), -EINVAL);
        assert_int_equal(ask(w, 7, 7, LEASE_ANY), 0);
}

SCENE(test_degraded, 2)
{
        struct tenant_attrs attrs;

        attrs = w->f.a->attrs;
        attrs.when_full = WHEN_FULL_DEGRADE;
        assert_int_equal(tenant_set_attrs(w->f.a, &attrs, &w->f.d), 0);
        fragment(w, 2 * SET_PAGES, "..x.x.xxx...xxxx");
        assert_int_equal(ask(w, 6, 2, LEASE_RUN), 0);
        assert_run(w, 9, 3);
        assert_int_equal(w->result.reason, LEASE_REASON_DEGRADED);
        assert_int_equal(ask(w, 9, 2, LEASE_RUN), 0); /* more than are free */
        assert_run(w, 0, 2);
        assert_int_equal(ask(w, 6, 2, LEASE_RUN), KVL_STATUS_QUOTA);
}

SCENE(test_preferred, 3)
{
        static const uint32_t longest[] = {1, 2, 3, 4, 8, 9, 10, 11, 14, 15};

        fragment(w, 3 * SET_PAGES, "x....x.x....x.xx..x.x.xx");
        /* One run where there is one. */
        assert_int_equal(ask(w, 2, 2, LEASE_RUNS), 0);
        assert_run(w, 16, 2);
        give_back(w, w->pages, 2);
        /* The two of four, and of the shorter ones the next. */
        assert_int_equal(ask(w, 10, 10, LEASE_RUNS), 0);
        assert_memory_equal(w->pages, longest, 8 * sizeof(*longest));
        assert_true(w->pages[8] == 16 && w->pages[9] == 17);
        give_back(w, w->pages, 10);
        /* All there is. */
        assert_int_equal(ask(w, 14, 14, LEASE_RUNS), 0);
        assert_int_equal(ns_n_room(w->a->ns), 0);
}

/* A search begins where the one before it was cut off, and goes through all the same. */
SCENE(test_begins_elsewhere, 8)
{
        struct run run;
        struct ns *ns;

        ns = w->a->ns;
        assert_int_equal(ask(w, 3 * SET_PAGES, 1, LEASE_RUN), 0);
        for (uint32_t i = 1; i < 3 * SET_PAGES - 1; i++)
                if (i != SET_PAGES)
                        give_back(w, &i, 1);
        for (uint32_t slot = 0; slot < 8; slot++) {
                ns->sets.run_slot = slot;
                assert_true(run_find(ns, SET_PAGES - 1, &run));
                assert_int_equal(run.n, SET_PAGES - 1);
                assert_int_equal(ns->sets.run_slot, 0);
        }
        /* But a run isn't put together over the place. */
        assert_true(run_find(ns, 2 * SET_PAGES - 2, &run));
        ns->sets.run_slot = 2;
        assert_false(run_find(ns, 2 * SET_PAGES - 2, &run));
}

/* Random changes of the list and the bitmap, which fixture_check() compares. */
SCENE(test_random, 6)
{
        uint32_t held[ALL], n_held = 0;
        uint64_t random = 88172645463325252u;

        for (unsigned i = 0; i < 3000; i++) {
                uint32_t n;

                random ^= random << 13, random ^= random >> 7, random ^= random << 17;
                n = 1 + random % 11;
                if (random >> 32 & 1 && n_held > 0) {
                        uint32_t at = (uint32_t)(random >> 40) % n_held;

                        give_back(w, &held[at], 1);
                        held[at] = held[--n_held];
                        continue;
                }
                if (ask(w, n, n, (enum lease_how)(random >> 33) % 3) != 0)
                        continue;
                for (uint32_t k = 1; k < n && (random >> 33) % 3 == LEASE_RUN; k++)
                        assert_int_equal(w->pages[k], w->pages[0] + k);
                memcpy(held + n_held, w->pages, n * sizeof(*held));
                n_held += n;
        }
        assert_true(n_held > 0);
}
