/* Lifetime of memory, and writes after a process's death: T1, T3, T4, T5, T20. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/gpu/facts.h"
#include "tests/integration/private-daemon.h"

#define BUSY_NSEC     UINT64_C(20000000000)
#define SETTLE_MSEC   1000 /* for a driver that gives memory back late; not tuned */
#define SLACK         8    /* an eighth of the memory may come and go beside it; not tuned */
#define SEED          7
#define UNMAPPED_ADDR UINT64_C(0x10000) /* no driver hands out the first pages */

/* ---- T1 ------------------------------------------------------------------------------------- */

struct t1 {
        bool is_killed;
        uint64_t bytes;
};

static void t1_exporter(int sock, const void *arg)
{
        const struct t1 *t = arg;
        struct chunk chunk;
        struct gpu g;
        int fd;

        gpu_open(&g);
        chunk_create(&g, t->bytes, &chunk);
        chunk_map(&g, &chunk);
        pattern_put(&g, chunk.at, t->bytes, SEED + t->is_killed);
        fd = chunk_export(&g, &chunk);
        if (t->is_killed && gpu_has_kernels())
                gpu_launch(&g, g.stream, "busy", 1, 32, &(uint64_t){BUSY_NSEC}, 1);
        note_send(sock, NULL, fd);
        close(fd);
        if (t->is_killed)
                pause();
        chunk_free(&g, &chunk);
        gpu_close(&g);
}

static void verifier(int sock, const void *arg)
{
        uint64_t bytes = *(const uint64_t *)arg;
        struct note note;
        struct chunk chunk;
        struct gpu g;
        int fd;

        note_wait(sock, &note, &fd);
        gpu_open(&g);
        chunk_import(&g, fd, bytes, &chunk);
        chunk_map(&g, &chunk);
        note.number[0] = pattern_differs(&g, chunk.at, bytes, note.number[0]);
        chunk_free(&g, &chunk);
        gpu_close(&g);
        note_send(sock, &note, -1);
}

/* This process keeps the descriptor, and never loads the driver. */
static uint64_t t1_round(struct fact *f, const struct t1 *t)
{
        struct peer exporter, reader;
        struct note note;
        int fd;

        peer_start(&exporter, "exporter", t1_exporter, t);
        note_wait(exporter.sock, NULL, &fd);
        if (t->is_killed)
                fact_value(f, "ms", peer_kill(&exporter), "SIGKILL until reaped");
        else
                peer_end(&exporter);
        sleep_msec(SETTLE_MSEC);
        peer_start(&reader, "reader", verifier, &t->bytes);
        note = (struct note){.number = {SEED + t->is_killed}};
        note_send(reader.sock, &note, fd);
        close(fd);
        note_wait(reader.sock, &note, NULL);
        peer_end(&reader);
        fact_value(f, "words", (double)note.number[0], "differ after %s",
                t->is_killed ? "SIGKILL" : "exit");
        return note.number[0];
}

static void t1(struct fact *f)
{
        struct t1 t = {.bytes = fact_bytes(f, UINT64_C(1) << 30, UINT64_C(64) << 20)};
        uint64_t n_differ;

        fact_value(f, "bytes", (double)t.bytes, "extent");
        n_differ = t1_round(f, &t);
        t.is_killed = true;
        n_differ += t1_round(f, &t);
        fact_conclude(f, n_differ == 0,
                "%llu words differ after the exporter was gone and only a descriptor was left%s",
                (unsigned long long)n_differ,
                gpu_has_kernels() ? "; it was killed with a kernel running" : "");
}

/* ---- T3 ------------------------------------------------------------------------------------- */

#define T3_ROUNDS 6 /* half with a kernel that writes, half with memsets */

struct t3 {
        bool with_kernel;
        uint64_t bytes;
};

static void t3_writer(int sock, const void *arg)
{
        const struct t3 *t = arg;
        struct chunk chunk;
        struct gpu g;
        int fd;

        note_wait(sock, NULL, &fd);
        gpu_open(&g);
        chunk_import(&g, fd, t->bytes, &chunk);
        chunk_map(&g, &chunk);
        if (t->with_kernel) {
                gpu_launch(&g, g.stream, "stamp", 1, 1, (uint64_t[]){chunk.at, BUSY_NSEC}, 2);
                note_send(sock, NULL, -1);
                pause();
        }
        for (unsigned i = 1;; ++i) {
                need(g.c->MemsetD8Async(chunk.at, (unsigned char)i, t->bytes, g.stream),
                        "cuMemsetD8Async");
                if (i % 64 == 0)
                        gpu_sync(&g);
                if (i == 64)
                        note_send(sock, NULL, -1);
        }
}

static void wait_exit(pid_t pid)
{
        struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};

        if (p.fd < 0 || poll(&p, 1, 60000) != 1)
                fact_die("a killed process doesn't end");
        close(p.fd);
}

/* How long after the writer's pidfd became readable its memory still changed; 0: it didn't. */
static double t3_round(struct fact *f, struct gpu *g, struct peer *writer, const struct t3 *t)
{
        struct chunk chunk;
        uint64_t start, last, word;
        double changed = 0;
        int fd;

        chunk_create(g, t->bytes, &chunk);
        chunk_map(g, &chunk);
        fd = chunk_export(g, &chunk);
        note_send(writer->sock, NULL, fd);
        close(fd);
        note_wait(writer->sock, NULL, NULL);
        last = read_word(g, chunk.at);
        for (start = now_nsec(); read_word(g, chunk.at) == last;)
                if (msec_since(start) > 10000)
                        fact_die("the writer writes nothing");
        kill(writer->pid, SIGKILL);
        wait_exit(writer->pid);
        start = now_nsec();
        last = read_word(g, chunk.at);
        while (msec_since(start) < (f->quick ? 200 : 2000)) {
                word = read_word(g, chunk.at);
                if (word != last)
                        changed = msec_since(start);
                last = word;
        }
        peer_kill(writer);
        chunk_free(g, &chunk);
        return changed;
}

static void t3(struct fact *f)
{
        uint64_t bytes = fact_bytes(f, UINT64_C(64) << 20, UINT64_C(64) << 20);
        unsigned n = f->quick ? 2 : T3_ROUNDS;
        double latest[2] = {0, 0}, changed;
        struct peer writers[T3_ROUNDS];
        struct t3 rounds[T3_ROUNDS];
        struct gpu g;

        for (unsigned i = 0; i < n; ++i) {
                rounds[i] = (struct t3){gpu_has_kernels() && i % 2 == 0, bytes};
                peer_start(&writers[i], "writer", t3_writer, &rounds[i]);
        }
        gpu_open(&g);
        for (unsigned i = 0; i < n; ++i) {
                changed = t3_round(f, &g, &writers[i], &rounds[i]);
                latest[rounds[i].with_kernel] = MAX(latest[rounds[i].with_kernel], changed);
        }
        gpu_close(&g);
        fact_value(f, "ms", latest[0], "last change after exit, memset");
        if (gpu_has_kernels())
                fact_value(f, "ms", latest[1], "last change after exit, kernel");
        fact_conclude(f, latest[0] <= 0 && latest[1] <= 0,
                "in %u rounds the last change came %.3f ms after the pidfd was readable%s", n,
                MAX(latest[0], latest[1]), gpu_has_kernels() ? "" : " (memsets only)");
}

/* ---- T4 ------------------------------------------------------------------------------------- */

/* Maps, then frees its own handle and descriptor; unmaps on a message. */
static void t4_importer(int sock, const void *arg)
{
        uint64_t bytes = *(const uint64_t *)arg;
        struct chunk chunk;
        struct gpu g;
        int fd;

        gpu_open(&g);
        note_send(sock, NULL, -1);
        for (;;) {
                note_wait(sock, NULL, &fd);
                chunk_import(&g, fd, bytes, &chunk);
                chunk_map(&g, &chunk);
                need(g.c->MemRelease(chunk.handle), "cuMemRelease");
                note_send(sock, NULL, -1);
                note_wait(sock, NULL, NULL);
                note_send(sock,
                        &(struct note){.number = {pattern_differs(&g, chunk.at, bytes, SEED)}}, -1);
                note_wait(sock, NULL, NULL);
                chunk_unmap(&g, &chunk);
                note_send(sock, NULL, -1);
        }
}

/* Milliseconds until this much is free; -1: not in five seconds. */
static double wait_free(struct gpu *g, uint64_t bytes)
{
        uint64_t start = now_nsec();

        while (gpu_free_bytes(g) < bytes) {
                if (msec_since(start) > 5000)
                        return -1;
                sleep_msec(1);
        }
        return msec_since(start);
}

/* True where the memory stayed while mapped, intact, and came back with the end of the mapping. */
static bool t4_round(struct fact *f, struct gpu *g, struct peer *p, uint64_t bytes, bool is_killed)
{
        const char *how = is_killed ? "SIGKILL" : "unmap";
        uint64_t before = gpu_free_bytes(g), dropped;
        struct chunk chunk;
        struct note note;
        double back;
        int fd;

        chunk_create(g, bytes, &chunk);
        chunk_map(g, &chunk);
        pattern_put(g, chunk.at, bytes, SEED);
        fd = chunk_export(g, &chunk);
        note_send(p->sock, NULL, fd);
        close(fd);
        note_wait(p->sock, NULL, NULL);
        chunk_free(g, &chunk);
        sleep_msec(f->quick ? 20 : SETTLE_MSEC);
        dropped = gpu_free_bytes(g);
        note_send(p->sock, NULL, -1);
        note_wait(p->sock, &note, NULL);
        if (is_killed) {
                peer_kill(p);
        } else {
                note_send(p->sock, NULL, -1);
                note_wait(p->sock, NULL, NULL);
        }
        back = wait_free(g, before - MIN(before, bytes / SLACK));
        fact_value(f, "bytes", (double)before - (double)dropped, "held after the drop, %s", how);
        fact_value(f, "words", (double)note.number[0], "differ after the drop, %s", how);
        fact_value(f, "ms", back, "until it was free, %s", how);
        return before - dropped + bytes / SLACK >= bytes && note.number[0] == 0 && back >= 0;
}

static void t4(struct fact *f)
{
        uint64_t bytes = fact_bytes(f, UINT64_C(1) << 30, UINT64_C(256) << 20);
        struct peer importer;
        struct gpu g;
        bool holds;

        peer_start(&importer, "importer", t4_importer, &bytes);
        gpu_open(&g);
        note_wait(importer.sock, NULL, NULL);
        holds = t4_round(f, &g, &importer, bytes, false);
        holds &= t4_round(f, &g, &importer, bytes, true);
        gpu_close(&g);
        fact_conclude(f, holds, "of %llu MiB; others on the device would disturb this",
                (unsigned long long)bytes >> 20);
}

/* ---- T5 ------------------------------------------------------------------------------------- */

static void t5_culprit(int sock, const void *arg)
{
        struct note note = {0};
        struct chunk chunk;
        struct gpu g;
        int fd;

        note_wait(sock, NULL, &fd);
        gpu_open(&g);
        chunk_import(&g, fd, *(const uint64_t *)arg, &chunk);
        chunk_map(&g, &chunk);
        gpu_launch(&g, g.stream, "poke", 1, 1, &(uint64_t){UNMAPPED_ADDR}, 1);
        note.value[0] = g.c->StreamSynchronize(g.stream);
        note.value[1] = g.c->MemsetD8Async(chunk.at, 1, chunk.bytes, g.stream);
        note.value[2] = g.c->MemUnmap(chunk.at, chunk.bytes);
        note.value[3] = g.c->MemRelease(chunk.handle);
        note.value[4] = g.c->StreamDestroy(g.stream);
        note.value[5] = g.c->DevicePrimaryCtxRelease(g.device);
        note_send(sock, &note, -1);
        pause();
}

/* Works on the same memory before and after. */
static void t5_bystander(int sock, const void *arg)
{
        uint64_t bytes = *(const uint64_t *)arg;
        struct chunk chunk;
        struct gpu g;
        int fd;

        note_wait(sock, NULL, &fd);
        gpu_open(&g);
        chunk_import(&g, fd, bytes, &chunk);
        chunk_map(&g, &chunk);
        note_send(sock, NULL, -1);
        note_wait(sock, NULL, NULL);
        note_send(sock, &(struct note){.number = {pattern_differs(&g, chunk.at, bytes, SEED)}}, -1);
        chunk_free(&g, &chunk);
        gpu_close(&g);
}

static bool has_mps(void)
{
        const char *pipe = getenv("CUDA_MPS_PIPE_DIRECTORY");
        struct stat st;

        return stat(pipe ? pipe : "/tmp/nvidia-mps", &st) == 0;
}

static void t5(struct fact *f)
{
        static const char *const names[] = {"the kernel", "cuMemsetD8Async", "cuMemUnmap",
                "cuMemRelease", "cuStreamDestroy", "cuDevicePrimaryCtxRelease"};
        uint64_t bytes = fact_bytes(f, UINT64_C(64) << 20, UINT64_C(8) << 20), n_differ;
        struct peer culprit, bystander;
        struct chunk chunk;
        struct note note;
        struct gpu g;
        int fd;

        peer_start(&culprit, "culprit", t5_culprit, &bytes);
        peer_start(&bystander, "bystander", t5_bystander, &bytes);
        gpu_open(&g);
        chunk_create(&g, bytes, &chunk);
        chunk_map(&g, &chunk);
        pattern_put(&g, chunk.at, bytes, SEED);
        fd = chunk_export(&g, &chunk);
        note_send(bystander.sock, NULL, fd);
        note_wait(bystander.sock, NULL, NULL);
        note_send(culprit.sock, NULL, fd);
        close(fd);
        note_wait(culprit.sock, &note, NULL);
        for (unsigned i = 0; i < ARRAY_SIZE(names); ++i)
                fact_value(f, "CUresult", note.value[i], "culprit: %s", names[i]);
        n_differ = pattern_differs(&g, chunk.at, bytes, SEED);
        note_send(bystander.sock, NULL, -1);
        note_wait(bystander.sock, &note, NULL);
        n_differ += note.number[0];
        peer_end(&bystander);
        fact_value(f, "ms", peer_kill(&culprit), "culprit: SIGKILL until reaped");
        chunk_free(&g, &chunk);
        gpu_close(&g);
        fact_conclude(f, n_differ == 0,
                "owner and another client worked on with the same memory, %s MPS",
                has_mps() ? "with" : "without");
}

/* ---- T20 ------------------------------------------------------------------------------------ */

static void t20_vmm_importer(int sock, const void *arg)
{
        uint64_t bytes = *(const uint64_t *)arg;
        struct chunk chunks[2];
        struct note note = {0};
        struct gpu g;
        int fd;

        note_wait(sock, NULL, &fd);
        gpu_open(&g);
        chunk_import(&g, dup(fd), bytes, &chunks[0]);
        chunk_import(&g, fd, bytes, &chunks[1]);
        chunk_map(&g, &chunks[0]);
        chunk_map(&g, &chunks[1]);
        pattern_put(&g, chunks[0].at, bytes, SEED);
        note.number[0] = pattern_differs(&g, chunks[1].at, bytes, SEED);
        note.number[1] = chunks[0].handle == chunks[1].handle;
        chunk_free(&g, &chunks[0]);
        note.number[0] += pattern_differs(&g, chunks[1].at, bytes, SEED);
        chunk_free(&g, &chunks[1]);
        gpu_close(&g);
        note_send(sock, &note, -1);
}

static void t20_vmm(struct fact *f)
{
        uint64_t bytes = fact_bytes(f, UINT64_C(2) << 20, UINT64_C(2) << 20), n_differ;
        struct chunk chunk, same;
        struct peer importer;
        struct note note;
        struct gpu g;
        int fd;

        peer_start(&importer, "importer", t20_vmm_importer, &bytes);
        gpu_open(&g);
        chunk_create(&g, bytes, &chunk);
        chunk_map(&g, &chunk);
        fd = chunk_export(&g, &chunk);
        note_send(importer.sock, NULL, fd);
        note_wait(importer.sock, &note, NULL);
        peer_end(&importer);
        n_differ = note.number[0];
        fact_value(f, "1", (double)note.number[1], "two imports give one handle");
        chunk_import(&g, fd, bytes, &same);
        chunk_map(&g, &same);
        n_differ += pattern_differs(&g, same.at, bytes, SEED);
        chunk_free(&g, &same);
        chunk_free(&g, &chunk);
        gpu_close(&g);
        fact_value(f, "words", (double)n_differ, "differ");
        fact_conclude(f, n_differ == 0, "all imports were of the same memory");
}

static void t20_ipc_importer(int sock, const void *arg)
{
        uint64_t bytes = *(const uint64_t *)arg;
        cu_deviceptr first = 0, second = 0;
        cu_ipc_mem_handle handle;
        struct note note;
        struct gpu g;

        note_wait(sock, &note, NULL);
        memcpy(&handle, note.bytes, sizeof(handle));
        note = (struct note){0};
        gpu_open(&g);
        need(g.c->IpcOpenMemHandle(&first, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS),
                "cuIpcOpenMemHandle");
        note.number[0] = pattern_differs(&g, first, bytes, SEED);
        /* The documentation says that it is counted. */
        note.value[0] = g.c->IpcOpenMemHandle(&second, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS);
        note.number[1] = first == second;
        if (note.value[0] <= 0)
                note.value[1] = g.c->IpcCloseMemHandle(second);
        note.number[0] += pattern_differs(&g, first, bytes, SEED);
        need(g.c->IpcCloseMemHandle(first), "cuIpcCloseMemHandle");
        gpu_close(&g);
        note_send(sock, &note, -1);
}

static void t20_ipc(struct fact *f)
{
        uint64_t bytes = fact_bytes(f, UINT64_C(64) << 20, UINT64_C(2) << 20);
        cu_deviceptr at, same = 0;
        struct note note = {0};
        cu_ipc_mem_handle handle;
        cu_result r = CU_OK;
        struct peer importer;
        struct gpu g;

        peer_start(&importer, "importer", t20_ipc_importer, &bytes);
        gpu_open(&g);
        need(g.c->MemAlloc(&at, bytes), "cuMemAlloc");
        pattern_put(&g, at, bytes, SEED);
        need(g.c->IpcGetMemHandle(&handle, at), "cuIpcGetMemHandle");
        memcpy(note.bytes, &handle, sizeof(handle));
        note_send(importer.sock, &note, -1);
        note_wait(importer.sock, &note, NULL);
        peer_end(&importer);
        fact_value(f, "words", (double)note.number[0], "differ");
        fact_value(f, "CUresult", note.value[0], "second open in one importer");
        fact_value(f, "1", (double)note.number[1], "second open gives the same address");
        if (!the_device.is_double) { /* which aborts on it */
                r = g.c->IpcOpenMemHandle(&same, handle, CU_IPC_LAZY_ENABLE_PEER_ACCESS);
                fact_value(f, "CUresult", r, "open in the exporting process");
        }
        need(g.c->MemFree(at), "cuMemFree");
        gpu_close(&g);
        fact_conclude(f, note.number[0] == 0 && (r != CU_OK || the_device.is_double),
                "the importer saw the exporter's bytes; opening it in the exporting process %s",
                the_device.is_double ? "is not tried on the double"
                : r != CU_OK         ? "was refused"
                                     : "was not refused");
}

const struct fact_row facts_life[] = {
        {"T1", "memory of which only a descriptor is left outlives its exporter", t1, 60,
                .needs_vmm = true},
        {"T3", "nothing is written to a killed client's memory once its pidfd is readable", t3, 60,
                .needs_vmm = true},
        {"T4", "memory stays while an importer maps it, and is free when that ends", t4, 40,
                .needs_vmm = true},
        {"T5", "an illegal access in one client leaves the others alone", t5, 40, .needs_vmm = true,
                .needs_kernels = true, .not_for_double = true},
        {"T20", "an extent can be imported twice, and in the process that made it", t20_vmm, 20,
                .needs_vmm = true},
        {"T20b", "legacy IPC memory is shared, but not with the exporting process", t20_ipc, 20,
                .needs_ipc = true},
        {NULL, NULL, NULL, 0},
};
