#include "client/ctl/ctl.h"

#include <langinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

void *need(void *p)
{
        if (!p) {
                fputs("kvleasectl: out of memory\n", stderr);
                exit(CTL_REFUSED);
        }
        return p;
}

/* Returns the bytes of the character at `text` if it may go to a terminal unchanged; 0: not. */
static size_t shown_as_is(const char *text)
{
        size_t len = utf8_char_len(text, strlen(text));

        if (len == 0 || utf8_is_control(text, len) ||
                (len > 1 && strcmp(nl_langinfo(CODESET), "UTF-8") != 0))
                return 0;
        return len;
}

char *text_printable(const char *text)
{
        static const char digits[] = "0123456789abcdef";
        char *copy = need(malloc(4 * strlen(text) + 1)), *to = copy;

        while (*text) {
                size_t len = shown_as_is(text);
                unsigned char c = (unsigned char)*text;

                if (len > 0) {
                        memcpy(to, text, len);
                        to += len;
                        text += len;
                        continue;
                }
                *to++ = '\\';
                *to++ = 'x';
                *to++ = digits[c >> 4];
                *to++ = digits[c & 15];
                text++;
        }
        *to = '\0';
        return copy;
}

static _Thread_local char **captured;

void fail_capture(char **ret_sentence)
{
        captured = ret_sentence;
}

char *text_format(const char *format, va_list ap)
{
        char *text = NULL;

        if (vasprintf(&text, format, ap) < 0)
                text = NULL; /* vasprintf leaves it undefined */
        return need(text);
}

int fail(enum ctl_exit code, const char *format, ...)
{
        _cleanup_free_ char *raw = NULL, *safe = NULL;
        va_list ap;

        va_start(ap, format);
        raw = text_format(format, ap);
        va_end(ap);
        safe = text_printable(raw);
        if (captured) {
                free(*captured);
                *captured = TAKE(safe);
                return code;
        }
        fprintf(stderr, "kvleasectl: %s\n", safe);
        return code;
}
