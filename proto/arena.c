#include "proto/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(addr, size)   ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(addr, size) ((void)0)
#endif

/* malloc()'s guarantee: enough for any type. */
#define ARENA_ALIGN _Alignof(max_align_t)

static void *take_bytes(struct arena *a, size_t bytes)
{
        void *p = a->memory + a->used;

        if (bytes > a->size - a->used) {
                a->n_refused++;
                return NULL;
        }
        a->used += MIN((size_t)round_up_u64(bytes, ARENA_ALIGN), a->size - a->used);
        ASAN_UNPOISON_MEMORY_REGION(p, bytes);
        return p;
}

static void *allocator_alloc(void *data, size_t bytes)
{
        return take_bytes(data, bytes);
}

/* Single blocks are never given back: a message is freed as a whole. */
static void allocator_free(void *data, void *p)
{
}

int arena_init(struct arena *a, size_t budget_bytes)
{
        uint8_t *memory = malloc(budget_bytes);

        if (!memory)
                return -ENOMEM;
        *a = (struct arena){
                .allocator = {allocator_alloc, allocator_free, a},
                .memory = memory,
                .size = budget_bytes,
        };
        arena_reset(a);
        return 0;
}

void arena_deinit(struct arena *a)
{
        free(a->memory);
        *a = (struct arena){0};
}

void arena_reset(struct arena *a)
{
        a->used = 0;
        /* A use of a message after its arena's reset is found by the sanitizer. */
        ASAN_POISON_MEMORY_REGION(a->memory, a->size);
}

void *arena_alloc(struct arena *a, size_t bytes)
{
        void *p = take_bytes(a, bytes);

        return p ? memset(p, 0, bytes) : NULL;
}

char *arena_strdup(struct arena *a, const char *text)
{
        size_t size = strlen(text) + 1;
        char *copy = take_bytes(a, size);

        return copy ? memcpy(copy, text, size) : NULL;
}
