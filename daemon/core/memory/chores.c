#include "daemon/core/memory/chores.h"

#include <assert.h>

#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/chore.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"

void chore_queue(struct chore *c, struct tenant *t)
{
        struct store *s = t->store;

        assert(!chore_is_queued(c) && c->work);

        list_append(&t->chores, &c->link);
        if (list_is_empty(&t->chores_link))
                list_append(&s->chores, &t->chores_link);
        if (s->owner.on_work)
                s->owner.on_work(s->owner.data);
}

void chore_remove(struct chore *c, struct tenant *t)
{
        list_remove(&c->link);
        if (list_is_empty(&t->chores))
                list_remove(&t->chores_link);
}

bool chores_are_left(const struct store *s)
{
        return !list_is_empty(&s->chores);
}

/* Moves the chore behind its tenant's others, and the tenant behind others. */
struct tenant *chores_work(struct store *s)
{
        struct tenant *t = list_first(&s->chores, struct tenant, chores_link);
        struct chore *c = t ? list_first(&t->chores, struct chore, link) : NULL;

        if (!c)
                return NULL;
        list_remove(&c->link);
        if (c->work(c, s->drop_slice_pages))
                list_append(&t->chores, &c->link);
        idle_sets_drain(s);
        list_remove(&t->chores_link);
        if (!list_is_empty(&t->chores))
                list_append(&s->chores, &t->chores_link);
        return t;
}
