/*
 * Callbacks of users that were handed a namespace: it stays until they have returned, but for a
 * close by the callback itself.
 */
#ifndef KVL_LIB_CALLBACK_H
#define KVL_LIB_CALLBACK_H

struct kvl_ns;

/* A callback on the stack of the thread that runs it. */
struct ns_callback {
        struct kvl_ns *ns; /* NULL: closed from inside the callback */
        struct ns_callback *outer;
};

/* [L] The callback begins. */
void ns_callback_enter(struct ns_callback *cb, struct kvl_ns *ns);

/* The callback has returned. Without the lock. */
void ns_callback_leave(struct ns_callback *cb);

/* [L] Waits until no other thread runs a callback of the namespace, and none is left to be run.
 * Those that the calling thread is inside of lose the namespace. */
void ns_wait_callbacks(struct kvl_ns *ns);

#endif
