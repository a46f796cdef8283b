/*
 * gpu: extents through our backend by size, zeroing and copies against single calls of the driver,
 * and an arena mapped by a new process. $KVL_DEVICE (vmm, cudaipc) and $KVL_DEVICE_UUID choose. On
 * the driver double it runs, and reports no figure.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "gpu/device.h"
#include "tests/bench/bench.h"
#include "tests/gpu/facts.h"
#include "tests/integration/private-daemon.h"

#define MIB           (UINT64_C(1) << 20)
#define MIN_ZERO      0.5                   /* specification: of a plain memset */
#define MIN_COPY      0.9                   /* specification: of one plain copy */
#define MIN_COPY_FROM (UINT64_C(256) << 10) /* specification: from pages of this size on */
#define MAX_MAP_MSEC  100                   /* specification: 16 GiB in a new process */
#define ARENA_EXTENTS 256
#define ARENA_EXTENT  (64 * MIB)
#define SIZE_TIMES    4
#define COPY_TIMES    3
#define MAX_PIECES    16384 /* 256 MiB of 16 KiB */

enum step { CREATE, EXPORT, DESTROY, IMPORT, MAP, UNMAP, N_STEPS };
static const char *const step_names[N_STEPS] = {
        "create", "export", "destroy", "import", "map", "unmap"};
static const unsigned sizes_mib[] = {2, 16, 64, 256, 1024};
static const unsigned pieces_kib[] = {16, 64, 256, 1024, 4096, 16384};

enum { ZERO, PLAIN_ZERO, N_ZEROS };
enum { COPY, PLAIN_COPY, N_COPIES };

struct gpu_bench {
        struct bench_run *run;
        bool is_double;
        struct gpu plain; /* the driver, without our backend */
        struct device *device;
        struct peer importer, *workers; /* workers: one a round, and one to warm up */
        struct series steps[ARRAY_SIZE(sizes_mib)][N_STEPS];
        struct series zero[N_ZEROS];
        struct series copies[ARRAY_SIZE(pieces_kib)][2][N_COPIES];
        struct series open_device, map_arena;
        uint64_t copy_bytes, zero_bytes;
        unsigned n_arena; /* extents */
        struct extent *copied, *zeroed;
        struct chunk plain_chunk;
        void *host;
        int host_fd;
};

/* ---- the other processes -------------------------------------------------------------------- */

static enum device_transport wanted_transport(void)
{
        const char *value = getenv("KVL_DEVICE");

        return value && strcmp(value, "cudaipc") == 0 ? TRANSPORT_CUDAIPC : TRANSPORT_VMM;
}

static struct device *open_device(enum device_side side)
{
        const struct device_options options = {.side = side, .transport = wanted_transport()};
        char why[DEVICE_WHY_BYTES] = "";
        struct device *device;
        int r = cuda_backend.open(getenv("KVL_DEVICE_UUID"), &options, &device, why);

        if (r < 0)
                fact_die("the device can't be opened: %s", why[0] ? why : strerror(-r));
        return device;
}

/* Asserts that a call of the backend succeeds. */
static void ok(struct device *d, int r, const char *what)
{
        if (r < 0)
                fact_die("%s: %s", what, d->why[0] ? d->why : strerror(-r));
}

static void send_handle(int sock, const struct extent_handle *handle)
{
        struct note note = {0};

        memcpy(note.bytes, handle->bytes, sizeof(note.bytes));
        note_send(sock, &note, handle->fd);
}

static void receive_handle(int sock, struct extent_handle *ret)
{
        bool has_fd = wanted_transport() != TRANSPORT_CUDAIPC;
        struct note note;

        ret->fd = -1;
        note_wait(sock, &note, has_fd ? &ret->fd : NULL);
        memcpy(ret->bytes, note.bytes, sizeof(ret->bytes));
}

/* Imports and maps n extents. Answers with the usec of each step and the msec of all. Unmaps. */
static void import_all(struct device *d, int sock, unsigned n, uint64_t bytes, struct note *answer)
{
        struct extent_handle *handles = calloc(n, sizeof(*handles));
        struct extent **extents = calloc(n, sizeof(*extents));
        struct device_arena *arena;
        uint64_t start, reserve_nsec, import_nsec, map_nsec;

        if (!handles || !extents)
                fact_die("out of memory");
        for (unsigned i = 0; i < n; ++i)
                receive_handle(sock, &handles[i]);
        start = now_nsec();
        ok(d, d->ops->arena_reserve(d, n * bytes, 0, &arena), "arena_reserve");
        reserve_nsec = now_nsec();
        for (unsigned i = 0; i < n; ++i)
                ok(d, d->ops->extent_import(d, &handles[i], bytes, &extents[i]), "extent_import");
        import_nsec = now_nsec();
        for (unsigned i = 0; i < n; ++i)
                ok(d, d->ops->arena_map(arena, i * bytes, extents[i], DEVICE_READ_WRITE),
                        "arena_map");
        map_nsec = now_nsec();
        answer->value[0] = (double)(map_nsec - start) / 1e6;
        answer->value[IMPORT] = (double)(import_nsec - reserve_nsec) / 1e3 / n;
        answer->value[MAP] = (double)(map_nsec - import_nsec) / 1e3 / n;
        for (unsigned i = 0; i < n; ++i)
                ok(d, d->ops->arena_unmap(arena, i * bytes, extents[i]), "arena_unmap");
        answer->value[UNMAP] = bench_usec_since(map_nsec) / n;
        for (unsigned i = 0; i < n; ++i)
                d->ops->extent_destroy(extents[i], false);
        d->ops->arena_release(arena);
        free(handles);
        free(extents);
}

/* The worker has its engine's context already. Messages: {extents, bytes}, then the handles. 0
 * extents: the end. */
static void importer(int sock, const void *arg)
{
        uint64_t start;
        struct device *device = NULL;
        struct note note, answer;
        struct gpu engine;

        for (;;) {
                note_wait(sock, &note, NULL);
                if (note.number[0] == 0)
                        break;
                answer = (struct note){0};
                start = now_nsec();
                if (!device) {
                        gpu_open(&engine);
                        device = open_device(DEVICE_USER);
                }
                answer.value[N_STEPS] = (double)(now_nsec() - start) / 1e6;
                import_all(device, sock, (unsigned)note.number[0], note.number[1], &answer);
                note_send(sock, &answer, -1);
        }
        if (device) {
                device_close(device);
                gpu_close(&engine);
        }
}

static void give_extents(struct peer *to, const struct extent_handle *handles, unsigned n,
        uint64_t bytes, struct note *ret_answer)
{
        note_send(to->sock, &(struct note){.number = {n, bytes}}, -1);
        for (unsigned i = 0; i < n; ++i)
                send_handle(to->sock, &handles[i]);
        note_wait(to->sock, ret_answer, NULL);
}

/* ---- extents -------------------------------------------------------------------------------- */

static void time_extent(struct gpu_bench *b, struct series *steps, uint64_t bytes)
{
        struct device *d = b->device;
        struct extent_handle handle;
        struct extent *extent;
        struct note answer;
        uint64_t start = now_nsec();

        ok(d, d->ops->extent_create(d, bytes, &extent), "extent_create");
        series_add(&steps[CREATE], bench_usec_since(start));
        start = now_nsec();
        ok(d, d->ops->extent_export(extent, &handle), "extent_export");
        series_add(&steps[EXPORT], bench_usec_since(start));
        give_extents(&b->importer, &handle, 1, bytes, &answer);
        fd_close(handle.fd);
        for (unsigned step = IMPORT; step < N_STEPS; ++step)
                series_add(&steps[step], answer.value[step]);
        start = now_nsec();
        d->ops->extent_destroy(extent, true);
        series_add(&steps[DESTROY], bench_usec_since(start));
}

static bool has_size(const struct gpu_bench *b, unsigned i)
{
        return sizes_mib[i] <= (b->is_double ? 16 : 1024) &&
               sizes_mib[i] * MIB <= the_device.free_bytes / 8;
}

static void time_extents(struct gpu_bench *b)
{
        for (unsigned i = 0; i < ARRAY_SIZE(sizes_mib); ++i)
                for (unsigned k = 0; has_size(b, i) && k < SIZE_TIMES; ++k)
                        time_extent(b, b->steps[i], sizes_mib[i] * MIB);
}

/* ---- zeroing and copies --------------------------------------------------------------------- */

static void time_zero(struct gpu_bench *b)
{
        struct device *d = b->device;

        for (unsigned i = 0; i < COPY_TIMES; ++i) {
                uint64_t start = now_nsec();

                ok(d, d->ops->extent_zero(b->zeroed, 0, b->zero_bytes), "extent_zero");
                series_add(&b->zero[ZERO], gb_per_s(b->zero_bytes, msec_since(start)));
                start = now_nsec();
                need(b->plain.c->MemsetD8Async(
                             b->plain_chunk.at, 0, b->zero_bytes, b->plain.stream),
                        "cuMemsetD8Async");
                gpu_sync(&b->plain);
                series_add(&b->zero[PLAIN_ZERO], gb_per_s(b->zero_bytes, msec_since(start)));
        }
}

/* Copies pages that are in order on the device, and in reverse on the host. */
static void copy_batch(struct gpu_bench *b, enum device_direction direction, uint64_t piece)
{
        static struct device_copy copies[MAX_PIECES];
        struct device *d = b->device;
        struct device_batch *batch;
        size_t n = b->copy_bytes / piece;
        int r;

        for (size_t i = 0; i < n; ++i)
                copies[i] = (struct device_copy){
                        b->copied, i * piece, (char *)b->host + (n - 1 - i) * piece, piece};
        ok(d, d->ops->batch_start(d, direction, copies, n, &batch), "batch_start");
        while ((r = d->ops->batch_poll(batch)) == -EBUSY)
                ;
        ok(d, r, "batch_poll");
}

static void copy_plain(struct gpu_bench *b, enum device_direction direction)
{
        const struct cuda *c = b->plain.c;

        if (direction == DEVICE_FROM_HOST)
                need(c->MemcpyHtoDAsync(b->plain_chunk.at, b->host, b->copy_bytes, b->plain.stream),
                        "cuMemcpyHtoDAsync");
        else
                need(c->MemcpyDtoHAsync(b->host, b->plain_chunk.at, b->copy_bytes, b->plain.stream),
                        "cuMemcpyDtoHAsync");
        gpu_sync(&b->plain);
}

static void time_copies(struct gpu_bench *b)
{
        for (unsigned i = 0; i < ARRAY_SIZE(pieces_kib); ++i)
                for (unsigned direction = 0; direction < 2; ++direction)
                        for (unsigned k = 0; k < COPY_TIMES; ++k) {
                                struct series *s = b->copies[i][direction];
                                uint64_t start = now_nsec();

                                copy_batch(b, direction, pieces_kib[i] * UINT64_C(1024));
                                series_add(&s[COPY], gb_per_s(b->copy_bytes, msec_since(start)));
                                start = now_nsec();
                                copy_plain(b, direction);
                                series_add(
                                        &s[PLAIN_COPY], gb_per_s(b->copy_bytes, msec_since(start)));
                        }
}

/* ---- an arena in a new process -------------------------------------------------------------- */

/* The extents exist already, as for a new worker. */
static void time_arena(struct gpu_bench *b, struct peer *worker)
{
        struct extent_handle handles[ARENA_EXTENTS];
        struct extent *extents[ARENA_EXTENTS];
        struct device *d = b->device;
        uint64_t bytes = b->is_double ? 2 * MIB : ARENA_EXTENT;
        struct note answer;

        for (unsigned i = 0; i < b->n_arena; ++i) {
                ok(d, d->ops->extent_create(d, bytes, &extents[i]), "extent_create");
                ok(d, d->ops->extent_export(extents[i], &handles[i]), "extent_export");
        }
        give_extents(worker, handles, b->n_arena, bytes, &answer);
        series_add(&b->map_arena, answer.value[0]);
        series_add(&b->open_device, answer.value[N_STEPS]);
        note_send(worker->sock, NULL, -1);
        peer_end(worker);
        for (unsigned i = 0; i < b->n_arena; ++i) {
                fd_close(handles[i].fd);
                d->ops->extent_destroy(extents[i], true);
        }
}

/* ---- the run -------------------------------------------------------------------------------- */

/* Every series of the benchmark. */
static void each_series(struct gpu_bench *b, void (*fn)(struct series *s))
{
        for (unsigned i = 0; i < ARRAY_SIZE(sizes_mib); ++i)
                for (unsigned step = 0; step < N_STEPS; ++step)
                        fn(&b->steps[i][step]);
        for (unsigned i = 0; i < ARRAY_SIZE(pieces_kib); ++i)
                for (unsigned k = 0; k < 2 * N_COPIES; ++k)
                        fn(&b->copies[i][k / N_COPIES][k % N_COPIES]);
        fn(&b->zero[ZERO]);
        fn(&b->zero[PLAIN_ZERO]);
        fn(&b->open_device);
        fn(&b->map_arena);
}

static unsigned init_rounds;

static void init_one(struct series *s)
{
        if (series_init(s, MAX(SIZE_TIMES, COPY_TIMES), init_rounds) < 0)
                fact_die("out of memory");
}

/* A row without figures on the simulated driver. */
static struct bench_result *row(struct gpu_bench *b, const char *unit, struct series *own,
        struct series *baseline, const char *baseline_name, const char *name)
{
        struct bench_result *r = bench_add(b->run, unit, "%s", name);

        if (!b->is_double)
                series_report(r, own, baseline, baseline_name);
        r->p99 = r->baseline_p99 = NAN; /* too few samples */
        return r;
}

static void report_copies(struct gpu_bench *b)
{
        static const char *const directions[] = {
                [DEVICE_TO_HOST] = "to-host", [DEVICE_FROM_HOST] = "from-host"};

        for (unsigned direction = 0; direction < 2; ++direction)
                for (unsigned i = 0; i < ARRAY_SIZE(pieces_kib); ++i) {
                        struct series *s = b->copies[i][direction];
                        char name[BENCH_NAME_MAX + 1];
                        struct bench_result *r;

                        snprintf(name, sizeof(name), "%s-%uKiB", directions[direction],
                                pieces_kib[i]);
                        r = row(b, "GB/s", &s[COPY], &s[PLAIN_COPY], "one copy", name);
                        if (!b->is_double && pieces_kib[i] * UINT64_C(1024) >= MIN_COPY_FROM)
                                r->min_ratio = MIN_COPY;
                }
}

static void report(struct gpu_bench *b)
{
        char name[BENCH_NAME_MAX + 1];
        struct bench_result *r;

        for (unsigned step = 0; step < N_STEPS; ++step)
                for (unsigned i = 0; i < ARRAY_SIZE(sizes_mib); ++i) {
                        snprintf(name, sizeof(name), "%s-%uMiB", step_names[step], sizes_mib[i]);
                        if (has_size(b, i))
                                row(b, "us", &b->steps[i][step], NULL, NULL, name);
                }
        r = row(b, "GB/s", &b->zero[ZERO], &b->zero[PLAIN_ZERO], "memset", "zero");
        if (!b->is_double)
                r->min_ratio = MIN_ZERO;
        report_copies(b);
        row(b, "ms", &b->open_device, NULL, NULL, "open-in-new-process");
        snprintf(name, sizeof(name), "map-%uMiB-in-new-process",
                (unsigned)(b->n_arena * (b->is_double ? 2 * MIB : ARENA_EXTENT) / MIB));
        r = row(b, "ms", &b->map_arena, NULL, NULL, name);
        if (!b->is_double && b->n_arena == ARENA_EXTENTS)
                r->max_value = MAX_MAP_MSEC;
}

static void open_memory(struct gpu_bench *b)
{
        struct device *d = b->device;

        b->copy_bytes = b->is_double ? 16 * MIB : b->run->quick ? 64 * MIB : 256 * MIB;
        b->zero_bytes = b->is_double ? 16 * MIB : b->run->quick ? 64 * MIB : 1024 * MIB;
        b->zero_bytes = MIN(b->zero_bytes, the_device.free_bytes / 16 / (2 * MIB) * (2 * MIB));
        b->n_arena = b->is_double ? 4 : b->run->quick ? 32 : ARENA_EXTENTS;
        b->n_arena = (unsigned)MIN((uint64_t)b->n_arena, the_device.free_bytes / 2 / ARENA_EXTENT);
        chunk_create(&b->plain, MAX(b->copy_bytes, b->zero_bytes), &b->plain_chunk);
        chunk_map(&b->plain, &b->plain_chunk);
        ok(d, d->ops->extent_create(d, b->copy_bytes, &b->copied), "extent_create");
        ok(d, d->ops->extent_create(d, b->zero_bytes, &b->zeroed), "extent_create");
        b->host = memfd_map(b->copy_bytes, &b->host_fd);
        ok(d, d->ops->host_register(d, b->host, b->copy_bytes), "host_register");
}

static void close_memory(struct gpu_bench *b)
{
        struct device *d = b->device;

        ok(d, d->ops->host_unregister(d, b->host, b->copy_bytes), "host_unregister");
        close(b->host_fd);
        d->ops->extent_destroy(b->copied, true);
        d->ops->extent_destroy(b->zeroed, true);
        chunk_free(&b->plain, &b->plain_chunk);
        device_close(d);
        gpu_close(&b->plain);
}

/* -ENODEV: no GPU. The other processes are forked before the driver is loaded. */
static int open_bench(struct gpu_bench *b)
{
        char why[CUDA_WHY_BYTES];
        int r;

        init_rounds = b->run->rounds;
        each_series(b, init_one);
        b->workers = calloc(b->run->rounds + 1, sizeof(*b->workers));
        if (!b->workers)
                return bench_fail("workers", -ENOMEM);
        peer_start(&b->importer, "importer", importer, NULL);
        for (unsigned i = 0; i <= b->run->rounds; ++i)
                peer_start(&b->workers[i], "worker", importer, NULL);
        r = gpu_probe(&the_device, why);
        if (r < 0) {
                fprintf(stderr, "kvlease-bench: gpu: %s\n", why);
                return r;
        }
        b->is_double = the_device.is_double;
        snprintf(b->run->device, sizeof(b->run->device), "%.64s, %s",
                b->is_double ? "fakecuda" : the_device.name,
                wanted_transport() == TRANSPORT_VMM ? "vmm" : "cudaipc");
        gpu_open(&b->plain);
        b->device = open_device(DEVICE_OWNER);
        open_memory(b);
        return 0;
}

static void raise_files(void)
{
        struct rlimit files;

        if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
                files.rlim_cur = files.rlim_max;
                setrlimit(RLIMIT_NOFILE, &files);
        }
}

static int run_gpu(struct bench_run *run)
{
        static struct gpu_bench b;
        int r;

        b.run = run;
        raise_files();
        r = open_bench(&b);
        if (r == 0) {
                for (unsigned i = 0; i <= run->rounds; ++i) {
                        time_extents(&b);
                        time_zero(&b);
                        time_copies(&b);
                        time_arena(&b, &b.workers[i]);
                        each_series(&b, i == 0 ? series_drop_round : series_close_round);
                }
                note_send(b.importer.sock, NULL, -1);
                peer_end(&b.importer);
                report(&b);
                close_memory(&b);
        } else {
                peer_kill(&b.importer);
                for (unsigned i = 0; i <= run->rounds; ++i)
                        peer_kill(&b.workers[i]);
        }
        each_series(&b, series_deinit);
        free(b.workers);
        return r;
}

const struct bench bench_gpu = {
        "gpu", "memory of a GPU: extents, zeroing, copies, an arena mapped", 5, run_gpu};
