/* The status page's data: one object of JSON on one line, of a scrape and of the history.
 * web/status.js is the only reader; the names of its fields are no interface. */
#ifndef KVL_EXPORTER_STATUS_H
#define KVL_EXPORTER_STATUS_H

#include "client/exporter/history.h"
#include "client/exporter/source.h"
#include "client/exporter/text.h"

/* Writes the data of a daemon that answered. */
void status_tell(struct text *t, const struct facts *f, const struct history *h, uint64_t now_nsec);

/* Writes that the daemon didn't answer, and why. */
void status_tell_away(struct text *t, const char *why);

#endif
