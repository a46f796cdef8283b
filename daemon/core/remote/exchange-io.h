/*
 * Batches of operations on the store that hosts share (daemon/remote): begun by who wants one, over
 * when the server has reaped it; then the exchange is woken, and whoever began it looks at it. Loop
 * thread only.
 */
#ifndef KVL_CORE_EXCHANGE_IO_H
#define KVL_CORE_EXCHANGE_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "daemon/core/objects/exchange.h"
#include "daemon/core/objects/fill.h"
#include "daemon/core/objects/transfer.h"
#include "daemon/exchange/envelope.h"
#include "daemon/remote/store/remote.h"

/* Small operations that no client waits for. Not tuned. */
#define EXCHANGE_SMALL_NSEC (NSEC_PER_SEC)

/*
 * Tenants share a store, which takes so many operations and no more (remote_room()). A tenant has
 * as many at most as it leaves room for: alone half of all, and where n tenants have what they may
 * each has 1/(n+1) of all, and as much is left for one who comes then. Single small ones, by which
 * epochs are read and written and names removed, go until it has EXCHANGE_SINGLES times what it
 * leaves: whoever asks for as many pages as he may can still invalidate. Not tuned.
 */
#define EXCHANGE_SINGLES 8

struct exchange_result {
        int result;
        uint32_t n_names;
        uint32_t n_found; /* of these */
        uint64_t n_bytes;
};

/* A batch of operations. */
struct exchange_io {
        struct list_link link;       /* exchange.ios, while the store has it */
        struct exchange *x;          /* borrowed; NULL: it was closed */
        bool is_unwanted;            /* it goes when it is over */
        struct remote_io *io;        /* the store's; NULL: it is over, and `results` are there */
        struct remote_store *remote; /* borrowed: whose `io` is */
        uint8_t *buffer;             /* owned; of x->buffers */
        uint64_t buffer_bytes;
        uint64_t bytes; /* that count as under way, unwanted or not, while the store has it */
        bool is_import; /* as imported ones */
        /* Of exchange_io_new_import(), where the value is received in its place: the header, and
         * the page's planes. NULL: it has a buffer. */
        struct iovec *pieces; /* owned; n_pieces */
        unsigned n_pieces;
        struct fill *fill; /* NULL: it is over */
        uint8_t header[ENVELOPE_BYTES];
        /* Of exchange_io_move(); NULL: none is under way. Else it has the buffer. */
        struct transfer *transfer;
        int moved; /* how the last one ended */
        uint32_t n;
        uint32_t n_names, names_max;
        struct iovec *keys; /* names_max, of `names` */
        struct iovec piece; /* of `buffer` */
        char (*names)[EXCHANGE_NAME_MAX];
        /* Of exchange_io_envelop(). The store's thread has them while the batch is under way. */
        struct envelope envelope;
        struct seal_key seal;
        bool is_sealed;
        enum envelope_fault fault;
        uint64_t epoch_turn; /* of epoch_read_new(): exchange_epoch.turn when it was begun */
        struct exchange_result results[];
};

/* Nothing is in it but the kind, and room for a name of each of the n operations; with a buffer of
 * so many bytes. NULL: no memory. */
struct exchange_io *exchange_io_new(struct exchange *x, enum remote_kind kind,
        enum remote_class of_class, uint32_t n, uint64_t buffer_bytes, bool is_import);

/*
 * One operation that reads the value of a page, and is to be named and enveloped. `page` is
 * granted. Where the page's bytes lie in this process in the form in which they travel they are
 * received there; else into a buffer. Either way exchange_io_move() has them in the page. NULL: no
 * memory.
 */
struct exchange_io *exchange_io_new_import(struct exchange *x, struct ns *ns, uint32_t page);

/* Before the first name is given: there is room for so many in all. 0 or -ENOMEM. */
int exchange_io_reserve_names(struct exchange_io *io, uint32_t n_names);

/* Operation i is of this name, terminated, besides those that it was given right before (a probe, a
 * removal, a touch); its value is the buffer, if there is one. */
void exchange_io_name(struct exchange_io *io, uint32_t i, const char *name);

/*
 * The value of the one operation is a header, and behind it the page's bytes. The store's thread,
 * not the loop, sums or seals (with a key, which is copied) what is written, and opens what is
 * read: `fault` then says what became of it, and `envelope`, with ENVELOPE_GOOD, what it says.
 * Where what is to be read says 0 bytes of payload it may have any number.
 */
void exchange_io_envelop(
        struct exchange_io *io, const struct envelope *e, const struct seal_key *key);

/* Begins. 0; else it is as it was, with why: -EBUSY: the tenant, or all together, have as many
 * operations under way as they may; -ENOMEM, -EINVAL, -ESHUTDOWN. */
int exchange_io_begin(struct exchange_io *io, uint64_t deadline_nsec);

static inline bool exchange_io_is_over(const struct exchange_io *io)
{
        return !io->io;
}

/*
 * Copies between the buffer, behind its header, and a page: TRANSFER_OUT from a page of any tier,
 * for a batch that hasn't begun; TRANSFER_IN into one that is granted, for a batch that is over
 * (that of exchange_io_new_import(), which may be there already). Then exchange_io_is_moving()
 * until it is done, and `moved` is 0 or -errno. 0; else nothing happened, and why: -EBUSY, -ENOMEM.
 */
int exchange_io_move(struct exchange_io *io, struct ns *ns, enum transfer_kind kind, uint32_t page);

static inline bool exchange_io_is_moving(const struct exchange_io *io)
{
        return io->transfer;
}

/* Of a batch that is over: all that operation i was to look for is there. */
static inline bool exchange_io_found_all(const struct exchange_io *io, uint32_t i)
{
        const struct exchange_result *r = &io->results[i];

        return r->result == 0 && r->n_found == r->n_names;
}

/* Nobody wants it any more: what is under way ends as soon as it can. A page that is being copied
 * or received into has been given back before. NULL: nothing. */
void exchange_io_end(struct exchange_io *io);

/* One that has begun goes on, and nobody wants to know how it ends. */
void exchange_io_let_go(struct exchange_io *io);

/* May the exchange begin n operations of a batch now, but for single small ones? Where it may not,
 * and has some under way, it is woken when it may have come to that. */
bool exchange_io_has_room(const struct exchange *x, uint32_t n);

/* The exchange goes: what it has begun, which nobody wants any more, is nobody's. */
void exchange_ios_forget(struct exchange *x);

/* What lies under the name, which is damaged, or nobody's, goes from a store that may be written
 * to. Nobody waits for that. */
void exchange_remove(struct exchange *x, const char *name);

/* "not-worth"; static. */
const char *exchange_drop_name(enum exchange_drop drop);

/* What an operation's result, which isn't 0, is counted as. */
enum exchange_drop exchange_drop_of(int result);

#endif
