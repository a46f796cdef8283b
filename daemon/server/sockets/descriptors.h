/*
 * The daemon's two rooms of descriptors: the open files of the process (RLIMIT_NOFILE), and what is
 * kept for the next one (FileDescriptorStoreMax=, --keep-max).
 *
 * | takes                         | open | kept |
 * |-------------------------------|------|------|
 * | a connection                  | 2, 3 | 2    |
 * | a namespace                   | 2, 4 | 4    |
 * | a client that has one open    | 1    | 2    |
 * | an extent                     | 1, 2 | 1    |
 *
 * Stores that other hosts share take some of the open files, as many as they have nodes.
 * (The second number of open files where they outlive the daemon; for extents, behind a queue.) A
 * reserve is kept out of the first, so that whoever comes to help still gets in. Each tenant has a
 * part of the rest (fd-parts.h), which is counted by what it has now: there is no account to drift,
 * or to be kept over a restart. What a connection, a namespace or a client of it may come to take
 * is counted when it comes, so that HELLO, SHM_OPEN, NS_SHARE, sessions and pins aren't refused
 * later.
 */
#ifndef KVL_SERVER_DESCRIPTORS_H
#define KVL_SERVER_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

struct server;
struct tenancy;
struct detail;

/* Connections kept beyond a limit only to be told so; further ones are closed. Not tuned. */
#define PEER_MAX_REFUSED 32

enum descriptors_kind { DESCRIPTORS_OPEN, DESCRIPTORS_KEPT, N_DESCRIPTORS };

/* A tenant's. */
struct descriptors_part {
        uint64_t used;
        uint64_t sure;  /* whatever others do */
        uint64_t limit; /* what it may have now, others being as they are */
};
struct descriptors_part descriptors_of(const struct tenancy *t, enum descriptors_kind kind);

/*
 * May the tenant have a connection more? 0, or -EMFILE with the sentence, which is in the log once.
 * Those that wait to resume aren't counted: they come on another one. `is_there`: it is counted,
 * and its client is a new one: they are counted all the same.
 */
int descriptors_admit_connection(struct tenancy *t, bool is_there, struct detail *d);

/* May a client of the tenant open a namespace, which is there already or isn't? Likewise. Where it
 * may not, some namespaces of the tenant go that are idle (idle.h). */
int descriptors_admit_ns(struct tenancy *t, bool is_there, struct detail *d);

/* Connections that are being told why they are refused, at most: 1 to PEER_MAX_REFUSED. */
uint32_t descriptors_most_refused(const struct server *s);

/* Raises the limit of open files as far as the hard limit goes: the usual soft limit is too small
 * for GPUs' memory. */
void descriptors_raise_limit(void);

/*
 * From here on the store makes no extents beyond their tenant's part, and the kernel's table has
 * room for all that descriptors_needed() counts. Warns where all memory as extents and all clients
 * together are more than the limit.
 */
void descriptors_attach(struct server *s);

/* Open files that all memory as extents and all clients together need: for the warning, its test,
 * and administrators. */
uint64_t descriptors_needed(const struct server *s);

/* Descriptors that they need kept for the next start. */
uint64_t descriptors_kept_needed(const struct server *s);

/* Open files that the process may have; UINT64_MAX: it isn't known. */
uint64_t descriptors_limit(void);

#endif
