/*
 * Running requests: PGI's data about each, until its end determines the class of its pages. A fixed
 * number. If there are more, or some never end, the oldest that competes for the same place is
 * dropped, and its pages keep their class. PURE. Not thread-safe.
 */
#ifndef KVL_POLICY_PGI_RUN_H
#define KVL_POLICY_PGI_RUN_H

#include <stdbool.h>
#include <stdint.h>

/* Engines run tens to a few hundred at a time. */
#define PGI_RUNS     UINT32_C(1024)
#define PGI_RUN_WAYS UINT32_C(4)

struct pgi_run {
        uint64_t request;      /* 0: free */
        uint64_t fresh_tokens; /* in pages that weren't known */
        uint32_t tag;          /* pgi_page.tag of the deepest page of it so far */
        uint32_t page;         /* the deepest, while it has this tag */
        /* The page that its lookup found, plus one, and its tag. That page was used; the pages
         * above are used once the request ends. 0: none is left to be used. */
        uint32_t found_1, found_tag;
        uint32_t found_at; /* ticks: when it was found */
        uint32_t began;    /* ticks */
        uint32_t lru_base; /* of pgi-lru.h at its beginning: LRU is judged by its contents before
                              the request moved its line */
        uint16_t ending;   /* bin of PGI_ENDINGS */
        uint8_t turn;      /* 1..; 0: unknown until the pages above the found one are visited */
};

/* NULL: no such request. */
struct pgi_run *pgi_run_find(struct pgi_run runs[PGI_RUNS], uint64_t request);

/* Begins a request that isn't there, with turn 1. request isn't 0. Never NULL. *ret_dropped: the
 * one it replaced; its request is 0 if there was none. */
struct pgi_run *pgi_run_begin(struct pgi_run runs[PGI_RUNS], uint64_t request, uint32_t now,
        uint32_t lru_base, struct pgi_run *ret_dropped);

/* Updates the page with this tag after it moved. O(PGI_RUNS): moving a page costs more. */
void pgi_run_moved(struct pgi_run runs[PGI_RUNS], uint32_t tag, uint32_t page, uint32_t to);

#endif
