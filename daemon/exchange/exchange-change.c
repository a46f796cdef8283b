#include "daemon/exchange/exchange-epoch.h"

#include <string.h>

#include "base/list.h"
#include "daemon/core/state/ns.h"
#include "daemon/exchange/exchange-io.h"
#include "daemon/exchange/exchange-ns.h"
#include "daemon/core/requests/invalidate.h"

/* Makes the operation on the change at `at`: named, and with its envelope. NULL: no memory. */
static struct exchange_io *change_io_new(
        struct exchange_epoch *p, enum remote_kind kind, uint32_t n_items, uint64_t payload_bytes)
{
        const struct exchange_tenant *whose = &p->x->whose;
        struct envelope v = {.epoch = p->changes.at,
                .rank = EXCHANGE_RANK_CHANGE,
                .codec = CODEC_NONE,
                .payload_bytes = payload_bytes,
                .tokens = 1};
        char name[EXCHANGE_NAME_MAX];
        struct exchange_io *io;
        struct seal_key seal;

        if (exchange_change_name(whose, p->id, v.epoch, v.key, name) < 0 ||
                (whose->secret_len > 0 && exchange_seal_key(whose, v.epoch, &seal) < 0))
                return NULL;
        memcpy(v.id, p->id, sizeof(v.id));
        io = exchange_io_new(
                p->x, kind, REMOTE_SMALL, 1, ENVELOPE_BYTES + change_bytes(n_items), true);
        if (io) {
                exchange_io_name(io, 0, name);
                exchange_io_envelop(io, &v, whose->secret_len > 0 ? &seal : NULL);
        }
        explicit_bzero(&seal, sizeof(seal));
        return io;
}

struct exchange_io *change_write_new(struct exchange_epoch *p)
{
        const struct change *c = &p->changes.sent;
        struct exchange_io *io =
                change_io_new(p, REMOTE_WRITE, c->n_items, change_bytes(c->n_items));

        if (!io)
                return NULL;
        change_write(c, io->buffer + ENVELOPE_BYTES);
        io->io->ops[0].expiry_msec = EPOCH_EXPIRY_MSEC;
        io->io->ops[0].only_new = true;
        return io;
}

struct exchange_io *change_read_new(struct exchange_epoch *p)
{
        return change_io_new(p, REMOTE_READ, CHANGE_ITEMS_MAX, 0);
}

bool change_take(struct exchange_epoch *p, const struct exchange_io *io)
{
        struct exchange_changes *c = &p->changes;

        c->n_done = 0;
        if (io->fault == ENVELOPE_GOOD &&
                change_read(io->buffer + ENVELOPE_BYTES, io->envelope.payload_bytes, &c->coming))
                return true;
        exchange_note_refused(
                p->x, "no-change", "what lies in the place of an invalidation is none", 0);
        exchange_remove(p->x, io->names[0]);
        return false;
}

bool change_follow(struct exchange_epoch *p)
{
        struct exchange_changes *c = &p->changes;

        for (; c->n_done < c->coming.n_items; c->n_done++) {
                const struct change_item *item = &c->coming.items[c->n_done];
                const uint8_t *key = item->kind == CHANGE_KEY ? item->key : NULL;

                list_for_each (e, &p->x->namespaces, struct exchange_ns, link)
                        if (e->epoch == p && ns_follow_change(e->ns, key, item->tag) != 0)
                                return false;
        }
        return true;
}

bool change_is_over(const struct exchange_epoch *p)
{
        list_for_each (e, &p->x->namespaces, struct exchange_ns, link)
                if (e->epoch == p && !list_is_empty(&e->ns->catalog.drops))
                        return false;
        return true;
}
