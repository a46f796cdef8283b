/* The page that people see at /: how kvleased is, and its tenants. HTML without scripts. */
#ifndef KVL_EXPORTER_PAGE_H
#define KVL_EXPORTER_PAGE_H

#include "client/exporter/source.h"
#include "client/exporter/text.h"

/* Appends the page of a daemon that answered. */
void page_daemon(struct text *t, const struct facts *f);

/* Of one that didn't; `why` is a sentence, of anybody. */
void page_away(struct text *t, const char *why);

#endif
