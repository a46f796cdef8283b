/* The command line of kvlease-events. */
#ifndef KVL_EVENTS_OPTIONS_H
#define KVL_EVENTS_OPTIONS_H

#include "client/events/feed.h"
#include "client/events/publisher.h"
#include "client/events/token.h"

struct options {
        struct feed_options feed;
        struct publisher_options publisher;
        const char *query;         /* as for listen_at(); NULL: no queries */
        struct secret query_token; /* empty: none */
};

/* Returns 0: go on with *ret, which points to argv, the environment and memory for the life of the
 * process. 1: exit with *ret_exit_code, after --help, --version, or a refused command line (with a
 * sentence on stderr). */
int options_parse(int argc, char **argv, struct options *ret, int *ret_exit_code);

#endif
