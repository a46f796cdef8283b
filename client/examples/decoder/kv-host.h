/* K, V and attention on the CPU: pages are in this process' memory. */
#pragma once

#include "client/examples/decoder/model.h"

/* Borrows tensors, [max_pages][2 * layers]. Returns 0: *ret_kv is owned (ops->free()); -ENOMEM. */
int kv_host_new(const struct model_shape *shape, uint32_t page_tokens, uint32_t max_pages,
        unsigned char *const *tensors, struct model_kv **ret_kv);
