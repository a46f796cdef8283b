/* The command line of kvlease-exporter. */
#ifndef KVL_EXPORTER_OPTIONS_H
#define KVL_EXPORTER_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "client/exporter/host.h"

struct options {
        const char *listen, *socket; /* borrowed from argv, the environment or static */
        uint64_t timeout_nsec;
        size_t max_rows;
        struct host_names hosts;
};

/* Returns 0: go on with *ret. 1: exit with *ret_exit_code, after --help, --version, or a refused
 * command line (with a sentence on stderr). */
int options_parse(int argc, char **argv, struct options *ret, int *ret_exit_code);

#endif
