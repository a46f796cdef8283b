/*
 * A peer of kvlease in a process of its own: a module of the Python package lab/bench/peers,
 * which drives another prefix cache and answers how long hits took.
 *
 *   start (it is there, and full) -> hits ... -> stop
 */
#ifndef KVL_BENCH_PEER_PROCESS_H
#define KVL_BENCH_PEER_PROCESS_H

#include <stdio.h>
#include <sys/types.h>

#include "tests/bench/bench.h"

#define PEER_MAX_ROWS 4
#define PEER_ROW_MAX  31

struct peer_process {
        pid_t pid;              /* 0: none */
        FILE *requests, *lines; /* owned; NULL: none */
        char rows[PEER_MAX_ROWS][PEER_ROW_MAX + 1];
        unsigned n_rows;
};

/*
 * Starts a module, which fills its cache with n_texts, and waits for it; the rows that it measures
 * are in ret->rows then. The interpreter is $KVL_PEERS_PYTHON, else that of the environment that
 * the part "peers" of tests/run.sh makes, else python3. `socket` is kvleased's, `cores` where it
 * runs. 0; -ENOENT: what it drives isn't installed; -EIO: it failed, or says something else. Errors
 * are told on stderr, and there is nothing to stop then.
 */
int peer_process_start(struct peer_process *ret, const char *name, unsigned n_texts,
        const char *socket, const int cores[N_CORES]);

/* Adds microseconds of n hits of one of its rows, after n more that warm it up. 0 or -EIO, told. */
int peer_process_hits(struct peer_process *p, const char *name, unsigned row, unsigned n,
        struct series *to_series);

/* Kills it. Of one that isn't started: nothing. */
void peer_process_stop(struct peer_process *p);

#endif
