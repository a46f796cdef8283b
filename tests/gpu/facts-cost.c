/* Costs of memory: T6, T13, T19. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/gpu/facts.h"
#include "tests/integration/private-daemon.h"

#define MAX_CHUNKS 2240 /* 64 MiB extents of 140 GiB */

/* ---- T6 ------------------------------------------------------------------------------------- */

enum step {
        CREATE,
        EXPORT,
        IMPORT,
        MAP,
        UNMAP,
        RELEASE,
        OWNER_MAP,
        OWNER_UNMAP,
        OWNER_RELEASE,
        N_STEPS
};
static const char *const step_names[] = {"create", "export", "import", "map", "unmap", "release",
        "owner's map", "owner's unmap", "owner's release"};

/* Sizes, and how many of each are tried; free memory bounds their sum. */
struct t6_size {
        unsigned mib, n;
};
static const struct t6_size t6_sizes[] = {
        {2, MAX_CHUNKS}, {16, 512}, {64, 256}, {256, 64}, {1024, 16}};

struct t6 {
        struct chunk chunks[MAX_CHUNKS];
        int fds[MAX_CHUNKS];
        double usec[MAX_CHUNKS];
};

static double usec_since(uint64_t start)
{
        return msec_since(start) * 1000;
}

/* Maps all into one range of addresses, unmaps all. Medians into usec[2]. */
static void map_all(struct gpu *g, struct t6 *t, unsigned n, double *usec)
{
        uint64_t bytes = t->chunks[0].bytes, start;
        cu_deviceptr base;

        need(g->c->MemAddressReserve(&base, bytes * n, 0, 0, 0), "cuMemAddressReserve");
        for (unsigned i = 0; i < n; ++i) {
                start = now_nsec();
                chunk_map_at(g, &t->chunks[i], base + i * bytes);
                t->usec[i] = usec_since(start);
        }
        usec[0] = median_of(t->usec, n);
        for (unsigned i = 0; i < n; ++i) {
                start = now_nsec();
                need(g->c->MemUnmap(t->chunks[i].at, bytes), "cuMemUnmap");
                t->usec[i] = usec_since(start);
        }
        usec[1] = median_of(t->usec, n);
        need(g->c->MemAddressFree(base, bytes * n), "cuMemAddressFree");
}

static double release_all(struct gpu *g, struct t6 *t, unsigned n)
{
        for (unsigned i = 0; i < n; ++i) {
                uint64_t start = now_nsec();

                need(g->c->MemRelease(t->chunks[i].handle), "cuMemRelease");
                t->usec[i] = usec_since(start);
        }
        return median_of(t->usec, n);
}

/* A message with n and bytes, then n descriptors; answers with its figures. n 0: the end. */
static void t6_importer(int sock, const void *arg)
{
        static struct t6 t;
        struct note note;
        struct gpu g;
        unsigned n;

        gpu_open(&g);
        for (;;) {
                note_wait(sock, &note, NULL);
                n = (unsigned)note.number[0];
                if (n == 0)
                        break;
                for (unsigned i = 0; i < n; ++i)
                        note_wait(sock, NULL, &t.fds[i]);
                for (unsigned i = 0; i < n; ++i) {
                        uint64_t start = now_nsec();

                        chunk_import(&g, t.fds[i], note.number[1], &t.chunks[i]);
                        t.usec[i] = usec_since(start);
                }
                note = (struct note){.value[IMPORT] = median_of(t.usec, n)};
                map_all(&g, &t, n, &note.value[MAP]);
                note.value[RELEASE] = release_all(&g, &t, n);
                note_send(sock, &note, -1);
        }
        gpu_close(&g);
}

static void t6_size(struct gpu *g, struct t6 *t, int sock, uint64_t bytes, unsigned n, double *usec)
{
        struct note note = {.number = {n, bytes}};
        uint64_t start;

        note_send(sock, &note, -1);
        for (unsigned i = 0; i < n; ++i) {
                start = now_nsec();
                chunk_create(g, bytes, &t->chunks[i]);
                t->usec[i] = usec_since(start);
        }
        usec[CREATE] = median_of(t->usec, n);
        for (unsigned i = 0; i < n; ++i) {
                start = now_nsec();
                t->fds[i] = chunk_export(g, &t->chunks[i]);
                t->usec[i] = usec_since(start);
        }
        usec[EXPORT] = median_of(t->usec, n);
        for (unsigned i = 0; i < n; ++i) {
                note_send(sock, NULL, t->fds[i]);
                close(t->fds[i]);
        }
        note_wait(sock, &note, NULL);
        memcpy(&usec[IMPORT], &note.value[IMPORT], (RELEASE - IMPORT + 1) * sizeof(*usec));
        map_all(g, t, n, &usec[OWNER_MAP]);
        usec[OWNER_RELEASE] = release_all(g, t, n);
}

static unsigned t6_count(const struct fact *f, const struct t6_size *s)
{
        uint64_t bytes = (uint64_t)s->mib << 20;
        uint64_t room = the_device.free_bytes / 10 * 7 / bytes;
        unsigned n = f->quick ? 8 : s->n;
        struct rlimit files;

        if (the_device.is_double)
                return bytes <= UINT64_C(16) << 20 ? 2 : 0;
        if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < n + 64)
                n = files.rlim_cur > 64 ? (unsigned)files.rlim_cur - 64 : 0;
        return (unsigned)MIN(room, (uint64_t)n);
}

static void t6(struct fact *f)
{
        double usec[N_STEPS] = {0}, whole = 0, smallest = 0;
        static struct t6 t;
        struct rlimit files;
        struct peer importer;
        struct gpu g;

        if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
                files.rlim_cur = files.rlim_max;
                setrlimit(RLIMIT_NOFILE, &files);
        }
        peer_start(&importer, "importer", t6_importer, NULL);
        gpu_open(&g);
        for (unsigned i = 0; i < ARRAY_SIZE(t6_sizes); ++i) {
                const struct t6_size *s = &t6_sizes[i];
                unsigned n = t6_count(f, s);

                if (n == 0)
                        continue;
                t6_size(&g, &t, importer.sock, (uint64_t)s->mib << 20, n, usec);
                fact_value(f, "1", n, "%u MiB: number", s->mib);
                whole = 0;
                for (unsigned step = 0; step < N_STEPS; ++step) {
                        fact_value(f, "us", usec[step], "%u MiB: %s", s->mib, step_names[step]);
                        whole += step < OWNER_MAP ? usec[step] : 0;
                }
                smallest = i == 0 ? usec[MAP] : smallest;
        }
        note_send(importer.sock, NULL, -1);
        peer_end(&importer);
        gpu_close(&g);
        fact_value(f, "us", whole, "the largest: all steps of one");
        fact_conclude(f, usec[MAP] < 1000,
                "mapping one takes %.0f us at 2 MiB, %.0f us at the largest size tried", smallest,
                usec[MAP]);
}

/* ---- T6b ------------------------------------------------------------------------------------ */

#define BUSY_MSEC    300
#define BESIDE       16
#define MUST_BE_MSEC 100 /* a third of the kernel: it wasn't waited for */

struct beside {
        double map_msec, unmap_msec, create_msec, release_msec; /* the longest of all */
        double kernel_msec;
};

/* Creates, maps, unmaps, releases while a kernel runs (or none). */
static void t6b_round(struct gpu *g, bool is_busy, uint64_t bytes, struct beside *ret)
{
        double msec[4][BESIDE];
        struct chunk chunk;
        uint64_t start, kernel;

        kernel = now_nsec();
        if (is_busy)
                gpu_launch(
                        g, g->stream, "busy", 1, 32, &(uint64_t){BUSY_MSEC * UINT64_C(1000000)}, 1);
        for (unsigned i = 0; i < BESIDE; ++i) {
                start = now_nsec();
                chunk_create(g, bytes, &chunk);
                msec[0][i] = msec_since(start);
                start = now_nsec();
                chunk_map(g, &chunk);
                msec[1][i] = msec_since(start);
                start = now_nsec();
                chunk_unmap(g, &chunk);
                msec[2][i] = msec_since(start);
                start = now_nsec();
                chunk_free(g, &chunk);
                msec[3][i] = msec_since(start);
        }
        gpu_sync(g);
        *ret = (struct beside){max_of(msec[1], BESIDE), max_of(msec[2], BESIDE),
                max_of(msec[0], BESIDE), max_of(msec[3], BESIDE), msec_since(kernel)};
}

static void t6b(struct fact *f)
{
        uint64_t bytes = fact_bytes(f, UINT64_C(64) << 20, UINT64_C(64) << 20);
        struct beside idle, busy;
        struct gpu g;
        double longest;

        gpu_open(&g);
        gpu_launch(&g, g.stream, "busy", 1, 32, &(uint64_t){1000}, 1);
        gpu_sync(&g);
        t6b_round(&g, false, bytes, &idle);
        t6b_round(&g, true, bytes, &busy);
        gpu_close(&g);
        fact_value(f, "ms", idle.create_msec, "create, longest, idle");
        fact_value(f, "ms", busy.create_msec, "create, longest, beside a kernel");
        fact_value(f, "ms", idle.map_msec, "map, longest, idle");
        fact_value(f, "ms", busy.map_msec, "map, longest, beside a kernel");
        fact_value(f, "ms", idle.unmap_msec, "unmap, longest, idle");
        fact_value(f, "ms", busy.unmap_msec, "unmap, longest, beside a kernel");
        fact_value(f, "ms", idle.release_msec, "release, longest, idle");
        fact_value(f, "ms", busy.release_msec, "release, longest, beside a kernel");
        fact_value(f, "ms", busy.kernel_msec, "the kernel of %d ms", BUSY_MSEC);
        longest = max_of(
                (double[]){busy.create_msec, busy.map_msec, busy.unmap_msec, busy.release_msec}, 4);
        fact_conclude(f, longest < MUST_BE_MSEC,
                "beside a kernel of %d ms the longest of %d calls each took %.3f ms", BUSY_MSEC,
                BESIDE, longest);
}

/* ---- T13 ------------------------------------------------------------------------------------ */

#define RESIDUE 0x5a

static void t13_leaver(int sock, const void *arg)
{
        uint64_t bytes = *(const uint64_t *)arg;
        struct chunk chunk;
        struct gpu g;

        gpu_open(&g);
        chunk_create(&g, bytes, &chunk);
        chunk_map(&g, &chunk);
        need(g.c->MemsetD8Async(chunk.at, RESIDUE, bytes, g.stream), "cuMemsetD8Async");
        gpu_sync(&g);
        chunk_free(&g, &chunk);
        gpu_close(&g);
}

/* Words of fresh memory that aren't zero; *ret_residue: those with the residue. */
static uint64_t count_nonzero(struct gpu *g, uint64_t bytes, uint64_t *ret_residue)
{
        uint64_t step = UINT64_C(2) << 20, n_nonzero = 0, *words = malloc(step), residue;
        struct chunk chunk;

        if (!words)
                fact_die("out of memory");
        memset(&residue, RESIDUE, sizeof(residue));
        *ret_residue = 0;
        chunk_create(g, bytes, &chunk);
        chunk_map(g, &chunk);
        for (uint64_t at = 0; at < bytes; at += step) {
                need(g->c->MemcpyDtoHAsync(words, chunk.at + at, step, g->stream),
                        "cuMemcpyDtoHAsync");
                gpu_sync(g);
                for (uint64_t i = 0; i < step / 8; ++i) {
                        n_nonzero += words[i] != 0;
                        *ret_residue += words[i] == residue;
                }
        }
        chunk_free(g, &chunk);
        free(words);
        return n_nonzero;
}

static double scrub_speed(struct gpu *g, struct chunk *chunk)
{
        double speeds[5];

        for (unsigned i = 0; i < ARRAY_SIZE(speeds); ++i) {
                uint64_t start = now_nsec();

                need(g->c->MemsetD8Async(chunk->at, 0, chunk->bytes, g->stream), "cuMemsetD8Async");
                gpu_sync(g);
                speeds[i] = gb_per_s(chunk->bytes, msec_since(start));
        }
        return median_of(speeds, ARRAY_SIZE(speeds));
}

static void t13(struct fact *f)
{
        uint64_t bytes = fact_bytes(f, UINT64_C(1) << 30, UINT64_C(256) << 20), n[2], residue[2];
        struct chunk chunk;
        struct peer leaver;
        struct gpu g;

        peer_start(&leaver, "other process", t13_leaver, &bytes);
        peer_end(&leaver);
        gpu_open(&g);
        n[0] = count_nonzero(&g, bytes, &residue[0]);
        chunk_create(&g, bytes, &chunk);
        chunk_map(&g, &chunk);
        fact_value(f, "GB/s", scrub_speed(&g, &chunk), "memset of %llu MiB",
                (unsigned long long)bytes >> 20);
        need(g.c->MemsetD8Async(chunk.at, RESIDUE, bytes, g.stream), "cuMemsetD8Async");
        gpu_sync(&g);
        chunk_free(&g, &chunk);
        n[1] = count_nonzero(&g, bytes, &residue[1]);
        gpu_close(&g);
        for (unsigned i = 0; i < 2; ++i) {
                const char *whose = i ? "this process" : "another process";

                fact_value(f, "words", (double)n[i], "not zero, after %s", whose);
                fact_value(f, "words", (double)residue[i], "left by %s", whose);
        }
        fact_conclude(f, n[0] + n[1] > 0,
                "of %llu words in fresh memory, %llu weren't zero after another process had used it, %llu after this one",
                (unsigned long long)bytes / 8, (unsigned long long)n[0], (unsigned long long)n[1]);
}

/* ---- T19 ------------------------------------------------------------------------------------ */

enum { T19_INIT, T19_CREATE, T19_CONTEXT, T19_STREAM, T19_MEMSET, T19_STEPS };
static const char *const t19_names[] = {"cuInit", "an extent of 2 MiB, without a context",
        "a primary context", "a stream", "a first memset"};

/* Takes one step at each message. */
static void t19_stepper(int sock, const void *arg)
{
        struct note note = {0};
        struct chunk chunk;
        struct gpu g, opened;
        cu_context none = NULL;
        int fd = -1;

        note_wait(sock, NULL, NULL);
        gpu_find(&g);
        note_send(sock, NULL, -1);
        note_wait(sock, NULL, NULL);
        chunk_create(&g, MAX(the_device.granularity_bytes, UINT64_C(2) << 20), &chunk);
        fd = chunk_export(&g, &chunk);
        need(g.c->CtxGetCurrent(&none), "cuCtxGetCurrent");
        note.number[0] = none == NULL;
        note_send(sock, &note, -1);
        note_wait(sock, NULL, NULL);
        need(g.c->DevicePrimaryCtxRetain(&g.context, g.device), "cuDevicePrimaryCtxRetain");
        note_send(sock, NULL, -1);
        note_wait(sock, NULL, NULL);
        gpu_open(&opened);
        note_send(sock, NULL, -1);
        note_wait(sock, NULL, NULL);
        chunk_map(&opened, &chunk);
        need(g.c->MemsetD8Async(chunk.at, 0, chunk.bytes, opened.stream), "cuMemsetD8Async");
        gpu_sync(&opened);
        note_send(sock, NULL, -1);
        note_wait(sock, NULL, NULL);
        close(fd);
        chunk_free(&opened, &chunk);
        gpu_close(&opened);
        need(g.c->DevicePrimaryCtxRelease(g.device), "cuDevicePrimaryCtxRelease");
}

static void t19(struct fact *f)
{
        struct peer stepper;
        struct note note;
        bool has_none = false;
        uint64_t before;
        struct gpu g;

        peer_start(&stepper, "other process", t19_stepper, NULL);
        gpu_open(&g);
        for (unsigned step = 0; step < T19_STEPS; ++step) {
                before = gpu_free_bytes(&g);
                note_send(stepper.sock, NULL, -1);
                note_wait(stepper.sock, &note, NULL);
                if (step == T19_CREATE)
                        has_none = note.number[0];
                sleep_msec(f->quick ? 1 : 50);
                fact_value(f, "bytes", (double)before - (double)gpu_free_bytes(&g),
                        "device memory: %s", t19_names[step]);
        }
        note_send(stepper.sock, NULL, -1);
        peer_end(&stepper);
        gpu_close(&g);
        fact_conclude(f, has_none,
                "cuMemCreate and cuMemExportToShareableHandle worked after cuInit alone");
}

const struct fact_row facts_cost[] = {
        {"T6", "mapping an extent takes less than 1 ms, whatever its size", t6, 90,
                .needs_vmm = true},
        {"T6b", "creating, mapping, unmapping and releasing don't wait for running kernels", t6b,
                30, .needs_vmm = true, .needs_kernels = true},
        {"T13", "fresh memory isn't cleared", t13, 40, .needs_vmm = true},
        {"T19", "extents are created and exported without a context", t19, 30, .needs_vmm = true},
        {NULL, NULL, NULL, 0},
};
