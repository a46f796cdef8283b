/*
 * The idle leaves of the cache by class and by when they were last used: what victims are chosen
 * from. PURE. Not thread-safe.
 *
 * Time is cut into at most PGI_INTERVALS intervals, a second or more each. For the next one, the
 * two neighbours become one whose joint age is told apart least by that: intervals grow with age,
 * as the bins of hazard do. Each class has a list for each interval, so that linking, unlinking and
 * finding the oldest and the youngest of a class cost a few steps, whatever becomes a leaf when.
 * Within a list: in the order of use, as far as merging and parents that become leaves allow.
 */
#ifndef KVL_POLICY_PGI_LIST_H
#define KVL_POLICY_PGI_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/pgi-table.h"

/* As many as a word has bits: about five an octave of age in a cache that goes back an hour. */
#define PGI_INTERVALS UINT32_C(64)

/* Of a cached page, by its index: 32 bytes. All zero: not cached. */
struct pgi_page {
        uint64_t id;
        uint32_t prev_1, next_1; /* page plus one, in its list; 0: the end, or in none */
        uint32_t touched;        /* ticks. What a use changes: these 16 bytes, in one cache line */
        uint32_t stamp;          /* of pgi-lru.h */
        uint32_t depth : 28;     /* pages of its text, itself included; 0: not cached */
        uint32_t hint : 4;       /* of the text that ends here; pgi.c */
        uint16_t accesses;       /* saturates */
        uint8_t class;
        uint8_t turn : 3;   /* of the last request that ended here; 0: none did */
        uint8_t kids : 2;   /* different continuations that were seen; saturates */
        uint8_t held : 1;   /* in no list */
        uint8_t linked : 1; /* in the list of its class and time */
};

struct pgi_heads {
        uint32_t first_1, last_1; /* page plus one */
};

struct pgi_lists {
        struct pgi_heads *heads;       /* owned; [class * PGI_INTERVALS + interval]; 84 KiB */
        uint64_t used[PGI_CLASSES];    /* bit: the interval's list has something */
        uint32_t start[PGI_INTERVALS]; /* ticks, ascending */
        uint32_t n;
};

int pgi_lists_init(struct pgi_lists *l); /* 0 or -ENOMEM */
void pgi_lists_deinit(struct pgi_lists *l);
uint64_t pgi_lists_bytes(void);
/* Empty again. Can't fail. */
void pgi_lists_clear(struct pgi_lists *l);

/* A new interval from now on, where the last one has begun long enough ago. Returns true where
 * intervals have other numbers since. */
bool pgi_lists_advance(struct pgi_lists *l, struct pgi_page *pages, uint32_t now);

/* Which has this time. There is one. */
uint32_t pgi_interval_of(const struct pgi_lists *l, uint32_t touched);

/* In which interval it is linked: as the last in use; or, where the first isn't older, the first.
 */
uint32_t pgi_link_used(struct pgi_lists *l, struct pgi_page *pages, uint32_t page);
uint32_t pgi_link_exposed(struct pgi_lists *l, struct pgi_page *pages, uint32_t page);
void pgi_unlink(struct pgi_lists *l, struct pgi_page *pages, uint32_t page);
/* `to` has been copied from `page`, which is linked. */
void pgi_relink_as(struct pgi_lists *l, struct pgi_page *pages, uint32_t page, uint32_t to);

/* The first of a list that isn't empty. */
static inline uint32_t pgi_first(const struct pgi_lists *l, uint32_t class, uint32_t interval)
{
        return l->heads[class * PGI_INTERVALS + interval].first_1 - 1;
}

/* Debug: NULL, or a static sentence naming what is not. */
const char *pgi_lists_check(
        const struct pgi_lists *l, const struct pgi_page *pages, uint32_t n_pages);

#endif
