/*
 * Internals of the client, by file:
 *
 *   remote.c          the store: opening, closing; batches in and out; figures;
 *   remote-request.c  operations: checks, messages, ends;
 *   remote-nodes.c    nodes, and the map of slots to nodes;
 *   remote-resolve.c  the thread that resolves names;
 *   remote-worker.c   a thread: submitted operations, deadlines, asking for slots;
 *   remote-conn.c     a connection: making and losing it; sending;
 *   remote-receive.c  receiving, and results of operations.
 *
 * of.lock guards the nodes, the slots, and the operations handed to and from workers. It is
 * never held over a system call that may block. Everything else of a submitted operation, and of a
 * connection, belongs to its worker alone.
 */
#ifndef KVL_REMOTE_REMOTE_IMPL_H
#define KVL_REMOTE_REMOTE_IMPL_H

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "daemon/remote/endpoint/remote-address.h"
#include "daemon/remote/endpoint/remote-tls.h"
#include "daemon/remote/protocol/resp.h"
#include "daemon/remote/protocol/slots.h"
#include "daemon/remote/io/remote-store.h"
#include "daemon/remote/store/remote.h"

#define REMOTE_WORKERS_MAX (1 + REMOTE_LARGE_THREADS_MAX)

/* Time for an answer to CLUSTER SLOTS; then another node is asked. Not tuned. */
#define REMOTE_SLOTS_MSEC 500

/* Least interval between requests for slots. Not tuned. */
#define REMOTE_REFRESH_MIN_NSEC (200 * NSEC_PER_MSEC)

/* A value longer than its buffers is skipped up to so many more bytes; beyond, closing the
 * connection costs less. Not tuned. */
#define REMOTE_SKIP_BYTES (1u << 20)

#define REMOTE_NO_NODE UINT16_MAX

struct remote_client;
struct remote_worker;

/* ---- operations ------------------------------------------------------------------------------ */

/* The next message of an operation. */
enum remote_step {
        STEP_ONLY, /* the request itself */
        STEP_ASK,  /* EXISTS, before a write */
};

/* A request under way: an operation, or CLUSTER SLOTS (without a task). */
struct remote_request {
        struct list_link live;        /* remote_worker.live */
        struct list_link link;        /* remote_worker.inbox; remote_conn.waiting */
        struct remote_task *task;     /* NULL: CLUSTER SLOTS */
        struct remote_op *op;         /* NULL: likewise */
        struct remote_worker *worker; /* its worker */
        struct remote_conn *conn;     /* its connection; NULL: none */
        uint64_t deadline_nsec;
        uint16_t slot, node; /* node: target of a redirection; REMOTE_NO_NODE: none */
        enum remote_step step;
        bool is_sent;   /* it is in remote_conn.flight */
        bool is_asking; /* ASKING is sent before it */
        bool was_redirected, is_trial;
        bool is_prepared; /* on_value has processed the value to write */
        /* The message: `ask` alone; or `head`, the value, `tail`. */
        char *text; /* owned */
        uint32_t ask_len, head_len, tail_len;
        uint64_t value_bytes; /* READ: at most */
};

/* ---- connections ----------------------------------------------------------------------------- */

enum remote_conn_state { CONN_CLOSED, CONN_CONNECTING, CONN_HANDSHAKE, CONN_AUTH, CONN_READY };

/* A message that is sent, or whose answer is awaited. */
struct remote_flight {
        struct remote_request *request; /* NULL: AUTH, or the answer isn't needed any more */
        const char *prefix;             /* AUTH, ASKING; borrowed */
        uint32_t prefix_len;
        uint8_t n_skip; /* answers to skip before the request's: ASKING's */
        bool is_auth;
        bool is_slots;   /* CLUSTER SLOTS */
        uint64_t length; /* bytes of the message */
        uint64_t cost;   /* of the window */
        uint64_t since_nsec;
};

/* The answer to the first flight, as far as it has arrived. */
struct remote_answer {
        enum resp_kind kind; /* of its first token; RESP_MORE: none yet */
        int64_t number;
        bool takes_value; /* a bulk string is received into the buffers of a read */
        bool is_too_long; /* it is passed over */
        uint64_t n_taken; /* bytes of it that are there */
        size_t text_len;  /* of a status or an error */
        char text[RESP_LINE_MAX + 1];
};

struct remote_conn {
        struct remote_worker *worker;
        unsigned node;
        enum remote_conn_state state;
        int fd;
        SSL *ssl;            /* NULL: plain */
        unsigned tls_reads;  /* remote_tls_begin() */
        uint64_t until_nsec; /* before it is ready: its time-out; while answers are awaited: time of
                                the next look */
        uint64_t alive_nsec; /* last time the peer sent or took bytes */
        unsigned queued; /* unacknowledged bytes at the last look; 0: no look since it sent or took
                            bytes */
        uint32_t events; /* events registered with epoll */
        bool tls_wants_write;     /* TLS receives, or shakes hands, when it can be written to */
        bool tls_wants_read;      /* TLS sends when it can be read from */
        struct list_link dirty;   /* remote_worker.dirty */
        struct list_link eager;   /* remote_worker.eager */
        struct list_link waiting; /* struct remote_request */
        struct remote_flight flight[REMOTE_WINDOW_OPS]; /* a ring */
        unsigned first, n_flight;                       /* of it */
        unsigned n_sent; /* of these, the first n_sent were sent completely */
        uint64_t sent;   /* bytes of the one after them */
        uint64_t window; /* costs of all */
        struct resp_parser parser;
        struct remote_answer answer; /* that is being received */
        char input[REMOTE_INPUT_BYTES];
        size_t input_len;
};

/* ---- workers --------------------------------------------------------------------------------- */

struct remote_worker {
        struct remote_client *store;
        pthread_t thread;
        bool is_started;
        int epoll_fd, event_fd;
        _Atomic bool is_rung;   /* and hasn't looked since */
        unsigned n_outstanding; /* operations, of the loop's counting: under of.lock */
        uint64_t bytes;         /* of their values, likewise */
        struct list_link inbox; /* struct remote_request, under of.lock */
        bool is_stopping;       /* under of.lock */
        struct list_link live, dirty;
        struct list_link eager; /* struct remote_conn: to be received from without waiting */
        uint64_t deadline_nsec; /* no live request has an earlier one; UINT64_MAX: none */
        uint64_t map_version;   /* of the slots that its connections are there for */
        unsigned n_conns;       /* that are allocated */
        struct remote_conn *conns[REMOTE_NODES_MAX]; /* owned; NULL: none */
};

/* ---- nodes ----------------------------------------------------------------------------------- */

struct remote_node {
        bool is_used;
        bool is_seed;     /* an address of the options leads to it, or did once */
        bool is_fixed;    /* one of them is it */
        bool is_listed;   /* serves slots */
        unsigned n_conns; /* objects of all workers, connected or not */
        struct sockaddr_storage address;
        socklen_t address_len;
        char host[SLOT_HOST_BYTES];
        uint16_t port;
        struct breaker breaker;
        struct remote_node_stats stats;
};

struct remote_resolver;

struct remote_client {
        struct remote_store of; /* its lock guards all that isn't constant */
        unsigned n_nodes;       /* entries that were ever used */
        struct remote_node nodes[REMOTE_NODES_MAX];
        uint16_t node_of[N_SLOTS];
        uint64_t map_version;
        bool is_refresh_wanted;
        struct remote_stats stats;

        /* Constant. */
        unsigned n_workers, connect_msec, silence_msec;
        struct remote_tls *tls;           /* owned; NULL: plain */
        struct remote_resolver *resolver; /* shared with its thread; NULL: no names */
        char *auth;                       /* owned; NULL: none */
        uint32_t auth_len;
        char *slots_text; /* owned: CLUSTER SLOTS */
        uint32_t slots_len;
        struct remote_refresh *refresh; /* owned: the first worker's */
        struct remote_worker *workers[REMOTE_WORKERS_MAX];
};

/* ---- remote.c -------------------------------------------------------------------------------- */

extern const struct remote_ops remote_client_ops;

/* ---- remote-request.c ------------------------------------------------------------------------ */

/* Formats the messages. Returns 0 or -ENOMEM. */
int remote_request_init(struct remote_request *q, struct remote_task *t, uint32_t i, unsigned slot);

/* Bytes of its next message, without a prefix. */
uint64_t remote_request_length(const struct remote_request *q);

/* Cost in the window: the larger of question and answer. */
uint64_t remote_request_cost(const struct remote_request *q);

/* The pieces of its next message from byte `at` on; at most `max` of them. Returns their number. */
unsigned remote_request_gather(
        const struct remote_request *q, uint64_t at, struct iovec *iov, unsigned max);

/* The pieces of a value from byte `at` on, at most `bytes` together. Returns their number. */
unsigned remote_iov_gather(const struct iovec *from, unsigned n_from, uint64_t at, uint64_t bytes,
        struct iovec *iov, unsigned max);

/* Before the next message is sent: calls on_value for a value to write. Returns 0, or the result of
 * that. */
int remote_request_prepare(struct remote_request *q);

/* Ends a request, from its worker, and may free it. A breaker's trial without result is given back.
 * For CLUSTER SLOTS also REMOTE_ALONE: the node is in no cluster. */
#define REMOTE_ALONE 1
void remote_request_end(struct remote_request *q, int result);

/* ---- remote-nodes.c -------------------------------------------------------------------------- */

/* With the lock held. Returns the node of that address, or a new one; REMOTE_NO_NODE: no room, or
 * not an IP address. `beside`: the node whose host is meant by ""; REMOTE_NO_NODE: none. */
uint16_t remote_node_get(struct remote_client *s, const char *host, uint16_t port, uint16_t beside);

/* An address of the options is this one, or (not is_fixed) its name resolves to it now. Takes the
 * lock. */
void remote_node_add_seed(struct remote_client *s, const struct sockaddr *address, bool is_fixed);

/* Takes that node's answer to CLUSTER SLOTS. Table NULL: it is in no cluster, and serves all slots.
 * Returns false if no slot is served, or there is no room: the answer is then ignored. Takes the
 * lock. */
bool remote_nodes_learn(struct remote_client *s, const struct slot_table *table, uint16_t asked);

/* With the lock held. Returns the next node to ask for slots, behind `last`, that its breaker
 * admits; REMOTE_NO_NODE: none. */
uint16_t remote_node_to_ask(
        struct remote_client *s, uint16_t last, uint64_t now_nsec, bool *ret_is_trial);

/* Result of a node's request. The functions take the lock. */
struct remote_note {
        uint64_t rtt_nsec; /* 0: doesn't count */
        uint64_t bytes_in, bytes_out;
        bool is_error;
        bool is_refresh; /* an answer with slots says little about values: it closes a half-open
                            breaker, and else counts as no success */
};
void remote_node_answered(struct remote_client *s, unsigned node, const struct remote_note *note);
void remote_node_failed(struct remote_client *s, unsigned node, int why, bool trips);
void remote_node_give_back(struct remote_client *s, unsigned node);

/* Slots may have moved: wakes the first worker to ask for them. Takes the lock. */
void remote_refresh_want(struct remote_client *s);

/* ---- remote-worker.c ------------------------------------------------------------------------- */

/* Without its thread. 0 or -errno. */
int remote_worker_new(struct remote_client *s, struct remote_worker **ret_worker);

/* Starts the thread, once all workers are made. Returns 0 or -errno. */
int remote_worker_start(struct remote_worker *w);

/* Ends all its requests with -ECANCELED, the thread, and the worker. Nothing for NULL. */
void remote_worker_stop(struct remote_worker *w);

void remote_worker_wake(struct remote_worker *w);

/* Routes a request, which is only in the list `live`, to its connection. It may end in it. */
void remote_worker_route(struct remote_worker *w, struct remote_request *q);

/* Marks the connection for work before the worker waits again. */
void remote_worker_mark(struct remote_conn *c);

int remote_refresh_new(struct remote_refresh **ret_refresh); /* to be freed. 0 or -ENOMEM */

/* CLUSTER SLOTS was sent, perhaps again: nothing of its answer has been read. */
void remote_refresh_begin(struct remote_client *s);

/* CLUSTER SLOTS has ended. The table belongs to the refresh, and is filled if result is 0. */
void remote_refresh_end(struct remote_client *s, struct remote_request *q, int result);
struct slot_reader *remote_refresh_reader(struct remote_client *s);

/* ---- remote-conn.c --------------------------------------------------------------------------- */

/* Gets or makes the connection, with the lock held. Returns 0; -ENOMEM: none could be made. */
int remote_conn_get(struct remote_worker *w, unsigned node, struct remote_conn **ret_conn);
void remote_conn_free(struct remote_conn *c);

/* Connects, sends, and registers for events, as needed. */
void remote_conn_go(struct remote_conn *c, uint64_t now_nsec);

/* epoll says so. */
void remote_conn_events(struct remote_conn *c, uint32_t events, uint64_t now_nsec);

/* Called at until_nsec. A connection that isn't ready, or whose peer is silent, is lost; else the
 * time of the next look is set. */
void remote_conn_expire(struct remote_conn *c, uint64_t now_nsec);

/* The peer is alive: it sent bytes, or took some. */
void remote_conn_progress(struct remote_conn *c, uint64_t now_nsec);

/* Takes a request away whose buffers are needed no longer, because of a deadline or a cancel. Its
 * answer is skipped when it comes. The connection is only closed if the request is half sent, which
 * says nothing about the node. */
void remote_conn_drop(struct remote_conn *c, struct remote_request *q, bool is_late);

/* Ends the connection. Operations under way end with `why`, unless the loss is ours. Waiting ones
 * wait for the next connection, if this one was ready and the breaker isn't open. */
enum remote_loss {
        LOSS_PEER,   /* caused by the node: counts for its breaker */
        LOSS_SILENT, /* caused by the node's long silence: its breaker opens at once */
        LOSS_OURS,   /* wanted here: doesn't count, and operations under way are sent again, any
                        number of times: each loss ends the operation that caused it */
};
void remote_conn_lose(struct remote_conn *c, int why, enum remote_loss loss);

/* Reads. Returns bytes (> 0); -EAGAIN; 0: the end; -errno. */
ssize_t remote_conn_read(struct remote_conn *c, struct iovec *iov, unsigned n_iov);

/* The message whose answer comes next; NULL: none. Borrowed until it has landed. */
struct remote_flight *remote_conn_flight(struct remote_conn *c);

/* Ends the first flight: its answer is complete. */
void remote_conn_landed(struct remote_conn *c);

/* The connection is ready, because AUTH was answered with OK. */
void remote_conn_ready(struct remote_conn *c);

/* ---- remote-receive.c ------------------------------------------------------------------------ */

void remote_answer_reset(struct remote_answer *a);

/* Takes received bytes, up to a turn's bound. Returns 0, or -errno: the connection has to be
 * closed. */
int remote_receive(struct remote_conn *c, uint64_t now_nsec);

#endif
