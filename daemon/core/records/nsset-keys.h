/*
 * The keys of a namespace set: which of its namespaces have which. There is room for as many as its
 * namespaces have pages, and it is made with the pages, so that nothing fails when one is
 * published. What follows from where a key is: catalog/nsset.h. Loop thread only.
 */
#ifndef KVL_CORE_NSSET_KEYS_H
#define KVL_CORE_NSSET_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/map.h"
#include "daemon/core/ground/page.h"

struct ns;
struct nsset;

/* A key that is cached somewhere in the set. Bit i of a mask: members[i]. */
struct nsset_key {
        struct list_link link;        /* keys.spare; incomplete: keys.incomplete, oldest first */
        struct list_link doomed_link; /* keys.doomed, where `doomed` isn't 0 */
        struct nsset_key *same;       /* another key of the same hash */
        uint64_t here;                /* where it is cached, and is to stay */
        uint64_t doomed;              /* where it is cached, and is to go; none of `here` */
        uint64_t since_nsec;          /* incomplete */
        uint8_t key[KEY_BYTES];
        uint8_t why;      /* enum evict_reason, of doomed */
        uint8_t cause;    /* enum drop_cause, likewise */
        bool is_given_up; /* incomplete because a session gave it up somewhere: not in a list */
};

struct nsset_chunk {
        struct list_link link;
        size_t n;
        struct nsset_key entries[];
};

/* A namespace's page has at most one key, so there are never more entries in use than pages, and
 * room for them is made with the pages. */
struct nsset_keys {
        struct hash_seed seed;
        struct map by_hash;      /* -> first struct nsset_key of that hash */
        struct list_link chunks; /* owned */
        struct list_link spare, incomplete, doomed;
        uint64_t n_entries, n_used;
};

/* Pages that the set's namespaces have, or will have when they are made. */
uint64_t nsset_count_pages(const struct nsset *set);

/* The namespace is about to have n_pages more: makes room for their keys, some 110 bytes each (the
 * keys of all namespaces, most of them in each). 0 or -ENOMEM (unchanged). */
int nsset_reserve(struct ns *ns, uint32_t n_pages);

#endif
