/* Sessions that were truncated, on top of session-fixture.h. */
#ifndef KVL_TESTS_SESSION_WINDOW_FIXTURE_H
#define KVL_TESTS_SESSION_WINDOW_FIXTURE_H

#include "daemon/core/life/leave.h"
#include "tests/unit/session-fixture.h"

struct bench {
        struct fixture f;
        struct member *m;
        struct attach *a;
        struct ns *ns;
};

static inline void begin(struct bench *w, unsigned budget, unsigned limit_a, unsigned limit_b)
{
        fixture_start(&w->f, budget, limit_a, limit_b);
        w->m = join(w->f.a);
        w->a = open_ns(w->m, "x");
        w->ns = w->a->ns;
}

static inline void end(struct bench *w)
{
        fixture_check(&w->f);
        member_free(w->m);
        fixture_end(&w->f);
}

/* A session whose text is `first`.. of n pages, of which the first and the last `keep` are left. */
static inline uint32_t truncated(
        struct bench *w, const char *id, unsigned first, unsigned n, unsigned keep)
{
        uint32_t s = open_session(w->a, id);

        append(w->a, s, ROOT, first, n);
        truncate_pages(w->a, s, keep, keep, n - 2 * keep);
        fixture_check(&w->f);
        return s;
}

#define SESSION_WINDOW_SCENE(fn, ...) TEST_ON(fn, struct bench, w, begin, end, ##__VA_ARGS__)

#endif
