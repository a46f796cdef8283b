/* What --help prints, for people and, with --json, for programs: manual pages are made of that. */
#include <jansson.h>

#include "client/ctl/option.h"
#include "client/ctl/verb.h"

static void help_option(const struct option_row *o, FILE *to)
{
        char left[40];

        snprintf(left, sizeof(left), "--%s%s%s", o->name, o->value ? " " : "",
                o->value ? o->value : "");
        fprintf(to, "  %-20s  %s\n", left, o->help);
}

void verb_help(const struct verb *v, FILE *to)
{
        fprintf(to, "Usage: kvleasectl [OPTION...] %s%s%s\n\n%s: %s.\n", v->name,
                v->args[0] ? " " : "", v->args, v->name, v->summary);
        if (v->text)
                fprintf(to, "\n%s", v->text);
        if (v->options)
                fputs("\nOptions:\n", to);
        for (size_t i = 0; i < CTL_N_OPTIONS; i++)
                if (v->options & CTL_OPTION_BIT(i))
                        help_option(&option_rows[i], to);
        fputs("\nkvleasectl --help lists the options of all verbs and the exit codes.\n", to);
}

void verb_help_all(FILE *to)
{
        fputs("Usage: kvleasectl [OPTION...] VERB [ARGUMENT...]\n\n"
              "Looks after kvleased, the daemon that owns and leases pages of KV cache.\n\n"
              "Verbs:\n",
                to);
        for (size_t i = 0; i < n_verbs; i++) {
                char left[64];

                snprintf(left, sizeof(left), "%s %s", verbs[i].name, verbs[i].args);
                fprintf(to, "  %-32s  %s\n", left, verbs[i].summary);
        }
        fputs("\nOptions of every verb:\n", to);
        for (size_t i = 0; i < CTL_N_OPTIONS; i++)
                if (option_rows[i].global)
                        help_option(&option_rows[i], to);
        fputs("\nThe admin socket is --socket, else DIR/admin.sock of --runtime-dir, else\n"
              "$KVLEASE_ADMIN_SOCKET, else /run/kvlease/admin.sock. Only its owner and members of\n"
              "group kvlease-admin may use it.\n\nExit codes:\n",
                to);
#define X(name, code, meaning) fprintf(to, "  %d  %s\n", code, meaning);
        CTL_EXIT_TABLE(X)
#undef X
        fputs("\nOptions of one verb: kvleasectl VERB --help.\n", to);
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

/* Names and texts of what --json has; null where the verb tells of none. */
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

static json_t *verbs_json(void)
{
        json_t *list = need(json_array());

        for (size_t i = 0; i < n_verbs; i++) {
                const struct verb *v = &verbs[i];

                json_array_append_new(
                        list, need(json_pack("{s:s, s:s, s:s, s:s?, s:o, s:o, s:b}", "name",
                                      v->name, "args", v->args, "summary", v->summary, "text",
                                      v->text, "options", verb_options_json(v), "fields",
                                      verb_fields_json(v), "offline", v->offline)));
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
        json_t *all = need(json_pack("{s:o, s:o, s:o}", "verbs", verbs_json(), "options",
                options_json(), "exit_codes", exit_codes_json()));
        int r = json_dumpf(all, to, JSON_INDENT(2));

        json_decref(all);
        return r < 0 || fputc('\n', to) == EOF ? CTL_REFUSED : CTL_OK; /* main() says why */
}
