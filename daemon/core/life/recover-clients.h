/*
 * Recovers the previous daemon's clients. clients/client-record.h describes their records. Loop
 * thread only.
 */
#ifndef KVL_CORE_RECOVER_CLIENTS_H
#define KVL_CORE_RECOVER_CLIENTS_H

struct detail;
struct recovery;
struct store;

/*
 * Makes the members, attachments, pins and magazines that the tables name (recover.h, between the
 * two calls). Skips members whose tenant is gone, and attachments whose namespace is. Each member
 * counts as having mapped all bound sets of its namespaces, unless it is metadata-only. Clients
 * that may know of lost objects are lost, and counted in r->n_pins_lost. The watcher of
 * KEEP_PROCESS finds out whether a process lives. Returns 0; -ENOMEM: some of them are made, and
 * stored descriptors stay for another try.
 */
int clients_recover(struct store *s, struct recovery *r, struct detail *d);

#endif
