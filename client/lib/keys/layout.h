/* Layouts of pages, and their hashes (docs/reference/PROTOCOL.md, "Keys"): defined in keys.c. */
#ifndef KVL_LIB_LAYOUT_H
#define KVL_LIB_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "client/lib/kvlease.h"

/* Copies the user's layout with defaults filled in (strings are never NULL). Returns 0; -EINVAL:
 * the sentence names field and range. */
int layout_copy(const struct kvl_layout *layout, struct kvl_layout *ret_layout);

/* Does kvl_layout_name() for a layout from layout_copy(). Returns 0; -EIO with the sentence. */
int layout_name(const struct kvl_layout *layout, char ret_name[KVL_NS_NAME_BYTES]);

/* Writes the token of the group that a secret names; a public contract: docs/reference/PROTOCOL.md.
 * Returns 0; -EIO with the sentence. */
int group_token_of(
        const void *secret, size_t secret_bytes, uint8_t ret_token[KVL_GROUP_TOKEN_BYTES]);

/* Check arguments of kvl_keys(). Return 0; -EINVAL with the sentence. */
int keys_check_page_tokens(uint32_t page_tokens);
int keys_check(
        const uint8_t *parent, const uint32_t *tokens, uint32_t n_tokens, const uint8_t *ret_keys);

#endif
