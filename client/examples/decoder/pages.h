/*
 * The worker's page table: the places of one prompt's K and V at a time. This file shows how an
 * engine uses kvlease; the rest of the decoder knows only page numbers and addresses.
 *
 *   open -> { begin -> (extend -> write -> publish)... -> end }... -> close
 *
 * Pages come from the daemon (leased, or found under their key and pinned). The oracle that results
 * are compared with uses private memory, in which no page is ever found. Pages are in memory of the
 * CPU or of a GPU and stay there: their users run there.
 *
 * Return values are as in <kvlease.h>: 0, negative errno, or a positive KVL_* condition;
 * pages_error() has the sentence. After a failure inside a prompt only pages_end() and
 * pages_close() make sense. Not thread-safe.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/examples/decoder/model.h"

struct pages_options {
        struct model_shape shape;
        bool use_daemon;       /* false: private memory */
        bool plane_per_tensor; /* a plane for K and one for V of each layer; false: one for all */
        const char *socket;    /* NULL: the library's default */
        const char *ns_name;   /* borrowed, as is device */
        const char *device;    /* NULL: the daemon's default; without a daemon "host" */
        const char *kernels;   /* of a GPU: struct gpu_options; borrowed */
        uint32_t page_tokens;
        uint32_t max_pages; /* of one prompt and its generated tokens */
        /* Most pages of a prompt on the device, at least PAGES_MIN_DEVICE. The others are in lower
         * tiers and read through a window (kvl_window_open()). 0: all are on the device.
         * Unpublished pages (most generated ones) stay on the device besides these. */
        uint32_t device_pages;
        /* How long to wait for pages that other workers compute, or that come from other hosts; 0:
         * no wait. Only with device_pages 0. */
        uint32_t wait_msec;
        /* The last n_deep layers keep at most n_deep_pages pages of a prompt (deep.h). 0: all
         * layers keep all. Not with device_pages. */
        uint32_t n_deep, n_deep_pages;
};

#define PAGES_MIN_DEVICE 8

/* Counts of the current prompt. */
struct pages_counts {
        uint32_t reused;     /* found and used */
        uint32_t published;  /* published from here */
        uint32_t duplicates; /* another worker was first: its pages are used, ours freed */
        uint32_t given_up;   /* by deep layers */
};

struct pages;

/* Returns the bytes of K, or of V, of one layer in a page, with the planes' padding, as on the
 * device. */
uint64_t pages_tensor_bytes(const struct model_shape *shape, uint32_t page_tokens);

/* Connects and opens the namespace. Returns 0: *ret_pages is owned. Blocks. */
int pages_open(const struct pages_options *options, struct pages **ret_pages);

/* Ends the prompt if one is under way. NULL is ignored. */
void pages_close(struct pages *pages);

/* Returns why the last call failed. Valid until the next one. */
const char *pages_error(void);

/* Begins a prompt: finds the longest run of cached pages, pinned, and enters them in the table. At
 * least the last token is left to compute, as its logits are needed. Copies nothing: borrows tokens
 * until pages_end(); more may be appended after n_tokens meanwhile. */
int pages_begin(struct pages *pages, const uint32_t *tokens, uint32_t n_tokens,
        uint32_t *ret_reused_tokens);

/* Leases one more page and enters it at the end of the table. Returns also KVL_QUOTA,
 * KVL_RESERVATION, KVL_FULL, KVL_DRAINING, KVL_STALE. */
int pages_extend(struct pages *pages);

/* Publishes page page_no, which is full and written, after its predecessors. If the sequence can't
 * be continued in the cache (KVL_NO_PARENT, KVL_STALE), that is no failure: the page and all after
 * it stay private to this prompt. */
int pages_publish(struct pages *pages, uint32_t page_no);

/* Reports the time in which n_tokens (>= 1) of the prompt were computed: the daemon loads pages of
 * other hosts only if that is quicker. */
int pages_note_prefill(struct pages *pages, uint32_t n_tokens, double msec);

/* Releases and frees the prompt's pages; gives recalled memory back. */
int pages_end(struct pages *pages);

uint32_t pages_in_table(const struct pages *pages);
const struct pages_counts *pages_counts(const struct pages *pages);

/* Returns the UUID of the pages' GPU, or "host". Borrowed, valid until pages_close(). */
const char *pages_device(const struct pages *pages);

/* Returns the table's pages for the model; every call here changes them. Borrowed, valid until
 * pages_close(). */
struct model_kv *pages_kv(const struct pages *pages);
