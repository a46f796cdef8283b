/*
 * A page source (client/examples/decoder/page-source.h) over pages in memory: hands them out in
 * chunks of random lengths, copied to one of two buffers in turn, and spoils the other one. The
 * last page it is asked for is being written, and given where it lies.
 */
#ifndef KVL_TESTS_CHUNK_SOURCE_H
#define KVL_TESTS_CHUNK_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "client/examples/decoder/page-source.h"

struct chunk_source {
        struct page_source source;
        unsigned char *const *tensors; /* all pages: [page][n_tensors]; borrowed */
        uint32_t n_tensors;            /* of a page */
        size_t tensor_bytes;
        uint32_t window_pages; /* most pages in a chunk */
        /* window_pages * tensor_bytes each. Borrowed. */
        unsigned char *buffers[2];
        /* Where the CPU finds an address of a tensor. NULL: there. */
        unsigned char *(*host_of)(unsigned char *address, size_t bytes);

        unsigned turn;
        uint32_t n_chunks;
        int fail_at; /* the fail_at-th chunk fails with -ECANCELED; 0: none */
        unsigned char **rows;
};

/* Fills in the rest; allocates rows. */
void chunk_source_init(struct chunk_source *s);
void chunk_source_deinit(struct chunk_source *s);

#endif
