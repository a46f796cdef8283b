/*
 * Messages between kvleased and kvlease-exchange on a Unix stream socket. Each connection, a
 * *lane*, has memory that both map: the *arena*, in which values lie. kvleased makes it, and says
 * where in it a value is or belongs.
 *
 *   kvleased            -> OPEN (with the arena's descriptor), BEGIN, CANCEL
 *   kvlease-exchange    -> READY or REFUSED, once; DONE for each BEGIN; STATUS
 *
 * Each message is a struct relay_head and `bytes` bytes. Numbers are the machine's. Times are
 * spans, as two containers may have different clocks.
 *
 * kvlease-exchange parses what strangers send, so kvleased trusts it as little as a store: it
 * checks each message, and copies a value out of the arena before it looks at the value. What
 * kvlease-exchange can do is what a store can do that lies (docs/security/THREATS.md).
 */
#ifndef KVL_RELAY_WIRE_H
#define KVL_RELAY_WIRE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/remote/io/remote-io.h"

/* Changes with the format: another build may be at the other end. */
#define RELAY_VERSION 1

/* Bytes of one message, without its head. Not tuned. */
#define RELAY_MESSAGE_MAX (4u << 20)

/* Bytes of a sentence, terminated. */
#define RELAY_WHY_BYTES 512

enum relay_kind {
        RELAY_OPEN = 1, /* struct relay_open, and its texts */
        RELAY_BEGIN,    /* struct relay_begin, its operations, and their keys */
        RELAY_CANCEL,   /* nothing */
        RELAY_READY,    /* nothing */
        RELAY_REFUSED,  /* a sentence of at most RELAY_WHY_BYTES - 1 bytes */
        RELAY_DONE,     /* a struct relay_result for each operation */
        RELAY_STATUS,   /* RELAY_STATUS_BYTES, and nodes */
};

struct relay_head {
        uint32_t kind;
        uint32_t bytes;
        uint64_t id; /* BEGIN, CANCEL, DONE: the batch */
};

/* The texts follow, each terminated: addresses, user, secret_file, tls_ca, tls_host, tls_cert,
 * tls_key. "" means none. The addresses are separated by blanks. */
struct relay_open {
        uint32_t version;
        uint32_t large_threads, connect_msec, silence_msec;
        uint32_t is_tls;
        uint32_t lane;  /* 0: of small operations */
        uint64_t store; /* lanes of one number share one client */
        uint64_t arena_bytes;
};

enum relay_text {
        RELAY_ADDRESSES,
        RELAY_USER,
        RELAY_SECRET_FILE,
        RELAY_TLS_CA,
        RELAY_TLS_HOST,
        RELAY_TLS_CERT,
        RELAY_TLS_KEY,
        N_RELAY_TEXTS,
};

struct relay_begin {
        uint32_t kind, of_class; /* enum remote_kind, remote_class */
        uint32_t n;              /* operations, which follow: 1 .. REMOTE_OPS_MAX */
        uint32_t reserved;
        uint64_t left_nsec; /* until the deadline */
};

enum relay_flags {
        RELAY_ASKS_FIRST = 1 << 0, /* remote_op.asks_first, and so on */
        RELAY_ONLY_NEW = 1 << 1,
        RELAY_ONLY_ONCE = 1 << 2,
};

/* The keys of all operations follow the last one: a uint16_t of bytes and these bytes, for each. */
struct relay_op {
        uint32_t n_keys;
        uint32_t flags;
        uint64_t expiry_msec;
        uint64_t value_at, value_bytes; /* in the arena; bytes 0: no value */
};

struct relay_result {
        int32_t result; /* of struct remote_op */
        uint32_t n_found;
        uint64_t n_bytes;
};

/* Figures of the client, every RELAY_STATUS_NSEC, on the lane of small operations: struct
 * remote_stats up to its fault, with n_waiting 0, and a struct remote_node_stats for each of its
 * n_nodes (at most REMOTE_NODES_MAX), whose open_until_nsec is the time left. */
#define RELAY_STATUS_BYTES offsetof(struct remote_stats, fault)

static_assert(RELAY_STATUS_BYTES == 4 * 4 + 6 * 8 + 2 * 4, "the format");
static_assert(sizeof(struct remote_node_stats) == REMOTE_NAME_BYTES + 4 * 4 + 10 * 8, "the format");

#define RELAY_STATUS_NSEC (100 * NSEC_PER_MSEC)

#endif
