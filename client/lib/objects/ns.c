#include "client/lib/objects/ns.h"

#include <errno.h>
#include <stdio.h>

#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"

/* ---- what it is --------------------------------------------------------------------------------
 */

void kvl_ns_info(const struct kvl_ns *ns, struct kvl_ns_info *info)
{
        if (ns)
                abi_fill(info, &ns->info, sizeof(ns->info));
}

int kvl_page_tier(const struct kvl_ns *ns, uint32_t page)
{
        int tier = -EINVAL;

        for (uint32_t i = 0; ns && i < ns->info.n_tiers && page < ns->info.capacity_pages; i++)
                if (page >= ns->info.tiers[i].first_page)
                        tier = (int)ns->info.tiers[i].tier;
        return tier;
}

const char *kvl_ns_name(const struct kvl_ns *ns)
{
        return ns ? ns->name : "";
}

/* ---- broken contexts ---------------------------------------------------------------------------
 */

void ns_explain_broken(const char *device, char ret_why[CONN_DETAIL_BYTES])
{
        snprintf(ret_why, CONN_DETAIL_BYTES,
                "%s: work on the GPU failed and its context is broken: pages it should have written can't be published; restart the process",
                device);
}

int ns_check_device(const struct kvl_ns *ns)
{
        char why[CONN_DETAIL_BYTES];

        if (!atomic_load_explicit(&ns->streams.are_broken, memory_order_relaxed))
                return 0;
        ns_explain_broken(ns->info.device, why);
        return error_note(-EIO, why);
}

void ns_break_device(const struct kvl_ns *ns)
{
        ns->conn->listeners->device_broken(ns->conn, ns->info.device);
}

/* ---- callbacks ---------------------------------------------------------------------------------
 */

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
