/* Macros for tables of columns (show.h) over messages. */
#ifndef KVL_CTL_COLUMNS_H
#define KVL_CTL_COLUMNS_H

#include <stdarg.h>
#include <stdio.h>

#include "client/ctl/noun.h"
#include "proto/kvlease.pb-c.h"

/* A field of a message, with the field's name as its JSON key. */
#define FIELD(message, field, title, what)                        \
        .heading = (title), .key = #field, .kind = COLUMN_##what, \
        .offset = offsetof(Kvlease__V1__##message, field),        \
        .width = sizeof(((Kvlease__V1__##message *)NULL)->field)

/* A figure of a tier (AdminTier), `host` or `disk` of the message; absent without the tier. */
#define TIER_FIGURE(message, tier, field, title, what)                      \
        .heading = (title), .key = #tier "_" #field, .kind = COLUMN_##what, \
        .inner_offset = offsetof(Kvlease__V1__##message, tier),             \
        .offset = offsetof(Kvlease__V1__AdminTier, field),                  \
        .width = sizeof(((Kvlease__V1__AdminTier *)NULL)->field)

/* A figure of prefetched pages (AdminPrefetch): `guess` of the message. */
#define PREFETCH_FIGURE(message, guess, field)                              \
        .key = "prefetch_" #guess "_" #field, .kind = COLUMN_COUNT,         \
        .inner_offset = offsetof(Kvlease__V1__##message, prefetch_##guess), \
        .offset = offsetof(Kvlease__V1__AdminPrefetch, field),              \
        .width = sizeof(((Kvlease__V1__AdminPrefetch *)NULL)->field)

/* The list `name` of a reply of that message. */
#define NOUN(name, message, msg_type)                                         \
        const struct noun noun_##name = {                                     \
                .table = {#name, name##_columns, ARRAY_SIZE(name##_columns)}, \
                .type = (msg_type),                                           \
                .n_rows_offset = offsetof(Kvlease__V1__##message, n_##name),  \
                .rows_offset = offsetof(Kvlease__V1__##message, name),        \
                .next_offset = offsetof(Kvlease__V1__##message, next),        \
        }

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
