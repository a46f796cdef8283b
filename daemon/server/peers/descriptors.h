/*
 * The daemon's two budgets of descriptors: the open files of the process (RLIMIT_NOFILE), and the
 * entries of the descriptor store (FileDescriptorStoreMax=, --keep-max).
 *
 * | object                        | open | kept |
 * |-------------------------------|------|------|
 * | connection                    | 2, 3 | 2    |
 * | namespace                     | 2, 4 | 4    |
 * | events of a namespace         | 2    | 2    |
 * | client that has one open      | 1    | 2    |
 * | extent                        | 1, 2 | 1    |
 *
 * The second number of open files holds if the object is stored; for extents, behind a queue.
 * Stores that hosts share use as many open files as they have nodes. A reserve of open files lets
 * administrators always connect.
 *
 * Each tenant has a part of the rest (fd-parts.h). Its use is counted from its objects: no account
 * can drift or has to be stored over a restart. The highest use of a connection, a namespace or a
 * client of it is counted when that is made. So HELLO, SHM_OPEN, NS_SHARE, sessions and pins aren't
 * refused later.
 */
#ifndef KVL_SERVER_DESCRIPTORS_H
#define KVL_SERVER_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

struct server;
struct tenancy;
struct detail;

/* Connections beyond a limit that are kept only to report it; further ones are closed. Not
 * tuned. */
#define PEER_MAX_REFUSED 32

enum descriptors_kind { DESCRIPTORS_OPEN, DESCRIPTORS_KEPT, N_DESCRIPTORS };

/* A tenant's part of a budget. */
struct descriptors_part {
        uint64_t used;
        uint64_t sure;  /* guaranteed */
        uint64_t limit; /* bound now, given the use of other tenants */
};
struct descriptors_part descriptors_of(const struct tenancy *t, enum descriptors_kind kind);

/*
 * May the tenant have another connection? Returns 0, or -EMFILE with the sentence, which is logged
 * once. Clients that wait to resume aren't counted: they come on another connection. `is_there`:
 * this connection is counted already, and its client is a new one, so those are counted, too.
 */
int descriptors_admit_connection(struct tenancy *t, bool is_there, struct detail *d);

/* May a client of the tenant open a namespace, which exists or not? Returns 0, or -EMFILE with the
 * sentence. On refusal, idle namespaces of the tenant are removed (idle.h). */
int descriptors_admit_ns(struct tenancy *t, bool is_there, struct detail *d);

/* Highest number of connections being refused with a reason: 1 to PEER_MAX_REFUSED. */
uint32_t descriptors_most_refused(const struct server *s);

/* Raises the limit of open files to the hard limit: the usual soft limit is too small for GPUs'
 * memory. */
void descriptors_raise_limit(void);

/*
 * Attaches to the store: from now on no extent exceeds its tenant's part, and the kernel's table
 * has room for all that descriptors_needed() counts. Warns if all memory as extents and all clients
 * together need more than the limit.
 */
void descriptors_attach(struct server *s);

/* Open files needed for all memory as extents and all clients together: for the warning, its test,
 * and administrators. */
uint64_t descriptors_needed(const struct server *s);

/* Entries of the descriptor store needed for the next start. */
uint64_t descriptors_kept_needed(const struct server *s);

/* Open files that the process may have; UINT64_MAX: unknown. */
uint64_t descriptors_limit(void);

#endif
