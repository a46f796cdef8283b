/*
 * A session as stored for other hosts: the keys of its pages from the beginning of the text on, and
 * the length of the text. It is the payload of an envelope (envelope.h), which names its owner; the
 * pages are stored under names of their own. PURE: no I/O.
 *
 * The store is not trusted: only a payload whose envelope was accepted is read. It proves nothing
 * about pages, each of which has an envelope.
 *
 * Numbers are in the machine's byte order, little-endian, as an envelope's.
 *
 * Any thread; no memory.
 */
#ifndef KVL_EXCHANGE_SESSION_RECORD_H
#define KVL_EXCHANGE_SESSION_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/exchange/format/keys.h"

/* Longer sessions have no record. So many keys are collected in one turn of the daemon's loop; they
 * take half a MiB. Not tuned. */
#define SESSION_RECORD_PAGES_MAX 16384

/* Bytes before the keys. */
#define SESSION_RECORD_HEAD_BYTES 16

#define SESSION_RECORD_BYTES_MAX \
        (SESSION_RECORD_HEAD_BYTES + (size_t)SESSION_RECORD_PAGES_MAX * EXCHANGE_KEY_BYTES)

struct session_record {
        uint64_t n_tokens;   /* up to the session's end, lost ones included: 1 .. UINT32_MAX */
        uint32_t n_pages;    /* 1 .. SESSION_RECORD_PAGES_MAX */
        const uint8_t *keys; /* n_pages * EXCHANGE_KEY_BYTES; borrowed of the payload */
};

/* Bytes of a record of so many pages. */
static inline size_t session_record_bytes(uint32_t n_pages)
{
        return SESSION_RECORD_HEAD_BYTES + (size_t)n_pages * EXCHANGE_KEY_BYTES;
}

/* Writes the part before the keys. Returns the place where the caller writes these, in the order of
 * the text. */
uint8_t *session_record_begin(uint8_t *payload, uint64_t n_tokens, uint32_t n_pages);

/* Returns false if it is no record, or of another version. */
bool session_record_read(const uint8_t *payload, size_t n_bytes, struct session_record *ret);

#endif
