/* What the daemon counts of its requests: histograms by type, and violations by rule. */
#ifndef KVL_EXPORTER_CALLS_H
#define KVL_EXPORTER_CALLS_H

#include "client/exporter/text.h"
#include "proto/kvlease.pb-c.h"

/* Bounds rise, every histogram has a count for each and one beyond, and there are at most as many
 * as a daemon could have. */
bool calls_make_sense(const Kvlease__V1__AdminCountersReply *m);

/* Appends the families of an answer that makes sense. Cardinality is the daemon's: its types and
 * rules are in its source. */
void calls_tell(struct text *t, const Kvlease__V1__AdminCountersReply *m);

#endif
