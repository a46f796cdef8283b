/* Misspelt words: the name that is meant, and what is wrong with an option. */
#include "tests/unit/test-support.h"

#include <getopt.h>
#include <string.h>

#include "base/macros.h"
#include "base/words.h"

static const char *const colours[] = {"red", NULL, "orange", "green", "dark green"};

static const char *colour(const void *data, size_t i)
{
        return ((const char *const *)data)[i];
}

static const char *nearest(const char *wrong)
{
        return nearest_name(wrong, ARRAY_SIZE(colours), colour, colours);
}

TEST(test_nearest)
{
        assert_string_equal(nearest("orange"), "orange");
        assert_string_equal(nearest("or"), "orange");     /* begins it */
        assert_string_equal(nearest("gren"), "green");    /* a letter less */
        assert_string_equal(nearest("oarnge"), "orange"); /* two wrong */
        assert_null(nearest("oarneg"));                   /* more are wrong */
        assert_null(nearest("rxx"));                      /* more than half of it */
        assert_null(nearest("r"));
        assert_null(nearest(""));
        assert_null(nearest("dark green that is longer than all names"));
}

/* Returns the sentence for argv[1], which getopt_long() refuses. */
static const char *fault_of(char *word, char buf[WORDS_FAULT_MAX])
{
        static const struct option longs[] = {{"listen", required_argument, NULL, 'l'},
                {"limit", required_argument, NULL, 256}, {"version", no_argument, NULL, 'V'}, {0}};
        char program[] = "p";
        char *argv[] = {program, word, NULL};

        opterr = 0;
        optind = 0;
        assert_int_equal(getopt_long(2, argv, ":l:V", longs, NULL), '?');
        return option_fault("program", argv[optind - 1], longs, buf);
}

TEST(test_option_fault)
{
        static const struct {
                char word[32];
                const char *fault;
        } rows[] = {{"--lisetn", "there is no option --lisetn: did you mean --listen?"},
                {"--limt=5", "there is no option --limt=5: did you mean --limit?"},
                {"--colour", "there is no option --colour: program --help lists them"},
                {"--li", "--li is short for several options: --listen, --limit"},
                {"--ver=1", "--version takes no value"},
                {"-x", "there is no option -x: program --help lists them"},
                {"-xV", "there is no option -x: program --help lists them"}};
        char word[1024], buf[WORDS_FAULT_MAX];

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                strcpy(word, rows[i].word);
                assert_string_equal(fault_of(word, buf), rows[i].fault);
        }
        memset(word, 'x', sizeof(word) - 1);
        word[sizeof(word) - 1] = '\0';
        memcpy(word, "--", 2);
        assert_non_null(strstr(fault_of(word, buf), "x: program --help lists them"));
        strcpy(word, "--=");
        assert_string_equal(fault_of(word, buf),
                "-- is short for several options: --listen, --limit, --version");
}
