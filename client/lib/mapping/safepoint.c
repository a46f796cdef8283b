/*
 * Gives recalled memory back: unused sets are unmapped between two steps of the engine.
 *
 *   mapped -> recalled (RECALL event, idle) -> taken by a kvl_safepoint() -> stream waited for ->
 *   unmapped -> UNMAPPED sent -> (as if never mapped)
 */

#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/connection/error.h"
#include "client/lib/mapping/map.h"
#include "client/lib/objects/ns.h"
#include "gpu/device.h"
#include "proto/status.h"

bool ns_note_recall(struct kvl_ns *ns, uint32_t set_index, bool is_idle)
{
        struct mapped_set *set;

        if (set_index >= ns->n_sets)
                return false;
        set = ns->sets ? &ns->sets[set_index] : NULL;
        if (!set || !is_idle || set->is_recalled)
                return true;
        set->is_recalled = true;
        atomic_fetch_add_explicit(&ns->conn->n_recalled, 1, memory_order_relaxed);
        return true;
}

static void forget_recall(struct kvl_ns *ns, struct mapped_set *set)
{
        set->is_recalled = false;
        set->taker = 0;
        atomic_fetch_sub_explicit(&ns->conn->n_recalled, 1, memory_order_relaxed);
}

void ns_forget_recalls(struct kvl_ns *ns)
{
        for (uint32_t i = 0; ns->sets && i < ns->n_sets; i++)
                if (ns->sets[i].is_recalled)
                        forget_recall(ns, &ns->sets[i]);
}

/* The daemon has checked that no page of it is held. Checked again, as unmapping memory in use is
 * the worst fault here. */
static bool is_held(const struct kvl_ns *ns, uint32_t set_index)
{
        uint32_t first = set_index * ns->info.set_pages;

        for (uint32_t i = 0; fast_is_open(&ns->fast) && i < ns->info.set_pages; i++)
                if (fast_is_pinned(&ns->fast, first + i))
                        return true;
        return false;
}

/* [L] Takes the sets that are recalled now for this call. Sets recalled later may be used by work
 * put on the stream after the wait began. Returns how many. */
static uint32_t take_recalled(struct kvl_conn *conn, uint64_t taker)
{
        uint32_t n = 0;

        list_for_each (ns, &conn->namespaces, struct kvl_ns, link)
                for (uint32_t i = 0; ns->sets && i < ns->n_sets; i++) {
                        struct mapped_set *set = &ns->sets[i];

                        if (!set->is_recalled || set->taker || is_held(ns, i))
                                continue;
                        set->taker = taker;
                        set->is_waited_for = false;
                        n++;
                }
        return n;
}

/* [L] The next of this call's sets, from *ret_ns on; false: no more. */
static bool next_taken(
        struct kvl_conn *conn, uint64_t taker, struct kvl_ns **ret_ns, uint32_t *ret_set)
{
        list_for_each (ns, &conn->namespaces, struct kvl_ns, link)
                for (uint32_t i = 0; ns->sets && i < ns->n_sets; i++)
                        if (ns->sets[i].taker == taker) {
                                *ret_ns = ns;
                                *ret_set = i;
                                return true;
                        }
        return false;
}

/* [L] Leaves the sets recalled, for the next call. */
static void untake_recalled(struct kvl_conn *conn, uint64_t taker)
{
        struct kvl_ns *ns;
        uint32_t set;

        while (next_taken(conn, taker, &ns, &set))
                ns->sets[set].taker = 0;
}

/* [L] Returns true if the call's stream wasn't waited for yet, for sets of this namespace. */
static bool begin_to_wait(struct kvl_ns *ns, uint64_t taker)
{
        bool is_first = false;

        for (uint32_t i = 0; ns->sets && i < ns->n_sets; i++) {
                if (ns->sets[i].taker != taker || ns->sets[i].is_waited_for)
                        continue;
                ns->sets[i].is_waited_for = true;
                is_first = true;
        }
        return is_first;
}

/* [L] Waits without the lock; keeps the namespace meanwhile. */
static int wait_for_stream(struct kvl_ns *ns, void *stream)
{
        struct kvl_conn *conn = ns->conn;
        char device[sizeof(ns->info.device)];
        struct ns_callback hold;
        int r;

        memcpy(device, ns->info.device, sizeof(device));
        ns_callback_enter(&hold, ns);
        conn_unlock(conn->conn);
        r = ns->device->ops->stream_wait(ns->device, stream);
        ns_callback_leave(&hold);
        conn_lock(conn->conn);
        if (r == -ENXIO)
                conn->listeners->device_broken(conn, device);
        if (r == -EINVAL)
                return error_set(r,
                        "the stream can't be waited for on %s: it is none, or is being captured into a CUDA graph",
                        device);
        return r == 0 ? 0
                      : error_set(-EIO, "the stream can't be waited for on %s: %s", device,
                                r == -ENXIO ? "its context is broken" : status_text(r));
}

static struct kvl_ns *next_to_wait_for(struct kvl_conn *conn, uint64_t taker)
{
        list_for_each (ns, &conn->namespaces, struct kvl_ns, link)
                if (begin_to_wait(ns, taker) && ns->device->ops->stream_wait)
                        return ns;
        return NULL;
}

/* [L] Waits in the context of each device with taken sets: each has its own NULL stream. */
static int wait_for_streams(struct kvl_conn *conn, uint64_t taker, void *stream)
{
        struct kvl_ns *ns;
        int r = 0;

        while (r == 0 && (ns = next_to_wait_for(conn, taker)))
                r = wait_for_stream(ns, stream);
        return r;
}

/* [L] */
static int say_unmapped(struct kvl_conn *conn, uint32_t ns_id, uint32_t set_index)
{
        Kvlease__V1__UnmappedRequest m = KVLEASE__V1__UNMAPPED_REQUEST__INIT;
        struct conn_call call = {0};
        int r;

        m.ns_id = ns_id;
        m.set_index = set_index;
        r = conn_start(conn->conn, &call, MSG_UNMAPPED, &m.base);
        if (r == 0)
                r = conn_wait(conn->conn, &call, client_deadline(conn));
        return error_note(r, call.detail);
}

/* [L] Unmaps the taken sets. Returns how many, or -errno. Callbacks that run in between may close
 * namespaces. */
static int give_back(struct kvl_conn *conn, uint64_t taker)
{
        struct kvl_ns *ns;
        uint32_t set;
        bool was_mapped;
        int n = 0, r;

        while (next_taken(conn, taker, &ns, &set)) {
                /* Pinned again while the stream was waited for. */
                if (is_held(ns, set)) {
                        ns->sets[set].taker = 0;
                        continue;
                }
                was_mapped = ns_maps_some(ns, set);
                r = ns_unmap_set(ns, set);
                if (r == -ENXIO)
                        ns_break_device(ns);
                if (r < 0)
                        return error_set(-EIO, "can't unmap memory of the device %s: %s",
                                ns->info.device, status_text(r));
                forget_recall(ns, &ns->sets[set]);
                r = say_unmapped(conn, ns->id, set);
                /* -EBUSY: not idle. Nothing is lost: the set is mapped again when it's used.
                 * -ENOENT for a set that wasn't mapped: the daemon asked before it knew that. */
                if (r < 0 && r != -EBUSY && (r != -ENOENT || was_mapped))
                        return r;
                n += r == 0;
        }
        return n;
}

/* [L] */
static int run_safepoint(struct kvl_conn *conn, uint64_t taker, void *stream)
{
        int r;

        if (conn->conn->broken)
                return error_note(-ENOTCONN, conn->conn->detail);
        if (take_recalled(conn, taker) == 0)
                return 0;
        r = wait_for_streams(conn, taker, stream);
        if (r == 0)
                r = give_back(conn, taker);
        untake_recalled(conn, taker);
        return r;
}

int kvl_safepoint(struct kvl_conn *conn, kvl_stream stream)
{
        int r;

        if (!conn)
                return error_set(-EINVAL, "no connection was given");
        r = client_check_process(conn);
        if (r < 0 || atomic_load_explicit(&conn->n_recalled, memory_order_relaxed) == 0)
                return r;
        conn_lock(conn->conn);
        r = run_safepoint(conn, ++conn->n_safepoints, stream);
        conn_unlock(conn->conn);
        return r;
}
