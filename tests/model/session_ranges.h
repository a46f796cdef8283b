/*
 * Keeps ranges of the model's text (session_world.h), token by token, and draws ranges to ask for.
 */
#ifndef KVL_TESTS_MODEL_SESSION_RANGES_H
#define KVL_TESTS_MODEL_SESSION_RANGES_H

#include "tests/model/session_world.h"

/* Is there at least one range, in order, without common tokens? */
bool is_in_order(const struct token_range *ranges, unsigned n);

/* Do the ranges name tokens that the text has, or had once and lost? */
bool ranges_are_right(const struct text *t, const struct token_range *ranges, unsigned n);

/* Keeps the ranges, which are right. *left: pages dropped. False: more pages than the model has
 * room for; nothing has changed. */
bool keep_ranges(struct text *t, const struct token_range *ranges, unsigned n, uint64_t *left);

/* Most often draws some of the text's pages, else anything. Returns the number of ranges, at most
 * MAX_RANGES. */
unsigned draw_ranges(const struct text *t, struct token_range *ranges);

#endif
