/* A namespace set: namespaces of one tenant that belong together. catalog/nsset.h says how. */
#ifndef KVL_CORE_OBJECTS_NSSET_H
#define KVL_CORE_OBJECTS_NSSET_H

#include <stdint.h>

#include "base/list.h"
#include "daemon/core/ground/geometry.h"

struct ns;
struct nsset_keys;

#define NSSET_MAX_SIZE 64

struct nsset {
        struct list_link link; /* tenant.nssets */
        uint64_t id;           /* never reused while the daemon runs */
        char name[NS_NAME_MAX + 1];
        uint32_t size, n_members;
        struct ns *members[NSSET_MAX_SIZE]; /* by struct ns.set_place; NULL: free */
        uint64_t n_complete, n_incomplete;  /* keys; without those being dropped */
        uint64_t n_dropped;                 /* keys dropped as incomplete, since it was made */
        struct nsset_keys *keys;            /* owned: each key's members and times */
};

#endif
