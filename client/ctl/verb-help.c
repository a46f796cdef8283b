/* Prints --help for people and, with --json, for programs: manual pages are made from that. */
#include <string.h>

#include <jansson.h>

#include "client/ctl/examples.h"
#include "client/ctl/option.h"
#include "client/ctl/verb.h"
#include "client/ctl/width.h"

/* Prints "  LEFT    TEXT", with the text wrapped at the terminal's width and aligned. */
static void help_row(const char *left, int left_width, const char *text, FILE *to)
{
        char padded[96];

        snprintf(padded, sizeof(padded), "  %-*s  ", left_width, left);
        print_wrapped(to, padded, text, prose_width());
}

/* Prints text: unindented lines are a paragraph up to an empty or an indented line. */
static void help_text(const char *text, FILE *to)
{
        _cleanup_free_ char *copy = need(strdup(text));
        char *paragraph = NULL, *rest = copy;

        for (char *line; (line = strsep(&rest, "\n"));) {
                bool is_prose = line[0] && line[0] != ' ';

                if (is_prose && paragraph) {
                        line[-1] = ' '; /* where strsep() ended the previous line */
                        continue;
                }
                if (paragraph)
                        print_wrapped(to, "", paragraph, prose_width());
                paragraph = is_prose ? line : NULL;
                if (!is_prose && rest)
                        fprintf(to, "%s\n", line);
        }
}

static void help_option(const struct option_row *o, const char *help, FILE *to)
{
        char left[40];

        snprintf(left, sizeof(left), "--%s%s%s", o->name, o->value ? " " : "",
                o->value ? o->value : "");
        help_row(left, 20, help, to);
}

/* Prints examples: commands are on lines of their own, to be copied. */
static void help_examples(const struct verb *v, FILE *to)
{
        fputs("\nExamples:\n", to);
        for (size_t i = 0; i < n_examples; i++)
                if (strcmp(examples[i].verb, v->name) == 0) {
                        fprintf(to, "  %s\n", examples[i].command);
                        print_wrapped(to, "      ", examples[i].what, prose_width());
                }
}

void verb_help(const struct verb *v, FILE *to)
{
        char *summary = NULL;

        fprintf(to, "Usage: kvleasectl [OPTION...] %s%s%s\n\n", v->name, v->args[0] ? " " : "",
                v->args);
        if (asprintf(&summary, "%s: %s.", v->name, v->summary) < 0)
                need(NULL);
        print_wrapped(to, "", summary, prose_width());
        free(summary);
        if (v->text) {
                fputc('\n', to);
                help_text(v->text, to);
        }
        if (v->options)
                fputs("\nOptions:\n", to);
        for (size_t i = 0; i < CTL_N_OPTIONS; i++)
                if (v->options & CTL_OPTION_BIT(i))
                        help_option(&option_rows[i], option_help_for(v, i), to);
        help_examples(v, to);
        fputs("\nkvleasectl --help lists the options of all verbs, variables of the\n"
              "environment and the exit codes.\n",
                to);
}

static void help_environment(FILE *to)
{
        fputs("\nEnvironment:\n", to);
        for (size_t i = 0; i < n_variables; i++)
                help_row(variables[i].name, 20, variables[i].what, to);
}

void verb_help_all(FILE *to)
{
        fputs("Usage: kvleasectl [OPTION...] VERB [ARGUMENT...]\n\n"
              "Administers kvleased, the daemon that owns and leases KV cache memory.\n\n"
              "Verbs:\n",
                to);
        for (size_t i = 0; i < n_verbs; i++) {
                char left[64];

                snprintf(left, sizeof(left), "%s %s", verbs[i].name, verbs[i].args);
                help_row(left, 32, verbs[i].summary, to);
        }
        fputs("\nOptions of every verb:\n", to);
        for (size_t i = 0; i < CTL_N_OPTIONS; i++)
                if (option_rows[i].global)
                        help_option(&option_rows[i], option_rows[i].help, to);
        fputs("\nThe socket is --socket, else DIR/admin.sock of --runtime-dir, else\n"
              "$KVLEASE_ADMIN_SOCKET, else /run/kvlease/admin.sock. Only its owner and members\n"
              "of group kvlease-admin may use it. The owner of monitor.sock beside it, and\n"
              "members of group kvlease-monitor, may read.\n",
                to);
        fputs("\nA long option may be shortened if no other option starts in the same way.\n", to);
        help_environment(to);
        fputs("\nExit codes:\n", to);
#define X(name, code, meaning) fprintf(to, "  %d  %s\n", code, meaning);
        CTL_EXIT_TABLE(X)
#undef X
        fputs("\nOptions of one verb, and examples: kvleasectl VERB --help.\n", to);
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static json_t *verb_options_json(const struct verb *v)
{
        json_t *list = need(json_array());

        for (size_t i = 0; i < CTL_N_OPTIONS; i++)
                if (v->options & CTL_OPTION_BIT(i))
                        json_array_append_new(list, need(json_string(option_rows[i].name)));
        return list;
}

/* Makes names and texts of --json's fields; null if the verb describes none. */
static json_t *verb_fields_json(const struct verb *v)
{
        json_t *list = v->fields ? need(json_array()) : need(json_null());

        for (size_t i = 0; v->fields && i < v->fields->n_columns; i++) {
                const struct column *c = &v->fields->columns[i];

                if (c->key)
                        json_array_append_new(list,
                                need(json_pack("{s:s, s:s?}", "name", c->key, "what", c->what)));
        }
        return list;
}

/* Makes the meanings of the verb's options, by name. */
static json_t *verb_option_helps_json(const struct verb *v)
{
        json_t *helps = need(json_object());

        for (size_t i = 0; i < CTL_N_OPTIONS; i++)
                if (v->options & CTL_OPTION_BIT(i))
                        json_object_set_new(helps, option_rows[i].name,
                                need(json_string(option_help_for(v, i))));
        return helps;
}

static json_t *verb_examples_json(const struct verb *v)
{
        json_t *list = need(json_array());

        for (size_t i = 0; i < n_examples; i++)
                if (strcmp(examples[i].verb, v->name) == 0)
                        json_array_append_new(
                                list, need(json_pack("{s:s, s:s}", "command", examples[i].command,
                                              "what", examples[i].what)));
        return list;
}

/* Makes the names of the variables that affect the verb. */
static json_t *verb_variables_json(const struct verb *v)
{
        json_t *list = need(json_array());

        for (size_t i = 0; i < n_variables; i++)
                if (variable_counts(&variables[i], v))
                        json_array_append_new(list, need(json_string(variables[i].name)));
        return list;
}

static json_t *variables_json(void)
{
        json_t *list = need(json_array());

        for (size_t i = 0; i < n_variables; i++)
                json_array_append_new(list, need(json_pack("{s:s, s:s}", "name", variables[i].name,
                                                    "what", variables[i].what)));
        return list;
}

static json_t *verbs_json(void)
{
        json_t *list = need(json_array());

        for (size_t i = 0; i < n_verbs; i++) {
                const struct verb *v = &verbs[i];

                json_array_append_new(
                        list, need(json_pack("{s:s, s:s, s:s, s:s?, s:o, s:o, s:o, s:o, s:o, s:b}",
                                      "name", v->name, "args", v->args, "summary", v->summary,
                                      "text", v->text, "options", verb_options_json(v),
                                      "option_helps", verb_option_helps_json(v), "fields",
                                      verb_fields_json(v), "examples", verb_examples_json(v),
                                      "variables", verb_variables_json(v), "offline", v->offline)));
        }
        return list;
}

static json_t *options_json(void)
{
        json_t *list = need(json_array());

        for (size_t i = 0; i < CTL_N_OPTIONS; i++) {
                const struct option_row *o = &option_rows[i];

                json_array_append_new(
                        list, need(json_pack("{s:s, s:s?, s:b, s:s}", "name", o->name, "value",
                                      o->value, "global", o->global, "help", o->help)));
        }
        return list;
}

static json_t *exit_codes_json(void)
{
        json_t *list = need(json_array());

#define X(name, code, meaning) \
        json_array_append_new( \
                list, need(json_pack("{s:i, s:s}", "code", code, "meaning", meaning)));
        CTL_EXIT_TABLE(X)
#undef X
        return list;
}

int verb_help_json(FILE *to)
{
        json_t *all = need(json_pack("{s:o, s:o, s:o, s:o}", "verbs", verbs_json(), "options",
                options_json(), "variables", variables_json(), "exit_codes", exit_codes_json()));
        int r = json_dumpf(all, to, JSON_INDENT(2));

        json_decref(all);
        return r < 0 || fputc('\n', to) == EOF ? CTL_REFUSED : CTL_OK; /* main() prints why */
}
