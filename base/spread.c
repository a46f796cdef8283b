#include "base/spread.h"

#include <sched.h>
#include <stdatomic.h>

#include "base/macros.h"
#include "base/thread.h"

/* With more threads, memory is the limit. Not tuned. */
#define THREADS_MAX 8u

struct pieces {
        _Atomic uint32_t next;
        uint32_t n;
        void (*work)(void *data, uint32_t piece);
        void *data;
};

static void *do_pieces(void *data)
{
        struct pieces *p = data;
        uint32_t piece;

        while ((piece = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->n)
                p->work(p->data, piece);
        return NULL;
}

static uint32_t count_processors(void)
{
        cpu_set_t set;

        return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

void spread(uint32_t n, void (*work)(void *data, uint32_t piece), void *data)
{
        struct pieces p = {.n = n, .work = work, .data = data};
        uint32_t most = n > 1 ? MIN(count_processors(), THREADS_MAX) : 1, n_threads = 0;
        pthread_t threads[THREADS_MAX];

        most = MIN(n, most);
        while (n_threads + 1 < most && thread_start(&threads[n_threads], NULL, do_pieces, &p) == 0)
                n_threads++;
        (void)do_pieces(&p);
        while (n_threads > 0)
                pthread_join(threads[--n_threads], NULL);
}
