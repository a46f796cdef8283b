/* The table of a namespace's sessions: finds them by id, makes, drops and frees them. */
#include "daemon/core/sessions/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/cache/drop.h"
#include "daemon/core/state/listeners.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/sessions/session-impl.h"

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

void session_end(struct session *s)
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
