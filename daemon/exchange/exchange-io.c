/*
 * Batches of operations on the store that hosts share: they begin here, end when the server has
 * reaped them, and are handled in exchange_work().
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/core/moves/fill.h"
#include "daemon/core/moves/transfer.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/exchange/exchange-impl.h"

static uint64_t *bytes_of(const struct exchange_io *io)
{
        return io->is_import ? &io->x->import_bytes : &io->x->export_bytes;
}

/* The page isn't written any more. */
static void end_fill(struct exchange_io *io)
{
        if (io->fill)
                io->moved = fill_end(TAKE(io->fill));
}

static void free_io(struct exchange_io *io)
{
        end_fill(io);
        remote_io_free(io->io);
        free(io->pieces);
        free(io->buffer);
        free(io->names);
        free(io->keys);
        explicit_bzero(&io->seal, sizeof(io->seal));
        free(io);
}

static void count_bytes(struct exchange_io *io, uint64_t bytes)
{
        io->bytes += bytes;
        *bytes_of(io) += bytes;
}

/* Its buffer is being released: others may use as much. */
static void uncount_bytes(struct exchange_io *io)
{
        *bytes_of(io) -= io->bytes;
        io->bytes = 0;
}

int exchange_io_reserve_names(struct exchange_io *io, uint32_t n_names)
{
        if (n_names <= io->names_max)
                return 0;
        free(io->keys);
        free(io->names);
        io->keys = calloc(n_names, sizeof(*io->keys));
        io->names = calloc(n_names, sizeof(*io->names));
        io->names_max = n_names;
        return io->keys && io->names ? 0 : -ENOMEM;
}

struct exchange_io *exchange_io_new(struct exchange *x, enum remote_kind kind,
        enum remote_class of_class, uint32_t n, uint64_t buffer_bytes, bool is_import)
{
        struct exchange_io *io = calloc(1, sizeof(*io) + n * sizeof(io->results[0]));

        if (!io)
                return NULL;
        list_init(&io->link);
        io->n = n;
        io->is_import = is_import;
        io->io = remote_io_new(n);
        if (buffer_bytes > 0)
                io->buffer = buffers_take(&x->buffers, buffer_bytes);
        if (exchange_io_reserve_names(io, n) < 0 || !io->io || (buffer_bytes > 0 && !io->buffer)) {
                free_io(io);
                return NULL;
        }
        io->io->kind = kind;
        io->io->of_class = of_class;
        io->x = x;
        io->remote = x->options.remote;
        io->buffer_bytes = buffer_bytes;
        count_bytes(io, buffer_bytes);
        return io;
}

/* The page's memory is being freed. The import that used it has ended. */
static void stop_filling(void *data)
{
        struct exchange_io *io = data;

        io->fill = NULL;
        if (io->io && io->io->done)
                remote_take_back(io->remote, io->io);
}

/* Returns 0 or -ENOMEM. */
static int receive_in_place(struct exchange_io *io, struct ns *ns, uint32_t page)
{
        const struct fill_writer writer = {stop_filling, io};

        io->n_pieces = 1 + ns->layout.n_planes;
        io->pieces = calloc(io->n_pieces, sizeof(*io->pieces));
        if (!io->pieces)
                return -ENOMEM;
        io->pieces[0] = (struct iovec){io->header, sizeof(io->header)};
        return fill_begin(ns, page, &writer, io->pieces + 1, &io->fill);
}

struct exchange_io *exchange_io_new_import(struct exchange *x, struct ns *ns, uint32_t page)
{
        const uint64_t bytes = ENVELOPE_BYTES + page_travel_bytes(&ns->codecs.of_pages);
        const bool is_in_place = fill_is_possible(ns) && ns->layout.n_planes < REMOTE_IOV_MAX;
        struct exchange_io *io =
                exchange_io_new(x, REMOTE_READ, REMOTE_LARGE, 1, is_in_place ? 0 : bytes, true);

        if (!io || !is_in_place)
                return io;
        count_bytes(io, bytes);
        if (receive_in_place(io, ns, page) == 0)
                return io;
        exchange_io_end(io);
        return NULL;
}

void exchange_io_name(struct exchange_io *io, uint32_t i, const char *name)
{
        struct remote_op *op = &io->io->ops[i];
        size_t len = strlen(name);
        uint32_t at = io->n_names++;

        assert(at < io->names_max);
        memcpy(io->names[at], name, len + 1);
        io->keys[at] = (struct iovec){.iov_base = io->names[at], .iov_len = len};
        if (op->n_keys++ == 0)
                op->keys = &io->keys[at];
        if (!io->buffer && !io->pieces)
                return;
        io->piece = (struct iovec){.iov_base = io->buffer, .iov_len = io->buffer_bytes};
        op->iov = io->pieces ? io->pieces : &io->piece;
        op->n_iov = io->pieces ? io->n_pieces : 1;
}

/* Runs in the store's thread: uses only the page's bytes and the sealing key of the io. */
static int seal_value(const struct remote_op *op, void *data)
{
        struct exchange_io *io = data;
        struct iovec payload = {
                .iov_base = io->buffer + ENVELOPE_BYTES, .iov_len = io->envelope.payload_bytes};

        return envelope_seal(&io->envelope, io->is_sealed ? &io->seal : NULL, &payload, 1, NULL,
                io->buffer, payload.iov_base);
}

static int open_value(const struct remote_op *op, void *data)
{
        struct exchange_io *io = data;
        const struct seal_key *key = io->is_sealed ? &io->seal : NULL;
        struct envelope want = io->envelope;
        struct iovec payload;

        if (want.payload_bytes == 0)
                want.payload_bytes = op->n_bytes - MIN(op->n_bytes, (uint64_t)ENVELOPE_BYTES);
        if (io->pieces) {
                io->fault = envelope_open(&want, key, op->n_bytes, io->header, io->pieces + 1,
                        io->n_pieces - 1, &io->envelope);
                return 0;
        }
        payload = (struct iovec){io->buffer + ENVELOPE_BYTES, want.payload_bytes};
        io->fault = envelope_open(&want, key, op->n_bytes, io->buffer, &payload, 1, &io->envelope);
        return 0;
}

void exchange_io_envelop(
        struct exchange_io *io, const struct envelope *e, const struct seal_key *key)
{
        io->envelope = *e;
        io->is_sealed = key;
        if (key)
                io->seal = *key;
        io->io->ops[0].on_value = io->io->kind == REMOTE_READ ? open_value : seal_value;
        io->io->ops[0].value_data = io;
}

static void on_done(struct remote_io *of, void *data)
{
        struct exchange_io *io = data;

        for (uint32_t i = 0; i < io->n; i++)
                io->results[i] = (struct exchange_result){.result = of->ops[i].result,
                        .n_names = of->ops[i].n_keys,
                        .n_found = of->ops[i].n_found,
                        .n_bytes = of->ops[i].n_bytes};
        io->io = NULL; /* the store frees it */
        end_fill(io);
        list_remove(&io->link);
        if (io->x) {
                io->x->n_ops -= io->n;
                if (io->is_unwanted)
                        uncount_bytes(io);
                exchange_wake(io->x);
        }
        if (io->is_unwanted)
                free_io(io);
}

static bool is_within(const struct exchange *x, uint32_t n, uint64_t times)
{
        uint64_t room = remote_room(x->options.remote);

        return n <= room && x->n_ops + n <= times * (room - n);
}

bool exchange_io_has_room(const struct exchange *x, uint32_t n)
{
        return is_within(x, n, 1);
}

static bool may_begin(const struct exchange_io *io)
{
        bool is_single =
                io->n == 1 && io->io->of_class == REMOTE_SMALL && io->io->kind != REMOTE_PROBE;

        return is_within(io->x, io->n, is_single ? EXCHANGE_SINGLES : 1);
}

int exchange_io_begin(struct exchange_io *io, uint64_t deadline_nsec)
{
        int r;

        if (!may_begin(io))
                return -EBUSY;
        io->io->done = on_done;
        io->io->data = io;
        io->io->deadline_nsec = deadline_nsec;
        r = remote_submit(io->x->options.remote, io->io);
        if (r == 0) {
                io->x->n_ops += io->n;
                list_append(&io->x->ios, &io->link);
                return 0;
        }
        io->io->done = NULL;
        return r == REMOTE_BUSY ? -EBUSY : r;
}

static void on_moved(uint8_t *bytes, int result, void *data)
{
        struct exchange_io *io = data;

        io->transfer = NULL;
        io->buffer = bytes;
        io->moved = result;
        exchange_wake(io->x);
}

int exchange_io_move(struct exchange_io *io, struct ns *ns, enum transfer_kind kind, uint32_t page)
{
        const struct transfer_buffer buffer = {
                .bytes = io->buffer, .at = ENVELOPE_BYTES, .done = on_moved, .data = io};
        int r;

        if (io->pieces) /* it is there, or end_fill() has set the reason */
                return 0;
        if (kind == TRANSFER_OUT)
                r = transfer_begin_out(ns, page, &buffer, false, &io->transfer);
        else
                r = transfer_begin_in(ns, page, &buffer, true, &io->transfer);
        if (r == 0)
                io->buffer = NULL;
        return r;
}

void exchange_io_let_go(struct exchange_io *io)
{
        io->is_unwanted = true;
}

void exchange_ios_forget(struct exchange *x)
{
        list_for_each_safe (io, &x->ios, struct exchange_io, link) {
                list_remove(&io->link);
                io->x = NULL;
        }
}

void exchange_io_end(struct exchange_io *io)
{
        if (!io)
                return;
        if (io->transfer)
                transfer_let_go(io->transfer);
        /* Only a batch that has begun has a callback. */
        if (io->io && io->io->done) {
                remote_cancel(io->x->options.remote, io->io);
                io->is_unwanted = true;
                return;
        }
        uncount_bytes(io);
        buffers_give_back(&io->x->buffers, TAKE(io->buffer), io->buffer_bytes,
                io->x->tenant->store->now_nsec);
        free_io(io);
}

void exchange_remove(struct exchange *x, const char *name)
{
        struct exchange_io *io =
                x->options.may_write ? exchange_io_new(x, REMOTE_REMOVE, REMOTE_SMALL, 1, 0, true)
                                     : NULL;

        if (!io)
                return;
        exchange_io_name(io, 0, name);
        if (exchange_io_begin(io, x->tenant->store->now_nsec + EXCHANGE_SMALL_NSEC) < 0)
                exchange_io_end(io);
        else
                exchange_io_let_go(io);
}

enum exchange_drop exchange_drop_of(int result)
{
        switch (result) {
        case -ENOENT:
                return EXCHANGE_GONE;
        case -EMSGSIZE:
                return EXCHANGE_DAMAGED;
        case -ETIMEDOUT:
                return EXCHANGE_LATE;
        case -EBUSY:
        case -ENOMEM:
                return EXCHANGE_BUSY;
        case -ECANCELED:
                return EXCHANGE_CALLED_OFF;
        case -EDOM:
                return EXCHANGE_NOT_FINITE;
        case -EACCES:
        case -ENOSPC:
        case -EREMOTEIO:
                return EXCHANGE_REFUSED;
        default:
                return EXCHANGE_UNREACHED;
        }
}
