#include "tests/unit/fake-shm.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"

static void *open_segment(
        int *ret_fd, uint64_t *ret_bytes, uint64_t bytes, enum shm_kind kind, uint64_t owner)
{
        struct shm_header *h;
        int fd = memfd_create_sized("fake-shm", bytes);

        h = fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (h == MAP_FAILED)
                abort();
        h->magic = SHM_MAGIC;
        h->version = SHM_LAYOUT_VERSION;
        h->kind = (uint32_t)kind;
        h->bytes = bytes;
        h->owner = owner;
        *ret_fd = fd;
        *ret_bytes = bytes;
        return h;
}

static void close_segment(int *fd, void *base, uint64_t bytes)
{
        munmap(base, bytes);
        *fd = fd_close(*fd);
}

void fake_index_open(struct fake_index *x, uint32_t capacity_pages, uint32_t n_buckets)
{
        uint64_t lines_offset;

        for (n_buckets = n_buckets ? n_buckets : 1; n_buckets * 4 < capacity_pages;)
                n_buckets *= 2;
        lines_offset = SHM_HEADER_BYTES + n_buckets * sizeof(struct shm_bucket);
        x->header = open_segment(&x->fd, &x->bytes,
                lines_offset + capacity_pages * sizeof(struct shm_line), SHM_INDEX, 1);
        x->header->capacity_pages = capacity_pages;
        x->header->n_buckets = n_buckets;
        x->header->buckets_offset = SHM_HEADER_BYTES;
        x->header->lines_offset = lines_offset;
        x->header->seed[0] = FAKE_SEED.k0;
        x->header->seed[1] = FAKE_SEED.k1;
        x->header->epoch = x->header->version_epoch = 1;
        x->buckets = (void *)((uint8_t *)x->header + SHM_HEADER_BYTES);
        x->lines = (void *)((uint8_t *)x->header + lines_offset);
}

void fake_index_close(struct fake_index *x)
{
        close_segment(&x->fd, x->header, x->bytes);
}

void fake_pins_open(struct fake_pins *p, uint32_t capacity_pages, uint64_t client_id)
{
        uint64_t counters_offset = SHM_HEADER_BYTES + SHM_MAGAZINE_SLOTS * sizeof(uint32_t);

        p->header = open_segment(&p->fd, &p->bytes,
                counters_offset + capacity_pages * sizeof(uint32_t), SHM_PINS, client_id);
        p->header->capacity_pages = capacity_pages;
        p->header->magazine_slots = SHM_MAGAZINE_SLOTS;
        p->header->magazine_offset = SHM_HEADER_BYTES;
        p->header->counters_offset = counters_offset;
        p->magazine = (void *)((uint8_t *)p->header + SHM_HEADER_BYTES);
        p->counters = (void *)((uint8_t *)p->header + counters_offset);
}

void fake_pins_close(struct fake_pins *p)
{
        close_segment(&p->fd, p->header, p->bytes);
}

void fake_rings_open(struct fake_rings *r, uint64_t client_id)
{
        uint64_t comp_offset = SHM_HEADER_BYTES + SHM_SUB_ENTRIES * sizeof(struct shm_submission);

        r->header = open_segment(&r->fd, &r->bytes, SHM_CLIENT_BYTES, SHM_CLIENT, client_id);
        r->header->sub_entries = SHM_SUB_ENTRIES;
        r->header->comp_entries = SHM_COMP_ENTRIES;
        r->header->sub_offset = SHM_HEADER_BYTES;
        r->header->comp_offset = comp_offset;
        r->header->last_op = SHM_OP_LAST;
        r->submissions = (void *)((uint8_t *)r->header + SHM_HEADER_BYTES);
        r->completions = (void *)((uint8_t *)r->header + comp_offset);
        r->head = r->tail = 0;
}

void fake_rings_close(struct fake_rings *r)
{
        close_segment(&r->fd, r->header, r->bytes);
}

/* True where one of the key's slots was `old`, and is `new`. */
static bool replace_slot(struct fake_index *x, uint64_t hash, uint64_t old, uint64_t new)
{
        for (unsigned i = 0; i < 2 * SHM_BUCKET_SLOTS; i++) {
                uint64_t expected = old;

                if (atomic_compare_exchange_strong(
                            &x->buckets[shm_bucket_index(
                                                hash, x->header->n_buckets, i / SHM_BUCKET_SLOTS)]
                                     .slots[i % SHM_BUCKET_SLOTS],
                            &expected, new))
                        return true;
        }
        return false;
}

static void insert(struct fake_index *x, uint32_t page, const uint8_t *key)
{
        uint64_t hash = hash_digest(FAKE_SEED, key);

        if (!replace_slot(x, hash, 0, shm_slot(hash, page)))
                abort();
}

static void show(struct fake_index *x, uint32_t page, uint64_t generation, enum page_state state)
{
        atomic_store_explicit(
                &x->lines[page].state, generation << 8 | (uint64_t)state, memory_order_release);
}

void fake_index_add(struct fake_index *x, uint32_t page, const uint8_t *key, uint16_t tokens,
        uint64_t generation)
{
        struct shm_line *line = &x->lines[page];

        memcpy(line->key, key, SHM_KEY_BYTES);
        line->epoch = x->header->epoch;
        line->tokens = tokens;
        show(x, page, generation, PAGE_SEALED);
        insert(x, page, key);
}

void fake_index_announce(
        struct fake_index *x, uint32_t page, const uint8_t *key, uint64_t generation)
{
        struct shm_line *line = &x->lines[page];

        /* Atomic, because clients may read the key meanwhile. */
        for (unsigned i = 0; i < SHM_KEY_BYTES; i++)
                __atomic_store_n(&line->key[i], key[i], __ATOMIC_RELAXED);
        __atomic_store_n(&line->epoch, x->header->epoch, __ATOMIC_RELAXED);
        show(x, page, generation, PAGE_PENDING);
        insert(x, page, key);
}

void fake_index_wake(struct fake_index *x, uint32_t page)
{
        syscall(SYS_futex, &x->lines[page].state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void fake_index_seal(struct fake_index *x, uint32_t page, uint16_t tokens)
{
        x->lines[page].tokens = tokens;
        show(x, page, x->lines[page].state >> 8, PAGE_SEALED);
        fake_index_wake(x, page);
}

void fake_index_withdraw(struct fake_index *x, uint32_t page)
{
        uint64_t hash = hash_digest(FAKE_SEED, x->lines[page].key);

        if (!replace_slot(x, hash, shm_slot(hash, page), 0))
                abort();
        show(x, page, (x->lines[page].state >> 8) + 1, PAGE_FREE);
        fake_index_wake(x, page);
}

void fake_index_detach(struct fake_index *x, uint32_t page)
{
        uint64_t hash = hash_digest(FAKE_SEED, x->lines[page].key);

        if (!replace_slot(x, hash, shm_slot(hash, page), 0))
                abort();
        show(x, page, x->lines[page].state >> 8, PAGE_DETACHED);
}

void fake_pins_put(struct fake_pins *p, uint32_t page)
{
        uint32_t slot = 0;

        while (p->magazine[slot] != 0)
                if (++slot == SHM_MAGAZINE_SLOTS)
                        abort();
        atomic_store_explicit(&p->magazine[slot], page + 1, memory_order_release);
        atomic_fetch_add(&p->header->n_put, 1);
}

bool fake_rings_take(struct fake_rings *r, struct shm_submission *ret)
{
        if (atomic_load_explicit(&r->header->sub_tail, memory_order_acquire) == r->head)
                return false;
        *ret = r->submissions[r->head % SHM_SUB_ENTRIES];
        atomic_store_explicit(&r->header->sub_head, ++r->head, memory_order_release);
        return true;
}

bool fake_rings_complete(struct fake_rings *r, uint64_t user_data, uint32_t status, uint32_t page)
{
        r->completions[r->tail % SHM_COMP_ENTRIES] =
                (struct shm_completion){.user_data = user_data, .status = status, .page = page};
        atomic_store_explicit(&r->header->comp_tail, ++r->tail, memory_order_release);
        atomic_thread_fence(memory_order_seq_cst);
        return atomic_load(&r->header->client_sleeps) == 1 &&
               atomic_exchange(&r->header->client_sleeps, 0) == 1;
}

bool fake_rings_sleep(struct fake_rings *r)
{
        atomic_store(&r->header->daemon_sleeps, 1);
        atomic_thread_fence(memory_order_seq_cst);
        return atomic_load_explicit(&r->header->sub_tail, memory_order_acquire) == r->head;
}
