/*
 * Sentences of an answer, which the arena of the request owns. Loop thread only.
 */
#ifndef KVL_SERVER_SENTENCES_H
#define KVL_SERVER_SENTENCES_H

#include <stddef.h>

#include "base/macros.h"

struct arena;

#define SENTENCES_MAX  256 /* not tuned */
#define SENTENCE_BYTES 512 /* with the NUL; longer ones are cut. Not tuned */

struct sentences {
        struct arena *arena;
        size_t bytes_left; /* of an answer's frame */
        char **texts;      /* of the arena; n of SENTENCES_MAX */
        size_t n, n_more;  /* n_more didn't fit */
};

/* Starts with room for max_bytes of an answer. Returns 0 or -ENOMEM. */
int sentences_init(struct sentences *s, struct arena *arena, size_t max_bytes);

/* One, without newline. */
KVL_PRINTF(2, 3) void sentences_add(struct sentences *s, const char *format, ...);

#endif
