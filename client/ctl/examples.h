/* Additions to the verbs in --help and manual pages: examples, and environment variables. */
#ifndef KVL_CTL_EXAMPLES_H
#define KVL_CTL_EXAMPLES_H

#include <stdbool.h>
#include <stddef.h>

#include "client/ctl/verb.h"

struct example {
        const char *verb;    /* name of its verb */
        const char *command; /* as typed */
        const char *what;    /* its purpose: a phrase */
};

/* In the order of verbs; at least one for each verb. */
extern const struct example examples[];
extern const size_t n_examples;

struct variable {
        const char *name;
        const char *what; /* a phrase */
};

/* Variables of the environment. */
extern const struct variable variables[];
extern const size_t n_variables;

/* Whether the variable affects the verb. */
bool variable_counts(const struct variable *variable, const struct verb *verb);

/* Returns the option's meaning for this verb: verbs may share options with different meanings. */
const char *option_help_for(const struct verb *verb, enum ctl_option option);

#endif
