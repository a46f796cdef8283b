#include "daemon/exchange/set-probe.h"

#include <errno.h>

#include "base/macros.h"
#include "daemon/core/cache/nsset.h"
#include "daemon/core/clients/announce.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/nsset-keys.h"
#include "daemon/exchange/exchange-ns.h"
#include "proto/status.h"

struct set_probe {
        const struct exchange_ns *of; /* the namespace of the import */
        /* The set's other namespaces, by struct ns.set_place; NULL: takes no part. */
        const struct exchange_ns *others[NSSET_MAX_SIZE];
        const uint8_t *keys;
        uint32_t n_keys, n_names;
        uint64_t asked[SET_PROBE_KEYS_MAX]; /* for each key: a bit by place in `others` */
};

static const uint8_t *key_at(const struct set_probe *p, uint32_t n)
{
        return p->keys + (size_t)n * KEY_BYTES;
}

static void find_others(struct set_probe *p)
{
        const struct ns *ns = p->of->ns;
        const struct nsset *set = ns->catalog.set;

        for (uint32_t i = 0; set && i < set->size; i++)
                if (set->members[i] && set->members[i] != ns)
                        p->others[i] = exchange_find_ns(set->members[i]);
}

/* Returns the other namespaces that lack the key. */
static uint64_t find_lacking(const struct set_probe *p, const uint8_t *key)
{
        const struct nsset *set = p->of->ns->catalog.set;
        uint64_t where = set ? nsset_where(set, key) : 0, lacking = 0;

        for (uint32_t i = 0; set && i < set->size; i++) {
                int state;

                if (!p->others[i])
                        continue;
                state = announce_state_in(p->others[i]->ns, key);
                /* A cached page may be about to be dropped. */
                if (state == KVL_STATUS_MISS || (state == 0 && !(where >> i & 1)))
                        lacking |= UINT64_C(1) << i;
        }
        return lacking;
}

/* Plans the names for as many keys as possible, at least one. */
static void plan(struct set_probe *p, uint32_t n_keys)
{
        for (; p->n_keys < n_keys; p->n_keys++) {
                uint64_t lacking = find_lacking(p, key_at(p, p->n_keys));
                uint32_t n = 1 + (uint32_t)__builtin_popcountll(lacking);

                if (p->n_names + n > SET_PROBE_NAMES_MAX)
                        break;
                p->asked[p->n_keys] = lacking;
                p->n_names += n;
        }
}

static int name_key(const struct set_probe *p, struct exchange_io *io, uint32_t n)
{
        char name[EXCHANGE_NAME_MAX];
        int r = exchange_name_page(p->of, key_at(p, n), name);

        if (r < 0)
                return r;
        exchange_io_name(io, n, name);
        for (uint64_t asked = p->asked[n]; asked != 0; asked &= asked - 1) {
                exchange_rename_page(p->others[__builtin_ctzll(asked)], name);
                exchange_io_name(io, n, name);
        }
        return 0;
}

int set_probe_new(const struct exchange_ns *e, const uint8_t *keys, uint32_t *n_keys,
        struct exchange_io **ret_io)
{
        struct set_probe p = {.of = e, .keys = keys};
        struct exchange_io *io;
        int r;

        find_others(&p);
        plan(&p, *n_keys);
        io = exchange_io_new(e->x, REMOTE_PROBE, REMOTE_SMALL, p.n_keys, 0, true);
        r = io ? exchange_io_reserve_names(io, p.n_names) : -ENOMEM;
        for (uint32_t n = 0; n < p.n_keys && r == 0; n++)
                r = name_key(&p, io, n);
        if (r < 0) {
                exchange_io_end(io);
                io = NULL;
        }
        *n_keys = p.n_keys;
        *ret_io = io;
        return r;
}
