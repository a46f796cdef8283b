/*
 * The decoder's K, V and attention on a GPU: gpu.c with a driver that this file plays, and the
 * kernels run by the CPU. Results are correct, with the same bits as on the CPU, for any chunks and
 * places of pages. Every failure of the driver is reported and leaves nothing behind.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decoder/gpu.h"
#include "client/examples/decoder/half.h"
#include "client/examples/decoder/kernels.h"
#include "client/examples/decoder/kv-host.h"
#include "gpu/cuda_load.h"
#include "tests/fakecuda/kernel.h"
#include "tests/unit/chunk-source.h"
#include "tests/unit/test-support.h"

#define DEVICE_BASE (UINT64_C(1) << 60) /* addresses that the CPU cannot follow */
#define RESIDUE     0xff                /* as floats no numbers */

enum { ALLOCATIONS = 8, N_TOKENS = 61, PAGES_MAX = 64, TENSOR_HALVES = 1024 };

static const struct model_shape shape = {.n_layers = 2, .width = 48, .n_heads = 6, .n_kv_heads = 2};
#define HEAD     8u
#define KV_WIDTH 16u

void write_kv(const struct fake_launch *l, void **parameters);
void attention_scores(const struct fake_launch *l, void **parameters);
void attention_weights(const struct fake_launch *l, void **parameters);
void attention_mix(const struct fake_launch *l, void **parameters);

/* ---- a driver -------------------------------------------------------------------------------- */

static struct {
        struct {
                unsigned char *at;
                size_t bytes;
        } memory[ALLOCATIONS];
        int n_contexts, n_pushed, n_streams, n_modules;
        int n_calls, fail_at; /* the fail_at-th call fails; 0: none */
        int n_launches;
        int load_error;
        bool has_kernels;
} driver;

#define CALL()                                          \
        do {                                            \
                if (++driver.n_calls == driver.fail_at) \
                        return CU_OUT_OF_MEMORY;        \
        } while (0)

static void *host_of(uint64_t address, size_t bytes)
{
        uint64_t at = address - DEVICE_BASE;

        for (int i = 0; i < ALLOCATIONS; i++) {
                uint64_t base = (uintptr_t)driver.memory[i].at;

                if (base && at >= base && at - base + bytes <= driver.memory[i].bytes)
                        return (void *)(uintptr_t)at;
        }
        fail_msg("no memory of the device at %llx", (unsigned long long)address);
        return NULL;
}

static const void *host_of_const(uint64_t address, size_t bytes)
{
        return host_of(address, bytes);
}

static cu_result device_get_count(int *count)
{
        CALL();
        *count = 2;
        return CU_OK;
}

static cu_result device_get(cu_device *device, int ordinal)
{
        CALL();
        *device = ordinal;
        return CU_OK;
}

static cu_result device_get_uuid(cu_uuid *uuid, cu_device device)
{
        CALL();
        for (int i = 0; i < 16; i++)
                uuid->bytes[i] = (char)(0xf0 - i * 16 + device);
        return CU_OK;
}

/* The second: its bytes are one more each. */
static const char device_1[] = "GPU-f1e1d1c1-b1a1-9181-7161-514131211101";

static cu_result retain(cu_context *context, cu_device device)
{
        CALL();
        assert_int_equal(device, 1);
        *context = (cu_context)(void *)&driver;
        driver.n_contexts++;
        return CU_OK;
}

static cu_result release(cu_device device)
{
        assert_int_equal(device, 1);
        driver.n_contexts--;
        return CU_OK;
}

static cu_result push(cu_context context)
{
        CALL();
        driver.n_pushed++;
        return CU_OK;
}

static cu_result pop(cu_context *context)
{
        driver.n_pushed--;
        return CU_OK;
}

static cu_result stream_create(cu_stream *stream, unsigned flags)
{
        CALL();
        *stream = (cu_stream)(void *)&driver.n_streams;
        driver.n_streams++;
        return CU_OK;
}

static cu_result stream_destroy(cu_stream stream)
{
        driver.n_streams--;
        return CU_OK;
}

static cu_result stream_synchronize(cu_stream stream)
{
        assert_ptr_equal(stream, &driver.n_streams);
        CALL();
        return CU_OK;
}

static cu_result mem_alloc(cu_deviceptr *at, size_t bytes)
{
        int i = 0;

        CALL();
        while (driver.memory[i].at)
                assert_true(++i < ALLOCATIONS);
        driver.memory[i].at = malloc(bytes);
        assert_non_null(driver.memory[i].at);
        driver.memory[i].bytes = bytes;
        memset(driver.memory[i].at, RESIDUE, bytes);
        *at = DEVICE_BASE + (uintptr_t)driver.memory[i].at;
        return CU_OK;
}

static cu_result mem_free(cu_deviceptr at)
{
        for (int i = 0; i < ALLOCATIONS; i++) {
                if (DEVICE_BASE + (uintptr_t)driver.memory[i].at == at) {
                        free(driver.memory[i].at);
                        driver.memory[i].at = NULL;
                        return CU_OK;
                }
        }
        fail_msg("freed what isn't there");
        return CU_INVALID_VALUE;
}

static cu_result copy_in(cu_deviceptr dst, const void *src, size_t bytes, cu_stream stream)
{
        CALL();
        memcpy(host_of(dst, bytes), src, bytes);
        return CU_OK;
}

static cu_result copy_out(void *dst, cu_deviceptr src, size_t bytes, cu_stream stream)
{
        CALL();
        memcpy(dst, host_of(src, bytes), bytes);
        return CU_OK;
}

static cu_result module_load(cu_module *module, const void *image)
{
        CALL();
        if (strcmp(image, "as in the file") != 0)
                return CU_INVALID_IMAGE;
        *module = (cu_module)(void *)&driver.n_modules;
        driver.n_modules++;
        return CU_OK;
}

static cu_result module_unload(cu_module module)
{
        driver.n_modules--;
        return CU_OK;
}

static cu_result get_function(cu_function *function, cu_module module, const char *name)
{
        static const struct {
                const char *name;
                fake_kernel_fn fn;
        } kernels[] = {
                {"write_kv", write_kv},
                {"attention_scores", attention_scores},
                {"attention_weights", attention_weights},
                {"attention_mix", attention_mix},
        };

        CALL();
        for (size_t i = 0; i < ARRAY_SIZE(kernels); i++) {
                if (strcmp(kernels[i].name, name) == 0) {
                        *function = (cu_function)(void *)kernels[i].fn;
                        return CU_OK;
                }
        }
        return CU_NOT_FOUND;
}

static cu_result launch_kernel(cu_function function, unsigned grid_x, unsigned grid_y,
        unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
        unsigned shared_bytes, cu_stream stream, void **parameters, void **extra)
{
        const struct fake_launch l = {
                .grid = {grid_x, grid_y, grid_z},
                .block = {block_x, block_y, block_z},
                .host_of = host_of,
                .host_of_const = host_of_const,
        };

        assert_true(grid_x > 0 && grid_y == 1 && grid_z == 1 && block_y == 1 && block_z == 1);
        CALL();
        driver.n_launches++;
        ((fake_kernel_fn)(void *)function)(&l, parameters);
        return CU_OK;
}

static struct cuda cuda = {
        .DeviceGetCount = device_get_count,
        .DeviceGet = device_get,
        .DeviceGetUuid = device_get_uuid,
        .DevicePrimaryCtxRetain = retain,
        .DevicePrimaryCtxRelease = release,
        .CtxPushCurrent = push,
        .CtxPopCurrent = pop,
        .StreamCreate = stream_create,
        .StreamDestroy = stream_destroy,
        .StreamSynchronize = stream_synchronize,
        .MemAlloc = mem_alloc,
        .MemFree = mem_free,
        .MemcpyHtoDAsync = copy_in,
        .MemcpyDtoHAsync = copy_out,
        .ModuleLoadData = module_load,
        .ModuleUnload = module_unload,
        .ModuleGetFunction = get_function,
        .LaunchKernel = launch_kernel,
};

int cuda_get(const struct cuda **ret_cuda, char text[CUDA_WHY_BYTES])
{
        if (driver.load_error) {
                snprintf(text, CUDA_WHY_BYTES, "as played");
                return driver.load_error;
        }
        cuda.capabilities = CUDA_HAS_IPC | (driver.has_kernels ? CUDA_HAS_KERNEL : 0);
        *ret_cuda = &cuda;
        return 0;
}

int cuda_errno(cu_result result)
{
        return result == CU_OUT_OF_MEMORY ? -ENOMEM : -EINVAL;
}

char *cuda_describe(const char *call, cu_result result, char *buf, size_t size)
{
        snprintf(buf, size, "%s: %d", call, result);
        return buf;
}

static void check_nothing_left(void)
{
        for (int i = 0; i < ALLOCATIONS; i++)
                assert_null(driver.memory[i].at);
        assert_int_equal(driver.n_contexts, 0);
        assert_int_equal(driver.n_pushed, 0);
        assert_int_equal(driver.n_streams, 0);
        assert_int_equal(driver.n_modules, 0);
}

/* ---- what attention is to compute ------------------------------------------------------------ */

static float q[N_TOKENS * 48], k[N_TOKENS * KV_WIDTH], v[N_TOKENS * KV_WIDTH];
static const char *dir;
static char *kernels_file;

static float random_float(void)
{
        return (float)rand() / (float)RAND_MAX * 4 - 2;
}

static int setup(void **state)
{
        FILE *file;

        srand(1);
        for (size_t i = 0; i < ARRAY_SIZE(q); i++)
                q[i] = random_float();
        for (size_t i = 0; i < ARRAY_SIZE(k); i++) {
                k[i] = random_float();
                v[i] = random_float();
        }
        dir = test_dir_make();
        kernels_file = test_path(dir, "kernels");
        file = fopen(kernels_file, "we");
        return file && fputs("as in the file", file) >= 0 && fclose(file) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
        test_dir_remove(dir);
        free(kernels_file);
        return 0;
}

static double half(float x)
{
        return (double)half_value(half_of(x));
}

/* Straight from the definition, in double, of K and V in fp16. */
static void reference(float *out)
{
        for (int t = 0; t < N_TOKENS; t++) {
                for (unsigned h = 0; h < shape.n_heads; h++) {
                        unsigned kv_head = h / (shape.n_heads / shape.n_kv_heads);
                        double weights[N_TOKENS], sum = 0, mixed[HEAD] = {0};

                        for (int p = 0; p <= t; p++) {
                                double dot = 0;

                                for (unsigned e = 0; e < HEAD; e++)
                                        dot += (double)q[t * 48 + h * HEAD + e] *
                                               half(k[p * KV_WIDTH + kv_head * HEAD + e]);
                                dot = dot / sqrt(HEAD) -
                                      (t - p) / pow(2, 2 + 9 * h / (shape.n_heads - 1));
                                sum += weights[p] = exp(dot);
                        }
                        for (int p = 0; p <= t; p++)
                                for (unsigned e = 0; e < HEAD; e++)
                                        mixed[e] += weights[p] / sum *
                                                    half(v[p * KV_WIDTH + kv_head * HEAD + e]);
                        for (unsigned e = 0; e < HEAD; e++)
                                out[t * 48 + h * HEAD + e] = (float)mixed[e];
                }
        }
}

/* ---- K and V somewhere ----------------------------------------------------------------------- */

struct place {
        uint32_t page_tokens, max_pages;
        unsigned char *tensors[PAGES_MAX * 4]; /* more pages than that are never in the table */
        unsigned char *memory;
        struct model_kv *kv;
};

/* stride: how pages lie in memory; coprime to PAGES_MAX. */
static void place_tensors(struct place *p, uint32_t stride)
{
        for (uint32_t i = 0; i < PAGES_MAX * 4; i++)
                p->tensors[i] = p->memory + (size_t)((i / 4 * stride) % PAGES_MAX * 4 + i % 4) *
                                                    TENSOR_HALVES * sizeof(uint16_t);
}

static int open_gpu(struct place *p, uint32_t page_tokens, uint32_t max_pages, uint32_t stride)
{
        const struct gpu_options options = {
                .shape = &shape,
                .page_tokens = page_tokens,
                .max_pages = max_pages,
                .tensors = p->tensors,
                .device = device_1,
                .kernels = kernels_file,
        };
        int r;

        assert_true(page_tokens * KV_WIDTH <= TENSOR_HALVES);
        *p = (struct place){.page_tokens = page_tokens, .max_pages = max_pages};
        driver.has_kernels = true;
        r = gpu_new(&options, &p->kv);
        if (r)
                return r;
        r = gpu_alloc(p->kv, PAGES_MAX * 4 * TENSOR_HALVES * sizeof(uint16_t), &p->memory);
        if (r) {
                p->kv->ops->free(p->kv);
                return r;
        }
        place_tensors(p, stride);
        return 0;
}

static void open_host(struct place *p, uint32_t page_tokens)
{
        *p = (struct place){.page_tokens = page_tokens, .max_pages = PAGES_MAX};
        p->memory = calloc(PAGES_MAX * 4 * TENSOR_HALVES, sizeof(uint16_t));
        assert_non_null(p->memory);
        place_tensors(p, 1);
        assert_int_equal(kv_host_new(&shape, page_tokens, PAGES_MAX, p->tensors, &p->kv), 0);
}

static void close_host(struct place *p)
{
        p->kv->ops->free(p->kv);
        free(p->memory);
}

/* All tokens, in one layer, at most `chunk` at a time. */
static int run(struct place *p, uint32_t layer, uint32_t chunk, float *out)
{
        uint32_t n;
        int r = 0;

        for (uint32_t at = 0; !r && at < N_TOKENS; at += n) {
                n = p->page_tokens - at % p->page_tokens;
                n = n < chunk ? n : chunk;
                n = n < N_TOKENS - at ? n : N_TOKENS - at;
                r = p->kv->ops->append(p->kv, layer, at, n, k + at * KV_WIDTH, v + at * KV_WIDTH);
                if (!r)
                        r = p->kv->ops->attend(p->kv, layer, at, n, q + at * 48, out + at * 48);
        }
        return r;
}

static void run_on_host(uint32_t page_tokens, float *out)
{
        struct place p;

        open_host(&p, page_tokens);
        assert_int_equal(run(&p, 1, page_tokens, out), 0);
        close_host(&p);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static float expected[N_TOKENS * 48], found[N_TOKENS * 48];

TEST(test_attention_is_right)
{
        struct place p;

        reference(expected);
        assert_int_equal(open_gpu(&p, 5, PAGES_MAX, 1), 0);
        assert_int_equal(run(&p, 1, 5, found), 0);
        for (size_t i = 0; i < ARRAY_SIZE(found); i++)
                assert_float_equal(found[i], expected[i], 1e-5f);
        p.kv->ops->free(p.kv);
        check_nothing_left();
}

/* One source of truth for digests: the bits of the CPU, for all pages, chunks and tables. */
TEST(test_same_bits_everywhere)
{
        static const uint32_t page_tokens[] = {1, 5, 7, 16, 64}, chunks[] = {1, 3, 16, 64};
        static const uint32_t strides[] = {1, 63, 37};

        run_on_host(16, expected);
        for (size_t i = 0; i < ARRAY_SIZE(page_tokens); i++) {
                for (size_t j = 0; j < ARRAY_SIZE(chunks); j++) {
                        for (size_t s = 0; s < ARRAY_SIZE(strides); s++) {
                                struct place p;

                                memset(found, 0, sizeof(found));
                                assert_int_equal(
                                        open_gpu(&p, page_tokens[i], PAGES_MAX, strides[s]), 0);
                                assert_int_equal(run(&p, 1, chunks[j], found), 0);
                                assert_memory_equal(found, expected, sizeof(found));
                                p.kv->ops->free(p.kv);
                        }
                }
        }
        check_nothing_left();
}

/* Pages have the very bytes that the CPU writes, and nothing else of them is touched. */
TEST(test_pages_have_the_same_bytes)
{
        const size_t bytes = PAGES_MAX * 4 * TENSOR_HALVES * sizeof(uint16_t);
        struct place gpu, host;

        open_host(&host, 7);
        memset(host.memory, RESIDUE, bytes);
        assert_int_equal(open_gpu(&gpu, 7, PAGES_MAX, 1), 0);
        assert_int_equal(run(&host, 1, 7, expected), 0);
        assert_int_equal(run(&gpu, 1, 3, found), 0);
        assert_memory_equal(host_of((uintptr_t)gpu.memory, bytes), host.memory, bytes);
        gpu.kv->ops->free(gpu.kv);
        close_host(&host);
}

static unsigned char *tensor_of_device(unsigned char *address, size_t bytes)
{
        return host_of((uintptr_t)address, bytes);
}

/* Pages that come in chunks: client/examples/decoder/page-source.h. */
TEST(test_same_bits_in_chunks)
{
        static const uint32_t page_tokens[] = {1, 5, 16}, windows[] = {1, 2, 7};
        const size_t tensor_bytes = TENSOR_HALVES * sizeof(uint16_t);

        run_on_host(16, expected);
        for (size_t i = 0; i < ARRAY_SIZE(page_tokens) * ARRAY_SIZE(windows); i++) {
                struct chunk_source s = {
                        .n_tensors = 4,
                        .tensor_bytes = tensor_bytes,
                        .window_pages = windows[i % ARRAY_SIZE(windows)],
                        .host_of = tensor_of_device,
                };
                cu_deviceptr buffers;
                struct place p;

                assert_int_equal(mem_alloc(&buffers, 2 * s.window_pages * tensor_bytes), 0);
                s.buffers[0] = (unsigned char *)(uintptr_t)buffers;
                s.buffers[1] = s.buffers[0] + s.window_pages * tensor_bytes;
                assert_int_equal(
                        open_gpu(&p, page_tokens[i / ARRAY_SIZE(windows)], PAGES_MAX, 37), 0);
                s.tensors = p.tensors;
                chunk_source_init(&s);
                p.kv->source = &s.source;
                memset(found, 0, sizeof(found));
                assert_int_equal(run(&p, 1, 64, found), 0);
                assert_memory_equal(found, expected, sizeof(found));
                chunk_source_deinit(&s);
                p.kv->ops->free(p.kv);
                mem_free(buffers);
        }
        check_nothing_left();
}

/* Where there is no room for the scores of a whole page, tokens are computed some at a time. */
TEST(test_long_context)
{
        struct place p;
        uint32_t max_pages = 65536; /* 64 tokens a page: 96 MiB of scores for one token */

        run_on_host(64, expected);
        assert_int_equal(open_gpu(&p, 64, max_pages, 1), 0);
        driver.n_launches = 0;
        assert_int_equal(run(&p, 1, 64, found), 0);
        assert_int_equal(driver.n_launches, 1 + 3 * N_TOKENS);
        assert_memory_equal(found, expected, sizeof(found));
        p.kv->ops->free(p.kv);
        check_nothing_left();
}

/* A page of the table moves, as another one took its place: attention reads the new one. */
TEST(test_table_changes)
{
        static float other[N_TOKENS * 48];
        struct place p;
        size_t page_bytes = 4 * TENSOR_HALVES * sizeof(uint16_t);

        assert_int_equal(open_gpu(&p, 16, PAGES_MAX, 1), 0);
        assert_int_equal(run(&p, 1, 16, expected), 0);
        memcpy(host_of((uintptr_t)p.memory + 40 * page_bytes, page_bytes),
                host_of((uintptr_t)p.memory, page_bytes), page_bytes);
        memset(host_of((uintptr_t)p.memory, page_bytes), 0, page_bytes);
        assert_int_equal(p.kv->ops->attend(p.kv, 1, 48, 13, q + 48 * 48, other), 0);
        assert_true(memcmp(other, expected + 48 * 48, 13 * 48 * sizeof(float)) != 0);
        for (int i = 0; i < 4; i++)
                p.tensors[i] += 40 * page_bytes;
        assert_int_equal(p.kv->ops->attend(p.kv, 1, 48, 13, q + 48 * 48, found), 0);
        assert_memory_equal(found, expected + 48 * 48, 13 * 48 * sizeof(float));
        p.kv->ops->free(p.kv);
}

/* Whichever call of the driver fails: it is told, with its name, and nothing stays. */
TEST(test_driver_fails)
{
        int n_failed = 0, r = -1;

        for (int at = 1; r != 0; at++) {
                struct place p;

                driver.n_calls = 0;
                driver.fail_at = at;
                r = open_gpu(&p, 64, PAGES_MAX, 1);
                if (!r) {
                        r = run(&p, 1, 64, found);
                        p.kv->ops->free(p.kv);
                }
                if (r) {
                        assert_int_equal(r, -ENOMEM);
                        assert_memory_equal(gpu_error(), "cu", 2);
                        n_failed++;
                }
                check_nothing_left();
        }
        driver.fail_at = 0;
        assert_true(n_failed >= 20);
}

static int open_with(const char *device, const char *kernels)
{
        const struct gpu_options options = {
                .shape = &shape,
                .page_tokens = 4,
                .max_pages = 4,
                .device = device,
                .kernels = kernels,
        };
        struct model_kv *kv;
        int r = gpu_new(&options, &kv);

        if (!r)
                kv->ops->free(kv);
        check_nothing_left();
        return r;
}

TEST(test_what_is_missing_is_told)
{
        driver.load_error = -ENODEV;
        assert_int_equal(open_with(device_1, kernels_file), -ENODEV);
        assert_string_equal(gpu_error(), "as played");
        driver.load_error = 0;

        driver.has_kernels = false;
        assert_int_equal(open_with(device_1, kernels_file), -ELIBBAD);
        driver.has_kernels = true;

        assert_int_equal(
                open_with("GPU-00000000-0000-0000-0000-000000000000", kernels_file), -ENODEV);
        assert_non_null(strstr(gpu_error(), "CUDA_VISIBLE_DEVICES"));

        assert_int_equal(open_with(device_1, "/nonexistent/kernels"), -EIO);
        assert_non_null(strstr(gpu_error(), "No such file"));

        /* No file named, none built into this test. */
        assert_int_equal(open_with(device_1, NULL), -ENOEXEC);
        assert_non_null(strstr(gpu_error(), "--kernels"));

        setenv("KVLEASE_DECODER_KERNELS", kernels_file, 1);
        assert_int_equal(open_with(device_1, NULL), 0);
        unsetenv("KVLEASE_DECODER_KERNELS");

        assert_int_equal(open_with(device_1, __FILE__), -EINVAL);
        assert_non_null(strstr(gpu_error(), "cuModuleLoadData"));
}

int main(void)
{
        return test_run_all(setup, teardown);
}
