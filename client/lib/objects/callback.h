/* User callbacks that were given a namespace. The namespace stays until they have returned, unless
 * the callback itself closes it. */
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

/* [L] Waits until no callback of the namespace runs in another thread or is queued. Callbacks that
 * the calling thread is inside of lose the namespace. */
void ns_wait_callbacks(struct kvl_ns *ns);

#endif
