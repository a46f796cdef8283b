/*
 * The log that the sessions of a namespace survive a restart by. It lies in a private memfd that is
 * kept for the daemon that comes after this one (KEEP_SESSIONS), and is made with the namespace's
 * first session, where store.keep is on. Where that is off there is no log, and every call here
 * does nothing. Loop thread only.
 *
 *   head | half 0 | half 1
 *
 * The head says which half counts. A record is written beyond that half's tail, and is part of the
 * log once the tail says so, which takes one store. When the half has more than twice the bytes
 * that are live, what is live is copied into the other half: a few sessions with each record that
 * is written. Records of sessions that were copied already go to both halves meanwhile. Then one
 * store into the head makes the other half the one that counts, and the memory of the first one is
 * given back. So a kill at any instruction leaves one whole log.
 *
 * A session's record has all that is known of the session, but for its window, of which it has what
 * has changed. The long window that a truncation makes is written in pieces before it is the
 * window, behind the one that there is, by records that say that their pages aren't of the window
 * yet (is_coming). The record that makes them the window moves its first page to where they begin,
 * and has the rest of them. Where a page goes
 * at which sessions end, one record says for all of them that they end at its parent. When all
 * sessions of a namespace end no record is needed: they are of the namespace's former epoch.
 *
 * The log and the pages' records may differ by the one operation that a kill ended. The log is
 * right both with the pages as they were before the operation and with the pages as they are after
 * it:
 *
 *   published   The page is written first, then the session. Between: there is a cached page that
 *               the session doesn't end at, or one that only its window would hold, which recovery
 *               frees. Nobody was told of it.
 *   page goes   The log is written first. Between: the page is still there, and the session ends at
 *               it, because a page that is cached counts for more than what the log says of it
 *               having gone.
 *   page moves  The log is written first. Whichever of the two pages is there is the session's end.
 *   window      Some of the pages that leave it are let go of before the log is written, at either
 *               end of the window, the rest after that. Between: its first or last pages aren't
 *               there; the window is what is left. Afterwards there may be pages that nobody holds
 *               any more, which recovery frees.
 *   dropped     The log is written first. Between: there are pages that are only cached, or that
 *               recovery frees.
 *   told        The log is written once other hosts were told of the session. Between: they were,
 *               and the log doesn't say so. A record of a session that has changed doesn't say so,
 *               from the first one on that has something of the change.
 *
 * How large it is: when a copy begins, a half has at most 64 KiB, or twice the bytes that are live
 * where that is more. It has room for three times the most that can be live; a copy that would need
 * more is begun anew, and finished at once. A session that is live takes 104 bytes, its id, and 8
 * bytes for each page of its window.
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

/* How many pages of a long window are written at a time: 4 KiB. Not tuned. */
#define SESSION_LOG_PAGES UINT32_C(512)

/* That a session was used is written down again after so long. Not tuned. */
#define SESSION_LOG_USED_NSEC UINT64_C(1000000000)

struct session_log_head {
        uint64_t magic;
        uint32_t version, capacity_pages;
        uint64_t half_bytes;
        _Atomic uint64_t half;     /* the one that counts: 0 or 1 */
        _Atomic uint64_t tails[2]; /* where each half ends */
};

enum session_record_type {
        SESSION_RECORD_PUT = 1, /* struct session_put */
        SESSION_RECORD_MOVED,   /* struct session_moved */
        SESSION_RECORD_GONE,    /* the slot has no session; the head is all of the record */
};

struct session_record {
        uint32_t sum;   /* of all of the record that follows */
        uint32_t bytes; /* the length of the whole record; a multiple of 8 */
        uint32_t type;
        uint32_t slot;
};

/* A page, and what is in it. */
struct session_log_page {
        uint32_t page;       /* PAGE_NONE: none */
        uint32_t generation; /* low 32 bits */
};

#define SESSION_PUT_TOLD UINT8_C(0x80) /* in session_put.hint */

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
        uint64_t pages_first;  /* the place of the first page of this record. The window has these
                                  pages from there on, whatever was there before */
        uint32_t n_pages;
        uint8_t id_len;    /* > 0: the record is the first one of the session */
        uint8_t is_coming; /* 1: the pages from pages_first on aren't of the window yet. Daemons
                              that know nothing of this wrote 0, and take a record with 1 for a
                              damaged one */
        uint8_t hint;      /* enum evict_hint, and SESSION_PUT_TOLD where other hosts were told
                              what the session is (SESSION_TOLD). Daemons that know nothing of
                              that never wrote it, and take a hint with it for none */
        uint8_t is_truncated;
};

/* Sessions that ended at one page end at the other. */
struct session_moved {
        struct session_record record;
        struct session_log_page from, to;
};

/* Makes the log, with the first session of the namespace. 0: it is there, or store.keep is off;
 * -EMFILE, -ENOMEM or another -errno with the sentence: there is none. */
int session_log_open(struct ns *ns, struct detail *d);

/* This process has the log no longer. What is kept of it stays until the namespace's records end
 * (records.h). */
void session_log_close(struct ns *ns);

/* Writes down all that is known of the session. Takes O(1), and what was added to the window; while
 * there is what will be the window (session_window.coming) SESSION_LOG_PAGES pages at most are
 * written. */
void session_log_put(struct session *s);

/* Writes down some of what will be the window. True: so little is left that one record will have
 * the rest, and say that it is the window. */
bool session_log_coming(struct session *s);

/* The session was used, and nothing else of it has changed. Not every use is written. */
void session_log_used(struct session *s);

/* Sessions that ended at `from` end at `to`. Called before `from` goes. */
void session_log_moved(struct ns *ns, uint32_t from, uint32_t to);

/* The session is gone. Called before anything of it is. */
void session_log_gone(const struct session *s);

/* The session's slot is free, and may be another session's next. */
void session_log_forget(const struct session *s);

/* Writes the log anew: it has the live sessions and nothing else. For recovery. */
void session_log_rewrite(struct ns *ns);

/* ---- for who reads it ------------------------------------------------------------------------ */

/* Maps the log of the daemon before this one. Takes fd, on success only. 0; -EBADMSG: it is no log
 * of this namespace's; another -errno. */
int session_log_map(struct ns *ns, int fd);

/* The record at *offset of the half that counts, borrowed; *offset goes on to the next one. Its
 * length and its sum are right, and nothing else is known of it. NULL: the log ends there;
 * *ret_damaged: it ends too early. */
const struct session_record *session_log_next(
        const struct session_log *log, uint64_t *offset, bool *ret_damaged);

/* The id and the pages that follow a record. */
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
