/* The epochs of namespaces: random numbers that all hosts have from the store (exchange.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "daemon/core/exchange/exchange-impl.h"
#include "daemon/core/objects/ns.h"
#include "daemon/core/objects/store.h"

/* So long the store keeps one that nobody reads: the longest there is (remote.h). Losing it costs
 * what was exported under it. */
#define EPOCH_EXPIRY_MSEC (UINT64_C(365) * 24 * 3600 * 1000)

/* The value: the number itself, of the machine's byte order, as envelopes have numbers. */
#define EPOCH_BYTES sizeof(uint64_t)

static uint64_t random_epoch(void)
{
        uint64_t epoch;

        do
                epoch = hash_seed_random().k0;
        while (epoch == 0);
        return epoch;
}

static struct exchange_io *epoch_io_new(struct exchange_ns *e, enum remote_kind kind)
{
        char name[EXCHANGE_NAME_MAX];
        struct exchange_io *io;

        if (exchange_epoch_name(&e->x->whose, e->id, name) < 0)
                return NULL;
        io = exchange_io_new(e->x, kind, REMOTE_SMALL, 1, EPOCH_BYTES, true);
        if (io)
                exchange_io_name(io, 0, name, EPOCH_BYTES);
        return io;
}

struct exchange_io *epoch_read_new(struct exchange_ns *e)
{
        return epoch_io_new(e, REMOTE_READ);
}

uint64_t epoch_of(const struct exchange_io *io)
{
        uint64_t epoch = 0;

        if (io->results[0].result == 0 && io->results[0].n_bytes == EPOCH_BYTES)
                memcpy(&epoch, io->buffer, EPOCH_BYTES);
        return epoch;
}

bool epoch_learn(struct exchange_ns *e, uint64_t epoch)
{
        if (e->epoch == epoch)
                return false;
        e->epoch = epoch;
        /* What was published in the second of a change may be of before it. */
        e->known_sec = store_now_sec(ns_store(e->ns)) + e->was_known;
        e->was_known = true;
        free(e->exported);
        e->exported = NULL;
        if (e->x->whose.secret_len > 0 && exchange_seal_key(&e->x->whose, epoch, &e->seal) < 0)
                e->epoch = 0; /* no memory: it is asked for again */
        return true;
}

/* Writes another one: over what is there (`changes`), or only where there is none. */
static struct exchange_io *epoch_write_new(struct exchange_ns *e, bool changes)
{
        struct exchange_io *io = epoch_io_new(e, REMOTE_WRITE);

        if (!io)
                return NULL;
        e->new_epoch = random_epoch();
        memcpy(io->buffer, &e->new_epoch, EPOCH_BYTES);
        io->io->ops[0].expiry_msec = EPOCH_EXPIRY_MSEC;
        io->io->ops[0].only_new = !changes;
        return io;
}

static void begin_asking(struct exchange_ns *e, struct exchange_io *io, bool is_writing)
{
        e->asked_nsec = ns_store(e->ns)->now_nsec;
        if (!io)
                return;
        if (exchange_io_begin(io, e->asked_nsec + EXCHANGE_SMALL_NSEC) < 0) {
                exchange_io_end(io);
                return;
        }
        e->asking = io;
        e->is_writing = is_writing;
        e->changes_again = false;
}

void epoch_change(struct exchange_ns *e)
{
        e->must_change = true;
        e->changes_again = true;
        e->epoch = 0;
        if (e->asking && e->is_writing) /* its answer is of before */
                return;
        exchange_io_end(e->asking);
        e->asking = NULL;
        begin_asking(e, epoch_write_new(e, true), true);
}

/* It was written, or not; where that isn't known yet another one is written after a while. */
static void take_written(struct exchange_ns *e, int result)
{
        if (result != 0)
                return; /* -EEXIST: another host was first, and its epoch is read */
        e->x->counters.epochs += e->must_change;
        e->must_change = e->changes_again;
        if (!e->must_change)
                (void)epoch_learn(e, e->new_epoch);
}

/* Where this host exports it makes an epoch in the place of none, or of what is none. */
static void take_read(struct exchange_ns *e, uint64_t epoch, int result)
{
        bool is_none = result == -ENOENT, is_rubbish = result == 0 || result == -EMSGSIZE;

        if (e->must_change)
                return;
        if (epoch != 0)
                (void)epoch_learn(e, epoch);
        else if ((is_none || is_rubbish) && e->x->options.may_write)
                begin_asking(e, epoch_write_new(e, is_rubbish), true);
}

static void take_answer(struct exchange_ns *e)
{
        struct exchange_io *io = e->asking;
        uint64_t epoch = epoch_of(io);
        int result = io->results[0].result;

        e->asking = NULL;
        exchange_io_end(io);
        if (e->is_writing)
                take_written(e, result);
        else
                take_read(e, epoch, result);
}

bool epoch_is_fresh(struct exchange_ns *e)
{
        uint64_t now = ns_store(e->ns)->now_nsec;

        if (e->epoch == 0 || e->asking)
                return false;
        if (now < e->asked_nsec + EPOCH_AGAIN_NSEC)
                return true;
        begin_asking(e, epoch_read_new(e), false);
        return !e->asking; /* it can't be asked for now: what is known has to do */
}

uint64_t epoch_work(struct exchange_ns *e)
{
        uint64_t now = ns_store(e->ns)->now_nsec;

        if (e->asking && exchange_io_is_over(e->asking))
                take_answer(e);
        if (e->asking || e->epoch != 0 || !exchange_has_ns(e->ns, NULL))
                return UINT64_MAX;
        if (e->asked_nsec > 0 && now < e->asked_nsec + EPOCH_AGAIN_NSEC)
                return e->asked_nsec + EPOCH_AGAIN_NSEC;
        begin_asking(
                e, e->must_change ? epoch_write_new(e, true) : epoch_read_new(e), e->must_change);
        return e->asking ? UINT64_MAX : now + EPOCH_AGAIN_NSEC;
}
