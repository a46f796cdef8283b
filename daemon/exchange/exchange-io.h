/*
 * Batches of operations on the store that hosts share (daemon/remote). A batch ends when the server
 * has reaped it; then the exchange is woken, and the owner of the batch checks it. Loop thread
 * only.
 */
#ifndef KVL_EXCHANGE_EXCHANGE_IO_H
#define KVL_EXCHANGE_EXCHANGE_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "daemon/exchange/exchange.h"
#include "daemon/core/state/moving.h"
#include "daemon/exchange/format/envelope.h"
#include "daemon/remote/io/remote-io.h"

/* Deadline of small operations that no client waits for. Not tuned. */
#define EXCHANGE_SMALL_NSEC (NSEC_PER_SEC)

/*
 * Tenants share a store with a limit of operations (remote_room()). A tenant may use as many as it
 * leaves free: alone half of all. If n tenants use their most, each has 1/(n+1) of all, and as much
 * is free for another. Single small operations, which read and write epochs and remove names, may
 * use EXCHANGE_SINGLES times the free ones: a tenant at its limit can still invalidate. Not tuned.
 */
#define EXCHANGE_SINGLES 8

struct exchange_result {
        int result;
        uint32_t n_names;
        uint32_t n_found; /* of these names */
        uint64_t n_bytes;
};

/* A batch of operations. */
struct exchange_io {
        struct list_link link;       /* exchange.ios, while the store has it */
        struct exchange *x;          /* borrowed; NULL: it was closed */
        bool is_unwanted;            /* freed when it is over */
        struct remote_io *io;        /* the store's; NULL: it is over, with `results` */
        struct remote_store *remote; /* borrowed: the store of `io` */
        uint8_t *buffer;             /* owned; from x->buffers */
        uint64_t buffer_bytes;
        uint64_t bytes; /* counted as under way while the store has it */
        bool is_import; /* its bytes count as imported */
        /* Set by exchange_io_new_import() if the value is received into its page: the header, and
         * the page's planes. NULL: it has a buffer. */
        struct iovec *pieces; /* owned; n_pieces */
        unsigned n_pieces;
        struct fill *fill; /* NULL: the fill is over */
        uint8_t header[ENVELOPE_BYTES];
        /* The copy of exchange_io_move(), which has the buffer; NULL: none is under way. */
        struct transfer *transfer;
        int moved; /* the result of the last copy */
        uint32_t n;
        uint32_t n_names, names_max;
        struct iovec *keys; /* names_max, pointing to `names` */
        struct iovec piece; /* points to `buffer` */
        char (*names)[EXCHANGE_NAME_MAX];
        /* Set by exchange_io_envelop(). The store's thread uses them while the batch is under way.
         */
        struct envelope envelope;
        struct seal_key seal;
        bool is_sealed;
        enum envelope_fault fault;
        uint64_t epoch_turn; /* epoch_read_new(): exchange_epoch.turn at its begin */
        struct exchange_result results[];
};

/* Makes a batch of this kind with n unnamed operations, and a buffer of so many bytes. NULL: no
 * memory. */
struct exchange_io *exchange_io_new(struct exchange *x, enum remote_kind kind,
        enum remote_class of_class, uint32_t n, uint64_t buffer_bytes, bool is_import);

/* Makes an operation that reads the value of a granted `page`; the caller names and envelops it.
 * The value is received into the page if that is mapped here in the form of page_travel_form(),
 * else into a buffer. In both cases exchange_io_move() puts it into the page. NULL: no memory. */
struct exchange_io *exchange_io_new_import(struct exchange *x, struct ns *ns, uint32_t page);

/* Reserves space for n_names names in all, before the first one is given. Returns 0 or -ENOMEM. */
int exchange_io_reserve_names(struct exchange_io *io, uint32_t n_names);

/* Adds a terminated name to operation i (several only for a probe, a removal or a touch; one
 * operation after the other). Its value is the buffer, if there is one. */
void exchange_io_name(struct exchange_io *io, uint32_t i, const char *name);

/* Makes the value of the one operation a header followed by the page's bytes. The store's thread,
 * not the loop, sums or seals (with a key, which is copied) a written value, and opens a read one.
 * Then `fault` has the result, and `envelope`, with ENVELOPE_GOOD, the header. A payload of 0 bytes
 * in the envelope of a read means any number. */
void exchange_io_envelop(
        struct exchange_io *io, const struct envelope *e, const struct seal_key *key);

/* Begins a batch. Returns 0; otherwise nothing changed: -EBUSY: the tenant, or all tenants, are at
 * their limit of operations; -ENOMEM, -EINVAL, -ESHUTDOWN. */
int exchange_io_begin(struct exchange_io *io, uint64_t deadline_nsec);

static inline bool exchange_io_is_over(const struct exchange_io *io)
{
        return !io->io;
}

/* Copies between the buffer, behind its header, and a page: TRANSFER_OUT from a page of any tier,
 * for a batch that hasn't begun; TRANSFER_IN into a granted page, for a batch that is over
 * (exchange_io_new_import()). exchange_io_is_moving() is true until it is done; then `moved` is 0
 * or -errno. Returns 0; -EBUSY, -ENOMEM (nothing changed). */
int exchange_io_move(struct exchange_io *io, struct ns *ns, enum transfer_kind kind, uint32_t page);

static inline bool exchange_io_is_moving(const struct exchange_io *io)
{
        return io->transfer;
}

/* Did operation i of a finished batch find all its names? */
static inline bool exchange_io_found_all(const struct exchange_io *io, uint32_t i)
{
        const struct exchange_result *r = &io->results[i];

        return r->result == 0 && r->n_found == r->n_names;
}

/* Ends a batch that isn't needed any more, as soon as possible. The page of a copy or receive must
 * be given back before. NULL is ignored. */
void exchange_io_end(struct exchange_io *io);

/* Lets a batch that has begun run to its end; its result isn't used. */
void exchange_io_let_go(struct exchange_io *io);

/* May the exchange begin n operations of a batch now? (Single small ones have another limit.) If
 * not, and some are under way, it is woken later to try again. */
bool exchange_io_has_room(const struct exchange *x, uint32_t n);

/* The exchange is being freed: disowns its batches, which aren't needed any more. */
void exchange_ios_forget(struct exchange *x);

/* Removes a damaged or foreign value from a store that may be written to, without waiting. */
void exchange_remove(struct exchange *x, const char *name);

/* Returns the reason by which an operation's result, not 0, is counted. */
enum exchange_drop exchange_drop_of(int result);

#endif
