/* The token that routers send with a query, from a file. */
#ifndef KVL_EVENTS_TOKEN_H
#define KVL_EVENTS_TOKEN_H

#include <stdbool.h>

#include "base/secret-file.h"

/* So many random letters can't be guessed. */
#define TOKEN_BYTES_MIN 16

/* Reads a token of TOKEN_BYTES_MIN to SECRET_BYTES_MAX printable letters. Returns as
 * secret_read(). */
int token_read(const char *path, struct secret *ret, char why[SECRET_WHY_BYTES]);

/* Whether the value of an Authorization header (NULL: none) is "Bearer " and the token. Takes as
 * long for any value of the same length. */
bool token_allows(const char *token, const char *header);

#endif
