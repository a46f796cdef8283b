#include "daemon/core/sessions/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/catalog/drop.h"
#include "daemon/core/catalog/happened.h"
#include "daemon/core/clients/found.h"
#include "daemon/core/objects/store.h"
#include "daemon/core/objects/tenant.h"
#include "daemon/core/quota/chores.h"
#include "daemon/core/sessions/session-impl.h"
#include "proto/status.h"

#define FIRST_SLOTS 16 /* not tuned */

/* That are passed in the time of a look at a page, more or less. Not tuned. */
#define NAMESPACES_PER_LOOK 16

const char *session_hint_name(enum evict_hint hint)
{
        static const char *const names[] = {"unknown", "continues", "done", "returns"};

        return (unsigned)hint < ARRAY_SIZE(names) ? names[hint] : "unknown";
}

/* ---- which there are ------------------------------------------------------------------------- */

static struct session **owner_of(struct sessions *all, uint32_t slot)
{
        return &all->slots[slot].session;
}

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
                at = &(*owner_of(all, *at - 1))->next;
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

/* Twice as many slots. 0 or -ENOMEM (unchanged). */
static int grow(struct sessions *all)
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

/* Before the first session: with the log. 0; -ENOMEM; as session_log_open(). */
static int begin(struct ns *ns, struct detail *d)
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

/* A free slot has a session's worth of everything. 0 or -ENOMEM. */
static int prepare_slot(struct sessions *all)
{
        struct session_slot *slot;
        struct ending *e;

        if (all->free_slot == 0 && grow(all) < 0)
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

/* Those that an invalidation ended and no sweep has freed yet count, too. */
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

/* 0; -EMFILE with the sentence; -ENOMEM; as session_log_open(). */
static int session_new(
        struct ns *ns, const uint8_t *id, uint32_t id_len, struct session **ret_s, struct detail *d)
{
        struct sessions *all;
        int r = begin(ns, d);

        if (r < 0)
                return r;
        all = ns->sessions;
        /* All of those that an invalidation ended would take too long. */
        while (all->n_dead > 0 && all->n_live + all->n_dead >= SESSIONS_MAX) {
                uint32_t budget = ns_store(ns)->drop_slice_pages;

                (void)sessions_sweep(ns, &budget);
        }
        if (all->n_live >= SESSIONS_MAX)
                return detail_set(d, -EMFILE,
                        "namespace %s has %u sessions, the most there may be: drop those that are "
                        "over, or let them expire sooner (session_expire of tenant %s); "
                        "kvleasectl sessions lists them",
                        ns->name, SESSIONS_MAX, ns->tenant->name);
        if (count_of_tenant(ns->tenant) >= SESSIONS_TENANT_MAX)
                return detail_set(d, -EMFILE,
                        "tenant %s has %u sessions, the most there may be: drop those that are "
                        "over, or let them expire sooner (session_expire of the tenant); "
                        "kvleasectl sessions lists them",
                        ns->tenant->name, SESSIONS_TENANT_MAX);
        *ret_s = session_make(ns, id, id_len);
        return *ret_s ? 0 : -ENOMEM;
}

static void forget_openings(struct session *s)
{
        list_for_each_safe (o, &s->openings, struct opening, session_link) {
                o->session = NULL;
                list_remove(&o->session_link);
        }
}

/* Handles find nothing from now on. Its pages in the tree stay. */
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

/* As session_free(), of one that is live; what has a long window is left to the sweep. */
static void session_end(struct session *s)
{
        struct store *store = ns_store(s->ns);
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
        if (store->on_work)
                store->on_work(store->callback_data);
}

/* It, and pages that nobody else has use for. Returns what took as long as so many looks at pages.
 */
static uint64_t session_drop(struct session *s)
{
        uint64_t n = 1 + s->n_open + MIN(s->window.n, ns_store(s->ns)->drop_slice_pages);
        uint32_t tail = session_tail(s);
        struct ns *ns = s->ns;

        session_end(s);
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
                struct session *s = *owner_of(all, all->sweep_slot);
                bool is_dead = s && !session_is_live(s);

                *budget -= is_dead ? session_shed_window(s, *budget) : 0;
                if (is_dead && s->window.n > 0)
                        break; /* the rest of it next time */
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

/* ---- who has one open ------------------------------------------------------------------------ */

static uint64_t expire_of(const struct session *s)
{
        return s->expire_nsec > 0 ? s->expire_nsec : s->ns->tenant->attrs.session_expire_nsec;
}

/* When it has been idle for too long; UINT64_MAX: never, as long as it stays as it is. */
static uint64_t expiry_of(const struct session *s)
{
        uint64_t expire_nsec = expire_of(s);

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

static struct opening *find_opening(const struct attach *a, uint32_t handle)
{
        const uint64_t *value = map_find(&a->sessions, handle);

        return value ? (struct opening *)(uintptr_t)*value : NULL;
}

/* With the next handle that is free. NULL: no memory. */
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

/* Its handle is left to the caller. */
static void opening_free(struct attach *a, struct opening *o, uint64_t now_nsec)
{
        if (o->session) {
                list_remove(&o->session_link);
                o->session->n_open--;
                session_use(o->session, now_nsec);
                session_log_used(o->session);
        }
        a->member->n_sessions--;
        free(o);
}

static void close_handle(struct attach *a, uint32_t handle, uint64_t now_nsec)
{
        opening_free(a, find_opening(a, handle), now_nsec);
        (void)map_remove(&a->sessions, handle);
}

static int check_open(const struct attach *a, uint32_t id_len, struct detail *d)
{
        int r = attach_check_version(a, d);

        if (r != 0)
                return r;
        if (id_len == 0 || id_len > SESSION_ID_MAX)
                return detail_set(d, -EINVAL, "a session's id has 1 to %d bytes, not %u",
                        SESSION_ID_MAX, id_len);
        if (a->member->n_sessions >= SESSION_HANDLES_MAX)
                return detail_set(d, -EMFILE,
                        "this client has %d sessions open, the most it may: close some of them",
                        SESSION_HANDLES_MAX);
        return 0;
}

static void touch(struct attach *a, const struct session *s, uint64_t now_nsec)
{
        uint32_t tail = session_tail(s);

        if (tail != PAGE_NONE)
                touch_page(a, tail, (uint32_t)ns_page(s->ns, tail)->generation, 0, now_nsec);
}

int session_open(struct attach *a, const uint8_t *id, uint32_t id_len, bool must_exist,
        uint64_t expire_nsec, uint64_t now_nsec, uint32_t *ret_handle, bool *ret_created,
        struct detail *d)
{
        struct ns *ns = a->ns;
        struct session *s;
        struct opening *o;
        int r = check_open(a, id_len, d);

        if (r != 0)
                return r;
        store_set_now(ns_store(ns), now_nsec);
        s = session_find(ns, id, id_len);
        if (!s && must_exist)
                return detail_set(
                        d, -ENOENT, "namespace %s has no such session (any more)", ns->name);
        *ret_created = !s;
        o = opening_new(a);
        r = !o ? -ENOMEM : s ? 0 : session_new(ns, id, id_len, &s, d);
        if (r < 0) {
                if (o)
                        close_handle(a, a->last_session, now_nsec);
                return r == -ENOMEM ? detail_set(d, r, "no memory for a session") : r;
        }
        o->session = s;
        list_append(&s->openings, &o->session_link);
        s->n_open++;
        if (expire_nsec > 0)
                s->expire_nsec = expire_nsec;
        session_use(s, now_nsec);
        if (*ret_created || expire_nsec > 0)
                session_log_put(s);
        else
                session_log_used(s);
        touch(a, s, now_nsec);
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
        store_set_now(ns_store(a->ns), now_nsec);
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

/* ---- what is said of one --------------------------------------------------------------------- */

uint32_t session_end_page(const struct session *s)
{
        return session_tail(s);
}

enum evict_hint session_hint_of(const struct session *s, uint64_t *ret_returns_nsec)
{
        *ret_returns_nsec = s->returns_nsec;
        return s->hint;
}

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
                .n_pages = (has_tail ? ns_note(s->ns, tail)->depth : 0) + s->window.n,
                .n_tokens = s->n_tokens,
                .lost_tokens = lost_tokens(s, has_tail ? ns_page(s->ns, tail)->end_token : 0),
                .n_open = s->n_open,
                .used_nsec = s->used_nsec,
                .expire_nsec = expire_of(s),
                .hint = s->hint,
                .is_truncated = s->is_truncated,
        };
        if (last != PAGE_NONE)
                memcpy(ret->last_key, ns_page(s->ns, last)->key, KEY_BYTES);
}

const struct ns *session_ns(const struct session *s)
{
        return s->ns;
}

/* ---- the end of those that nobody uses ------------------------------------------------------- */

static bool is_idle_for(const struct session *s, uint64_t idle_nsec, uint64_t now_nsec)
{
        return now_nsec >= s->used_nsec && now_nsec - s->used_nsec >= idle_nsec;
}

static void begin_round(struct sessions *all, uint64_t tenant_expire_nsec)
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
                begin_round(all, tenant_expire_nsec);
        while (budget > 0 && all->expire_slot < all->n_slots) {
                struct session *s = *owner_of(all, all->expire_slot++);
                uint64_t expiry_nsec = s && session_is_live(s) ? expiry_of(s) : UINT64_MAX;
                uint32_t cost = 1;

                if (expiry_nsec <= now_nsec) {
                        cost += MIN(s->window.n, ns_store(ns)->drop_slice_pages);
                        session_end(s);
                        ns_store(ns)->counters.sessions_expired++;
                        happened_session_expired(ns);
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

/* Returns what took as long as so many looks at pages. */
static uint64_t purge(struct session_purge *p, struct session *s)
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
        chore_init(&p->chore);
}

void session_purge_id(struct session_purge *p, struct ns *ns, const uint8_t *id, uint32_t id_len)
{
        (void)purge(p, session_find(ns, id, id_len));
}

/* The one with the smallest number from p->ns_id on; NULL: there is none. */
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

/* What is left of it: a slice. False: it is over. */
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
                        n += purge(p, *owner_of(all, p->slot++));
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

static bool work_purge(struct chore *c, uint64_t budget)
{
        struct session_purge *p = container_of(c, struct session_purge, chore);

        if (purge_some(p, budget))
                return true;
        p->done(p);
        return false;
}

void session_purge_queue(struct session_purge *p, void (*done)(struct session_purge *p))
{
        p->done = done;
        p->chore.work = work_purge;
        chore_queue(&p->chore, p->tenant);
}

void session_purges_end(struct tenant *t)
{
        list_for_each_safe (c, &t->chores, struct chore, link) {
                if (c->work != work_purge)
                        continue;
                chore_remove(c, t);
                container_of(c, struct session_purge, chore)
                        ->done(container_of(c, struct session_purge, chore));
        }
}
