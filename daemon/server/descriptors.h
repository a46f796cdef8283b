/*
 * The daemon's budget of file descriptors: one or two for every extent, two for every client and
 * every namespace (three and four where they outlive the daemon), one for every namespace a client
 * shares, and a reserve, so that whoever comes to help still gets in when memory has taken the
 * rest.
 */
#ifndef KVL_SERVER_DESCRIPTORS_H
#define KVL_SERVER_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

struct server;
struct detail;

/* Connections of administrators, files being replaced, the descriptors of a reply. Not tuned. */
#define DESCRIPTORS_RESERVE 48

/* Kept from clients: those of four administrators, and of the files they have written. Not tuned.
 */
#define DESCRIPTORS_ADMIN 12

#define DESCRIPTORS_PER_SHARE 1 /* of a pin segment */

/* Of its index segment: the daemon's, the readers'. Where they are kept, and of its records, and
 * the log of its sessions. */
uint32_t descriptors_per_ns(const struct server *s);

/* As far as the hard limit goes: the usual soft limit is too small for GPUs' memory. */
void descriptors_raise_limit(void);

/*
 * From here on the store makes no extents of the reserve. Warns where all memory as extents and all
 * clients together are more than the limit.
 */
void descriptors_attach(struct server *s);

/* May a request take n descriptors for good? 0, or -EMFILE with the sentence. */
int descriptors_admit(const struct server *s, uint32_t n, struct detail *d);

/*
 * Takes DESCRIPTORS_ADMIN descriptors that clients can't have then: at the start, before
 * one of them comes in, and when an administrator has left. False: there aren't as many.
 */
bool descriptors_hold(struct server *s);

/* They are free: an administrator comes, or asks for something. Until descriptors_hold(). */
void descriptors_open(struct server *s);

/* What that takes: for the warning, its test, and administrators. */
uint64_t descriptors_needed(const struct server *s);

/* Likewise of what is kept for the next start. */
uint64_t descriptors_kept_needed(const struct server *s);

/* Open files that the process may have; UINT64_MAX: it isn't known. */
uint64_t descriptors_limit(void);

#endif
