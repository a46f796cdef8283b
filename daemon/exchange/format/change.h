/*
 * A *change*: the invalidations between one epoch of a namespace and the next (keys.h), as stored
 * for other hosts, so that each drops its copies. It is the payload of an envelope (envelope.h)
 * with its epoch. Each change names the next epoch, so that a host that knows some epoch can follow
 * all changes since then. PURE: no I/O.
 *
 * The store is not trusted: only a payload whose envelope was accepted is read.
 *
 * Numbers are in the machine's byte order, little-endian, as an envelope's.
 *
 * Any thread; no memory.
 */
#ifndef KVL_EXCHANGE_CHANGE_H
#define KVL_EXCHANGE_CHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/exchange/format/keys.h"

/* Beyond this, all of the namespace is invalidated. Not tuned. */
#define CHANGE_ITEMS_MAX 16

#define CHANGE_BYTES_MAX (16 + (size_t)CHANGE_ITEMS_MAX * 48)

enum change_kind {
        CHANGE_ALL = 1, /* of the namespace */
        CHANGE_KEY,     /* the page with `key`, and its continuations */
        CHANGE_TAG,     /* the pages with `tag`, likewise */
};

struct change_item {
        enum change_kind kind;
        uint64_t tag;                    /* CHANGE_TAG: > 0; else 0 */
        uint8_t key[EXCHANGE_KEY_BYTES]; /* CHANGE_KEY; else zeros */
};

struct change {
        uint64_t next;    /* the epoch behind it: > 0 */
        uint32_t n_items; /* 0 .. CHANGE_ITEMS_MAX; in any order */
        struct change_item items[CHANGE_ITEMS_MAX];
};

/* Adds an item. Does nothing if CHANGE_ALL is there; becomes CHANGE_ALL if there is no room. `next`
 * isn't used. */
void change_add(struct change *c, const struct change_item *item);

/* Adds all items of `other`. */
void change_merge(struct change *c, const struct change *other);

/* Bytes of a change with so many items. */
size_t change_bytes(uint32_t n_items);

/* Writes change_bytes(c->n_items) bytes. */
void change_write(const struct change *c, uint8_t *payload);

/* Returns false if it is no change, or of another version; *ret is unchanged. */
bool change_read(const uint8_t *payload, size_t n_bytes, struct change *ret);

#endif
