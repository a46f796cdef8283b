#include "policy/pgi-run.h"

#include <stddef.h>

static struct pgi_run *set_of(struct pgi_run runs[PGI_RUNS], uint64_t request)
{
        uint64_t spread = (request * UINT64_C(0x9e3779b97f4a7c15)) >> 32;

        return &runs[spread % (PGI_RUNS / PGI_RUN_WAYS) * PGI_RUN_WAYS];
}

struct pgi_run *pgi_run_find(struct pgi_run runs[PGI_RUNS], uint64_t request)
{
        struct pgi_run *set = set_of(runs, request);

        for (uint32_t i = 0; request != 0 && i < PGI_RUN_WAYS; i++)
                if (set[i].request == request)
                        return &set[i];
        return NULL;
}

struct pgi_run *pgi_run_begin(struct pgi_run runs[PGI_RUNS], uint64_t request, uint32_t now,
        uint32_t lru_base, struct pgi_run *ret_dropped)
{
        struct pgi_run *set = set_of(runs, request), *place = set;

        for (uint32_t i = 0; i < PGI_RUN_WAYS; i++)
                if (place->request != 0 && (set[i].request == 0 || set[i].began < place->began))
                        place = &set[i];
        *ret_dropped = *place;
        *place =
                (struct pgi_run){.request = request, .began = now, .lru_base = lru_base, .turn = 1};
        return place;
}

void pgi_run_moved(struct pgi_run runs[PGI_RUNS], uint32_t tag, uint32_t page, uint32_t to)
{
        for (uint32_t i = 0; i < PGI_RUNS; i++) {
                if (runs[i].page == page && runs[i].tag == tag)
                        runs[i].page = to;
                if (runs[i].found_1 == page + 1 && runs[i].found_tag == tag)
                        runs[i].found_1 = to + 1;
        }
}
