/*
 * Where attention finds the pages of a context that is larger than the memory they are read in:
 * some of them at a time, a *chunk*. What it computes is the same bits however its pages are cut
 * into chunks, and the same as with all of them in place.
 *
 * Pages are asked for in ascending order: K of all pages of the context, then V of all, layer by
 * layer. So its owner knows what comes next, and can read that while a chunk is in use.
 */
#pragma once

#include <stdint.h>

/* Embedded in the struct of who implements it. */
struct page_source {
        /*
         * K (is_v 0) or V (1) of `layer`, of at least one page from first_page on, at most n_pages.
         * *ret_tensors has a row for each, as the page table of struct model_kv has them; entries
         * of other layers, and of V where K is asked for, mean nothing. Borrowed, and the bytes
         * stay, until the next call, when nothing uses them any more. Pages that are being written
         * are given where they lie. 0, or a code that the attention returns.
         */
        int (*take)(struct page_source *source, uint32_t layer, uint32_t is_v, uint32_t first_page,
                uint32_t n_pages, unsigned char *const **ret_tensors, uint32_t *ret_n_pages);
};
