/*
 * A session as other hosts find it: which pages it has, as their keys from the beginning of the
 * text on, and how long the text is. It is the payload of an envelope (envelope.h), which says
 * whose it is; the pages lie by themselves, each under a name of its own. PURE: no I/O.
 *
 * Whoever holds the bytes meanwhile is an enemy: read is only what an envelope was accepted for,
 * and what it says isn't believed of any page, each of which has an envelope.
 *
 * Numbers are of the machine's byte order, which is little-endian, as an envelope's.
 *
 * Any thread; no memory.
 */
#ifndef KVL_EXCHANGE_SESSION_RECORD_H
#define KVL_EXCHANGE_SESSION_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/exchange/keys.h"

/* Longer sessions have no record. So many keys are collected in one turn of the daemon's loop, and
 * make half a MiB. Not tuned. */
#define SESSION_RECORD_PAGES_MAX 16384

/* Of what is before the keys. */
#define SESSION_RECORD_HEAD_BYTES 16

#define SESSION_RECORD_BYTES_MAX \
        (SESSION_RECORD_HEAD_BYTES + (size_t)SESSION_RECORD_PAGES_MAX * EXCHANGE_KEY_BYTES)

struct session_record {
        uint64_t n_tokens;   /* up to the session's end, lost ones included: 1 .. UINT32_MAX */
        uint32_t n_pages;    /* 1 .. SESSION_RECORD_PAGES_MAX */
        const uint8_t *keys; /* n_pages * EXCHANGE_KEY_BYTES; borrowed of the payload */
};

/* Of a record of so many pages. */
static inline size_t session_record_bytes(uint32_t n_pages)
{
        return SESSION_RECORD_HEAD_BYTES + (size_t)n_pages * EXCHANGE_KEY_BYTES;
}

/* Writes what is before the keys. The caller writes these, to where it returns, in the order of the
 * text. */
uint8_t *session_record_begin(uint8_t *payload, uint64_t n_tokens, uint32_t n_pages);

/* False: it is no record, or of another version. */
bool session_record_read(const uint8_t *payload, size_t n_bytes, struct session_record *ret);

#endif
