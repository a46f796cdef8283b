/*
 * Messages between the daemon and its reaper: packets of a SOCK_SEQPACKET socketpair, one struct
 * each. Both are one program, so there is no version.
 */
#ifndef KVL_REAP_WIRE_H
#define KVL_REAP_WIRE_H

#include <stdint.h>

/* The only argument of the process. Internal: it isn't in --help. */
#define REAP_ARGUMENT "--internal-reaper"

/* Descriptors of the process: 0 to 2 are /dev/null. Each thread has a table of its own, with those
 * up to REAP_JOB_FD, so it can't keep others open when the process is killed. At first REAP_JOB_FD
 * is the program's (reaper.c). */
#define REAP_EVENT_FD  3 /* signalled by threads that are done */
#define REAP_JOB_FD    4 /* the job's, while its thread is started, and in its thread */
#define REAP_SOCKET_FD 5 /* the main thread's alone: closes with it, even if others hang */

/* Not a job: jobs up to this id may start, because the daemon has closed its own descriptors of
 * them. Else the daemon's close() could be the last one. */
#define REAP_GO 0

/* Message to the process: jobs with one descriptor each, in the order of their ids, and REAP_GO. */
struct reap_request {
        uint64_t id;
        uint64_t bytes; /* PUNCH */
        uint32_t op;    /* enum reap_op, REAP_GO */
        uint32_t unused;
};

/* Back, when the job is done. */
struct reap_reply {
        uint64_t id;
        int32_t result; /* 0 or -errno */
        uint32_t unused;
};

#endif
