/* The handles by which attachments have sessions open. */
#include "daemon/core/sessions/session.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/core/clients/attach.h"
#include "daemon/core/state/store.h"
#include "daemon/core/sessions/session-impl.h"

static struct opening *find_opening(const struct attach *a, uint32_t handle)
{
        const uint64_t *value = map_find(&a->sessions, handle);

        return value ? (struct opening *)(uintptr_t)*value : NULL;
}

/* Gives the attachment the next free handle. NULL: no memory. */
static struct opening *opening_new(struct attach *a)
{
        struct opening *o = calloc(1, sizeof(*o));

        if (!o)
                return NULL;
        do
                a->last_session++;
        while (a->last_session == 0 || find_opening(a, a->last_session));
        if (map_put(&a->sessions, a->last_session, (uintptr_t)o) < 0) {
                free(o);
                return NULL;
        }
        list_init(&o->session_link);
        a->member->n_sessions++;
        return o;
}

/* Frees an opening; the caller removes its handle. */
static void opening_free(struct attach *a, struct opening *o, uint64_t now_nsec)
{
        if (o->session) {
                list_remove(&o->session_link);
                o->session->n_open--;
                session_use(o->session, now_nsec);
                session_log_used(o->session);
                if (o->session->n_open == 0)
                        session_tell(a->ns, o->session->id, o->session->id_len);
        }
        a->member->n_sessions--;
        free(o);
}

static void close_handle(struct attach *a, uint32_t handle, uint64_t now_nsec)
{
        opening_free(a, find_opening(a, handle), now_nsec);
        (void)map_remove(&a->sessions, handle);
}

int session_check_id(const struct attach *a, uint32_t id_len, struct detail *d)
{
        int r = attach_check_version(a, d);

        if (r != 0)
                return r;
        if (id_len == 0 || id_len > SESSION_ID_MAX)
                return detail_set(d, -EINVAL, "a session's id has 1 to %d bytes, not %u",
                        SESSION_ID_MAX, id_len);
        return 0;
}

static int check_open(const struct attach *a, uint32_t id_len, struct detail *d)
{
        int r = session_check_id(a, id_len, d);

        if (r != 0)
                return r;
        if (a->member->n_sessions >= SESSION_HANDLES_MAX)
                return detail_set(d, -EMFILE,
                        "this client has %d sessions open, the most it may: close some of them",
                        SESSION_HANDLES_MAX);
        return 0;
}

int session_open(struct attach *a, const struct session_request *rq, uint32_t *ret_handle,
        bool *ret_created, struct detail *d)
{
        struct ns *ns = a->ns;
        struct session *s;
        struct opening *o;
        int r = check_open(a, rq->id_len, d);

        if (r != 0)
                return r;
        store_set_now(ns->store, rq->now_nsec);
        s = session_find(ns, rq->id, rq->id_len);
        if (!s && rq->must_exist)
                return detail_set(
                        d, -ENOENT, "namespace %s has no such session (any more)", ns->name);
        *ret_created = !s;
        o = opening_new(a);
        r = !o ? -ENOMEM : s ? 0 : session_new(ns, rq->id, rq->id_len, &s, d);
        if (r < 0) {
                if (o)
                        close_handle(a, a->last_session, rq->now_nsec);
                return r == -ENOMEM ? detail_set(d, r, "no memory for a session") : r;
        }
        o->session = s;
        list_append(&s->openings, &o->session_link);
        s->n_open++;
        if (rq->expire_nsec > 0)
                s->expire_nsec = rq->expire_nsec;
        session_use(s, rq->now_nsec);
        if (*ret_created || rq->expire_nsec > 0)
                session_log_put(s);
        else
                session_log_used(s);
        session_touch_tail(a, s, rq->now_nsec);
        *ret_handle = a->last_session;
        return 0;
}

struct session *session_of(struct attach *a, uint32_t handle, struct detail *d)
{
        const struct opening *o = find_opening(a, handle);

        if (o && o->session && session_is_live(o->session))
                return o->session;
        detail_set(d, -ENOENT, o ? "session %u was dropped" : "session %u isn't open here", handle);
        return NULL;
}

int session_close(struct attach *a, uint32_t handle, bool drop, uint64_t now_nsec, struct detail *d)
{
        struct session *s = session_of(a, handle, d);

        if (!find_opening(a, handle))
                return -ENOENT;
        store_set_now(a->ns->store, now_nsec);
        close_handle(a, handle, now_nsec);
        if (!drop)
                return 0;
        if (s)
                (void)session_drop(s);
        return s ? 0 : -ENOENT;
}

void sessions_close_all(struct attach *a, uint64_t now_nsec)
{
        struct map_slot slot;

        for (size_t iter = 0; map_next(&a->sessions, &iter, &slot);)
                opening_free(a, (struct opening *)(uintptr_t)slot.value, now_nsec);
        map_deinit(&a->sessions);
        map_init(&a->sessions);
}
