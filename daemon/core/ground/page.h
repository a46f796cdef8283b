/*
 * A page's record: 64 bytes, the truth about it. Private to the daemon; it lies in the namespace's
 * records (records.h), which may outlive the process.
 *
 *   FREE -> GRANTED (one group may write) -> SEALED (immutable, in index and tree) -> FREE
 * (evicted)
 *              \-> FREE (given back, group died)      \-> DETACHED (out of the index, pinned) ->
 * FREE
 *
 * What is given back while a dead member of the group may still write to it stays GRANTED, and is
 * nobody's to use, until that member has ended (group.h).
 *
 * A SEALED page whose epoch is older than its namespace's is *stale*: not findable and in no tree,
 * waiting for the sweep to free (or detach) it. RETIRING is shown to clients (shared.h) while the
 * evictor counts pins, the record says SEALED meanwhile. MOVING is where a cached page is copied to
 * (compact.h): nobody's until it is SEALED in the place of the other one, or FREE again; clients
 * see it as FREE. What clients see of a page is its line in the index segment; this record is what
 * counts.
 *
 * Generation and state are one word, and page_turn() is the only thing that changes it: one store,
 * after everything that the state gives a meaning was stored. So a process that is killed leaves a
 * page whole, or as it was before. What a state doesn't use is wiped after.
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

/* Tokens of a text up to the end of its last page, gaps included: pages know it in 32 bits
 * (page.end_token). */
#define TEXT_TOKENS_MAX UINT32_MAX

struct page {
        uint8_t key[KEY_BYTES]; /* SEALED, DETACHED; announced */
        union {
                _Atomic uint64_t word;            /* page_turn() */
                struct {                          /* the same, to be read */
                        const uint64_t state : 8; /* enum page_state */
                        /* One more each time it leaves FREE, or is withdrawn (announce.h): a word
                         * that clients wait for doesn't come back. */
                        const uint64_t generation : 56;
                };
        };
        uint32_t epoch;     /* of the namespace when granted (low 32 bits) */
        uint32_t end_token; /* SEALED, DETACHED: tokens of its text up to its end */
        union {
                uint32_t owner; /* GRANTED: group id */
                /* SEALED, DETACHED: of the store's clock. Stored after page_turn(), as it is
                 * `owner` until then. */
                uint32_t published_sec;
        };
        /* prev, next: FREE: its set's free list; GRANTED: its group's grants; watched: its
         * namespace's list. PAGE_NONE ends. */
        union {
                uint32_t prev;
                uint32_t n_pins; /* SEALED, DETACHED, and not watched: page_pins() */
        };
        uint32_t next;
        uint16_t tokens;        /* SEALED, DETACHED; ready: the slot it lies in */
        uint16_t mark : 1;      /* scratch of one call (free_pages); 0 outside of it */
        uint16_t ready : 1;     /* GRANTED: in a magazine, and not seen to be claimed */
        uint16_t reported : 1;  /* GRANTED: named by an unfinished REPORT */
        uint16_t watched : 1;   /* SEALED, DETACHED: met with pins in segments and none of its own:
                                   looked at again by ns_look_again() */
        uint16_t unindexed : 1; /* DETACHED: published, but the index had no slot for it, or its set
                                   was recalled */
        uint16_t given_back : 1; /* GRANTED: waits for members that linger */
        uint16_t announced : 1;  /* GRANTED: `key` is reserved for it (announce.h) */
};

static_assert(sizeof(struct page) == 64, "a cache line; docs/PERFORMANCE.md has a page's bytes");
static_assert(offsetof(struct page, word) == 32 && offsetof(struct page, epoch) == 40, "layout");
static_assert(
        offsetof(struct page, end_token) == 44 && offsetof(struct page, n_pins) == 52, "layout");
static_assert(offsetof(struct page, owner) == 48 && offsetof(struct page, tokens) == 60, "layout");

#define PAGE_GENERATION_MAX ((UINT64_C(1) << 56) - 1)

static inline uint64_t page_word(uint64_t generation, enum page_state s)
{
        return generation << 8 | (uint64_t)s;
}

/* Pins taken over the socket, of all members. Those in pin segments are counted there (shared.h).
 * A page that is watched has none. */
static inline uint32_t page_pins(const struct page *p)
{
        bool may_be_pinned = p->state == PAGE_SEALED || p->state == PAGE_DETACHED;

        return may_be_pinned && !p->watched ? p->n_pins : 0;
}

/* Is it pinned, as far as the daemon has been told or has seen? Policies have such a page as held.
 */
static inline bool page_is_held(const struct page *p)
{
        return p->watched || page_pins(p) > 0;
}

/* Do clients see a page that is in this state? */
static inline bool page_is_shown(enum page_state s)
{
        return s == PAGE_SEALED || s == PAGE_DETACHED;
}

/* Everything that was stored before is there where this is. */
void page_turn(struct page *p, uint64_t generation, enum page_state s);

/*
 * Which page comes before this one, and what proves the record: changed together, by one store
 * (records_seal()), because compaction gives pages other parents.
 */
union page_place {
        _Atomic uint64_t word;
        struct {
                uint32_t parent; /* page; PAGE_NONE: begins a text */
                uint32_t sum;    /* records_sum() */
        };
};

#define PAGE_SEQ_NONE   UINT32_MAX
#define PAGE_SEQ_IMPORT (UINT32_MAX - 1)

/*
 * What else is known of a page: not needed to find, grant or evict one. Times in whole seconds of
 * the store's clock. All zero while the page is FREE.
 */
struct page_note {
        uint64_t client; /* GRANTED: who leased it; SEALED, DETACHED: who published it */
        union {
                /* SEALED, DETACHED: when it was published, or found as the deepest page of a
                 * lookup. Stored after page_turn(), as it is `seq` until then. */
                uint32_t used_sec;
                /* GRANTED: by which of the client's LEASE frames, low 32 bits of its number; 0:
                 * put into its magazine; PAGE_SEQ_NONE: about to be published, no LEASE gives it
                 * back; PAGE_SEQ_IMPORT: the daemon fills it (exchange/import.h), and the client
                 * knows nothing of it. */
                uint32_t seq;
        };
        uint32_t was_found : 1; /* since it was published */
        uint32_t has_extra : 1; /* it has a struct page_extra, which may be all zero */
        uint32_t depth : 30;    /* SEALED, DETACHED: pages of its text up to its end */
        union page_place place; /* SEALED, DETACHED */
};
static_assert(sizeof(struct page_note) == 24, "docs/PERFORMANCE.md has the bytes of a page");
static_assert(offsetof(struct page_note, used_sec) == 8, "layout");
static_assert(offsetof(struct page_note, place) == 16, "layout");

/*
 * What is known of few pages: that have a tag, are announced, where sessions end, that windows
 * hold, or that lie below the device. There is room for one of each page, and where a page has none
 * (page_note.has_extra) it is neither read nor written, so that it costs no memory: ns_extra(),
 * ns_make_extra(). What is in one that no page has means nothing.
 */
struct page_extra {
        union {
                uint64_t tag;       /* SEALED: as published; 0: none */
                uint64_t announcer; /* GRANTED and announced: the client who is to publish it */
        };
        union { /* page + 1; 0 ends */
                struct {
                        uint32_t tag_prev, tag_next; /* of the tag (tag.h) */
                };
                struct {
                        uint32_t announced_prev, announced_next; /* GRANTED: of announced.c */
                };
        };
        uint32_t tails;     /* id of what sessions end with here; 0: none (session.h) */
        uint32_t n_windows; /* sessions that hold it beside the tree */
        uint64_t content;   /* SEALED, DETACHED, below the device: base/sum.h of the bytes that are
                               stored; on a disk where they are */
};
static_assert(sizeof(struct page_extra) == 32, "docs/PERFORMANCE.md has the bytes of a page");
static_assert(offsetof(struct page_extra, tag_prev) == 8, "layout");
static_assert(offsetof(struct page_extra, tails) == 16, "layout");
static_assert(offsetof(struct page_extra, content) == 24, "layout");

const char *page_state_name(enum page_state s);

#endif
