/*
 * Sessions are named chains of pages: conversations. A session belongs to a namespace and outlives
 * the client that opened it. Several clients of the tenant can have it open. Loop thread only.
 *
 *   opened (by some) <-> kept (by none, until it is idle for too long) -> gone.
 *
 * A session ends at its *tail*, a page of the prefix tree. Its pages are the tail and all of the
 * tail's ancestors. A publish that names the session moves the tail to the published page. A
 * session doesn't keep its pages from being evicted. If the tail is evicted, its parent becomes the
 * tail, and the tokens beyond it count as lost.
 *
 * A session that was *truncated* (session-truncate.h) has a gap. Pages before the gap are its head,
 * which is like a session that wasn't truncated: the tail is the head's last page. Pages after the
 * gap are its window: the session holds these pages by itself, in the order of the text, which may
 * have more gaps there. They are DETACHED, out of index and tree, because results computed after a
 * gap don't match the pages' keys. A page with other uses (other texts continue it, other sessions
 * end there, a client pins it) stays in the tree. It becomes DETACHED when it leaves the tree.
 * Pages published to the session from then on are in the window, too.
 *
 * Windows are dropped, each as a whole, if memory is needed: first those of sessions that no client
 * has open, the least recently used one first, and last those of open sessions. No window holds
 * pages of a recalled extent set: the window is dropped. SESSION_WINDOWS_SHARE bounds the space of
 * all windows of a namespace; windows of sessions that aren't open are dropped for others.
 *
 * An invalidation of the whole namespace ends all its sessions at once, as their epoch is an old
 * one then. The sweep frees them with the pages.
 */
#ifndef KVL_CORE_SESSION_H
#define KVL_CORE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/list.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "policy/evict.h"

struct session_log_head;
struct session_truncation;

#define SESSION_ID_MAX 64 /* bytes */

/* The most sessions of a namespace. Each takes some 400 bytes that no account is charged for. Not
 * tuned. */
#define SESSIONS_MAX (UINT32_C(1) << 16)

/* Sessions may share the pages of their windows, so the number of pages doesn't bound the memory
 * and time that windows take. The windows of a namespace together have space for so many times its
 * pages. Not tuned. */
#define SESSION_WINDOWS_SHARE 4

/* The sessions that end at one page. They share this struct, so that dropping a page costs the same
 * for any number of them. When the endings of two pages merge, the smaller one is added to the
 * larger. There are as many endings as there ever were sessions. */
struct ending {
        uint32_t id;                 /* page_extra.tails of the page */
        uint32_t page;               /* PAGE_NONE: spare */
        uint32_t n;                  /* sessions that end here; 0: spare */
        struct list_link sessions;   /* struct session.end_link */
        struct list_link spare_link; /* sessions.spare_endings */
};

/* The pages that a truncated session holds by itself, and those it held until lately. One piece of
 * memory has first n_before pages that left the window, then the window. */
struct session_window {
        uint32_t *pages;  /* the window, in the order of the text. The memory is owned and begins at
                             session_memory(); NULL: none */
        uint32_t n, room; /* pages in the window; space for pages */
        uint32_t n_before; /* pages in front of `pages` that left the window; PAGE_NONE: no longer
                              held */
        uint32_t n_shed;   /* of these, the first n are no longer held */
        uint64_t first;    /* number of pages that ever were before the window's first */
        uint64_t token;    /* the text's token where the window begins; truncated sessions only */
        struct list_link link;      /* sessions.windows, where n > 0 */
        struct list_link shed_link; /* sessions.shedding, while pages before the window are held */
        const uint32_t *coming; /* the next window, which replaces this one once it is in the log;
                                   borrowed from the truncation */
        uint32_t n_coming;      /* pages in `coming` */
};

/* The state of the session's record for other hosts, as far as is known. */
enum session_told {
        SESSION_UNTOLD,  /* none, or out of date */
        SESSION_TELLING, /* being written */
        SESSION_TOLD,    /* up to date, or changed by other hosts since. The log has this state */
};

/* The session as the log has it. */
struct session_logged {
        bool is_there;       /* the log has the session */
        uint64_t used_nsec;  /* session.used_nsec in the log */
        uint32_t n_pages[2]; /* pages of the window, from its first on, and of the next window, that
                                each half has */
};

/* A session: sessions/session.h. It is live while its epoch is its namespace's. */
struct session {
        struct ns *ns;  /* borrowed */
        uint32_t slot;  /* its place in sessions.slots */
        uint32_t next;  /* the next session with this hash bucket: slot + 1; 0 ends */
        uint64_t hash;  /* the id's */
        uint64_t epoch; /* the namespace's when the session was made. An invalidation of the whole
                           namespace changes the namespace's, which ends the session. A dropped
                           session that can't be freed at once gets an older epoch */
        struct list_link openings;       /* struct opening.session_link */
        uint32_t n_open;                 /* their number */
        struct ending *end;              /* its last page in the tree; NULL: none */
        struct list_link end_link;       /* ending.sessions */
        uint64_t n_tokens;               /* up to the text's end, gaps and lost pages included */
        uint64_t used_nsec, expire_nsec; /* as in struct session_info; 0: the tenant's */
        enum evict_hint hint;
        uint64_t returns_nsec; /* EVICT_HINT_RETURNS: the time */
        enum session_told told;
        bool is_truncated;
        uint64_t head_tokens; /* truncated: where its head ended when it was truncated */
        struct session_window window;
        struct session_logged logged;
        struct session_truncation *truncation; /* under way; borrowed; NULL: none */
        uint32_t id_len;
        uint8_t id[SESSION_ID_MAX];
};

/* A session that an attachment has open by a handle: attach.sessions. */
struct opening {
        struct list_link session_link; /* session.openings */
        struct session *session;       /* borrowed; NULL: the session was dropped */
};

struct session_slot {
        struct session *session; /* owned; NULL: the slot is free */
        struct ending *ending;   /* owned; made with the slot's first session, and kept */
        uint32_t next_free;      /* the next free slot + 1; 0 ends */
        uint32_t bucket;         /* hash bucket with this slot's number: first slot + 1; 0: none */
};

/* The state of the log of sessions: sessions/session-log.h. */
struct session_log {
        struct session_log_head *head; /* mapped; NULL: the log is off */
        int fd;                        /* owned */
        uint64_t limit_bytes;          /* limit of a half; tests lower it */
        uint32_t piece_pages;          /* SESSION_LOG_PAGES; tests lower it */
        uint32_t copy_slot; /* while copying: the other half has all sessions of the slots before */
        bool is_in_slot;    /* and a part of the window of the session in copy_slot */
        bool is_copying;    /* live data is being copied into the other half */
        uint64_t idle_bytes; /* memory of the unused half, to be given back */
        uint64_t n_copies;   /* finished copies; for tests */
};

/* All sessions of a namespace. A session that was invalidated, or that was dropped and has a long
 * window, is dead: it keeps its slot until it is swept. */
struct sessions {
        struct session_slot *slots; /* owned */
        uint32_t n_slots;           /* 0, or a power of two */
        uint32_t free_slot;         /* the first free slot + 1; 0: there is none */
        uint32_t n_live, n_dead;    /* sessions */
        uint32_t sweep_slot;        /* where the sweep of dead sessions continues */
        uint32_t expire_slot; /* where the round of sessions_expire() continues; 0: it has ended */
        uint64_t next_expiry_nsec; /* the earliest expiry among sessions that the round has passed,
                                      or that were used since it began */
        uint64_t tenant_expire_nsec; /* the tenant's session_expire when the round began */
        struct hash_seed seed;       /* for hashes of ids */
        struct session_log log;
        struct list_link spare_endings; /* struct ending.spare_link */
        uint64_t n_room; /* space for pages in the windows of live sessions, and in the next windows
                            of truncations */
        struct list_link truncations; /* struct session_truncation.link */
        struct list_link shedding;    /* struct session_window.shed_link */
        struct list_link windows[2];  /* struct session_window.link, by n_open > 0; the least
                                         recently used first */
};

/* Can the session be found? Else it waits for the sweep. */
static inline bool session_is_live(const struct session *s)
{
        return s->epoch == s->ns->epoch;
}

/* Returns the session's last page in the prefix tree; PAGE_NONE: none. */
static inline uint32_t session_tail(const struct session *s)
{
        return s->end ? s->end->page : PAGE_NONE;
}

/* Returns the start of the memory of the session's window; NULL: none. */
static inline uint32_t *session_memory(const struct session *s)
{
        return s->window.pages ? s->window.pages - s->window.n_before : NULL;
}

/* The most sessions in all namespaces of a tenant, which take 100 MB. Not tuned. */
#define SESSIONS_TENANT_MAX (4 * SESSIONS_MAX)
/* The most handles of one client at a time. Not tuned. */
#define SESSION_HANDLES_MAX 4096
/* How many pages back from the end of its window a session can be continued. Not tuned. */
#define SESSION_REWIND_PAGES 256

/* ---- clients: session.c ---------------------------------------------------------------------- */

struct session_request {
        const uint8_t *id; /* borrowed */
        uint32_t id_len;
        bool must_exist;
        uint64_t expire_nsec; /* how long the session may be idle; 0: as set before, else the
                                 tenant's session_expire */
        uint64_t now_nsec;
};

/*
 * Opens the session with this id for the attachment; makes it if there is none, unless must_exist.
 * Returns 0 with *ret_handle, a number > 0 of the attachment, and *ret_created.
 * With the sentence (nothing changed): -EINVAL: the id is empty or longer than SESSION_ID_MAX;
 * -ENOENT: must_exist, and there is none; -EMFILE: the client, the namespace or the tenant has too
 * many; KVL_STATUS_STALE: the namespace has another version now; -ENOMEM.
 */
int session_open(struct attach *a, const struct session_request *rq, uint32_t *ret_handle,
        bool *ret_created, struct detail *d);

/* Can the attachment have sessions, and an id have this length? Returns 0; -EINVAL or
 * KVL_STATUS_STALE, as session_open(). */
int session_check_id(const struct attach *a, uint32_t id_len, struct detail *d);

/* Returns the session of a handle, borrowed. NULL with the sentence: the attachment has no such
 * handle, or the session has ended. */
struct session *session_of(struct attach *a, uint32_t handle, struct detail *d);

/* Closes the handle. With `drop` the session ends for all clients (their handles find nothing from
 * then on), and its pages that aren't used otherwise are freed. Returns 0; -ENOENT with the
 * sentence: the attachment has no such handle, or (with `drop`) the session had ended already. */
int session_close(
        struct attach *a, uint32_t handle, bool drop, uint64_t now_nsec, struct detail *d);

/* Closes all handles of the attachment. */
void sessions_close_all(struct attach *a, uint64_t now_nsec);

struct session_page {
        uint32_t page;
        uint32_t tokens;
        uint64_t first_token; /* its position in the text */
};

/* Pages of a session by their index. */
struct session_range {
        uint32_t from;
        uint32_t max; /* at most so many */
};

/*
 * Returns the session's pages in the range, in the order of the text. Pins
 * each once for the attachment: in its pin segment if it has one, else over the socket. Counts as a
 * use of the session, and of its tail. Returns 0 with *ret_n > 0; KVL_STATUS_MISS: there are none
 * from `from` on; -ENOMEM, or as pin_reserve() and pin_check_page(), with the sentence: no page is
 * pinned.
 */
int session_pages(struct attach *a, struct session *s, struct session_range range,
        uint64_t now_nsec, struct session_page *ret, uint32_t *ret_n, struct detail *d);

/* ---- publishing: session-window.c ------------------------------------------------------------ */

/* Publishing calls these functions with a handle that may be 0: no session. session_reserve() is
 * called before the n pages are sealed, so that session_append() can't fail. Returns 0; with the
 * sentence: -ENOENT: there is no such session; -ENOMEM: no space in its window. */
int session_reserve(struct attach *a, uint32_t handle, uint32_t n, struct detail *d);

/* Is the session truncated, so that pages published to it must stay out of the index? */
bool session_is_private(struct attach *a, uint32_t handle);

/* Returns the page with this key after which the session may be continued: a findable page, or one
 * of the last SESSION_REWIND_PAGES of its window. PAGE_NONE: none. */
uint32_t session_find_parent(struct attach *a, uint32_t handle, const uint8_t key[KEY_BYTES]);

/* Returns the token, at most TEXT_TOKENS_MAX, where a page published to the session after the page
 * `parent` (PAGE_NONE: none) begins. */
uint64_t session_next_token(struct attach *a, uint32_t handle, uint32_t parent);

/* Is the page one of the last SESSION_REWIND_PAGES of the session's window? */
bool session_may_continue(struct attach *a, uint32_t handle, uint32_t page);

/* Makes `page` the end of the session: it was published, or had its key already, after `parent`
 * (may be PAGE_NONE). Pages of the window after `parent` leave it. A page that can't be found and
 * is in no window counts as lost at once. */
void session_append(
        struct attach *a, uint32_t handle, uint32_t page, uint32_t parent, uint64_t now_nsec);

/* Hints when the session's end will be used, valid for later ends until the next hint. after_nsec:
 * the time from now, for EVICT_HINT_RETURNS. */
void session_hint(struct session *s, enum evict_hint hint, uint64_t after_nsec, uint64_t now_nsec);

/* Returns the last hint. *ret_returns_nsec: when the session returns, for EVICT_HINT_RETURNS. */
enum evict_hint session_hint_of(const struct session *s, uint64_t *ret_returns_nsec);

/* Returns "unknown", "continues", "done" or "returns"; static. */
const char *session_hint_name(enum evict_hint hint);

/* ---- other hosts: session-window.c ----------------------------------------------------------- */

/* Another host has continued the session, or it is new here: makes it end at the page `tail` of the
 * tree (PAGE_NONE: none of it is here), with a text of n_tokens, 1 .. TEXT_TOKENS_MAX. Makes the
 * session if there is none. Returns 0; -EBUSY: session_may_be_replaced() is false; -EMFILE,
 * -ENOMEM: as session_open() (nothing changed). */
int session_replace(struct ns *ns, const uint8_t *id, uint32_t id_len, uint32_t tail,
        uint64_t n_tokens, uint64_t now_nsec, struct detail *d);

/* The session's state is being written for other hosts. */
void session_begin_telling(struct session *s);

/* The state was written, or (is_done false) maybe not: then it is written again the next time that
 * the session rests. If the session changed meanwhile, its present state counts as unwritten. */
void session_end_telling(struct session *s, bool is_done);

/* May another host's state replace the session? Not if it is open or truncated; nor if a change
 * made here isn't written for other hosts yet. A session without pages may be replaced. */
bool session_may_be_replaced(const struct session *s);

/* ---- looking at sessions: session.c ---------------------------------------------------------- */

/* Returns the session with this id, borrowed. NULL: there is none. */
struct session *session_find(const struct ns *ns, const uint8_t *id, uint32_t id_len);

/* Iterates over all sessions, in no particular order. `after`: the number of the last one seen, 0
 * at first; *ret_number: the returned one's. Numbers are reused. NULL at the end. Borrowed. */
const struct session *session_next(const struct ns *ns, uint64_t after, uint64_t *ret_number);

/* Returns the number of sessions. */
uint32_t sessions_count(const struct ns *ns);

struct session_info {
        const uint8_t *id; /* borrowed */
        uint32_t id_len;
        uint32_t n_pages;     /* present ones, in head and window */
        uint64_t n_tokens;    /* up to its end, gaps and lost tokens included */
        uint64_t lost_tokens; /* at its end; if truncated, also at its head's end */
        uint32_t n_open;      /* handles of all clients */
        uint64_t used_nsec;   /* when it was last opened, closed, published to or asked for pages */
        uint64_t expire_nsec; /* how long it may be idle; 0: for ever */
        enum evict_hint hint;
        bool is_truncated;
        uint8_t last_key[KEY_BYTES]; /* set if n_pages > 0 */
};

void session_info(const struct session *s, struct session_info *ret);

/* ---- for the rest of the core ---------------------------------------------------------------- */

/* Is a page of the tree used apart from windows: by pages that continue it, by sessions that end
 * there, or by pins? */
bool session_page_is_shared(const struct ns *ns, uint32_t page);

/* The page is about to leave the tree (call it before tree_remove()), or is stale and dropped:
 * sessions that end there end at its parent. */
void sessions_page_goes(struct ns *ns, uint32_t page);

/* The page moves to `to`, a number that isn't SEALED yet. No window holds it. */
void sessions_page_moved(struct ns *ns, uint32_t page, uint32_t to);

/* All sessions of the namespace end, because its pages can't be found any more. Call it before the
 * namespace's epoch changes; O(1). */
void sessions_reset(struct ns *ns);

/* Has sessions_sweep() work? */
bool sessions_are_left(const struct ns *ns);

/* Frees ended sessions, and releases pages that have left windows. Looks at up to *budget sessions
 * and pages, and lowers it. Returns true if there is more. */
bool sessions_sweep(struct ns *ns, uint32_t *budget);

/* Gives pages back because memory is needed: some that left a window before, else those of the next
 * window to drop. Frees at most store.drop_slice_pages now. Its session loses the whole window;
 * later calls or the sweep free the rest. `open`: also takes windows of open sessions. Returns
 * false if there is none. */
bool sessions_give_way(struct ns *ns, bool open);

/* The extent set is taken back: drops windows with pages in it. Releases these pages at once; the
 * sweep releases the others. Looks at windows until all pages of the set that windows hold have
 * been found. Returns the number of pages looked at. */
uint64_t sessions_leave_set(struct extent_set *set);

/*
 * Drops sessions that were idle for too long; their pages in the tree stay cached. Continues where
 * it stopped; looks at no more than `budget` sessions, or frees so many pages. Returns when to call
 * it next: now_nsec if the round isn't over; UINT64_MAX: no session will expire. The time returned
 * isn't later than the next expiry, unless a client opens or closes a session or the tenant's time
 * changes.
 */
uint64_t sessions_expire(struct ns *ns, uint64_t now_nsec, uint32_t budget);

/* Checks the invariants of the namespace's sessions. Returns NULL, or a static sentence about an
 * error. */
const char *sessions_check(const struct ns *ns);

/* ---- for recovery ---------------------------------------------------------------------------- */

/* These functions fill in parts of a session of the previous daemon; recovery sets its other fields
 * (life/recover-sessions.h). */

/* Returns the namespace's sessions, borrowed. Makes them if there are none yet, empty and without a
 * log. NULL: no memory. */
struct sessions *sessions_get(struct ns *ns);

/* Frees all sessions of the namespace without looking at their pages, whose state may be anything.
 */
void sessions_free(struct ns *ns);

/* Makes a session with a new id, borrowed. Requires sessions_get(); the caller checks limits. NULL:
 * no memory. */
struct session *session_make(struct ns *ns, const uint8_t *id, uint32_t id_len);

/* Makes the session end at this page of the prefix tree, or nowhere (PAGE_NONE). */
void session_end_at(struct session *s, uint32_t page);

/* Returns where the session's window ends in the text, in tokens; where it begins, if it is empty.
 */
uint64_t session_window_end(const struct session *s);

/* May the windows of all sessions of the namespace have space for n pages in sum? */
bool sessions_may_have_room(const struct ns *ns, uint64_t n);

/* Applies the session's hint to the page where it ends now, in the eviction policy. */
void session_pass_hint(struct session *s, uint64_t now_nsec);

#endif
