/*
 * The worker's page table: where the K and V of one prompt at a time live. This file is what an
 * engine has to do to use kvlease; the rest of the decoder knows only page indices and addresses.
 *
 *   open -> { begin -> (extend -> write -> publish)... -> end }... -> close
 *
 * Pages come from the daemon (leased, or found under their key and pinned), or, as the oracle that
 * results are compared with, from private memory where nothing is ever found. They lie in memory of
 * the CPU, or of a GPU, where they stay: what needs them runs there.
 *
 * Returns as <kvlease.h>: 0, negative errno, or a positive KVL_* condition; pages_error() has the
 * sentence. After a failure inside a prompt only pages_end() and pages_close() make sense. One
 * thread.
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
        uint32_t max_pages; /* of one prompt and what is generated after it */
        /*
         * That one prompt may have on the device, PAGES_MIN_DEVICE or more: the others lie below
         * it, and are read through a window (kvl_window_open()). 0: all of them are there. Pages
         * that aren't published (most of what is generated) stay on the device beside these.
         */
        uint32_t device_pages;
        /* How long pages are waited for that somebody computes, or that come from other hosts; 0:
         * not. Where device_pages is 0. */
        uint32_t wait_msec;
        /* The last n_deep layers keep n_deep_pages pages of a prompt at most (deep.h). 0: all
         * layers keep all. Not with device_pages. */
        uint32_t n_deep, n_deep_pages;
};

#define PAGES_MIN_DEVICE 8

/* Of the current prompt. */
struct pages_counts {
        uint32_t reused;     /* found and used */
        uint32_t published;  /* carry our bytes now */
        uint32_t duplicates; /* somebody else was first: theirs are used, ours went back */
        uint32_t given_up;   /* by deep layers */
};

struct pages;

/* Bytes of K, or of V, of one layer in a page, with what planes are padded to: as they are, which
 * is how they lie on the device. */
uint64_t pages_tensor_bytes(const struct model_shape *shape, uint32_t page_tokens);

/* Connects and opens the namespace. 0: *ret_pages is returned owned. Blocks. */
int pages_open(const struct pages_options *options, struct pages **ret_pages);

/* Ends the prompt if one is under way. NULL is ignored. */
void pages_close(struct pages *pages);

/* Why the last call failed. Valid until the next one. */
const char *pages_error(void);

/*
 * Begins a prompt: finds the longest run of cached pages, pinned, and enters them in the table.
 * Never all of the prompt: its last token is always left to compute, as its logits are wanted.
 * Copies nothing: borrows tokens until pages_end(), where more may be appended behind n_tokens.
 */
int pages_begin(struct pages *pages, const uint32_t *tokens, uint32_t n_tokens,
        uint32_t *ret_reused_tokens);

/* Leases one more page and enters it at the end of the table. KVL_QUOTA, KVL_RESERVATION, KVL_FULL,
 * KVL_DRAINING, KVL_STALE. */
int pages_extend(struct pages *pages);

/*
 * Publishes page page_no, which is full and written: its predecessors were offered before it. Where
 * the text can't be continued in the cache any more (KVL_NO_PARENT, KVL_STALE), that is no failure:
 * the page and all after it stay private to this prompt.
 */
int pages_publish(struct pages *pages, uint32_t page_no);

/* Tells the daemon that so many tokens, at least one, of the prompt took so long to compute: what
 * other hosts have it loads where that is sooner. */
int pages_note_prefill(struct pages *pages, uint32_t n_tokens, double msec);

/* Releases and frees what the prompt held; memory that the daemon wants back is given back. */
int pages_end(struct pages *pages);

uint32_t pages_in_table(const struct pages *pages);
const struct pages_counts *pages_counts(const struct pages *pages);

/* UUID of the GPU where pages lie, or "host". Borrowed, valid until pages_close(). */
const char *pages_device(const struct pages *pages);

/* The pages of the table as the model uses them; they change with every call here. Borrowed, valid
 * until pages_close(). */
struct model_kv *pages_kv(const struct pages *pages);
