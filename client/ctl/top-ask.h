/* One look of kvleasectl top at the daemon: the requests, and the data kept of their answers. */
#ifndef KVL_CTL_TOP_ASK_H
#define KVL_CTL_TOP_ASK_H

#include "client/ctl/admin.h"
#include "client/ctl/top-view.h"

#define TOP_NAME_MAX 64

/* Totals of all devices, or of one of their lower tiers. */
struct top_tier {
        unsigned n, n_bad;
        char name[TOP_NAME_MAX]; /* of the first one; cut */
        uint64_t budget_bytes, used_bytes;
};

/* Data of the lines above the view, besides rates. */
struct top_daemon {
        char version[TOP_NAME_MAX];
        uint64_t uptime_sec, lookup_keys, lookup_hits;
        unsigned n_tenants, n_namespaces, n_clients, n_waiting, fragmentation_permille;
        bool is_draining;
        struct top_tier device, host, disk;
        /* All devices: reserved bytes, and used ones of these; the same for the rest. */
        uint64_t pinned_bytes, pinned_used_bytes, pool_bytes, pool_used_bytes;
};

struct top_look {
        struct top_daemon daemon;
        struct top_sample totals;
        struct top_sample views[TOP_N_VIEWS]; /* namespaces and regions, and the chosen one */
        bool has[TOP_N_VIEWS];
};

/* Asks for all that a view needs. Returns CTL_OK: the caller owns *ret_look, whose counters aren't
 * rated yet. Otherwise it is untouched, and a sentence has been printed. */
int top_ask(struct admin *admin, enum top_view_id view, struct top_look *ret_look);
void top_look_deinit(struct top_look *look);

/* Rates all samples of `now` against the last look with each. They replace its samples: afterwards
 * `last` is shown, and `now` is empty. `last` may be zeroed at first. */
void top_look_advance(struct top_look *last, struct top_look *now);

#endif
