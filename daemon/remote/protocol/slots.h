/*
 * The node of a cluster for each key: the hash of keys, replies to CLUSTER SLOTS, and the
 * redirections MOVED and ASK. Pure: no I/O, no clock, no memory of its own.
 *
 * Specification: https://redis.io/docs/reference/cluster-spec. A key belongs to one of 16,384
 * slots, a slot to one master.
 *
 * Threads: any, each with objects of its own.
 */
#ifndef KVL_REMOTE_SLOTS_H
#define KVL_REMOTE_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/remote/protocol/resp.h"

#define N_SLOTS 16384 /* the specification's */

#define SLOT_NOBODY UINT16_MAX

/* Bytes of an IP address as text, terminated: INET6_ADDRSTRLEN and a scope ("%eth0"). */
#define SLOT_HOST_BYTES 64

/* Masters of one cluster. The specification advises at most 1,000 nodes, replicas among them. */
#define SLOT_OWNERS_MAX 512

/*
 * CRC16 of the key (the specification's appendix A: polynomial 0x1021, XMODEM). If there are bytes
 * between the first '{' and the next '}', it is computed from these alone.
 */
unsigned slot_of_key(const void *key, size_t len);

struct slot_owner {
        char host[SLOT_HOST_BYTES]; /* "": the host of the asked node */
        uint16_t port;              /* not 0 */
};

struct slot_table {
        unsigned n_owners;
        unsigned n_served; /* slots that have an owner */
        struct slot_owner owners[SLOT_OWNERS_MAX];
        uint16_t sorted[SLOT_OWNERS_MAX]; /* indices of owners, sorted by port and host: a cluster
                                             may have as many ranges as slots */
        uint16_t owner_of[N_SLOTS];       /* index of its owner; SLOT_NOBODY: none */
};

/*
 * Reads the reply to CLUSTER SLOTS, token by token: Redis 4.0 and later, and Valkey. A host that
 * isn't an IP address counts only if the reply has the address beside it ("ip" in a node's
 * metadata, Redis 7.0). Replicas are skipped.
 */
struct slot_reader {
        struct slot_table *table; /* borrowed */
        int64_t first, last;      /* of the current range; -1: not yet */
        int64_t port;             /* of its master; 0: not yet */
        char host[SLOT_HOST_BYTES], ip[SLOT_HOST_BYTES];
        enum { SLOT_TEXT_OTHER, SLOT_TEXT_HOST, SLOT_TEXT_NAME, SLOT_TEXT_IP } text_is;
        bool has_host, is_range, is_master, next_is_ip;
        char text[SLOT_HOST_BYTES]; /* of the current bulk string, cut to this size */
        uint64_t text_len, text_left;
};

/* Empties the table, and borrows it as long as the reader is used. */
void slot_reader_init(struct slot_reader *r, struct slot_table *table);

/* Takes one token of the reply, also RESP_END, not RESP_MORE. Returns 0; -EPROTO: this is no such
 * reply. */
int slot_reader_token(struct slot_reader *r, const struct resp_token *t);

/* Takes n bytes of a bulk string that a token announced. Returns 0 or -EPROTO. */
int slot_reader_text(struct slot_reader *r, const char *text, size_t n);

struct slot_redirect {
        bool is_ask; /* redirects only this request; else the slot has moved */
        unsigned slot;
        struct slot_owner to;
};

/* Parses an error such as "MOVED 3999 127.0.0.1:6381". Returns false if it is none. Of the host
 * only the length is checked. */
bool slot_redirect_parse(const char *text, size_t len, struct slot_redirect *ret);

#endif
