/* What the parts of the checker share: check.c (all but), check-holders.c (who holds what), and
 * check-steps.c (in which order, and how much at once). */
#ifndef KVL_CORE_CHECK_IMPL_H
#define KVL_CORE_CHECK_IMPL_H

#include <errno.h>
#include <stdint.h>

#include "daemon/core/ground/detail.h"
#include "daemon/core/objects/ns.h"
#include "daemon/core/records/shared.h"

struct attach;
struct ns;
struct store;

#define BROKEN(d, ...) detail_set(d, -EUCLEAN, __VA_ARGS__)

/* So many pages are looked at before there is another look at how many were. */
#define CHECK_RUN_PAGES 256u

struct checker {
        struct store *store;
        struct ns_walk walk;
        struct ns *ns; /* being looked at */
        unsigned step; /* of that one */
        uint32_t at;   /* where the step goes on */
        struct shared_walk slots;
        uint64_t last_id;               /* of a namespace, when all this began */
        uint64_t n_freed;               /* of the walk, when the steps of this namespace began */
        uint32_t pins[CHECK_RUN_PAGES]; /* of a run of its pages, summed over attachments */
        bool is_complete;               /* all namespaces were looked at */
        uint64_t n_pages, n_sets;
        struct detail *d; /* of the call */
};

static inline unsigned long long llu(uint64_t value)
{
        return value;
}

/* 0; -EUCLEAN with the sentence: what it is called isn't as large as it should be. */
int check_expect(
        struct checker *c, const char *what, const char *name, uint64_t is, uint64_t should_be);

/* -EUCLEAN with the sentence: what is wrong with this page. */
int check_page_broken(const struct checker *c, uint32_t page, const char *why);

/* A set, with its free list; and what lists of sets say, without what is in these. 0 or -EUCLEAN.
 */
int check_set(struct checker *c, const struct extent_set *set);
int check_lists(struct checker *c);

/* A page that is bound, of which clients have so many pins. NULL, or what is wrong. */
const char *check_page(const struct checker *c, uint32_t page, uint32_t pins);

/* Counts what all pages of the namespace are; the slots of its index; its watched pages. 0 or
 * -EUCLEAN. */
int check_counts(struct checker *c);
int check_slots(struct checker *c);
int check_watched(struct checker *c);

/* What isn't in a namespace alone, and sums over them. 0 or -EUCLEAN. */
int check_rest(struct checker *c);

/* Sums the pins of the pages from `first` on into c->pins: at most CHECK_RUN_PAGES. */
void check_sum_pins(struct checker *c, uint32_t first, uint32_t n);

/* What clients have pinned, as they count it themselves. 0 or -EUCLEAN. */
int check_pin_counts(struct checker *c);

/* What clients of the namespace have mapped, what lies in their magazines, and what is granted to
 * their groups. 0 or -EUCLEAN. */
int check_mapped(struct checker *c);
int check_magazines(struct checker *c);
int check_grants(struct checker *c);

#endif
