/*
 * Exports all cached pages, because the host is to be shut down (kvleasectl drain --export): for
 * each tenant that may write to its store (exchange-impl.h) every SEALED page, in any tier, found
 * or not. Recently used texts are exported first, each from its beginning on, a page after those
 * before it were written. Pages that the store has aren't sent again. The rate and the rules are
 * those of all exports: a page cached before the present epoch was learnt isn't exported, nor are
 * pages that continue it.
 *
 *   begin -> counts -> walks -> counts ... -> idle (nothing is left to export)
 *
 * If the store doesn't accept a write, it is retried a second later. A publish while it is idle
 * begins it again: clients that are leaving may still publish.
 *
 * Counting and walking are a task (memory/tasks.h). Pages aren't sorted, but walked once for each
 * age (powers of two of seconds). Nothing survives a restart. Loop thread only.
 */
#ifndef KVL_EXCHANGE_EXPORT_ALL_H
#define KVL_EXCHANGE_EXPORT_ALL_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/exchange-drop.h"

struct ns;
struct store;
struct tenant;

/* Totals of all tenants; pages, and their bytes. */
struct export_all_figures {
        uint32_t n_tenants;                    /* that may write to a store */
        bool is_on;                            /* begun, and not ended */
        bool is_running;                       /* begun, and something is left to export */
        uint64_t written_pages, written_bytes; /* since it began */
        uint64_t there_pages, there_bytes;     /* since it began: the store had them */
        uint64_t left_pages, left_bytes; /* as far as counted; if it isn't running: pages before
                                            them in their texts can't be exported */
        uint64_t old_pages;              /* not exported: cached before the epoch was learnt */
        uint64_t apart_pages; /* not exported: the namespace takes no part (exchange_has_ns()) */
};

/* Begins for all tenants that may write; continues if it runs already. Returns their number; 0: no
 * tenant has an exchange that it may write to. */
uint32_t export_all_begin(struct store *s);

/* Ends it: remaining pages aren't written. Idempotent. */
void export_all_end(struct store *s);

void export_all_figures(const struct store *s, struct export_all_figures *ret);

/* The obstacle to a tenant's export now. */
enum exchange_obstacle {
        OBSTACLE_NONE,
        OBSTACLE_FAILS, /* the store refused the last write; *ret_why: why */
        OBSTACLE_EPOCH, /* epoch unknown for *ret_ns (borrowed), which has pages */
};

enum exchange_obstacle export_all_obstacle(
        const struct tenant *t, enum exchange_drop *ret_why, const struct ns **ret_ns);

#endif
