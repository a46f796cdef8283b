/*
 * Which names a browser may have reached the exporter by. A page of a stranger's can have its own
 * name lead here (DNS rebinding), and would then read what is answered as its own; the Host header
 * still has that name. An address as the host is always fine: it leads nowhere else.
 */
#ifndef KVL_EXPORTER_HOST_H
#define KVL_EXPORTER_HOST_H

#include <stdbool.h>
#include <stddef.h>

#define HOST_NAMES_MAX 16

struct host_names {
        const char *names[HOST_NAMES_MAX]; /* borrowed; "*" is any */
        size_t n;
};

/* The value of a Host header, which may be anything: an address, localhost, this machine's name,
 * in full as it is set or up to the first dot, or one of `names`; with any port. */
bool host_is_allowed(const struct host_names *names, const char *header);

#endif
