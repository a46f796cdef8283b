/*
 * A page's record: 64 bytes, authoritative. Private to the daemon; it lies in the namespace's
 * records (records.h), which may outlive the process.
 *
 *   FREE -> GRANTED (one group may write) -> SEALED (immutable, findable) -> FREE (evicted)
 *              \-> FREE (given back)            \-> DETACHED (not findable, pinned) -> FREE
 *
 * A page that is given back while a dead member of its group may still write to it stays GRANTED
 * and unusable until that member has ended (group.h).
 *
 * A SEALED page of an older epoch than its namespace's is *stale*: it can't be found, is in no
 * tree, and waits for the sweep to free (or detach) it. Clients see RETIRING (shared.h) while the
 * evictor counts pins; the record says SEALED meanwhile. A MOVING page is the target of a copy of
 * a cached page (compact.h). It is unusable until it replaces that page (SEALED) or is FREE again;
 * clients see it as FREE. Clients read a page's line in the index segment, not this record.
 *
 * Generation and state are one word, which only page_turn() changes: one store, after the stores of
 * all fields that the new state uses. So a process that is killed leaves a page in the old state or
 * in the new one. Fields that the new state doesn't use are wiped after.
 */
#ifndef KVL_CORE_PAGE_H
#define KVL_CORE_PAGE_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/shm.h"

#define KEY_BYTES SHM_KEY_BYTES
#define PAGE_NONE UINT32_MAX

/* Tokens of a text up to the end of its last page, gaps included: page.end_token has 32 bits. */
#define TEXT_TOKENS_MAX UINT32_MAX

struct page {
        uint8_t key[KEY_BYTES]; /* SEALED, DETACHED; announced */
        union {
                _Atomic uint64_t word;            /* page_turn() */
                struct {                          /* the same, to be read */
                        const uint64_t state : 8; /* enum page_state */
                        /* Raised each time the page leaves FREE or is withdrawn (announce.h), so
                         * that a word that clients wait for never recurs. */
                        const uint64_t generation : 56;
                };
        };
        uint32_t epoch;     /* the namespace's when granted (low 32 bits) */
        uint32_t end_token; /* SEALED, DETACHED: tokens of the text up to the page's end */
        union {
                uint32_t owner; /* GRANTED: group id */
                /* SEALED, DETACHED: seconds of the store's clock. Stored after page_turn(), because
                 * it is `owner` before. */
                uint32_t published_sec;
        };
        /* prev, next: the set's free list if FREE, the group's grants if GRANTED, the namespace's
         * list if watched. PAGE_NONE ends. */
        union {
                uint32_t prev;
                uint32_t n_pins; /* SEALED, DETACHED, and not watched: page_pins() */
        };
        uint32_t next;
        uint16_t tokens;        /* SEALED, DETACHED; ready: its slot in the magazine */
        uint16_t mark : 1;      /* scratch of one call (free_pages); 0 outside of it */
        uint16_t ready : 1;     /* GRANTED: in a magazine, and not known to be claimed */
        uint16_t reported : 1;  /* GRANTED: named by an unfinished REPORT */
        uint16_t watched : 1;   /* SEALED, DETACHED: has pins in segments, none over the socket;
                                   ns_look_again() checks it again */
        uint16_t unindexed : 1; /* DETACHED: published, but the index had no slot for it, or its set
                                   was recalled */
        uint16_t given_back : 1; /* GRANTED: waits for members that linger */
        uint16_t announced : 1;  /* GRANTED: `key` is reserved for it (announce.h) */
};

static_assert(
        sizeof(struct page) == 64, "a cache line; docs/measure/PERFORMANCE.md has a page's bytes");
static_assert(offsetof(struct page, word) == 32 && offsetof(struct page, epoch) == 40, "layout");
static_assert(
        offsetof(struct page, end_token) == 44 && offsetof(struct page, n_pins) == 52, "layout");
static_assert(offsetof(struct page, owner) == 48 && offsetof(struct page, tokens) == 60, "layout");

#define PAGE_GENERATION_MAX ((UINT64_C(1) << 56) - 1)

static inline uint64_t page_word(uint64_t generation, enum page_state s)
{
        return generation << 8 | (uint64_t)s;
}

/* Returns the pins over the socket, of all members. Pins in segments are counted there (shared.h).
 * A watched page has none. */
static inline uint32_t page_pins(const struct page *p)
{
        bool may_be_pinned = p->state == PAGE_SEALED || p->state == PAGE_DETACHED;

        return may_be_pinned && !p->watched ? p->n_pins : 0;
}

/* Is the page pinned, as far as the daemon knows? Policies treat it as held. */
static inline bool page_is_held(const struct page *p)
{
        return p->watched || page_pins(p) > 0;
}

/* Is this a state in which clients see the page? */
static inline bool page_is_shown(enum page_state s)
{
        return s == PAGE_SEALED || s == PAGE_DETACHED;
}

/* Sets generation and state in one store. A process that sees it sees all earlier stores. */
void page_turn(struct page *p, uint64_t generation, enum page_state s);

/* The page before this one, and the checksum of the record. One store (records_seal()) changes
 * both, because compaction gives pages other parents. */
union page_place {
        _Atomic uint64_t word;
        struct {
                uint32_t parent; /* page; PAGE_NONE: the page begins a text */
                uint32_t sum;    /* records_sum() */
        };
};

#define PAGE_SEQ_NONE   UINT32_MAX
#define PAGE_SEQ_IMPORT (UINT32_MAX - 1)

/* Facts about a page that finding, granting and evicting don't need. Times are whole seconds of the
 * store's clock. All zero while the page is FREE. */
struct page_note {
        uint64_t
                client; /* the client that leased it (GRANTED) or published it (SEALED, DETACHED) */
        union {
                /* SEALED, DETACHED: time of the publish, or of the last lookup that found it as its
                 * deepest page. Stored after page_turn(), because it is `seq` before. */
                uint32_t used_sec;
                /* GRANTED: number of the client's LEASE frame, low 32 bits. Special values: 0: put
                 * into the client's magazine. PAGE_SEQ_NONE: about to be published, no LEASE gives
                 * it back. PAGE_SEQ_IMPORT: the daemon fills it, unknown to the client. */
                uint32_t seq;
        };
        uint32_t was_found : 1; /* by a lookup, since it was published */
        uint32_t has_extra : 1; /* it has a struct page_extra, which may be all zero */
        uint32_t depth : 30;    /* SEALED, DETACHED: pages of the text up to the page's end */
        union page_place place; /* SEALED, DETACHED */
};
static_assert(
        sizeof(struct page_note) == 24, "docs/measure/PERFORMANCE.md has the bytes of a page");
static_assert(offsetof(struct page_note, used_sec) == 8, "layout");
static_assert(offsetof(struct page_note, place) == 16, "layout");

/* Facts about the few pages that have a tag, are announced, end a session, are held by windows or
 * lie in a lower tier. Each page has space for one. While page_note.has_extra is clear, the space
 * is neither read nor written (ns_extra(), ns_make_extra()), so it costs no memory, and its
 * contents are meaningless. */
struct page_extra {
        union {
                uint64_t tag;       /* SEALED: as published; 0: none */
                uint64_t announcer; /* GRANTED and announced: the client that is to publish it */
        };
        union { /* page + 1; 0 ends */
                struct {
                        uint32_t tag_prev, tag_next; /* pages with the same tag (tag.h) */
                };
                struct {
                        uint32_t announced_prev, announced_next; /* GRANTED: announced.c's list */
                };
        };
        uint32_t tails;     /* id of the ending of sessions here; 0: none (session.h) */
        uint32_t n_windows; /* session windows that hold the page */
        uint64_t content;   /* SEALED, DETACHED, lower tier: base/sum.h of the stored bytes; on a
                               disk: their place */
};
static_assert(
        sizeof(struct page_extra) == 32, "docs/measure/PERFORMANCE.md has the bytes of a page");
static_assert(offsetof(struct page_extra, tag_prev) == 8, "layout");
static_assert(offsetof(struct page_extra, tails) == 16, "layout");
static_assert(offsetof(struct page_extra, content) == 24, "layout");

const char *page_state_name(enum page_state s);

#endif
