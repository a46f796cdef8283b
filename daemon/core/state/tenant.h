/* A tenant: the trust domain, with attributes, accounts and namespaces. Loop thread only. */
#ifndef KVL_CORE_TENANT_H
#define KVL_CORE_TENANT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/parse.h"
#include "daemon/core/state/codecs.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/pool.h"
#include "gpu/device.h"
#include "policy/place.h"
#include "policy/schedule.h"
#include "policy/sizer.h"
#include "policy/tier.h"

struct detail;
struct evict_ops;
struct tenant_listener;
struct store;

enum sizing_mode { SIZING_OFF, SIZING_DRY_RUN, SIZING_ON };

struct sizing_attrs {
        enum sizing_mode mode;
        uint64_t min_bytes, max_bytes; /* min <= max */
        struct schedule schedule;
};

/* Owned by its tenant. */
struct sizing {
        struct sizing_attrs attrs;
        struct sizer *sizer; /* owned; NULL: none needed */
        /* The latest decision. "hold" and "at-min" after a moved reservation leave its reason. */
        struct sizer_decision last;
        bool last_moved;               /* `last` moved the reservation */
        struct detail refusal;         /* SIZER_REFUSED: which tenant has the memory */
        uint64_t decided_nsec;         /* time of the first decision equal to `last`; 0: none */
        uint64_t n_changes;            /* reservations moved, since start */
        uint64_t min_bytes, max_bytes; /* in force now: the schedule's, or attrs'; whole steps, at
                                          most the tenant's limit */
        uint64_t reserved_bytes;       /* at the last look */
        uint32_t n_samples;
};

/* The limit of max_clients; a page's pins are counted by it (group.h). */
#define TENANT_MAX_CLIENTS 65535

/* Zero is the default for tests: dynamic, refused if memory lacks. */
enum tenant_class { TENANT_DYNAMIC, TENANT_PINNED };
enum when_full { WHEN_FULL_REJECT, WHEN_FULL_QUEUE, WHEN_FULL_DEGRADE };
enum burst { BURST_POOL, BURST_NONE };

struct tenant_attrs {
        uint64_t limit_bytes; /* most bytes of extent sets on devices */
        uint64_t
                host_limit_bytes; /* the same for host memory below devices; 0: no demotion there */
        uint64_t disk_limit_bytes; /* the same for disks */
        uint32_t weight;           /* 1..1000, share of the dynamic pool */
        uint32_t priority;         /* 0..100 */
        uint32_t max_clients;      /* 1..TENANT_MAX_CLIENTS */
        uint32_t max_pins;         /* of one client, over the socket; 0: PAGE_MAX_CLIENT_PINS */
        enum tenant_class class;
        uint64_t reserve_bytes; /* pinned: guaranteed, over all devices; 0 where dynamic */
        enum when_full when_full;
        uint64_t max_wait_nsec; /* of a waiting lease */
        enum burst burst;       /* pinned: may it go beyond its reservation? */
        bool lend_idle_reserve; /* pinned: its unused reserve may carry other tenants' sets */
        enum place_policy placement;
        char device[DEVICE_NAME_MAX + 1]; /* PLACE_DEVICE */
        bool exclusive;                   /* no other tenant on its devices */
        const struct evict_ops *evict;    /* for namespaces made later; NULL: the store's */
        uint32_t crossover_tokens; /* for these, too: evict_params; 0: misses cost the same */
        uint64_t expire_nsec, expire_unused_nsec; /* expire.h; 0: never */
        uint64_t session_expire_nsec; /* idle time of sessions without their own; 0: never */
        uint32_t free_ahead;          /* percent of its pages in a namespace; 0..50 (prealloc.h) */
        uint32_t prefetch_steps;      /* pages ahead in a stream; 0: no prefetch (prefetch.h) */
        /* For namespaces made later whose first opener names none: codec_layers_parse(); "" is
         * none. */
        char host_codec[CODEC_OPTION_MAX + 1], disk_codec[CODEC_OPTION_MAX + 1];
        uint64_t events_bytes; /* most bytes of feeds; 0: none, and existing ones end */
};

struct tenant_counters {
        uint64_t evictions;     /* pages of this tenant evicted */
        uint64_t refusals;      /* lease requests refused */
        uint64_t waits;         /* lease requests that waited */
        uint64_t waited_nsec;   /* sum of the times that they waited */
        uint64_t max_wait_nsec; /* the longest */
        uint64_t degraded;      /* lease requests that got fewer pages than they asked for */
        uint64_t mismatches;    /* times that a client found wrong numbers in a page */
        uint64_t by_reason[LEASE_REASONS]; /* refusals, by enum lease_reason */
};

struct tenant {
        char name[TENANT_NAME_MAX + 1]; /* first: base/probe.h */
        uint64_t mark;                  /* suspect.h */
        uint32_t number;                /* not reused before 2^32 others */
        struct list_link link;          /* store.tenants */
        struct store *store;            /* borrowed */
        struct tenant_attrs attrs;
        union {
                struct account accounts[TIER_COUNT]; /* with the limits of attrs */
                struct account account;              /* TIER_DEVICE's */
        };
        struct list_link namespaces; /* struct ns.link */
        struct list_link nssets;     /* struct nsset.link */
        struct list_link groups;     /* struct group.link */
        struct list_link shares;     /* struct pool_share.tenant_link: one for each pool */
        struct list_link blames;     /* struct blame.link: tenants whose leases evicted its pages */
        struct list_link tasks;      /* struct task.link; the next turn first */
        struct list_link tasks_link; /* store.tasks, where there are any */
        struct sizing sizing;
        uint32_t n_members;
        uint32_t n_namespaces, n_attachments; /* its namespaces; the attachments of its clients */
        uint64_t feeds_bytes;                 /* of its namespaces' feeds (feed.h) */
        uint32_t n_feeds;
        uint32_t n_recalled;     /* sets being taken back, quarantined ones included */
        uint64_t recalled_bytes; /* of these */
        struct {
                uint32_t n_sets;
                uint32_t n_refused; /* of these: the kernel refuses to free the memory */
                uint64_t bytes;
        } held; /* freed sets whose memory is held up (discard.h) */
        struct tenant_counters counters;
        struct tenant_listener *listener; /* above the core (listeners.h); NULL: none */
        void *server_data; /* the server's object for this tenant; borrowed, not touched here */
};
static_assert(offsetof(struct tenant, name) == 0, "probes");

/* Returns the attributes' limit for a tier. */
uint64_t tenant_limit(const struct tenant_attrs *attrs, enum tier_kind tier);

struct tenant *tenant_find(struct store *s, const char *name);

/* Returns the tenant's share of a pool of the same store; never NULL. O(pools). */
struct pool_share *pool_share_find(const struct tenant *t, const struct pool *pool);

#endif
