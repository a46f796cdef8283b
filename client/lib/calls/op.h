/*
 * A call on a namespace: one request, then one MAP for every set of its pages that isn't mapped
 * yet. The request is a message, a flight through the rings (flight.h), or done already in shared
 * memory (fast.h). Blocking ones are on the stack of their caller, started ones on the heap.
 */
#ifndef KVL_LIB_OP_H
#define KVL_LIB_OP_H

#include "client/lib/objects/ns.h"
#include "client/lib/objects/session.h"

struct fetching;
struct flight;
struct stream_op;

/* What lies below the device, and is wanted on it. */
enum op_up {
        OP_BELOW,
        OP_PREPARED, /* what is on the device gets mapped first */
        OP_FETCHING,
        OP_UP /* as far as that goes */
};

/* What FETCH is to do with pages. */
enum fetch_way {
        FETCH_UP,   /* those below the device: to it */
        FETCH_COPY, /* all: into targets, which are leased; they stay where they are */
        FETCH_DOWN  /* those on the device: below it. Pins on them stay beside the new ones */
};

struct op {
        struct conn_call call;
        struct kvl_ns *ns;
        struct list_link link;       /* ns.ops, for started ones */
        struct flight *flight;       /* its request is under way there */
        struct stream_op *stream_op; /* it waits for a stream (stream.h) */
        struct fetching *fetching;   /* its pages are brought to the device (fetch.h); owned */
        uint16_t type;               /* enum msg_type; MAP: kvl_map_pages(); FETCH: kvl_fetch() */
        bool stays;                  /* LOOKUP: what is found stays where it lies */
        uint8_t up;                  /* enum op_up; of LOOKUP, SESSION_PAGES and FETCH */
        uint8_t way;                 /* enum fetch_way; of FETCH */
        const uint32_t *targets; /* COPY: one for each of pages; borrowed until it is prepared */
        uint32_t failed;         /* of FETCH that ended with a code: which page, an index */
        uint32_t *pages; /* room for n_asked; PUBLISH: holds what is published until the reply */
        uint32_t n_asked;
        uint32_t n_pages;            /* got */
        uint32_t n_claimed;          /* LEASE: the first of them, from the magazine */
        uint32_t n_mapped;           /* of n_pages */
        const uint32_t *page_tokens; /* LOOKUP over the socket: of each; borrowed while the reply is
                                        looked at, else NULL */
        uint64_t n_tokens;
        struct kvl_session_page *session_pages; /* SESSION_PAGES: room for n_asked; borrowed */
        int code;                               /* of the request, while its pages get mapped */
        uint32_t set, plane;                    /* of the MAP on its way */
        kvl_done_fn done;
        void (*waited)(struct kvl_ns *ns, int code, void *data); /* WAIT: instead of done */
        void *data;
        /* LEASE: what is asked beside the number of pages, and what became of it. */
        struct op_lease {
                uint64_t request;
                uint32_t n_min;    /* fewest of use, 1..n_asked */
                int max_wait_msec; /* 0: as the tenant's; < 0: not at all */
                unsigned flags;    /* enum kvl_lease_flags */
                kvl_lease_done_fn done;
                enum kvl_reason reason;
                uint64_t waited_usec;
        } lease;
        uint32_t own_pages[];
};

void op_init(struct op *op, struct kvl_ns *ns, uint16_t type, uint32_t *pages, uint32_t n_asked);

/* A started one, with pages of its own, which counts as under way from now on. 0; -EAGAIN:
 * KVL_MAX_STARTED are; -ENOMEM. The sentence is noted. */
int op_new(struct kvl_ns *ns, uint16_t type, uint32_t n_asked, kvl_done_fn done, void *data,
        struct op **ret_op);

/* It isn't started after all. */
void op_free(struct op *op);

/* ---- blocking: what the public function returns, with the sentence noted -----------------------
 */

int op_run(struct op *op, const ProtobufCMessage *m, uint64_t deadline_nsec);

/* RELEASE or FREE of op->pages over the socket; LEASE, after op->lease. */
int op_run_pages(struct op *op, uint64_t deadline_nsec);

/* [L] FETCH of op->pages in another way than UP, with op->n_pages, way and targets set, to be
 * waited for with op_finish() at some time. op->pages and targets stay the caller's. A COPY is
 * begun after what is on the stream, where the device has streams. 0; -errno with the sentence: it
 * wasn't begun.
 */
int op_begin_fetch(struct op *op, void *stream);

/* [L] Nobody wants what op_begin_fetch() began, if it is under way still. */
void op_drop_fetch(struct op *op);

/* As flight_start(). */
int op_run_flight(struct op *op, const struct kvl_publish *publish, uint64_t deadline_nsec);

/* op->pages[0..op->n_pages-1] are got; only their mapping is missing, or only to populate them. */
int op_run_mapping(struct op *op, uint64_t deadline_nsec);

/* [L] Runs a call to its end; `started` is what starting it gave. */
int op_finish(struct op *op, int started, uint64_t deadline_nsec);

/* ---- started: take the op ----------------------------------------------------------------------
 */

/* m NULL: as op_run_pages(). */
int op_start(struct op *op, const ProtobufCMessage *m);

int op_start_flight(struct op *op, const struct kvl_publish *publish);

/* The request is done, with `code` and op->n_pages; only mapping and callback are missing. 0. */
int op_start_done(struct op *op, int code);

/* ---- inside ---------------------------------------------------------------------------------- */

/* [L] The request ended with op->code and op->n_pages: asks for the next set that isn't mapped, or
 * ends the call. */
void op_proceed(struct op *op);

/* [L] Sends op's request over the socket: 0, or as conn_start(). pages: as op_run_pages(). */
int op_send_pages(struct op *op);

/* What is told of a lease that ended with `code`: as far as ret->size goes. ret may be NULL. */
void op_fill_lease_result(const struct op *op, int code, struct kvl_lease_result *ret);

/* [L] Its pages can't be had after all: those of a call that got them are given back. */
void op_fail(struct op *op, int code);

/* [L] What a call of `type` got, and its caller never learns of or can't use, is the daemon's
 * again. */
void op_give_back(struct kvl_ns *ns, uint16_t type, const uint32_t *pages, uint32_t n_pages);

/* [L] Ends started calls of the namespace with -ECANCELED; their callbacks are queued. */
void ops_cancel(struct kvl_ns *ns);

#endif
