/*
 * Operations on a Redis or Valkey cluster, or one server, that several hosts share. It stores
 * values under keys, and knows nothing of pages, tenants or the contents of values. The interface
 * is like the disk's (daemon/tier/disk.h): the loop submits batches, and reaps them through a
 * descriptor. daemon/exchange decides above it on imports, exports, keys and trust.
 *
 *   batch:  new -> submitted -> done (its callback runs in remote_reap() or remote_close())
 *
 * A store is opened by one of two:
 *
 *   remote_open()  a client in this process (daemon/remote/store/remote.h);
 *   relay_open()   the client in another process, kvlease-exchange (daemon/relay/relay.h).
 *
 * The cluster is a cache. It may lose any value, or be unreachable, slow, full, resharded, or
 * hostile. Everything but a good answer is a miss, or a refused write. An operation ends at its
 * deadline at the latest, plus the time to schedule a thread. Its buffers are the caller's again
 * when the callback runs, not before.
 *
 * Threads: all functions from one (the loop), callbacks run there. No function blocks, except
 * remote_close() and, shortly, remote_take_back().
 */
#ifndef KVL_REMOTE_REMOTE_IO_H
#define KVL_REMOTE_REMOTE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "daemon/remote/endpoint/breaker.h"

struct remote_store;

#define REMOTE_NODES_MAX  512 /* masters that are known at once */
#define REMOTE_NAME_BYTES 80  /* "[address]:port", terminated */
#define REMOTE_KEY_MAX    512 /* bytes of a key; the servers allow 512 MiB */
#define REMOTE_KEYS_MAX   1024
#define REMOTE_OPS_MAX    1024        /* of one batch */
#define REMOTE_IOV_MAX    256         /* pieces of a value: planes, as DISK_IOV_MAX */
#define REMOTE_VALUE_MAX  (64u << 20) /* bytes of a value; the servers allow 512 MiB */

#define REMOTE_FAULT_BYTES 256

/* Latest deadline, from the submission on; later ones are cut. */
#define REMOTE_DEADLINE_MAX_NSEC (60 * NSEC_PER_SEC)

/* Conditions (> 0). */
enum {
        REMOTE_BUSY = 1, /* max_ops operations are submitted and not reaped */
};

/* Ends everything with -ECANCELED; callbacks run meanwhile. Waits for no node, and at most a second
 * for the thread that resolves names, which may end later. Nothing for NULL. */
void remote_close(struct remote_store *s);

/* Readable if remote_reap() has something to do. Borrowed. */
int remote_fd(const struct remote_store *s);

/* Runs callbacks of done batches; they may submit and cancel. Returns their number. */
unsigned remote_reap(struct remote_store *s);

/* ---- operations ------------------------------------------------------------------------------ */

enum remote_kind {
        REMOTE_PROBE,  /* EXISTS: number of existing keys. Doesn't count as a use of them */
        REMOTE_READ,   /* GET */
        REMOTE_WRITE,  /* SET with PX */
        REMOTE_REMOVE, /* UNLINK: number of keys that existed */
        REMOTE_TOUCH,  /* TOUCH: number of existing keys, which count as used */
};

/* Large operations never share a connection, nor a thread, with small ones: an EXISTS would be
 * answered after all values before it. */
enum remote_class { REMOTE_SMALL, REMOTE_LARGE };

struct remote_op;

/* Processes a value in place, in the store's thread: a READ's op->n_bytes once all have arrived; a
 * WRITE's before any of it is sent, once, even if it is sent again. Returns 0, or the -errno that
 * becomes the operation's result: then a WRITE isn't sent. It may use only the operation's buffers
 * and `data`. It must take a bounded time, in which the thread serves no other operation, and must
 * not wait. */
typedef int (*remote_value_fn)(const struct remote_op *op, void *data);

struct remote_op {
        /* READ, WRITE: one key. Else up to REMOTE_KEYS_MAX, all of one slot (slots.h): of one tag,
         * "{tag}rest". A key has 1 .. REMOTE_KEY_MAX bytes. remote_submit() copies the keys. */
        const struct iovec *keys;
        unsigned n_keys;
        /* READ: buffers for the value; bytes behind it are left alone. WRITE: the value. 1 ..
         * REMOTE_VALUE_MAX bytes together. Borrowed until the callback, with their memory. */
        const struct iovec *iov;
        unsigned n_iov;           /* 1 .. REMOTE_IOV_MAX */
        remote_value_fn on_value; /* READ, WRITE. NULL: none */
        void *value_data;         /* of on_value; borrowed until the callback */
        /* WRITE. */
        uint64_t expiry_msec; /* > 0, at most a year: the value expires after it */
        bool asks_first;      /* EXISTS first: an existing value isn't sent again */
        bool only_new;        /* SET with NX: an existing value stays */
        bool only_once;       /* if the result is unknown, it isn't sent again */

        /*
         * Set at the callback:
         *
         * 0            done;
         * -ENOENT      READ: the key doesn't exist;
         * -EEXIST      WRITE: the key exists, with asks_first or only_new;
         * -EMSGSIZE    READ: the value is longer than its buffers;
         * -ETIMEDOUT   the deadline. Whether a write, removal or touch was done is unknown;
         * -ECANCELED   remote_cancel(), or remote_close(); unknown as above;
         * -ECONNRESET, -EPROTO, other -errno of the network (-ETIMEDOUT: the node is silent):
         *              no connection, or it was lost; unknown as above;
         * -EHOSTDOWN   the node's breaker is open;
         * -EAGAIN, -EACCES, -ENOSPC, -EREMOTEIO: a server's errors, above. -EAGAIN also if no
         *              known node has the key's slot;
         * -ENOMEM;
         * result of on_value.
         *
         * If a read didn't end with 0, the contents of its buffers are undefined.
         */
        int result;
        uint64_t n_bytes; /* READ: of the value */
        uint32_t n_found; /* PROBE, REMOVE, TOUCH: keys */
};

struct remote_io;
typedef void (*remote_io_fn)(struct remote_io *io, void *data);

/* Heap memory, from remote_io_new(). The store owns it from submission until its callback returns,
 * and then frees it. Operations of a batch are independent of each other, and may end in any
 * order. */
struct remote_io {
        enum remote_kind kind;
        enum remote_class of_class;
        uint64_t deadline_nsec; /* CLOCK_MONOTONIC, for each operation */
        remote_io_fn done;      /* when all operations have their results */
        void *data;             /* borrowed */
        uint32_t n;             /* operations */
        struct remote_op ops[];
};

/* All zeros but n: 1 .. REMOTE_OPS_MAX. NULL: no memory. */
struct remote_io *remote_io_new(uint32_t n);

/* Frees one that wasn't taken. Nothing for NULL. */
void remote_io_free(struct remote_io *io);

/*
 * Takes the batch; its callback runs in remote_reap(), never here. Returns 0. Otherwise nothing was
 * done and the io is the caller's: REMOTE_BUSY; -EINVAL: an operation isn't as described above;
 * -EXDEV: keys of one operation are of two slots; -ENOMEM; -ESHUTDOWN: remote_close() runs.
 */
int remote_submit(struct remote_store *s, struct remote_io *io);

/* Operations that remote_submit() takes now: fewer by each that is taken, more by each that is
 * reaped. */
unsigned remote_room(const struct remote_store *s);

/*
 * Cancels a batch that was taken, at any time before its callback. Operations with a result keep
 * it; the rest end with -ECANCELED as soon as the threads release them. A partly sent write costs
 * the connection.
 */
void remote_cancel(struct remote_store *s, struct remote_io *io);

/*
 * remote_cancel() for buffers that are about to be freed: when it returns no thread uses them any
 * more. The callback still runs in remote_reap(). Waits for the threads, which wait for no node
 * meanwhile, but first process received data (some milliseconds, and the time of on_value).
 */
void remote_take_back(struct remote_store *s, struct remote_io *io);

/* ---- figures --------------------------------------------------------------------------------- */

/* Without gaps: kvlease-exchange sends it (daemon/relay/relay-wire.h). */
struct remote_node_stats {
        char name[REMOTE_NAME_BYTES];
        uint32_t n_slots;       /* that it serves, as last known */
        uint32_t n_connections; /* established */
        enum breaker_state breaker;
        int last_error;           /* of the last failed connection: -errno; 0: none failed */
        uint64_t open_nsec;       /* while it isn't closed: duration of the opening */
        uint64_t open_until_nsec; /* open: time of the next trial (CLOCK_MONOTONIC) */
        uint64_t rtt_nsec; /* of small operations, from sending to answer: a moving average over
                              some eight; 0: none yet */
        uint64_t bytes_in, bytes_out; /* of values */
        uint64_t n_ops;               /* answered */
        uint64_t n_errors;            /* answered by an error of the server's */
        uint64_t n_timeouts;          /* ended by their deadline after they were sent */
        uint64_t n_losses;            /* connections that failed, or couldn't be made */
        uint64_t n_trips;             /* times its breaker opened */
};

/* Without gaps before `fault`: kvlease-exchange sends that part (daemon/relay/relay-wire.h). */
struct remote_stats {
        uint32_t is_known;   /* bool: slots have been learnt */
        uint32_t is_cluster; /* bool; else one node serves all slots */
        uint32_t n_served;   /* slots served by a node */
        int refresh_error;   /* of the last reading of slots: -errno; 0: success */
        uint64_t n_refreshes, n_redirects;
        uint64_t n_hits, n_misses;     /* reads that ended with 0; with another result */
        uint64_t n_written, n_refused; /* writes that ended with 0; with -ENOSPC or -EACCES */
        uint32_t n_nodes;
        uint32_t n_waiting;             /* operations submitted and not reaped */
        char fault[REMOTE_FAULT_BYTES]; /* sentence: why there is no client; "": there is one */
};

/* Open files of this process that it uses, or may use with the nodes known now: those of its
 * threads, and a connection of each thread to each node. */
unsigned remote_descriptors(struct remote_store *s);

/*
 * State of the store as a whole.
 *
 *   UNKNOWN    its nodes are still being asked for their slots;
 *   REACHED    slots are known, and at least one node's breaker is closed;
 *   UNREACHED  no node's breaker is closed, or no node is known: no name resolves.
 */
enum remote_state { REMOTE_UNKNOWN, REMOTE_REACHED, REMOTE_UNREACHED };

/* "unknown", "reached", "unreached"; static. */
const char *remote_state_name(enum remote_state state);

struct remote_summary {
        enum remote_state state;
        uint32_t n_nodes;                   /* of remote_node_next() */
        uint32_t n_left_alone;              /* of these, with a breaker that isn't closed */
        uint64_t rtt_nsec;                  /* of the slowest node; 0: not known */
        char left_alone[REMOTE_NAME_BYTES]; /* one of these; "": none is */
        int last_error;                     /* of it: -errno; 0: none */
        char fault[REMOTE_FAULT_BYTES];     /* of remote_stats */
};

/* Text of a node's error (remote_summary.last_error) for people; names the options that matter
 * where strerror() wouldn't. */
const char *remote_error_text(int error);

/* Why the store isn't reached, for people: its fault, or the error of a node; "": not known.
 * Borrowed from the summary, or static. */
const char *remote_summary_why(const struct remote_summary *summary);

/* These take a moment: a lock that other threads hold briefly, never while they wait. */
void remote_summary(struct remote_store *s, struct remote_summary *ret_summary);
void remote_stats(struct remote_store *s, struct remote_stats *ret_stats);

/* Iterates over the nodes: *iter 0 first; false at the end. Nodes made meanwhile may be missing. */
bool remote_node_next(struct remote_store *s, unsigned *iter, struct remote_node_stats *ret_stats);

#endif
