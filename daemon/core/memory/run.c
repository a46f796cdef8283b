#include "daemon/core/memory/run.h"

#include "base/macros.h"

/* Classes of runs by length: from 2^i pages up to less than twice that. */
#define CLASSES 32

/* Called with each run of a walk. Returns false to end the walk. */
typedef bool (*run_fn)(struct run run, void *data);

struct walk {
        run_fn fn;
        void *data;
        struct run run; /* may continue; n 0: none */
        uint32_t n_looks;
        bool is_over;
};

uint32_t run_count_marks(const struct extent_set *set)
{
        uint32_t n = 0;

        for (size_t i = 0; i < run_words(set->ns->geometry.set_pages); i++)
                n += (uint32_t)__builtin_popcountll(set->free_bits[i]);
        return n;
}

/* Returns the first page of the set from place `at` on that is (or isn't) FREE; n: none. */
static uint32_t next_place(const struct extent_set *set, uint32_t at, uint32_t n, bool is_free)
{
        while (at < n) {
                uint64_t word = set->free_bits[at / 64];

                word = (is_free ? word : ~word) >> at % 64;
                if (word != 0)
                        return MIN(at + (uint32_t)__builtin_ctzll(word), n);
                at = (at / 64 + 1) * 64;
        }
        return n;
}

/* Ends the present run. */
static void end_run(struct walk *w)
{
        if (w->run.n > 0 && !w->is_over)
                w->is_over = !w->fn(w->run, w->data);
        w->run.n = 0;
}

static void add_to_walk(struct walk *w, uint32_t first, uint32_t n)
{
        if (w->run.n > 0 && w->run.first + w->run.n == first) {
                w->run.n += n;
                return;
        }
        end_run(w);
        w->run = (struct run){first, n};
        w->n_looks++;
}

static void walk_set(struct walk *w, const struct extent_set *set)
{
        uint32_t n = set->ns->geometry.set_pages, end = 0;

        if (set->n_free == n) {
                add_to_walk(w, set->index * n, n);
                return;
        }
        w->n_looks += (uint32_t)run_words(n);
        while (!w->is_over) {
                uint32_t begin = next_place(set, end, n, true);

                if (begin == n)
                        return;
                end = next_place(set, begin, n, false);
                add_to_walk(w, set->index * n + begin, end - begin);
        }
}

/* Walks over all runs that can be granted, up to the limit of looks. */
static void walk_runs(struct ns *ns, run_fn fn, void *data)
{
        uint32_t n_slots = geometry_device_slots(&ns->geometry), slot = ns->sets.run_slot;
        struct walk w = {.fn = fn, .data = data};

        for (uint32_t i = 0; i < n_slots && !w.is_over && w.n_looks < RUN_LOOK_MAX; i++) {
                const struct extent_set *set = ns->sets.at[slot];

                if (set && set->n_free > 0 && set->recall.state == RECALL_NONE)
                        walk_set(&w, set);
                w.n_looks++;
                slot = slot + 1 < n_slots ? slot + 1 : 0;
        }
        end_run(&w);
        ns->sets.run_slot = w.n_looks < RUN_LOOK_MAX ? 0 : slot;
}

struct search {
        uint32_t n;
        struct run best, longest;
        uint64_t n_pages[CLASSES]; /* pages in runs of each class */
};

static unsigned class_of(uint32_t n)
{
        return 31 - (unsigned)__builtin_clz(n);
}

static bool weigh_run(struct run run, void *data)
{
        struct search *s = data;

        if (run.n >= s->n && (s->best.n == 0 || run.n < s->best.n))
                s->best = run;
        if (run.n > s->longest.n)
                s->longest = run;
        s->n_pages[class_of(run.n)] += run.n;
        return s->best.n != s->n;
}

bool run_find(struct ns *ns, uint32_t n, struct run *ret)
{
        struct search s = {.n = n};

        walk_runs(ns, weigh_run, &s);
        *ret = s.best.n > 0 ? s.best : s.longest;
        return s.best.n > 0;
}

struct pick {
        uint32_t *pages, n_picked;
        unsigned least;    /* all runs of longer classes are picked */
        uint64_t n_longer; /* pages that these still need */
        uint32_t n_least;  /* pages needed of this class */
};

static bool take_run(struct run run, void *data)
{
        struct pick *p = data;
        bool is_least = class_of(run.n) == p->least;
        uint64_t most = is_least ? p->n_least : p->n_longer;
        uint32_t n = (uint32_t)MIN((uint64_t)run.n, most);

        if (class_of(run.n) < p->least)
                return true;
        for (uint32_t i = 0; i < n; i++)
                p->pages[p->n_picked++] = run.first + i;
        if (is_least)
                p->n_least -= n;
        else
                p->n_longer -= n;
        return p->n_least > 0 || p->n_longer > 0;
}

uint32_t run_pick(struct ns *ns, uint32_t n, uint32_t *ret_pages)
{
        struct search s = {.n = n};
        struct pick p = {.pages = ret_pages, .least = CLASSES};
        uint32_t slot = ns->sets.run_slot;

        walk_runs(ns, weigh_run, &s);
        if (s.best.n > 0) {
                for (uint32_t i = 0; i < n; i++)
                        ret_pages[i] = s.best.first + i;
                return n;
        }
        while (p.least > 0 && p.n_longer + p.n_least < n) {
                p.n_longer += p.n_least;
                p.least--;
                p.n_least = (uint32_t)MIN(s.n_pages[p.least], n - p.n_longer);
        }
        ns->sets.run_slot = slot; /* the same runs */
        walk_runs(ns, take_run, &p);
        return p.n_picked;
}
