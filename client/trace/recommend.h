/* A configuration for kvleased from an analysis. */
#ifndef KVL_TRACE_RECOMMEND_H
#define KVL_TRACE_RECOMMEND_H

#include <stdio.h>

#include "client/trace/analysis.h"

/*
 * Writes a configuration file: for each tenant a section with a reservation that covers the p99 of
 * its demand, the policy that hits most with that, and a limit at what it ever asked for; and the
 * page size as a comment, for it is the engine's choice. Each with its reason. token_bytes: of K/V
 * a token, > 0. `name`: of the tenant of requests that name none, with a number where others
 * name that one.
 */
void recommend(const struct analysis *a, uint64_t token_bytes, const char *name, FILE *to);

#endif
