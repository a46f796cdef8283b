/*
 * The tables of client-record.h. client-record.c fills them, recover.c reads those of the
 * previous daemon. Rows are numbered from 1; 0 is none.
 */
#ifndef KVL_CORE_CLIENT_TABLE_H
#define KVL_CORE_CLIENT_TABLE_H

#include "daemon/core/clients/client-record.h"
#include "daemon/core/state/keep.h"

/* Rows beyond these were never used. */
struct client_table_header {
        _Atomic uint32_t n_clients, n_attaches;
};

/* Part of the store: the mapping, and lists of free rows. */
struct client_table {
        struct client_table_header *header;
        struct client_slot *clients;
        struct attach_slot *attaches;
        uint32_t free_client, free_attach;
};

#define CLIENT_TABLE_BYTES                                                           \
        (CLIENT_HEADER_BYTES + CLIENT_SLOTS * (uint64_t)sizeof(struct client_slot) + \
                ATTACH_SLOTS * (uint64_t)sizeof(struct attach_slot))

/* Free a row, and then drop the descriptors stored under its number. */
void client_row_free(struct store *s, uint32_t row);
void attach_row_free(struct store *s, uint32_t row);

/* Takes a stored memory file of this inode and size that is sealed against resizing; owned.
 * -ENOENT: another file, which is dropped, or none. */
int client_take_kept(
        struct store *s, enum keep_kind kind, uint32_t row, uint64_t bytes, uint64_t inode);

#endif
