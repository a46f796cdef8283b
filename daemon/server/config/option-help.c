/* `kvleased --help-config`: the option table as text and as JSON, the source of conf(5). */
#include <string.h>

#include "daemon/server/config/options.h"

static const char *type_name(enum option_type t)
{
        static const char *const names[] = {
                [OPTION_BYTES] = "size",
                [OPTION_DURATION] = "time",
                [OPTION_UINT] = "number",
                [OPTION_BOOL] = "switch",
                [OPTION_ENUM] = "choice",
                [OPTION_TEXT] = "text",
                [OPTION_PATH] = "path",
                [OPTION_UIDS] = "users",
                [OPTION_GIDS] = "groups",
        };

        return names[t];
}

static const char *unit_name(enum option_type t)
{
        if (t == OPTION_BYTES)
                return "bytes";
        return t == OPTION_DURATION ? "seconds" : "";
}

static const char *section_head(enum option_section s)
{
        static const char *const heads[N_SECTIONS] = {
                "[daemon]", "[device NAME]", "[remote NAME]", "[tenant NAME]"};

        return heads[s];
}

/* Wraps `text` at 76 columns, indented by eight. */
static void print_wrapped(FILE *f, const char *text)
{
        size_t column = 0;

        while (*text) {
                size_t word = strcspn(text, " ");

                if (column > 0 && column + 1 + word > 76) {
                        fputc('\n', f);
                        column = 0;
                }
                column += (size_t)fprintf(f, column ? " %.*s" : "        %.*s", (int)word, text);
                text += word;
                text += *text == ' ';
        }
        fputc('\n', f);
}

void options_print(FILE *f)
{
        char allowed[OPTION_VALUE_MAX];

        for (size_t i = 0; i < n_options; i++) {
                const struct option *o = &options[i];

                if (i == 0 || o->section != options[i - 1].section)
                        fprintf(f, "%s%s\n", i ? "\n" : "", section_head(o->section));
                fprintf(f, "    %s = %s\n", o->key, o->default_text);
                print_wrapped(f, o->help);
                fprintf(f, "        %s: %s%s\n", type_name(o->type), option_allowed(o, allowed),
                        o->reloadable ? "" : "; needs a restart");
        }
}

static void print_string(FILE *f, const char *key, const char *text, const char *end)
{
        fprintf(f, "\"%s\": \"", key);
        for (; *text; text++)
                fprintf(f, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
        fprintf(f, "\"%s", end);
}

void options_print_json(FILE *f)
{
        char allowed[OPTION_VALUE_MAX];

        fputs("[\n", f);
        for (size_t i = 0; i < n_options; i++) {
                const struct option *o = &options[i];

                fputs("  {", f);
                print_string(f, "section", option_section_name(o->section), ", ");
                print_string(f, "key", o->key, ", ");
                print_string(f, "type", type_name(o->type), ", ");
                print_string(f, "unit", unit_name(o->type), ", ");
                print_string(f, "default", o->default_text, ", ");
                print_string(f, "allowed", option_allowed(o, allowed), ", ");
                fprintf(f, "\"reloadable\": %s, ", o->reloadable ? "true" : "false");
                print_string(f, "help", o->help, i + 1 < n_options ? "},\n" : "}\n");
        }
        fputs("]\n", f);
}
