/* The INI reader: with any text, entries and messages are clean text of bounded length. */
#include <errno.h>
#include <string.h>

#include "base/ini.h"
#include "tests/fuzz/fuzz.h"

#define ERR_SIZE 512

static void check_text(const char *s, size_t max)
{
        CHECK(strlen(s) <= max);
        for (; *s; s++)
                CHECK(((unsigned char)*s >= ' ' && *s != 0x7f) || *s == '\t' || *s == '\r');
}

static void check_trimmed(const char *s)
{
        check_text(s, INI_LINE_MAX);
        CHECK(!*s || (!strchr(" \t\r", s[0]) && !strchr(" \t\r", s[strlen(s) - 1])));
}

static int check_entry(const struct ini_entry *e, void *data, char *err, size_t err_len)
{
        unsigned *last_line = data;

        CHECK(e->line > *last_line);
        *last_line = e->line;
        check_trimmed(e->section);
        check_trimmed(e->name);
        CHECK(!e->key == !e->value);
        CHECK(e->key || *e->section);
        if (!e->key)
                return 0;
        CHECK(*e->key);
        check_trimmed(e->key);
        check_trimmed(e->value);
        if (strcmp(e->key, "refuse") != 0)
                return 0;
        snprintf(err, err_len, "refused");
        return -EPERM;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        char err[ERR_SIZE] = "";
        unsigned last_line = 0;
        int r = ini_parse(
                "file", (const char *)data, size, check_entry, &last_line, err, sizeof(err));

        CHECK(r == 0 || r == -EINVAL || r == -EPERM);
        CHECK((r == 0) == (err[0] == '\0'));
        CHECK(r == 0 || strncmp(err, "file:", 5) == 0);
        check_text(err, 200);
        return 0;
}
