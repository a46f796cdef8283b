/*
 * Deep layers that keep fewer pages than the others. Their pages are in a namespace of their own, a
 * layer group; both namespaces make a set with the same keys. Pages are scored by their attention
 * (scores.h). If the deep layers have too many pages, the one with the least attention is given up.
 * Attention skips it from then on, and the session gives it up (kvl_session_keep()),
 * which frees its memory. Pages computed after that differ from their keys' contents. They are
 * published to the session, where only the session finds them.
 *
 * The choice of pages depends on the sequence alone: attention counts from page `deep_first()` on,
 * and only pages before that are reused. So logits have the same bits with any reuse, and without a
 * daemon.
 *
 * Return values are as in pages.h. Not thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <kvlease.h>

#include "client/examples/decoder/model.h"

struct deep_options {
        struct kvl_conn *conn;     /* NULL: private memory, whose pages stay in place */
        struct kvl_layout layout;  /* of the deep layers; its pointers are borrowed */
        const char *ns_name;       /* of the others; "-deep" is appended; borrowed */
        const char *device;        /* borrowed; NULL: the daemon's */
        unsigned char **tensors;   /* the page table of struct model_kv; borrowed */
        uint64_t tensor_bytes;     /* K or V of one layer of one page */
        uint32_t n_layers, n_deep; /* of the model; the last n_deep of them are deep */
        uint32_t max_pages;        /* of a sequence */
        uint32_t n_most;           /* most pages they keep, DEEP_MIN_PAGES..DEEP_MAX_PAGES */
};

#define DEEP_MIN_PAGES 4
#define DEEP_MAX_PAGES 1024 /* ranges of a session */
#define DEEP_SET_SIZE  2    /* namespaces: of the deep layers and of the others */

/* Size of a namespace's name with "-deep" appended. */
#define DEEP_NAME_BYTES (KVL_NS_NAME_BYTES + 5)

struct deep;

/* Opens the deep layers. Returns 0: *ret_deep is owned; close it after the connection. The memory
 * must be the CPU's, as GPU kernels attend to all pages. Blocks. */
int deep_open(const struct deep_options *options, struct deep **ret_deep);
void deep_close(struct deep *deep); /* NULL is ignored */

/* Between sequences: reopens the namespace after an invalidation. Blocks. */
int deep_reopen(struct deep *deep);

/* Returns the pages of a sequence that may be reused; attention counts after them. */
uint32_t deep_first(const struct deep *deep);

/* Begins a sequence whose first n_keys pages may be cached. *ret_n: those that are, pinned and
 * entered in the table. */
int deep_begin(struct deep *deep, const uint8_t *keys, uint32_t n_keys, uint32_t *ret_n);

/* Gives up excess pages, and enters one more at the end of the table. Attention computed from now
 * on is for that page. */
int deep_extend(struct deep *deep, struct model_kv *kv);

/* Publishes the next full page; keys[page] is its predecessor's. KVL_NO_PARENT, KVL_STALE: it stays
 * private, as all after it. */
int deep_publish(struct deep *deep, uint32_t page, const uint8_t (*keys)[KVL_KEY_BYTES]);

/* Releases and frees the sequence's pages, and drops its session. */
int deep_end(struct deep *deep);

/* Returns the pages of the current sequence that were given up; published ones by its session. */
uint32_t deep_n_given_up(const struct deep *deep);
