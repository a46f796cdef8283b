/*
 * Sessions are named chains of pages: conversations. A session belongs to a namespace, outlives the
 * client that opened it, and can be open at several clients of the tenant at the same time. Loop
 * thread only.
 *
 *   opened (by some) <-> kept (by none, until it is idle for too long) -> gone
 *
 * A session ends at its *tail*, a page of the prefix tree. Its pages are the tail and all of the
 * tail's ancestors. A publish that names the session moves the tail to the page that was published.
 * A session doesn't keep its pages from being evicted: where the tail goes, the tail's parent is
 * the tail from then on, and what lay beyond it counts as lost.
 *
 * A session that was *truncated* (session-truncate.h) has a gap. What lies before the gap is its
 * head, which is like a session that wasn't truncated: the tail is the head's last page. What lies
 * after the gap is its window: pages that the session holds by itself, in the order of the text, in
 * which there may be more gaps. They are DETACHED, out of
 * index and tree, because what is computed after a gap isn't what the pages' keys would say. Where
 * others have use for such a page, too (there are other texts below it, other sessions end there,
 * somebody has it pinned), it stays in the tree for these, and becomes DETACHED when it leaves
 * that. What is published to the session from then on is in the window, too.
 *
 * Windows go where memory is needed, each as a whole: first those of sessions that nobody has open,
 * the least recently used one first; those of open sessions where nothing else is left. No window
 * holds pages of an extent set that is recalled: the window goes. What all windows of a namespace
 * have room for is bounded by SESSION_WINDOWS_SHARE; windows of sessions that nobody has open go
 * for others.
 *
 * An invalidation of the whole namespace ends all its sessions at once, because their epoch is an
 * old one then. What is left of them is swept with the pages.
 */
#ifndef KVL_CORE_SESSION_H
#define KVL_CORE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/ground/detail.h"
#include "daemon/core/objects/group.h"
#include "daemon/core/objects/session.h"
#include "policy/evict.h"

/* The most sessions of all namespaces of a tenant, which take 100 MB. Not tuned. */
#define SESSIONS_TENANT_MAX (4 * SESSIONS_MAX)
/* The most handles that one client has at a time. Not tuned. */
#define SESSION_HANDLES_MAX 4096
/* How many pages back from the end of its window a session can be continued. Not tuned. */
#define SESSION_REWIND_PAGES 256

/* ---- clients: session-handles.c, session-pages.c --------------------------------------------- */

/*
 * Opens the session with this id for the attachment; makes it where there is none, unless
 * must_exist. expire_nsec is for how long the session may be idle; 0: as it was said before, else
 * the tenant's session_expire. 0 with *ret_handle, a number above 0 that is the attachment's, and
 * *ret_created. -EINVAL: the id is empty or longer than SESSION_ID_MAX; -ENOENT: must_exist, and
 * there is none; -EMFILE: the client, the namespace or the tenant has too many; KVL_STATUS_STALE:
 * the attachment's namespace has another version now; -ENOMEM. All with the sentence, and then
 * nothing has changed.
 */
int session_open(struct attach *a, const uint8_t *id, uint32_t id_len, bool must_exist,
        uint64_t expire_nsec, uint64_t now_nsec, uint32_t *ret_handle, bool *ret_created,
        struct detail *d);

/* 0: the attachment can have sessions, and an id may be so long; else -EINVAL or KVL_STATUS_STALE,
 * as session_open(). */
int session_check_id(const struct attach *a, uint32_t id_len, struct detail *d);

/* The session of a handle. NULL with the sentence: the attachment has no such handle, or the
 * session is gone. Borrowed. */
struct session *session_of(struct attach *a, uint32_t handle, struct detail *d);

/*
 * Closes the handle. With `drop` the session goes as well, for all who have it open (their handles
 * find nothing from then on), and so do pages that nobody else has use for. 0; -ENOENT with the
 * sentence: the attachment has no such handle, or (with `drop`) the session was gone already.
 */
int session_close(
        struct attach *a, uint32_t handle, bool drop, uint64_t now_nsec, struct detail *d);

/* Closes all handles of the attachment. */
void sessions_close_all(struct attach *a, uint64_t now_nsec);

struct session_page {
        uint32_t page;
        uint32_t tokens;
        uint64_t first_token; /* its position in the text */
};

/*
 * The session's pages from index `from` on, at most `max`, in the order of the text. Each is pinned
 * once for the attachment: in the attachment's pin segment where it has one, else as pages are that
 * are pinned over the socket. Counts as a use of the session, and of its tail. 0 with *ret_n > 0;
 * KVL_STATUS_MISS: there are none from `from` on; -ENOMEM, or what attach_check_page_pins() says,
 * with the sentence: nothing is pinned.
 */
int session_pages(struct attach *a, struct session *s, uint32_t from, uint32_t max,
        uint64_t now_nsec, struct session_page *ret, uint32_t *ret_n, struct detail *d);

/* ---- publishing: session-publish.c ----------------------------------------------------------- */

/*
 * What publishes pages calls these with a handle that may be 0: no session. session_reserve() comes
 * before the n pages are sealed, and makes sure that session_append() can't fail for them. 0;
 * -ENOENT: there is no such session; -ENOMEM: there is no room in its window. Both with the
 * sentence.
 */
int session_reserve(struct attach *a, uint32_t handle, uint32_t n, struct detail *d);

/* Is the session truncated, so that what is published to it must stay out of the index? */
bool session_is_private(struct attach *a, uint32_t handle);

/* The page with this key after which the session may be continued: one that can be found, or one of
 * the last SESSION_REWIND_PAGES of its window. PAGE_NONE: there is none. */
uint32_t session_find_parent(struct attach *a, uint32_t handle, const uint8_t key[KEY_BYTES]);

/* Where in the text a page begins that is published to the session after the page `parent`
 * (PAGE_NONE: none). In tokens, at most TEXT_TOKENS_MAX. */
uint64_t session_next_token(struct attach *a, uint32_t handle, uint32_t parent);

/* Is the page one of the last SESSION_REWIND_PAGES of the session's window? */
bool session_may_continue(struct attach *a, uint32_t handle, uint32_t page);

/*
 * `page` was published, or had its key already, after `parent`, which may be PAGE_NONE. It is the
 * end of the session from now on. What the window had after `parent` leaves it. A page that can't
 * be found and is in no window counts as lost at once.
 */
void session_append(
        struct attach *a, uint32_t handle, uint32_t page, uint32_t parent, uint64_t now_nsec);

/* Gives a hint of when the session's end will be used, wherever that goes, until the next hint.
 * after_nsec: how long from now, of EVICT_HINT_RETURNS. */
void session_hint(struct session *s, enum evict_hint hint, uint64_t after_nsec, uint64_t now_nsec);

/* The last hint that was given. *ret_returns_nsec: when the session returns, of EVICT_HINT_RETURNS.
 */
enum evict_hint session_hint_of(const struct session *s, uint64_t *ret_returns_nsec);

/* "unknown", "continues", "done" or "returns". Static. */
const char *session_hint_name(enum evict_hint hint);

/* ---- other hosts: session-publish.c ---------------------------------------------------------- */

/*
 * Another host has continued the session, or it was never here: it ends at the page `tail` of the
 * tree (PAGE_NONE: nothing of it is here), and its text has n_tokens, 1 .. TEXT_TOKENS_MAX. It is
 * made where there is none; nobody has it open. 0; -EBUSY: session_may_be_replaced() says no;
 * -EMFILE, -ENOMEM: as session_open(). Then nothing has changed.
 */
int session_replace(struct ns *ns, const uint8_t *id, uint32_t id_len, uint32_t tail,
        uint64_t n_tokens, uint64_t now_nsec, struct detail *d);

/* Other hosts are being told what the session is. */
void session_begin_telling(struct session *s);

/* They were told, or (is_done false) maybe not: the next time that it rests they are told again.
 * Where the session has changed meanwhile nothing is known of what it is now. */
void session_end_telling(struct session *s, bool is_done);

/* Not where somebody has it open, or it is truncated; nor where it was changed here since other
 * hosts were told of it, or they are being told. What has no page may be replaced. */
bool session_may_be_replaced(const struct session *s);

/* ---- looking at sessions: session.c, session-pages.c ----------------------------------------- */

/* The session with this id. NULL: there is none. Borrowed. */
struct session *session_find(const struct ns *ns, const uint8_t *id, uint32_t id_len);

/* All sessions one after the other, in no particular order. `after` is the number of the session
 * that was seen last, 0 for the first one; *ret_number is the next one's. Numbers are used again.
 * NULL at the end. Borrowed. */
const struct session *session_next(const struct ns *ns, uint64_t after, uint64_t *ret_number);

/* How many sessions there are. */
uint32_t sessions_count(const struct ns *ns);

struct session_info {
        const uint8_t *id; /* borrowed */
        uint32_t id_len;
        uint32_t n_pages;     /* that it has now, in head and window */
        uint64_t n_tokens;    /* up to its end, those of the gap and those that are lost included */
        uint64_t lost_tokens; /* at its end; of a truncated session also those at its head's end */
        uint32_t n_open;      /* handles of all clients */
        uint64_t used_nsec;   /* when it was last opened, closed, published to or asked for pages */
        uint64_t expire_nsec; /* how long it may be idle; 0: for ever */
        enum evict_hint hint;
        bool is_truncated;
        uint8_t last_key[KEY_BYTES]; /* where n_pages > 0 */
};

void session_info(const struct session *s, struct session_info *ret);

/* ---- for the rest of the core ---------------------------------------------------------------- */

/* Is a page of the tree of use to anybody but a window: to pages that continue it, to sessions that
 * end there, to who has it pinned? */
bool session_page_is_shared(const struct ns *ns, uint32_t page);

/* The page leaves the tree, or is stale and goes: sessions that end there end at its parent. Called
 * before tree_remove(). */
void sessions_page_goes(struct ns *ns, uint32_t page);

/* The page moves to `to`, another number that isn't SEALED yet. No window holds it. */
void sessions_page_moved(struct ns *ns, uint32_t page, uint32_t to);

/* All sessions of the namespace are gone, as nothing in it can be found any more. Called before the
 * namespace's epoch changes; O(1). */
void sessions_reset(struct ns *ns);

/* Is there anything for sessions_sweep() to do? */
bool sessions_are_left(const struct ns *ns);

/* Frees what is left of sessions that are gone, and lets go of pages that have left windows.
 * *budget is how many sessions and pages it may look at, and goes down. True: there is more to do.
 */
bool sessions_sweep(struct ns *ns, uint32_t *budget);

/*
 * Gives pages back, because memory is needed: some that left a window before, else those of the
 * window whose turn it is. Takes at most store.drop_slice_pages of them; the rest of the window is
 * lost to its session, too, and left to the next call or the sweep. `open`: also from sessions that
 * somebody has open. False: there is nothing to give.
 */
bool sessions_give_way(struct ns *ns, bool open);

/*
 * The extent set is taken back: windows that have pages in it are lost. These pages are let go of
 * at once, the others by the sweep. Looks at windows until all pages of the set that windows hold
 * have been found. Returns how many pages of windows it looked at.
 */
uint64_t sessions_leave_set(struct extent_set *set);

/*
 * Drops the sessions that have been idle for too long; their pages in the tree stay cached. It goes
 * on where it stopped, and looks at no more than `budget` sessions, or frees so many pages. Returns
 * when it is to be called next: now_nsec where the round isn't over; UINT64_MAX: no session will
 * expire. Where nobody opens or closes a session meanwhile, and the tenant's time stays as it is,
 * the time returned isn't later than the next expiry.
 */
uint64_t sessions_expire(struct ns *ns, uint64_t now_nsec, uint32_t budget);

/* Checks the invariants of the namespace's sessions. NULL: they hold; else a static sentence. */
const char *sessions_check(const struct ns *ns);

#endif
