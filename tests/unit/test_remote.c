/* kvleasectl --host: what a URL may say, and that a remote shell takes words as they are. */
/* Before cmocka, whose fail() is a macro. */
#include "client/ctl/remote.h"

#include "tests/unit/test-support.h"

#include <stdlib.h>
#include <string.h>

static const struct {
        const char *url;
        const char *user, *host, *port; /* host NULL: refused */
} urls[] = {
        {"ssh://gpu1", "", "gpu1", ""},
        {"ssh://gpu1/", "", "gpu1", ""},
        {"ssh://joe@gpu-1.example:2222", "joe", "gpu-1.example", "2222"},
        {"ssh://[::1]", "", "::1", ""},
        {"ssh://joe@[fe80::1%eth0]:22/", "joe", "fe80::1%eth0", "22"},
        {"gpu1", NULL, NULL, NULL},
        {"SSH://gpu1", NULL, NULL, NULL},
        {"http://gpu1", NULL, NULL, NULL},
        {"ssh://", NULL, NULL, NULL},
        {"ssh://@gpu1", NULL, NULL, NULL},
        {"ssh://joe@", NULL, NULL, NULL},
        {"ssh://-oProxyCommand=id", NULL, NULL,
                NULL}, /* nothing that ssh would take for an option */
        {"ssh://-l@gpu1", NULL, NULL, NULL},
        {"ssh://[-x]", NULL, NULL, NULL},
        {"ssh://a b", NULL, NULL, NULL},
        {"ssh://a;id", NULL, NULL, NULL},
        {"ssh://a$(id)", NULL, NULL, NULL},
        {"ssh://`id`@gpu1", NULL, NULL, NULL},
        {"ssh://a@b@c", NULL, NULL, NULL},
        {"ssh://gpu1\n", NULL, NULL, NULL},
        {"ssh://[::1", NULL, NULL, NULL},
        {"ssh://[::1]x", NULL, NULL, NULL},
        {"ssh://gpu1:", NULL, NULL, NULL},
        {"ssh://gpu1:0", NULL, NULL, NULL},
        {"ssh://gpu1:65536", NULL, NULL, NULL},
        {"ssh://gpu1:22x", NULL, NULL, NULL},
        {"ssh://gpu1/run/kvlease", NULL, NULL, NULL},
};

static void test_urls(void **state)
{
        char *said = NULL;

        fail_capture(&said);
        for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
                struct remote r;
                int code = remote_parse(urls[i].url, &r);

                if (code != (urls[i].host ? CTL_OK : CTL_USAGE))
                        fail_msg("%s: %d", urls[i].url, code);
                if (!urls[i].host)
                        continue;
                assert_string_equal(r.user, urls[i].user);
                assert_string_equal(r.host, urls[i].host);
                assert_string_equal(r.port, urls[i].port);
        }
        fail_capture(NULL);
        free(said);
}

static void test_long_names(void **state)
{
        char url[600] = "ssh://", *said = NULL;
        struct remote r;

        fail_capture(&said);
        memset(url + strlen("ssh://"), 'a', REMOTE_NAME_MAX);
        assert_int_equal(remote_parse(url, &r), CTL_OK);
        url[strlen(url)] = 'a';
        assert_int_equal(remote_parse(url, &r), CTL_USAGE);
        fail_capture(NULL);
        free(said);
}

/* What `shell` makes of the word, in hexadecimal digits. Returned owned. */
static char *seen_by(const char *shell, const char *word)
{
        char *command = NULL, *quoted = NULL, *seen = calloc(1, 4096);
        size_t size = 0, len;
        FILE *to = open_memstream(&quoted, &size), *from;

        fprintf(to, "printf %%s ");
        remote_quote(word, to);
        fclose(to);
        setenv("QUOTED", quoted, 1);
        assert_true(asprintf(&command, "%s -c \"$QUOTED\"", shell) > 0);
        from = popen(command, "re");
        assert_non_null(from);
        len = fread(seen, 1, 4095, from);
        seen[len] = '\0';
        assert_int_equal(pclose(from), 0);
        free(command);
        free(quoted);
        return seen;
}

/* Every byte that there is, and what shells have special words for; in the shells that are here. */
static void test_quoting(void **state)
{
        static const char *const shells[] = {"sh", "bash", "zsh", "dash", "fish", "tcsh"};
        static const char *const words[] = {"", "a", "a b", "$(id)", "`id`", "'", "''", "\\", "\\'",
                "'\\''", "a\\\\b", "!!", "~", "*", "a;id", "a&&id", "#", "--x=$HOME", "\"",
                "{a,b}"};
        char every[256];

        for (int i = 0; i < 255; i++)
                every[i] = (char)(i + 1);
        every[255] = '\0';
        for (size_t s = 0; s < ARRAY_SIZE(shells); s++) {
                char *is_there = NULL;

                assert_true(asprintf(&is_there, "command -v %s >/dev/null", shells[s]) > 0);
                for (size_t w = 0; system(is_there) == 0 && w <= ARRAY_SIZE(words); w++) {
                        const char *word = w < ARRAY_SIZE(words) ? words[w] : every;
                        char *seen;

                        if (word == every && s > 3)
                                continue; /* these take newlines and bytes that are no UTF-8
                                             otherwise */
                        seen = seen_by(shells[s], word);
                        if (strcmp(seen, word) != 0)
                                fail_msg("%s: '%s' becomes '%s'", shells[s], word, seen);
                        free(seen);
                }
                free(is_there);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_urls),
                TEST(test_long_names),
                TEST(test_quoting),
        };

        return RUN_TESTS(tests);
}
