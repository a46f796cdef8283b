/* Spaces, and their chunks. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/fault-point.h"
#include "daemon/tier/disk-impl.h"

uint64_t disk_random(void)
{
        uint64_t n = 0;

        while (n == 0 || n == UINT64_MAX)
                if (getrandom(&n, sizeof(n), 0) != (ssize_t)sizeof(n))
                        abort(); /* it never fails after boot */
        return n;
}

/* ---- records --------------------------------------------------------------------------------- */

static void write_space_record(const struct disk_space *s)
{
        struct disk_file *d = s->disk;
        struct disk_space_record *r = &d->space_records[s->row];

        *r = (struct disk_space_record){
                .instance = s->instance, .generation = s->generation, .slot_bytes = s->slot_bytes};
        memcpy(r->id, s->id, sizeof(r->id));
        memcpy(r->owner, s->owner, sizeof(r->owner));
        DISK_SEAL(r, d->super.nonce + s->row);
        FAULT_POINT("disk-before-space-record");
        disk_touch(d, &d->space_blocks[s->row / DISK_BLOCK_SPACES]);
}

static void wipe_space_record(const struct disk_space *s)
{
        struct disk_file *d = s->disk;

        memset(&d->space_records[s->row], 0, sizeof(d->space_records[s->row]));
        disk_touch(d, &d->space_blocks[s->row / DISK_BLOCK_SPACES]);
}

/* instance 0: the chunk is free. */
static void write_chunk_record(struct disk_file *d, const struct disk_chunk *c, uint64_t instance)
{
        struct disk_chunk_record *r = &d->chunk_records[c->number];

        *r = (struct disk_chunk_record){0};
        if (instance) {
                r->nonce = c->nonce;
                r->instance = instance;
                DISK_SEAL(r, d->super.nonce + c->number);
        }
        FAULT_POINT("disk-before-chunk-record");
        disk_touch(d, &d->chunk_blocks[c->number / DISK_BLOCK_CHUNKS]);
}

/* ---- a chunk's memory ------------------------------------------------------------------------ */

static int new_chunk_memory(struct disk_file *d, struct disk_chunk *c)
{
        c->memory_bytes = (uint64_t)c->n_blocks * (DISK_ALIGN + sizeof(struct disk_block)) +
                          c->n_slots * sizeof(struct disk_slot);
        d->index_bytes += c->memory_bytes;
        c->entries = disk_buffer_new((uint64_t)c->n_blocks * DISK_ALIGN);
        c->slots = calloc(c->n_slots, sizeof(*c->slots));
        c->blocks = calloc(c->n_blocks, sizeof(*c->blocks));
        for (uint32_t i = 0; c->blocks && i < c->n_blocks; i++) {
                c->blocks[i].offset = disk_chunk_at(c, d) + (uint64_t)i * DISK_ALIGN;
                c->blocks[i].memory = (char *)c->entries + (size_t)i * DISK_ALIGN;
                list_init(&c->blocks[i].link);
        }
        if (c->entries && c->slots && c->blocks)
                return 0;
        disk_chunk_memory_free(d, c);
        return -ENOMEM;
}

void disk_chunk_memory_free(struct disk_file *d, struct disk_chunk *c)
{
        /* If the disk is off, some blocks are never written. */
        for (uint32_t i = 0; c->blocks && i < c->n_blocks; i++)
                list_remove(&c->blocks[i].link);
        d->index_bytes -= c->memory_bytes;
        c->memory_bytes = 0;
        free(TAKE(c->entries));
        free(TAKE(c->slots));
        free(TAKE(c->blocks));
}

/* ---- chunks of a space ----------------------------------------------------------------------- */

static void set_size(const struct disk_space *s, struct disk_chunk *c)
{
        c->n_slots = s->chunk_slots;
        c->n_blocks = disk_index_blocks(s->chunk_slots);
}

static void link_chunk(struct disk_space *s, struct disk_chunk *c)
{
        c->state = CHUNK_USED;
        c->space = s;
        c->hint = c->n_used = c->n_pages = 0;
        c->used_bytes = 0;
        c->last_use = ++s->disk->uses;
        list_remove(&c->link);
        list_append(&s->chunks, &c->link);
        s->n_chunks++;
        s->n_slots += c->n_slots;
        s->disk->n_free--;
}

static void zeroed(struct disk_file *d, struct disk_op *op)
{
        struct disk_chunk *c = op->chunk;

        FAULT_POINT("disk-after-zero");
        c->is_zeroing = false;
        if (op->result == 0 && c->state == CHUNK_USED)
                c->contents = c->space->serial;
        list_for_each_safe (waiting, &c->waiting, struct disk_op, link) {
                list_remove(&waiting->link);
                if (op->result < 0)
                        disk_op_end(d, waiting, op->result);
                else
                        disk_submit(d, waiting);
        }
        disk_chunk_unbusy(d, c);
        if (c->state == CHUNK_USED)
                disk_chunk_shrink(d, c);
}

/* Zeroes the slots; the index is written as a whole. */
static void zero_chunk(struct disk_space *s, struct disk_chunk *c)
{
        struct disk_file *d = s->disk;
        uint64_t from = disk_slot_at(d, c, 0, s->slot_bytes);

        c->contents = CONTENTS_ANY;
        c->is_zeroing = true;
        c->n_busy++;
        c->op = (struct disk_op){
                .kind = DISK_OP_ZERO,
                .offset = from,
                .bytes = disk_chunk_at(c, d) + d->super.chunk_bytes - from,
                .chunk = c,
                .done = zeroed,
        };
        FAULT_POINT("disk-before-zero");
        disk_submit(d, &c->op);
}

/* There is a free one. 0 or -ENOMEM. */
static int take_chunk(struct disk_space *s)
{
        struct disk_file *d = s->disk;
        struct disk_chunk *c = list_first(&d->free, struct disk_chunk, link);

        set_size(s, c);
        if (new_chunk_memory(d, c) < 0)
                return -ENOMEM;
        link_chunk(s, c);
        list_append(&s->roomy, &c->room);
        c->nonce = disk_random();
        write_chunk_record(d, c, s->instance);
        for (uint32_t i = 0; i < c->n_blocks; i++)
                disk_touch(d, &c->blocks[i]);
        if (c->contents == CONTENTS_NONE)
                c->contents = s->serial;
        if (c->contents != s->serial)
                zero_chunk(s, c);
        return 0;
}

int disk_space_secure(struct disk_space *s, uint32_t n)
{
        struct disk_file *d = s->disk;
        uint64_t most = s->n_slots - s->n_used + (uint64_t)d->n_free * s->chunk_slots;
        int r = 0;

        if (most < n)
                return d->n_freeing > 0 ? DISK_BUSY : DISK_FULL;
        while (r == 0 && s->n_slots - s->n_used < n)
                r = take_chunk(s);
        /* None stays with it for nothing. */
        if (r < 0)
                list_for_each_safe (c, &s->roomy, struct disk_chunk, room)
                        disk_chunk_shrink(d, c);
        return r;
}

static void free_chunk(struct disk_file *d, struct disk_chunk *c)
{
        if (c->space)
                c->space->n_freeing--;
        disk_chunk_memory_free(d, c);
        c->n_slots = c->n_blocks = 0;
        c->state = CHUNK_FREE;
        c->space = NULL;
        list_remove(&c->link);
        /* First in the list: the same space may use it next, without zeroing; and rewritten blocks
         * are faster. */
        list_insert_before(d->free.next, &c->link);
        d->n_freeing--;
        d->n_free++;
}

static void free_if_over(struct disk_file *d, struct disk_chunk *c)
{
        if (c->state == CHUNK_FREEING && c->is_durable && c->n_busy == 0)
                free_chunk(d, c);
}

static void freeing_is_durable(struct disk_file *d, struct disk_waiter *w, int result)
{
        struct disk_chunk *c = container_of(w, struct disk_chunk, waiter);

        c->is_durable = true;
        free_if_over(d, c);
}

void disk_chunk_unbusy(struct disk_file *d, struct disk_chunk *c)
{
        c->n_busy--;
        free_if_over(d, c);
}

/* Gives the chunk back, and drops its pages. */
static void release_chunk(struct disk_file *d, struct disk_chunk *c)
{
        struct disk_space *s = c->space;

        s->n_chunks--;
        s->n_freeing++;
        s->n_slots -= c->n_slots;
        s->n_used -= c->n_used;
        s->n_pages -= c->n_pages;
        s->used_bytes -= c->used_bytes;
        c->n_pages = 0;
        c->used_bytes = 0;
        c->state = CHUNK_FREEING;
        c->is_durable = false;
        list_remove(&c->room);
        list_remove(&c->link);
        list_append(&d->freeing, &c->link);
        d->n_freeing++;
        write_chunk_record(d, c, 0);
        c->waiter = (struct disk_waiter){.run = freeing_is_durable};
        list_init(&c->waiter.link);
        disk_wait(d, &c->waiter);
        disk_wake(d);
}

void disk_chunk_shrink(struct disk_file *d, struct disk_chunk *c)
{
        if (c->n_used == 0 && !c->is_zeroing)
                release_chunk(d, c);
}

static void release_all(struct disk_space *s)
{
        list_for_each_safe (c, &s->chunks, struct disk_chunk, link)
                release_chunk(s->disk, c);
}

/* ---- slots ----------------------------------------------------------------------------------- */

uint64_t disk_slot_take(struct disk_space *s)
{
        struct disk_chunk *c = list_first(&s->roomy, struct disk_chunk, room);
        uint32_t slot = c->hint;

        while (c->slots[slot].state != SLOT_FREE)
                slot++;
        c->slots[slot] = (struct disk_slot){.state = SLOT_WRITING};
        c->hint = slot + 1;
        c->n_used++;
        s->n_used++;
        if (c->n_used == c->n_slots)
                list_remove(&c->room);
        return (uint64_t)c->number << 32 | slot;
}

void disk_slot_free(struct disk_chunk *c, uint32_t slot)
{
        struct disk_space *s = c->space;

        c->slots[slot] = (struct disk_slot){.state = SLOT_FREE};
        c->hint = MIN(c->hint, slot);
        if (c->n_used == c->n_slots)
                list_append(&s->roomy, &c->room);
        c->n_used--;
        s->n_used--;
}

/* ---- loading --------------------------------------------------------------------------------- */

static void end_load(struct disk_space *s, int result)
{
        s->is_loaded = true;
        if (s->loading)
                disk_waiter_end(s->disk, TAKE(s->loading), result);
}

static void load_entry(struct disk_space *s, struct disk_chunk *c, uint32_t slot)
{
        struct disk_entry *e = &c->entries[slot];

        if (disk_is_zero(e, sizeof(*e)))
                return;
        if (!DISK_IS_WHOLE(e, c->nonce + slot) || e->generation != s->generation ||
                e->page.length == 0 || e->page.length > s->slot_bytes) {
                s->disk->counts.n_damaged++;
                memset(e, 0, sizeof(*e));
                return;
        }
        c->slots[slot] = (struct disk_slot){.state = SLOT_WRITING, .is_found = true};
        c->n_used++;
        s->n_used++;
        disk_page_add(c, slot);
}

static void load_entries(struct disk_space *s, struct disk_chunk *c)
{
        for (uint32_t i = 0; i < c->n_slots; i++)
                load_entry(s, c, i);
        if (c->n_used < c->n_slots)
                list_append(&s->roomy, &c->room);
        disk_chunk_shrink(s->disk, c);
}

static void loaded(struct disk_file *d, struct disk_op *op)
{
        struct disk_chunk *c = op->chunk;
        struct disk_space *s = c->state == CHUNK_USED ? c->space : NULL;

        disk_chunk_unbusy(d, c);
        if (!s)
                return; /* raised, or dropped */
        if (op->result == 0)
                load_entries(s, c);
        else if (!d->is_off)
                release_chunk(d, c);
        if (--s->n_loading == 0)
                end_load(s, d->is_off ? -ENODEV : 0);
}

static void load_chunk(struct disk_space *s, struct disk_chunk *c)
{
        c->iov = (struct iovec){c->entries, (size_t)c->n_blocks * DISK_ALIGN};
        c->op = (struct disk_op){
                .kind = DISK_OP_READ,
                .offset = disk_chunk_at(c, s->disk),
                .bytes = c->iov.iov_len,
                .iov = &c->iov,
                .n_iov = 1,
                .chunk = c,
                .done = loaded,
        };
        c->n_busy++;
        disk_submit(s->disk, &c->op);
}

static int new_memory_for_all(struct disk_space *s)
{
        int r = 0;

        list_for_each (c, &s->chunks, struct disk_chunk, link)
                if (r == 0)
                        r = new_chunk_memory(s->disk, c);
        if (r < 0)
                list_for_each (c, &s->chunks, struct disk_chunk, link)
                        if (c->entries)
                                disk_chunk_memory_free(s->disk, c);
        return r;
}

int disk_space_load(struct disk_space *s, disk_fn done, void *data)
{
        struct disk_waiter *w;

        if (s->disk->is_off)
                return -ENODEV;
        if (s->is_loaded || s->loading)
                return -EALREADY;
        w = disk_waiter_new(done, data);
        if (!w || new_memory_for_all(s) < 0) {
                free(w);
                return -ENOMEM;
        }
        s->loading = w;
        s->n_loading = s->n_chunks;
        list_for_each (c, &s->chunks, struct disk_chunk, link)
                load_chunk(s, c);
        if (s->n_chunks == 0)
                end_load(s, 0);
        return 0;
}

/* ---- spaces ---------------------------------------------------------------------------------- */

struct disk_space *disk_space_add(struct disk_file *d, uint32_t row)
{
        struct disk_space *s = calloc(1, sizeof(*s));

        if (!s)
                return NULL;
        s->disk = d;
        s->row = row;
        s->serial = ++d->last_serial;
        list_init(&s->chunks);
        list_init(&s->roomy);
        list_append(&d->spaces, &s->link);
        d->rows[row] = s;
        d->n_spaces++;
        return s;
}

void disk_space_free(struct disk_space *s)
{
        struct disk_file *d = s->disk;

        list_for_each (c, &d->freeing, struct disk_chunk, link)
                if (c->space == s)
                        c->space = NULL;
        d->rows[s->row] = NULL;
        d->n_spaces--;
        list_remove(&s->link);
        free(s);
}

void disk_chunk_adopt(struct disk_space *s, struct disk_chunk *c)
{
        set_size(s, c);
        link_chunk(s, c);
        c->contents = s->serial;
}

struct disk_space *disk_space_find(struct disk_file *d, const uint8_t id[DISK_ID_BYTES])
{
        list_for_each (s, &d->spaces, struct disk_space, link)
                if (memcmp(s->id, id, DISK_ID_BYTES) == 0)
                        return s;
        return NULL;
}

struct disk_space *disk_space_next(struct disk_file *d, struct disk_space *s)
{
        struct list_link *next = s ? s->link.next : d->spaces.next;

        return next == &d->spaces ? NULL : list_entry(next, struct disk_space, link);
}

/* max_spaces: none. */
static uint32_t find_row(const struct disk_file *d)
{
        uint32_t row = 0;

        while (row < d->super.max_spaces && d->rows[row])
                row++;
        return row;
}

int disk_space_new(struct disk_file *d, const uint8_t id[DISK_ID_BYTES],
        const uint8_t owner[DISK_ID_BYTES], uint64_t generation, uint64_t slot_bytes,
        struct disk_space **ret_space)
{
        uint32_t row = find_row(d);
        struct disk_space *s;

        if (d->is_off)
                return -ENODEV;
        if (slot_bytes == 0 || slot_bytes > d->super.chunk_bytes ||
                disk_chunk_slots(d->super.chunk_bytes, round_up_u64(slot_bytes, DISK_ALIGN)) == 0)
                return -EINVAL;
        if (disk_space_find(d, id))
                return -EEXIST;
        if (row == d->super.max_spaces)
                return -ENOSPC;
        s = disk_space_add(d, row);
        if (!s)
                return -ENOMEM;
        memcpy(s->id, id, sizeof(s->id));
        memcpy(s->owner, owner, sizeof(s->owner));
        s->instance = disk_random();
        s->generation = generation;
        s->slot_bytes = (uint32_t)round_up_u64(slot_bytes, DISK_ALIGN);
        s->chunk_slots = disk_chunk_slots(d->super.chunk_bytes, s->slot_bytes);
        s->is_loaded = true;
        write_space_record(s);
        *ret_space = s;
        return 0;
}

void disk_space_info(const struct disk_space *s, struct disk_space_info *ret_info)
{
        *ret_info = (struct disk_space_info){
                .generation = s->generation,
                .slot_bytes = s->slot_bytes,
                .n_chunks = s->n_chunks,
                .n_freeing = s->n_freeing,
                .n_pages = s->n_pages,
                .used_bytes = s->used_bytes,
                .is_loaded = s->is_loaded,
        };
        memcpy(ret_info->id, s->id, sizeof(s->id));
        memcpy(ret_info->owner, s->owner, sizeof(s->owner));
}

uint32_t disk_space_chunk_slots(const struct disk_space *s)
{
        return s->chunk_slots;
}

int disk_raise(struct disk_space *s, uint64_t generation, disk_fn done, void *data)
{
        struct disk_waiter *w;

        if (generation <= s->generation)
                return -EINVAL;
        w = disk_waiter_new(done, data);
        if (!w)
                return -ENOMEM;
        s->generation = generation;
        s->instance = disk_random();
        write_space_record(s);
        release_all(s);
        s->n_loading = 0;
        end_load(s, -ECANCELED);
        disk_wait(s->disk, w);
        disk_meta_go(s->disk);
        return 0;
}

int disk_drop(struct disk_space *s, disk_fn done, void *data)
{
        struct disk_file *d = s->disk;
        struct disk_waiter *w = disk_waiter_new(done, data);

        if (!w)
                return -ENOMEM;
        wipe_space_record(s);
        release_all(s);
        end_load(s, -ECANCELED);
        disk_space_free(s);
        disk_wait(d, w);
        disk_meta_go(d);
        return 0;
}

static struct disk_chunk *least_used(struct disk_space *s)
{
        struct disk_chunk *oldest = NULL;

        list_for_each (c, &s->chunks, struct disk_chunk, link)
                if (!oldest || c->last_use < oldest->last_use)
                        oldest = c;
        return oldest;
}

int disk_give_chunk(struct disk_space *s, disk_gone_fn gone, void *data)
{
        struct disk_chunk *c = s->is_loaded ? least_used(s) : NULL;

        if (!c)
                return DISK_BUSY;
        for (uint32_t i = 0; i < c->n_slots; i++)
                if (c->slots[i].state == SLOT_PAGE)
                        gone(&c->entries[i].page, (uint64_t)c->number << 32 | i, data);
        release_chunk(s->disk, c);
        disk_meta_go(s->disk);
        return 0;
}
