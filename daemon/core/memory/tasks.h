/*
 * Runs tasks (state/task.h): tenants take turns, and so do the tasks of one tenant. Loop thread
 * only.
 */
#ifndef KVL_CORE_TASKS_H
#define KVL_CORE_TASKS_H

#include <stdbool.h>

#include "daemon/core/state/task.h"

struct store;
struct tenant;

/* Queues a task behind the tenant's other tasks and calls store.owner.on_work(). It must not be
 * queued already. */
void task_queue(struct task *c, struct tenant *t);

/* Takes a task out of the queue. Must not be called from its work(). Idempotent. */
void task_remove(struct task *c, struct tenant *t);

/* Runs one slice (store.drop_slice_pages) of the next task of the next tenant. Returns that
 * tenant; NULL: there is no task. Call it again when there is time. */
struct tenant *tasks_work(struct store *s);

/* Is any task queued? */
bool tasks_are_left(const struct store *s);

#endif
