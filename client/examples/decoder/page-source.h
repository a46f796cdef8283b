/*
 * Attention's source of pages for a context larger than the memory in which it is read: some pages
 * at a time, a *chunk*. Results have the same bits for any chunks, and with all pages in place.
 *
 * Pages are requested in ascending order: K of all pages of the context, then V of all, layer by
 * layer. So the source knows the next ones, and can read them while a chunk is in use.
 */
#pragma once

#include <stdint.h>

/* Embedded in the implementation's struct. */
struct page_source {
        /*
         * Returns K (is_v 0) or V (1) of `layer`, of at least one page from first_page on, at most
         * n_pages. *ret_tensors has a row for each, like the page table of struct model_kv; entries
         * of other layers, and of V if K is requested, are undefined. Rows and bytes are borrowed
         * until the next call, when nothing uses them any more. Pages that are being written are
         * returned in place. Returns 0, or a code that the attention returns.
         */
        int (*take)(struct page_source *source, uint32_t layer, uint32_t is_v, uint32_t first_page,
                uint32_t n_pages, unsigned char *const **ret_tensors, uint32_t *ret_n_pages);
};
