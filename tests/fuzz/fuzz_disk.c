/*
 * Damaged files at the start of a disk's store (daemon/tier/disk.h). With any contents: no crash,
 * state that checks, pages whose bytes have their sum, and a store that can be used.
 *
 * Input: a byte that says whether sums of records are made right, so that their fields are looked
 * at. Then changes to a small file: 2 bytes for the place, in 8 bytes, 1 for the length, the bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/tier/disk-engine.h"
#include "daemon/tier/disk-format.h"
#include "tests/fuzz/fuzz.h"

#define BYTES    (512u << 10)
#define CHUNK    (64u << 10)
#define SLOT     4096u
#define N_SLOTS  15u
#define N_SPACES 40u
#define NONCE    1000u

static char image[BYTES];

/* ---- an engine in the calling thread --------------------------------------------------------- */

static struct {
        struct disk_engine engine;
        int fd, event_fd;
        struct list_link done;
} own;

static void submit(struct disk_engine *e, struct disk_op *op)
{
        disk_op_run(own.fd, op);
        list_append(&own.done, &op->link);
        disk_ring(own.event_fd);
}

static void reap(struct disk_engine *e, struct list_link *ret_done)
{
        list_take_all(&own.done, ret_done);
}

static bool close_own(struct disk_engine *e, unsigned msec)
{
        return true;
}

static const struct disk_engine_ops ops = {"own", submit, reap, close_own};

static int start(int fd, int event_fd, unsigned depth, void *data, struct disk_engine **ret_engine)
{
        own.engine.ops = &ops;
        own.fd = fd;
        own.event_fd = event_fd;
        list_init(&own.done);
        *ret_engine = &own.engine;
        return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

static struct disk_layout layout(void)
{
        return disk_layout_of(BYTES, CHUNK, N_SPACES);
}

static void *record(uint64_t at, uint32_t i, size_t bytes)
{
        return image + at + i * bytes;
}

static struct disk_space_record *space_record(uint32_t i)
{
        return record(layout().spaces_at, i, sizeof(struct disk_space_record));
}

static struct disk_chunk_record *chunk_record(uint32_t i)
{
        return record(layout().chunks_at, i, sizeof(struct disk_chunk_record));
}

static struct disk_entry *entry(uint32_t chunk, uint32_t i)
{
        return record(layout().data_at + (uint64_t)chunk * CHUNK, i, sizeof(struct disk_entry));
}

static void make_entry(uint32_t chunk, uint32_t i, uint64_t generation)
{
        char *bytes = image + layout().data_at + (uint64_t)chunk * CHUNK + SLOT + i * SLOT;
        struct disk_entry *e = entry(chunk, i);

        memset(bytes, (int)(chunk * 16 + i), SLOT);
        e->page.key[0] = (uint8_t)(chunk + 1);
        e->page.key[1] = (uint8_t)i;
        e->page.length = 1 + 300 * i;
        e->page.sum = disk_sum(&(struct iovec){bytes, SLOT}, 1, e->page.length);
        e->generation = generation;
}

static void make_image(void)
{
        struct disk_super *s = (struct disk_super *)(void *)image;

        memset(image, 0, sizeof(image));
        *s = (struct disk_super){.magic = DISK_MAGIC,
                .version = DISK_VERSION,
                .n_chunks = layout().n_chunks,
                .max_spaces = N_SPACES,
                .bytes = BYTES,
                .chunk_bytes = CHUNK,
                .nonce = NONCE,
                .device = "gpu"};
        for (uint32_t i = 0; i < 3; i++)
                *space_record(i) = (struct disk_space_record){.id = {(uint8_t)(i + 1)},
                        .instance = 500 + i,
                        .generation = 7,
                        .slot_bytes = SLOT};
        for (uint32_t i = 0; i < 5; i++) {
                *chunk_record(i) =
                        (struct disk_chunk_record){.nonce = 900 + i, .instance = 500 + i % 3};
                for (uint32_t k = 0; k < 10; k++)
                        make_entry(i, k, 7);
        }
}

static void correct_sums(void)
{
        struct disk_super *s = (struct disk_super *)(void *)image;

        DISK_SEAL(s, 0);
        for (uint32_t i = 0; i < N_SPACES; i++)
                if (!disk_is_zero(space_record(i), sizeof(struct disk_space_record)))
                        DISK_SEAL(space_record(i), s->nonce + i);
        for (uint32_t i = 0; i < layout().n_chunks; i++) {
                if (disk_is_zero(chunk_record(i), sizeof(struct disk_chunk_record)))
                        continue;
                DISK_SEAL(chunk_record(i), s->nonce + i);
                for (uint32_t k = 0; k < N_SLOTS; k++)
                        if (!disk_is_zero(entry(i, k), sizeof(struct disk_entry)))
                                DISK_SEAL(entry(i, k), chunk_record(i)->nonce + k);
        }
}

static void change_image(const uint8_t *data, size_t size)
{
        while (size >= 3) {
                size_t len = MIN((size_t)data[2], size - 3);
                uint64_t place = (uint64_t)(data[0] | data[1] << 8) * 8;

                memcpy(image + place, data + 3, MIN(len, (size_t)(BYTES - place)));
                data += 3 + len;
                size -= 3 + len;
        }
}

/* ---- what is done with it -------------------------------------------------------------------- */

static unsigned n_answers;

static void answer(int result, void *data)
{
        n_answers++;
}

static void check_state(struct disk_file *d)
{
        char why[DISK_WHY_BYTES];

        if (!disk_check(d, why)) {
                fprintf(stderr, "disk_check: %s\n", why);
                abort();
        }
}

static void reap_all(struct disk_file *d)
{
        struct pollfd p = {.fd = disk_fd(d), .events = POLLIN};

        while (poll(&p, 1, 0) == 1)
                disk_reap(d);
        check_state(d);
}

static void check_read(struct disk_io *io, void *data)
{
        const struct disk_io_page *p = &io->pages[0];

        CHECK(p->result == 0 || p->result == -EBADMSG);
        CHECK(p->result < 0 || disk_sum(p->iov, 1, p->page.length) == p->page.sum);
        n_answers++;
}

/* Its callback runs before this returns: the engine is as fast. */
static void read_page(
        struct disk_file *d, struct disk_space *s, const struct disk_page *page, uint64_t at)
{
        struct disk_space_info info;
        struct disk_io *io = disk_io_new(1);
        struct iovec iov;

        disk_space_info(s, &info);
        iov = (struct iovec){disk_buffer_new(info.slot_bytes), info.slot_bytes};
        CHECK(io && iov.iov_base && page->length > 0 && page->length <= info.slot_bytes);
        memcpy(io->pages[0].page.key, page->key, DISK_KEY_BYTES);
        io->pages[0].at = at;
        io->pages[0].iov = &iov;
        io->pages[0].n_iov = 1;
        io->done = check_read;
        n_answers = 0;
        CHECK(disk_read(s, io) == 0);
        reap_all(d);
        CHECK(n_answers == 1);
        free(iov.iov_base);
}

static void read_all(struct disk_file *d, struct disk_space *s)
{
        const struct disk_page *page;
        uint64_t iter = 0, at;

        CHECK(disk_space_load(s, answer, NULL) == 0);
        reap_all(d);
        while (disk_page_next(s, &iter, &page, &at))
                read_page(d, s, page, at);
}

/* Uses the store once. */
static void go_on(struct disk_file *d)
{
        struct disk_space *s = disk_space_next(d, NULL);

        if (s)
                (void)disk_raise(s, UINT64_MAX, answer, NULL);
        reap_all(d);
        if (s)
                CHECK(disk_drop(s, answer, NULL) == 0);
        reap_all(d);
}

static void write_file(const char *path)
{
        _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

        CHECK(fd >= 0 && pwrite(fd, image, sizeof(image), 0) == (ssize_t)sizeof(image));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const struct disk_options options = {
                .device = "gpu", .chunk_bytes = CHUNK, .max_spaces = N_SPACES};
        char path[64], why[DISK_WHY_BYTES];
        struct disk_file *d;
        int r;

        make_image();
        if (size > 0)
                change_image(data + 1, size - 1);
        if (size == 0 || data[0] % 2 == 0)
                correct_sums();
        (void)snprintf(path, sizeof(path), "%s/kvlease-fuzz-disk-%d",
                access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (int)getpid());
        write_file(path);
        r = disk_open_with(path, BYTES, &options, start, NULL, &d, why);
        CHECK(r == 0 || r == DISK_NEW || r == -EEXIST || r == -EXDEV);
        CHECK((r == 0) == (why[0] == '\0'));
        if (r >= 0) {
                check_state(d);
                for (struct disk_space *s = NULL; (s = disk_space_next(d, s));)
                        read_all(d, s);
                go_on(d);
                CHECK(disk_close(d));
        }
        CHECK(unlink(path) == 0);
        return 0;
}
