/*
 * The daemon's budget of file descriptors: one for every extent, two for every client, and a
 * reserve, so that whoever comes to help still gets in when memory has taken the rest.
 */
#ifndef KVL_SERVER_DESCRIPTORS_H
#define KVL_SERVER_DESCRIPTORS_H

#include <stdint.h>

struct server;

/* Connections of administrators, files being replaced, the descriptors of a reply. Not tuned. */
#define DESCRIPTORS_RESERVE 48

/* As far as the hard limit goes: the usual soft limit is too small for GPUs' memory. */
void descriptors_raise_limit(void);

/*
 * From here on the store makes no extents of the reserve. Warns where all memory as extents and all
 * clients together are more than the limit.
 */
void descriptors_attach(struct server *s);

/* What that takes: for the warning, and its test. */
uint64_t descriptors_needed(const struct server *s);

#endif
