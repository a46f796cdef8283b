/* The command line: options anywhere, the verb's words, its arguments. Borrows argv. */
#ifndef KVL_CTL_OPTION_H
#define KVL_CTL_OPTION_H

#include "client/ctl/ctl.h"

struct option_row {
        const char *name, *value; /* value: NULL for a switch */
        bool global;
        const char *help;
};

/* The options, indexed by enum ctl_option. */
extern const struct option_row option_rows[CTL_N_OPTIONS];

/*
 * Parses by getopt_long(), as kvleased and kvlease-exporter do: a long option may be shortened if
 * no other option of any verb starts so.
 *
 * Splits argv into ret->options and ret->args (moved to the front of argv + 1), and checks them
 * against their verb, ret->verb. It may be NULL with --help and --version, which need none. Returns
 * CTL_OK or CTL_USAGE, printed; without a verb, all of the help is.
 */
int options_parse(int argc, char **argv, struct ctl *ret);

#endif
