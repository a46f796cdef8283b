#include "policy/hosts/lanes.h"

#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "policy/sim/sim.h"

#define NSEC_A_SEC 1e9

struct lanes {
        struct lanes_options options;
        uint64_t *node_read_nsec;  /* owned; time when a node has sent all requested reads */
        uint64_t *node_write_nsec; /* owned; time when it has also made all writes */
        uint64_t *host_free_nsec;  /* owned; when a host has received it */
        /* The load that is gathered. */
        uint64_t *node_bytes; /* owned; of each node; 0: none */
        uint32_t *nodes;      /* owned; those that aren't 0 */
        uint32_t n_nodes, host;
        uint64_t bytes, most_bytes; /* in sum; of one value */
};

int lanes_new(const struct lanes_options *options, struct lanes **ret_lanes)
{
        struct lanes *l = calloc(1, sizeof(*l));

        if (!l)
                return -ENOMEM;
        l->options = *options;
        l->node_read_nsec = calloc((size_t)options->n_nodes + 1, sizeof(*l->node_read_nsec));
        l->node_write_nsec = calloc((size_t)options->n_nodes + 1, sizeof(*l->node_write_nsec));
        l->host_free_nsec = calloc((size_t)options->n_hosts + 1, sizeof(*l->host_free_nsec));
        l->node_bytes = calloc((size_t)options->n_nodes + 1, sizeof(*l->node_bytes));
        l->nodes = calloc((size_t)options->n_nodes + 1, sizeof(*l->nodes));
        if (!l->node_read_nsec || !l->node_write_nsec || !l->host_free_nsec || !l->node_bytes ||
                !l->nodes) {
                lanes_free(l);
                return -ENOMEM;
        }
        *ret_lanes = l;
        return 0;
}

void lanes_free(struct lanes *l)
{
        if (!l)
                return;
        free(l->node_read_nsec);
        free(l->node_write_nsec);
        free(l->host_free_nsec);
        free(l->node_bytes);
        free(l->nodes);
        free(l);
}

static uint64_t nsec_of(uint64_t bytes, uint64_t bytes_per_sec)
{
        double nsec = bytes_per_sec > 0 ? (double)bytes * NSEC_A_SEC / (double)bytes_per_sec : 0;

        return nsec < (double)SIM_TIME_MAX_NSEC ? (uint64_t)nsec : SIM_TIME_MAX_NSEC;
}

void lanes_begin(struct lanes *l, uint32_t host)
{
        while (l->n_nodes > 0)
                l->node_bytes[l->nodes[--l->n_nodes]] = 0;
        l->host = host;
        l->bytes = l->most_bytes = 0;
}

void lanes_add(struct lanes *l, uint64_t place, uint64_t bytes)
{
        l->bytes += bytes;
        l->most_bytes = MAX(l->most_bytes, bytes);
        if (l->options.n_nodes > 0) {
                uint32_t node = (uint32_t)(place % l->options.n_nodes);

                if (l->node_bytes[node] == 0)
                        l->nodes[l->n_nodes++] = node;
                l->node_bytes[node] += bytes;
        }
}

/* How long it takes from now on until a lane has these bytes behind it. */
static uint64_t until_done(
        uint64_t free_nsec, uint64_t bytes, uint64_t bytes_per_sec, uint64_t now_nsec)
{
        return minus_u64(free_nsec, now_nsec) + nsec_of(bytes, bytes_per_sec);
}

uint64_t lanes_estimate(const struct lanes *l, uint64_t now_nsec)
{
        const struct lanes_options *o = &l->options;
        uint64_t longest =
                until_done(l->host_free_nsec[l->host], l->bytes, o->host_bytes_per_sec, now_nsec);

        if (o->n_nodes == 0)
                longest = MAX(longest, nsec_of(l->most_bytes, o->node_bytes_per_sec));
        for (uint32_t i = 0; i < l->n_nodes; i++)
                longest = MAX(longest,
                        until_done(l->node_read_nsec[l->nodes[i]], l->node_bytes[l->nodes[i]],
                                o->node_bytes_per_sec, now_nsec));
        return o->rtt_nsec + longest + longest / 4;
}

static void occupy(uint64_t *free_nsec, uint64_t bytes, uint64_t bytes_per_sec, uint64_t now_nsec)
{
        *free_nsec =
                MIN(MAX(*free_nsec, now_nsec) + nsec_of(bytes, bytes_per_sec), SIM_TIME_MAX_NSEC);
}

void lanes_load(struct lanes *l, uint64_t now_nsec)
{
        const struct lanes_options *o = &l->options;

        occupy(&l->host_free_nsec[l->host], l->bytes, o->host_bytes_per_sec, now_nsec);
        for (uint32_t i = 0; i < l->n_nodes; i++) {
                uint32_t node = l->nodes[i];

                occupy(&l->node_read_nsec[node], l->node_bytes[node], o->node_bytes_per_sec,
                        now_nsec);
                /* Writes that wait come later by as much. */
                occupy(&l->node_write_nsec[node], l->node_bytes[node], o->node_bytes_per_sec,
                        now_nsec);
        }
}

uint64_t lanes_write_wait_nsec(const struct lanes *l, uint64_t place, uint64_t now_nsec)
{
        if (l->options.n_nodes == 0)
                return 0;
        return minus_u64(l->node_write_nsec[place % l->options.n_nodes], now_nsec);
}

void lanes_write(struct lanes *l, uint64_t place, uint64_t bytes, uint64_t now_nsec)
{
        if (l->options.n_nodes > 0)
                occupy(&l->node_write_nsec[place % l->options.n_nodes], bytes,
                        l->options.node_bytes_per_sec, now_nsec);
}
