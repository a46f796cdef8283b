/* Guarantees for processes and graphs: T9, T10, T12, T17. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/gpu/facts.h"
#include "tests/integration/private-daemon.h"

#define PAGE      4096u
#define SEED      11
#define WAIT_MSEC 5000

/* ---- T9 ------------------------------------------------------------------------------------- */

static void *map_shared(int fd)
{
        void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (at == MAP_FAILED)
                fact_die("mmap: %s", strerror(errno));
        return at;
}

static cu_deviceptr register_counter(struct gpu *g, void *at)
{
        cu_deviceptr address;

        need(g->c->MemHostRegister(at, PAGE, CU_HOST_REGISTER_DEVICEMAP), "cuMemHostRegister");
        need(g->more.MemHostGetDevicePointer(&address, at, 0), "cuMemHostGetDevicePointer");
        return address;
}

/* Writes 1 to the counter from a stream, on a message. */
static void t9_writer(int sock, const void *arg)
{
        cu_deviceptr counter;
        struct gpu g;
        void *at;
        int fd;

        note_wait(sock, NULL, &fd);
        at = map_shared(fd);
        gpu_open(&g);
        counter = register_counter(&g, at);
        note_send(sock, NULL, -1);
        note_wait(sock, NULL, NULL);
        need(g.more.StreamWriteValue64(g.stream, counter, 1, CU_WRITE_VALUE_DEFAULT),
                "cuStreamWriteValue64");
        gpu_sync(&g);
        need(g.c->MemHostUnregister(at), "cuMemHostUnregister");
        gpu_close(&g);
}

/* A wait for `value`, ended by `what`. -1: it didn't end. */
static double t9_wait(struct gpu *g, cu_deviceptr counter, uint64_t value, struct peer *writer,
        _Atomic uint64_t *word)
{
        uint64_t start;

        need(g->more.StreamWaitValue64(g->stream, counter, value, CU_WAIT_VALUE_GEQ),
                "cuStreamWaitValue64");
        if (gpu_wait_idle(g, g->stream, 50))
                fact_die("the wait for a value ended at once");
        start = now_nsec();
        if (writer)
                note_send(writer->sock, NULL, -1);
        else
                atomic_store(word, value);
        if (gpu_wait_idle(g, g->stream, WAIT_MSEC))
                return msec_since(start) * 1000;
        atomic_store(word, value);
        if (!gpu_wait_idle(g, g->stream, WAIT_MSEC))
                fact_die("a wait for a value never ends");
        return -1;
}

static void t9(struct fact *f)
{
        double by_stream, by_cpu;
        cu_deviceptr counter;
        struct peer writer;
        struct gpu g;
        int fd;
        _Atomic uint64_t *word = memfd_map(PAGE, &fd);

        peer_start(&writer, "writer", t9_writer, NULL);
        gpu_open(&g);
        if (!the_device.has_memops || !g.more.StreamWaitValue64 || !g.more.StreamWriteValue64 ||
                !g.more.MemHostGetDevicePointer) {
                gpu_close(&g);
                peer_kill(&writer);
                fact_skip(f, "device or driver lack waits for values (attribute 122)");
                return;
        }
        note_send(writer.sock, NULL, fd);
        close(fd);
        note_wait(writer.sock, NULL, NULL);
        counter = register_counter(&g, (void *)word);
        by_stream = t9_wait(&g, counter, 1, &writer, word);
        peer_end(&writer);
        by_cpu = t9_wait(&g, counter, 2, NULL, word);
        need(g.c->MemHostUnregister((void *)word), "cuMemHostUnregister");
        gpu_close(&g);
        fact_value(f, "us", by_stream, "until seen, written by another process' stream");
        fact_value(f, "us", by_cpu, "until seen, written by the CPU");
        fact_conclude(f, by_stream >= 0 && by_cpu >= 0,
                "-1 stands for a wait that had to be ended by the CPU after %d ms", WAIT_MSEC);
}

/* ---- T10 ------------------------------------------------------------------------------------ */

/* Read-only for good: this process' only mapping is PROT_READ, the memfd sealed. */
static void *map_sealed(uint64_t bytes)
{
        void *at = MAP_FAILED;
        char block[PAGE];
        int fd = memfd_create("kvl-gpu-facts", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        memset(block, SEED, sizeof(block));
        for (uint64_t i = 0; fd >= 0 && i < bytes; i += sizeof(block))
                if (write(fd, block, sizeof(block)) != (ssize_t)sizeof(block))
                        fact_die("memfd: %s", strerror(errno));
        if (fd >= 0 &&
                fcntl(fd, F_ADD_SEALS,
                        F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0)
                at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
                fact_die("a sealed memfd: %s", strerror(errno));
        close(fd);
        return at;
}

static bool is_seed(const void *at, uint64_t bytes)
{
        const unsigned char *p = at;

        for (uint64_t i = 0; i < bytes; ++i)
                if (p[i] != SEED)
                        return false;
        return true;
}

static void t10(struct fact *f)
{
        uint64_t bytes = UINT64_C(2) << 20, expected;
        cu_result plain, flagged, back = CU_OK;
        bool is_read, is_intact;
        struct chunk chunk;
        struct gpu g;
        void *at;

        if (!the_device.has_read_only_host) {
                fact_skip(f, "the device doesn't support it (attribute 113)");
                return;
        }
        at = map_sealed(bytes);
        memset(&expected, SEED, sizeof(expected));
        gpu_open(&g);
        chunk_create(&g, MAX(bytes, the_device.granularity_bytes), &chunk);
        chunk_map(&g, &chunk);
        plain = g.c->MemHostRegister(at, bytes, CU_HOST_REGISTER_PORTABLE);
        if (plain == CU_OK)
                need(g.c->MemHostUnregister(at), "cuMemHostUnregister");
        flagged = g.c->MemHostRegister(
                at, bytes, CU_HOST_REGISTER_PORTABLE | CU_HOST_REGISTER_READ_ONLY);
        need(flagged, "cuMemHostRegister, read-only");
        need(g.c->MemcpyHtoDAsync(chunk.at, at, bytes, g.stream), "cuMemcpyHtoDAsync");
        gpu_sync(&g);
        is_read = read_word(&g, chunk.at) == expected &&
                  read_word(&g, chunk.at + bytes - 8) == expected;
        need(g.c->MemsetD8Async(chunk.at, 0, bytes, g.stream), "cuMemsetD8Async");
        gpu_sync(&g);
        if (!the_device.is_double) { /* which aborts on it */
                back = g.c->MemcpyDtoHAsync(at, chunk.at, bytes, g.stream);
                if (back == CU_OK)
                        back = g.c->StreamSynchronize(g.stream);
        }
        is_intact = is_seed(at, bytes);
        fact_value(f, "CUresult", plain, "register without the read-only flag");
        fact_value(f, "CUresult", flagged, "register with it");
        fact_value(f, "CUresult", back, "copy from the device into it");
        /* The copies may have broken the context: then it ends with the process. */
        if (back == CU_OK) {
                need(g.c->MemHostUnregister(at), "cuMemHostUnregister");
                chunk_free(&g, &chunk);
                gpu_close(&g);
        }
        fact_conclude(f, is_read && is_intact, "copies from it %s; a copy into it left it %s",
                is_read ? "work" : "bring other bytes", is_intact ? "intact" : "CHANGED");
}

/* ---- T12 ------------------------------------------------------------------------------------ */

struct t12 {
        struct chunk source[2], target;
        uint64_t bytes;
};

/* One node that copies `bytes` from the source's address, which stays, to the target. */
static cu_graph_exec t12_capture(struct gpu *g, const struct t12 *t, bool with_kernel)
{
        cu_graph_exec exec;
        cu_graph graph;

        need(g->more.StreamBeginCapture(g->stream, CU_CAPTURE_THREAD_LOCAL),
                "cuStreamBeginCapture");
        if (with_kernel)
                gpu_launch(g, g->stream, "copy", 64, 256,
                        (uint64_t[]){t->target.at, t->source[0].at, t->bytes / 8}, 3);
        else
                need(g->c->MemcpyDtoDAsync(t->target.at, t->source[0].at, t->bytes, g->stream),
                        "cuMemcpyDtoDAsync");
        need(g->more.StreamEndCapture(g->stream, &graph), "cuStreamEndCapture");
        need(g->more.GraphInstantiate(&exec, graph, 0), "cuGraphInstantiateWithFlags");
        need(g->more.GraphDestroy(graph), "cuGraphDestroy");
        return exec;
}

static uint64_t t12_replay(struct gpu *g, const struct t12 *t, cu_graph_exec exec, uint64_t seed)
{
        need(g->c->MemsetD8Async(t->target.at, 0, t->bytes, g->stream), "cuMemsetD8Async");
        need(g->more.GraphLaunch(exec, g->stream), "cuGraphLaunch");
        gpu_sync(g);
        return pattern_differs(g, t->target.at, t->bytes, seed);
}

/* Captured over one extent, replayed over another at the same address. */
static uint64_t t12_round(struct fact *f, struct gpu *g, struct t12 *t, bool with_kernel)
{
        cu_deviceptr at;
        cu_graph_exec exec;
        uint64_t before, after;

        need(g->c->MemAddressReserve(&at, t->bytes, 0, 0, 0), "cuMemAddressReserve");
        chunk_map_at(g, &t->source[0], at);
        pattern_put(g, at, t->bytes, SEED);
        exec = t12_capture(g, t, with_kernel);
        before = t12_replay(g, t, exec, SEED);
        need(g->c->MemUnmap(at, t->bytes), "cuMemUnmap");
        chunk_map_at(g, &t->source[1], at);
        pattern_put(g, at, t->bytes, SEED + 1);
        after = t12_replay(g, t, exec, SEED + 1);
        need(g->more.GraphExecDestroy(exec), "cuGraphExecDestroy");
        need(g->c->MemUnmap(at, t->bytes), "cuMemUnmap");
        need(g->c->MemAddressFree(at, t->bytes), "cuMemAddressFree");
        t->source[0].at = t->source[1].at = 0;
        fact_value(f, "words", (double)before, "differ before the remap, %s",
                with_kernel ? "kernel" : "copy");
        fact_value(
                f, "words", (double)after, "differ after it, %s", with_kernel ? "kernel" : "copy");
        return before + after;
}

static void t12(struct fact *f)
{
        struct t12 t = {.bytes = fact_bytes(f, UINT64_C(64) << 20, UINT64_C(2) << 20)};
        bool with_kernel = gpu_has_kernels();
        uint64_t n_differ;
        struct gpu g;

        gpu_open(&g);
        if (!g.more.StreamBeginCapture || !g.more.StreamEndCapture || !g.more.GraphInstantiate ||
                !g.more.GraphLaunch || !g.more.GraphExecDestroy || !g.more.GraphDestroy) {
                gpu_close(&g);
                fact_skip(f, "the driver lacks graphs");
                return;
        }
        chunk_create(&g, t.bytes, &t.source[0]);
        chunk_create(&g, t.bytes, &t.source[1]);
        chunk_create(&g, t.bytes, &t.target);
        chunk_map(&g, &t.target);
        if (with_kernel) { /* loaded before anything is captured */
                gpu_launch(
                        &g, g.stream, "copy", 1, 1, (uint64_t[]){t.target.at, t.target.at, 1}, 3);
                gpu_sync(&g);
        }
        n_differ = t12_round(f, &g, &t, false);
        if (with_kernel)
                n_differ += t12_round(f, &g, &t, true);
        chunk_free(&g, &t.source[0]);
        chunk_free(&g, &t.source[1]);
        chunk_free(&g, &t.target);
        gpu_close(&g);
        fact_conclude(f, n_differ == 0,
                "%llu words of what the replay read weren't the new extent's",
                (unsigned long long)n_differ);
}

/* ---- T17 ------------------------------------------------------------------------------------ */

static bool refused(struct fact *f, cu_result r, const char *what)
{
        fact_value(f, "CUresult", r, "%s", what);
        return r != CU_OK;
}

static void t17(struct fact *f)
{
        uint64_t unit = the_device.granularity_bytes, bytes = 4 * unit;
        cu_mem_handle stranger;
        struct chunk chunk;
        bool holds = true;
        cu_deviceptr at;
        struct gpu g;
        int fd = memfd_create_sized("kvl-gpu-facts", bytes);

        gpu_open(&g);
        chunk_create(&g, bytes, &chunk);
        need(g.c->MemAddressReserve(&at, 2 * bytes, 0, 0, 0), "cuMemAddressReserve");
        holds &= refused(f, g.c->MemMap(at, unit, unit, chunk.handle, 0), "map at an offset");
        holds &= refused(f, g.c->MemMap(at, unit, 0, chunk.handle, 0), "map of a part");
        holds &= refused(
                f, g.c->MemMap(at, 2 * bytes, 0, chunk.handle, 0), "map of more than it has");
        holds &= refused(
                f, g.c->MemMap(at + unit / 2, bytes, 0, chunk.handle, 0), "map at an odd address");
        if (!holds) {
                fact_conclude(f, false,
                        "what should have been refused is mapped now, so nothing else was tried; 0 means that the driver agreed");
                return;
        }
        chunk_map_at(&g, &chunk, at);
        holds &= refused(f, g.c->MemMap(at, bytes, 0, chunk.handle, 0), "map where something is");
        holds &= refused(f, g.c->MemUnmap(at, unit), "unmap of a part");
        holds &= refused(f, g.c->MemUnmap(at + bytes, bytes), "unmap of nothing");
        holds &= refused(f, g.c->MemImport(&stranger, (void *)(intptr_t)fd, CU_HANDLE_POSIX_FD),
                "import of a memfd");
        holds &= refused(f, g.c->MemImport(&stranger, (void *)(intptr_t)-1, CU_HANDLE_POSIX_FD),
                "import of no descriptor");
        holds &= refused(f, g.c->MemAddressFree(at, 2 * bytes), "free of addresses in use");
        close(fd);
        fact_conclude(f, holds, "each figure is the driver's answer; 0 means that it agreed");
}

const struct fact_row facts_sync[] = {
        {"T9", "a stream's wait on a counter in shared host memory ends when another process' stream or the CPU writes it",
                t9, 40},
        {"T10", "read-only host memory feeds copies to the device, and copies into it change nothing",
                t10, 20, .needs_vmm = true},
        {"T12", "a CUDA graph reads the extent that is mapped at its address when it is replayed",
                t12, 30, .needs_vmm = true},
        {"T17", "wrong maps, unmaps and imports are refused", t17, 20, .needs_vmm = true,
                .not_for_double = true},
        {NULL, NULL, NULL, 0},
};
