#include "daemon/core/memory/dma.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/memory/discard.h"
#include "daemon/core/state/pool.h"
#include "gpu/queue.h"

enum dma_state {
        DMA_ASKED,
        DMA_IN,
        DMA_REFUSED,
        DMA_LATE, /* may be registered nevertheless */
};

struct dma {
        struct list_link link; /* pool.leaving, once the set was freed */
        struct pool *pool;     /* the set's; borrowed */
        enum dma_state state;
        uint64_t bytes;
        struct job *leave;    /* owned, until it is submitted */
        struct discard *gone; /* owned; the set's memory; NULL: the set exists */
};

/* Returns the queue of the device to register the memory with; NULL: none. */
static struct queue *queue_above(const struct pool *pool)
{
        const struct pool *above = pool->above;

        return above && above->queue && !above->props->is_cpu_memory ? above->queue : NULL;
}

static void dma_free(struct dma *dma)
{
        job_free(dma->leave);
        free(dma);
}

static void explain_failure(struct pool *pool, int result, const char *why)
{
        (void)snprintf(pool->why, sizeof(pool->why),
                "not registered with the device above, copies are slower: %.*s",
                (int)sizeof(pool->why) / 2, why[0] ? why : strerror(-result));
}

static void on_registered(struct job *job, int result, void *data)
{
        struct dma *dma = data;
        struct pool *pool = dma->pool;

        if (dma->gone)
                return;
        dma->state = result == 0 ? DMA_IN : result == -ETIMEDOUT ? DMA_LATE : DMA_REFUSED;
        if (result == 0) {
                pool->registered_bytes += dma->bytes;
                return;
        }
        pool->n_unregistered++;
        explain_failure(pool, result, job->why);
}

static struct dma *dma_new(const struct extent_set *set)
{
        struct dma *dma = calloc(1, sizeof(*dma));

        if (!dma)
                return NULL;
        list_init(&dma->link);
        dma->pool = set->pool;
        dma->bytes = set->arena->bytes;
        dma->leave = job_new(JOB_UNREGISTER, 1);
        if (!dma->leave) {
                dma_free(dma);
                return NULL;
        }
        return dma;
}

void dma_begin(struct extent_set *set)
{
        struct queue *queue = queue_above(set->pool);
        struct device_copy range;
        struct job *job;

        if (!queue || set->dma)
                return;
        set->dma = dma_new(set);
        job = set->dma ? job_new(JOB_REGISTER, 1) : NULL;
        if (!job) {
                explain_failure(set->pool, -ENOMEM, "");
                if (set->dma)
                        dma_free(TAKE(set->dma));
                return;
        }
        range = (struct device_copy){
                .host = set->pool->device->ops->arena_base(set->arena), .len = set->arena->bytes};
        job->copies[0] = set->dma->leave->copies[0] = range;
        job->done = on_registered;
        job->data = set->dma;
        queue_submit(queue, job);
}

/* The memory isn't mapped or copied any more. */
static void give_back(struct dma *dma)
{
        list_remove(&dma->link);
        discard_submit(dma->pool->discards, TAKE(dma->gone));
        dma_free(dma);
}

/* If the driver hangs in the call, the end of its use is unknown: the memory stays. */
static void on_unregistered(struct job *job, int result, void *data)
{
        if (result != -ETIMEDOUT)
                give_back(data);
}

bool dma_takes(struct extent_set *set, struct discard *what)
{
        struct dma *dma = TAKE(set->dma);
        struct job *leave;

        if (!dma)
                return false;
        if (dma->state == DMA_IN)
                dma->pool->registered_bytes -= dma->bytes;
        else if (dma->state != DMA_ASKED)
                dma->pool->n_unregistered--;
        if (dma->state == DMA_REFUSED) {
                dma_free(dma);
                return false;
        }
        assert(what->n_mapped == what->n);

        dma->gone = what;
        list_append(&dma->pool->leaving, &dma->link);
        leave = TAKE(dma->leave);
        leave->done = on_unregistered;
        leave->data = dma;
        queue_submit(queue_above(dma->pool), leave);
        return true;
}

void dma_leave_tenant(struct pool *pool, const struct tenant *t)
{
        list_for_each (dma, &pool->leaving, struct dma, link)
                if (dma->gone->share && dma->gone->share->tenant == t)
                        discard_leave_tenant(dma->gone);
}

void dma_end(struct pool *pool, bool is_over)
{
        list_for_each_safe (dma, &pool->leaving, struct dma, link)
                if (is_over)
                        give_back(dma);
}
