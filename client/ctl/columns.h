/* kvleasectl's side of proto/figures.def: its lists, and the values that are computed for them. */
#ifndef KVL_CTL_COLUMNS_H
#define KVL_CTL_COLUMNS_H

#include <stdarg.h>
#include <stdio.h>

#include "client/ctl/noun.h"
#include "proto/figures.h"

/* Rows: tenant_row ... */
#define LIST(scope, ...) typedef struct figures_##scope scope##_row;
#define LIST_END(...)
#include "proto/figures.def"

/* The functions that compute values, as column.derive and column.derive_json. */
#define SHOW(function, ...) \
        void function(const ROW *row, const struct show_format *f, struct value *ret);
#define JSON(key, function, ...) json_t *function(const ROW *row);
#include "proto/figures.def"

KVL_PRINTF(2, 3) static inline void derive_text(struct value *ret, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        vsnprintf(ret->buf, sizeof(ret->buf), format, ap);
        va_end(ap);
        ret->text = ret->buf;
        ret->present = true;
}

static inline void derive_ratio(struct value *ret, uint64_t part, uint64_t whole)
{
        ret->present = whole > 0;
        if (ret->present)
                ret->ratio = (double)part / (double)whole;
}

#endif
