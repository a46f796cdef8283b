/* The token that routers send with a query, from a file. */
#ifndef KVL_EVENTS_TOKEN_H
#define KVL_EVENTS_TOKEN_H

#include <stdbool.h>

/* So many random letters can't be guessed. */
#define TOKEN_BYTES_MIN 16
#define TOKEN_BYTES_MAX 1024

/* Reads a token of TOKEN_BYTES_MIN to TOKEN_BYTES_MAX printable letters, less a newline at the end,
 * from a regular file. Root or this process's user owns the file; others can't read it, and the
 * group can't write it. Returns 0; -1: *ret_why is a static sentence. */
int token_read(const char *path, char ret_token[TOKEN_BYTES_MAX + 1], const char **ret_why);

/* Whether the value of an Authorization header (NULL: none) is "Bearer " and the token. Takes as
 * long for any value of the same length. */
bool token_allows(const char *token, const char *header);

#endif
