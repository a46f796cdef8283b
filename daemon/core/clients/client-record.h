/*
 * What of clients outlives kvleased: who they are, which namespaces they have open, and how far
 * their rings were executed. One private memory file, kept as KEEP_CLIENTS (keep.h), with a table
 * of clients and one of attachments; the descriptors that go with a row are kept under its number.
 *
 *   row free -> filled -> live (its first word, stored last: the member's id)
 *            -> free (the word is 0; then its descriptors are dropped)
 *
 * An attachment counts only while the client whose id it has is live. A client's row ends before
 * its attachments do, so that a process that is killed in between leaves none that is half there.
 *
 * A descriptor is on its way to who keeps it when the row says that it is there, and nothing that
 * depends on it was told to anybody: where another one is found in its place (the row was somebody
 * else's before), or none, the client doesn't know of it either. Which it is, the inode tells. Only
 * where nobody waited any more for what keeps it (state_root.is_unsure) the client may know: then
 * it is *lost*. It can't go on, and what it may be reading stays until it has exited.
 *
 * Nothing is kept (store.keep): there is no table, and every function here does nothing. Loop
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
#include "daemon/core/clients/submit-chain.h"
#include "daemon/core/objects/group.h"

struct detail;
struct recovery;
struct store;

#define CLIENT_SLOTS        (UINT32_C(1) << 16) /* as many as connections there may be */
#define ATTACH_SLOTS        (UINT32_C(1) << 20) /* not tuned */
#define CLIENT_NAME_MAX     64
#define CLIENT_HEADER_BYTES 4096

/* How far a ring was executed, and what the next entry is chained to. */
struct client_cursor {
        uint64_t sub_head, comp_tail;
        struct submit_chain chain;
        uint64_t reserved;
};
static_assert(sizeof(struct client_cursor) == 64, "layout; a cache line");
static_assert(offsetof(struct client_cursor, chain) == 16, "layout");

/* Two copies: the one that isn't named is written, then the name is changed. */
struct client_cursors {
        _Atomic uint32_t which; /* 0, 1 */
        uint8_t reserved[60];
        struct client_cursor copies[2];
};
static_assert(sizeof(struct client_cursors) == 192, "layout");

enum client_marks {
        CLIENT_MUTED = 1 << 0, /* stays so */
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
        _Atomic uint32_t valid_tokens; /* of the two below, a bit each */
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

/* Who a member is, beside what struct member says. */
struct client_who {
        pid_t pid;
        uid_t uid;
        char name[CLIENT_NAME_MAX + 1]; /* printable */
};

/*
 * Once, with store.keep set and the state's root open (state.h), before anything else that was kept
 * is used: makes the tables, or takes those that were kept. 0, also where nothing is kept; -ENOMEM,
 * -EMFILE, another -errno with the sentence. *ret_lost (always set): namespaces were kept, and no
 * tables, or damaged ones. Who reads their pages, or writes them, isn't known then: everything was
 * dropped (state_start_over()), and the sentence says so.
 */
int client_records_open(struct store *s, bool *ret_lost, struct detail *d);

/* The process' own mapping; what is kept stays. Safe to repeat. */
void client_records_close(struct store *s);

/* ---- of a member ------------------------------------------------------------------------------
 */

/*
 * The member outlives the process from now on; its first token is m->resume_token. `pidfd` is its
 * process (borrowed). 0; -EMFILE, or as add() of keep.h, with the sentence: nothing changed.
 */
int client_record(struct member *m, const struct client_who *who, int pidfd, struct detail *d);

/* Not any more; its attachments neither. Safe to repeat. */
void client_unrecord(struct member *m);

static inline bool client_is_recorded(const struct member *m)
{
        return m->record != 0;
}

/* NULL where it isn't recorded. */
struct client_slot *client_slot_of(const struct member *m);

/* Who the member is, as its row says. It was recovered. */
void client_get_who(const struct member *m, struct client_who *ret_who);

/* Its client segment has this descriptor (borrowed); *ret_cursors: where to note how far it is
 * executed, NULL where nothing is kept. Once. 0; as add() of keep.h, with the sentence. */
int client_record_ring(
        struct member *m, int fd, struct client_cursors **ret_cursors, struct detail *d);

/* The client segment of a member that was recovered: an owned descriptor, sized and sealed as it
 * should be; -ENOENT: it has none. */
int client_take_ring(struct member *m, struct client_cursors **ret_cursors);

/* The member was told of what isn't there any more. It stays so, also after a restart. */
void client_lose(struct member *m);
bool client_is_lost(const struct member *m);

/* The same, where it isn't known which pages it reads: until the attachment is closed all of its
 * namespace counts as pinned, also after a restart. */
void attach_lose_pins(struct attach *a);

/* The member broke the protocol: its requests are ignored from now on, after a restart, too. */
void client_mute(struct member *m);
bool client_is_muted(const struct member *m);

/*
 * Frame `number` is about to be executed, and mustn't be once more: what it does can't be told from
 * what happened since. client_frame_is_done(): it was, or would have been but for a kill in
 * between. Numbers grow.
 */
void client_note_frame(struct member *m, uint64_t number);
bool client_frame_is_done(const struct member *m, uint64_t number);

/*
 * Tokens prove that a client is the one it says. One is given at a time, but the one before it
 * stays right until the client has shown that it got the other: a reply may have been lost.
 */
void client_token_random(uint8_t ret_token[CLIENT_TOKEN_BYTES]);

/* In constant time. */
bool client_token_is(const struct member *m, const uint8_t token[CLIENT_TOKEN_BYTES]);

/* `fresh` is right from now on, beside `presented`, which client_token_is(). */
void client_token_renew(struct member *m, const uint8_t presented[CLIENT_TOKEN_BYTES],
        const uint8_t fresh[CLIENT_TOKEN_BYTES]);

/* Only the one given last is. */
void client_token_settle(struct member *m);

/* ---- of an attachment -------------------------------------------------------------------------
 */

/* The attachment outlives the process from now on, if its member is recorded; else nothing is done.
 * 0; -EMFILE with the sentence. */
int attach_record(struct attach *a, struct detail *d);

/* Before anything of it ends. Safe to repeat. */
void attach_unrecord(struct attach *a);

/* The attachment has a pin segment, a->share, which is kept from now on. To be called once. 0; as
 * add() of keep.h, with the sentence. */
int attach_record_share(struct attach *a, struct detail *d);

/*
 * The pins that the attachment takes over the socket are counted in this memory file (borrowed),
 * which is kept from now on. To be called once. 0; as add() of keep.h, with the sentence.
 */
int attach_record_pins(struct attach *a, int fd, struct detail *d);

/* ---- of a ring --------------------------------------------------------------------------------
 */

/* What is stored before is executed, once. */
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
