/* Writes a configuration for kvleased from an analysis. */
#ifndef KVL_TRACE_RECOMMEND_H
#define KVL_TRACE_RECOMMEND_H

#include <stdio.h>

#include "client/trace/analysis.h"

/*
 * Writes a configuration file with the reason of each value. For each tenant there is a section: a
 * reservation for the p99 of its demand, the policy that hits most with it, and a limit at its
 * maximum. The page size is a comment, as the engine chooses it. token_bytes: of K/V a token, > 0.
 * `name`: the tenant of requests that name none, with a number if others name it.
 */
void recommend(const struct analysis *a, uint64_t token_bytes, const char *name, FILE *to);

#endif
