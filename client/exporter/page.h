/* The page for people at /: kvleased's state, and its tenants. HTML that loads /status.js. */
#ifndef KVL_EXPORTER_PAGE_H
#define KVL_EXPORTER_PAGE_H

#include "client/exporter/source.h"
#include "client/exporter/text.h"

/* Appends the page of a daemon that answered. */
void page_daemon(struct text *t, const struct facts *f);

/* Appends the page of a daemon that didn't answer; `why` is a sentence from any source. */
void page_away(struct text *t, const char *why);

#endif
