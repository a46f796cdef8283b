#include "daemon/core/life/canary.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/fault-point.h"
#include "base/fd.h"
#include "base/hash.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/state.h"
#include "gpu/queue.h"
#include "proto/status.h"

uint64_t canary_bytes(const struct keep *k, const struct device_props *props)
{
        bool has_one = keep_is_on(k) && props->survives_restart && !props->is_cpu_memory;

        return has_one ? props->granularity_bytes * MAX(props->n_members, 1u) : 0;
}

/* With a descriptor store, every device of a server is behind a queue. */
static bool needs_one(const struct store *s, const struct pool *pool)
{
        return pool->queue && canary_bytes(&s->keep, pool->props) > 0;
}

/* ---- rows of the root -------------------------------------------------------------------------
 */

/* Returns the name of a row. A member's name has its place among the members, which decides which
 * planes are there: with another order the row isn't found. The remainders change nothing; they
 * show the compiler that the name fits. */
static void name_of(const struct pool *pool, unsigned member, char ret_name[DEVICE_NAME_MAX + 1])
{
        char name[DEVICE_NAME_MAX + 1];

        device_member_name(pool->props, member, name);
        if (pool->props->n_members > 0)
                snprintf(ret_name, DEVICE_NAME_MAX + 1, "%u/%u %.40s", member % DEVICE_MEMBERS_MAX,
                        pool->props->n_members % (DEVICE_MEMBERS_MAX + 1), name);
        else
                strcpy(ret_name, name);
}

static bool is_of(const struct state_canary *row, const struct pool *pool, unsigned member)
{
        char name[DEVICE_NAME_MAX + 1];

        name_of(pool, member, name);
        return atomic_load_explicit(&row->value, memory_order_acquire) != 0 &&
               strncmp(row->device, name, sizeof(row->device)) == 0;
}

/* A canary for each member of the device. */
static unsigned count_canaries(const struct pool *pool)
{
        return MAX(pool->props->n_members, 1u);
}

static uint32_t number_of(const struct store *s, const struct state_canary *row)
{
        return (uint32_t)(row - s->state->canaries) + 1;
}

/* Frees the rows of devices that this daemon doesn't have, or that need no canary. */
static void free_others(struct store *s)
{
        for (uint32_t i = 0; i < STATE_CANARIES; i++) {
                struct state_canary *row = &s->state->canaries[i];
                bool is_used = false;

                list_for_each (pool, &s->pools, struct pool, link)
                        for (unsigned m = 0; needs_one(s, pool) && m < count_canaries(pool); m++)
                                is_used |= is_of(row, pool, m);
                if (!is_used)
                        atomic_store_explicit(&row->value, 0, memory_order_release);
        }
}

static struct state_canary *find_row(struct store *s, const struct pool *pool, unsigned member)
{
        struct state_canary *unused = NULL;

        for (uint32_t i = STATE_CANARIES; i-- > 0;) {
                struct state_canary *row = &s->state->canaries[i];

                if (is_of(row, pool, member))
                        return row;
                if (atomic_load_explicit(&row->value, memory_order_relaxed) == 0)
                        unused = row;
        }
        return unused;
}

/* ---- one device -------------------------------------------------------------------------------
 */

/* Returns 0: it holds; -errno with `why`. Takes the fd. */
static int check_canary(
        struct pool *pool, unsigned member, int fd, uint64_t value, char why[DEVICE_WHY_BYTES])
{
        struct job *job = job_new(JOB_CANARY, 1);
        int r = -ENOMEM;

        why[0] = '\0';
        if (job) {
                job->extents[0].handle.fd = fd;
                job->extents[0].member = member;
                job->canary = value;
                r = queue_run(pool->queue, job, NULL, why);
        }
        if (r != -ETIMEDOUT) /* otherwise the driver may still look at it */
                fd_close(fd);
        return r;
}

static void explain_canary(struct pool *pool, int r, const char *why, recover_say say, void *data)
{
        struct detail d;

        if (r == -ESTALE)
                (void)snprintf(pool->why, sizeof(pool->why),
                        "it was reset, or its memory was cleared or lost power, since kvleased ended");
        else
                (void)snprintf(pool->why, sizeof(pool->why), "its canary can't be read: %.*s",
                        (int)sizeof(pool->why) / 2, why[0] ? why : status_text(r));
        (void)detail_set(&d, r, "all that was cached on device %s is gone: %s", pool->props->name,
                pool->why);
        if (say)
                say(&d, data);
}

/* Plans a canary with another value, so that an existing one isn't mistaken for it. */
static void plan_canary(
        struct store *s, struct pool *pool, unsigned member, struct state_canary *row)
{
        const struct queue_canary canary = {number_of(s, row), hash_seed_random().k0 | 1};

        keep_drop(&s->keep, KEEP_CANARY, canary.number);
        memset(row->device, 0, sizeof(row->device));
        name_of(pool, member, row->device);
        FAULT_POINT("canary-before-value");
        atomic_store_explicit(&row->value, canary.value, memory_order_release);
        FAULT_POINT("canary-after-value");
        queue_set_canary(pool->queue, member, &canary);
}

/* *ret_holds: the previous daemon's data on the member is there, and is trusted. Returns 0;
 * -ENOSPC: no row is free. */
static int open_one(struct store *s, struct pool *pool, unsigned member, bool *ret_holds,
        recover_say say, void *data)
{
        struct state_canary *row = find_row(s, pool, member);
        char why[DEVICE_WHY_BYTES];
        int fd = -ENOENT, r;

        if (!row)
                return -ENOSPC;
        if (is_of(row, pool, member))
                fd = s->keep.ops->take(s->keep.data, KEEP_CANARY, number_of(s, row));
        if (fd >= 0) {
                r = check_canary(pool, member, fd, row->value, why);
                *ret_holds = r == 0;
                if (r == 0)
                        return 0;
                explain_canary(pool, r, why, say, data);
        }
        *ret_holds = false;
        plan_canary(s, pool, member, row);
        return 0;
}

/* A device with members is trusted as a whole. */
static int open_all(struct store *s, struct pool *pool, recover_say say, void *data)
{
        int r = 0;

        pool->is_doubted = false;
        for (unsigned m = 0; m < count_canaries(pool) && r == 0; m++) {
                bool holds = false;

                r = open_one(s, pool, m, &holds, say, data);
                pool->is_doubted |= !holds;
        }
        return r;
}

int canaries_open(struct store *s, recover_say say, void *data, struct detail *d)
{
        int r = 0;

        if (!keep_is_on(&s->keep))
                return 0;
        free_others(s);
        list_for_each (pool, &s->pools, struct pool, link)
                if (needs_one(s, pool) && r == 0)
                        r = open_all(s, pool, say, data);
        (void)state_drop_kind(&s->keep, KEEP_CANARY);
        return r < 0 ? detail_set(d, r, "kvleased keeps memory of at most %d GPUs", STATE_CANARIES)
                     : 0;
}
