/* The daemon's data: each noun's columns, and the message that fetches a list. */
#ifndef KVL_CTL_NOUN_H
#define KVL_CTL_NOUN_H

#include "client/ctl/show.h"

struct noun {
        struct column_table table;
        uint16_t type; /* enum msg_type; the request is AdminListRequest */
        /* Offsets in the reply: repeated rows and the cursor. */
        size_t n_rows_offset, rows_offset, next_offset;
};

extern const struct noun noun_devices, noun_tenants, noun_namespaces, noun_clients, noun_regions,
        noun_evictions, noun_options;

/* Row: AdminStatusReply. */
extern const struct column_table status_table;

#endif
