/* Checks the name by which a browser reached the exporter. A foreign page can make its own name
 * lead here (DNS rebinding), and would then read answers as its own. The Host header still has that
 * name. An address is always allowed: it leads nowhere else. */
#ifndef KVL_EXPORTER_HOST_H
#define KVL_EXPORTER_HOST_H

#include <stdbool.h>
#include <stddef.h>

#define HOST_NAMES_MAX 16

struct host_names {
        const char *names[HOST_NAMES_MAX]; /* borrowed; "*" is any */
        size_t n;
};

/* Checks the value of a Host header, which may be anything. Allowed are an address, localhost, this
 * machine's name (in full, or up to the first dot), and `names`; with any port. */
bool host_is_allowed(const struct host_names *names, const char *header);

#endif
