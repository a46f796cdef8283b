/*
 * The data structures of a namespace's sessions. sessions/session.h says what a session is and has
 * the functions. The state of the session log is here, too; session-log.h has its functions. Loop
 * thread only.
 */
#ifndef KVL_CORE_OBJECTS_SESSION_H
#define KVL_CORE_OBJECTS_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/list.h"
#include "daemon/core/objects/ns.h"
#include "policy/evict.h"

#define SESSION_ID_MAX 64 /* bytes */

/* The most sessions of a namespace. Each takes some 400 bytes that no account is charged for. Not
 * tuned. */
#define SESSIONS_MAX (UINT32_C(1) << 16)

/* Sessions may share the pages of their windows, so the number of pages doesn't bound the memory
 * and time that windows take. The windows of a namespace together have space for so many times its
 * pages. Not tuned. */
#define SESSION_WINDOWS_SHARE 4

struct session_log_head;
struct session_truncation;

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

/* The state of the log of sessions: journal/session-log.h. */
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

#endif
