#include "client/lib/connection/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/status.h"

static _Thread_local char last_error[ERROR_TEXT_BYTES] = "no error";

int error_set(int code, const char *format, ...)
{
        int saved_errno = errno;
        va_list args;

        va_start(args, format);
        vsnprintf(last_error, sizeof(last_error), format, args);
        va_end(args);
        errno = saved_errno;
        return code;
}

int error_note(int code, const char *sentence)
{
        if (code == 0)
                return 0;
        /* Misses come here, too: no formatting. */
        if (!*sentence)
                sentence = status_text(code);
        if (!memccpy(last_error, sentence, '\0', sizeof(last_error)))
                last_error[sizeof(last_error) - 1] = '\0';
        return code;
}

const char *error_get(void)
{
        return last_error;
}
