#include "client/ctl/option.h"

#include <string.h>

#include "client/ctl/verb.h"

const struct option_row option_rows[CTL_N_OPTIONS] = {
#define X(id, name, value, global, help) [CTL_OPTION_##id] = {name, value, global, help},
        CTL_OPTION_TABLE(X)
#undef X
};
static_assert(CTL_N_OPTIONS <= 64, "struct verb has a bit of a uint64_t for each");

static const char *option_name(size_t i)
{
        return option_rows[i].name;
}

/* The row that `--NAME[=VALUE]` names, CTL_N_OPTIONS where none. `text` starts after the dashes. */
static size_t option_find(const char *text, size_t len)
{
        size_t i = 0;

        while (i < CTL_N_OPTIONS &&
                (strlen(option_rows[i].name) != len || memcmp(option_rows[i].name, text, len) != 0))
                i++;
        return i;
}

static int fail_unknown(const char *arg, const char *text, size_t len)
{
        _cleanup_free_ char *name = need(strndup(text, len));
        const char *near = nearest_name(name, CTL_N_OPTIONS, option_name);

        if (near)
                return fail(CTL_USAGE, "there is no option %s: did you mean --%s?", arg, near);
        return fail(CTL_USAGE, "there is no option %s: kvleasectl --help lists them", arg);
}

/* Handles argv[*i], moves *i on to the value where it takes one from there. */
static int option_take(int argc, char **argv, int *i, struct ctl *ret)
{
        const char *arg = argv[*i], *text = arg + 2, *equals = strchr(text, '=');
        size_t len = equals ? (size_t)(equals - text) : strlen(text);
        size_t o = option_find(text, len);

        if (strcmp(arg, "-h") == 0)
                o = CTL_OPTION_HELP;
        else if (strcmp(arg, "-V") == 0)
                o = CTL_OPTION_VERSION;
        else if (arg[1] != '-' || o == CTL_N_OPTIONS)
                return fail_unknown(arg, arg[1] == '-' ? text : arg + 1, arg[1] == '-' ? len : 0);
        if (!option_rows[o].value) {
                if (equals)
                        return fail(CTL_USAGE, "--%s takes no value", option_rows[o].name);
                ret->options[o] = "";
                return CTL_OK;
        }
        if (!equals && *i + 1 == argc)
                return fail(CTL_USAGE, "--%s needs a value: --%s %s", option_rows[o].name,
                        option_rows[o].name, option_rows[o].value);
        ret->options[o] = equals ? equals + 1 : argv[++*i];
        if (ret->options[o][0] == '\0')
                return fail(CTL_USAGE, "the value of --%s is empty", option_rows[o].name);
        return CTL_OK;
}

static int split(int argc, char **argv, struct ctl *ret)
{
        bool only_args = false;

        ret->args = argv + 1;
        for (int i = 1; i < argc; i++) {
                int r;

                if (only_args || argv[i][0] != '-' || argv[i][1] == '\0') {
                        ret->args[ret->n_args++] = argv[i];
                } else if (strcmp(argv[i], "--") == 0) {
                        only_args = true;
                } else {
                        r = option_take(argc, argv, &i, ret);
                        if (r != CTL_OK)
                                return r;
                }
        }
        return CTL_OK;
}

static int check_against_verb(const struct ctl *c)
{
        const struct verb *v = c->verb;

        for (size_t o = 0; o < CTL_N_OPTIONS; o++)
                if (c->options[o] && !option_rows[o].global && !(v->options & CTL_OPTION_BIT(o)))
                        return fail(CTL_USAGE,
                                "--%s does not go with %s: kvleasectl %s --help lists what does",
                                option_rows[o].name, v->name, v->name);
        if (c->n_args < v->min_args || c->n_args > v->max_args)
                return fail(CTL_USAGE, "%s arguments: kvleasectl %s%s%s",
                        c->n_args < v->min_args ? "too few" : "too many", v->name,
                        v->args[0] ? " " : "", v->args);
        return CTL_OK;
}

int options_parse(int argc, char **argv, struct ctl *ret)
{
        unsigned n_taken;
        int r = split(argc, argv, ret);

        if (r != CTL_OK)
                return r;
        if (ret->n_args == 0) {
                if (ret->options[CTL_OPTION_HELP] || ret->options[CTL_OPTION_VERSION])
                        return CTL_OK;
                return fail(CTL_USAGE, "what shall be done? kvleasectl --help lists the verbs");
        }
        r = verb_find(ret->args, ret->n_args, &ret->verb, &n_taken);
        if (r != CTL_OK)
                return r;
        ret->args += n_taken;
        ret->n_args -= n_taken;
        if (ret->options[CTL_OPTION_HELP] || ret->options[CTL_OPTION_VERSION])
                return CTL_OK;
        if (ret->options[CTL_OPTION_SOCKET] && ret->options[CTL_OPTION_RUNTIME_DIR])
                return fail(CTL_USAGE, "--socket and --runtime-dir exclude each other: give one");
        return check_against_verb(ret);
}
