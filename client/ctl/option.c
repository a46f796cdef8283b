#include "client/ctl/option.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/words.h"
#include "client/ctl/verb.h"

const struct option_row option_rows[CTL_N_OPTIONS] = {
#define X(id, name, value, global, help) [CTL_OPTION_##id] = {name, value, global, help},
        CTL_OPTION_TABLE(X)
#undef X
};
static_assert(CTL_N_OPTIONS <= 64, "struct verb has a bit of a uint64_t for each");

/* getopt_long()'s results for a word that is no option, and for each long option. */
#define GETOPT_WORD   1
#define GETOPT_OPTION 256 /* plus the number in enum ctl_option */

static int take_option(struct ctl *ret, size_t o)
{
        ret->options[o] = option_rows[o].value ? optarg : "";
        if (option_rows[o].value && optarg[0] == '\0')
                return fail(CTL_USAGE, "the value of --%s is empty", option_rows[o].name);
        return CTL_OK;
}

/* Handles getopt_long()'s result `c`, but '?'. */
static int take_word(struct ctl *ret, int c)
{
        switch (c) {
        case GETOPT_WORD:
                ret->args[ret->n_args++] = optarg;
                return CTL_OK;
        case 'h':
                return take_option(ret, CTL_OPTION_HELP);
        case 'V':
                return take_option(ret, CTL_OPTION_VERSION);
        case ':':
                return fail(CTL_USAGE, "--%s needs a value: --%s %s",
                        option_rows[optopt - GETOPT_OPTION].name,
                        option_rows[optopt - GETOPT_OPTION].name,
                        option_rows[optopt - GETOPT_OPTION].value);
        default:
                return take_option(ret, (size_t)(c - GETOPT_OPTION));
        }
}

/* Splits options, anywhere before a "--" (even with POSIXLY_CORRECT), and words. */
static int split_words(int argc, char **argv, struct ctl *ret)
{
        struct option longs[CTL_N_OPTIONS + 1] = {0};
        char fault[WORDS_FAULT_MAX];
        int c, r = CTL_OK;

        for (size_t i = 0; i < CTL_N_OPTIONS; i++)
                longs[i] = (struct option){option_rows[i].name,
                        option_rows[i].value ? required_argument : no_argument, NULL,
                        GETOPT_OPTION + (int)i};
        ret->args = argv + 1; /* overwritten after getopt_long() has read it */
        opterr = 0;
        optind = 0; /* glibc: restarts, even after an earlier call */
        while (r == CTL_OK && (c = getopt_long(argc, argv, "-:hV", longs, NULL)) != -1)
                r = c == '?' ? fail(CTL_USAGE, "%s",
                                       option_fault("kvleasectl", argv[optind - 1], longs, fault))
                             : take_word(ret, c);
        for (int i = optind; r == CTL_OK && i < argc; i++)
                ret->args[ret->n_args++] = argv[i];
        return r;
}

static int check_against_verb(const struct ctl *c)
{
        const struct verb *v = c->verb;

        for (size_t o = 0; o < CTL_N_OPTIONS; o++)
                if (c->options[o] && !option_rows[o].global && !(v->options & CTL_OPTION_BIT(o)))
                        return fail(CTL_USAGE,
                                "--%s isn't an option of %s: kvleasectl %s --help lists its options",
                                option_rows[o].name, v->name, v->name);
        if (c->n_args < v->min_args || c->n_args > v->max_args)
                return fail(CTL_USAGE, "%s arguments: the command is kvleasectl %s%s%s",
                        c->n_args < v->min_args ? "too few" : "too many", v->name,
                        v->args[0] ? " " : "", v->args);
        return CTL_OK;
}

int fail_value(const struct ctl *ctl, enum ctl_option option, const char *expected)
{
        return fail(CTL_USAGE, "--%s: '%s' is not %s", option_rows[option].name,
                ctl->options[option], expected);
}

int options_parse(int argc, char **argv, struct ctl *ret)
{
        unsigned n_taken;
        int r = split_words(argc, argv, ret);

        if (r != CTL_OK)
                return r;
        if (ret->n_args == 0) {
                if (ret->options[CTL_OPTION_HELP] || ret->options[CTL_OPTION_VERSION])
                        return CTL_OK;
                verb_help_all(stdout);
                return CTL_USAGE;
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
