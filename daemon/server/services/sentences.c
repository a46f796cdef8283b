#include "daemon/server/services/sentences.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/arena.h"

/* Bytes of a field of a message besides its text: its number, and a length of at most
 * SENTENCE_BYTES. */
#define FIELD_BYTES 4

int sentences_init(struct sentences *s, struct arena *arena, size_t max_bytes)
{
        *s = (struct sentences){.arena = arena,
                .bytes_left = max_bytes,
                .texts = arena_alloc(arena, SENTENCES_MAX * sizeof(*s->texts))};
        return s->texts ? 0 : -ENOMEM;
}

void sentences_add(struct sentences *s, const char *format, ...)
{
        char text[SENTENCE_BYTES], *copy = NULL;
        size_t bytes;
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        bytes = strlen(text) + 1 + FIELD_BYTES;
        if (s->n < SENTENCES_MAX && bytes <= s->bytes_left)
                copy = arena_alloc(s->arena, strlen(text) + 1);
        if (!copy) {
                s->n_more++;
                return;
        }
        strcpy(copy, text);
        s->bytes_left -= bytes;
        s->texts[s->n++] = copy;
}
