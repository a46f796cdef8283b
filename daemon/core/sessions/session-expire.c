/* Notes uses of sessions, and drops sessions that were idle for too long. */
#include "daemon/core/cache/note-events.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/sessions/session-impl.h"

uint64_t session_expire_time(const struct session *s)
{
        return s->expire_nsec > 0 ? s->expire_nsec : s->ns->tenant->attrs.session_expire_nsec;
}

/* Returns when the session expires; UINT64_MAX: never, unless it is closed or used. */
static uint64_t expiry_of(const struct session *s)
{
        uint64_t expire_nsec = session_expire_time(s);

        return s->n_open > 0 || expire_nsec == 0 || expire_nsec > UINT64_MAX - s->used_nsec
                       ? UINT64_MAX
                       : s->used_nsec + expire_nsec;
}

static void note_expiry(struct sessions *all, uint64_t expiry_nsec)
{
        all->next_expiry_nsec = MIN(all->next_expiry_nsec, expiry_nsec);
}

void session_use(struct session *s, uint64_t now_nsec)
{
        s->used_nsec = now_nsec;
        note_expiry(s->ns->sessions, expiry_of(s));
        list_remove(&s->window.link);
        if (s->window.n > 0)
                list_append(&s->ns->sessions->windows[s->n_open > 0], &s->window.link);
}

static void begin_expiry_round(struct sessions *all, uint64_t tenant_expire_nsec)
{
        all->expire_slot = 0;
        all->next_expiry_nsec = UINT64_MAX;
        all->tenant_expire_nsec = tenant_expire_nsec;
}

uint64_t sessions_expire(struct ns *ns, uint64_t now_nsec, uint32_t budget)
{
        uint64_t tenant_expire_nsec = ns->tenant->attrs.session_expire_nsec;
        struct sessions *all = ns->sessions;

        if (!all)
                return UINT64_MAX;
        if (all->expire_slot == 0 || all->tenant_expire_nsec != tenant_expire_nsec)
                begin_expiry_round(all, tenant_expire_nsec);
        while (budget > 0 && all->expire_slot < all->n_slots) {
                struct session *s = all->slots[all->expire_slot++].session;
                uint64_t expiry_nsec = s && session_is_live(s) ? expiry_of(s) : UINT64_MAX;
                uint32_t cost = 1;

                if (expiry_nsec <= now_nsec) {
                        cost += MIN(s->window.n, ns->store->drop_slice_pages);
                        session_end(s);
                        ns->store->counters.sessions_expired++;
                        note_session_expired(ns);
                } else {
                        note_expiry(all, expiry_nsec);
                }
                budget -= MIN(cost, budget);
        }
        if (all->expire_slot < all->n_slots)
                return now_nsec;
        all->expire_slot = 0;
        return all->next_expiry_nsec;
}
