/* What --help and the manual pages show beside the verbs: examples, and variables that count. */
#ifndef KVL_CTL_EXAMPLES_H
#define KVL_CTL_EXAMPLES_H

#include <stdbool.h>
#include <stddef.h>

#include "client/ctl/verb.h"

struct example {
        const char *verb;    /* name of its verb */
        const char *command; /* as it is typed */
        const char *what;    /* what it shows or does: a phrase */
};

/* In the order of verbs; each verb has one at least. */
extern const struct example examples[];
extern const size_t n_examples;

struct variable {
        const char *name;
        const char *what; /* a phrase */
};

/* Variables of the environment. */
extern const struct variable variables[];
extern const size_t n_variables;

/* Whether the variable counts for the verb. */
bool variable_counts(const struct variable *variable, const struct verb *verb);

/* What the option means with this verb: options that several verbs share may mean different things.
 */
const char *option_help_for(const struct verb *verb, enum ctl_option option);

#endif
