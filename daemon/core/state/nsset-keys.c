#include "daemon/core/state/nsset-keys.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/core/state/ns.h"

uint64_t nsset_count_pages(const struct nsset *set)
{
        uint64_t n = 0;

        for (uint32_t i = 0; i < set->size; i++)
                if (set->members[i])
                        n += ns_n_sets(set->members[i]) * set->members[i]->geometry.set_pages;
        return n;
}

int nsset_reserve(struct ns *ns, uint32_t n_pages)
{
        struct nsset_keys *keys = ns->catalog.set ? ns->catalog.set->keys : NULL;
        uint64_t wanted = keys ? nsset_count_pages(ns->catalog.set) + n_pages : 0;
        struct nsset_chunk *c;
        size_t n;

        if (!keys || wanted <= keys->n_entries)
                return 0;
        n = wanted - keys->n_entries;
        if (map_reserve(&keys->by_hash, wanted - keys->n_used) < 0)
                return -ENOMEM;
        c = calloc(1, sizeof(*c) + n * sizeof(c->entries[0]));
        if (!c)
                return -ENOMEM;
        c->n = n;
        list_append(&keys->chunks, &c->link);
        for (size_t i = 0; i < n; i++) {
                list_append(&keys->spare, &c->entries[i].link);
                list_init(&c->entries[i].doomed_link);
        }
        keys->n_entries = wanted;
        return 0;
}
