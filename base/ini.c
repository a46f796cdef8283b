#include "base/ini.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"

struct ini_reader {
        ini_fn fn;
        void *data;
        struct ini_entry entry;              /* points into header and line */
        char header[INI_LINE_MAX + 1];       /* last "[section name]", cut up in place */
        char line[INI_LINE_MAX + 1];         /* current line, cut up in place */
        char what[256 + FORMAT_EXCERPT_MAX]; /* the error of the line */
};

static bool is_blank(char c)
{
        return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts blanks off both ends in place; borrows from s. */
static char *trim_blanks(char *s)
{
        size_t len;

        while (is_blank(*s))
                s++;
        len = strlen(s);
        while (len > 0 && is_blank(s[len - 1]))
                len--;
        s[len] = '\0';
        return s;
}

static bool is_word(const char *s)
{
        return name_is_valid(s, INI_LINE_MAX);
}

KVL_PRINTF(2, 3) static int syntax_error(struct ini_reader *r, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        vsnprintf(r->what, sizeof(r->what), format, args);
        va_end(args);
        return -EINVAL;
}

static int call_back(struct ini_reader *r)
{
        int error = r->fn(&r->entry, r->data, r->what, sizeof(r->what));

        if (error < 0 && !r->what[0])
                snprintf(r->what, sizeof(r->what), "%s", strerror(-error));
        return error;
}

/* Reads a section's header. `text` is the trimmed line, starting with '['; part of r->line. */
static int read_header(struct ini_reader *r, const char *text)
{
        char shown[FORMAT_EXCERPT_MAX], *section, *name;
        size_t len = strlen(text);

        format_excerpt(text, len, shown);
        if (text[len - 1] != ']')
                return syntax_error(r, "a section must end with ']': %s", shown);
        /* Copied, as the header outlives its line. */
        memcpy(r->header, text + 1, len - 2);
        r->header[len - 2] = '\0';
        section = trim_blanks(r->header);
        name = section + strcspn(section, " \t\r");
        if (*name)
                *name++ = '\0';
        name = trim_blanks(name);
        if (!is_word(section) || strpbrk(name, " \t\r[]"))
                return syntax_error(r,
                        "a section is [word] or [word name], word of A-Z a-z 0-9 . _ -: %s", shown);
        r->entry.section = section;
        r->entry.name = name;
        r->entry.key = r->entry.value = NULL;
        return call_back(r);
}

static int read_option(struct ini_reader *r, char *text)
{
        char shown[FORMAT_EXCERPT_MAX], *equals = strchr(text, '='), *key;

        format_excerpt(text, strlen(text), shown);
        if (!equals)
                return syntax_error(r,
                        "expected 'key = value', '[section]' or a comment from '#' or ';': %s",
                        shown);
        *equals = '\0';
        key = trim_blanks(text);
        if (!is_word(key))
                return syntax_error(r, "a key is made of A-Z a-z 0-9 . _ -: %s", shown);
        r->entry.key = key;
        r->entry.value = trim_blanks(equals + 1);
        return call_back(r);
}

/* Copies the raw line into r->line if it is text of a permitted length. */
static int take_line(struct ini_reader *r, const char *raw, size_t len)
{
        if (len > INI_LINE_MAX)
                return syntax_error(
                        r, "a line has at most %d bytes, this one %zu", INI_LINE_MAX, len);
        for (size_t i = 0; i < len; i++)
                /* Control characters would reach logs and terminals. */
                if (((unsigned char)raw[i] < ' ' && !is_blank(raw[i])) || raw[i] == 0x7f)
                        return syntax_error(r, "control character \\x%02x: only text is allowed",
                                (unsigned char)raw[i]);
        memcpy(r->line, raw, len);
        r->line[len] = '\0';
        return 0;
}

static int read_line(struct ini_reader *r, const char *raw, size_t len)
{
        int error = take_line(r, raw, len);
        char *text;

        if (error < 0)
                return error;
        text = trim_blanks(r->line);
        if (!*text || *text == '#' || *text == ';')
                return 0;
        return *text == '[' ? read_header(r, text) : read_option(r, text);
}

int ini_parse(const char *file_name, const char *text, size_t len, ini_fn fn, void *data, char *err,
        size_t err_len)
{
        static const char mark[] = "\xef\xbb\xbf"; /* editors write it to mark UTF-8 */
        const size_t mark_len = sizeof(mark) - 1;
        struct ini_reader r;

        if (len >= mark_len && memcmp(text, mark, mark_len) == 0) {
                text += mark_len;
                len -= mark_len;
        }
        r.fn = fn;
        r.data = data;
        r.entry = (struct ini_entry){.section = "", .name = ""};
        r.what[0] = '\0';
        while (len > 0) {
                const char *newline = memchr(text, '\n', len);
                size_t line_len = newline ? (size_t)(newline - text) : len;
                size_t step = line_len + (newline ? 1 : 0);
                int error;

                r.entry.line++;
                error = read_line(&r, text, line_len);
                if (error < 0) {
                        snprintf(err, err_len, "%s:%u: %s", file_name, r.entry.line, r.what);
                        return error;
                }
                text += step;
                len -= step;
        }
        return 0;
}
