#include "client/lib/objects/callback.h"

#include "client/lib/objects/ns.h"

static _Thread_local struct ns_callback *innermost_callback;

void ns_callback_enter(struct ns_callback *cb, struct kvl_ns *ns)
{
        *cb = (struct ns_callback){.ns = ns, .outer = innermost_callback};
        innermost_callback = cb;
        ns->n_callbacks++;
}

void ns_callback_leave(struct ns_callback *cb)
{
        struct kvl_ns *ns = cb->ns;
        struct kvl_conn *conn;

        innermost_callback = cb->outer;
        if (!ns)
                return;
        conn = ns->conn;
        conn_lock(conn->conn);
        if (--ns->n_callbacks == 0)
                conn_wake(conn->conn, &conn->idle);
        conn_unlock(conn->conn);
}

void ns_wait_callbacks(struct kvl_ns *ns)
{
        /* Callbacks this thread is inside of can't return first: they lose the namespace. */
        for (struct ns_callback *cb = innermost_callback; cb; cb = cb->outer) {
                if (cb->ns != ns)
                        continue;
                cb->ns = NULL;
                ns->n_callbacks--;
        }
        while (!list_is_empty(&ns->ops) || ns->n_callbacks > 0)
                conn_sleep(ns->conn->conn, &ns->conn->idle, CONN_FOREVER);
}
