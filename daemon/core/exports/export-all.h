/*
 * All that is cached is exported, because the host is to go (kvleasectl drain --export): of each
 * tenant that may write to its store (exports.h) every SEALED page, in whatever tier it lies, also
 * what was computed once and never found. What was used lately goes first, a text from its
 * beginning on, each page after those before it were written; what is there already isn't sent
 * again. The rate is that of all exports, and so are the rules: what was cached before the epoch of
 * now was learnt doesn't go, nor what continues it.
 *
 *   begin -> counts -> walks -> counts ... -> idle (nothing is left that can go)
 *
 * What couldn't be written, as the store didn't take it, is tried again, a second later. What is
 * published while it is idle begins it again: clients that are leaving may still do so.
 *
 * Counting and walking are a chore (quota/chores.h). Pages aren't sorted, but walked once for each
 * age (powers of two of seconds). Nothing outlives the process. Loop thread only.
 */
#ifndef KVL_CORE_EXPORT_ALL_H
#define KVL_CORE_EXPORT_ALL_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/exchange-drop.h"

struct ns;
struct store;
struct tenant;

/* Of all tenants; pages, and the bytes of these. */
struct export_all_figures {
        uint32_t n_tenants;                    /* that may write to a store */
        bool is_on;                            /* begun, and not ended */
        bool is_running;                       /* and something may still be exported */
        uint64_t written_pages, written_bytes; /* since it began */
        uint64_t there_pages, there_bytes;     /* likewise: the store had them */
        uint64_t left_pages, left_bytes; /* as far as is counted; not running: what comes before
                                            them in their texts can't go */
        uint64_t old_pages;              /* that can't: cached before the epoch of now was learnt */
        uint64_t apart_pages; /* that can't: of namespaces that take no part (exchange_has_ns()) */
};

/* Begins, of all tenants that may write; where it has begun, and runs, it goes on. Returns how many
 * these are: 0: none has an exchange, or one that it may write to. */
uint32_t export_all_begin(struct store *s);

/* What isn't written yet isn't written. Safe to repeat. */
void export_all_end(struct store *s);

void export_all_figures(const struct store *s, struct export_all_figures *ret);

/* What is in the way of this tenant's now. */
enum exchange_obstacle {
        OBSTACLE_NONE,
        OBSTACLE_FAILS, /* the store didn't take what was sent last; *ret_why says how */
        OBSTACLE_EPOCH, /* it hasn't said yet which epoch *ret_ns has (borrowed), which has pages */
};

enum exchange_obstacle export_all_obstacle(
        const struct tenant *t, enum exchange_drop *ret_why, const struct ns **ret_ns);

#endif
