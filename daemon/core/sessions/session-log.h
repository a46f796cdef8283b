/*
 * The log from which the sessions of a namespace are recovered after a restart. It lies in a
 * private memfd that is stored for the next daemon (KEEP_SESSIONS). It is made with the namespace's
 * first session if store.keep is on. Otherwise there is no log, and every call here does nothing.
 * Loop thread only.
 *
 *   head | half 0 | half 1
 *
 * The head says which half is valid. A record is written beyond that half's tail, and is part of
 * the log once the tail includes it, which takes one store. When the half has more than twice the
 * bytes that are live, live data is copied into the other half: a few sessions with each record
 * that is written. Records of sessions that were copied already go to both halves meanwhile. Then
 * one store into the head makes the other half the valid one, and the memory of the first one is
 * given back. So a kill at any instruction leaves one whole log.
 *
 * A session's record has the whole state of the session, except that it has only the changes of its
 * window. The long window that a truncation makes is written in pieces, behind the present window.
 * These records say that their pages aren't part of the window yet (is_coming). The last record
 * makes them the window: it moves the window's first page to where they begin, and has the rest of
 * them. When a page at which sessions end is dropped, one record says for all of them that they end
 * at its parent. When all sessions of a namespace end no record is needed: they are of the
 * namespace's former epoch.
 *
 * The log and the pages' records may differ by the one operation that a kill ended. The log is
 * valid with the pages both before and after the operation:
 *
 *   published   The page is written first, then the session. Between: there is a cached page that
 *               the session doesn't end at, or a page of its window only, which recovery frees. No
 *               client was told of it.
 *   page goes   The log is written first. Between: the page still exists, and the session ends at
 *               it, because a cached page takes precedence over the log.
 *   page moves  The log is written first. The session ends at the one of the two pages that exists.
 *   window      Some of the pages that leave it are released before the log is written, at either
 *               end of the window, the rest after that. Between: its first or last pages are
 *               missing; the window is the rest. Afterwards there may be pages that no window
 *               holds, which recovery frees.
 *   dropped     The log is written first. Between: there are pages that are only cached, or that
 *               recovery frees.
 *   told        The log is written once other hosts know of the session. Between: they do, and the
 *               log doesn't say so. A record of a changed session doesn't say so, from the first
 *               one on that has a part of the change.
 *
 * Size: when a copy begins, a half has at most 64 KiB, or twice the bytes that are live if that is
 * more. It has space for three times the most that can be live; a copy that would need more is
 * begun anew, and finished at once. A live session takes 104 bytes, its id, and 8 bytes for each
 * page of its window.
 */
#ifndef KVL_CORE_SESSION_LOG_H
#define KVL_CORE_SESSION_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/sessions/session.h"

#define SESSION_LOG_MAGIC   UINT64_C(0x31736e6f6973736b) /* "kssions1" */
#define SESSION_LOG_VERSION 1
#define SESSION_LOG_HEAD    4096        /* bytes: a memory page of its own */
#define SESSION_LOG_SMALL   (64 * 1024) /* no copy begins below this size; not tuned */

/* Pages of a long window that are written at a time: 4 KiB. Not tuned. */
#define SESSION_LOG_PAGES UINT32_C(512)

/* The shortest time between two records of a session's use. Not tuned. */
#define SESSION_LOG_USED_NSEC UINT64_C(1000000000)

struct session_log_head {
        uint64_t magic;
        uint32_t version, capacity_pages;
        uint64_t half_bytes;
        _Atomic uint64_t half;     /* the valid one: 0 or 1 */
        _Atomic uint64_t tails[2]; /* the end of each half */
};

enum session_record_type {
        SESSION_RECORD_PUT = 1, /* struct session_put */
        SESSION_RECORD_MOVED,   /* struct session_moved */
        SESSION_RECORD_GONE,    /* the slot has no session; the head is all of the record */
};

struct session_record {
        uint32_t sum;   /* of the rest of the record */
        uint32_t bytes; /* the length of the whole record; a multiple of 8 */
        uint32_t type;
        uint32_t slot;
};

/* A page and its generation. */
struct session_log_page {
        uint32_t page;       /* PAGE_NONE: none */
        uint32_t generation; /* low 32 bits */
};

#define SESSION_PUT_TOLD UINT8_C(0x80) /* a bit of session_put.hint */

/* The record of a session. Its id follows, in whole words, then n_pages times struct
 * session_log_page. */
struct session_put {
        struct session_record record;
        struct session_log_page tail;
        uint64_t epoch; /* the namespace's when the session was made */
        uint64_t n_tokens, head_tokens, window_token;
        uint64_t used_nsec, expire_nsec, returns_nsec;
        uint64_t window_first; /* the place of the window's first page, counted from the first page
                                  that was ever in the window */
        uint64_t pages_first;  /* the place of this record's first page. The window has these pages
                                  from there on, in place of earlier ones */
        uint32_t n_pages;
        uint8_t id_len;    /* > 0: the record is the first one of the session */
        uint8_t is_coming; /* 1: the pages from pages_first on aren't part of the window yet. Older
                              daemons wrote 0, and treat a record with 1 as damaged */
        uint8_t hint; /* enum evict_hint, and SESSION_PUT_TOLD if other hosts know the session's
                         state (SESSION_TOLD). Older daemons never wrote that, and treat such a hint
                         as none */
        uint8_t is_truncated;
};

/* Sessions that ended at `from` end at `to`. */
struct session_moved {
        struct session_record record;
        struct session_log_page from, to;
};

/* Makes the log, with the first session of the namespace. Returns 0: it exists, or store.keep is
 * off; -EMFILE, -ENOMEM or another -errno with the sentence. */
int session_log_open(struct ns *ns, struct detail *d);

/* Closes this process's log. The stored log stays until the namespace's records end (records.h). */
void session_log_close(struct ns *ns);

/* Writes the whole state of the session, in O(1), and the pages added to the window. While there is
 * a next window (session_window.coming) it writes SESSION_LOG_PAGES pages at most. */
void session_log_put(struct session *s);

/* Writes some pages of the next window. Returns true if so few are left that one record can have
 * the rest and make them the window. */
bool session_log_coming(struct session *s);

/* The session was used and is otherwise unchanged. Not every use is written. */
void session_log_used(struct session *s);

/* Sessions that ended at `from` end at `to`. Call it before `from` is dropped. */
void session_log_moved(struct ns *ns, uint32_t from, uint32_t to);

/* The session ends. Call it before its parts are freed. */
void session_log_gone(const struct session *s);

/* The session's slot is free, and may be reused. */
void session_log_forget(const struct session *s);

/* Rewrites the log with the live sessions only. For recovery. */
void session_log_rewrite(struct ns *ns);

/* ---- for recovery ---------------------------------------------------------------------------- */

/* Maps the previous daemon's log. Takes fd, on success only. Returns 0; -EBADMSG: not a log of this
 * namespace; another -errno. */
int session_log_map(struct ns *ns, int fd);

/* Returns the record at *offset of the valid half, borrowed, and advances *offset. Only its length
 * and its sum were checked. NULL: the log ends there; *ret_damaged: it ends too early. */
const struct session_record *session_log_next(
        const struct session_log *log, uint64_t *offset, bool *ret_damaged);

/* Return the id and the pages that follow a record. */
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
