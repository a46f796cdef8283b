/* The epochs of namespaces: random numbers that all hosts get from the store (exchange.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/macros.h"
#include "daemon/exchange/exchange-impl.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/nsset-keys.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/state/records.h"
#include "daemon/core/requests/invalidate.h"

/* The value: the number in the machine's byte order, as in envelopes. */
#define EPOCH_BYTES sizeof(uint64_t)

/* How long the store keeps an epoch, or a change, that isn't read: the longest time possible
 * (remote.h). A lost epoch costs the pages exported under it. After a lost change, a host that was
 * away meanwhile keeps invalidated pages. */
#define EPOCH_EXPIRY_MSEC (UINT64_C(365) * 24 * 3600 * 1000)

/* The most changes applied per second: a peer that may write to the store could write them without
 * end. Not tuned. */
#define EPOCH_FOLLOWS_MAX 64

/* How often, a second apart, a missing change is looked for. */
#define EPOCH_MISSED_MAX 3

/* Time until an operation that couldn't begin is tried again. Not tuned. */
#define EPOCH_SOON_NSEC (10 * NSEC_PER_MSEC)

/* Epochs of an exchange that must change and have no namespace any more. Not tuned. */
#define EPOCHS_LEFT_MAX 64

/* ---- identity -------------------------------------------------------------------------------- */

/* Computes the epoch's id: the namespace's identity, so that each version has its own; for a set
 * its name, as its namespaces have different identities. */
static int identify_epoch(const struct exchange_ns *e, uint8_t id[EXCHANGE_ID_BYTES])
{
        const struct nsset *set = e->ns->catalog.set;
        const struct exchange_model m = {.scope = set ? set->name : NULL};

        if (set)
                return exchange_identify(&e->x->whose, &m, id);
        memcpy(id, e->id, EXCHANGE_ID_BYTES);
        return 0;
}

struct exchange_epoch *epoch_get(struct exchange_ns *e)
{
        uint8_t id[EXCHANGE_ID_BYTES];
        struct exchange_epoch *p;

        if (identify_epoch(e, id) < 0)
                return NULL;
        list_for_each (each, &e->x->epochs, struct exchange_epoch, link)
                if (memcmp(each->id, id, sizeof(id)) == 0) {
                        each->n_namespaces++;
                        return each;
                }
        p = calloc(1, sizeof(*p));
        if (!p)
                return NULL;
        p->x = e->x;
        memcpy(p->id, id, sizeof(id));
        p->n_namespaces = 1;
        list_init(&p->link);
        list_append(&e->x->epochs, &p->link);
        return p;
}

static void epoch_free(struct exchange_epoch *p)
{
        exchange_io_end(p->asking);
        list_remove(&p->link);
        explicit_bzero(&p->seal, sizeof(p->seal));
        free(p);
}

static void epoch_leave(struct exchange_epoch *p);

/* Returns the oldest epoch without namespaces if there are more than EPOCHS_LEFT_MAX, else NULL. */
static struct exchange_epoch *find_too_many(const struct exchange *x)
{
        struct exchange_epoch *first = NULL;
        unsigned n = 0;

        list_for_each (p, &x->epochs, struct exchange_epoch, link)
                if (p->n_namespaces == 0 && n++ == 0)
                        first = p;
        return n > EPOCHS_LEFT_MAX ? first : NULL;
}

void epoch_put(struct exchange_ns *e)
{
        struct exchange_epoch *p = e->epoch, *left;

        e->epoch = NULL;
        if (--p->n_namespaces > 0)
                return;
        if (!p->must_change) {
                epoch_free(p);
                return;
        }
        /* Moves this epoch behind the others, so that the first one is the oldest. */
        list_remove(&p->link);
        list_append(&e->x->epochs, &p->link);
        left = find_too_many(e->x);
        if (left)
                epoch_leave(left);
}

/* ---- the log of invalidations ---------------------------------------------------------------- */

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

/* Makes an operation that writes p->changes.sent, if there is no change at p->changes.at. NULL: no
 * memory. */
static struct exchange_io *change_write_new(struct exchange_epoch *p)
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

/* Makes an operation that reads the change at p->changes.at. NULL: no memory. */
static struct exchange_io *change_read_new(struct exchange_epoch *p)
{
        return change_io_new(p, REMOTE_READ, CHANGE_ITEMS_MAX, 0);
}

/* Takes the result of a read that has ended with 0 as p->changes.coming. Returns false if it isn't
 * a change: it is removed from the store. */
static bool change_take(struct exchange_epoch *p, const struct exchange_io *io)
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

/* Applies the coming change here, in all namespaces that have the epoch. Returns false if a part is
 * left. */
static bool change_follow(struct exchange_epoch *p)
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

/* Were all pages of applied changes dropped? */
static bool change_is_over(const struct exchange_epoch *p)
{
        list_for_each (e, &p->x->namespaces, struct exchange_ns, link)
                if (e->epoch == p && !list_is_empty(&e->ns->catalog.drops))
                        return false;
        return true;
}

/* ---- over a restart -------------------------------------------------------------------------- */

/* Stores the epoch in the records; while other hosts' changes are being applied, the epoch at which
 * they begin. After a kill they are applied again, and cached pages count as another epoch's. */
static void commit_epoch(struct exchange_epoch *p)
{
        const struct exchange_changes *c = &p->changes;
        const bool is_followed = !c->is_behind && change_is_over(p);
        const struct shared_epoch known = {.must_change = p->must_change,
                .number = p->must_change || !is_followed ? c->at : p->number,
                .known_sec = p->known_sec};

        p->changes.is_due = !is_followed;
        list_for_each (e, &p->x->namespaces, struct exchange_ns, link)
                if (e->epoch == p)
                        records_commit_shared_epoch(e->ns, &known);
}

void epoch_recall(struct exchange_ns *e)
{
        const struct shared_epoch kept = records_shared_epoch(e->ns);
        struct exchange_epoch *p = e->epoch;

        if (p->changes.at == 0)
                p->changes.at = p->changes.seen = kept.number;
        if (kept.must_change && !p->must_change) {
                /* Invalidates all: only the previous daemon knew which keys. */
                epoch_change(p, &(const struct change_item){.kind = CHANGE_ALL});
        } else if (p->number != 0 || p->must_change) {
                commit_epoch(p);
        } else if (kept.number != 0) {
                bool is_first = p->kept_number == 0 && !p->was_known;

                /* Namespaces of a set have the same epoch; otherwise it counts as unknown. */
                p->kept_number = is_first || kept.number == p->kept_number ? kept.number : 0;
                p->kept_sec = MAX(p->kept_sec, kept.known_sec);
                p->was_known = true;
        }
}

/* ---- the number ------------------------------------------------------------------------------ */

static uint64_t random_epoch(void)
{
        uint64_t epoch;

        do
                epoch = hash_seed_random().k0;
        while (epoch == 0);
        return epoch;
}

static struct exchange_io *epoch_io_new(struct exchange_epoch *p, enum remote_kind kind)
{
        char name[EXCHANGE_NAME_MAX];
        struct exchange_io *io;

        if (exchange_epoch_name(&p->x->whose, p->id, name) < 0)
                return NULL;
        io = exchange_io_new(p->x, kind, REMOTE_SMALL, 1, EPOCH_BYTES, true);
        if (io)
                exchange_io_name(io, 0, name);
        return io;
}

struct exchange_io *epoch_read_new(struct exchange_epoch *p)
{
        struct exchange_io *io = epoch_io_new(p, REMOTE_READ);

        if (io)
                io->epoch_turn = p->turn;
        return io;
}

/* Returns the epoch that was read; 0: none. */
static uint64_t epoch_of(const struct exchange_io *io)
{
        uint64_t epoch = 0;

        if (io->results[0].result == 0 && io->results[0].n_bytes == EPOCH_BYTES)
                memcpy(&epoch, io->buffer, EPOCH_BYTES);
        return epoch;
}

/* Is the result older than the known epoch? Then the epoch may have changed since. */
static bool is_outdated(const struct exchange_epoch *p, const struct exchange_io *io)
{
        return io->epoch_turn != p->turn && epoch_of(io) != p->number;
}

static void note_refused(struct exchange_epoch *p)
{
        exchange_note_refused(
                p->x, "no-epoch", "what lies in the place of a namespace's epoch is none", 0);
}

/* Notes the store's epoch. If it differs from the last one, hosts may have changed it. */
static void note_seen(struct exchange_epoch *p, uint64_t number)
{
        struct exchange_changes *c = &p->changes;

        if (number == c->seen)
                return;
        c->seen = number;
        if (c->at == 0) {
                c->at = number;
        } else if (c->at != number) {
                c->is_behind = true;
                c->has_met = false;
                c->n_missed = 0;
        }
}

/* The store has this epoch. */
static void learn(struct exchange_epoch *p, uint64_t number)
{
        note_seen(p, number);
        if (p->number == number)
                return;
        p->turn++;
        p->number = number;
        /* Pages published in the second of a change may be older than it. */
        p->known_sec = store_now_sec(p->x->tenant->store) + p->was_known;
        if (number == p->kept_number)
                p->known_sec = p->kept_sec;
        p->was_known = true;
        exchange_forget_exported(p->x, p);
        if (p->x->whose.secret_len > 0 && exchange_seal_key(&p->x->whose, number, &p->seal) < 0)
                p->number = 0; /* no memory: it is read again */
        else
                p->kept_number = 0;
        commit_epoch(p);
}

int epoch_take(struct exchange_epoch *p, const struct exchange_io *io)
{
        uint64_t epoch = epoch_of(io);
        int r = io->results[0].result;

        if (r == 0 && epoch == 0)
                r = -EMSGSIZE; /* the value isn't an epoch */
        if (r == -EMSGSIZE)
                note_refused(p);
        if (p->must_change || is_outdated(p, io))
                return -ESTALE;
        if (r < 0)
                return r;
        learn(p, epoch);
        return p->number == epoch ? 0 : -ENOMEM;
}

/* ---- questions ------------------------------------------------------------------------------- */

/* Makes an operation that writes the epoch: over the old one (`changes`), or if there is none. */
static struct exchange_io *epoch_write_new(struct exchange_epoch *p, bool changes)
{
        struct exchange_io *io = epoch_io_new(p, REMOTE_WRITE);

        if (!io)
                return NULL;
        memcpy(io->buffer, &p->new_epoch, EPOCH_BYTES);
        io->io->ops[0].expiry_msec = EPOCH_EXPIRY_MSEC;
        io->io->ops[0].only_new = !changes;
        io->io->ops[0].only_once = true;
        return io;
}

/* Begins to send the invalidations made here, which end with another epoch. No epoch is written
 * twice: the first write may have succeeded, and another host may have changed it since. */
static void send_changes(struct exchange_epoch *p)
{
        struct exchange_changes *c = &p->changes;

        change_merge(&c->sent, &c->made);
        c->made.n_items = 0;
        p->new_epoch = c->sent.next = random_epoch();
}

static void begin_asking(struct exchange_epoch *p, enum epoch_asks asks)
{
        struct exchange_io *io = NULL;

        p->asked_nsec = p->x->tenant->store->now_nsec;
        switch (asks) {
        case EPOCH_READS:
                p->changes.n_followed = 0;
                io = epoch_read_new(p);
                break;
        case EPOCH_MAKES:
                p->new_epoch = random_epoch();
                io = epoch_write_new(p, false);
                break;
        case EPOCH_TELLS:
                send_changes(p);
                io = change_write_new(p);
                break;
        case EPOCH_CHANGES:
                if (p->changes.at != p->new_epoch)
                        send_changes(p);
                io = epoch_write_new(p, true);
                break;
        case EPOCH_FOLLOWS:
                p->changes.n_followed++;
                io = change_read_new(p);
                break;
        }
        if (!io)
                return;
        if (exchange_io_begin(io, p->asked_nsec + EXCHANGE_SMALL_NSEC) < 0) {
                exchange_io_end(io);
                return;
        }
        p->asking = io;
        p->asks = asks;
}

static void send_and_let_go(struct exchange_epoch *p, struct exchange_io *io)
{
        if (io && exchange_io_begin(io, p->asked_nsec + EXCHANGE_SMALL_NSEC) == 0)
                exchange_io_let_go(io);
        else
                exchange_io_end(io);
}

/* Ends the epoch. Changes that are due are sent at once, without a retry. */
static void epoch_leave(struct exchange_epoch *p)
{
        p->asked_nsec = p->x->tenant->store->now_nsec;
        if (p->must_change) {
                exchange_io_end(TAKE(p->asking));
                send_changes(p);
                if (p->changes.at != 0)
                        send_and_let_go(p, change_write_new(p));
                send_and_let_go(p, epoch_write_new(p, true));
        }
        epoch_free(p);
}

void epoch_change(struct exchange_epoch *p, const struct change_item *what)
{
        change_add(&p->changes.made, what);
        p->must_change = true;
        p->turn++;
        p->number = 0;
        p->kept_number = 0;
        commit_epoch(p);
        if (p->asking && p->asks != EPOCH_READS)
                return;
        /* The answer would be outdated; the write must follow the store's present epoch. */
        exchange_io_end(p->asking);
        p->asking = NULL;
        p->changes.is_read = false;
        begin_asking(p, EPOCH_READS);
}

bool epoch_refresh(struct exchange_epoch *p)
{
        uint64_t now = p->x->tenant->store->now_nsec;

        if (p->number == 0 || p->asking)
                return false;
        if (now < p->asked_nsec + EPOCH_AGAIN_NSEC)
                return true;
        begin_asking(p, EPOCH_READS);
        return !p->asking; /* can't read now: use the known one */
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Asks again now, instead of after the usual time. */
static void go_on_at_once(struct exchange_epoch *p)
{
        p->asked_nsec = 0;
}

/* If this host exports, it makes an epoch where there is none, or an invalid one. */
static void take_read(struct exchange_epoch *p, const struct exchange_io *io)
{
        const uint64_t epoch = epoch_of(io);
        const int result = io->results[0].result;
        const bool is_none = result == -ENOENT;
        const bool is_rubbish = epoch == 0 && (result == 0 || result == -EMSGSIZE);

        if (is_rubbish)
                note_refused(p);
        if (is_outdated(p, io) && !p->must_change)
                return;
        if (epoch != 0 && p->must_change)
                note_seen(p, epoch);
        else if (epoch != 0)
                learn(p, epoch);
        else if (is_rubbish && !p->must_change)
                exchange_remove(p->x, io->names[0]);
        else if (is_none && !p->must_change && p->x->options.may_write)
                begin_asking(p, EPOCH_MAKES);
        p->changes.is_read = epoch != 0 || is_none || is_rubbish;
        if (p->must_change && p->changes.is_read)
                go_on_at_once(p);
}

/* The epoch that this host has made is in the store. */
static void take_made(struct exchange_epoch *p, int result)
{
        if (result != 0 || p->must_change)
                return; /* -EEXIST: another host was first; its epoch is read */
        p->changes.at = p->new_epoch;
        p->changes.is_behind = false;
        learn(p, p->new_epoch);
}

/* Sent changes take effect with the next epoch. If they may be lost, they are sent again. */
static void take_told(struct exchange_epoch *p, int result)
{
        struct exchange_changes *c = &p->changes;

        if (result == 0) {
                c->at = p->new_epoch;
                c->sent.n_items = 0;
                begin_asking(p, EPOCH_CHANGES);
        } else if (result == -EEXIST) { /* another host was first: its change comes before */
                c->is_behind = c->has_met = true;
                go_on_at_once(p);
        } else {
                c->is_read = false;
        }
}

static void take_changed(struct exchange_epoch *p, int result)
{
        struct exchange_changes *c = &p->changes;

        c->is_read = false;
        if (result != 0)
                return;
        c->sent.n_items = 0;
        c->at = p->new_epoch;
        p->x->counters.epochs++;
        p->must_change = c->made.n_items > 0; /* more was invalidated since it was sent */
        if (!p->must_change) {
                learn(p, p->new_epoch);
                return;
        }
        c->seen = p->new_epoch;
        go_on_at_once(p);
}

/* The last change was applied. It leads to the store's epoch; or none does, because the store has
 * lost it, or the epoch. A change is written before the epoch, but may become visible after it. */
static void end_following(struct exchange_epoch *p)
{
        struct exchange_changes *c = &p->changes;

        if (!c->has_met && !p->must_change && ++c->n_missed < EPOCH_MISSED_MAX)
                return;
        if (!c->has_met)
                c->at = c->seen;
        c->is_behind = false;
        c->is_due = true;
        if (p->must_change)
                go_on_at_once(p);
}

static void take_followed(struct exchange_epoch *p, const struct exchange_io *io)
{
        struct exchange_changes *c = &p->changes;
        const int result = io->results[0].result;

        if (result == -ENOENT) {
                end_following(p);
        } else if (result == -EMSGSIZE || (result == 0 && !change_take(p, io))) {
                /* An invalid change blocks this host's own if it may not remove that. */
                c->at = p->x->options.may_write ? c->seen : 0;
                c->is_behind = false;
                c->is_due = true;
        } else if (result == 0) {
                p->x->counters.followed++;
                if (c->n_followed % EPOCH_FOLLOWS_MAX != 0)
                        go_on_at_once(p);
        }
}

static void take_answer(struct exchange_epoch *p)
{
        struct exchange_io *io = p->asking;
        int result = io->results[0].result;

        p->asking = NULL;
        switch (p->asks) {
        case EPOCH_READS:
                take_read(p, io);
                break;
        case EPOCH_MAKES:
                take_made(p, result);
                break;
        case EPOCH_TELLS:
                take_told(p, result);
                break;
        case EPOCH_CHANGES:
                take_changed(p, result);
                break;
        case EPOCH_FOLLOWS:
                take_followed(p, io);
                break;
        }
        exchange_io_end(io);
}

/* ---- work ------------------------------------------------------------------------------------ */

/* Applies another host's change here. Returns false if a part couldn't begin yet. */
static bool follow_coming(struct exchange_epoch *p)
{
        struct exchange_changes *c = &p->changes;

        if (c->coming.next == 0)
                return true;
        if (!change_follow(p))
                return false;
        c->at = c->coming.next;
        c->has_met |= c->at == c->seen;
        c->coming = (struct change){0};
        c->n_done = 0;
        return true;
}

static enum epoch_asks next_question(const struct exchange_epoch *p)
{
        const struct exchange_changes *c = &p->changes;

        if (c->is_behind)
                return EPOCH_FOLLOWS;
        if (!p->must_change || !c->is_read)
                return EPOCH_READS;
        return c->at != 0 ? EPOCH_TELLS : EPOCH_CHANGES;
}

/* Asks the next question when it is due. Returns when to call it again. */
static uint64_t ask_next(struct exchange_epoch *p, uint64_t now)
{
        if (!p->asking && (p->asked_nsec == 0 || now >= p->asked_nsec + EPOCH_AGAIN_NSEC))
                begin_asking(p, next_question(p));
        return p->asking ? UINT64_MAX : p->asked_nsec + EPOCH_AGAIN_NSEC;
}

uint64_t epoch_work(struct exchange_epoch *p)
{
        const uint64_t now = p->x->tenant->store->now_nsec;
        uint64_t next = UINT64_MAX;

        if (p->asking && exchange_io_is_over(p->asking))
                take_answer(p);
        if (!follow_coming(p))
                return now + EPOCH_SOON_NSEC;
        if (p->changes.is_due && !p->changes.is_behind && change_is_over(p))
                commit_epoch(p);
        else if (p->changes.is_due && !p->changes.is_behind)
                next = now + EPOCH_SOON_NSEC;
        if (p->n_namespaces > 0 || p->must_change)
                return MIN(next, ask_next(p, now));
        epoch_free(p);
        return UINT64_MAX;
}

void epochs_end(struct exchange *x)
{
        list_for_each_safe (p, &x->epochs, struct exchange_epoch, link)
                epoch_leave(p);
}
