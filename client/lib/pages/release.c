/* Operations on held pages: release, pin again, map. */
#include "client/lib/pages/stream.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/calls/give-back.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"

/* ---- release -----------------------------------------------------------------------------------
 */

static int send_op_release(struct op *op)
{
        return send_release(op->ns, &op->call, op->pages, op->n_asked);
}

const struct op_type op_type_release = {.msg = MSG_RELEASE, .send = send_op_release};

static int release_shared(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        uint32_t page;

        if (fast_release(&ns->fast, pages, n_pages, &page) < 0)
                return error_set(-EINVAL, "page %u isn't pinned by this connection", page);
        return 0;
}

int kvl_release(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        int r = args_check_pages(ns, pages, n_pages, UINT32_MAX);

        if (r < 0)
                return r;
        if (fast_is_open(&ns->fast))
                return release_shared(ns, pages, n_pages);
        return op_run_parts(
                ns, &op_type_release, pages, n_pages, KVL_MAX_LEASE_PAGES, op_run_pages);
}

int kvl_release_start(
        struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, kvl_done_fn done, void *data)
{
        struct op *op;
        int r = args_check_pages(ns, pages, n_pages, KVL_MAX_LEASE_PAGES);

        /* Nothing needs to be under way. */
        if (r == 0 && !done && fast_is_open(&ns->fast))
                return release_shared(ns, pages, n_pages);
        if (r == 0)
                r = op_new_with(ns, &op_type_release, pages, n_pages, done, data, &op);
        if (r < 0)
                return r;
        if (fast_is_open(&ns->fast))
                return op_start_done(op, release_shared(ns, pages, n_pages));
        return op_start(op, NULL);
}

/* ---- pages that are held -----------------------------------------------------------------------
 */

#define MAX_HELD_PAGES 256 /* of one HELD; protocol */

static int send_op_pin(struct op *op)
{
        Kvlease__V1__PinRequest m = KVLEASE__V1__PIN_REQUEST__INIT;

        m.ns_id = op->ns->id;
        m.n_pages = op->n_asked;
        m.pages = op->pages;
        return conn_start(conn_of(op->ns), &op->call, MSG_PIN, &m.base);
}

static int send_op_held(struct op *op)
{
        Kvlease__V1__HeldRequest m = KVLEASE__V1__HELD_REQUEST__INIT;

        m.ns_id = op->ns->id;
        m.n_pages = op->n_asked;
        m.pages = op->pages;
        return conn_start(conn_of(op->ns), &op->call, MSG_HELD, &m.base);
}

static const struct op_type type_pin = {.msg = MSG_PIN, .send = send_op_pin};
static const struct op_type type_held = {.msg = MSG_HELD, .send = send_op_held};
static const struct op_type type_map = {.msg = MSG_MAP, .populates = true};

static int pin_shared(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        uint32_t page = 0;
        int r = fast_pin_again(&ns->fast, pages, n_pages, &page);

        if (r == -EOVERFLOW)
                return error_set(r, "page %u is pinned too often: release some of its pins", page);
        if (r < 0)
                return error_set(r, "page %u isn't pinned by this connection", page);
        return 0;
}

int kvl_pin(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        int r = args_check_pages(ns, pages, n_pages, UINT32_MAX);

        if (r < 0)
                return r;
        if (fast_is_open(&ns->fast))
                return pin_shared(ns, pages, n_pages);
        return op_run_parts(ns, &type_pin, pages, n_pages, KVL_MAX_LEASE_PAGES, op_run_pages);
}

int kvl_map_pages(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        int r = args_check_pages(ns, pages, n_pages, UINT32_MAX);

        if (r < 0)
                return r;
        if (ns->conn->metadata_only)
                return error_set(-EACCES, "a metadata-only connection maps nothing");
        r = op_run_parts(ns, &type_held, pages, n_pages, MAX_HELD_PAGES, op_run_pages);
        return r != 0 ? r : op_map_got(ns, &type_map, (uint32_t *)pages, n_pages);
}
