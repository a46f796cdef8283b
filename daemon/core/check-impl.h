/*
 * Declarations that the checker's files share: check-steps.c (order, slices, and what clients hold)
 * and check.c (all other checks).
 */
#ifndef KVL_CORE_CHECK_IMPL_H
#define KVL_CORE_CHECK_IMPL_H

#include <errno.h>
#include <stdint.h>

#include "daemon/core/state/detail.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/shared.h"

struct attach;
struct ns;
struct store;

#define BROKEN(d, ...) detail_set(d, -EUCLEAN, __VA_ARGS__)

/* Pages that are looked at before the looks are counted again. */
#define CHECK_RUN_PAGES 256u

struct checker {
        struct store *store;
        struct ns_walk walk;
        struct ns *ns; /* being checked */
        unsigned step; /* of that namespace */
        uint32_t at;   /* where the step continues */
        struct shared_walk slots;
        uint64_t last_id;               /* last namespace id at the beginning */
        uint64_t n_freed;               /* of the walk, at this namespace's first step */
        uint32_t pins[CHECK_RUN_PAGES]; /* of a run of its pages, summed over attachments */
        bool is_complete;               /* all namespaces were checked */
        uint64_t n_pages, n_sets;
        struct detail *d; /* the present call's */
};

static inline unsigned long long llu(uint64_t value)
{
        return value;
}

/* Returns 0; -EUCLEAN with the sentence: `what` of `name` has the wrong size. */
int check_expect(
        struct checker *c, const char *what, const char *name, uint64_t is, uint64_t should_be);

/* Returns -EUCLEAN with a sentence about this page. */
int check_page_broken(const struct checker *c, uint32_t page, const char *why);

/* The first checks a set with its free list; the second the lists of sets, without their contents.
 * Return 0 or -EUCLEAN. */
int check_set(struct checker *c, const struct extent_set *set);
int check_lists(struct checker *c);

/* Checks a bound page that clients have pinned so often. Returns NULL, or a description of an
 * error. */
const char *check_page(const struct checker *c, uint32_t page, uint32_t pins);

/* Check the counts of all pages of the namespace; the slots of its index; its watched pages. Return
 * 0 or -EUCLEAN. */
int check_counts(struct checker *c);
int check_slots(struct checker *c);
int check_watched(struct checker *c);

/* Checks the state outside of namespaces, and sums over them. Returns 0 or -EUCLEAN. */
int check_rest(struct checker *c);

#endif
