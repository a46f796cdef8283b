/*
 * A call on a namespace: one request, then one MAP for every set of its pages that isn't mapped
 * yet. The request is a message, a flight through the rings (flight.h), or done already in shared
 * memory (fast.h). Blocking ones are on the stack of their caller, started ones on the heap.
 *
 * What differs from one type of request to the next is in its struct op_type, which the file that
 * has the public functions defines: op.c names none of them.
 */
#ifndef KVL_LIB_OP_H
#define KVL_LIB_OP_H

#include "client/lib/objects/ns.h"

struct fetching;
struct flight;
struct op;
struct stream_op;

/* What begins every reply that brings pages. */
typedef Kvlease__V1__LeaseReply op_pages_reply;

/* How pages below the device are brought to it once a call has them. There is one such (fetch.h of
 * the room rings); its functions want the connection's lock. */
struct op_fetch_steps {
        /* Those of op->pages[0..op->n_pages-1] that are below the device are to be brought to it
         * (or as op->fetch.way says): op->fetch.up is OP_PREPARED, or OP_UP where there are none.
         * 0; -ENOMEM. */
        int (*prepare)(struct op *op);
        /* Begins. 1: it is under way, and op_proceed() is called with OP_UP at its end; 0: OP_UP,
         * the connection is over and the call goes on with what it has; -ENOTCONN, -ENOMEM,
         * -EMSGSIZE. */
        int (*begin)(struct op *op);
        /* Nobody waits for op's pages any more, and it still wants them: what was found is cut to
         * what can be used. Returns what the call ends with. */
        int (*give_up)(struct op *op);
        /* The call has ended. Nothing where nothing was prepared. */
        void (*drop)(struct op *op);
};

/* A type of request. */
struct op_type {
        uint16_t msg; /* enum msg_type; a call without a request has that of its function */
        /* The call populates the pages that it has in the end, before it returns. */
        bool populates;
        /* Pages that the call got and can't map are its caller's all the same. */
        bool keeps_unmapped;
        /* [L] Sends the request for op->pages over the socket: 0, or as conn_start(). NULL where
         * the request is always a message that its caller has made. */
        int (*send)(struct op *op);
        /* [L] Takes the reply apart, or NULL where none came, and sets op->n_pages; op->code is
         * `code` by then. Ends in op_end_reply(). NULL: only the code matters. */
        void (*reply)(struct op *op, int code, const ProtobufCMessage *reply);
        /* What becomes of a reply that nobody waits for any more (conn_call.on_late):
         * op_late_pins() or op_late_leased() where it brings pages, else NULL. */
        conn_reply_fn late;
        /* [L] What a call got, and its caller never learns of or can't use, is the daemon's again
         * (give-back.h). NULL: it gets nothing. */
        void (*give_back)(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);
        /* How pages get to the device that the call finds below it; NULL: it finds none there. */
        const struct op_fetch_steps *fetch;
        /* Tells tracers that a started call has ended. NULL: they aren't told. */
        void (*probe)(const struct op *op, int code);
        /* Runs the user's callback of a started call, where that isn't op->done; or NULL. */
        void (*call_back)(struct op *op, int code);
};

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

/* What is brought to the device for a call that has struct op_type.fetch. */
struct op_fetch {
        struct fetching *fetching; /* under way (fetch.h); owned */
        bool stays;                /* what is found stays where it lies */
        uint8_t up;                /* enum op_up */
        uint8_t way;               /* enum fetch_way; of FETCH */
        const uint32_t *targets;   /* COPY: one for each of pages; borrowed until it is prepared */
        uint32_t first_plane, n_planes; /* COPY: which alone; n_planes 0: all */
        uint32_t failed;                /* of FETCH that ended with a code: which page, an index */
        /* LOOKUP over the socket: of each page; borrowed while the reply is looked at, else NULL */
        const uint32_t *page_tokens;
};

/* What is asked of a LEASE beside the number of pages, and what became of it. */
struct op_lease {
        uint64_t request;
        uint32_t n_min;    /* fewest of use, 1..n_asked */
        int max_wait_msec; /* 0: as the tenant's; < 0: not at all */
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
        struct flight *flight;       /* its request is under way there */
        struct stream_op *stream_op; /* it waits for a stream (stream.h) */
        struct op_fetch fetch;
        uint32_t *pages; /* room for n_asked; PUBLISH: holds what is published until the reply */
        uint32_t n_asked;
        uint32_t n_pages;   /* got */
        uint32_t n_claimed; /* LEASE: the first of them, from the magazine */
        uint32_t n_mapped;  /* of n_pages */
        uint64_t n_tokens;
        struct kvl_session_page *session_pages; /* SESSION_PAGES: room for n_asked; borrowed */
        int code;                               /* of the request, while its pages get mapped */
        uint32_t set, plane;                    /* of the MAP on its way */
        kvl_done_fn done;
        void (*waited)(struct kvl_ns *ns, int code, void *data); /* WAIT, IMPORT: instead of done */
        void *data;
        struct op_lease lease;
        uint32_t own_pages[];
};

void op_init(struct op *op, struct kvl_ns *ns, const struct op_type *type, uint32_t *pages,
        uint32_t n_asked);

/* A started one, with pages of its own, which counts as under way from now on. 0; -EAGAIN:
 * KVL_MAX_STARTED are; -ENOMEM. The sentence is noted. */
int op_new(struct kvl_ns *ns, const struct op_type *type, uint32_t n_asked, kvl_done_fn done,
        void *data, struct op **ret_op);

/* Does what op_new() does, and copies these pages to op->pages. */
int op_new_with(struct kvl_ns *ns, const struct op_type *type, const uint32_t *pages,
        uint32_t n_pages, kvl_done_fn done, void *data, struct op **ret_op);

/* It isn't started after all. */
void op_free(struct op *op);

/* ---- blocking: what the public function returns, with the sentence noted -----------------------
 */

/* Sends the request m, and runs the call to its end. */
int op_run(struct op *op, const ProtobufCMessage *m, uint64_t deadline_nsec);

/* Sends the request for op->pages (struct op_type.send), and runs the call to its end. */
int op_run_pages(struct op *op, uint64_t deadline_nsec);

/* Runs calls of the type for all of these pages, of which a call has at most `most`, one after the
 * other until one fails. run: op_run_pages(), or what else runs one. */
int op_run_parts(struct kvl_ns *ns, const struct op_type *type, const uint32_t *pages,
        uint32_t n_pages, uint32_t most, int (*run)(struct op *op, uint64_t deadline_nsec));

/* op->pages[0..op->n_pages-1] are got; only their mapping is missing, or only to populate them. */
int op_run_mapping(struct op *op, uint64_t deadline_nsec);

/* Maps and populates the pages of a call of this type that are got already, or gives them back. */
int op_map_got(struct kvl_ns *ns, const struct op_type *type, uint32_t *pages, uint32_t n_pages);

/* [L] Runs a call to its end; `started` is what starting it gave. */
int op_finish(struct op *op, int started, uint64_t deadline_nsec);

/* ---- started: take the op ----------------------------------------------------------------------
 */

/* Sends the request m; NULL: the one for op->pages. */
int op_start(struct op *op, const ProtobufCMessage *m);

/* The request is done, with `code` and op->n_pages; only mapping and callback are missing. 0. */
int op_start_done(struct op *op, int code);

/* [L] The call is under way, or isn't; `started` is what starting it gave, and is returned with the
 * sentence. */
int op_keep_started(struct op *op, int started);

/* ---- for those who define types of requests, or do a part of them ------------------------------
 */

/* [L] The request ended with op->code and op->n_pages: asks for the next set that isn't mapped, or
 * ends the call. */
void op_proceed(struct op *op);

/* [L] Its pages can't be had after all: those of a call that got them are given back. */
void op_fail(struct op *op, int code);

/* [L] The pages that a call had before it asked for the rest are the daemon's again. */
void op_give_back_claimed(struct op *op);

/* [L] The reply was taken apart, and this is wrong with it: the connection is over. NULL: nothing
 * is, and the call proceeds. */
void op_end_reply(struct op *op, const char *wrong);

/* [L] What is wrong with the pages that a reply brings; NULL: nothing. */
const char *op_check_pages(const struct op *op, const op_pages_reply *m, bool is_count_right);

/* [L] The call has the pages that a reply brings. */
void op_take_pages(struct op *op, const op_pages_reply *m);

/* The struct op_type.reply of a request whose reply is a count: that is op->n_tokens then. */
void op_take_count(struct op *op, int code, const ProtobufCMessage *reply);

/* The struct op_type.call_back of a request of which only the code matters: calls op->waited. */
void op_call_back_waited(struct op *op, int code);

/* The struct op_type.late of requests whose replies bring pages: they let the pins go, or free the
 * leased pages. */
void op_late_pins(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame);
void op_late_leased(struct conn *c, struct conn_call *call, int code, const ProtobufCMessage *reply,
        struct frame *frame);

/* [L] Ends started calls of the namespace with -ECANCELED; their callbacks are queued. */
void ops_cancel(struct kvl_ns *ns);

#endif
