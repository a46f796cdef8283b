/*
 * A call on a namespace: one request, then one MAP for every set of its pages that isn't mapped
 * yet. The request is a message, a flight through the rings (flight.h), or already done in shared
 * memory (fast.h). A blocking call is on its caller's stack, a started one on the heap.
 *
 * struct op_type holds all that differs between types of requests. The file with the public
 * functions defines it: op.c names none of them.
 */
#ifndef KVL_LIB_OP_H
#define KVL_LIB_OP_H

#include "client/lib/objects/ns.h"

struct fetching;
struct flight;
struct op;
struct stream_op;

/* The fields that begin every reply with pages. */
typedef Kvlease__V1__LeaseReply op_pages_reply;

/* Steps that bring a call's pages from lower tiers to the device. The one implementation is fetch.h
 * of rings/. Its functions want the connection's lock. */
struct op_fetch_steps {
        /* Prepares to bring those of op->pages[0..op->n_pages-1] to the device that are in a lower
         * tier (or as op->fetch.way says). Sets op->fetch.up to OP_PREPARED, or to OP_UP if there
         * are none. Returns 0; -ENOMEM. */
        int (*prepare)(struct op *op);
        /* Begins the transfer. Returns 1 (under way; op_proceed() is called with OP_UP at its end);
         * 0 (OP_UP: the connection is over, the call goes on with the pages it has); -ENOTCONN,
         * -ENOMEM, -EMSGSIZE. */
        int (*begin)(struct op *op);
        /* The wait for op's pages timed out before all were brought up: cuts the found pages to
         * those of use. Returns the call's code. */
        int (*give_up)(struct op *op);
        /* The call has ended. Does nothing if nothing was prepared. */
        void (*drop)(struct op *op);
};

/* A type of request. */
struct op_type {
        uint16_t msg; /* enum msg_type; for a call without a request, that of its function */
        /* The call populates its final pages before it returns. */
        bool populates;
        /* The caller keeps pages that the call got but can't map. */
        bool keeps_unmapped;
        /* [L] Sends the request for op->pages over the socket. Returns 0, or as conn_start(). NULL:
         * the caller always makes the message. */
        int (*send)(struct op *op);
        /* [L] Reads the reply (NULL: none came) and sets op->n_pages; op->code is `code` by then.
         * Ends in op_end_reply(). NULL: only the code matters. */
        void (*reply)(struct op *op, int code, const ProtobufCMessage *reply);
        /* Handles a reply that came after its caller gave up (conn_call.on_late): op_late_pins() or
         * op_late_leased() for replies with pages, else NULL. */
        conn_reply_fn late;
        /* [L] Gives pages back to the daemon (give-back.h) if the caller never learns of them or
         * can't use them. NULL: the call gets none. */
        void (*give_back)(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);
        /* Brings pages of lower tiers to the device; NULL: the call finds none there. */
        const struct op_fetch_steps *fetch;
        /* Tells tracers that a started call has ended, or NULL. */
        void (*probe)(const struct op *op, int code);
        /* Runs the user's callback of a started call if that isn't op->done; or NULL. */
        void (*call_back)(struct op *op, int code);
};

/* Progress of bringing a call's pages from lower tiers to the device. */
enum op_up {
        OP_BELOW,
        OP_PREPARED, /* pages on the device get mapped first */
        OP_FETCHING,
        OP_UP /* done, as far as possible */
};

/* Kinds of FETCH. */
enum fetch_way {
        FETCH_UP,   /* brings those in lower tiers to the device */
        FETCH_COPY, /* copies all into leased targets; originals stay */
        FETCH_DOWN  /* demotes those on the device. Pins on them stay beside the new ones */
};

/* A call's transfers to the device, if it has struct op_type.fetch. */
struct op_fetch {
        struct fetching *fetching; /* under way (fetch.h); owned */
        bool stays;                /* found pages stay in their tier */
        uint8_t up;                /* enum op_up */
        uint8_t way;               /* enum fetch_way; of FETCH */
        const uint32_t *targets;   /* COPY: one for each of pages; borrowed until it is prepared */
        uint32_t first_plane, n_planes; /* COPY: the planes to copy */
        uint32_t failed;                /* FETCH that failed: index of the page */
        /* LOOKUP over the socket: tokens of each page; borrowed from the reply, else NULL */
        const uint32_t *page_tokens;
};

/* Options and result of a LEASE, beside the number of pages. */
struct op_lease {
        uint64_t request;
        uint32_t n_min;    /* fewest pages of use, 1..n_asked */
        int max_wait_msec; /* 0: the tenant's limit; < 0: doesn't wait */
        unsigned flags;    /* enum kvl_lease_flags */
        kvl_lease_done_fn done;
        enum kvl_reason reason;
        uint64_t waited_usec;
};

struct op {
        struct conn_call call;
        struct kvl_ns *ns;
        const struct op_type *type;
        struct list_link link;       /* ns.ops, for started ones */
        struct flight *flight;       /* carries its request, while under way */
        struct stream_op *stream_op; /* set while it waits for a stream (stream.h) */
        struct op_fetch fetch;
        uint32_t *pages; /* n_asked entries; PUBLISH: the published pages, until the reply */
        uint32_t n_asked;
        uint32_t n_pages;   /* got */
        uint32_t n_claimed; /* LEASE: how many, the first ones, came from the magazine */
        uint32_t n_mapped;  /* of n_pages */
        uint64_t n_tokens;
        struct kvl_session_page *session_pages; /* SESSION_PAGES: n_asked entries; borrowed */
        int code;            /* result of the request, while its pages get mapped */
        uint32_t set, plane; /* of the MAP on its way */
        kvl_done_fn done;
        void (*waited)(struct kvl_ns *ns, int code, void *data); /* WAIT, IMPORT: for `done` */
        void *data;
        struct op_lease lease;
        uint32_t own_pages[];
};

void op_init(struct op *op, struct kvl_ns *ns, const struct op_type *type, uint32_t *pages,
        uint32_t n_asked);

/* Makes a started call with page storage of its own. It counts as under way from now on. Returns 0;
 * -EAGAIN (KVL_MAX_STARTED are under way); -ENOMEM. The sentence is noted. */
int op_new(struct kvl_ns *ns, const struct op_type *type, uint32_t n_asked, kvl_done_fn done,
        void *data, struct op **ret_op);

/* Does op_new(), and copies these pages to op->pages. */
int op_new_with(struct kvl_ns *ns, const struct op_type *type, const uint32_t *pages,
        uint32_t n_pages, kvl_done_fn done, void *data, struct op **ret_op);

/* Frees a call that isn't started after all. */
void op_free(struct op *op);

/* ---- blocking: what the public function returns, with the sentence noted -----------------------
 */

/* Sends the request m, and runs the call to its end. */
int op_run(struct op *op, const ProtobufCMessage *m, uint64_t deadline_nsec);

/* Sends the request for op->pages (struct op_type.send), and runs the call to its end. */
int op_run_pages(struct op *op, uint64_t deadline_nsec);

/* Runs calls of the type, one after the other, for all of these pages, at most `most` pages a call.
 * Stops at the first failure. run: op_run_pages(), or another function that runs one call. */
int op_run_parts(struct kvl_ns *ns, const struct op_type *type, const uint32_t *pages,
        uint32_t n_pages, uint32_t most, int (*run)(struct op *op, uint64_t deadline_nsec));

/* Maps, or only populates, op->pages[0..op->n_pages-1], which the call has got. */
int op_run_mapping(struct op *op, uint64_t deadline_nsec);

/* Maps and populates pages that a call of this type has got, or gives them back. */
int op_map_got(struct kvl_ns *ns, const struct op_type *type, uint32_t *pages, uint32_t n_pages);

/* [L] Runs a call to its end; `started` is the result of starting it. */
int op_finish(struct op *op, int started, uint64_t deadline_nsec);

/* ---- started: take the op ----------------------------------------------------------------------
 */

/* Sends the request m; NULL: the one for op->pages. */
int op_start(struct op *op, const ProtobufCMessage *m);

/* The request is done, with `code` and op->n_pages; only mapping and callback are left. */
int op_start_done(struct op *op, int code);

/* [L] Keeps the op if the call is under way, else frees it. `started` is the result of starting the
 * call; returned, with the sentence. */
int op_keep_started(struct op *op, int started);

/* ---- for definitions of request types -----------------------------------------------------------
 */

/* [L] The request ended with op->code and op->n_pages. Asks for the next set that isn't mapped, or
 * ends the call. */
void op_proceed(struct op *op);

/* [L] The pages can't be had: ends the call, and gives back pages it got. */
void op_fail(struct op *op, int code);

/* [L] Gives back the pages that a call claimed before it asked for the rest. */
void op_give_back_claimed(struct op *op);

/* [L] The reply has been read. wrong: its fault, which ends the connection; NULL: none, the call
 * proceeds. */
void op_end_reply(struct op *op, const char *wrong);

/* [L] Returns what is wrong with the pages of a reply; NULL: nothing. */
const char *op_check_pages(const struct op *op, const op_pages_reply *m, bool is_count_right);

/* [L] Copies the reply's pages to the call. */
void op_take_pages(struct op *op, const op_pages_reply *m);

/* A struct op_type.reply for replies that are a count: stores it in op->n_tokens. */
void op_take_count(struct op *op, int code, const ProtobufCMessage *reply);

/* A struct op_type.call_back for requests with no result but a code: calls op->waited. */
void op_call_back_waited(struct op *op, int code);

/* struct op_type.late for requests whose replies bring pages: releases the pins, or frees the
 * leased pages. */
void op_late_pins(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame);
void op_late_leased(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame);

/* [L] Ends the namespace's started calls with -ECANCELED; their callbacks are queued. */
void ops_cancel(struct kvl_ns *ns);

#endif
