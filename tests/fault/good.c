#include "tests/fault/good.h"

#define GRANTED_SEED 77

void good_start(struct good *g, struct harness *h, const char *tenant)
{
        g->worker = worker_start(h, tenant, "good", 1);
        g->n_rounds = 0;
        worker_publish_chain(g->worker, 1, 4, g->pages);
        worker_tell(g->worker, "lease 1");
        assert_int_equal(worker_numbers(g->worker, &g->granted, 1), 1);
        worker_tell(g->worker, "fill %u %u", g->granted, GRANTED_SEED);
}

void good_round(struct good *g)
{
        unsigned chain = 100 + g->n_rounds++;
        struct worker *w = g->worker;
        uint32_t found[4], page;

        worker_tell(w, "lookup 1:0-3");
        assert_int_equal(worker_numbers(w, found, 4), 4);
        assert_memory_equal(found, g->pages, sizeof(found));
        for (unsigned i = 0; i < 4; ++i)
                worker_tell(w, "verify %u %u", found[i], 1000 + i);
        worker_tell(w, "verify %u %u", g->granted, GRANTED_SEED);
        worker_tell(w, "release %u %u %u %u", found[0], found[1], found[2], found[3]);
        worker_publish_chain(w, chain, 1, &page);
        worker_tell(w, "lookup %u:0", chain);
        worker_tell(w, "verify %u %u", page, 1000 * chain);
        worker_tell(w, "release %u %u", page, page);
}

void good_stop(struct good *g)
{
        good_round(g);
        worker_tell(g->worker, "free %u", g->granted);
        worker_stop(g->worker);
}
