/*
 * What the status page draws: one object of JSON on one line, of a look at the daemon and of the
 * history. web/status.js is the only reader; the names of its fields are no interface.
 */
#ifndef KVL_EXPORTER_STATUS_H
#define KVL_EXPORTER_STATUS_H

#include "client/exporter/history.h"
#include "client/exporter/source.h"
#include "client/exporter/text.h"

/* Of a daemon that answered. */
void status_tell(struct text *t, const struct facts *f, const struct history *h, uint64_t now_nsec);

/* Of one that didn't, and why. */
void status_tell_away(struct text *t, const char *why);

#endif
