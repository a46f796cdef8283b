/* The command line of kvleased. */
#ifndef KVL_SERVER_CMDLINE_H
#define KVL_SERVER_CMDLINE_H

#include <stdbool.h>

#include "daemon/keep/parent.h"
#include "daemon/server/config/config.h"

#define CMDLINE_MAX_OPTIONS 256 /* --option and its short forms; not tuned */

struct cmdline {
        struct config_source source;
        char *overrides[CMDLINE_MAX_OPTIONS]; /* owned */
        bool check_only;
        bool keep; /* parent_run() comes first */
        struct parent_options parent;
};

/*
 * Returns 0: continue with *ret. 1: exit with *ret_exit_code (--help, --version, --help-config, or
 * a refused command line).
 */
int cmdline_parse(int argc, char **argv, struct cmdline *ret, int *ret_exit_code);
void cmdline_deinit(struct cmdline *c);

#endif
