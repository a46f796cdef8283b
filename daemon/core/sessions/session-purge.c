#include "daemon/core/sessions/session-purge.h"

#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/sessions/session-impl.h"

/* Namespaces that are skipped in about the time of a look at a page. Not tuned. */
#define NAMESPACES_PER_LOOK 16

static bool is_idle_for(const struct session *s, uint64_t idle_nsec, uint64_t now_nsec)
{
        return now_nsec >= s->used_nsec && now_nsec - s->used_nsec >= idle_nsec;
}

/* Drops the session if the purge covers it. Returns the work done, in looks at pages. */
static uint64_t purge_session(struct session_purge *p, struct session *s)
{
        if (!s || !session_is_live(s) || !is_idle_for(s, p->idle_nsec, p->now_nsec))
                return 0;
        p->n_sessions++;
        return session_drop(s);
}

void session_purge_init(
        struct session_purge *p, struct tenant *t, uint64_t idle_nsec, uint64_t now_nsec)
{
        *p = (struct session_purge){.tenant = t, .idle_nsec = idle_nsec, .now_nsec = now_nsec};
        task_init(&p->task);
}

void session_purge_id(struct session_purge *p, struct ns *ns, const uint8_t *id, uint32_t id_len)
{
        (void)purge_session(p, session_find(ns, id, id_len));
}

/* Returns the namespace with the smallest id from p->ns_id on; NULL: none. Adds the number looked
 * at to *ret_n_seen. */
static struct ns *next_to_purge(const struct session_purge *p, uint64_t *ret_n_seen)
{
        struct ns *next = NULL;

        list_for_each (ns, &p->tenant->namespaces, struct ns, link) {
                bool is_wanted = p->only_ns_id ? ns->id == p->only_ns_id : ns->id >= p->ns_id;

                if (is_wanted && (!next || ns->id < next->id))
                        next = ns;
                ++*ret_n_seen;
        }
        return next;
}

/* Does a slice. Returns false if the purge is over. */
static bool purge_some(struct session_purge *p, uint64_t budget)
{
        uint64_t n = 0;

        while (n < budget) {
                uint64_t n_seen = 0;
                struct ns *ns = p->is_over ? NULL : next_to_purge(p, &n_seen);
                struct sessions *all = ns ? ns->sessions : NULL;

                if (!ns)
                        return false;
                if (p->ns_id != ns->id)
                        p->slot = 0;
                p->ns_id = ns->id;
                for (; all && p->slot < all->n_slots && n < budget; n++)
                        n += purge_session(p, all->slots[p->slot++].session);
                n += n_seen / NAMESPACES_PER_LOOK;
                if (all && p->slot < all->n_slots)
                        continue;
                p->is_over = p->only_ns_id != 0;
                p->ns_id++;
                p->slot = 0;
        }
        return true;
}

bool session_purge_begin(struct session_purge *p)
{
        return purge_some(p, p->tenant->store->drop_slice_pages);
}

static bool work_purge(struct task *c, uint64_t budget)
{
        struct session_purge *p = container_of(c, struct session_purge, task);

        if (purge_some(p, budget))
                return true;
        p->done(p);
        return false;
}

void session_purge_queue(struct session_purge *p, void (*done)(struct session_purge *p))
{
        p->done = done;
        p->task.work = work_purge;
        task_queue(&p->task, p->tenant);
}

void session_purges_end(struct tenant *t)
{
        list_for_each_safe (c, &t->tasks, struct task, link) {
                if (c->work != work_purge)
                        continue;
                task_remove(c, t);
                container_of(c, struct session_purge, task)
                        ->done(container_of(c, struct session_purge, task));
        }
}
