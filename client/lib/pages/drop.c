/* Pages to be dropped in any tier: invalidated ones, and those that no user here knows. */
#include <errno.h>

#include "base/macros.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"

static const struct op_type type_invalidate = {.msg = MSG_INVALIDATE, .reply = op_take_count};
static const struct op_type type_report = {.msg = MSG_REPORT, .reply = op_take_count};

static int run_invalidate(
        struct kvl_ns *ns, const uint8_t *key, uint64_t tag, bool mismatch, uint64_t *ret_n_pages)
{
        Kvlease__V1__InvalidateRequest m = KVLEASE__V1__INVALIDATE_REQUEST__INIT;
        struct op op;
        int r;

        m.ns_id = ns->id;
        if (key) {
                m.key.data = (uint8_t *)key;
                m.key.len = KVL_KEY_BYTES;
        }
        m.tag = tag;
        m.mismatch = mismatch;
        op_init(&op, ns, &type_invalidate, NULL, 0);
        r = op_run(&op, &m.base, client_deadline(ns->conn));
        if (r == 0 && ret_n_pages)
                *ret_n_pages = op.n_tokens;
        return r;
}

int kvl_invalidate(struct kvl_ns *ns, const uint8_t *key, uint64_t *ret_n_pages)
{
        int r = args_check_ns(ns);

        return r < 0 ? r : run_invalidate(ns, key, 0, false, ret_n_pages);
}

int kvl_invalidate_tag(struct kvl_ns *ns, uint64_t tag, uint64_t *ret_n_pages)
{
        int r = args_check_ns(ns);

        if (r == 0 && tag == 0)
                r = error_set(-EINVAL, "the tag is 0, which is none");
        return r < 0 ? r : run_invalidate(ns, NULL, tag, false, ret_n_pages);
}

int kvl_invalidate_mismatch(struct kvl_ns *ns, uint64_t *ret_n_pages)
{
        int r = args_check_ns(ns);

        return r < 0 ? r : run_invalidate(ns, NULL, 0, true, ret_n_pages);
}

/* [L] As kvl_report(). -ESTALE though the connection isn't broken: start anew, as a restarted
 * daemon has forgotten the earlier messages. */
static int report_all(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages,
        uint64_t deadline_nsec, uint64_t *ret_n_freed)
{
        Kvlease__V1__ReportRequest m = KVLEASE__V1__REPORT_REQUEST__INIT;
        uint32_t done = 0;
        struct op op;
        int r;

        m.ns_id = ns->id;
        do {
                m.continues = done > 0;
                m.pages = (uint32_t *)pages + done;
                m.n_pages = MIN(n_pages - done, (uint32_t)KVL_MAX_LEASE_PAGES);
                done += (uint32_t)m.n_pages;
                m.more = done < n_pages;
                op_init(&op, ns, &type_report, NULL, 0);
                r = op_finish(
                        &op, conn_start(conn_of(ns), &op.call, MSG_REPORT, &m.base), deadline_nsec);
        } while (r == 0 && m.more);
        if (r == 0)
                *ret_n_freed = op.n_tokens;
        return r;
}

int kvl_report(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, uint64_t *ret_n_freed)
{
        uint64_t deadline, n_freed;
        struct conn *c;
        int r = n_pages > 0 ? args_check_pages(ns, pages, n_pages, UINT32_MAX) : args_check_ns(ns);

        if (r < 0)
                return r;
        c = conn_of(ns);
        deadline = client_deadline(ns->conn);
        conn_lock(c);
        do
                r = report_all(ns, pages, n_pages, deadline, &n_freed);
        while (r == -ESTALE && !c->broken);
        conn_unlock(c);
        if (r == 0 && ret_n_freed)
                *ret_n_freed = n_freed;
        return r;
}
