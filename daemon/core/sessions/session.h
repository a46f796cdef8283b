/*
 * Sessions: named chains of pages (conversations). They belong to a namespace, outlive whoever
 * opened them, and can be opened by several clients of the tenant at the same time. Loop thread
 * only.
 *
 *   opened (by some) <-> kept (by none, until it is idle for too long) -> gone
 *
 * A session ends at its *tail*, a page of the prefix tree; its pages are the tail's ancestors and
 * the tail. A publish that names the session moves the tail there. It doesn't keep its pages from
 * being evicted: where the tail goes, its parent is the tail, and what lay beyond counts as lost.
 *
 * A session that was *truncated* has a head (its first pages, as above: the tail is the last of
 * them) and a window, pages it holds by itself: out of index and tree (DETACHED), because what is
 * computed after the gap isn't what their keys would say. A page that others have use for, too
 * (there are other texts below it, other sessions end there, somebody has it pinned), stays in the
 * tree for these, and becomes DETACHED when it leaves that. What is published to the session after
 * that is in the window, too. Windows of sessions that nobody has open are the first to go where
 * memory is needed, least recently used first, whole; of open ones where nothing else is left. No
 * window holds pages of a set that is recalled: it goes as a whole. What all windows have room for
 * is bounded (SESSION_WINDOWS_SHARE): those that nobody has open go for others, too.
 *
 * An invalidation of the whole namespace ends all its sessions at once (their epoch is an old one);
 * what is left of them is swept with the pages.
 */
#ifndef KVL_CORE_SESSION_H
#define KVL_CORE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/ground/chore.h"
#include "daemon/core/ground/detail.h"
#include "daemon/core/objects/group.h"
#include "daemon/core/objects/session.h"
#include "policy/evict.h"

/* Of all namespaces of a tenant: 100 MB. Not tuned. */
#define SESSIONS_TENANT_MAX (4 * SESSIONS_MAX)
/* That one client has open at a time. Not tuned. */
#define SESSION_HANDLES_MAX 4096
/* How far back from the end of its window a session can be continued. Not tuned. */
#define SESSION_REWIND_PAGES 256

struct session_info {
        const uint8_t *id; /* borrowed */
        uint32_t id_len;
        uint32_t n_pages;     /* held now: head and window */
        uint64_t n_tokens;    /* up to its end, gap and lost ones included */
        uint64_t lost_tokens; /* at its end; of one that is truncated also at that of its head */
        uint32_t n_open;      /* handles of all clients */
        uint64_t used_nsec;   /* opened, closed, published to, or asked for its pages */
        uint64_t expire_nsec; /* idle time; 0: never */
        enum evict_hint hint;
        bool is_truncated;
        uint8_t last_key[KEY_BYTES]; /* where n_pages > 0 */
};

struct session_page {
        uint32_t page;
        uint32_t tokens;
        uint64_t first_token; /* position in the text */
};

/*
 * Opens it for this attachment, or makes it. expire_nsec 0: the tenant's session_expire. 0 with
 * *ret_handle (> 0, of the attachment); -ENOENT with must_exist; -EMFILE: SESSIONS_MAX of the
 * namespace, or too many opened by the client; KVL_STATUS_STALE; -ENOMEM; -EINVAL: the id's length.
 */
int session_open(struct attach *a, const uint8_t *id, uint32_t id_len, bool must_exist,
        uint64_t expire_nsec, uint64_t now_nsec, uint32_t *ret_handle, bool *ret_created,
        struct detail *d);

/* NULL with the sentence: no such handle of this attachment, or the session is gone. */
struct session *session_of(struct attach *a, uint32_t handle, struct detail *d);

void session_info(const struct session *s, struct session_info *ret);

/* NULL: there is none with this id. */
struct session *session_find(const struct ns *ns, const uint8_t *id, uint32_t id_len);

/* Its last page in the prefix tree; PAGE_NONE: it has none there. */
uint32_t session_end_page(const struct session *s);

/* As it was given last; *ret_returns_nsec: when, of EVICT_HINT_RETURNS. */
enum evict_hint session_hint_of(const struct session *s, uint64_t *ret_returns_nsec);

/* Its namespace; borrowed. */
const struct ns *session_ns(const struct session *s);

/*
 * Its pages from index `from` on, at most `max`, each pinned once for the attachment: in its
 * segment where it has one, over the socket else. 0 with *ret_n > 0; KVL_STATUS_MISS: there are
 * none; -ENOMEM. Counts as a use, and touches its end.
 */
int session_pages(struct attach *a, struct session *s, uint32_t from, uint32_t max,
        uint64_t now_nsec, struct session_page *ret, uint32_t *ret_n, struct detail *d);

/*
 * Of publish_pages() and publish_shared(), for handles that may be 0 (none). Before the n pages are
 * sealed: 0; -ENOENT: no such session; -ENOMEM. Then session_append() can't fail.
 */
int session_reserve(struct attach *a, uint32_t handle, uint32_t n, struct detail *d);

/* Is it truncated, so that what is published to it must stay out of the index? */
bool session_is_private(struct attach *a, uint32_t handle);

/* The page with this key that what is published to the session may continue: findable, or one of
 * the last SESSION_REWIND_PAGES of its window. PAGE_NONE: none. */
uint32_t session_find_parent(struct attach *a, uint32_t handle, const uint8_t key[KEY_BYTES]);

/* Where in the text a page begins that is published after `parent` (PAGE_NONE: none), to the
 * session of a handle that may be 0: tokens, at most TEXT_TOKENS_MAX. */
uint64_t session_next_token(struct attach *a, uint32_t handle, uint32_t parent);

/* Is the page one of those in its window? */
bool session_may_continue(struct attach *a, uint32_t handle, uint32_t page);

/*
 * `page` was published (or had the key already) with `parent`, which may be PAGE_NONE, and is the
 * session's end from now on. What was its window after `parent` goes. A page that isn't findable
 * and in no window counts as lost at once.
 */
void session_append(
        struct attach *a, uint32_t handle, uint32_t page, uint32_t parent, uint64_t now_nsec);

/* Under way in one namespace: each page that goes or moves is compared with them all. Not tuned. */
#define TRUNCATIONS_MAX 64

/*
 * A truncation keeps the pages with the first and the last tokens of what the session has when it
 * begins, whole ones; with last_tokens 0 the session ends there, and isn't truncated. Those that
 * leave, and that nobody else has use for, are freed.
 *
 * A text may have very many pages, so they are gone through in slices, from the end of the text on:
 *
 *   walking (holds what will be the window) -> writing that down (session-log.h) -> done
 *
 * Until the end the session is as before, for everybody, and for a daemon that comes after this
 * one; then it is truncated at once. Pages that leave the tree meanwhile, for whatever reason, are
 * the text's all the same: the truncation names the page where it goes on, and where that goes or
 * moves it hears of it. What is published to the session meanwhile calls it off, as it is no
 * beginning or end of the text that was to be kept. Memory is taken from it where nothing else is
 * left, or the set of one of its pages is recalled: then the session ends up without a window.
 */
struct session_truncation {
        struct list_link link;   /* sessions.truncations, while it isn't over */
        struct chore chore;      /* once it is queued */
        struct ns *ns;           /* borrowed */
        struct session *session; /* borrowed; NULL: it is done, or called off */
        uint64_t first_tokens;
        uint64_t end, gap_end; /* of the text, and of what leaves it: tokens */
        bool fills;            /* the session had no window: what is beyond gap_end will be */
        bool has_end;          /* it is to have a window */
        bool has_head;         /* `at` is the last page of what is left before the gap */
        bool is_lost;          /* there will be no window; what is held is let go of */
        uint32_t at;           /* page of the tree that is looked at next; PAGE_NONE: none */
        uint32_t *pages;       /* owned; those from `first` on are held */
        uint32_t first, room;
        uint64_t window_token, head_tokens; /* where these begin and end */
        uint64_t n_left;                    /* pages that leave */
        int result;                         /* once it is over: 0, -ENOENT, -EAGAIN, -ENOMEM */
        struct detail why;                  /* where that isn't 0 */
        /* It was queued, and is over: it is in no list, the owner may free it. */
        void (*done)(struct session_truncation *t);
};

/*
 * Begins, and takes the first slice. 0: it is over, or has to be queued (truncation_is_over());
 * -EINVAL: a range that is none; -EAGAIN: the session is being truncated, or TRUNCATIONS_MAX are;
 * -ENOMEM.
 */
int truncation_begin(struct session_truncation *t, struct session *s, uint64_t first_tokens,
        uint64_t last_tokens, struct detail *d);

static inline bool truncation_is_over(const struct session_truncation *t)
{
        return list_is_empty(&t->link);
}

/* One that isn't over is `to` from now on, and has its turns in chores_work() (chore.h). done: it
 * is over. */
void truncation_queue(struct session_truncation *t, struct session_truncation *to,
        void (*done)(struct session_truncation *t));

/* One that isn't queued is over, and the session as it was. */
void truncation_cancel(struct session_truncation *t);

/* All at once, however much it is: for tests. *ret_left: pages that left. As truncation_begin() and
 * session_truncation.result; where it fails, the session is as it was. */
int session_truncate(struct session *s, uint64_t first_tokens, uint64_t last_tokens,
        uint64_t *ret_left, struct detail *d);

/* Of its end, wherever that goes, until another hint is given. */
void session_hint(struct session *s, enum evict_hint hint, uint64_t after_nsec, uint64_t now_nsec);

/* "unknown", "continues", "done", "returns". Static. */
const char *session_hint_name(enum evict_hint hint);

/*
 * The handle is gone; `drop`: so is the session, for all who have it open (their handles find
 * nothing), and pages that nobody else has use for. 0; -ENOENT: no such handle, or (with `drop`)
 * the session is gone.
 */
int session_close(
        struct attach *a, uint32_t handle, bool drop, uint64_t now_nsec, struct detail *d);

/* The attachment goes: its handles do. */
void sessions_close_all(struct attach *a, uint64_t now_nsec);

/* ---- for the rest of the core ---------------------------------------------------------------- */

/* Is a page of the tree of use to anybody but a window: to what continues it, to sessions that end
 * there, to who has it pinned? */
bool session_page_is_shared(const struct ns *ns, uint32_t page);

/* Sessions there are. */
uint32_t sessions_count(const struct ns *ns);

/* The page leaves the tree: sessions that end there end at its parent (PAGE_NONE: nowhere). Before
 * tree_remove(); also of stale pages. */
void sessions_page_goes(struct ns *ns, uint32_t page);

/* The page moves to `to` (compaction), which is not SEALED yet; no window holds it. */
void sessions_page_moved(struct ns *ns, uint32_t page, uint32_t to);

/* Everything in the namespace is unfindable from now on: all sessions are gone. O(1); before the
 * epoch changes. */
void sessions_reset(struct ns *ns);

/* Is there anything for sessions_sweep()? */
bool sessions_are_left(const struct ns *ns);

/* Frees what is left of sessions that are gone, and of windows. *budget: sessions and pages, goes
 * down. True: there is more. */
bool sessions_sweep(struct ns *ns, uint32_t *budget);

/*
 * Memory is needed: the window of the session whose turn it is is lost, and a slice of its pages
 * goes (store.drop_slice_pages); or a slice of those that left a window before. False: there is
 * none. `open`: also of sessions that somebody has open.
 */
bool sessions_give_way(struct ns *ns, bool open);

/* The set is taken back: windows with pages in it are lost, these at once, the rest of them by
 * sessions_sweep(). Where windows hold some it looks at windows until it has found them all.
 * Returns how many pages of windows it looked at. */
uint64_t sessions_leave_set(struct extent_set *set);

/*
 * Drops those idle for too long; goes on where it stopped, budget: sessions to look at, and pages
 * to free. Their pages in the tree stay cached. Returns when it is to be called next: now_nsec
 * where the round isn't over; no later than the next of them has expired where nobody opens or
 * closes any meanwhile, and the tenant's time stays as it is; UINT64_MAX: none will.
 */
uint64_t sessions_expire(struct ns *ns, uint64_t now_nsec, uint32_t budget);

/*
 * Sessions of a tenant that go because an administrator says so, as in session_close(): those that
 * are idle for idle_nsec at now_nsec. A tenant may have very many, so they go in slices.
 */
struct session_purge {
        struct chore chore;    /* once it is queued */
        struct tenant *tenant; /* borrowed */
        uint64_t only_ns_id;   /* a namespace's; 0: all of the tenant's */
        uint64_t idle_nsec, now_nsec;
        uint64_t n_sessions; /* that went until now */
        uint64_t ns_id;      /* where it goes on */
        uint32_t slot;
        bool is_over;
        void (*done)(struct session_purge *p);
};

/* Nothing goes yet. */
void session_purge_init(
        struct session_purge *p, struct tenant *t, uint64_t idle_nsec, uint64_t now_nsec);

/* The one with this id goes, if there is one. */
void session_purge_id(struct session_purge *p, struct ns *ns, const uint8_t *id, uint32_t id_len);

/* A slice of all of them goes. False: it is over. */
bool session_purge_begin(struct session_purge *p);

/* The rest of one that was begun goes in chores_work() (chore.h). done: it is over, or the tenant
 * goes; it is in no list, the owner may free it. */
void session_purge_queue(struct session_purge *p, void (*done)(struct session_purge *p));

/* The tenant goes: those that are queued are done. */
void session_purges_end(struct tenant *t);

/* One after the other, in no particular order; `after`: number of the last one seen, 0 for the
 * first. Numbers are used again. NULL at the end. Returns borrowed. */
const struct session *session_next(const struct ns *ns, uint64_t after, uint64_t *ret_number);

/* Of the checker: NULL, or a static sentence. */
const char *sessions_check(const struct ns *ns);

#endif
