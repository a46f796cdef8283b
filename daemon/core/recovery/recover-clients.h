/*
 * Clients of the daemon before this one are taken over. What is kept of them:
 * clients/client-record.h. Loop thread only.
 */
#ifndef KVL_CORE_RECOVER_CLIENTS_H
#define KVL_CORE_RECOVER_CLIENTS_H

struct detail;
struct recovery;
struct store;

/*
 * Makes the members, attachments, pins and magazines that the tables name (recover.h, between the
 * two calls). Members whose tenant is gone aren't made, nor attachments whose namespace is. Each
 * member counts as having mapped what is bound of its namespaces, unless it is metadata-only. Those
 * that may know of what isn't there are lost, and counted in r->n_pins_lost. Whether its process
 * lives is for who watches its KEEP_PROCESS to find out. 0; -ENOMEM: some of them are made, and
 * what is kept stays for another try.
 */
int clients_recover(struct store *s, struct recovery *r, struct detail *d);

#endif
