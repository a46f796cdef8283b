/* Prints --help for people and, with --json, for programs: manual pages are made from that. */
#include <string.h>

#include "client/ctl/option.h"
#include "client/ctl/verb.h"
#include "client/ctl/width.h"

struct variable {
        const char *name;
        const char *what; /* a phrase */
};

/* ---- examples -------------------------------------------------------------------------------- */

#define KEY "00112233445566778899aabbccddeeff00112233445566778899aabbccddee01"

const struct example examples[] = {
        {"status", "kvleasectl status", "show the verdict and the most important figures"},
        {"status", "kvleasectl status --json | jq '.well, .findings'", "read them from a program"},
        {"devices", "kvleasectl devices", "see whether each GPU's driver answers"},
        {"tenants list", "kvleasectl tenants", "compare memory in use with limits"},
        {"tenants show", "kvleasectl tenants show search",
                "show settings, usage and waits of one tenant"},
        {"tenants add", "kvleasectl tenants add search limit=4GiB weight=200 group=search",
                "add a tenant for the members of a group"},
        {"tenants set", "kvleasectl tenants set search limit=8GiB", "raise a limit"},
        {"tenants set", "kvleasectl tenants set chat class=pinned reserve=16GiB",
                "reserve memory that no other tenant can take"},
        {"tenants remove", "kvleasectl tenants remove search --force",
                "remove a tenant with cached pages"},
        {"namespaces", "kvleasectl namespaces --tenant search",
                "list the models of a tenant, with their hit ratios"},
        {"clients", "kvleasectl clients --tenant search", "list the processes of a tenant"},
        {"regions", "kvleasectl regions", "find memory that is reserved, lent or missing"},
        {"top", "kvleasectl top --view namespaces --sort hit/s",
                "watch the namespaces with the most hits"},
        {"top", "kvleasectl top --batch --count 60 --interval 10 >> top.log",
                "log ten minutes as text"},
        {"evictions", "kvleasectl evictions --tenant search",
                "find the tenants that evict pages of one tenant"},
        {"events", "kvleasectl events --since 10min", "show the events of the last ten minutes"},
        {"events", "kvleasectl events --follow --tenant chat --kind evicted,refused",
                "watch why a tenant loses pages and leases"},
        {"sessions list", "kvleasectl sessions --tenant chat", "list the sessions of a tenant"},
        {"sessions purge", "kvleasectl sessions purge chat --idle 1d",
                "remove sessions that were not used for a day"},
        {"sets", "kvleasectl sets", "check that ranks and layer groups have the same keys"},
        {"exchanges", "kvleasectl exchanges --tenant chat",
                "show pages from other hosts, and whether their store answers"},
        {"remote", "kvleasectl remote cluster", "find nodes that don't answer, with the reason"},
        {"codecs", "kvleasectl codecs --tenant chat",
                "show how cold pages are encoded, and the error"},
        {"explain", "kvleasectl explain chat llama " KEY "", "explain why a key isn't cached"},
        {"trace replay", "kvleasectl trace replay day.jsonl.gz --policies all --capacities 5%",
                "compare the hit ratios of eviction policies"},
        {"trace analyze", "kvleasectl trace analyze day.jsonl.gz --html report.html",
                "write a report with plots"},
        {"trace recommend", "kvleasectl trace recommend day.jsonl.gz --token-bytes 128KiB",
                "print a configuration, with its reasons"},
        {"trace hosts",
                "kvleasectl trace hosts day.jsonl.gz --size 64GiB --token-bytes 128KiB --prefill-rate 10000",
                "simulate 10 and 100 hosts of an 8B model, with and without affinity"},
        {"trace hosts",
                "kvleasectl trace hosts day.jsonl.gz --size 64GiB --token-bytes 128KiB "
                "--prefill-rate 10000 --hosts 1000 --store size=1TiB,evict=lfu,expire=6h",
                "find the number of nodes that 1000 hosts need"},
        {"trace record", "kvleasectl trace record on --size 64MiB",
                "record traffic, in files of at most 64 MiB"},
        {"warm", "kvleasectl warm chat llama --tag 7",
                "move the pages of a tag to the device, and wait"},
        {"purge", "kvleasectl purge chat llama --remove", "remove a namespace with its pages"},
        {"recall", "kvleasectl recall search --size 4GiB --wait",
                "make room on a GPU for another engine"},
        {"drain", "kvleasectl drain --timeout 5min", "prepare the host for maintenance"},
        {"drain", "kvleasectl drain --export --timeout 10min",
                "also save cached pages for other hosts"},
        {"drain", "kvleasectl drain --off", "accept work again"},
        {"config show", "kvleasectl config",
                "show configured options, their lines, and changes that wait"},
        {"config show", "kvleasectl config show --all --tenant chat",
                "show all options of a tenant, with their defaults"},
        {"reload", "kvleasectl reload",
                "apply a changed file; see changes that wait for a restart"},
        {"restart", "kvleasectl restart --check --binary /tmp/next/usr/sbin/kvleased",
                "report the losses of an upgrade"},
        {"restart", "kvleasectl restart", "restart, if nothing is lost"},
        {"check", "kvleasectl check", "examine the state before you report a bug"},
        {"doctor", "kvleasectl doctor --all", "also show passed checks"},
        {"doctor", "kvleasectl doctor --root /host", "examine the host from a container"},
        {"version", "kvleasectl version",
                "show the versions of both programs and of their protocol"},
};
const size_t n_examples = ARRAY_SIZE(examples);

/* ---- the environment ------------------------------------------------------------------------- */

static const struct variable variables[] = {
        {"KVLEASE_ADMIN_SOCKET", "socket to use if neither --socket nor --runtime-dir is given"},
        {"KVLEASE_COLUMNS",
                "width of lists and texts. By default COLUMNS or the terminal's width; lists in files and pipes have no limit"},
        {"NO_COLOR", "if it is set and not empty, the output has no colours"},
        {"TERM", "type of the terminal, for colours and for top"},
};

static bool variable_counts(const struct variable *variable, const struct verb *verb)
{
        const char *name = variable->name;

        if (strcmp(name, "NO_COLOR") == 0 || strcmp(name, "TERM") == 0)
                return strcmp(verb->name, "top") == 0;
        if (strcmp(name, "KVLEASE_ADMIN_SOCKET") == 0) /* verbs on files use no socket */
                return strncmp(verb->name, "trace ", strlen("trace ")) != 0 || !verb->offline;
        return true;
}

/* ---- options --------------------------------------------------------------------------------- */

static const struct {
        const char *verb;
        enum ctl_option option;
        const char *help;
} option_helps[] = {
        {"top", CTL_OPTION_COUNT, "end after N looks"},
        {"events", CTL_OPTION_COUNT, "show the last N; with --follow end after N"},
        {"events", CTL_OPTION_TENANT, "only events of this tenant, or for its leases"},
        {"status", CTL_OPTION_ALL, "show all findings and figures"},
        {"warm", CTL_OPTION_ALL, "all pages in lower tiers"},
        {"warm", CTL_OPTION_OFF, "stop the work that runs"},
        {"warm", CTL_OPTION_SESSION, "pages of this session, with the id of kvleasectl sessions"},
        {"drain", CTL_OPTION_OFF, "accept new work again"},
        {"config show", CTL_OPTION_ALL, "also show options at their defaults"},
        {"config show", CTL_OPTION_TENANT, "show options of this tenant only"},
        {"doctor", CTL_OPTION_ALL, "also show passed checks"},
        {"doctor", CTL_OPTION_BINARY, "examine this kvleased, not the one that runs"},
        {"trace hosts", CTL_OPTION_SIZE, "memory for pages on each host (\"64GiB\")"},
        {"trace hosts", CTL_OPTION_POLICIES, "eviction policy of all hosts, one (\"lru\")"},
        {"trace hosts", CTL_OPTION_PREFILL_RATE,
                "tokens a second that a host computes, if it neither finds nor loads them"},
        {"trace record", CTL_OPTION_SIZE, "size of a file at most (\"64MiB\")"},
        {"recall", CTL_OPTION_TIMEOUT, "quarantine memory that clients keep longer (\"90s\")"},
        {"restart", CTL_OPTION_FORCE, "restart although something is lost"},
};

const char *option_help_for(const struct verb *verb, enum ctl_option option)
{
        for (size_t i = 0; i < ARRAY_SIZE(option_helps); i++)
                if (option_helps[i].option == option &&
                        strcmp(option_helps[i].verb, verb->name) == 0)
                        return option_helps[i].help;
        return option_rows[option].help;
}

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
        for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
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

        for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
                if (variable_counts(&variables[i], v))
                        json_array_append_new(list, need(json_string(variables[i].name)));
        return list;
}

static json_t *variables_json(void)
{
        json_t *list = need(json_array());

        for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
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
