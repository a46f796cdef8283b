/* Which of its formats a client would rather have. */
#ifndef KVL_EXPORTER_ACCEPT_H
#define KVL_EXPORTER_ACCEPT_H

#include "client/exporter/text.h"

/*
 * By the client's Accept header (RFC 9110, section 12.5.1), which may be anything; NULL: none.
 * OpenMetrics only where it is named, in version 1.0.0 or none, with at least the weight that
 * text/plain has by its most specific range: what Prometheus sends.
 */
enum text_format accept_choose(const char *header);

#endif
