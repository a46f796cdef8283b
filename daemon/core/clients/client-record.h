/*
 * The state of clients that outlives kvleased: their identity, their open namespaces, and the
 * positions in their rings. One private memory file, stored as KEEP_CLIENTS (keep.h), has a table
 * of clients and one of attachments. The descriptors of a row are stored under its number.
 *
 *   row free -> filled -> live (its first word, stored last: the member's id)
 *            -> free (the word is 0; then its descriptors are dropped)
 *
 * An attachment is valid only while the client with its id is live. A client's row ends before its
 * attachments do, so that a kill in between leaves no partial client.
 *
 * When a row says that it has a descriptor, the descriptor is on its way to the store. No peer was
 * told anything that depends on it before. So if recovery finds another descriptor in its place
 * (from a former user of the row) or none, the client doesn't know of it either. The inode number
 * tells which file it is. Exception: if the daemon had stopped waiting for the descriptor store
 * (state_root.is_unsure), the client may know of it. Then it is *lost*: it can't continue, and
 * pages that it may be reading stay until it has exited.
 *
 * Without a descriptor store (store.keep) there is no table, and all functions do nothing. Loop
 * thread only.
 */
#ifndef KVL_CORE_CLIENT_RECORD_H
#define KVL_CORE_CLIENT_RECORD_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/fault-point.h"
#include "base/parse.h"
#include "daemon/core/state/group.h"

struct detail;
struct recovery;
struct store;

#define CLIENT_SLOTS        (UINT32_C(1) << 16) /* the limit of connections */
#define ATTACH_SLOTS        (UINT32_C(1) << 20) /* not tuned */
#define CLIENT_NAME_MAX     64
#define CLIENT_HEADER_BYTES 4096

/* State that submissions of a client's ring leave for later ones. It is recorded, so that a ring
 * continues after a restart as if there had been none. */

/* The arguments of a WITH entry. */
struct submit_with {
        uint32_t ns_id; /* 0: none */
        uint32_t session;
        uint64_t tag;
};

/* State for a PUBLISH entry with CHAIN, from the last entry before. Zero at first. */
struct submit_chain {
        uint32_t ns_id; /* 0: none */
        int status;     /* 0, or the failure that entries chained to it get, too */
        uint32_t page;
        uint64_t generation;
        struct submit_with with;
};

/* The position in a ring, and the state that the next entry is chained to. */
struct client_cursor {
        uint64_t sub_head, comp_tail;
        struct submit_chain chain;
        uint64_t reserved;
};
static_assert(sizeof(struct client_cursor) == 64, "layout; a cache line");
static_assert(offsetof(struct client_cursor, chain) == 16, "layout");

/* Two copies: the unused one is written, then `which` is changed. */
struct client_cursors {
        _Atomic uint32_t which; /* 0, 1 */
        uint8_t reserved[60];
        struct client_cursor copies[2];
};
static_assert(sizeof(struct client_cursors) == 192, "layout");

enum client_marks {
        CLIENT_MUTED = 1 << 0, /* permanent */
        CLIENT_RING = 1 << 1,  /* has a client segment, of ring_inode */
        CLIENT_LOST = 1 << 2,  /* client_lose() */
};

enum client_flags {
        CLIENT_METADATA_ONLY = 1 << 0,
        CLIENT_SAFEPOINTS = 1 << 1,
};

struct client_slot {
        _Atomic uint64_t live;  /* the member's id; 0: the row is free */
        uint32_t next_free;     /* free: slot + 1; 0 ends */
        _Atomic uint32_t marks; /* enum client_marks */
        uint32_t flags;         /* enum client_flags */
        uint32_t group_id;
        int32_t pid;
        uint32_t uid;
        uint64_t ring_inode;
        _Atomic uint32_t valid_tokens; /* which of the two tokens are valid, a bit each */
        uint32_t reserved;
        uint8_t tokens[2][CLIENT_TOKEN_BYTES];
        uint8_t group_token[GROUP_TOKEN_BYTES];
        _Atomic uint64_t frames_done; /* client_note_frame() */
        char tenant[TENANT_NAME_MAX + 8];
        char name[CLIENT_NAME_MAX + 8];
        uint8_t reserved2[72];
        struct client_cursors cursors;
};
static_assert(sizeof(struct client_slot) == 512, "layout");
static_assert(offsetof(struct client_slot, tokens) == 48, "layout");
static_assert(offsetof(struct client_slot, tenant) == 104, "layout");
static_assert(offsetof(struct client_slot, cursors) == 320, "layout");

enum attach_marks {
        ATTACH_SHARES = 1 << 0,      /* has a pin segment, of pins_inode */
        ATTACH_SOCKET_PINS = 1 << 1, /* has counters, in a file of socket_pins_inode */
        ATTACH_LOST = 1 << 2,        /* attach.pins_lost */
};

struct attach_slot {
        _Atomic uint64_t live; /* the member's id; 0: the row is free */
        uint32_t next_free;    /* free: slot + 1; 0 ends */
        uint32_t client;       /* slot */
        uint32_t records;      /* number of the namespace's */
        uint32_t id;           /* ns_id */
        uint64_t open_frame;   /* number of the NS_OPEN; 0: none */
        uint64_t version_epoch;
        uint64_t pins_inode, socket_pins_inode;
        _Atomic uint32_t marks; /* enum attach_marks */
        uint32_t reserved;
};
static_assert(sizeof(struct attach_slot) == 64, "layout");
static_assert(offsetof(struct attach_slot, version_epoch) == 32, "layout");

/* The identity of a member, beside struct member. */
struct client_who {
        pid_t pid;
        uid_t uid;
        char name[CLIENT_NAME_MAX + 1]; /* printable */
};

/*
 * Makes the tables or takes the stored ones. Call it once, with store.keep set and the state's root
 * open (state.h), before other stored state is used. Returns 0, also without a descriptor store;
 * -ENOMEM, -EMFILE, another -errno with the sentence. *ret_lost is always set: namespaces were
 * stored without tables, or with damaged ones. The readers and writers of their pages are unknown
 * then, so everything was dropped (state_start_over()), and the sentence says so.
 */
int client_records_open(struct store *s, bool *ret_lost, struct detail *d);

/* Closes this process's mapping; stored descriptors stay. Idempotent. */
void client_records_close(struct store *s);

/* ---- members --------------------------------------------------------------------------------- */

/* Records the member, with m->resume_token as its first token and `pidfd`, its process (borrowed).
 * Returns 0; -EMFILE, or as add() of keep.h, with the sentence (nothing changed). */
int client_record(struct member *m, const struct client_who *who, int pidfd, struct detail *d);

/* Removes the member's record and those of its attachments. Idempotent. */
void client_unrecord(struct member *m);

static inline bool client_is_recorded(const struct member *m)
{
        return m->record != 0;
}

/* Returns NULL if the member isn't recorded. */
struct client_slot *client_slot_of(const struct member *m);

/* Returns the identity of a recovered member from its row. */
void client_get_who(const struct member *m, struct client_who *ret_who);

/* Records the descriptor (borrowed) of the member's client segment, once. *ret_cursors: where to
 * store the position in the ring; NULL without a descriptor store. Returns 0; as add() of keep.h,
 * with the sentence. */
int client_record_ring(
        struct member *m, int fd, struct client_cursors **ret_cursors, struct detail *d);

/* Returns the client segment of a recovered member: an owned descriptor with the right size and
 * seals; -ENOENT: it has none. */
int client_take_ring(struct member *m, struct client_cursors **ret_cursors);

/* Marks the member as lost: it knows of objects that don't exist any more. Survives a restart. */
void client_lose(struct member *m);
bool client_is_lost(const struct member *m);

/* Marks the attachment's pins as unknown: until it is closed, all pages of its namespace count as
 * pinned. Survives a restart. */
void attach_lose_pins(struct attach *a);

/* The member broke the protocol: its requests are ignored from now on. Survives a restart. */
void client_mute(struct member *m);
bool client_is_muted(const struct member *m);

/* Notes that frame `number` is about to be executed and must not be executed again, because a
 * repetition couldn't be told from a new change. client_frame_is_done(): it was executed, or a kill
 * prevented that. Numbers grow. */
void client_note_frame(struct member *m, uint64_t number);
bool client_frame_is_done(const struct member *m, uint64_t number);

/* Tokens prove the identity of a client. When a new one is given, the former one stays valid until
 * the client has shown that it got the new one: a reply may have been lost. */
void client_token_random(uint8_t ret_token[CLIENT_TOKEN_BYTES]);

/* Compares in constant time. */
bool client_token_is(const struct member *m, const uint8_t token[CLIENT_TOKEN_BYTES]);

/* Makes `fresh` valid beside `presented`, for which client_token_is() is true. */
void client_token_renew(struct member *m, const uint8_t presented[CLIENT_TOKEN_BYTES],
        const uint8_t fresh[CLIENT_TOKEN_BYTES]);

/* Makes only the latest token valid. */
void client_token_commit(struct member *m);

/* ---- attachments ----------------------------------------------------------------------------- */

/* Records the attachment, if its member is recorded. Returns 0; -EMFILE with the sentence. */
int attach_record(struct attach *a, struct detail *d);

/* Removes the record before the attachment's parts end. Idempotent. */
void attach_unrecord(struct attach *a);

/* Stores the attachment's pin segment, a->share. Call it once. Returns 0; as add() of keep.h, with
 * the sentence. */
int attach_record_share(struct attach *a, struct detail *d);

/* Stores the memory file (borrowed) in which the attachment's pins over the socket are counted.
 * Call it once. Returns 0; as add() of keep.h, with the sentence. */
int attach_record_pins(struct attach *a, int fd, struct detail *d);

/* ---- rings ----------------------------------------------------------------------------------- */

/* Stores the position before the entry is executed, once. */
static inline void client_cursors_commit(
        struct client_cursors *c, const struct client_cursor *cursor)
{
        uint32_t next = atomic_load_explicit(&c->which, memory_order_relaxed) ^ 1;

        FAULT_POINT("cursor-before-copy");
        c->copies[next & 1] = *cursor;
        FAULT_POINT("cursor-before-turn");
        atomic_store_explicit(&c->which, next & 1, memory_order_release);
        FAULT_POINT("cursor-after-turn");
}

static inline struct client_cursor client_cursors_get(const struct client_cursors *c)
{
        return c->copies[atomic_load_explicit(&c->which, memory_order_acquire) & 1];
}

#endif
