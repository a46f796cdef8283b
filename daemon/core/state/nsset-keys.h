/*
 * The keys of a namespace set: which of its namespaces have which key. There is an entry for each
 * page of its namespaces, made with the pages, so that publishing a page can't fail.
 * cache/nsset.h uses them. Loop thread only.
 */
#ifndef KVL_CORE_NSSET_KEYS_H
#define KVL_CORE_NSSET_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/map.h"
#include "daemon/core/state/geometry.h"
#include "daemon/core/state/page.h"

struct ns;
struct nsset;
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

/* A key that is cached in a namespace of the set. Bit i of a mask: members[i]. */
struct nsset_key {
        struct list_link link;        /* keys.spare; if incomplete: keys.incomplete, oldest first */
        struct list_link doomed_link; /* keys.doomed if `doomed` isn't 0 */
        struct nsset_key *same;       /* another key of the same hash */
        uint64_t here;                /* where it is cached and stays */
        uint64_t doomed;     /* where it is cached and is being dropped; disjoint from `here` */
        uint64_t since_nsec; /* since when it is incomplete */
        uint8_t key[KEY_BYTES];
        uint8_t why;      /* enum evict_reason, of doomed */
        uint8_t cause;    /* enum drop_cause, of doomed */
        bool is_given_up; /* a session gave it up in a namespace, so it is incomplete; in no list */
};

struct nsset_chunk {
        struct list_link link;
        size_t n;
        struct nsset_key entries[];
};

/* A page has at most one key, and entries are made with the pages: never more entries are in use
 * than there are pages. */
struct nsset_keys {
        struct hash_seed seed;
        struct map by_hash;      /* -> first struct nsset_key of that hash */
        struct list_link chunks; /* owned */
        struct list_link spare, incomplete, doomed;
        uint64_t n_entries, n_used;
};

/* Returns the pages that the set's namespaces have or are making. */
uint64_t nsset_count_pages(const struct nsset *set);

/* Makes entries for n_pages more pages of the namespace, some 110 bytes each (a key in all
 * namespaces of the set has one entry). Returns 0 or -ENOMEM (nothing changed). */
int nsset_reserve(struct ns *ns, uint32_t n_pages);

#endif
