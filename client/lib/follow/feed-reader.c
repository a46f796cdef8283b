#include "client/lib/follow/feed-reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/macros.h"

int feed_reader_open(struct feed_reader *r, int fd, uint64_t bytes)
{
        struct shm_map map;
        int error = shm_map_feed(fd, bytes, &map);

        if (error < 0) {
                fd_close(fd);
                return error;
        }
        *r = (struct feed_reader){
                .file = {.fd = fd, .reader_fd = -1, .bytes = bytes},
                .map = map,
                .header = map.base,
        };
        r->capacity_pages = r->header->capacity_pages;
        r->page_tokens = r->header->page_tokens;
        r->n_slots = r->header->n_slots;
        r->line_bytes = r->header->line_bytes;
        r->lines_offset = r->header->lines_offset;
        r->slots_offset = r->header->slots_offset;
        r->slot = malloc(shm_feed_slot_bytes(r->line_bytes));
        if (r->slot)
                return 0;
        feed_reader_close(r);
        return -ENOMEM;
}

void feed_reader_close(struct feed_reader *r)
{
        if (!r->header)
                return;
        feed_reader_drop_copy(r);
        free(r->slot);
        fd_close(r->file.fd);
        shm_unmap(&r->map);
        *r = (struct feed_reader){0};
}

static uint64_t copy_bytes(const struct feed_reader *r)
{
        return (uint64_t)r->capacity_pages * r->line_bytes;
}

void feed_reader_drop_copy(struct feed_reader *r)
{
        if (r->memory)
                munmap(TAKE(r->memory), copy_bytes(r));
        free(r->pages);
        r->pages = NULL;
        r->n_pages = 0;
}

bool feed_reader_has_ended(const struct feed_reader *r)
{
        return atomic_load_explicit(&r->header->ended, memory_order_acquire) != 0;
}

bool feed_reader_is_of(const struct feed_reader *r, int fd)
{
        struct stat a, b;

        return fstat(r->file.fd, &a) == 0 && fstat(fd, &b) == 0 && a.st_dev == b.st_dev &&
               a.st_ino == b.st_ino;
}

const uint32_t *feed_line_ids(const struct shm_feed_line *line)
{
        uint64_t word = atomic_load_explicit(&line->word, memory_order_relaxed);

        return (word & 0xff) == SHM_FEED_IDS ? (const uint32_t *)(line + 1) : NULL;
}

/* Bytes of a copied line, with its ids; the tokens may be torn. */
static size_t bytes_of(const struct feed_reader *r, const struct shm_feed_line *line)
{
        size_t n = feed_line_ids(line) ? MIN((uint32_t)line->tokens, r->page_tokens) : 0;

        return sizeof(*line) + n * sizeof(uint32_t);
}

/* ---- changes --------------------------------------------------------------------------------- */

static uint64_t tail_of(const struct feed_reader *r)
{
        return atomic_load_explicit(&r->header->tail, memory_order_acquire);
}

static void copy_slot(struct feed_reader *r)
{
        const uint8_t *base = r->map.base;
        const uint8_t *from =
                base + r->slots_offset + r->at % r->n_slots * shm_feed_slot_bytes(r->line_bytes);

        memcpy(r->slot, from, sizeof(*r->slot));
        memcpy(&r->slot->line + 1, from + sizeof(*r->slot),
                bytes_of(r, &r->slot->line) - sizeof(r->slot->line));
        atomic_thread_fence(memory_order_acquire);
}

int feed_reader_next(struct feed_reader *r, struct feed_change *ret)
{
        uint64_t tail = tail_of(r);
        const struct shm_feed_slot *s = r->slot;

        if (tail == r->at)
                return 0;
        if (tail - r->at >= r->n_slots)
                return -EAGAIN;
        copy_slot(r);
        if (tail_of(r) - r->at >= r->n_slots)
                return -EAGAIN;
        r->at++;
        *ret = (struct feed_change){
                (enum shm_feed_kind)s->kind, s->page, s->from, s->from_tier, &s->line};
        return 1;
}

/* ---- a copy ---------------------------------------------------------------------------------- */

/* Lines by page number, while they are copied. */
struct lines {
        struct shm_feed_line **at; /* capacity_pages; owned; NULL, or in feed_reader.memory */
};

static void lines_clear(struct lines *l, uint32_t n)
{
        memset(l->at, 0, n * sizeof(*l->at));
}

static void lines_set(const struct feed_reader *r, struct lines *l, uint32_t page,
        const struct shm_feed_line *line, size_t bytes)
{
        l->at[page] = (void *)(r->memory + (uint64_t)page * r->line_bytes);
        memcpy(l->at[page], line, bytes);
}

static const struct shm_feed_line *line_at(const struct feed_reader *r, uint32_t page)
{
        const uint8_t *base = r->map.base;

        return (const void *)(base + r->lines_offset + (uint64_t)page * r->line_bytes);
}

/* Copies a line, unless its page can't be found or it changes meanwhile. */
static void copy_line(struct feed_reader *r, struct lines *l, uint32_t page, uint64_t epoch)
{
        const struct shm_feed_line *line = line_at(r, page);
        struct shm_feed_line *copy = &r->slot->line;
        uint64_t word = atomic_load_explicit(&line->word, memory_order_acquire);

        if (word == 0 || line->epoch != epoch)
                return;
        memcpy(copy, line, sizeof(*copy));
        memcpy(copy + 1, line + 1, bytes_of(r, copy) - sizeof(*copy));
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&line->word, memory_order_relaxed) == word)
                lines_set(r, l, page, copy, bytes_of(r, copy));
}

/* Copies the lines in the touched parts of the segment. */
static void copy_lines(struct feed_reader *r, struct lines *l)
{
        uint64_t epoch = atomic_load_explicit(&r->header->epoch, memory_order_acquire);
        uint64_t last = r->lines_offset + (uint64_t)r->capacity_pages * r->line_bytes;
        uint64_t at = r->lines_offset, end;

        while ((at = segment_next_part(&r->file, at, &end)) < last) {
                uint64_t n = (MIN(end, last) - r->lines_offset + r->line_bytes - 1) / r->line_bytes;

                for (uint64_t i = (at - r->lines_offset) / r->line_bytes; i < n; i++)
                        copy_line(r, l, (uint32_t)i, epoch);
                at = end;
        }
}

/* Applies a change to the copy. */
static void apply(const struct feed_reader *r, struct lines *l, const struct feed_change *c)
{
        if (c->kind == SHM_FEED_CLEARED)
                lines_clear(l, r->capacity_pages);
        if (c->kind == SHM_FEED_CLEARED || c->page >= r->capacity_pages)
                return;
        if (c->kind == SHM_FEED_MOVED && c->from < r->capacity_pages)
                l->at[c->from] = NULL;
        if (c->kind == SHM_FEED_REMOVED)
                l->at[c->page] = NULL;
        else
                lines_set(r, l, c->page, c->line, bytes_of(r, c->line));
}

/* Copies all lines, then applies what changed meanwhile. */
static int fill(struct feed_reader *r, struct lines *l)
{
        uint64_t tail = tail_of(r);
        struct feed_change change;
        int n;

        /* The lines may not show the last change yet. */
        r->at = tail - (tail > 0);
        copy_lines(r, l);
        while ((n = feed_reader_next(r, &change)) > 0)
                apply(r, l, &change);
        return n;
}

static int by_depth(const void *a, const void *b)
{
        const struct shm_feed_line *const *x = a, *const *y = b;

        return ((*x)->depth > (*y)->depth) - ((*x)->depth < (*y)->depth);
}

/* Maps memory for a copy; only written parts take memory. It doesn't come from malloc(), whose
 * count shows kvlease-events how much memory its peers use. Returns 0 or -ENOMEM. */
static int map_copy(struct feed_reader *r)
{
        void *memory = mmap(NULL, copy_bytes(r), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (memory == MAP_FAILED)
                return -ENOMEM;
        r->memory = memory;
        return 0;
}

int feed_reader_copy(struct feed_reader *r)
{
        struct lines l;
        int error;

        feed_reader_drop_copy(r);
        error = map_copy(r);
        l.at = r->pages = error < 0 ? NULL : calloc(r->capacity_pages, sizeof(*l.at));
        if (error == 0)
                error = l.at ? fill(r, &l) : -ENOMEM;
        if (error < 0) {
                feed_reader_drop_copy(r);
                return error;
        }
        for (uint32_t i = 0; i < r->capacity_pages; i++)
                if (l.at[i])
                        l.at[r->n_pages++] = l.at[i];
        qsort(l.at, r->n_pages, sizeof(*l.at), by_depth);
        return 0;
}
