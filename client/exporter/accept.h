/* Chooses the format that a client prefers. */
#ifndef KVL_EXPORTER_ACCEPT_H
#define KVL_EXPORTER_ACCEPT_H

#include "client/exporter/text.h"

/* Chooses by the client's Accept header (RFC 9110, section 12.5.1), which may be anything; NULL:
 * none. OpenMetrics is chosen only if it is named, in version 1.0.0 or without version. It must
 * weigh at least as much as text/plain (by its most specific range). Prometheus sends that. */
enum text_format accept_choose(const char *header);

#endif
