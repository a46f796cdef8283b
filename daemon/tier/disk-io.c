/* Pages: written, read, taken out. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault-point.h"
#include "daemon/tier/disk-impl.h"

#define IO_PAGES_MAX 1024

void *disk_buffer_new(uint64_t bytes)
{
        uint64_t whole = round_up_u64(bytes, DISK_ALIGN);
        void *at = aligned_alloc(DISK_ALIGN, whole);

        if (at)
                memset(at, 0, whole);
        return at;
}

struct disk_io *disk_io_new(uint32_t n)
{
        struct disk_task *t;

        assert(n > 0 && n <= IO_PAGES_MAX);
        t = calloc(1, sizeof(*t) + n * sizeof(t->io.pages[0]));
        if (!t)
                return NULL;
        list_init(&t->link);
        t->io.n = n;
        return &t->io;
}

void disk_io_free(struct disk_io *io)
{
        if (io)
                free(disk_task_of(io));
}

/* ---- pages that are there -------------------------------------------------------------------- */

static struct disk_block *block_of(struct disk_chunk *c, uint32_t slot)
{
        return &c->blocks[slot / DISK_BLOCK_ENTRIES];
}

static uint64_t stored_bytes(const struct disk_page *page)
{
        return round_up_u64(page->length, DISK_ALIGN);
}

void disk_page_add(struct disk_chunk *c, uint32_t slot)
{
        uint64_t bytes = stored_bytes(&c->entries[slot].page);

        c->slots[slot].state = SLOT_PAGE;
        c->n_pages++;
        c->used_bytes += bytes;
        c->space->n_pages++;
        c->space->used_bytes += bytes;
}

/* Removes the page of a slot. */
static void remove_page(struct disk_chunk *c, uint32_t slot)
{
        struct disk_file *d = c->space->disk;
        uint64_t bytes = stored_bytes(&c->entries[slot].page);

        c->n_pages--;
        c->used_bytes -= bytes;
        c->space->n_pages--;
        c->space->used_bytes -= bytes;
        memset(&c->entries[slot], 0, sizeof(c->entries[slot]));
        FAULT_POINT("disk-before-removal");
        disk_touch(d, block_of(c, slot));
        d->n_lazy++;
        if (c->slots[slot].n_reads > 0)
                c->slots[slot].state = SLOT_GONE;
        else
                disk_slot_free(c, slot);
}

/* The page that is at `at` under that key; NULL: none. */
/* NULL: no page is there. */
static struct disk_chunk *chunk_at(const struct disk_space *s, uint64_t at)
{
        uint32_t number = (uint32_t)(at >> 32), slot = (uint32_t)at;
        struct disk_chunk *c =
                s && number < s->disk->layout.n_chunks ? &s->disk->chunks[number] : NULL;

        if (!c || c->state != CHUNK_USED || c->space != s || !s->is_loaded || slot >= c->n_slots ||
                c->slots[slot].state != SLOT_PAGE)
                return NULL;
        return c;
}

static struct disk_chunk *find_page(
        const struct disk_space *s, uint64_t at, const uint8_t key[DISK_KEY_BYTES])
{
        struct disk_chunk *c = chunk_at(s, at);

        return c && memcmp(c->entries[(uint32_t)at].page.key, key, DISK_KEY_BYTES) == 0 ? c : NULL;
}

const struct disk_page *disk_page_at(
        const struct disk_space *s, uint64_t at, const uint8_t key[DISK_KEY_BYTES])
{
        const struct disk_chunk *c = !s || s->disk->is_off ? NULL
                                     : key                 ? find_page(s, at, key)
                                                           : chunk_at(s, at);

        return c ? &c->entries[(uint32_t)at].page : NULL;
}

bool disk_page_next(const struct disk_space *s, uint64_t *iter, const struct disk_page **ret_page,
        uint64_t *ret_at)
{
        struct disk_file *d = s->disk;

        for (uint64_t at = *iter; !d->is_off && s->is_loaded && at >> 32 < d->layout.n_chunks;) {
                struct disk_chunk *c = &d->chunks[at >> 32];
                uint32_t slot = (uint32_t)at;

                if (c->space != s || c->state != CHUNK_USED || slot >= c->n_slots) {
                        at = ((at >> 32) + 1) << 32;
                        continue;
                }
                at++;
                if (c->slots[slot].state != SLOT_PAGE)
                        continue;
                *iter = at;
                *ret_page = &c->entries[slot].page;
                *ret_at = at - 1;
                return true;
        }
        return false;
}

void disk_task_recheck(struct disk_file *d, struct disk_task *t)
{
        for (uint32_t i = 0; t->is_write && i < t->io.n; i++) {
                struct disk_io_page *p = &t->io.pages[i];
                const struct disk_chunk *c = &d->chunks[p->at >> 32];

                if (p->result == 0 && !find_page(c->space, p->at, p->page.key))
                        p->result = -ENOENT;
        }
}

/* ---- the end of an operation ----------------------------------------------------------------- */

static void end_op(struct disk_file *d, struct disk_op *op)
{
        struct disk_task *t = disk_task_of(op->io);

        if (--t->n_left == 0)
                list_append(&d->finished, &t->link);
        disk_chunk_unbusy(d, op->chunk);
        free(op);
}

static void write_entry(struct disk_chunk *c, uint32_t slot, const struct disk_page *page)
{
        struct disk_file *d = c->space->disk;
        struct disk_entry *e = &c->entries[slot];

        *e = (struct disk_entry){.page = *page, .generation = c->space->generation};
        DISK_SEAL(e, c->nonce + slot);
        FAULT_POINT("disk-before-entry");
        disk_touch(d, block_of(c, slot));
        d->n_lazy++;
        disk_page_add(c, slot);
        d->counts.n_written++;
        d->counts.written_bytes += page->length;
}

static void end_write(struct disk_chunk *c, struct disk_io_page *page, int result)
{
        uint32_t slot = (uint32_t)page->at;

        page->result = result;
        if (c->state != CHUNK_USED) { /* raised meanwhile */
                page->result = result < 0 ? result : -ENOENT;
                return;
        }
        if (result == 0 && !page->is_unwritten) {
                write_entry(c, slot, &page->page);
                return;
        }
        if (result == 0)
                page->result = -ENOENT;
        disk_slot_free(c, slot);
}

static void write_done(struct disk_file *d, struct disk_op *op)
{
        struct disk_chunk *c = op->chunk;
        int result = disk_task_of(op->io)->is_canceled ? -ECANCELED : op->result;

        FAULT_POINT("disk-after-payload");
        for (uint32_t i = 0; i < op->n; i++)
                end_write(c, &op->io->pages[op->first + i], result);
        if (c->state == CHUNK_USED)
                disk_chunk_shrink(d, c);
        end_op(d, op);
}

/* Ends a read of a slot. The last reader of a removed page frees the slot. */
static int end_slot_read(struct disk_file *d, struct disk_chunk *c, uint32_t slot, int result)
{
        struct disk_slot *s = &c->slots[slot];

        s->n_reads--;
        if (s->state == SLOT_GONE) {
                if (s->n_reads == 0)
                        disk_slot_free(c, slot);
                return result < 0 ? result : -ENOENT;
        }
        if (result == -EBADMSG) {
                d->counts.n_bad++;
                d->counts.n_bad_found += s->is_found;
                remove_page(c, slot);
        }
        return result;
}

static void end_read(struct disk_file *d, struct disk_op *op, struct disk_io_page *page)
{
        struct disk_chunk *c = op->chunk;
        int result = op->result < 0 ? op->result : page->result;

        if (c->state == CHUNK_USED)
                result = end_slot_read(d, c, (uint32_t)page->at, result);
        else if (result == 0)
                result = -ENOENT;
        page->result = disk_task_of(op->io)->is_canceled ? -ECANCELED : result;
        if (page->result == 0) {
                d->counts.n_read++;
                d->counts.read_bytes += page->page.length;
        }
}

static void read_done(struct disk_file *d, struct disk_op *op)
{
        struct disk_chunk *c = op->chunk;

        for (uint32_t i = 0; i < op->n; i++)
                end_read(d, op, &op->io->pages[op->first + i]);
        if (c->state == CHUNK_USED)
                disk_chunk_shrink(d, c);
        end_op(d, op);
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* Zeroes the buffers behind the page, up to its stored size. */
static void zero_rest(const struct disk_io_page *p)
{
        uint64_t at = 0, end = stored_bytes(&p->page);

        for (unsigned i = 0; i < p->n_iov && at < end; i++) {
                uint64_t from = MAX(at, (uint64_t)p->page.length), to;

                to = MIN(at + p->iov[i].iov_len, end);
                if (from < to)
                        memset((char *)p->iov[i].iov_base + (from - at), 0, to - from);
                at += p->iov[i].iov_len;
        }
}

/* In the engine's thread: compares the sums of the pages that were read. */
static void check_pages(struct disk_op *op)
{
        for (uint32_t i = 0; i < op->n; i++) {
                struct disk_io_page *p = &op->io->pages[op->first + i];

                if (disk_sum(p->iov, p->n_iov, p->page.length) != p->page.sum)
                        p->result = -EBADMSG;
                zero_rest(p);
        }
}

/* Appends the pieces that a page is stored from; NULL: only counts. Returns their number. */
static unsigned add_pieces(const struct disk_io_page *p, struct iovec *to)
{
        uint64_t left = stored_bytes(&p->page);
        unsigned n = 0;

        for (; left > 0; n++) {
                size_t len = MIN(p->iov[n].iov_len, (size_t)left);

                if (to)
                        to[n] = (struct iovec){p->iov[n].iov_base, len};
                left -= len;
        }
        return n;
}

static bool buffers_are_right(const struct disk_io_page *p)
{
        uint64_t bytes = 0;

        if (p->n_iov == 0 || p->n_iov > DISK_IOV_MAX)
                return false;
        for (unsigned i = 0; i < p->n_iov; i++) {
                const struct iovec *v = &p->iov[i];

                if (v->iov_len == 0 || v->iov_len % DISK_ALIGN != 0 ||
                        (uintptr_t)v->iov_base % DISK_ALIGN != 0)
                        return false;
                bytes += v->iov_len;
        }
        return bytes >= stored_bytes(&p->page);
}

/* ---- operations of a call -------------------------------------------------------------------- */

/* Number of pages from `first` on that are adjacent, and fill their slots except the last. */
static uint32_t run_of(const struct disk_space *s, const struct disk_io *io, uint32_t first,
        uint64_t *ret_bytes, unsigned *ret_n_iov)
{
        const struct disk_io_page *p = &io->pages[first];
        unsigned n_iov = 0;
        uint64_t bytes = 0;
        uint32_t n = 0;

        do {
                bytes += stored_bytes(&p[n].page);
                n_iov += add_pieces(&p[n], NULL);
                n++;
        } while (first + n < io->n && p[n].result == 0 && p[n].at == p[n - 1].at + 1 &&
                 stored_bytes(&p[n - 1].page) == s->slot_bytes &&
                 bytes + stored_bytes(&p[n].page) <= DISK_MERGE_BYTES &&
                 n_iov + add_pieces(&p[n], NULL) <= DISK_MERGE_IOV);
        *ret_bytes = bytes;
        *ret_n_iov = n_iov;
        return n;
}

static struct disk_op *make_op(struct disk_space *s, struct disk_io *io, uint32_t first)
{
        bool is_write = disk_task_of(io)->is_write;
        uint64_t at = io->pages[first].at, bytes;
        struct disk_chunk *c = &s->disk->chunks[at >> 32];
        unsigned n_iov, used = 0;
        uint32_t n = run_of(s, io, first, &bytes, &n_iov);
        struct disk_op *op = calloc(1, sizeof(*op) + n_iov * sizeof(struct iovec));

        if (!op)
                return NULL;
        *op = (struct disk_op){
                .kind = is_write ? DISK_OP_WRITE : DISK_OP_READ,
                .offset = disk_slot_at(s->disk, c, (uint32_t)at, s->slot_bytes),
                .bytes = bytes,
                .iov = (struct iovec *)(op + 1),
                .n_iov = n_iov,
                .check = is_write ? NULL : check_pages,
                .done = is_write ? write_done : read_done,
                .chunk = c,
                .io = io,
                .first = first,
                .n = n,
        };
        for (uint32_t i = 0; i < n; i++)
                used += add_pieces(&io->pages[first + i], op->iov + used);
        return op;
}

static void free_ops(struct list_link *ops)
{
        list_for_each_safe (op, ops, struct disk_op, link) {
                list_remove(&op->link);
                free(op);
        }
}

/* Makes operations for all pages without a result. Returns 0 or -ENOMEM. */
static int make_ops(struct disk_space *s, struct disk_io *io, struct list_link *ret_ops)
{
        list_init(ret_ops);
        for (uint32_t i = 0; i < io->n;) {
                struct disk_op *op;

                if (io->pages[i].result < 0) {
                        i++;
                        continue;
                }
                op = make_op(s, io, i);
                if (!op) {
                        free_ops(ret_ops);
                        return -ENOMEM;
                }
                list_append(ret_ops, &op->link);
                i += op->n;
        }
        return 0;
}

static void start_ops(struct disk_file *d, struct disk_io *io, struct list_link *ops)
{
        struct disk_task *t = disk_task_of(io);

        d->n_waiting += io->n;
        t->n_left = 1; /* until all are counted */
        for (struct disk_op *op; (op = list_first(ops, struct disk_op, link));) {
                struct disk_chunk *c = op->chunk;

                list_remove(&op->link);
                t->n_left++;
                c->n_busy++;
                c->last_use = ++d->uses;
                if (c->is_zeroing)
                        list_append(&c->waiting, &op->link);
                else
                        disk_submit(d, op);
        }
        if (--t->n_left == 0) {
                list_append(&d->finished, &t->link);
                disk_wake(d);
        }
}

/* Returns 0, or the result of the call. */
static int may_begin(const struct disk_space *s, const struct disk_io *io)
{
        const struct disk_file *d = s->disk;
        int r = disk_may_take(d);

        if (r != 0)
                return r;
        if (!s->is_loaded)
                return -EAGAIN;
        return d->n_waiting > 0 && d->n_waiting + io->n > d->waiting_max ? DISK_BUSY : 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void take_slots(struct disk_space *s, struct disk_io *io)
{
        for (uint32_t i = 0; i < io->n; i++) {
                struct disk_io_page *p = &io->pages[i];

                assert(p->page.length > 0 && p->page.length <= s->slot_bytes);
                assert(buffers_are_right(p));
                p->at = disk_slot_take(s);
                p->result = 0;
        }
}

static void free_slots(struct disk_space *s, struct disk_io *io)
{
        for (uint32_t i = 0; i < io->n; i++) {
                struct disk_chunk *c = &s->disk->chunks[io->pages[i].at >> 32];

                disk_slot_free(c, (uint32_t)io->pages[i].at);
                disk_chunk_shrink(s->disk, c);
        }
}

int disk_write(struct disk_space *s, struct disk_io *io)
{
        struct list_link ops;
        int r = may_begin(s, io);

        if (r == 0)
                r = disk_space_secure(s, io->n);
        if (r != 0)
                return r;
        disk_task_of(io)->is_write = true;
        take_slots(s, io);
        r = make_ops(s, io, &ops);
        if (r < 0) {
                free_slots(s, io);
                return r;
        }
        for (uint32_t i = 0; i < io->n; i++)
                zero_rest(&io->pages[i]);
        FAULT_POINT("disk-before-payload");
        start_ops(s->disk, io, &ops);
        return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void find_pages(struct disk_space *s, struct disk_io *io)
{
        for (uint32_t i = 0; i < io->n; i++) {
                struct disk_io_page *p = &io->pages[i];
                struct disk_chunk *c = find_page(s, p->at, p->page.key);

                p->result = c ? 0 : -ENOENT;
                if (!c)
                        continue;
                p->page = c->entries[(uint32_t)p->at].page;
                assert(buffers_are_right(p));
        }
}

int disk_read(struct disk_space *s, struct disk_io *io)
{
        struct list_link ops;
        int r = may_begin(s, io);

        if (r != 0)
                return r;
        disk_task_of(io)->is_write = false;
        find_pages(s, io);
        r = make_ops(s, io, &ops);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < io->n; i++) {
                const struct disk_io_page *p = &io->pages[i];

                if (p->result == 0)
                        s->disk->chunks[p->at >> 32].slots[(uint32_t)p->at].n_reads++;
        }
        start_ops(s->disk, io, &ops);
        return 0;
}

static void cancel_in(struct disk_file *d, struct list_link *waiting, const struct disk_io *io)
{
        list_for_each_safe (op, waiting, struct disk_op, link)
                if (op->io == io) {
                        list_remove(&op->link);
                        disk_op_end(d, op, -ECANCELED);
                }
}

void disk_cancel(struct disk_file *d, struct disk_io *io)
{
        struct disk_task *t = disk_task_of(io);

        t->is_canceled = true;
        cancel_in(d, &d->queue, io);
        for (uint32_t i = 0; t->is_write && i < io->n; i++)
                cancel_in(d, &d->chunks[io->pages[i].at >> 32].waiting, io);
}

void disk_unwrite(struct disk_file *d, struct disk_io *io, uint32_t i)
{
        struct disk_io_page *p = &io->pages[i];
        struct disk_chunk *c = &d->chunks[p->at >> 32];

        assert(disk_task_of(io)->is_write);
        p->is_unwritten = true;
        /* Its operation may have ended before the others. */
        c = c->space ? find_page(c->space, p->at, p->page.key) : NULL;
        if (!c || p->result != 0)
                return;
        remove_page(c, (uint32_t)p->at);
        disk_chunk_shrink(d, c);
}

/* ---- taking out ------------------------------------------------------------------------------ */

int disk_remove_sync(struct disk_file *d, disk_fn done, void *data)
{
        struct disk_waiter *w = disk_waiter_new(done, data);

        if (!w)
                return -ENOMEM;
        disk_wait(d, w);
        disk_meta_go(d);
        return 0;
}

int disk_remove(
        struct disk_space *s, const struct disk_ref *pages, size_t n, disk_fn done, void *data)
{
        struct disk_file *d = s->disk;
        struct disk_waiter *w = done ? disk_waiter_new(done, data) : NULL;

        if (done && !w)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                struct disk_chunk *c = find_page(s, pages[i].at, pages[i].key);

                if (!c)
                        continue;
                remove_page(c, (uint32_t)pages[i].at);
                disk_chunk_shrink(d, c);
                d->counts.n_removed++;
        }
        if (w)
                disk_wait(d, w);
        disk_meta_go(d);
        return 0;
}

int disk_sync(struct disk_file *d, disk_fn done, void *data)
{
        struct disk_waiter *w;

        if (d->is_off)
                return -ENODEV;
        w = disk_waiter_new(done, data);
        if (!w)
                return -ENOMEM;
        w->wants_data = true;
        disk_wait(d, w);
        disk_meta_go(d);
        return 0;
}
