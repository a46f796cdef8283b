/*
 * The sessions of a namespace, written down for the daemon that comes after this one: a log in a
 * private memfd (KEEP_SESSIONS), made with the namespace's first session where store.keep is on.
 * Where it is off there is none, and every call here does nothing. Loop thread only.
 *
 *   head | half 0 | half 1
 *
 * One half counts, which one the head says. A record is written beyond that half's tail and is
 * there once the tail says so: one store. When the half has more than twice what is live, what is
 * live is copied into the other one, a few sessions with each record that is written (records of
 * what is copied already go to both); then one store of the head makes that the half that counts,
 * and the memory of the first is given back. So a kill at any instruction leaves one whole log.
 *
 * A session's record has all that is known of it, but for its window, of which it has what changed.
 * A long window that a truncation makes is written before it is one, in pieces, by records of a
 * session that isn't truncated yet: whoever reads them ignores its window. The record that says
 * that it is has the rest of it. Where sessions end is written once for all of them: the page goes,
 * and its parent is the end. No record is needed for the end of all sessions of a namespace: they
 * are of its former epoch.
 *
 * The log and the pages' records may differ by the one operation that a kill ended. What is in the
 * log is right with the pages as they were before it and after it:
 *
 *   published   page first, then the session. Between: a cached page that the session doesn't end
 *               at, or one that only its window would hold, which recovery frees. Nobody was told
 *               of it.
 *   page goes   log first. Between: the page is still there; the session ends at it, because what
 *               is cached goes before what the log says of it having gone.
 *   page moves  log first. Whichever of the two pages is there is the end.
 *   window      some of the pages that leave it are let go first, from either end of it, the rest
 *               after it. Between: its first or last pages aren't there; it is what is left. After
 *               it: pages that nobody holds any more, which recovery frees.
 *   dropped     log first. Between: pages that are only cached, or that recovery frees.
 *
 * Bounds, bytes: a half has at most max(64 KiB, twice what is live) when a copy begins, and room
 * for three times the most that can be live; a copy that would need more is begun anew and finished
 * at once. What is live: a session is 104 bytes, its id, and 8 for each page of its window.
 */
#ifndef KVL_CORE_SESSION_LOG_H
#define KVL_CORE_SESSION_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/objects/session.h"

#define SESSION_LOG_MAGIC   UINT64_C(0x31736e6f6973736b) /* "kssions1" */
#define SESSION_LOG_VERSION 1
#define SESSION_LOG_HEAD    4096        /* bytes: a memory page of its own */
#define SESSION_LOG_SMALL   (64 * 1024) /* nothing is copied before; not tuned */

/* Of a long window, that are written at a time: 4 KiB. Not tuned. */
#define SESSION_LOG_PAGES UINT32_C(512)

/* That a session is used is written down so often. Not tuned. */
#define SESSION_LOG_USED_NSEC UINT64_C(1000000000)

struct session_log_head {
        uint64_t magic;
        uint32_t version, capacity_pages;
        uint64_t half_bytes;
        _Atomic uint64_t half;     /* that counts: 0 or 1 */
        _Atomic uint64_t tails[2]; /* where each half ends */
};

enum session_record_type {
        SESSION_RECORD_PUT = 1, /* struct session_put */
        SESSION_RECORD_MOVED,   /* struct session_moved */
        SESSION_RECORD_GONE,    /* of the slot; the head is all of it */
};

struct session_record {
        uint32_t sum;   /* of all that follows */
        uint32_t bytes; /* of all of it; a multiple of 8 */
        uint32_t type;
        uint32_t slot;
};

/* A page with what it has in it. */
struct session_log_page {
        uint32_t page;       /* PAGE_NONE: none */
        uint32_t generation; /* low 32 bits */
};

/* Then the id, in whole words, and n_pages times struct session_log_page. */
struct session_put {
        struct session_record record;
        struct session_log_page tail;
        uint64_t epoch; /* of the namespace when it was made */
        uint64_t n_tokens, head_tokens, window_token;
        uint64_t used_nsec, expire_nsec, returns_nsec;
        uint64_t window_first; /* place of the window's first page, counted from the first one that
                                  it ever had */
        uint64_t pages_first;  /* place of the first page here: those from there on are these */
        uint32_t n_pages;
        uint16_t id_len; /* > 0: the session is made */
        uint8_t hint, is_truncated;
};

/* Sessions that ended at one page end at the other. */
struct session_moved {
        struct session_record record;
        struct session_log_page from, to;
};

/* With the first session. 0; -EMFILE, -ENOMEM, another -errno with the sentence: it is off. */
int session_log_open(struct ns *ns, struct detail *d);

/* The process' own; what is kept stays, until the namespace's records end (records.h). */
void session_log_close(struct ns *ns);

/* All that is known of the session, as it is. O(1), and what was added to its window; of what will
 * be its window (session.coming) SESSION_LOG_PAGES at most. */
void session_log_put(struct session *s);

/* Some of what will be its window is written down. True: once that is its window, one record will
 * say so. */
bool session_log_coming(struct session *s);

/* It was used; nothing else has changed. */
void session_log_used(struct session *s);

/* Sessions that ended at `from` end at `to`. Before `from` goes. */
void session_log_moved(struct ns *ns, uint32_t from, uint32_t to);

/* The session is gone. Before anything of it is. */
void session_log_gone(const struct session *s);

/* Its slot is free, and may be another session's. */
void session_log_forget(const struct session *s);

/* The live sessions are all that is in it, at once. For recovery. */
void session_log_rewrite(struct ns *ns);

/* ---- of who reads it ------------------------------------------------------------------------- */

/* Takes fd, on success only. -EBADMSG: it is no log of this namespace's; another -errno. */
int session_log_map(struct ns *ns, int fd);

/* The record at *offset of the half that counts, which goes on to the next; NULL: the end, where
 * *ret_damaged where that comes too early. Its length and sum are right; nothing else is known. */
const struct session_record *session_log_next(
        const struct session_log *log, uint64_t *offset, bool *ret_damaged);

/* The id, and the pages. */
static inline const uint8_t *session_put_id(const struct session_put *r)
{
        return (const uint8_t *)(r + 1);
}

static inline uint64_t session_put_id_bytes(uint32_t id_len)
{
        return (id_len + 7u) & ~7u;
}

static inline struct session_log_page *session_put_pages(const struct session_put *r)
{
        return (struct session_log_page *)(uintptr_t)(session_put_id(r) +
                                                      session_put_id_bytes(r->id_len));
}

#endif
