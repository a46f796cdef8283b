/* Refuses requests that a proxy before the server may understand otherwise. Any thread. */
#ifndef KVL_HTTP_HEADERS_H
#define KVL_HTTP_HEADERS_H

#include <microhttpd.h>

/* Checks a request's headers. Returns 0, with the Host in *ret_host (borrowed until the request's
 * end; NULL: none). Otherwise returns the HTTP status of the refusal, and in *ret_why a static
 * sentence with a newline. */
unsigned headers_check(struct MHD_Connection *c, const char **ret_host, const char **ret_why);

#endif
