/*
 * Hosts for a test: network namespaces, each with a link to that of the test, through which they
 * reach each other. They end with the test. Needs the right to make namespaces, and the programs
 * ip, tc and nsenter (Debian: iproute2, util-linux). Nothing here asserts.
 */
#ifndef KVL_TEST_HOST_NET_H
#define KVL_TEST_HOST_NET_H

#include <stdbool.h>
#include <sys/types.h>

#define HOST_NET_MAX 6

struct host_net {
        unsigned n;
        pid_t pids[HOST_NET_MAX]; /* of a process in each; 0: none */
        char addresses[HOST_NET_MAX][16];
        int old_net; /* the test's original namespace; -1: none */
};

/*
 * Moves the calling thread, and threads and processes that it starts from now on, into a network
 * namespace with links to n_hosts others. Returns 0, -EPERM (not permitted), or -ENOENT (a program
 * is missing or refused). In each case the same thread calls host_net_deinit() later.
 */
int host_net_init(struct host_net *net, unsigned n_hosts);
void host_net_deinit(struct host_net *net);

/* State of a link. HOST_NET_WELL undoes each of the others. */
enum host_net_state {
        HOST_NET_WELL,
        HOST_NET_DOWN, /* nothing comes through; only the host itself is told */
        HOST_NET_CUT,  /* nothing comes through, and the host isn't told either */
        HOST_NET_MUTE, /* packets to the host arrive, its answers don't */
        HOST_NET_SLOW, /* the host sends 8 Mbit/s */
};

/* Returns 0, or -EIO if it failed. */
int host_net_set(struct host_net *net, unsigned i, enum host_net_state state);

#endif
