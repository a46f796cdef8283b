/* Copies of a feed segment, taken while the daemon is in the middle of a change: the ring has it,
 * and the lines don't show it yet (proto/shm.h). */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/lib/follow/feed-reader.h"
#include "tests/unit/test-support.h"

#define N_PAGES    4
#define N_SLOTS    8
#define LINE_BYTES 192
#define EPOCH      3
#define SLOTS_AT   (SHM_HEADER_BYTES + N_PAGES * LINE_BYTES)
#define BYTES      (SLOTS_AT + N_SLOTS * shm_feed_slot_bytes(LINE_BYTES))

struct scene {
        struct shm_feed *feed; /* as the daemon has it */
        struct feed_reader reader;
};

static void scene_begin(struct scene *s)
{
        int fd = memfd_create("feed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        assert_int_equal(ftruncate(fd, (off_t)BYTES), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
        s->feed = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(s->feed, MAP_FAILED);
        *s->feed = (struct shm_feed){
                .header = {.magic = SHM_MAGIC,
                        .version = SHM_LAYOUT_VERSION,
                        .kind = SHM_FEED,
                        .bytes = BYTES},
                .capacity_pages = N_PAGES,
                .n_slots = N_SLOTS,
                .line_bytes = LINE_BYTES,
                .lines_offset = SHM_HEADER_BYTES,
                .slots_offset = SLOTS_AT,
                .epoch = EPOCH,
        };
        assert_int_equal(feed_reader_open(&s->reader, fd, BYTES), 0);
}

static void scene_end(struct scene *s)
{
        feed_reader_close(&s->reader);
        assert_int_equal(munmap(s->feed, BYTES), 0);
}

#define SCENE(fn) TEST_ON(fn, struct scene, s, scene_begin, scene_end)

static void show(struct scene *s, uint32_t page, bool is_shown)
{
        struct shm_feed_line *line =
                (void *)((uint8_t *)s->feed + SHM_HEADER_BYTES + (size_t)page * LINE_BYTES);

        line->epoch = EPOCH;
        line->depth = 1;
        line->tag = page;
        line->word = is_shown ? 1 << 8 | SHM_FEED_KEY : 0;
}

static void change(struct scene *s, enum shm_feed_kind kind, uint32_t page, uint32_t from)
{
        struct shm_feed_slot *slot =
                (void *)((uint8_t *)s->feed + SLOTS_AT +
                         s->feed->tail % N_SLOTS * shm_feed_slot_bytes(LINE_BYTES));

        slot->kind = kind;
        slot->page = page;
        slot->from = from;
        slot->line = (struct shm_feed_line){
                .word = 1 << 8 | SHM_FEED_KEY, .epoch = EPOCH, .depth = 1, .tag = page};
        s->feed->tail++;
}

/* The copy has exactly these pages, and nothing follows. */
static void assert_copied(struct scene *s, unsigned n, const uint32_t *pages)
{
        struct feed_change c;

        assert_int_equal(feed_reader_copy(&s->reader), 0);
        assert_int_equal(s->reader.n_pages, n);
        for (unsigned i = 0; i < n; i++)
                assert_int_equal(s->reader.pages[i]->tag, pages[i]);
        assert_int_equal(feed_reader_next(&s->reader, &c), 0);
}

SCENE(test_stored)
{
        assert_copied(s, 0, NULL);
        show(s, 0, true);
        change(s, SHM_FEED_STORED, 0, 0);
        change(s, SHM_FEED_STORED, 2, 0);
        assert_copied(s, 2, (uint32_t[]){0, 2});
}

SCENE(test_removed)
{
        show(s, 0, true);
        show(s, 2, true);
        change(s, SHM_FEED_REMOVED, 2, 0);
        assert_copied(s, 1, (uint32_t[]){0});
}

SCENE(test_moved)
{
        show(s, 0, true);
        show(s, 1, true);
        change(s, SHM_FEED_MOVED, 3, 1);
        assert_copied(s, 2, (uint32_t[]){0, 3});
}

SCENE(test_cleared)
{
        show(s, 0, true);
        change(s, SHM_FEED_CLEARED, UINT32_MAX, 0);
        assert_copied(s, 0, NULL);
}

/* A slot of an earlier round says nothing: a daemon that takes over adds a change of nothing. */
SCENE(test_taken_over)
{
        show(s, 1, true);
        change(s, SHM_FEED_STORED, 3, 0);
        s->feed->tail += N_SLOTS - 1;
        change(s, SHM_FEED_NOTHING, UINT32_MAX, 0);
        assert_copied(s, 1, (uint32_t[]){1});
}
