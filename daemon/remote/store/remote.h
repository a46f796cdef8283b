/*
 * A client of Redis or Valkey: of a cluster, or of one server, that several hosts share. It keeps
 * values under keys there, and knows nothing of pages, tenants or what values hold. It is an
 * interface like the disk's (daemon/tier/disk.h): the loop submits batches, and reaps them through
 * a descriptor. What is imported and exported, under which keys, and whether to believe what comes
 * back, is decided above it (daemon/core/exchange).
 *
 *   batch:       new -> submitted -> done (its callback runs in remote_reap() or remote_close())
 *   operation:   waits -> is sent -> answered | redirected once | ended by deadline, cancel, loss
 *   connection:  closed -> connecting -> (TLS) -> (AUTH) -> ready -> closed
 *   node:        its breaker (daemon/remote/endpoint/breaker.h): closed, open, half open
 *
 * The cluster is a cache that may lose anything, may be gone, slow, full, resharded, or an enemy's:
 * everything but a good answer is a miss, or a write that was refused. What holds nevertheless:
 *
 *   - an operation ends at its deadline at the latest, but for the time that a thread needs to be
 *     scheduled; its buffers are the caller's again when the callback runs, not before
 *   - a deadline that was too short says nothing about the node, and costs others nothing: an
 *     answer that comes after it is passed over. A node has failed that sends nothing for
 *     remote_options.silence_msec, and takes nothing of a value, while it owes answers on a
 *     connection
 *   - the bytes of a value are received straight into the buffers of a read, and sent straight from
 *     those of a write: they aren't copied, but for up to REMOTE_INPUT_BYTES that arrive together
 *     with a header, and with TLS
 *   - what is under way on one connection is bounded (REMOTE_WINDOW_BYTES): a server buffers
 *     replies that aren't read, and evicts keys for those buffers when its memory is full
 *   - what a server sends is parsed strictly (resp.h), and bounded. Nonsense closes the
 *     connection
 *
 * Whoever answers as a node of the cluster sends this client, and its secret, to any address that
 * he likes: that is how clusters work. Where others could answer in a node's place TLS is needed.
 *
 * A node's slots are learnt by CLUSTER SLOTS at the start, every REMOTE_REFRESH_NSEC, and after
 * whatever says that they may have moved: MOVED, READONLY, CLUSTERDOWN, a lost connection.
 *
 * What a server's errors become (`result`):
 *
 *   MOVED, ASK         the operation is sent once more, to that node; at a second one: -EAGAIN
 *   TRYAGAIN           -EAGAIN: keys of one slot lie on two nodes while it is moved
 *   CLUSTERDOWN        -EAGAIN, and the slots are asked for: nobody serves this one
 *   READONLY           -EAGAIN, likewise: what was a master is a replica
 *   LOADING, MASTERDOWN  -EAGAIN, and the breaker opens: the node answers nothing else for now
 *   NOAUTH, WRONGPASS, and AUTH refused  -EACCES, and the breaker opens
 *   NOPERM             -EACCES: of this key or command; the node serves others
 *   OOM                -ENOSPC: a write was refused; reads go on
 *   others             -EREMOTEIO
 *
 * A node whose certificate isn't believed is -EKEYREJECTED, and the breaker opens.
 *
 * Threads: all functions from one (the loop), callbacks run there. The store's own threads have the
 * sockets: one for small operations, and remote_options.large_threads for large ones, each with at
 * most one connection to a node; names are resolved by a thread of their own, if there are any.
 * Nothing here blocks, but for remote_open(), remote_close() and, shortly, remote_take_back().
 */
#ifndef KVL_REMOTE_REMOTE_H
#define KVL_REMOTE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "daemon/remote/endpoint/breaker.h"
#include "daemon/remote/endpoint/remote-options.h"

struct remote_store;

#define REMOTE_NODES_MAX  512 /* masters that are known at once */
#define REMOTE_NAME_BYTES 80  /* "[address]:port", terminated */
#define REMOTE_KEY_MAX    512 /* bytes of a key; the servers allow 512 MiB */
#define REMOTE_KEYS_MAX   1024
#define REMOTE_OPS_MAX    1024        /* of one batch */
#define REMOTE_IOV_MAX    256         /* pieces of a value: planes, as DISK_IOV_MAX */
#define REMOTE_VALUE_MAX  (64u << 20) /* bytes of a value; the servers allow 512 MiB */

/* Under way on one connection, or one operation that is larger. What a server has written and
 * nobody has read yet lies in its memory, for which Redis evicts keys when that is full (its issue
 * 4496): many unread replies would cost more than they bring. Not tuned. */
#define REMOTE_WINDOW_BYTES (2u << 20)

/* Operations under way on one connection. Not tuned. */
#define REMOTE_WINDOW_OPS 128

#define REMOTE_INPUT_BYTES (16u << 10)

/* A later deadline counts as this one, from the submission on. */
#define REMOTE_DEADLINE_MAX_NSEC (60 * NSEC_PER_SEC)

/* Slots are asked for so often in any case. Not tuned. */
#define REMOTE_REFRESH_NSEC (10 * NSEC_PER_SEC)

/* Conditions (> 0). */
enum {
        REMOTE_BUSY = 1, /* as many operations as may be are submitted and not reaped */
};

/*
 * Starts the threads. Doesn't wait for the cluster: until it is found, everything is a miss. Blocks
 * for reading the files of TLS. 0; -EINVAL: an address, a number or a file isn't usable; other
 * -errno. `why` is a sentence after an error, "" else.
 */
int remote_open(const struct remote_options *options, struct remote_store **ret_store,
        char why[REMOTE_WHY_BYTES]);

/* Ends everything with -ECANCELED; callbacks run meanwhile. Waits for no node, and no longer than a
 * second for the thread that resolves names, which else ends by itself later. NULL: nothing. */
void remote_close(struct remote_store *s);

/* Readable where remote_reap() has something to do. Borrowed. */
int remote_fd(const struct remote_store *s);

/* Runs callbacks of batches that are done by now; they may submit and cancel. Returns their number.
 */
unsigned remote_reap(struct remote_store *s);

/* ---- operations ------------------------------------------------------------------------------ */

enum remote_kind {
        REMOTE_PROBE,  /* EXISTS: how many of the keys are there. Doesn't count as a use of them */
        REMOTE_READ,   /* GET */
        REMOTE_WRITE,  /* SET with PX */
        REMOTE_REMOVE, /* UNLINK: how many of the keys were there */
        REMOTE_TOUCH,  /* TOUCH: how many of the keys are there, which count as used */
};

/* Large ones never share a connection, nor a thread, with small ones: the answer to an EXISTS would
 * come after all the values that are under way before it. */
enum remote_class { REMOTE_SMALL, REMOTE_LARGE };

struct remote_op;

/* Works on a value where it lies, in the store's thread, so that the loop needn't: a READ's, of
 * op->n_bytes, once all of it has arrived; a WRITE's before any of it is sent, and once however
 * often it is sent. 0, or the -errno that becomes the operation's result: a WRITE isn't sent then.
 * It uses nothing but the operation's buffers and `data`, takes a bounded time, in which the thread
 * serves nobody else, and waits for nothing. */
typedef int (*remote_value_fn)(const struct remote_op *op, void *data);

struct remote_op {
        /* READ, WRITE: one key. Else up to REMOTE_KEYS_MAX, all of one slot (slots.h): of one tag,
         * "{tag}rest". Of 1 .. REMOTE_KEY_MAX bytes. Copied. */
        const struct iovec *keys;
        unsigned n_keys;
        /* READ: where the value goes; what is behind it is left alone. WRITE: the value. Up to
         * REMOTE_VALUE_MAX bytes together, more than 0. Borrowed until the callback, as what they
         * name. */
        const struct iovec *iov;
        unsigned n_iov;           /* 1 .. REMOTE_IOV_MAX */
        remote_value_fn on_value; /* READ, WRITE. NULL: none */
        void *value_data;         /* its `data`; borrowed until the callback */
        /* WRITE. */
        uint64_t expiry_msec; /* > 0, at most a year: the value goes after it */
        bool asks_first;      /* EXISTS first: a value that is there isn't sent again */
        bool only_new;        /* SET with NX: a value that is there stays */
        bool only_once;       /* it may be done, and nobody know: it isn't sent again then */

        /*
         * Set by then.
         *
         * 0            done
         * -ENOENT      READ: it isn't there
         * -EEXIST      WRITE: it is there, and asks_first or only_new was said
         * -EMSGSIZE    READ: the value is longer than its buffers
         * -ETIMEDOUT   the deadline. Whether a write, a removal or a touch was done isn't known
         * -ECANCELED   remote_cancel(), or remote_close(); likewise
         * -ECONNRESET, -EPROTO, other -errno of the network (-ETIMEDOUT: the node says nothing):
         *              the connection was lost, or couldn't be made; likewise
         * -EHOSTDOWN   the node's breaker is open
         * -EAGAIN, -EACCES, -ENOSPC, -EREMOTEIO: a server's errors, above. -EAGAIN also where no
         *              node is known that has the key's slot
         * -ENOMEM
         * what on_value returned
         *
         * Where a read didn't end with 0 its buffers have nothing that counts.
         */
        int result;
        uint64_t n_bytes; /* READ: of the value */
        uint32_t n_found; /* PROBE, REMOVE, TOUCH: keys */
};

struct remote_io;
typedef void (*remote_io_fn)(struct remote_io *io, void *data);

/* Heap memory, from remote_io_new(); the store's from submission until its callback returns, then
 * freed. Operations of a batch are independent of each other, and may end in any order. */
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

/* One that wasn't taken; NULL does nothing. */
void remote_io_free(struct remote_io *io);

/*
 * Takes the batch; its callback runs in remote_reap(), never here. 0. The rest, with nothing done
 * and the io the caller's: REMOTE_BUSY; -EINVAL: an operation isn't as described above; -EXDEV:
 * keys of one operation are of two slots; -ENOMEM; -ESHUTDOWN: remote_close() runs.
 */
int remote_submit(struct remote_store *s, struct remote_io *io);

/* How many operations remote_submit() takes now; as much less for each that is taken, and again as
 * much for each that is reaped. */
unsigned remote_room(const struct remote_store *s);

/*
 * Of a batch that was taken, at any time before its callback. What has a result keeps it, the rest
 * ends with -ECANCELED as soon as the threads let go of it. A write of which a part is sent costs
 * the connection.
 */
void remote_cancel(struct remote_store *s, struct remote_io *io);

/*
 * As remote_cancel(), for buffers whose memory goes: when it returns no thread reads or writes them
 * any more. The callback still runs in remote_reap(). Waits until the threads come around: they
 * wait for no node meanwhile, but first do what has arrived (some milliseconds, and the time of
 * on_value).
 */
void remote_take_back(struct remote_store *s, struct remote_io *io);

/* ---- figures --------------------------------------------------------------------------------- */

struct remote_node_stats {
        char name[REMOTE_NAME_BYTES];
        uint32_t n_slots;       /* that it serves, as far as is known */
        uint32_t n_connections; /* that stand */
        enum breaker_state breaker;
        uint64_t open_nsec;       /* while it isn't closed: for how long it was opened */
        uint64_t open_until_nsec; /* open: CLOCK_MONOTONIC, from when on a trial is let through */
        uint64_t rtt_nsec; /* of small operations, from sent to answered: a moving average over
                              some eight of them; 0: none yet */
        uint64_t bytes_in, bytes_out; /* of values */
        uint64_t n_ops;               /* answered */
        uint64_t n_errors;            /* answered by an error of the server's */
        uint64_t n_timeouts;          /* ended by their deadline after they were sent */
        uint64_t n_losses;            /* connections that failed, or couldn't be made */
        uint64_t n_trips;             /* times its breaker opened */
        int last_error;               /* why a connection failed last: -errno; 0: never */
};

struct remote_stats {
        bool is_known;     /* slots have been learnt */
        bool is_cluster;   /* else one node serves all */
        uint32_t n_served; /* slots that somebody serves */
        uint32_t n_nodes;
        uint32_t n_waiting; /* operations that are submitted and not reaped */
        int refresh_error;  /* why slots couldn't be learnt last: -errno; 0: they could */
        uint64_t n_refreshes, n_redirects;
        uint64_t n_hits, n_misses;     /* reads that ended with 0; with anything else */
        uint64_t n_written, n_refused; /* writes that ended with 0; with -ENOSPC or -EACCES */
};

/* Open files of this process that it has, or may come to take with the nodes that are known now:
 * its threads', and a connection of each thread to each node. */
unsigned remote_descriptors(struct remote_store *s);

/*
 * The store as a whole.
 *
 *   UNKNOWN    its nodes are still being asked who serves what
 *   REACHED    a node at least isn't left alone (breaker.h), and slots have been learnt
 *   UNREACHED  all nodes are left alone because of failures, or none is known: no name of theirs is
 *              resolved
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
};

/* Why a node failed (remote_summary.last_error), for people: with the options that matter where
 * strerror() would name none. */
const char *remote_error_text(int error);

/* All of them take a moment: as long as a lock is held elsewhere, which is never while somebody
 * waits. */
void remote_summary(struct remote_store *s, struct remote_summary *ret_summary);
void remote_stats(struct remote_store *s, struct remote_stats *ret_stats);

/* The nodes: *iter 0 first; false at the end. What is made of them meanwhile may be told or not. */
bool remote_node_next(struct remote_store *s, unsigned *iter, struct remote_node_stats *ret_stats);

#endif
