/*
 * Two or three hosts for a test: kvleased with clients of their own, and Redis servers that all
 * know as [remote x] of their tenant "a". They share its namespace "ns"; texts of N_PAGES are
 * computed there and found here. Asserts by cmocka. One test at a time.
 *
 * hosts_find_server() -> (servers are added) -> hosts_start_daemons() -> hosts_end()
 */
#ifndef KVL_TEST_EXCHANGE_HOSTS_H
#define KVL_TEST_EXCHANGE_HOSTS_H

#include "base/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/oversleep.h"
#include "tests/integration/redis-cluster.h"

#define N_PAGES 20 /* 320 tokens: from 256 on they are loaded */

#define PATIENCE_NSEC (60 * NSEC_PER_SEC)
#define LONG_MSEC     10000 /* of a lookup that finds something */
#define NOW_MSEC      1     /* the least there is: of one that needn't wait */

#define HOSTS_MAX 3

extern struct redis_cluster server;
extern struct harness *here, there, elsewhere;

/* The hosts by number: here, there, elsewhere. */
struct harness *host_at(unsigned i);

/* Skips the test if no server is installed. */
void hosts_find_server(void);

/* Adds a server, or a cluster of more masters than one. */
void hosts_add_servers(unsigned n_masters);

/* Adds masters, each with a replica. */
void hosts_add_replicated(unsigned n_masters);

/* Options of all hosts. */
struct hosts_options {
        unsigned n_hosts;         /* 0: 2 */
        unsigned prefill;         /* tokens a second that engines compute, as the tenants
                                     have it; 0: they say it themselves */
        const char *tenant_lines; /* more of all tenants; NULL: none */
        const char *here_lines, *there_lines; /* more of [remote x]; NULL: none */
        bool is_kept;                         /* kvleased is started again where it dies */
        const pid_t *net_pids; /* each host is in the network of a process; NULL: all are here */
};

/* One token a second: computing is so slow that loading always pays. */
#define HOSTS_PREFILL 1

/* Starts the hosts' daemons; *state is cmocka's argument of the test. */
void hosts_start_daemons(void **state, const struct hosts_options *o);

/* Restarts the daemon here with other lines. No client may be connected. */
void hosts_restart_here(const struct hosts_options *o);

/* Checks every host as at a test's end, then ends the servers. */
void hosts_end(void **state);

/* A client of one host. */
struct worker *host_worker(struct harness *h);

/* Returns the epoch as redis-cli shows it (a number, in quotes), owned; NULL: there is none.
 * *ret_server (may be NULL): the master that has it. */
char *read_epoch(unsigned *ret_server);

/* Waits until the other host has an epoch: pages published there are exported from now on. */
void await_epoch(void);
void await_other_epoch(const char *before);

/* Lets all hosts read their clients' rings: pages found there count as found. */
void hosts_look_at_rings(void);

/* Pages of all servers. */
unsigned count_exported(void);
void await_exported(unsigned n);

/* Waits until the host knows the epoch: pages published there are exported from now on. */
void await_ready(struct harness *h);

/* The other host computes a text, and a client there finds it. The servers then have n_exported
 * pages. */
void share_chain(unsigned chain, unsigned n_exported);

/* A client computes a text and releases its pages. */
void compute_chain(struct worker *w, unsigned chain);

/* Looks up with this time limit and returns how many pages were found; each has the right bytes. */
unsigned find_chain(struct worker *w, unsigned chain, unsigned msec);

/* find_chain(); *ret_nsec: the time of the lookup alone. */
unsigned find_chain_timed(struct worker *w, unsigned chain, unsigned msec, uint64_t *ret_nsec);

/* The answer to a client that asks how much of a text there is. Nothing is loaded for it. */
struct told {
        unsigned n_here, n; /* pages on its host; there, or on others as well */
        bool would_load;    /* pages of other hosts */
};
struct told ask_of_chain(struct worker *w, unsigned chain, unsigned msec);

/* Asks until all of the text can be had. Before, a load may get one node's part alone, and leave
 * too little to be loaded later. */
struct told await_whole(struct worker *w, unsigned chain);

/* Waits until all of it is found. */
void await_chain(struct worker *w, unsigned chain);

/* Waits until a text that the host lacks can be had as a whole, then finds it. */
void find_whole(struct worker *w, unsigned chain);

/* Waits until n pages of it are cached on the client's host. Invalidations of another host arrive
 * within a second. */
void await_left(struct worker *w, unsigned chain, unsigned n);

/* ---- lookups that mustn't be late ---- */

struct lookups {
        unsigned n;
        uint64_t late_nsec; /* of the latest one, after its deadline */
        struct oversleep asleep;
};

void lookups_begin(struct lookups *l);

/* A lookup with this time limit. Returns how many pages were found. */
unsigned look_up(struct lookups *l, struct worker *w, unsigned chain, unsigned msec);

/* No lookup was late, apart from this machine's own delays. */
void lookups_end(struct lookups *l);

/* ---- what administrators are told ---- */

/* A figure of a host's exchange, as Prometheus gets it. */
#define OF_A "{tenant=\"a\",remote=\"x\"}"
double figure_of(const struct harness *h, const char *series);

/* kvleasectl explains whether a missing key would be imported, without a probe: `outlook`. `part`
 * is in its sentence. */
void assert_forecast(struct harness *h, const char *outlook, const char *part);

/* Number of events here of this reason and remote x; *ret_count: sum of their counts. `says` (may
 * be NULL) is in all of them. */
unsigned count_events_that_say(
        const char *reason, const char *tenant, const char *says, uint64_t *ret_count);

/* Waits for an event of the remote itself. */
void await_event(const char *reason);

#endif
