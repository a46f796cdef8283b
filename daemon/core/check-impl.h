/* What the parts of the checker share: check.c (all but), check-holders.c (who holds what). */
#ifndef KVL_CORE_CHECK_IMPL_H
#define KVL_CORE_CHECK_IMPL_H

#include <errno.h>
#include <stdint.h>

#include "daemon/core/ground/detail.h"

struct attach;
struct ns;
struct store;

#define BROKEN(d, ...) detail_set(d, -EUCLEAN, __VA_ARGS__)

struct checker {
        struct store *store;
        struct ns *ns;  /* being looked at */
        uint32_t *pins; /* of its pages, summed over attachments */
        uint64_t n_pages, n_sets;
        struct detail *d;
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

/* Adds the attachment's pins to c->pins; *n_pins: how many it has. 0 or -EUCLEAN. */
int check_sum_pins(struct checker *c, const struct attach *a, uint64_t *n_pins);

/* What clients of the namespace have mapped, what lies in their magazines, and what is granted to
 * their groups. 0 or -EUCLEAN. */
int check_mapped(struct checker *c);
int check_magazines(struct checker *c);
int check_grants(struct checker *c);

#endif
