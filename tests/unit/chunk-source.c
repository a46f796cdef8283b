#include "tests/unit/chunk-source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/unit/test-support.h"

#define RESIDUE 0xff /* as numbers none */

static unsigned char *find(const struct chunk_source *s, unsigned char *address, size_t bytes)
{
        return s->host_of ? s->host_of(address, bytes) : address;
}

static int take(struct page_source *source, uint32_t layer, uint32_t is_v, uint32_t first_page,
        uint32_t n_pages, unsigned char *const **ret_tensors, uint32_t *ret_n_pages)
{
        struct chunk_source *s = container_of(source, struct chunk_source, source);
        unsigned char *buffer = s->buffers[s->turn ^= 1], *other = s->buffers[s->turn ^ 1];
        size_t bytes = s->window_pages * s->tensor_bytes, column = 2 * (size_t)layer + is_v;
        uint32_t n = 1 + (uint32_t)rand() % s->window_pages;

        assert_true(n_pages > 0 && column < s->n_tensors);
        if (++s->n_chunks == (uint32_t)s->fail_at)
                return -ECANCELED;
        n = n < n_pages ? n : n_pages;
        memset(find(s, other, bytes), RESIDUE, bytes);
        memset(s->rows, 0, s->window_pages * s->n_tensors * sizeof(*s->rows));
        for (uint32_t i = 0; i < n; i++) {
                unsigned char *from = s->tensors[(first_page + i) * s->n_tensors + column];
                unsigned char *to = buffer + i * s->tensor_bytes;

                if (i + 1 == n_pages)
                        to = from;
                else
                        memcpy(find(s, to, s->tensor_bytes), find(s, from, s->tensor_bytes),
                                s->tensor_bytes);
                s->rows[i * s->n_tensors + column] = to;
        }
        *ret_tensors = s->rows;
        *ret_n_pages = n;
        return 0;
}

void chunk_source_init(struct chunk_source *s)
{
        s->source.take = take;
        s->turn = s->n_chunks = 0;
        s->rows = calloc((size_t)s->window_pages * s->n_tensors, sizeof(*s->rows));
        assert_non_null(s->rows);
}

void chunk_source_deinit(struct chunk_source *s)
{
        free(s->rows);
}
