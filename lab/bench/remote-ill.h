/* The part of `remote-hosts` with an ill store. */
#ifndef KVL_BENCH_REMOTE_ILL_H
#define KVL_BENCH_REMOTE_ILL_H

#include "lab/bench/hosts.h"

/* Texts of others, asked for all the time; a cached text; and one that is asked for with a
 * deadline. */
#define ILL_CHAIN         100
#define ILL_TEXTS         8
#define ILL_TEXT_PAGES    16
#define ILL_HIT_PAGES     64
#define ILL_REQUEST_PAGES 64
#define ILL_PAGES         (ILL_TEXTS * ILL_TEXT_PAGES + ILL_HIT_PAGES + ILL_REQUEST_PAGES)

/* The texts are shared, and the server's state is saved. Adds its results. Returns 0 or -errno,
 * with a message. */
int remote_ill(struct hosts *h, struct bench_run *run);

#endif
