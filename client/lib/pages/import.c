/*
 * What isn't cached on this host, and is on others: the daemon is asked to bring it here. That is a
 * message, also where memory is shared, as the daemon alone talks to others; it is sent where a
 * lookup that may wait has found less than it wants, and nobody computes the rest.
 */
#include <errno.h>

#include "base/macros.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/pages/lookup.h"

#define IMPORT_MAX_KEYS 256 /* protocol */

/* The daemon answers at the deadline; so much later it isn't waited for any more, and what it had
 * to say is of no use. Not tuned. */
#define LATE_NSEC (50 * NSEC_PER_MSEC)

static const struct op_type type_import = {.msg = MSG_IMPORT};

/* What an answer means for a lookup. Whoever may not import, or not now, computes. */
static int import_outcome(int code, uint32_t n_asked, uint32_t *ret_n_keys)
{
        switch (code) {
        case 0:
                *ret_n_keys = n_asked;
                return 0;
        case KVL_DUPLICATE:
                *ret_n_keys = 1;
                return 0;
        case KVL_NO_PARENT:
        case -EACCES:
        case -EBUSY:
        case -ENOMEM:
        case -ETIMEDOUT:
                return KVL_MISS;
        default:
                return code;
        }
}

int lookup_import(struct lookup *l, uint64_t deadline_nsec, uint32_t *ret_n_keys)
{
        Kvlease__V1__ImportRequest m = KVLEASE__V1__IMPORT_REQUEST__INIT;
        uint32_t n = MIN(l->n_keys - l->n_pages, (uint32_t)IMPORT_MAX_KEYS);
        uint64_t now = clock_now_nsec();
        struct op op;

        if (deadline_nsec <= now)
                return KVL_MISS;
        m.ns_id = l->ns->id;
        m.keys.data = (uint8_t *)l->keys + (size_t)l->n_pages * KVL_KEY_BYTES;
        m.keys.len = (size_t)n * KVL_KEY_BYTES;
        if (l->n_pages > 0) {
                m.parent_key.data = m.keys.data - KVL_KEY_BYTES;
                m.parent_key.len = KVL_KEY_BYTES;
        }
        m.timeout_msec = (uint32_t)((deadline_nsec - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC);
        op_init(&op, l->ns, &type_import, NULL, 0);
        return import_outcome(op_run(&op, &m.base, deadline_nsec + LATE_NSEC), n, ret_n_keys);
}
