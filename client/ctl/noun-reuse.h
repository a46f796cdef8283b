/* Nouns of reuse: sessions, namespace sets, explanations. */
#ifndef KVL_CTL_NOUN_REUSE_H
#define KVL_CTL_NOUN_REUSE_H

#include "client/ctl/noun.h"
#include "proto/kvlease.pb-c.h"

extern const struct noun noun_sessions, noun_sets, noun_codecs, noun_exchanges, noun_nodes;

/* Row of explanations_table: EXPLAIN's result for a key. All borrowed. */
struct explained {
        const char *key; /* in hexadecimal digits */
        const Kvlease__V1__Explanation *why;
        const char *outlook_detail; /* of the reply */
};

extern const struct column_table explanations_table;

#endif
