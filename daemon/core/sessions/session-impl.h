/*
 * The insides of sessions, shared by session.c (which there are, and who has them open),
 * session-pages.c (where one ends, its pages), session-truncate.c and session-check.c. Loop thread
 * only.
 */
#ifndef KVL_CORE_SESSION_IMPL_H
#define KVL_CORE_SESSION_IMPL_H

#include "daemon/core/sessions/session-log.h"
#include "daemon/core/sessions/session.h"

/* Windows may share pages, which bounds neither their memory nor what it takes to go through them:
 * in sum they have room for so many times the pages of the namespace. Not tuned. */
#define SESSION_WINDOWS_SHARE 4

/*
 * A page where sessions end. They share it, so that a page that goes costs the same however many
 * end there: where two meet, the smaller one is added to the larger. There are as many as there
 * ever were sessions.
 */
struct ending {
        uint32_t id;                 /* page_extra.tails */
        uint32_t page;               /* where it is in use */
        uint32_t n;                  /* sessions; 0: spare */
        struct list_link sessions;   /* struct session.end_link */
        struct list_link spare_link; /* sessions.spare_endings */
};

/*
 * The pages that a truncated session holds by itself, and what it held until lately. All of it lies
 * in one piece of memory: first n_before pages that have left the window, then the window.
 */
struct session_window {
        uint32_t *pages;   /* the window's, in the order of the text; owned, from session_memory()
                              on; NULL: there is no memory */
        uint32_t n, room;  /* pages in the window; pages that it has room for */
        uint32_t n_before; /* pages in front of `pages` that were in the window once; PAGE_NONE: one
                              that isn't held any more */
        uint32_t n_shed;   /* how many of these, counted from the first, aren't held any more */
        uint64_t first;    /* how many pages were in the window before its first page, ever */
        uint64_t token;    /* where in the text the window begins; of a truncated session */
        struct list_link link;      /* sessions.windows, where n > 0 */
        struct list_link shed_link; /* sessions.shedding, while pages before the window are held */
        const uint32_t *coming;     /* what will be the window once the log has it; borrowed from
                                       the truncation */
        uint32_t n_coming;          /* pages in `coming` */
};

/* What the log has of a session. */
struct session_logged {
        bool is_there;       /* the log has the session */
        uint64_t used_nsec;  /* session.used_nsec, as the log has it */
        uint32_t n_pages[2]; /* pages of the window, from its first on, that each half has */
};

/* A conversation. It is live as long as its epoch is its namespace's (session_is_live()). */
struct session {
        struct ns *ns;  /* borrowed */
        uint32_t slot;  /* its place in sessions.slots */
        uint32_t next;  /* the next session with such a hash: slot + 1; 0 ends */
        uint64_t hash;  /* of the id */
        uint64_t epoch; /* the namespace's when the session was made. An invalidation of the whole
                           namespace makes that another, which ends the session; one that is dropped
                           and can't be freed at once gets the epoch before the namespace's */
        struct list_link openings; /* struct opening.session_link */
        uint32_t n_open;           /* how many these are */
        struct ending *end;        /* where it ends in the tree; NULL: nowhere */
        struct list_link end_link; /* ending.sessions */
        uint64_t n_tokens;         /* up to the end of the text, the gap and lost pages included */
        uint64_t used_nsec, expire_nsec; /* as in struct session_info; 0: the tenant's */
        enum evict_hint hint;
        uint64_t returns_nsec; /* of EVICT_HINT_RETURNS: when */
        bool is_truncated;
        uint64_t head_tokens; /* of a truncated one: where its head ended when it was made so */
        struct session_window window;
        struct session_logged logged;
        struct session_truncation *truncation; /* under way; borrowed; NULL: none */
        uint32_t id_len;
        uint8_t id[SESSION_ID_MAX];
};

/* A handle. */
struct opening {
        struct list_link session_link;
        struct session *session; /* NULL: it is gone */
};

struct session_slot {
        struct session *session; /* owned; NULL: the slot is free */
        struct ending *ending;   /* owned; made with the first session here, has its number */
        uint32_t next_free;      /* slot + 1; 0 ends */
        uint32_t bucket;         /* the first session with such a hash: slot + 1; 0: none */
};

struct sessions {
        struct session_slot *slots;       /* owned */
        uint32_t n_slots;                 /* 0, or a power of two */
        uint32_t free_slot;               /* slot + 1; 0: none */
        uint32_t n_live, n_dead;          /* dead: of an older epoch, or dropped; not swept yet */
        uint32_t expire_slot, sweep_slot; /* where these go on */
        uint64_t next_expiry_nsec; /* of those that the round has passed, or that were closed since
                                      it began */
        uint64_t tenant_expire_nsec; /* the tenant's time when it began */
        struct hash_seed seed;
        struct session_log log;
        struct sessions_recovered recovered; /* all 0 where nothing was */
        struct list_link spare_endings;
        uint64_t n_room; /* pages that the windows of live sessions together have room for, with
                            those that truncations hold for them */
        struct list_link truncations; /* struct session_truncation.link */
        struct list_link shedding;
        struct list_link windows[2]; /* [n_open > 0]: those with a window, least recently used first
                                      */
};

static inline bool session_is_live(const struct session *s)
{
        return s->epoch == s->ns->epoch;
}

/* Without a log where they are made here. NULL: no memory. */
struct sessions *sessions_get(struct ns *ns);

/* All that its window takes; NULL: nothing. */
static inline uint32_t *session_memory(const struct session *s)
{
        return s->window.pages ? s->window.pages - s->window.n_before : NULL;
}

/* With sessions_get() behind it; the limits are the caller's. NULL: no memory. */
struct session *session_make(struct ns *ns, const uint8_t *id, uint32_t id_len);

/* It is used: opened, closed, published to, or asked for its pages. */
void session_use(struct session *s, uint64_t now_nsec);

/* ---- session-pages.c ------------------------------------------------------------------------- */

/* Its last page in the tree; PAGE_NONE: none. */
static inline uint32_t session_tail(const struct session *s)
{
        return s->end ? s->end->page : PAGE_NONE;
}

/* Where its window ends: tokens. */
uint64_t session_window_end(const struct session *s);

/* From now on it ends at this page of the tree, or nowhere (PAGE_NONE). */
void session_end_at(struct session *s, uint32_t page);

/* Its window is lost; the log doesn't know yet. */
void session_drop_window(struct session *s);

/* At most so many of the pages that aren't in its window any more are let go of; returns how many.
 */
uint32_t session_shed(struct session *s, uint32_t most);

/* Those of the n pages that are in the set are held by them no more, and PAGE_NONE. The set may be
 * gone then. */
void session_pages_leave_set(uint32_t *pages, uint32_t n, struct extent_set *set);

/* At most so many pages leave it, the last ones; returns how many. Of a session that isn't live. */
uint32_t session_shed_window(struct session *s, uint32_t most);

/* The first n pages of its window aren't in it from now on. A slice of them is let go of now, the
 * rest by sessions_sweep(). */
void session_leave_front(struct session *s, uint32_t n);

/* It has no window, and no room for one; what was in it is left to sessions_sweep(). It may be gone
 * itself. */
void session_abandon_window(struct session *s);

/* May windows hold this page? What compacts is called off by what can't be moved. */
bool sessions_may_hold(const struct ns *ns, uint32_t page);

/* May all windows have room for n pages in sum? */
bool sessions_may_have_room(const struct ns *ns, uint64_t n);

/* They may have it for n more; windows of sessions that nobody has open may go for it. 0; -ENOMEM
 * with the sentence. */
int sessions_make_room(struct ns *ns, uint64_t n, struct detail *d);

/* Where in its text a page ends and begins: tokens. */
static inline uint64_t page_end_token(const struct ns *ns, uint32_t page)
{
        return ns_page(ns, page)->end_token;
}

static inline uint64_t page_first_token(const struct ns *ns, uint32_t page)
{
        return ns_page(ns, page)->end_token - (uint64_t)ns_page(ns, page)->tokens;
}

/* The first n pages left its window; those beyond the first n did. */
static inline void session_unlog_first(struct session *s, uint32_t n)
{
        s->logged.n_pages[0] -= MIN(n, s->logged.n_pages[0]);
        s->logged.n_pages[1] -= MIN(n, s->logged.n_pages[1]);
}

static inline void session_unlog_beyond(struct session *s, uint32_t n)
{
        s->logged.n_pages[0] = MIN(n, s->logged.n_pages[0]);
        s->logged.n_pages[1] = MIN(n, s->logged.n_pages[1]);
}

/* The policy hears of its hint. */
void session_pass_hint(struct session *s, uint64_t now_nsec);

/* ---- session-truncate.c ---------------------------------------------------------------------- */

/* The session is as it was, and won't be truncated, if it was to be: it was published to (-EAGAIN),
 * or is gone (-ENOENT). */
void truncation_call_off(struct session *s, int why);

/* The page leaves the tree; moves to `to`, which has its place there. Before, and after that. */
void truncations_page_goes(struct ns *ns, uint32_t page);
void truncations_page_moved(struct ns *ns, uint32_t page, uint32_t to);

/* All sessions are gone. */
void truncations_reset(struct sessions *all);

/* The namespace goes: they are over, and their owners hear of it. */
void truncations_end(struct ns *ns);

/* As sessions_give_way(), of what would have been a window. */
bool truncations_give_way(struct ns *ns, bool open);

/* As sessions_leave_set(); returns how many pages of the set they held, *n_seen more by those that
 * were looked at. */
uint64_t truncations_leave_set(struct extent_set *set, uint64_t *n_seen);

/* Of the checker: what they hold, and have room for, is added. NULL, or a static sentence. */
const char *truncations_check(const struct ns *ns, uint64_t *n_held, uint64_t *n_room);

#endif
