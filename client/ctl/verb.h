/* The verbs: one table for parsing the command line and writing --help. */
#ifndef KVL_CTL_VERB_H
#define KVL_CTL_VERB_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "client/ctl/ctl.h"

/* Runs a verb, or checks its arguments. Returns an exit code. */
typedef int verb_fn(const struct ctl *ctl);

struct verb {
        const char *name;    /* one word, or two with a space: "tenants add" */
        const char *args;    /* for people: "NAME KEY=VALUE..." */
        const char *summary; /* a phrase */
        const char *text;    /* paragraphs, ending in a newline, or NULL */
        unsigned min_args, max_args;
        uint64_t options; /* CTL_OPTION_BIT(), besides the global ones */
        bool offline;     /* runs without a connection */
        /* Checks the arguments before anything is sent. Returns CTL_OK or CTL_USAGE, printed. May
         * be NULL. */
        verb_fn *check;
        verb_fn *run;
        const struct column_table *fields; /* of --json, each with a text; NULL: not described */
        const struct noun *list;           /* what verb_list() shows */
};

extern const struct verb verbs[];
extern const size_t n_verbs;

/* Finds the verb at the start of `words`; "tenants" alone is "tenants list", "config" alone "config
 * show". Returns CTL_OK and how many words it took, or CTL_USAGE with a sentence printed that
 * suggests the nearest verb. */
int verb_find(char **words, unsigned n_words, const struct verb **ret_verb, unsigned *ret_n_taken);

void verb_help(const struct verb *v, FILE *to);
void verb_help_all(FILE *to);

/* Prints all verbs, options and exit codes as one JSON object: "verbs" (with "options" by name),
 * "options", "exit_codes". Returns CTL_OK, or CTL_REFUSED with a sentence printed. */
int verb_help_json(FILE *to);

/* Parses a session's id as it is shown: text, or 0x and hexadecimal digits. id: KVL_SESSION_ID_MAX
 * bytes. Returns false if it isn't one. */
bool parse_session(const char *s, uint8_t *id, size_t *ret_len);

#define WARM_MAX_KEYS 256 /* in one request; protocol */

/* Check a namespace's name, the keys after two arguments, and --session. Each returns CTL_OK or
 * CTL_USAGE, printed. */
int check_ns_name(const char *name);
int check_keys(const struct ctl *ctl);
int check_session(const struct ctl *ctl);

/* Fetches the verb's list, of one tenant if --tenant is given, and prints it. */
verb_fn verb_list;

extern verb_fn verb_status, verb_tenants_show, verb_tenants_add, verb_tenants_set,
        verb_tenants_remove, verb_top, verb_events, verb_purge, verb_warm, verb_recall, verb_drain,
        verb_check, verb_config_show, verb_reload, verb_restart, verb_doctor, verb_version,
        verb_remote, verb_sessions_purge, verb_explain, verb_trace_record, verb_trace_replay,
        verb_trace_analyze, verb_trace_recommend, verb_trace_hosts;

extern verb_fn check_sessions_purge, check_explain, check_trace_record, check_trace_token_bytes,
        check_trace_hosts, check_events, check_tenant, check_top, check_tenant_set, check_purge,
        check_warm, check_recall, check_drain, check_restart;

struct example {
        const char *verb;    /* name of its verb */
        const char *command; /* as typed */
        const char *what;    /* its purpose: a phrase */
};

/* In the order of verbs; at least one for each verb. */
extern const struct example examples[];
extern const size_t n_examples;

/* Returns the option's meaning for this verb: verbs may share options with different meanings. */
const char *option_help_for(const struct verb *verb, enum ctl_option option);

#endif
