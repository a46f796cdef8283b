/*
 * Deep layers that keep less than the others do. Their pages lie in a namespace of their own, a
 * layer group; both make a set, whose keys are the same. A page is scored by the attention it gets
 * (scores.h), and where the deep layers have more pages than they may, the one that gets least goes
 * (keep.h): attention passes over it from then on, and the session gives it up
 * (kvl_session_keep()), so that its memory is somebody else's. What is computed after that is
 * another K and V than its key says, and is published to the session, where nobody else finds it.
 *
 * Which pages go depends on the text alone: attention counts from page `deep_first()` on, and no
 * more than the pages before that are reused. So logits are the same bits whatever was reused, and
 * without a daemon.
 *
 * Returns as pages.h. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <kvlease.h>

#include "client/examples/decoder/model.h"

struct deep_options {
        struct kvl_conn *conn;     /* NULL: private memory, whose pages stay where they are */
        struct kvl_layout layout;  /* of the deep layers; what it points to is borrowed */
        const char *ns_name;       /* of the others: "-deep" is put behind it; borrowed */
        const char *device;        /* borrowed; NULL: the daemon's */
        unsigned char **tensors;   /* the page table of struct model_kv; borrowed */
        uint64_t tensor_bytes;     /* K or V of one layer of one page */
        uint32_t n_layers, n_deep; /* of the model; the last n_deep of them are deep */
        uint32_t max_pages;        /* of a text */
        uint32_t n_most;           /* pages that they keep, DEEP_MIN_PAGES..DEEP_MAX_PAGES */
};

#define DEEP_MIN_PAGES 4
#define DEEP_MAX_PAGES 1024 /* ranges of a session */
#define DEEP_SET_SIZE  2    /* namespaces: of the deep layers and of the others */

/* Room for a namespace's name with "-deep" behind it. */
#define DEEP_NAME_BYTES (KVL_NS_NAME_BYTES + 5)

struct deep;

/* 0: *ret_deep, owned, to be closed after the connection. The memory must be the CPU's: the kernels
 * of a GPU attend to all pages. Blocks. */
int deep_open(const struct deep_options *options, struct deep **ret_deep);
void deep_close(struct deep *deep); /* NULL is ignored */

/* Between texts: opens the namespace again, which was invalidated. Blocks. */
int deep_reopen(struct deep *deep);

/* Pages of a text that may be reused, and behind which attention is counted. */
uint32_t deep_first(const struct deep *deep);

/* Begins a text, of whose first n_keys pages some may be cached. *ret_n: those that are, pinned and
 * entered in the table. */
int deep_begin(struct deep *deep, const uint8_t *keys, uint32_t n_keys, uint32_t *ret_n);

/* Gives up what is too much, and enters one more page at the end of the table. Attention that is
 * computed from now on is of that page. */
int deep_extend(struct deep *deep, struct model_kv *kv);

/* Publishes the page, the next one that is full; keys[page] is of its predecessor. KVL_NO_PARENT,
 * KVL_STALE: it stays private, like all after it. */
int deep_publish(struct deep *deep, uint32_t page, const uint8_t (*keys)[KVL_KEY_BYTES]);

/* Releases and frees what the text held, and drops its session. */
int deep_end(struct deep *deep);

/* Pages of the current text that were given up: by its session, where they were published. */
uint32_t deep_n_given_up(const struct deep *deep);
