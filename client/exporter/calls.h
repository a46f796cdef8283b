/* The daemon's request counters: histograms by type, and violations by rule. */
#ifndef KVL_EXPORTER_CALLS_H
#define KVL_EXPORTER_CALLS_H

#include "client/exporter/text.h"
#include "proto/kvlease.pb-c.h"

/* Whether bounds ascend, each histogram has one count more than bounds, and there are at most as
 * many as a daemon could have. */
bool calls_make_sense(const Kvlease__V1__AdminCountersReply *m);

/* Appends the families of an answer that makes sense. The daemon bounds their number: its types and
 * rules are in its source. */
void calls_tell(struct text *t, const Kvlease__V1__AdminCountersReply *m);

#endif
