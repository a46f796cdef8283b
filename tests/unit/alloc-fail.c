#include "tests/unit/alloc-fail.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

/* Threads of what is tested allocate, too. */
static _Atomic unsigned countdown;
static _Atomic bool happened;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

void alloc_fail_at(unsigned n)
{
        countdown = n;
        happened = false;
}

bool alloc_fail_happened(void)
{
        return happened;
}

bool alloc_fail_end(void)
{
        bool came = happened;

        alloc_fail_at(0);
        return came;
}

static bool fails_now(void)
{
        unsigned left = countdown;

        while (left > 0 && !atomic_compare_exchange_weak(&countdown, &left, left - 1))
                ;
        if (left != 1)
                return false;
        happened = true;
        errno = ENOMEM;
        return true;
}

void *__wrap_malloc(size_t size)
{
        return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
        return fails_now() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
        return fails_now() ? NULL : __real_realloc(p, size);
}
