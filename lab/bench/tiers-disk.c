/*
 * disk: pages written to the disk tier's store and read back with both engines, 8 at once under way
 * and as many waiting in the store; against fio with as many under way, as large, on the same file
 * system, past the page cache as well. Reads are in random order and compare sums, as all reads of
 * the store do. $TMPDIR (else /var/tmp) says where.
 */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/tier/disk.h"
#include "tests/bench/bench.h"

#define DEPTH     8
#define N_FLIGHTS (2 * DEPTH)
#define ALL_BYTES (256ull << 20) /* of pages; fits no drive's own cache of some 64 MiB */
#define QUICK     (16ull << 20)
#define CHUNKS    (128ull << 20) /* of the store, beside those of the pages */
#define MIN_RATIO 0.8
#define MIB       (1024.0 * 1024)

enum { WRITE, READ, N_DIRECTIONS };
enum { URING, THREADS, FIO, N_WHATS };
enum { SMALL, LARGE, N_SIZES };

static const uint32_t sizes[] = {256 << 10, 1 << 20};

struct flight {
        struct disk_io *io; /* NULL: idle */
        struct iovec iov;
};

struct store {
        struct disk_file *disk;
        struct disk_space *space;
        uint32_t page_bytes, n_pages;
        struct disk_page page;
        uint64_t *at; /* owned */
        uint32_t *order;
        struct flight flights[N_FLIGHTS];
        unsigned n_flight;
        int failed;
};

struct bench_state {
        char dir[256], path[300], fio_path[300];
        bool has_fio;
        uint64_t bytes;
        struct store stores[N_SIZES][FIO];
        struct series series[N_SIZES][N_DIRECTIONS][N_WHATS];
};

/* ---- the store ------------------------------------------------------------------------------- */

static void wait_some(struct store *s)
{
        struct pollfd p = {.fd = disk_fd(s->disk), .events = POLLIN};

        (void)poll(&p, 1, -1);
        (void)disk_reap(s->disk);
}

static void name_page(uint32_t number, uint8_t key[DISK_KEY_BYTES])
{
        memcpy(key, &number, sizeof(number));
}

static void came(struct disk_io *io, void *data)
{
        struct store *s = data;

        if (io->pages[0].result < 0)
                s->failed = io->pages[0].result;
        for (unsigned i = 0; i < N_FLIGHTS; i++)
                if (s->flights[i].io == io)
                        s->flights[i].io = NULL;
        memcpy(&s->at[*(uint32_t *)(void *)io->pages[0].page.key], &io->pages[0].at,
                sizeof(uint64_t));
        s->n_flight--;
}

static struct flight *idle_flight(struct store *s)
{
        for (unsigned i = 0; i < N_FLIGHTS; i++)
                if (!s->flights[i].io)
                        return &s->flights[i];
        return NULL;
}

static int start_one(struct store *s, unsigned direction, uint32_t number)
{
        struct flight *f = idle_flight(s);
        int r;

        f->io = disk_io_new(1);
        if (!f->io)
                return -ENOMEM;
        f->io->done = came;
        f->io->data = s;
        f->io->pages[0].page = s->page;
        f->io->pages[0].at = s->at[number];
        f->io->pages[0].iov = &f->iov;
        f->io->pages[0].n_iov = 1;
        name_page(number, f->io->pages[0].page.key);
        r = direction == WRITE ? disk_write(s->space, f->io) : disk_read(s->space, f->io);
        if (r == 0) {
                s->n_flight++;
                return 0;
        }
        disk_io_free(TAKE(f->io));
        return r > 0 ? -EBUSY : r;
}

/* All pages, N_FLIGHTS at once. */
static int run_all(struct store *s, unsigned direction)
{
        int r = 0;

        for (uint32_t i = 0; i < s->n_pages && r == 0 && s->failed == 0; i++) {
                while (s->n_flight == N_FLIGHTS)
                        wait_some(s);
                r = start_one(s, direction, direction == WRITE ? i : s->order[i]);
        }
        while (s->n_flight > 0)
                wait_some(s);
        return r ? r : s->failed;
}

static void answered(int result, void *data)
{
        *(int *)data = result;
}

/* Nothing is left to do when it returns. */
static int forget_all(struct store *s)
{
        int result = 1, r = 0;

        for (uint32_t i = 0; i < s->n_pages && r == 0; i++) {
                struct disk_ref ref = {.at = s->at[i]};

                name_page(i, ref.key);
                r = disk_remove(s->space, &ref, 1, NULL, NULL);
        }
        if (r == 0)
                r = disk_sync(s->disk, answered, &result);
        while (r == 0 && result == 1)
                wait_some(s);
        return r ? r : result;
}

static int open_store(struct store *s, const struct bench_state *b, unsigned what, uint32_t bytes)
{
        const struct disk_options options = {.device = "bench",
                .engine = what == URING ? DISK_ENGINE_URING : DISK_ENGINE_THREADS,
                .depth = DEPTH};
        const uint8_t id[DISK_ID_BYTES] = {1};
        char path[320], why[DISK_WHY_BYTES];
        int r;

        (void)snprintf(path, sizeof(path), "%s-%u-%u", b->path, what, bytes);
        r = disk_open(path, b->bytes + CHUNKS, &options, &s->disk, why);

        if (r < 0) {
                fprintf(stderr, "kvlease-bench: %s\n", why);
                return r;
        }
        return disk_space_new(s->disk, id, id, 1, bytes, &s->space);
}

static int init_pages(struct store *s, uint64_t all_bytes, uint32_t bytes)
{
        s->page_bytes = bytes;
        s->n_pages = (uint32_t)(all_bytes / bytes);
        s->at = calloc(s->n_pages, sizeof(*s->at));
        s->order = calloc(s->n_pages, sizeof(*s->order));
        for (unsigned i = 0; i < N_FLIGHTS; i++)
                s->flights[i].iov = (struct iovec){disk_buffer_new(bytes), bytes};
        for (unsigned i = 0; i < N_FLIGHTS; i++)
                if (!s->flights[i].iov.iov_base || !s->at || !s->order)
                        return -ENOMEM;
        for (unsigned i = 0; i < N_FLIGHTS; i++)
                for (uint32_t k = 0; k < bytes; k++)
                        ((uint8_t *)s->flights[i].iov.iov_base)[k] = (uint8_t)(k * 37 >> 3);
        for (uint32_t i = 0; i < s->n_pages; i++) {
                uint32_t k = (uint32_t)random() % (i + 1);

                s->order[i] = s->order[k];
                s->order[k] = i;
        }
        s->page.length = bytes;
        s->page.sum = disk_sum(&s->flights[0].iov, 1, bytes);
        return 0;
}

static void close_store(struct store *s)
{
        if (s->disk)
                (void)disk_close(s->disk);
        for (unsigned i = 0; i < N_FLIGHTS; i++)
                free(s->flights[i].iov.iov_base);
        free(s->at);
        free(s->order);
}

static int time_direction(struct store *s, struct series *to, unsigned direction)
{
        uint64_t start = clock_now_nsec();
        int r = run_all(s, direction);

        series_add(to, (double)s->n_pages * s->page_bytes / MIB /
                               ((double)(clock_now_nsec() - start) / 1e9));
        return r;
}

/* Writes all blocks once before they are timed, as fio does. */
static int start_store(struct bench_state *b, unsigned size, unsigned what)
{
        struct store *s = &b->stores[size][what];
        int r = open_store(s, b, what, sizes[size]);

        if (r == 0)
                r = init_pages(s, b->bytes, sizes[size]);
        return r == 0 ? run_all(s, WRITE) : r;
}

static int time_store(struct bench_state *b, unsigned size, unsigned what)
{
        struct store *s = &b->stores[size][what];
        int r = forget_all(s);

        if (r == 0)
                r = time_direction(s, &b->series[size][WRITE][what], WRITE);
        if (r == 0)
                r = time_direction(s, &b->series[size][READ][what], READ);
        return r;
}

/* ---- fio ------------------------------------------------------------------------------------- */

/* MiB/s; < 0: fio can't be run, or prints something else. */
static double run_fio(const struct bench_state *b, unsigned direction, uint32_t bytes)
{
        const char *kind = direction == WRITE ? "write" : "randread";
        json_t *answer, *bandwidth;
        char command[1024];
        double r = -1;
        FILE *from;

        (void)snprintf(command, sizeof(command),
                "fio --name=kvlease --filename=%s --direct=1 --ioengine=io_uring --iodepth=%d "
                "--bs=%u --size=%llu --rw=%s --overwrite=1 --output-format=json 2>/dev/null",
                b->fio_path, DEPTH, bytes, (unsigned long long)b->bytes, kind);
        from = popen(command, "r");
        answer = from ? json_loadf(from, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
        if (from)
                (void)pclose(from);
        bandwidth =
                json_object_get(json_object_get(json_array_get(json_object_get(answer, "jobs"), 0),
                                        direction == WRITE ? "write" : "read"),
                        "bw_bytes");
        if (json_is_integer(bandwidth) && json_integer_value(bandwidth) > 0)
                r = (double)json_integer_value(bandwidth) / MIB;
        json_decref(answer);
        return r;
}

static int time_fio(struct bench_state *b, unsigned size)
{
        for (unsigned d = 0; d < N_DIRECTIONS; d++) {
                double rate = run_fio(b, d, sizes[size]);

                if (rate < 0)
                        return -EIO;
                series_add(&b->series[size][d][FIO], rate);
        }
        return 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int one_round(struct bench_state *b, unsigned round)
{
        int r = 0;

        for (unsigned size = 0; size < N_SIZES && r == 0; size++) {
                /* The order changes from round to round. */
                for (unsigned i = 0; i < N_WHATS && r == 0; i++) {
                        unsigned what = (i + round) % N_WHATS;

                        if (what != FIO)
                                r = time_store(b, size, what);
                        else if (b->has_fio)
                                r = time_fio(b, size);
                }
                for (unsigned d = 0; d < N_DIRECTIONS; d++)
                        for (unsigned w = 0; w < N_WHATS; w++)
                                series_close_round(&b->series[size][d][w]);
        }
        return r;
}

static void report(struct bench_state *b, struct bench_run *run)
{
        static const char *const engines[] = {"uring", "threads"};

        for (unsigned size = 0; size < N_SIZES; size++)
                for (unsigned d = 0; d < N_DIRECTIONS; d++)
                        for (unsigned w = 0; w < FIO; w++) {
                                struct bench_result *r = bench_add(run, "MiB/s", "%s-%uKiB-%s",
                                        d == WRITE ? "write" : "read", sizes[size] >> 10,
                                        engines[w]);

                                series_report(r, &b->series[size][d][w],
                                        b->has_fio ? &b->series[size][d][FIO] : NULL, "fio");
                                r->p99 = r->baseline_p99 = NAN;
                                r->min_ratio = MIN_RATIO;
                        }
}

static int init(struct bench_state *b, const struct bench_run *run)
{
        const char *tmp = getenv("TMPDIR");
        int r = 0;

        b->bytes = run->quick ? QUICK : ALL_BYTES;
        b->has_fio = system("fio --version >/dev/null 2>&1") == 0;
        (void)snprintf(
                b->dir, sizeof(b->dir), "%.200s/kvlease-bench-XXXXXX", tmp ? tmp : "/var/tmp");
        if (!mkdtemp(b->dir))
                return -errno;
        (void)snprintf(b->path, sizeof(b->path), "%s/store", b->dir);
        (void)snprintf(b->fio_path, sizeof(b->fio_path), "%s/fio", b->dir);
        for (unsigned size = 0; size < N_SIZES; size++)
                for (unsigned d = 0; d < N_DIRECTIONS; d++)
                        for (unsigned w = 0; w < N_WHATS && r == 0; w++)
                                r = series_init(&b->series[size][d][w], 4, run->rounds);
        return r;
}

static void end(struct bench_state *b)
{
        char path[320];

        for (unsigned size = 0; size < N_SIZES; size++)
                for (unsigned w = 0; w < FIO; w++) {
                        close_store(&b->stores[size][w]);
                        (void)snprintf(path, sizeof(path), "%s-%u-%u", b->path, w, sizes[size]);
                        (void)unlink(path);
                }
        (void)unlink(b->fio_path);
        (void)rmdir(b->dir);
}

static int run_disk(struct bench_run *run)
{
        static struct bench_state b;
        int r = init(&b, run);

        for (unsigned size = 0; size < N_SIZES; size++)
                for (unsigned w = 0; w < FIO && r == 0; w++)
                        r = start_store(&b, size, w);
        for (unsigned i = 0; i < run->rounds && r == 0; i++)
                r = one_round(&b, i);
        if (r == 0)
                report(&b, run);
        else
                bench_fail("pages on a disk", r);
        end(&b);
        for (unsigned size = 0; size < N_SIZES; size++)
                for (unsigned d = 0; d < N_DIRECTIONS; d++)
                        for (unsigned w = 0; w < N_WHATS; w++)
                                series_deinit(&b.series[size][d][w]);
        return r;
}

const struct bench bench_disk = {
        "disk", "pages of the disk tier written and read, against fio", 5, run_disk};
