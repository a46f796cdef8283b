/*
 * The table of a namespace's sessions: finds them by id, makes, drops and frees them. Then their
 * ends in the prefix tree, their idle times, and the handles by which attachments have them open.
 */
#include "daemon/core/sessions/session.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cache/drop.h"
#include "daemon/core/cache/note-events.h"
#include "daemon/core/cache/pages.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/pin.h"
#include "daemon/core/clients/request.h"
#include "daemon/core/sessions/session-impl.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "proto/status.h"

#define FIRST_SLOTS 16 /* not tuned */
static uint32_t *bucket_of(struct sessions *all, uint64_t hash)
{
        return &all->slots[hash & (all->n_slots - 1)].bucket;
}

static void link_bucket(struct sessions *all, struct session *s)
{
        uint32_t *bucket = bucket_of(all, s->hash);

        s->next = *bucket;
        *bucket = s->slot + 1;
}

static void unlink_bucket(struct sessions *all, const struct session *s)
{
        uint32_t *at = bucket_of(all, s->hash);

        while (*at != s->slot + 1)
                at = &all->slots[*at - 1].session->next;
        *at = s->next;
}

struct session *session_find(const struct ns *ns, const uint8_t *id, uint32_t id_len)
{
        struct sessions *all = ns->sessions;
        uint64_t hash;
        uint32_t at;

        if (!all || all->n_slots == 0)
                return NULL;
        hash = hash_bytes(all->seed, id, id_len);
        for (at = *bucket_of(all, hash); at != 0; at = all->slots[at - 1].session->next) {
                struct session *s = all->slots[at - 1].session;

                if (s->hash == hash && session_is_live(s) && s->id_len == id_len &&
                        memcmp(s->id, id, id_len) == 0)
                        return s;
        }
        return NULL;
}

/* Doubles the slots. Returns 0 or -ENOMEM (nothing changed). */
static int grow_slots(struct sessions *all)
{
        uint32_t n = all->n_slots ? 2 * all->n_slots : FIRST_SLOTS;
        struct session_slot *slots = calloc(n, sizeof(*slots));

        if (!slots)
                return -ENOMEM;
        for (uint32_t i = 0; i < all->n_slots; i++)
                slots[i] = (struct session_slot){
                        .session = all->slots[i].session, .ending = all->slots[i].ending};
        free(all->slots);
        all->slots = slots;
        for (uint32_t i = n; i-- > all->n_slots;) {
                slots[i].next_free = all->free_slot;
                all->free_slot = i + 1;
        }
        all->n_slots = n;
        for (uint32_t i = 0; i < n; i++)
                if (slots[i].session)
                        link_bucket(all, slots[i].session);
        return 0;
}

struct sessions *sessions_get(struct ns *ns)
{
        struct sessions *all = ns->sessions;

        if (all)
                return all;
        all = calloc(1, sizeof(*all));
        if (!all)
                return NULL;
        all->seed = hash_seed_random();
        all->log.fd = -1;
        list_init(&all->spare_endings);
        list_init(&all->truncations);
        list_init(&all->shedding);
        list_init(&all->windows[false]);
        list_init(&all->windows[true]);
        ns->sessions = all;
        return all;
}

/* Makes the namespace's sessions and their log before the first session. Returns 0; -ENOMEM; as
 * session_log_open(). */
static int begin_sessions(struct ns *ns, struct detail *d)
{
        int r;

        if (ns->sessions)
                return 0;
        if (!sessions_get(ns))
                return -ENOMEM;
        r = session_log_open(ns, d);
        if (r < 0)
                sessions_free(ns);
        return r;
}

/* Makes sure that there is a free slot, with an ending for its session. Returns 0 or -ENOMEM. */
static int prepare_slot(struct sessions *all)
{
        struct session_slot *slot;
        struct ending *e;

        if (all->free_slot == 0 && grow_slots(all) < 0)
                return -ENOMEM;
        slot = &all->slots[all->free_slot - 1];
        if (slot->ending)
                return 0;
        e = calloc(1, sizeof(*e));
        if (!e)
                return -ENOMEM;
        e->id = all->free_slot;
        e->page = PAGE_NONE;
        list_init(&e->sessions);
        list_append(&all->spare_endings, &e->spare_link);
        slot->ending = e;
        return 0;
}

/* Counts the tenant's sessions; invalidated ones that aren't swept yet count as well. */
static uint64_t count_of_tenant(const struct tenant *t)
{
        uint64_t n = 0;

        list_for_each (ns, &t->namespaces, struct ns, link)
                if (ns->sessions)
                        n += ns->sessions->n_live + ns->sessions->n_dead;
        return n;
}

struct session *session_make(struct ns *ns, const uint8_t *id, uint32_t id_len)
{
        struct sessions *all = ns->sessions;
        struct session *s = prepare_slot(all) == 0 ? calloc(1, sizeof(*s)) : NULL;

        if (!s)
                return NULL;
        s->ns = ns;
        s->slot = all->free_slot - 1;
        s->epoch = ns->epoch;
        s->hash = hash_bytes(all->seed, id, id_len);
        s->id_len = id_len;
        memcpy(s->id, id, id_len);
        list_init(&s->openings);
        list_init(&s->end_link);
        list_init(&s->window.shed_link);
        list_init(&s->window.link);
        all->free_slot = all->slots[s->slot].next_free;
        all->slots[s->slot].session = s;
        link_bucket(all, s);
        all->n_live++;
        return s;
}

int session_new(
        struct ns *ns, const uint8_t *id, uint32_t id_len, struct session **ret_s, struct detail *d)
{
        struct sessions *all;
        int r = begin_sessions(ns, d);

        if (r < 0)
                return r;
        all = ns->sessions;
        /* Sweeps only as many sessions as necessary: all of them would take too long. */
        while (all->n_dead > 0 && all->n_live + all->n_dead >= SESSIONS_MAX) {
                uint32_t budget = ns->store->drop_slice_pages;

                (void)sessions_sweep(ns, &budget);
        }
        if (all->n_live >= SESSIONS_MAX)
                return detail_set(d, -EMFILE,
                        "namespace %s has %u sessions, the most there may be: drop those that are "
                        "over, or let them expire sooner (session_expire of tenant %s); kvleasectl sessions lists them",
                        ns->name, SESSIONS_MAX, ns->tenant->name);
        if (count_of_tenant(ns->tenant) >= SESSIONS_TENANT_MAX)
                return detail_set(d, -EMFILE,
                        "tenant %s has %u sessions, the most there may be: drop those that are "
                        "over, or let them expire sooner (session_expire of the tenant); kvleasectl sessions lists them",
                        ns->tenant->name, SESSIONS_TENANT_MAX);
        *ret_s = session_make(ns, id, id_len);
        return *ret_s ? 0 : -ENOMEM;
}

/* Makes the session's handles find nothing. */
static void forget_openings(struct session *s)
{
        list_for_each_safe (o, &s->openings, struct opening, session_link) {
                o->session = NULL;
                list_remove(&o->session_link);
        }
}

/* Frees the session, live or not. Its pages in the tree stay cached. */
static void session_free(struct session *s)
{
        struct sessions *all = s->ns->sessions;
        struct session_slot *slot = &all->slots[s->slot];

        forget_openings(s);
        truncation_call_off(s, -ENOENT);
        if (session_is_live(s)) {
                session_log_gone(s);
                all->n_live--;
        } else {
                all->n_dead--;
        }
        session_log_forget(s);
        session_end_at(s, PAGE_NONE);
        session_drop_window(s);
        unlink_bucket(all, s);
        slot->session = NULL;
        slot->next_free = all->free_slot;
        all->free_slot = s->slot + 1;
        free(s);
}

/* Ends a live session: its handles find nothing. Its pages in the tree stay cached. The sweep frees
 * a long window. */
static void session_end(struct session *s)
{
        struct store *store = s->ns->store;
        struct sessions *all = s->ns->sessions;

        if (s->window.n_before - s->window.n_shed + s->window.n <= store->drop_slice_pages) {
                session_free(s);
                return;
        }
        forget_openings(s);
        truncation_call_off(s, -ENOENT);
        session_log_gone(s);
        session_end_at(s, PAGE_NONE);
        list_remove(&s->window.link);
        all->n_room -= s->window.room;
        all->n_live--;
        all->n_dead++;
        s->epoch = s->ns->epoch - 1;
        if (store->owner.on_work)
                store->owner.on_work(store->owner.data);
}

void session_tell(struct ns *ns, const uint8_t *id, uint32_t id_len)
{
        tenant_tell(ns->tenant, session_rests, ns, id, id_len);
}

uint64_t session_drop(struct session *s)
{
        uint64_t n = 1 + s->n_open + MIN(s->window.n, s->ns->store->drop_slice_pages);
        uint32_t tail = session_tail(s), id_len = s->id_len;
        uint8_t id[SESSION_ID_MAX];
        struct ns *ns = s->ns;

        memcpy(id, s->id, id_len);
        session_end(s);
        session_tell(ns, id, id_len);
        return n + drop_text(ns, tail, 0, session_page_is_shared);
}

uint32_t sessions_count(const struct ns *ns)
{
        return ns->sessions ? ns->sessions->n_live : 0;
}

void sessions_reset(struct ns *ns)
{
        struct sessions *all = ns->sessions;

        if (!all)
                return;
        truncations_reset(all);
        all->n_dead += all->n_live;
        all->n_live = 0;
        all->n_room = 0;
}

bool sessions_are_left(const struct ns *ns)
{
        const struct sessions *all = ns->sessions;

        return all && (all->n_dead > 0 || !list_is_empty(&all->shedding));
}

bool sessions_sweep(struct ns *ns, uint32_t *budget)
{
        struct sessions *all = ns->sessions;

        while (all && !list_is_empty(&all->shedding) && *budget > 0)
                *budget -= session_shed(
                        list_first(&all->shedding, struct session, window.shed_link), *budget);
        while (all && all->n_dead > 0 && *budget > 0) {
                struct session *s = all->slots[all->sweep_slot].session;
                bool is_dead = s && !session_is_live(s);

                *budget -= is_dead ? session_shed_window(s, *budget) : 0;
                if (is_dead && s->window.n > 0)
                        break; /* continue the next time */
                all->sweep_slot = (all->sweep_slot + 1) & (all->n_slots - 1);
                if (is_dead)
                        session_free(s);
                *budget -= MIN(*budget, 1u);
        }
        return sessions_are_left(ns);
}

void sessions_free(struct ns *ns)
{
        struct sessions *all = ns->sessions;

        if (!all)
                return;
        truncations_end(ns);
        session_log_close(ns);
        for (uint32_t i = 0; i < all->n_slots; i++) {
                if (all->slots[i].session)
                        free(session_memory(all->slots[i].session));
                free(all->slots[i].session);
                free(all->slots[i].ending);
        }
        free(all->slots);
        free(all);
        ns->sessions = NULL;
}

const struct session *session_next(const struct ns *ns, uint64_t after, uint64_t *ret_number)
{
        const struct sessions *all = ns->sessions;

        for (uint64_t i = after; all && i < all->n_slots; i++) {
                const struct session *s = all->slots[i].session;

                if (s && session_is_live(s)) {
                        *ret_number = i + 1;
                        return s;
                }
        }
        return NULL;
}

/* ---- ends in the prefix tree ----------------------------------------------------------------- */

/* All sessions that end at a page share one struct ending, which the page's page_extra.tails names.
 * So dropping or moving a page takes one step for any number of sessions. */

/* Returns NULL if no session ends at the page. */
static struct ending *ending_at(const struct ns *ns, uint32_t page)
{
        uint32_t id = ns_extra(ns, page)->tails;

        return id == 0 ? NULL : ns->sessions->slots[id - 1].ending;
}

static void put_ending(struct ns *ns, struct ending *e, uint32_t page)
{
        e->page = page;
        ns_make_extra(ns, page)->tails = e->id;
}

/* No session ends at the page any more. */
static void spare_ending(struct ns *ns, struct ending *e)
{
        e->page = PAGE_NONE;
        list_append(&ns->sessions->spare_endings, &e->spare_link);
}

static void leave_ending(struct session *s)
{
        struct ending *e = s->end;

        if (!e)
                return;
        list_remove(&s->end_link);
        s->end = NULL;
        if (--e->n > 0)
                return;
        ns_make_extra(s->ns, e->page)->tails = 0;
        spare_ending(s->ns, e);
}

static void join_ending(struct session *s, struct ending *e)
{
        s->end = e;
        list_append(&e->sessions, &s->end_link);
        e->n++;
}

void session_end_at(struct session *s, uint32_t page)
{
        struct sessions *all = s->ns->sessions;
        struct ending *e;

        leave_ending(s);
        if (page == PAGE_NONE)
                return;
        e = ending_at(s->ns, page);
        if (!e) {
                e = list_first(&all->spare_endings, struct ending, spare_link);
                list_remove(&e->spare_link);
                put_ending(s->ns, e, page);
        }
        join_ending(s, e);
}

/* Makes all sessions that end at `from` end at `to`, or nowhere (NULL). */
static void merge_endings(struct ns *ns, struct ending *from, struct ending *to)
{
        while (!list_is_empty(&from->sessions)) {
                struct session *s = list_first(&from->sessions, struct session, end_link);

                list_remove(&s->end_link);
                s->end = NULL;
                if (to)
                        join_ending(s, to);
        }
        from->n = 0;
        spare_ending(ns, from);
}

void sessions_page_goes(struct ns *ns, uint32_t page)
{
        struct ending *e = ending_at(ns, page), *there;
        uint32_t up = tree_has(&ns->tree, page) ? tree_parent(&ns->tree, page) : PAGE_NONE;

        truncations_page_goes(ns, page);
        if (!e)
                return;
        if (up != PAGE_NONE)
                session_log_moved(ns, page, up);
        ns_make_extra(ns, page)->tails = 0;
        there = up == PAGE_NONE ? NULL : ending_at(ns, up);
        if (up == PAGE_NONE || (there && there->n > e->n)) {
                merge_endings(ns, e, there);
                return;
        }
        if (there)
                merge_endings(ns, there, e);
        put_ending(ns, e, up);
}

void sessions_page_moved(struct ns *ns, uint32_t page, uint32_t to)
{
        struct ending *e = ending_at(ns, page);

        assert(ns_extra(ns, page)->n_windows == 0);

        truncations_page_moved(ns, page, to);
        if (!e)
                return;
        session_log_moved(ns, page, to);
        ns_make_extra(ns, page)->tails = 0;
        put_ending(ns, e, to);
}

bool session_page_is_shared(const struct ns *ns, uint32_t page)
{
        return !tree_is_leaf(&ns->tree, page) || ns_extra(ns, page)->tails != 0 ||
               ns_is_pinned(ns, page);
}

/* ---- idle times ------------------------------------------------------------------------------ */

/* Returns how long the session may be idle; 0: for ever. */
static uint64_t session_expire_time(const struct session *s)
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

/* Notes that the client uses the page where the session ends in the tree, if there is one. */
static void session_touch_tail(struct attach *a, const struct session *s, uint64_t now_nsec)
{
        uint32_t tail = session_tail(s);

        if (tail != PAGE_NONE)
                touch_page(a, tail, (uint32_t)ns_page(s->ns, tail)->generation, 0, now_nsec);
}

/* ---- handles --------------------------------------------------------------------------------- */

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

/* ---- queries --------------------------------------------------------------------------------- */

/* Queries of a session, and its pages, which are pinned for the client that asks for them. */

static uint32_t count_head(const struct session *s)
{
        return s->end ? ns_note(s->ns, s->end->page)->depth : 0;
}

/* tail_tokens: the end of the tail; 0: none. */
static uint64_t lost_tokens(const struct session *s, uint64_t tail_tokens)
{
        if (!s->is_truncated)
                return s->n_tokens - tail_tokens;
        return s->head_tokens - tail_tokens + s->n_tokens - session_window_end(s);
}

void session_info(const struct session *s, struct session_info *ret)
{
        uint32_t tail = session_tail(s);
        bool has_tail = tail != PAGE_NONE;
        uint32_t last = s->window.n > 0 ? s->window.pages[s->window.n - 1] : tail;

        *ret = (struct session_info){
                .id = s->id,
                .id_len = s->id_len,
                .n_pages = count_head(s) + s->window.n,
                .n_tokens = s->n_tokens,
                .lost_tokens = lost_tokens(s, has_tail ? ns_page(s->ns, tail)->end_token : 0),
                .n_open = s->n_open,
                .used_nsec = s->used_nsec,
                .expire_nsec = session_expire_time(s),
                .hint = s->hint,
                .is_truncated = s->is_truncated,
        };
        if (last != PAGE_NONE)
                memcpy(ret->last_key, ns_page(s->ns, last)->key, KEY_BYTES);
}

/* Lists n pages of the session from index `from` on; they exist. */
static void list_pages(const struct session *s, uint32_t from, uint32_t n, struct session_page *ret)
{
        const struct ns *ns = s->ns;
        uint32_t n_head = count_head(s), n_of_head = from < n_head ? MIN(n, n_head - from) : 0;
        uint32_t page =
                n_of_head == 0 ? PAGE_NONE : ns_page_of_text(ns, session_tail(s), from + n_of_head);

        for (uint32_t i = n_of_head; i-- > 0; page = tree_parent(&ns->tree, page))
                ret[i].page = page;
        for (uint32_t i = n_of_head; i < n; i++)
                ret[i].page = s->window.pages[from + i - n_head];
        for (uint32_t i = 0; i < n; i++) {
                ret[i].tokens = ns_page(ns, ret[i].page)->tokens;
                ret[i].first_token = page_first_token(ns, ret[i].page);
        }
}

/* Returns how many leading pages can be pinned once more. */
static uint32_t count_pinnable(const struct attach *a, const struct session_page *pages, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                if (!pins_is_open(&a->share) && pin_check_page(a, pages[i].page, 1, NULL) != 0)
                        return i;
        return n;
}

/* Pins the deepest page first: eviction policies expect pages of a text in this order. */
static void pin_pages(struct attach *a, const struct session_page *pages, uint32_t n)
{
        for (uint32_t i = n; i-- > 0;)
                if (pins_is_open(&a->share))
                        pins_add(&a->share, pages[i].page);
                else
                        pin_add(a, pages[i].page);
}

int session_pages(struct attach *a, struct session *s, struct session_range range,
        uint64_t now_nsec, struct session_page *ret, uint32_t *ret_n, struct detail *d)
{
        struct ns *ns = a->ns;
        uint32_t total = count_head(s) + s->window.n, n;
        int r;

        store_set_now(ns->store, now_nsec);
        *ret_n = 0;
        n = range.from < total ? MIN(range.max, total - range.from) : 0;
        list_pages(s, range.from, n, ret);
        if (n > 0 && count_pinnable(a, ret, n) == 0)
                return pin_check_page(a, ret[0].page, 1, d);
        n = count_pinnable(a, ret, n);
        r = pins_is_open(&a->share) ? 0 : pin_reserve(a, n, d);
        if (r != 0)
                return r;
        session_use(s, now_nsec);
        session_log_used(s);
        session_touch_tail(a, s, now_nsec);
        if (n == 0)
                return KVL_STATUS_MISS;
        pin_pages(a, ret, n);
        *ret_n = n;
        return 0;
}
