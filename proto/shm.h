/*
 * The shared-memory layouts: data that daemon and clients read and write without messages.
 *
 *   index segment    one per namespace; the daemon writes, clients read (and can't write)
 *   pin segment      one per attachment; the client counts its pins and takes pages granted ahead
 *   client segment   one per connection; submissions to the daemon, completions from it
 *   feed segment     one per namespace of a tenant with events; the daemon writes, followers read
 *
 * Position-independent: offsets and indices, never addresses. Little-endian, as all supported
 * machines. A daemon and a client of different layout versions don't share memory: the client uses
 * the socket instead. All that a client can write is hostile input to the daemon: copied once,
 * checked, then used. docs/develop/ARCHITECTURE.md ("Readers and the evictor") has the protocol
 * between readers and the evictor, and why it is right; tests/model checks it.
 *
 * Writers, per field: D the daemon, C the client, DC both (atomic read-modify-write).
 */
#ifndef KVL_PROTO_SHM_H
#define KVL_PROTO_SHM_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SHM_MAGIC          UINT64_C(0x31306d68736c766b) /* "kvlshm01", little-endian */
#define SHM_LAYOUT_VERSION 1
#define SHM_HEADER_BYTES   4096 /* each segment's header has a page of its own */
#define SHM_KEY_BYTES      32

enum shm_kind {
        SHM_INDEX = 1,
        SHM_PINS = 2,
        SHM_CLIENT = 3,
        SHM_FEED = 4,
};

/* First in every segment; written by D before the segment is sent, constant after. */
struct shm_header {
        uint64_t magic;
        uint32_t version; /* SHM_LAYOUT_VERSION */
        uint32_t kind;    /* enum shm_kind */
        uint64_t bytes;   /* of the whole segment */
        uint64_t boot_epoch;
        uint64_t owner; /* index: id of the namespace; pins, client: id of the client */
        uint8_t reserved[24];
};
static_assert(sizeof(struct shm_header) == 64, "layout");

/* ---- index segment --------------------------------------------------------------------------- */

/* A page's state, in its private record and in its line. */
enum page_state {
        PAGE_FREE = 0,
        PAGE_GRANTED = 1,
        PAGE_SEALED = 2,
        PAGE_RETIRING = 3, /* the evictor is about to count its pins */
        PAGE_MOVING = 4,   /* the target of a copy; never shown */
        PAGE_DETACHED = 5,
        PAGE_QUARANTINED = 6, /* reserved */
        PAGE_NULL = 7,        /* page 0 of a namespace that keeps it ungranted */
        PAGE_PENDING = 8,     /* shown only: GRANTED, and will be published under the line's key.
                               * FUTEX_WAIT (shared) on the word's lower half */
};

/*
 * A slot: the upper half of the key's hash, and page + 1; 0: empty. A key is in a slot of its home
 * bucket or of the next one, in no order. The daemon may move it from the first to the second. It
 * is written there before it is removed from the first. So a reader reads the home bucket, then
 * makes an acquire fence, then reads the next one (tests/model/index-move.pml). hash: hash_digest()
 * (base/hash.h) of the 32 bytes with the header's seed.
 */
#define SHM_BUCKET_SLOTS 8 /* a cache line */
/*
 * There are enough buckets for SHM_SLOTS_PER_PAGE slots for each page. A key goes to the bucket
 * after its home if the home has SHM_HOME_SLOTS in use and the next is emptier. With 3 and 6, 1.0 %
 * of the keys of a full namespace are in the second bucket, which readers look at last. Then 1.4 of
 * 1 M keys find both full and move others (daemon/core/state/shared.c). Alternatives: 7.0 % and
 * 0.4 with 3 and 4; 0.1 % and 8 with 3 and 8; 4.5 % and 131 with 2 and 6. (Simulated: 20 fills of 1
 * M with random hashes.)
 */
#define SHM_SLOTS_PER_PAGE 3
#define SHM_HOME_SLOTS     6

struct shm_bucket {
        _Atomic uint64_t slots[SHM_BUCKET_SLOTS]; /* D */
};
static_assert(sizeof(struct shm_bucket) == 64, "layout");

/* Returns the index of a key's n-th bucket by its hash. n: 0 (home) or 1 (the next one). */
static inline uint32_t shm_bucket_index(uint64_t hash, uint32_t n_buckets, uint32_t n)
{
        uint32_t home = (uint32_t)((uint64_t)(uint32_t)hash * n_buckets >> 32);

        return home + n == n_buckets ? 0 : home + n;
}

static inline uint64_t shm_slot(uint64_t hash, uint32_t page)
{
        return (hash & UINT64_C(0xffffffff00000000)) | ((uint64_t)page + 1);
}

/* One per page. All fields but the state are valid and constant while the state is SEALED. */
struct shm_line {
        _Atomic uint64_t state; /* D: generation << 8 | enum page_state */
        uint8_t key[SHM_KEY_BYTES];
        uint64_t epoch;  /* the namespace's at its grant; found if it is the header's */
        uint16_t tokens; /* 1..page_tokens */
        uint8_t tier;    /* 0: on the device */
        uint8_t reserved[13];
};
static_assert(sizeof(struct shm_line) == 64, "layout");
static_assert(offsetof(struct shm_line, key) == 8, "layout");
static_assert(offsetof(struct shm_line, epoch) == 40, "layout");
static_assert(offsetof(struct shm_line, tokens) == 48, "layout");
static_assert(offsetof(struct shm_line, tier) == 50, "layout");

struct shm_index {
        struct shm_header header;
        uint32_t capacity_pages; /* lines */
        uint32_t n_buckets;      /* at least 1 */
        uint64_t buckets_offset; /* bytes from the segment's start, multiples of 64 */
        uint64_t lines_offset;
        uint64_t seed[2];
        uint8_t reserved[24];
        /* 128 */
        _Atomic uint64_t epoch;         /* D: a page whose line has another isn't found */
        _Atomic uint64_t version_epoch; /* D: changes with the version of the weights */
        uint8_t reserved2[48];
        /* 192: in a cache line of its own, as it changes often */
        _Atomic uint32_t leasable; /* D: 1 + a hint of pages that a lease would get now, without
                                    * magazines; 0: unknown, ask by LEASABLE */
        uint8_t reserved3[SHM_HEADER_BYTES - 196];
};
static_assert(offsetof(struct shm_index, capacity_pages) == 64, "layout");
static_assert(offsetof(struct shm_index, buckets_offset) == 72, "layout");
static_assert(offsetof(struct shm_index, seed) == 88, "layout");
static_assert(offsetof(struct shm_index, epoch) == 128, "layout");
static_assert(offsetof(struct shm_index, version_epoch) == 136, "layout");
static_assert(offsetof(struct shm_index, leasable) == 192, "layout");
static_assert(sizeof(struct shm_index) == SHM_HEADER_BYTES, "layout");

/* ---- pin segment ----------------------------------------------------------------------------- */

#define SHM_MAGAZINE_SLOTS 1024 /* most pages granted ahead to one attachment */

/* After the header come the magazine (SHM_MAGAZINE_SLOTS slots), then a counter per page. A
 * magazine slot holds page + 1, or 0. D stores into empty slots only. C claims, and D takes back,
 * by atomic exchange with 0. */
struct shm_pins {
        struct shm_header header;
        uint32_t capacity_pages; /* counters */
        uint32_t magazine_slots; /* SHM_MAGAZINE_SLOTS */
        uint64_t magazine_offset, counters_offset;
        uint8_t reserved[40];
        /* 128, written by D */
        _Atomic uint64_t n_put; /* pages put into the magazine minus those taken back; wraps */
        _Atomic uint32_t level; /* pages to which it is filled */
        uint8_t reserved2[52];
        /* 192, written by C (D clears refill_asked) */
        _Atomic uint64_t n_taken;      /* pages claimed; wraps. n_put - n_taken are left */
        _Atomic uint32_t refill_asked; /* DC: a REFILL is on its way */
        uint32_t reserved3;
        /* Since the start; figures for people only. */
        _Atomic uint64_t n_lookups, n_keys, n_hits; /* requests; keys asked for; pages found */
        uint8_t reserved4[SHM_HEADER_BYTES - 232];
};
static_assert(offsetof(struct shm_pins, capacity_pages) == 64, "layout");
static_assert(offsetof(struct shm_pins, magazine_offset) == 72, "layout");
static_assert(offsetof(struct shm_pins, counters_offset) == 80, "layout");
static_assert(offsetof(struct shm_pins, n_put) == 128, "layout");
static_assert(offsetof(struct shm_pins, level) == 136, "layout");
static_assert(offsetof(struct shm_pins, n_taken) == 192, "layout");
static_assert(offsetof(struct shm_pins, refill_asked) == 200, "layout");
static_assert(offsetof(struct shm_pins, n_lookups) == 208, "layout");
static_assert(offsetof(struct shm_pins, n_hits) == 224, "layout");
static_assert(sizeof(struct shm_pins) == SHM_HEADER_BYTES, "layout");

/* ---- client segment -------------------------------------------------------------------------- */

#define SHM_SUB_ENTRIES  1024 /* power of two */
#define SHM_COMP_ENTRIES 2048 /* power of two */
#define SHM_FREE_PAGES   8    /* most pages of one FREE */

enum shm_op {
        SHM_OP_PARENT = 1,  /* key: the parent of the PUBLISH that follows. No completion */
        SHM_OP_PUBLISH = 2, /* page, key, tokens, flags; aux: enum shm_publish_hints; completes with
                               the page that has the key */
        SHM_OP_FREE = 3,    /* pages[0..tokens-1]: GRANTED pages given back, all or none */
        SHM_OP_TOUCH = 4,   /* page: deepest of a hit; aux: its generation, low 32 bits;
                               touch.*. Lossy, no completion */
        SHM_OP_REFILL = 5,  /* aux: pages wanted on top of the magazine's. No completion */
        SHM_OP_REQUEST_END = 6, /* request_id; aux: RequestEndRequest.ending. No completion */
        SHM_OP_FETCH = 7, /* page: one in a lower tier, pinned by the client; aux: its generation,
                           * low 32 bits. Completes out of order, with the device's page that has
                           * its key now, unpinned. COPY: copies into copy.to, granted to the
                           * client's group. DOWN: page is one on the device, and completes with the
                           * page in a lower tier that has its key then */
        SHM_OP_WITH =
                8, /* for following PUBLISHes, until an entry other than PARENT or PUBLISH of the
                    * same namespace. page: session handle, 0: none; with.tag. No completion */
        SHM_OP_EXPECT = 9, /* page: deepest cached page of a sequence for a request to come; aux:
                            * its generation, low 32 bits; expect.*. Lossy, no completion */
        SHM_OP_FETCH_PLANES = 10, /* FETCH with COPY of copy.n_planes planes (1 or more) from
                                   * copy.first_plane on. D may copy more */
        SHM_OP_TOKENS = 11, /* struct shm_token_ids: token ids of a page that a PUBLISH will name.
                             * No completion */
        SHM_OP_LAST = SHM_OP_TOKENS,
};

enum shm_op_flags {
        SHM_PUBLISH_ROOT = 1 << 0,  /* begins a sequence: no parent */
        SHM_PUBLISH_CHAIN = 1 << 1, /* the parent is the page that the entry before it in the ring
                                     * found (PARENT) or published (PUBLISH); fails if that failed
                                     */
        SHM_FETCH_COPY = 1 << 0,    /* FETCH, as the next; not both */
        SHM_FETCH_DOWN = 1 << 1,
};

/* Hints of a PUBLISH. A daemon ignores bits that it doesn't know. */
enum shm_publish_hints {
        SHM_PUBLISH_PASSED = 1 << 0, /* PublishRequest.window_passed */
};

/* A submission of C. Its position (a 64-bit count, never reused) is its sequence number: D executes
 * each once, in order. The client pins a page before it submits its PUBLISH. It drops the pin if
 * that fails, or completes with another page, which D has pinned for it. */
struct shm_submission {
        uint8_t op;    /* enum shm_op */
        uint8_t flags; /* enum shm_op_flags, of PUBLISH and FETCH; else 0 */
        uint16_t tokens;
        uint32_t ns_id; /* of NsOpenReply */
        uint32_t page;
        uint32_t aux;
        uint64_t user_data; /* returned in the completion; means nothing to D */
        uint64_t request_id;
        union {
                uint8_t key[SHM_KEY_BYTES];
                uint32_t pages[SHM_FREE_PAGES];
                struct {
                        uint32_t n_keys; /* asked for */
                        uint32_t n_hits; /* found: the deepest is `page` (none: PAGE_NONE) */
                        uint32_t hint;   /* reserved: 0 */
                        uint32_t reserved[5];
                } touch;
                struct {
                        uint64_t tag; /* 0: none */
                        uint64_t reserved[3];
                } with;
                struct {
                        uint32_t to;                    /* page; 0 without COPY */
                        uint32_t first_plane, n_planes; /* of FETCH_PLANES */
                        uint32_t reserved[5];
                } copy;
                struct {
                        uint32_t ttl_msec; /* lifetime limit; 0: 30 s */
                        uint32_t reserved[7];
                } expect;
        };
};
static_assert(sizeof(struct shm_submission) == 64, "a cache line");
static_assert(offsetof(struct shm_submission, ns_id) == 4, "layout");
static_assert(offsetof(struct shm_submission, user_data) == 16, "layout");
static_assert(offsetof(struct shm_submission, request_id) == 24, "layout");
static_assert(offsetof(struct shm_submission, key) == 32, "layout");

/* A submission of TOKENS, in other words. The ids of a page are given in order, from the first to
 * the last. D ignores entries that skip some, or that name a page not granted to the group. Entries
 * with `first` >= page_tokens follow the ids: words of shm_feed_line.names from word
 * first - page_tokens on. */
#define SHM_TOKENS_IDS 12 /* most ids in one */

struct shm_token_ids {
        uint8_t op, flags;
        uint16_t n; /* 1..SHM_TOKENS_IDS */
        uint32_t ns_id;
        uint32_t page;
        uint32_t first; /* index of ids[0] in the page */
        uint32_t ids[SHM_TOKENS_IDS];
};
static_assert(sizeof(struct shm_token_ids) == sizeof(struct shm_submission), "layout");
static_assert(
        offsetof(struct shm_token_ids, n) == offsetof(struct shm_submission, tokens) &&
                offsetof(struct shm_token_ids, page) == offsetof(struct shm_submission, page) &&
                offsetof(struct shm_token_ids, first) == offsetof(struct shm_submission, aux),
        "layout");

struct shm_completion {
        uint64_t user_data;
        uint32_t status; /* as in replies: proto/status.h */
        uint32_t page;   /* PUBLISH, FETCH: the page that has the key now; else the submission's */
};
static_assert(sizeof(struct shm_completion) == 16, "layout");

/*
 * Both rings: the entry of position p is entry p % N, and head <= tail <= head + N. A side stores
 * its entries, then its tail (release). The other loads the tail (acquire), copies the entries,
 * then stores its head (release). D consumes a submission only if its completion has room, besides
 * those of FETCHes under way. It stores sub_head before comp_tail. Completions have the order of
 * the submissions, except for FETCH.
 *
 * Doorbells. A side that is about to sleep stores 1 to its `sleeps`, makes a full fence, and looks
 * once more. A side that has moved one of its words (a tail, or a head, which makes room) makes a
 * full fence and loads the other's `sleeps`. If that is 1 and its own exchange for 0 wins, it rings
 * on the connection's socket: C by a DOORBELL frame, D by a RING event. So there is one descriptor
 * to poll. A ring can't be lost behind a full socket: the frame is queued like any other.
 */
struct shm_client {
        struct shm_header header;
        uint32_t sub_entries, comp_entries;
        uint64_t sub_offset, comp_offset;
        _Atomic uint32_t last_op; /* D: highest enum shm_op it knows; 0: WITH. No higher ones */
        uint8_t reserved[36];
        /* 128: a cache line each */
        _Atomic uint64_t sub_tail; /* C */
        uint8_t reserved2[56];
        _Atomic uint64_t sub_head; /* D: a copy for C; D keeps its own */
        uint8_t reserved3[56];
        _Atomic uint64_t comp_tail; /* D */
        uint8_t reserved4[56];
        _Atomic uint64_t comp_head; /* C */
        uint8_t reserved5[56];
        _Atomic uint32_t daemon_sleeps; /* DC */
        uint8_t reserved6[60];
        _Atomic uint32_t client_sleeps; /* DC */
        uint8_t reserved7[60];
        _Atomic uint64_t n_touches_dropped; /* C: for `kvleasectl status` alone */
        uint8_t reserved8[SHM_HEADER_BYTES - 520];
};
static_assert(offsetof(struct shm_client, sub_entries) == 64, "layout");
static_assert(offsetof(struct shm_client, sub_offset) == 72, "layout");
static_assert(offsetof(struct shm_client, last_op) == 88, "layout");
static_assert(offsetof(struct shm_client, sub_tail) == 128, "layout");
static_assert(offsetof(struct shm_client, sub_head) == 192, "layout");
static_assert(offsetof(struct shm_client, comp_tail) == 256, "layout");
static_assert(offsetof(struct shm_client, comp_head) == 320, "layout");
static_assert(offsetof(struct shm_client, daemon_sleeps) == 384, "layout");
static_assert(offsetof(struct shm_client, client_sleeps) == 448, "layout");
static_assert(offsetof(struct shm_client, n_touches_dropped) == 512, "layout");
static_assert(sizeof(struct shm_client) == SHM_HEADER_BYTES, "layout");

#define SHM_CLIENT_BYTES                                                      \
        (SHM_HEADER_BYTES + SHM_SUB_ENTRIES * sizeof(struct shm_submission) + \
                SHM_COMP_ENTRIES * sizeof(struct shm_completion))

/* ---- feed segment ---------------------------------------------------------------------------- */

/*
 * The findable pages of a namespace: a line for each page number, and a ring with the latest
 * changes. D adds a change before the lines show it. A follower that begins, or was overtaken,
 * loads the tail, copies all lines, and applies the changes from the last one before that tail on.
 * Each change tells the whole new line, so applying one twice, or one that the copy has already,
 * does no harm.
 *
 * A line: D stores 0 to its word, makes a release fence, stores the fields, and then the word
 * (release). A reader loads the word (acquire), copies the line, makes an acquire fence and loads
 * the word again: if it is the same and not 0, the copy is right. Otherwise the ring has a change.
 *
 * The ring: change number n is in slot n % n_slots. D makes a release fence, stores the slot, then
 * tail = n + 1 (release). A reader loads the tail (acquire), copies slot n < tail, makes an acquire
 * fence and loads the tail again: if tail - n < n_slots, the copy is right. Otherwise D overtook
 * it. A daemon that takes the segment over adds n_slots and a change of nothing, because a change
 * may be missing: all followers begin anew.
 */
enum shm_feed_kind {
        SHM_FEED_NOTHING = 0, /* behind a takeover */
        SHM_FEED_STORED = 1,  /* `line` of `page` */
        SHM_FEED_REMOVED = 2, /* `page` is gone; the line has no ids */
        SHM_FEED_MOVED = 3,   /* from `from`, which is gone, to `line` of `page` */
        SHM_FEED_CLEARED = 4, /* all pages are gone */
};

/* word: generation << 8 | this. */
enum shm_feed_state {
        SHM_FEED_NONE = 0, /* not findable */
        SHM_FEED_KEY = 1,  /* findable */
        SHM_FEED_IDS = 2,  /* findable, with token ids */
};

#define SHM_FEED_NAMES_BYTES 80

struct shm_feed_line {
        _Atomic uint64_t word; /* D */
        uint8_t key[SHM_KEY_BYTES];
        uint8_t parent[SHM_KEY_BYTES]; /* if depth > 1 */
        uint64_t epoch;                /* counts if it is the header's */
        uint64_t tag;
        uint32_t depth;  /* pages of the text up to the page's end; 1: it begins the text */
        uint16_t tokens; /* 1..page_tokens */
        uint8_t tier;
        uint8_t reserved;
        /* For D alone: ids given so far, of the page of this generation. */
        uint32_t n_ids;
        uint32_t reserved2;
        uint64_t ids_generation;
        /* If depth is 1, of the whole text: the names of its LoRA adapter and of its cache salt,
         * each with a NUL at its end. Written by clients: check before use. */
        char names[SHM_FEED_NAMES_BYTES];
}; /* then the ids: page_tokens times 4 bytes */
static_assert(sizeof(struct shm_feed_line) == 192, "layout");

struct shm_feed_slot {
        uint32_t kind; /* enum shm_feed_kind */
        uint32_t page;
        uint32_t from; /* MOVED, as from_tier */
        uint8_t from_tier;
        uint8_t reserved[51];
        struct shm_feed_line line;
};
static_assert(offsetof(struct shm_feed_slot, line) == 64, "layout");

struct shm_feed {
        struct shm_header header;
        uint32_t capacity_pages; /* lines */
        uint32_t page_tokens;
        uint32_t n_slots;    /* a power of two */
        uint32_t line_bytes; /* from a line to the next one, and of the line in a slot */
        uint64_t lines_offset, slots_offset;
        uint8_t reserved[32];
        /* 128 */
        _Atomic uint64_t epoch; /* D */
        _Atomic uint32_t ended; /* D: 1: the namespace is gone */
        uint8_t reserved2[52];
        /* 192 */
        _Atomic uint64_t tail; /* D: changes so far */
        uint8_t reserved3[SHM_HEADER_BYTES - 200];
};
static_assert(offsetof(struct shm_feed, capacity_pages) == 64, "layout");
static_assert(offsetof(struct shm_feed, lines_offset) == 80, "layout");
static_assert(offsetof(struct shm_feed, epoch) == 128, "layout");
static_assert(offsetof(struct shm_feed, tail) == 192, "layout");
static_assert(sizeof(struct shm_feed) == SHM_HEADER_BYTES, "layout");

static inline uint32_t *shm_feed_ids(struct shm_feed_line *line)
{
        return (uint32_t *)(line + 1);
}

/* Fills shm_feed_line.names. Returns whether both fit; NULL: none. */
static inline bool shm_feed_put_names(
        char ret[SHM_FEED_NAMES_BYTES], const char *lora_name, const char *cache_salt)
{
        size_t n = lora_name ? strlen(lora_name) : 0, m = cache_salt ? strlen(cache_salt) : 0;

        memset(ret, 0, SHM_FEED_NAMES_BYTES);
        if (n + m + 2 > SHM_FEED_NAMES_BYTES)
                return false;
        if (n > 0)
                memcpy(ret, lora_name, n);
        if (m > 0)
                memcpy(ret + n + 1, cache_salt, m);
        return true;
}

static inline uint64_t shm_feed_slot_bytes(uint32_t line_bytes)
{
        return offsetof(struct shm_feed_slot, line) + line_bytes;
}

static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
        "atomics that need a lock can't be shared between processes");

/* The store-load fence between a locked read-modify-write and later loads. On x86 the instruction
 * itself is one (Intel SDM 3A, 9.2.3.9); elsewhere not: aarch64's LDADDAL orders, but C11's seq_cst
 * RMW promises no fence for other objects. */
static inline void shm_fence_after_rmw(void)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
        atomic_signal_fence(memory_order_seq_cst);
#else
        atomic_thread_fence(memory_order_seq_cst);
#endif
}

#endif
