/* kvleasectl's help can be typed: every verb has an example, and every example is right. */
/* Before cmocka, whose fail() is a macro. */
#include "client/ctl/verb.h"
#include "client/ctl/option.h"

#include "tests/unit/test-support.h"

#include <stdlib.h>
#include <string.h>

/* The words before a pipe or a redirection; cut in place. */
static int split_command(char *line, char **argv, int max)
{
        char *rest = NULL;
        int n = 0;

        for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
                if (strcmp(word, "|") == 0 || strcmp(word, ">>") == 0)
                        break;
                assert_true(n + 1 < max);
                argv[n++] = word;
        }
        argv[n] = NULL;
        return n;
}

TEST(test_examples)
{
        for (size_t i = 0; i < n_examples; i++) {
                char *line = strdup(examples[i].command), *argv[16];
                struct ctl ctl = {0};
                int argc = split_command(line, argv, ARRAY_SIZE(argv));

                assert_string_equal(argv[0], "kvleasectl");
                if (options_parse(argc, argv, &ctl) != CTL_OK)
                        fail_msg("'%s' isn't understood", examples[i].command);
                /* top's screen needs a terminal, which isn't here. */
                if (ctl.verb->check && ctl.verb->run != verb_top && ctl.verb->check(&ctl) != CTL_OK)
                        fail_msg("'%s' isn't understood", examples[i].command);
                assert_string_equal(ctl.verb->name, examples[i].verb);
                free(line);
        }
}

/* No verb's help speaks of another verb's meaning of an option. */
TEST(test_options_are_the_verbs)
{
        for (size_t v = 0; v < n_verbs; v++)
                for (size_t o = 0; o < CTL_N_OPTIONS; o++) {
                        const char *help = option_help_for(&verbs[v], o);
                        const char *colon = strchr(help, ':');

                        if (!(verbs[v].options & CTL_OPTION_BIT(o)) || !colon)
                                continue;
                        for (size_t other = 0; other < n_verbs; other++)
                                if (other != v &&
                                        strlen(verbs[other].name) <= (size_t)(colon - help) &&
                                        strncmp(colon - strlen(verbs[other].name),
                                                verbs[other].name, strlen(verbs[other].name)) == 0)
                                        fail_msg("%s --%s: '%s'", verbs[v].name,
                                                option_rows[o].name, help);
                }
}
