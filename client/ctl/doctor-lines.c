#include "client/ctl/doctor-lines.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/ini.h"
#include "base/macros.h"
#include "client/ctl/ctl.h"

static void add_line(struct doctor_lines *l, const char *section, const char *name, const char *key,
        const char *value)
{
        l->lines = need(realloc(l->lines, (l->n + 1) * sizeof(*l->lines)));
        l->lines[l->n++] = (struct doctor_line){
                need(strdup(section)), need(strdup(name)), need(strdup(key)), need(strdup(value))};
}

const char *lines_find(
        const struct doctor_lines *l, const char *section, const char *name, const char *key)
{
        for (size_t i = l->n; i-- > 0;) {
                const struct doctor_line *line = &l->lines[i];

                if (strcmp(line->section, section) == 0 && strcmp(line->name, name) == 0 &&
                        strcmp(line->key, key) == 0)
                        return line->value;
        }
        return NULL;
}

static void free_line(struct doctor_line *line)
{
        free(line->section);
        free(line->name);
        free(line->key);
        free(line->value);
}

void lines_free(struct doctor_lines *l)
{
        for (size_t i = 0; i < l->n; i++)
                free_line(&l->lines[i]);
        free(l->lines);
        *l = (struct doctor_lines){0};
}

static int take_entry(const struct ini_entry *e, void *data, char *err, size_t err_len)
{
        /* A section's header counts, too: it makes the device exist. */
        add_line(data, e->section, e->name, e->key ? e->key : "", e->key ? e->value : "");
        return 0;
}

void lines_read_config(struct doctor_lines *l, const char *text, size_t len)
{
        char err[256];

        (void)ini_parse("", text, len, take_entry, l, err, sizeof(err));
}

void lines_read_option(struct doctor_lines *l, const char *option)
{
        _cleanup_free_ char *copy = need(strdup(option));
        char *value = strchr(copy, '='), *name = strchr(copy, '.'), *key;

        if (!value || !name || name > value)
                return;
        *value++ = '\0';
        *name++ = '\0';
        key = strrchr(name, '.'); /* names may have dots, keys have none */
        if (key)
                *key++ = '\0';
        add_line(l, copy, key ? name : "", key ? key : name, value);
}

/* ---- units ----------------------------------------------------------------------------------- */

static char *trim_end(char *text)
{
        char *end = text + strlen(text);

        while (end > text && isspace((unsigned char)end[-1]))
                *--end = '\0';
        while (isspace((unsigned char)*text))
                text++;
        return text;
}

/* systemd: "an empty assignment resets the list". */
static void forget_assignments(struct doctor_lines *l, const char *section, const char *key)
{
        size_t kept = 0;

        for (size_t i = 0; i < l->n; i++) {
                struct doctor_line *line = &l->lines[i];

                if (strcmp(line->section, section) == 0 && strcmp(line->key, key) == 0)
                        free_line(line);
                else
                        l->lines[kept++] = *line;
        }
        l->n = kept;
}

static void take_unit_line(struct doctor_lines *l, char *line, char section[64])
{
        char *text = trim_end(line), *value, *end = strchr(text, ']');

        if (*text == '[' && end) {
                *end = '\0';
                snprintf(section, 64, "%s", text + 1);
                return;
        }
        value = strchr(text, '=');
        if (*text == '#' || *text == ';' || !value)
                return;
        *value++ = '\0';
        text = trim_end(text);
        value = trim_end(value);
        if (*value)
                add_line(l, section, "", text, value);
        else
                forget_assignments(l, section, text);
}

void lines_read_unit(struct doctor_lines *l, const char *text)
{
        _cleanup_free_ char *copy = need(strdup(text));
        char section[64] = "", *next = copy;

        /* A backslash at the end joins the next line. */
        for (char *at = copy; (at = strstr(at, "\\\n"));)
                at[0] = at[1] = ' ';
        while (next) {
                char *line = strsep(&next, "\n");

                take_unit_line(l, line, section);
        }
}
