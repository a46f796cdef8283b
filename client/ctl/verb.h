/* The verbs: one table for parsing the command line and writing --help. */
#ifndef KVL_CTL_VERB_H
#define KVL_CTL_VERB_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "client/ctl/ctl.h"

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
        int (*check)(const struct ctl *ctl);
        int (*run)(const struct ctl *ctl);
        const struct column_table *fields; /* of --json, each with a text; NULL: not described */
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

struct noun;

/* Fetches a list, of one tenant if --tenant is given, and prints it. */
int print_noun(const struct ctl *ctl, const struct noun *noun);

/* Parses a session's id as it is shown: text, or 0x and hexadecimal digits. id: KVL_SESSION_ID_MAX
 * bytes. Returns false if it isn't one. */
bool parse_session(const char *s, uint8_t *id, size_t *ret_len);

#define WARM_MAX_KEYS 256 /* in one request; protocol */

/* Check a namespace's name, the keys after two arguments, and --session. Each returns CTL_OK or
 * CTL_USAGE, printed. */
int check_ns_name(const char *name);
int check_keys(const struct ctl *ctl);
int check_session(const struct ctl *ctl);

int verb_status(const struct ctl *ctl);
int verb_devices(const struct ctl *ctl);
int verb_tenants_list(const struct ctl *ctl);
int verb_tenants_show(const struct ctl *ctl);
int verb_tenants_add(const struct ctl *ctl);
int verb_tenants_set(const struct ctl *ctl);
int verb_tenants_remove(const struct ctl *ctl);
int verb_namespaces(const struct ctl *ctl);
int verb_clients(const struct ctl *ctl);
int verb_regions(const struct ctl *ctl);
int verb_top(const struct ctl *ctl);
int verb_evictions(const struct ctl *ctl);
int verb_events(const struct ctl *ctl);
int verb_purge(const struct ctl *ctl);
int verb_warm(const struct ctl *ctl);
int verb_recall(const struct ctl *ctl);
int verb_drain(const struct ctl *ctl);
int verb_check(const struct ctl *ctl);
int verb_config_show(const struct ctl *ctl);
int verb_reload(const struct ctl *ctl);
int verb_restart(const struct ctl *ctl);
int verb_doctor(const struct ctl *ctl);
int verb_version(const struct ctl *ctl);

int verb_sets(const struct ctl *ctl);
int verb_codecs(const struct ctl *ctl);
int verb_exchanges(const struct ctl *ctl);
int verb_remote(const struct ctl *ctl);
int verb_sessions_list(const struct ctl *ctl);
int verb_sessions_purge(const struct ctl *ctl);
int verb_explain(const struct ctl *ctl);
int verb_trace_record(const struct ctl *ctl);

int check_sessions_purge(const struct ctl *ctl);
int check_explain(const struct ctl *ctl);
int check_trace_record(const struct ctl *ctl);
int verb_trace_replay(const struct ctl *ctl);
int verb_trace_analyze(const struct ctl *ctl);
int verb_trace_recommend(const struct ctl *ctl);
int verb_trace_hosts(const struct ctl *ctl);

int check_trace_token_bytes(const struct ctl *ctl);
int check_trace_hosts(const struct ctl *ctl);
int check_events(const struct ctl *ctl);
int check_tenant(const struct ctl *ctl);
int check_top(const struct ctl *ctl);
int check_tenant_set(const struct ctl *ctl);
int check_purge(const struct ctl *ctl);
int check_warm(const struct ctl *ctl);
int check_recall(const struct ctl *ctl);
int check_drain(const struct ctl *ctl);
int check_restart(const struct ctl *ctl);

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
