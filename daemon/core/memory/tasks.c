#include "daemon/core/memory/tasks.h"

#include <assert.h>

#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/task.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"

void task_queue(struct task *c, struct tenant *t)
{
        struct store *s = t->store;

        assert(!task_is_queued(c) && c->work);

        list_append(&t->tasks, &c->link);
        if (list_is_empty(&t->tasks_link))
                list_append(&s->tasks, &t->tasks_link);
        if (s->owner.on_work)
                s->owner.on_work(s->owner.data);
}

void task_remove(struct task *c, struct tenant *t)
{
        list_remove(&c->link);
        if (list_is_empty(&t->tasks))
                list_remove(&t->tasks_link);
}

bool tasks_are_left(const struct store *s)
{
        return !list_is_empty(&s->tasks);
}

/* Moves the task behind its tenant's others, and the tenant behind others. */
struct tenant *tasks_work(struct store *s)
{
        struct tenant *t = list_first(&s->tasks, struct tenant, tasks_link);
        struct task *c = t ? list_first(&t->tasks, struct task, link) : NULL;

        if (!c)
                return NULL;
        list_remove(&c->link);
        if (c->work(c, s->drop_slice_pages))
                list_append(&t->tasks, &c->link);
        idle_sets_drain(s);
        list_remove(&t->tasks_link);
        if (!list_is_empty(&t->tasks))
                list_append(&s->tasks, &t->tasks_link);
        return t;
}
