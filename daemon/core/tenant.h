/*
 * A tenant: the trust domain. Attributes, its account, its namespaces. Loop thread only.
 */
#ifndef KVL_CORE_TENANT_H
#define KVL_CORE_TENANT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/parse.h"
#include "daemon/core/account.h"

struct store;
struct detail;

struct tenant_attrs {
        uint64_t limit_bytes; /* most bytes of extent sets */
        uint32_t weight;      /* 1..1000, share of the pool */
        uint32_t priority;    /* 0..100 */
        uint32_t max_clients; /* 1..65535 */
};

struct tenant_counters {
        uint64_t evictions; /* pages of this tenant evicted */
        uint64_t refusals;  /* lease requests refused */
};

struct tenant {
        struct list_link link; /* store.tenants */
        struct store *store;   /* borrowed */
        char name[TENANT_NAME_MAX + 1];
        struct tenant_attrs attrs; /* limit_bytes is account.limit_bytes */
        struct account account;
        struct list_link namespaces; /* struct ns.link */
        struct list_link groups;     /* struct group.link */
        uint32_t n_members;
        uint32_t n_recalled;     /* sets that are being taken back, quarantined ones included */
        uint64_t recalled_bytes; /* of these */
        struct tenant_counters counters;
        void *server_data; /* the server's object for this tenant; borrowed, not touched here */
};

/* 0; -EEXIST; -EINVAL (name, range); -ENOMEM. */
int tenant_new(struct store *s, const char *name, const struct tenant_attrs *attrs,
        struct tenant **ret_tenant, struct detail *d);

/*
 * Takes effect at once. A limit below what is charged first gives idle sets back and evicts cached
 * pages in sets that nobody has mapped; of what remains as many sets are recalled as are too many
 * (recall.h), and nothing new is bound. A higher limit later calls no recall off. 0 or -EINVAL.
 */
int tenant_set_attrs(struct tenant *t, const struct tenant_attrs *attrs, struct detail *d);

/* -EBUSY while it has members; with memory or namespaces only where `force`. 0: it is freed. */
int tenant_remove(struct tenant *t, bool force, struct detail *d);

struct tenant *tenant_find(struct store *s, const char *name);

#endif
