/*
 * The tables of client-record.h, shared by client-record.c, which fills them, and
 * recover-clients.c, which reads what a daemon left. Rows are numbered from 1; 0 is none.
 */
#ifndef KVL_CORE_CLIENT_TABLE_H
#define KVL_CORE_CLIENT_TABLE_H

#include "daemon/core/clients/client-record.h"
#include "daemon/core/ground/keep.h"

/* Rows beyond these were never used. */
struct client_table_header {
        _Atomic uint32_t n_clients, n_attaches;
};

/* In the store: the mapping, and rows that are free again. */
struct client_table {
        struct client_table_header *header;
        struct client_slot *clients;
        struct attach_slot *attaches;
        uint32_t free_client, free_attach;
};

#define CLIENT_TABLE_BYTES                                                           \
        (CLIENT_HEADER_BYTES + CLIENT_SLOTS * (uint64_t)sizeof(struct client_slot) + \
                ATTACH_SLOTS * (uint64_t)sizeof(struct attach_slot))

/* The row is nobody's from now on, and then what was kept under its number is dropped. */
void client_row_free(struct store *s, uint32_t row);
void attach_row_free(struct store *s, uint32_t row);

/* A kept memory file of this inode and size that nobody can resize; owned. -ENOENT: another one, or
 * none; it is dropped. */
int client_take_kept(
        struct store *s, enum keep_kind kind, uint32_t row, uint64_t bytes, uint64_t inode);

#endif
