#include "daemon/core/state/detail.h"

#include <stdarg.h>
#include <stdio.h>

int detail_set(struct detail *d, int code, const char *format, ...)
{
        va_list ap;

        if (!d)
                return code;
        va_start(ap, format);
        vsnprintf(d->text, sizeof(d->text), format, ap);
        va_end(ap);
        return code;
}
