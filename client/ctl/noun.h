/* The daemon's lists: each noun's columns, the message that fetches it, and its figures. */
#ifndef KVL_CTL_NOUN_H
#define KVL_CTL_NOUN_H

#include "client/ctl/show.h"
#include "proto/figures.h"

struct noun {
        struct column_table table;
        uint16_t type; /* enum msg_type; the request is AdminListRequest */
        const struct figure_table *figures;
};

#define LIST(scope, plural, ...) extern const struct noun noun_##plural;
#define LIST_END(...)
#include "proto/figures.def"

#endif
