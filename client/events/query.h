/*
 * A router's query: which tokens of a text are cached. The query is JSON, and its last member is
 * one of these:
 *
 *   "token_ids": [1, 2, ...]   ids of the text's tokens, 0 to 4294967295
 *   "keys": ["64 hex digits", ...]   keys of the text's pages
 *
 * Before token_ids, "lora_name" and "cache_salt" may name the text's LoRA adapter and salt: strings
 * of up to 78 bytes without a backslash.
 *
 * The text is read in pieces and looked up at once, so a query's memory doesn't grow with it. Pure.
 * Not thread-safe.
 */
#ifndef KVL_EVENTS_QUERY_H
#define KVL_EVENTS_QUERY_H

#include "client/events/model.h"

#define QUERY_TEXT_MAX 256

struct query;

/* Borrows the model. Returns an owned query; NULL: out of memory. */
struct query *query_new(const struct model *m);
void query_free(struct query *q);

/* Reads the next bytes. After an error they are ignored. */
void query_read(struct query *q, const char *bytes, size_t len);

/* Ends the text. Writes a line of JSON: the answer, or an error. Returns 0; -EINVAL: an error. */
int query_answer(struct query *q, char ret_text[QUERY_TEXT_MAX]);

#endif
