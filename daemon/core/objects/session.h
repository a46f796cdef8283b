/*
 * The sessions of a namespace, as they lie in memory. What a session is, and the functions that
 * change one, are in sessions/session.h. The state of their log lies here, too; session-log.h has
 * what writes it. Loop thread only.
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

/* The most sessions of one namespace. Each takes some 400 bytes that nobody is charged for. Not
 * tuned. */
#define SESSIONS_MAX (UINT32_C(1) << 16)

/* Sessions may share the pages of their windows, so the number of pages bounds neither the memory
 * that windows take nor the time it takes to go through them. The windows of a namespace together
 * have room for so many times its pages. Not tuned. */
#define SESSION_WINDOWS_SHARE 4

struct session_log_head;
struct session_truncation;

/*
 * A page where sessions end. They share it, so that a page that goes costs the same however many
 * sessions end there: where two endings meet, the smaller one is added to the larger. There are as
 * many endings as there ever were sessions.
 */
struct ending {
        uint32_t id;                 /* what page_extra.tails of the page says */
        uint32_t page;               /* PAGE_NONE: spare */
        uint32_t n;                  /* sessions that end here; 0: spare */
        struct list_link sessions;   /* struct session.end_link */
        struct list_link spare_link; /* sessions.spare_endings */
};

/*
 * The pages that a truncated session holds by itself, and what it held until lately. All of it lies
 * in one piece of memory: first n_before pages that have left the window, then the window.
 */
struct session_window {
        uint32_t *pages;   /* of the window, in the order of the text. The memory is owned, and
                              begins at session_memory(); NULL: there is none */
        uint32_t n, room;  /* pages in the window; pages that it has room for */
        uint32_t n_before; /* pages in front of `pages` that were in the window once; PAGE_NONE: one
                              that isn't held any more */
        uint32_t n_shed;   /* how many of these, counted from the first, aren't held any more */
        uint64_t first;    /* how many pages were in the window before its first page, ever */
        uint64_t token;    /* where in the text the window begins; of a truncated session */
        struct list_link link;      /* sessions.windows, where n > 0 */
        struct list_link shed_link; /* sessions.shedding, while pages before the window are held */
        const uint32_t *coming;     /* what will be the window, in the place of this one, once the
                                       log has it; borrowed from the truncation */
        uint32_t n_coming;          /* pages in `coming` */
};

/* What other hosts find of a session, as far as is known. */
enum session_told {
        SESSION_UNTOLD,  /* something else than it is now, or nothing */
        SESSION_TELLING, /* what it is now, unless that which is being written fails */
        SESSION_TOLD,    /* what it is now, or what others have made of that. The log has it */
};

/* What the log has of a session. */
struct session_logged {
        bool is_there;       /* the log has the session */
        uint64_t used_nsec;  /* session.used_nsec, as the log has it */
        uint32_t n_pages[2]; /* pages of the window, from its first on, and then of what will be
                                the window, that each half has */
};

/* One session: sessions/session.h says what that is. It is live as long as its epoch is its
 * namespace's. */
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
        uint64_t n_tokens;         /* up to the end of the text, gaps and lost pages included */
        uint64_t used_nsec, expire_nsec; /* as in struct session_info; 0: the tenant's */
        enum evict_hint hint;
        uint64_t returns_nsec; /* of EVICT_HINT_RETURNS: when */
        enum session_told told;
        bool is_truncated;
        uint64_t head_tokens; /* of a truncated one: where its head ended when it was made so */
        struct session_window window;
        struct session_logged logged;
        struct session_truncation *truncation; /* under way; borrowed; NULL: none */
        uint32_t id_len;
        uint8_t id[SESSION_ID_MAX];
};

/* A session that an attachment has open, by a handle: attach.sessions. */
struct opening {
        struct list_link session_link; /* session.openings */
        struct session *session;       /* borrowed; NULL: the session is gone */
};

struct session_slot {
        struct session *session; /* owned; NULL: the slot is free */
        struct ending *ending;   /* owned; made with the first session of the slot, and kept */
        uint32_t next_free;      /* the next free slot + 1; 0 ends */
        uint32_t bucket; /* of the hash that is this slot's number: the first session's slot + 1; 0:
                            there is none */
};

/* The state of the log of sessions: journal/session-log.h. */
struct session_log {
        struct session_log_head *head; /* mapped; NULL: the log is off */
        int fd;                        /* owned */
        uint64_t limit_bytes;          /* how long a half may be; tests lower it */
        uint32_t piece_pages;          /* SESSION_LOG_PAGES; tests lower it */
        uint32_t copy_slot;  /* while it is copied: the other half has the sessions of the slots
                                before */
        bool is_in_slot;     /* and some of the window of the session there */
        bool is_copying;     /* what is live is being copied into the other half */
        uint64_t idle_bytes; /* memory of the half that doesn't count, which is to be given back */
        uint64_t n_copies;   /* how many copies were finished; for tests */
};

/* All sessions of a namespace. A session that an invalidation ended, or that was dropped and has a
 * long window, is dead: it keeps its slot until it is swept. */
struct sessions {
        struct session_slot *slots;  /* owned */
        uint32_t n_slots;            /* 0, or a power of two */
        uint32_t free_slot;          /* the first free slot + 1; 0: there is none */
        uint32_t n_live, n_dead;     /* sessions */
        uint32_t sweep_slot;         /* where the sweep of dead sessions goes on */
        uint32_t expire_slot;        /* where the round of sessions_expire() goes on; 0: it is
                                        over */
        uint64_t next_expiry_nsec;   /* the first one of sessions that the round has passed, or
                                        that were used since it began */
        uint64_t tenant_expire_nsec; /* the tenant's session_expire when the round began */
        struct hash_seed seed;       /* of hashes of ids */
        struct session_log log;
        struct list_link spare_endings; /* struct ending.spare_link */
        uint64_t n_room;                /* pages that the windows of live sessions have room for,
                                           and those that truncations hold for windows to be */
        struct list_link truncations;   /* struct session_truncation.link */
        struct list_link shedding;      /* struct session_window.shed_link */
        struct list_link windows[2];    /* struct session_window.link, by n_open > 0; the least
                                           recently used session's first */
};

/* Is there the session for those who look for it? Else it waits to be swept. */
static inline bool session_is_live(const struct session *s)
{
        return s->epoch == s->ns->epoch;
}

/* The session's last page in the prefix tree; PAGE_NONE: it has none there. */
static inline uint32_t session_tail(const struct session *s)
{
        return s->end ? s->end->page : PAGE_NONE;
}

/* Where the memory of the session's window begins; NULL: there is none. */
static inline uint32_t *session_memory(const struct session *s)
{
        return s->window.pages ? s->window.pages - s->window.n_before : NULL;
}

#endif
