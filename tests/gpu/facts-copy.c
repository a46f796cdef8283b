/* Copies between host and device: T7, T8. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/gpu/facts.h"
#include "tests/integration/private-daemon.h"

#define HUGE_BYTES (UINT64_C(2) << 20)

/* ---- T7 ------------------------------------------------------------------------------------- */

#define SMALLEST   UINT64_C(4096)
#define LARGEST    (UINT64_C(2) << 20)
#define TOTAL      (UINT64_C(64) << 20)
#define MAX_PIECES (TOTAL / SMALLEST)
#define BATCH_PART 0.8                  /* of a plain copy's speed */
#define BATCH_FROM (UINT64_C(64) << 10) /* specification: transfer units */

enum way { BATCH, LOOP, PLAIN };

struct t7 {
        struct gpu g;
        struct chunk chunk;
        char *host;
        uint64_t bytes;
        unsigned order[MAX_PIECES];
        cu_deviceptr dsts[MAX_PIECES], srcs[MAX_PIECES];
        size_t sizes[MAX_PIECES];
        uint64_t cliff; /* the smallest size from which all batches are fast */
};

/* Pieces that are anywhere on the host, and in order on the device, like a text's pages. */
static void shuffle(struct t7 *t, unsigned n)
{
        uint64_t x = 88172645463325252;

        for (unsigned i = 0; i < n; ++i)
                t->order[i] = i;
        for (unsigned i = n; i > 1; --i) {
                unsigned j, swap;

                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                j = (unsigned)(x % i);
                swap = t->order[j];
                t->order[j] = t->order[i - 1];
                t->order[i - 1] = swap;
        }
}

static void prepare(struct t7 *t, uint64_t piece, unsigned n, bool to_device)
{
        shuffle(t, n);
        for (unsigned i = 0; i < n; ++i) {
                cu_deviceptr host = (cu_deviceptr)(uintptr_t)t->host + t->order[i] * piece;
                cu_deviceptr device = t->chunk.at + i * piece;

                t->dsts[i] = to_device ? device : host;
                t->srcs[i] = to_device ? host : device;
                t->sizes[i] = piece;
        }
}

static void start_batch(struct t7 *t, unsigned n)
{
        cu_memcpy_attributes attributes = {.src_access_order = CU_ACCESS_ORDER_STREAM};
        const struct cuda *c = t->g.c;
        size_t first = 0, failed;

        if (c->MemcpyBatchAsync2)
                need(c->MemcpyBatchAsync2(
                             t->dsts, t->srcs, t->sizes, n, &attributes, &first, 1, t->g.stream),
                        "cuMemcpyBatchAsync");
        else
                need(c->MemcpyBatchAsync(t->dsts, t->srcs, t->sizes, n, &attributes, &first, 1,
                             &failed, t->g.stream),
                        "cuMemcpyBatchAsync");
}

static void start_one(
        struct t7 *t, cu_deviceptr dst, cu_deviceptr src, uint64_t bytes, bool to_device)
{
        const struct cuda *c = t->g.c;

        if (to_device)
                need(c->MemcpyHtoDAsync(dst, (void *)(uintptr_t)src, bytes, t->g.stream),
                        "cuMemcpyHtoDAsync");
        else
                need(c->MemcpyDtoHAsync((void *)(uintptr_t)dst, src, bytes, t->g.stream),
                        "cuMemcpyDtoHAsync");
}

/* GB/s, the middle of several. */
static double time_way(struct t7 *t, enum way way, uint64_t piece, bool to_device, unsigned times)
{
        unsigned n = (unsigned)(t->bytes / piece);
        double speeds[5];

        prepare(t, piece, n, to_device);
        for (unsigned i = 0; i < times; ++i) {
                uint64_t start = now_nsec();

                if (way == BATCH)
                        start_batch(t, n);
                else
                        for (unsigned k = 0; k < n; ++k)
                                start_one(t, t->dsts[k], t->srcs[k], piece, to_device);
                gpu_sync(&t->g);
                speeds[i] = gb_per_s(t->bytes, msec_since(start));
        }
        return median_of(speeds, times);
}

static void t7_sizes(struct fact *f, struct t7 *t, const char *kind, bool to_device)
{
        const char *direction = to_device ? "to" : "from";
        bool has_batch = t->g.c->MemcpyBatchAsync2 || t->g.c->MemcpyBatchAsync;
        unsigned times = f->quick ? 1 : 5;
        double plain, speed;

        time_way(t, PLAIN, t->bytes, to_device, 1);
        plain = time_way(t, PLAIN, t->bytes, to_device, times);
        fact_value(f, "GB/s", plain, "%s device, %s, one copy", direction, kind);
        for (uint64_t piece = MIN(LARGEST, t->bytes); piece >= SMALLEST; piece /= 2) {
                unsigned kib = (unsigned)(piece >> 10);

                if (has_batch) {
                        speed = time_way(t, BATCH, piece, to_device, times);
                        fact_value(f, "GB/s", speed, "%s device, %s, %u KiB, batch", direction,
                                kind, kib);
                        if (speed < BATCH_PART * plain)
                                t->cliff = MAX(t->cliff, piece * 2);
                }
                if (f->quick && piece < BATCH_FROM)
                        continue;
                speed = time_way(t, LOOP, piece, to_device, times);
                fact_value(f, "GB/s", speed, "%s device, %s, %u KiB, one by one", direction, kind,
                        kib);
        }
}

/* Huge pages: reserved ones if there are any, else the kernel's for anonymous memory. */
static void *map_huge(uint64_t bytes, const char **ret_kind)
{
        int fd = memfd_create("kvl-gpu-facts", MFD_CLOEXEC | MFD_HUGETLB);
        void *at = MAP_FAILED;
        uintptr_t aligned;

        *ret_kind = "huge memfd";
        if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
                at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        fd_close(fd);
        if (at != MAP_FAILED)
                return at;
        *ret_kind = "anonymous huge";
        at = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                0);
        if (at == MAP_FAILED)
                fact_die("mmap: %s", strerror(errno));
        aligned = round_up_u64((uintptr_t)at, HUGE_BYTES);
        madvise((void *)aligned, bytes, MADV_HUGEPAGE);
        memset((void *)aligned, 1, bytes);
        return (void *)aligned;
}

static void t7_kind(struct fact *f, struct t7 *t, const char *kind)
{
        uint64_t start = now_nsec();

        need(t->g.c->MemHostRegister(t->host, t->bytes, CU_HOST_REGISTER_PORTABLE),
                "cuMemHostRegister");
        fact_value(f, "ms", msec_since(start), "register %llu MiB, %s",
                (unsigned long long)t->bytes >> 20, kind);
        t7_sizes(f, t, kind, true);
        t7_sizes(f, t, kind, false);
        start = now_nsec();
        need(t->g.c->MemHostUnregister(t->host), "cuMemHostUnregister");
        fact_value(f, "ms", msec_since(start), "unregister, %s", kind);
}

static void t7(struct fact *f)
{
        static struct t7 t;
        const char *kind;
        int fd;

        t.bytes = MIN(fact_bytes(f, TOTAL, TOTAL / 4), TOTAL);
        gpu_open(&t.g);
        chunk_create(&t.g, t.bytes, &t.chunk);
        chunk_map(&t.g, &t.chunk);
        t.host = memfd_map(t.bytes, &fd);
        t7_kind(f, &t, "memfd");
        close(fd);
        munmap(t.host, t.bytes);
        t.host = map_huge(t.bytes, &kind);
        t7_kind(f, &t, kind);
        chunk_free(&t.g, &t.chunk);
        gpu_close(&t.g);
        if (!t.g.c->MemcpyBatchAsync2 && !t.g.c->MemcpyBatchAsync) {
                fact_skip(f, "the driver has no cuMemcpyBatchAsync (12.8 has)");
                return;
        }
        fact_value(f, "bytes", (double)t.cliff, "all batches are fast from");
        fact_conclude(f, t.cliff <= BATCH_FROM,
                "batches reach %.0f %% of one copy's speed from pieces of %llu KiB on",
                BATCH_PART * 100, (unsigned long long)(MAX(t.cliff, SMALLEST) >> 10));
}

/* ---- T8 ------------------------------------------------------------------------------------- */

#define COPY_BYTES   (UINT64_C(64) << 20)
#define TOUCH_BYTES  (UINT64_C(256) << 20)
#define MAX_SLOWDOWN 1.1 /* specification: a tenth */
#define MIN_SPEED    0.5 /* of the copies' speed alone; not tuned */

/* At each message: milliseconds that a memory-bound kernel takes, the middle of several. */
static void t8_worker(int sock, const void *arg)
{
        uint64_t bytes = *(const uint64_t *)arg, words = bytes / 8, start;
        struct note note = {0};
        double msec[15];
        struct chunk chunk;
        struct gpu g;

        gpu_open(&g);
        chunk_create(&g, bytes, &chunk);
        chunk_map(&g, &chunk);
        for (;;) {
                note_wait(sock, &note, NULL);
                if (note.number[0] == 0)
                        break;
                for (unsigned i = 0; i < ARRAY_SIZE(msec); ++i) {
                        start = now_nsec();
                        gpu_launch(&g, g.stream, "touch", 1024, 256,
                                (uint64_t[]){chunk.at, words, 40}, 3);
                        gpu_sync(&g);
                        msec[i] = msec_since(start);
                }
                note.value[0] = median_of(msec, ARRAY_SIZE(msec));
                note_send(sock, &note, -1);
        }
        chunk_free(&g, &chunk);
        gpu_close(&g);
}

struct t8 {
        struct gpu g;
        struct chunk chunk;
        void *host;
        struct peer worker;
        double kernel_alone;
};

static void t8_copy(struct t8 *t, bool to_device)
{
        const struct cuda *c = t->g.c;

        if (to_device)
                need(c->MemcpyHtoDAsync(t->chunk.at, t->host, t->chunk.bytes, t->g.stream),
                        "cuMemcpyHtoDAsync");
        else
                need(c->MemcpyDtoHAsync(t->host, t->chunk.at, t->chunk.bytes, t->g.stream),
                        "cuMemcpyDtoHAsync");
        gpu_sync(&t->g);
}

/* Copies until the worker answers, or this long. Copies' GB/s; *ret_kernel: the worker's ms. */
static double t8_measure(struct t8 *t, bool to_device, bool with_worker, double *ret_kernel)
{
        uint64_t start = now_nsec(), bytes = 0;
        struct note note = {.number = {1}};

        if (with_worker)
                note_send(t->worker.sock, &note, -1);
        while (with_worker ? !note_poll(t->worker.sock, &note) : msec_since(start) < 300) {
                t8_copy(t, to_device);
                bytes += t->chunk.bytes;
        }
        *ret_kernel = note.value[0];
        return gb_per_s(bytes, msec_since(start));
}

static bool t8_direction(struct fact *f, struct t8 *t, bool to_device)
{
        const char *direction = to_device ? "to" : "from";
        double none, kernel, alone, beside;

        alone = t8_measure(t, to_device, false, &none);
        beside = t8_measure(t, to_device, true, &kernel);
        fact_value(f, "GB/s", alone, "copies %s the device, alone", direction);
        fact_value(f, "GB/s", beside, "copies %s the device, beside the kernel", direction);
        fact_value(f, "ms", kernel, "kernel beside copies %s the device", direction);
        fact_value(f, "1", kernel / t->kernel_alone, "the kernel's slowdown, copies %s", direction);
        return kernel <= MAX_SLOWDOWN * t->kernel_alone && beside >= MIN_SPEED * alone;
}

static void t8(struct fact *f)
{
        uint64_t touched = fact_bytes(f, TOUCH_BYTES, TOUCH_BYTES);
        struct t8 t = {0};
        struct note note = {.number = {1}};
        bool holds;
        int fd;

        peer_start(&t.worker, "worker", t8_worker, &touched);
        gpu_open(&t.g);
        chunk_create(&t.g, fact_bytes(f, COPY_BYTES, COPY_BYTES), &t.chunk);
        chunk_map(&t.g, &t.chunk);
        t.host = memfd_map(t.chunk.bytes, &fd);
        need(t.g.c->MemHostRegister(t.host, t.chunk.bytes, CU_HOST_REGISTER_PORTABLE),
                "cuMemHostRegister");
        for (unsigned i = 0; i < 2; ++i) { /* the first one warms up */
                note_send(t.worker.sock, &note, -1);
                note_wait(t.worker.sock, &note, NULL);
        }
        t.kernel_alone = note.value[0];
        fact_value(f, "ms", t.kernel_alone, "kernel alone");
        holds = t8_direction(f, &t, false);
        holds &= t8_direction(f, &t, true);
        note_send(t.worker.sock, NULL, -1);
        peer_end(&t.worker);
        need(t.g.c->MemHostUnregister(t.host), "cuMemHostUnregister");
        close(fd);
        chunk_free(&t.g, &t.chunk);
        gpu_close(&t.g);
        fact_conclude(f, holds, "bounds: the kernel %.1f times as slow, the copies half as fast",
                MAX_SLOWDOWN);
}

const struct fact_row facts_copy[] = {
        {"T7", "batches of pieces of 64 KiB and more copy at 80 % of one large copy's speed", t7,
                60, .needs_vmm = true},
        {"T8", "copies of one process slow another's memory-bound kernel by less than a tenth, and keep half their speed",
                t8, 60, .needs_vmm = true, .needs_kernels = true},
        {NULL, NULL, NULL, 0},
};
