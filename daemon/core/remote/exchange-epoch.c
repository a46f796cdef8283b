/* The epochs of namespaces: random numbers that all hosts have from the store (exchange.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/macros.h"
#include "daemon/core/remote/exchange-epoch.h"
#include "daemon/core/remote/exchange-io.h"
#include "daemon/core/remote/exchange-ns.h"
#include "daemon/core/objects/ns.h"
#include "daemon/core/objects/nsset.h"
#include "daemon/core/objects/store.h"
#include "daemon/core/objects/tenant.h"
#include "daemon/core/records/records.h"

/* So long the store keeps one that nobody reads: the longest there is (remote.h). Losing it costs
 * what was exported under it. */
#define EPOCH_EXPIRY_MSEC (UINT64_C(365) * 24 * 3600 * 1000)

/* The value: the number itself, of the machine's byte order, as envelopes have numbers. */
#define EPOCH_BYTES sizeof(uint64_t)

/* ---- whose ----------------------------------------------------------------------------------- */

/* What names it: the namespace's identity, so that each version has its own; of a set its name, as
 * its namespaces have identities of their own. */
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

void epoch_put(struct exchange_ns *e)
{
        struct exchange_epoch *p = e->epoch;

        e->epoch = NULL;
        if (--p->n_namespaces > 0)
                return;
        if (p->asking && p->is_writing && !exchange_io_is_over(p->asking))
                exchange_io_let_go(p->asking); /* who purged it wants that */
        else
                exchange_io_end(p->asking);
        list_remove(&p->link);
        explicit_bzero(&p->seal, sizeof(p->seal));
        free(p);
}

/* ---- over a restart -------------------------------------------------------------------------- */

static void commit_epoch(const struct exchange_epoch *p)
{
        const struct shared_epoch known = {
                .must_change = p->must_change, .number = p->number, .known_sec = p->known_sec};

        list_for_each (e, &p->x->namespaces, struct exchange_ns, link)
                if (e->epoch == p)
                        records_commit_shared_epoch(e->ns, &known);
}

void epoch_recall(struct exchange_ns *e)
{
        const struct shared_epoch kept = records_shared_epoch(e->ns);
        struct exchange_epoch *p = e->epoch;

        if (kept.must_change && !p->must_change) {
                epoch_change(p);
        } else if (p->number != 0 || p->must_change) {
                commit_epoch(p);
        } else if (kept.number != 0) {
                bool is_first = p->kept_number == 0 && !p->was_known;

                /* Namespaces of a set have the same one, or it isn't known. */
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
        return epoch_io_new(p, REMOTE_READ);
}

uint64_t epoch_of(const struct exchange_io *io)
{
        uint64_t epoch = 0;

        if (io->results[0].result == 0 && io->results[0].n_bytes == EPOCH_BYTES)
                memcpy(&epoch, io->buffer, EPOCH_BYTES);
        return epoch;
}

void epoch_note_refused(struct exchange_epoch *p)
{
        exchange_note_refused(
                p->x, "no-epoch", "what lies in the place of a namespace's epoch is none", 0);
}

bool epoch_learn(struct exchange_epoch *p, uint64_t number)
{
        if (p->number == number)
                return false;
        p->number = number;
        /* What was published in the second of a change may be of before it. */
        p->known_sec = store_now_sec(p->x->tenant->store) + p->was_known;
        if (number == p->kept_number)
                p->known_sec = p->kept_sec;
        p->was_known = true;
        exchange_forget_exported(p->x, p);
        if (p->x->whose.secret_len > 0 && exchange_seal_key(&p->x->whose, number, &p->seal) < 0)
                p->number = 0; /* no memory: it is asked for again */
        else
                p->kept_number = 0;
        commit_epoch(p);
        return true;
}

int epoch_take(struct exchange_epoch *p, const struct exchange_io *io)
{
        uint64_t epoch = epoch_of(io);
        int r = io->results[0].result;

        if (r == 0 && epoch == 0)
                r = -EMSGSIZE; /* what is there is no epoch */
        if (r == -EMSGSIZE)
                epoch_note_refused(p);
        if (p->must_change)
                return -ESTALE;
        if (r < 0)
                return r;
        (void)epoch_learn(p, epoch);
        return p->number == epoch ? 0 : -ENOMEM;
}

/* Writes another one: over what is there (`changes`), or only where there is none. */
static struct exchange_io *epoch_write_new(struct exchange_epoch *p, bool changes)
{
        struct exchange_io *io = epoch_io_new(p, REMOTE_WRITE);

        if (!io)
                return NULL;
        p->new_epoch = random_epoch();
        memcpy(io->buffer, &p->new_epoch, EPOCH_BYTES);
        io->io->ops[0].expiry_msec = EPOCH_EXPIRY_MSEC;
        io->io->ops[0].only_new = !changes;
        return io;
}

static void begin_asking(struct exchange_epoch *p, struct exchange_io *io, bool is_writing)
{
        p->asked_nsec = p->x->tenant->store->now_nsec;
        if (!io)
                return;
        if (exchange_io_begin(io, p->asked_nsec + EXCHANGE_SMALL_NSEC) < 0) {
                exchange_io_end(io);
                return;
        }
        p->asking = io;
        p->is_writing = is_writing;
        p->changes_again = false;
}

void epoch_change(struct exchange_epoch *p)
{
        p->must_change = true;
        p->changes_again = true;
        p->number = 0;
        p->kept_number = 0;
        commit_epoch(p);
        if (p->asking && p->is_writing) /* its answer is of before */
                return;
        exchange_io_end(p->asking);
        p->asking = NULL;
        begin_asking(p, epoch_write_new(p, true), true);
}

/* It was written, or not; where that isn't known yet another one is written after a while. */
static void take_written(struct exchange_epoch *p, int result)
{
        if (result != 0)
                return; /* -EEXIST: another host was first, and its epoch is read */
        p->x->counters.epochs += p->must_change;
        p->must_change = p->changes_again;
        if (!p->must_change)
                (void)epoch_learn(p, p->new_epoch);
}

/* Where this host exports it makes an epoch in the place of none, or of what is none. */
static void take_read(struct exchange_epoch *p, uint64_t epoch, int result)
{
        bool is_none = result == -ENOENT, is_rubbish = result == 0 || result == -EMSGSIZE;

        if (p->must_change)
                return;
        if (epoch == 0 && is_rubbish)
                epoch_note_refused(p);
        if (epoch != 0)
                (void)epoch_learn(p, epoch);
        else if ((is_none || is_rubbish) && p->x->options.may_write)
                begin_asking(p, epoch_write_new(p, is_rubbish), true);
}

static void take_answer(struct exchange_epoch *p)
{
        struct exchange_io *io = p->asking;
        uint64_t epoch = epoch_of(io);
        int result = io->results[0].result;

        p->asking = NULL;
        exchange_io_end(io);
        if (p->is_writing)
                take_written(p, result);
        else
                take_read(p, epoch, result);
}

bool epoch_refresh(struct exchange_epoch *p)
{
        uint64_t now = p->x->tenant->store->now_nsec;

        if (p->number == 0 || p->asking)
                return false;
        if (now < p->asked_nsec + EPOCH_AGAIN_NSEC)
                return true;
        begin_asking(p, epoch_read_new(p), false);
        return !p->asking; /* it can't be asked for now: what is known has to do */
}

uint64_t epoch_work(struct exchange_epoch *p)
{
        uint64_t now = p->x->tenant->store->now_nsec;

        if (p->asking && exchange_io_is_over(p->asking))
                take_answer(p);
        if (p->asking || p->number != 0)
                return UINT64_MAX;
        if (p->asked_nsec > 0 && now < p->asked_nsec + EPOCH_AGAIN_NSEC)
                return p->asked_nsec + EPOCH_AGAIN_NSEC;
        begin_asking(
                p, p->must_change ? epoch_write_new(p, true) : epoch_read_new(p), p->must_change);
        return p->asking ? UINT64_MAX : now + EPOCH_AGAIN_NSEC;
}
