#include "client/examples/decoder/gpu.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decoder/attention.h"
#include "gpu/cuda_load.h"

#ifdef DECODER_HAS_KERNELS
#include "client/examples/attention-image.h"
#else
static const unsigned char attention_image[1];
static const size_t attention_image_bytes = 0;
#endif

#define KERNELS_VARIABLE "KVLEASE_DECODER_KERNELS"
#define SCORES_BYTES     (UINT64_C(64) << 20) /* limits the tokens of one pass; not tuned */
#define ALIGN            256                  /* also cuMemAlloc()'s alignment */
#define UUID_TEXT        41

enum kernel { WRITE_KV, SCORES, WEIGHTS, MIX, N_KERNELS };

static const char *const kernel_names[N_KERNELS] = {
        "write_kv", "attention_scores", "attention_weights", "attention_mix"};

struct gpu {
        struct model_kv kv;
        const struct cuda *cuda;
        cu_device device;
        cu_context context; /* NULL: not retained */
        cu_stream stream;
        cu_module module;
        cu_function kernels[N_KERNELS];
        cu_deviceptr private_pages; /* 0: none */
        cu_deviceptr scratch;       /* 0: none; contains the next six */
        cu_deviceptr q, k, v, out, scores, tensors;
        uint64_t score_row;
        uint32_t score_tokens;    /* tokens with scores */
        unsigned char **uploaded; /* the table as uploaded */
};

static char why[512];

const char *gpu_error(void)
{
        return why;
}

static int explain(const struct gpu *g, const char *call, cu_result result)
{
        if (result == CU_OK)
                return 0;
        cuda_describe(call, result, why, sizeof(why));
        return cuda_errno(result);
}

bool gpu_has_kernels(void)
{
        return attention_image_bytes > 0;
}

/* Calls the driver: 0, or -errno with its sentence. */
#define DRIVER(g, call, ...) explain(g, "cu" #call, (g)->cuda->call(__VA_ARGS__))

/* ---- device ---------------------------------------------------------------------------------- */

/* Formats UUIDs as nvidia-smi prints them, without the prefix "GPU-" or "MIG-". */
static void format_uuid(const cu_uuid *uuid, char text[UUID_TEXT])
{
        size_t used = 0;

        for (size_t i = 0; i < sizeof(uuid->bytes); i++)
                used += (size_t)snprintf(text + used, UUID_TEXT - used, "%s%02x",
                        i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        (unsigned char)uuid->bytes[i]);
}

static int find_device(struct gpu *g, const char *name)
{
        int count, r = DRIVER(g, DeviceGetCount, &count);

        for (int i = 0; !r && i < count; i++) {
                char text[UUID_TEXT];
                cu_uuid uuid;

                r = DRIVER(g, DeviceGet, &g->device, i);
                if (!r)
                        r = g->cuda->capabilities & CUDA_HAS_UUID2
                                    ? DRIVER(g, DeviceGetUuid2, &uuid, g->device)
                                    : DRIVER(g, DeviceGetUuid, &uuid, g->device);
                if (r)
                        break;
                format_uuid(&uuid, text);
                if (strlen(name) > 4 && strcmp(name + 4, text) == 0)
                        return 0;
        }
        if (r)
                return r;
        snprintf(why, sizeof(why),
                "%.64s is no device that this process can use: is it hidden by CUDA_VISIBLE_DEVICES?",
                name);
        return -ENODEV;
}

static int open_device(struct gpu *g, const char *name)
{
        int r = cuda_get(&g->cuda, why);

        if (r)
                return r;
        if (~g->cuda->capabilities & (CUDA_HAS_KERNEL | CUDA_HAS_IPC)) {
                snprintf(why, sizeof(why), "the CUDA driver lacks functions for kernels or memory");
                return -ELIBBAD;
        }
        r = find_device(g, name);
        if (!r)
                r = DRIVER(g, DevicePrimaryCtxRetain, &g->context, g->device);
        if (r)
                return r;
        r = DRIVER(g, CtxPushCurrent, g->context);
        if (r) {
                g->cuda->DevicePrimaryCtxRelease(g->device);
                g->context = NULL;
                return r;
        }
        return DRIVER(g, StreamCreate, &g->stream, CU_STREAM_NON_BLOCKING);
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Reads the whole file and appends a zero (PTX is text). Returned owned. */
static int read_image(const char *path, char **ret_image)
{
        FILE *file = fopen(path, "re");
        char *image = NULL;
        long size = -1;
        int r = -EIO;

        if (file && fseek(file, 0, SEEK_END) == 0)
                size = ftell(file);
        if (size >= 0 && fseek(file, 0, SEEK_SET) == 0)
                image = calloc(1, (size_t)size + 1);
        if (image && fread(image, 1, (size_t)size, file) == (size_t)size)
                r = 0;
        if (r) {
                snprintf(why, sizeof(why), "cannot read the kernels from %.200s: %s", path,
                        errno ? strerror(errno) : "it is too short");
                free(image);
                image = NULL;
        }
        if (file)
                fclose(file);
        *ret_image = image;
        return r;
}

static int load_image(struct gpu *g, const void *image)
{
        int r = DRIVER(g, ModuleLoadData, &g->module, image);

        for (int i = 0; !r && i < N_KERNELS; i++)
                r = DRIVER(g, ModuleGetFunction, &g->kernels[i], g->module, kernel_names[i]);
        return r;
}

static int load_kernels(struct gpu *g, const char *path)
{
        char *image;
        int r;

        if (!path)
                path = getenv(KERNELS_VARIABLE);
        if (path && *path) {
                errno = 0;
                r = read_image(path, &image);
                if (!r)
                        r = load_image(g, image);
                free(image);
                return r;
        }
        if (gpu_has_kernels())
                return load_image(g, attention_image);
        snprintf(why, sizeof(why),
                "no kernels for the GPU: this decoder was built without nvcc. Compile "
                "client/examples/decoder/attention.cu elsewhere (nvcc -fatbin -arch=all-major "
                "-fmad=false -I.), and name the result with --kernels or $%s; or use a device host",
                KERNELS_VARIABLE);
        return -ENOEXEC;
}

static int launch(struct gpu *g, enum kernel kernel, void *argument, uint64_t n_threads)
{
        void *parameters[] = {argument};
        uint64_t n_blocks = (n_threads + ATTENTION_BLOCK - 1) / ATTENTION_BLOCK;

        if (n_blocks > INT32_MAX) {
                snprintf(why, sizeof(why), "%s: too many threads for one launch: use fewer tokens",
                        kernel_names[kernel]);
                return -EIO;
        }
        return DRIVER(g, LaunchKernel, g->kernels[kernel], (unsigned)n_blocks, 1, 1,
                ATTENTION_BLOCK, 1, 1, 0, g->stream, parameters, NULL);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static cu_deviceptr place(cu_deviceptr base, uint64_t *used, uint64_t bytes)
{
        cu_deviceptr at = base + *used;

        *used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
        return at;
}

/* Places all parts from scratch on (0: only counts). Returns the bytes. */
static uint64_t place_all(struct gpu *g)
{
        const struct model_shape *shape = &g->kv.shape;
        uint64_t row_bytes = shape->width * sizeof(float), used = 0;
        uint64_t kv_bytes = row_bytes / shape->n_heads * shape->n_kv_heads;
        uint64_t n_tensors = (uint64_t)g->kv.max_pages * 2 * shape->n_layers;

        g->q = place(g->scratch, &used, g->kv.page_tokens * row_bytes);
        g->out = place(g->scratch, &used, g->kv.page_tokens * row_bytes);
        g->k = place(g->scratch, &used, g->kv.page_tokens * kv_bytes);
        g->v = place(g->scratch, &used, g->kv.page_tokens * kv_bytes);
        g->scores = place(
                g->scratch, &used, g->score_tokens * shape->n_heads * g->score_row * sizeof(float));
        g->tensors = place(g->scratch, &used, n_tensors * sizeof(uint64_t));
        return used;
}

static int alloc_scratch(struct gpu *g)
{
        uint64_t token_bytes;

        g->score_row = (uint64_t)g->kv.max_pages * g->kv.page_tokens;
        token_bytes = g->score_row * g->kv.shape.n_heads * sizeof(float);
        g->score_tokens = g->kv.page_tokens;
        if (g->score_tokens > SCORES_BYTES / token_bytes)
                g->score_tokens = (uint32_t)(SCORES_BYTES / token_bytes);
        if (g->score_tokens == 0)
                g->score_tokens = 1;
        g->uploaded =
                calloc((size_t)g->kv.max_pages * 2 * g->kv.shape.n_layers, sizeof(*g->uploaded));
        if (!g->uploaded) {
                snprintf(why, sizeof(why), "out of memory");
                return -ENOMEM;
        }
        return DRIVER(g, MemAlloc, &g->scratch, place_all(g));
}

int gpu_alloc(struct model_kv *kv, uint64_t bytes, unsigned char **ret_address)
{
        struct gpu *g = (struct gpu *)kv;
        int r = DRIVER(g, MemAlloc, &g->private_pages, bytes);

        if (!r)
                *ret_address = (unsigned char *)(uintptr_t)g->private_pages;
        return r;
}

/* Updates rows of the device's page table. */
static int upload_rows(
        struct gpu *g, uint32_t first_page, uint32_t n_pages, unsigned char *const *tensors)
{
        size_t n = 2 * (size_t)g->kv.shape.n_layers;
        int r = 0;

        for (uint32_t i = 0; !r && i < n_pages; i++) {
                size_t page = first_page + i;
                unsigned char **row = g->uploaded + page * n;

                if (memcmp(row, tensors + i * n, n * sizeof(*row)) == 0)
                        continue;
                memcpy(row, tensors + i * n, n * sizeof(*row));
                r = DRIVER(g, MemcpyHtoDAsync, g->tensors + page * n * sizeof(uint64_t), row,
                        n * sizeof(*row), g->stream);
        }
        return r;
}

/* ---- K, V and attention ---------------------------------------------------------------------- */

static int append(struct model_kv *kv, uint32_t layer, uint32_t position, uint32_t n_tokens,
        const float *k, const float *v)
{
        struct gpu *g = (struct gpu *)kv;
        uint32_t head = model_head_size(&kv->shape), width = head * kv->shape.n_kv_heads;
        size_t bytes = (size_t)n_tokens * width * sizeof(*k);
        unsigned char *const *tensors =
                model_kv_row(kv, position / kv->page_tokens) + 2 * (size_t)layer;
        struct write_kv_launch l = {
                .page_k = (uintptr_t)tensors[0],
                .page_v = (uintptr_t)tensors[1],
                .k = g->k,
                .v = g->v,
                .page_tokens = kv->page_tokens,
                .first = position % kv->page_tokens,
                .n_tokens = n_tokens,
                .width = width,
                .head_size = head,
        };
        int r = DRIVER(g, MemcpyHtoDAsync, g->k, k, bytes, g->stream);

        if (!r)
                r = DRIVER(g, MemcpyHtoDAsync, g->v, v, bytes, g->stream);
        if (!r)
                r = launch(g, WRITE_KV, &l, (uint64_t)n_tokens * width);
        return r ? r : gpu_wait(kv);
}

/* Computes scores (is_v 0), or the mix, of all pages. Nothing uses a chunk any more when the source
 * is asked for the next. */
static int for_each_chunk(struct gpu *g, struct attention_launch *l, uint32_t is_v)
{
        uint32_t n_visible = l->position + l->n_tokens, tokens = l->page_tokens, n;
        uint32_t n_pages = (n_visible + tokens - 1) / tokens;
        uint64_t n_rows = (uint64_t)l->n_tokens * l->n_heads;
        int r = 0;

        for (uint32_t page = 0; !r && page < n_pages; page += n) {
                unsigned char *const *rows;

                r = model_kv_take(&g->kv, l->layer, is_v, page, n_pages - page, &rows, &n);
                if (!r)
                        r = upload_rows(g, page, n, rows);
                if (r)
                        return r;
                l->first = page * tokens;
                l->end = n_visible - l->first < n * tokens ? n_visible : (page + n) * tokens;
                if (is_v)
                        r = launch(g, MIX, l, n_rows * l->head_size);
                else
                        r = launch(g, SCORES, l, n_rows * (l->end - l->first));
                if (!r && g->kv.source)
                        r = gpu_wait(&g->kv);
        }
        return r;
}

static int attend_some(struct gpu *g, struct attention_launch *l)
{
        int r = for_each_chunk(g, l, 0);

        if (!r)
                r = launch(g, WEIGHTS, l, (uint64_t)l->n_tokens * l->n_heads);
        return r ? r : for_each_chunk(g, l, 1);
}

static int attend(struct model_kv *kv, uint32_t layer, uint32_t position, uint32_t n_tokens,
        const float *q, float *out)
{
        struct gpu *g = (struct gpu *)kv;
        size_t row_bytes = kv->shape.width * sizeof(*q), bytes = n_tokens * row_bytes;
        int r = DRIVER(g, MemcpyHtoDAsync, g->q, q, bytes, g->stream);

        for (uint32_t n, i = 0; !r && i < n_tokens; i += n) {
                struct attention_launch l = {
                        .tensors = g->tensors,
                        .q = g->q + i * row_bytes,
                        .out = g->out + i * row_bytes,
                        .scores = g->scores,
                        .row = g->score_row,
                        .n_tensors = 2 * kv->shape.n_layers,
                        .layer = layer,
                        .page_tokens = kv->page_tokens,
                        .position = position + i,
                        .n_heads = kv->shape.n_heads,
                        .n_kv_heads = kv->shape.n_kv_heads,
                        .head_size = model_head_size(&kv->shape),
                        .scale = 1.0f / sqrtf((float)model_head_size(&kv->shape)),
                };

                n = n_tokens - i < g->score_tokens ? n_tokens - i : g->score_tokens;
                l.n_tokens = n;
                r = attend_some(g, &l);
        }
        if (!r)
                r = DRIVER(g, MemcpyDtoHAsync, out, g->out, bytes, g->stream);
        return r ? r : gpu_wait(kv);
}

/* ---- lifetime -------------------------------------------------------------------------------- */

static void gpu_free(struct model_kv *kv)
{
        struct gpu *g = (struct gpu *)kv;
        cu_context context;

        if (g->stream) {
                g->cuda->StreamSynchronize(g->stream);
                g->cuda->StreamDestroy(g->stream);
        }
        if (g->private_pages)
                g->cuda->MemFree(g->private_pages);
        if (g->scratch)
                g->cuda->MemFree(g->scratch);
        if (g->module)
                g->cuda->ModuleUnload(g->module);
        if (g->context) {
                g->cuda->CtxPopCurrent(&context);
                g->cuda->DevicePrimaryCtxRelease(g->device);
        }
        free(g->uploaded);
        free(g);
}

static const struct model_kv_ops gpu_ops = {
        .append = append,
        .attend = attend,
        .free = gpu_free,
};

int gpu_new(const struct gpu_options *options, struct model_kv **ret_kv)
{
        struct gpu *g = calloc(1, sizeof(*g));
        int r;

        if (!g) {
                snprintf(why, sizeof(why), "out of memory");
                return -ENOMEM;
        }
        g->kv = (struct model_kv){
                .ops = &gpu_ops,
                .shape = *options->shape,
                .page_tokens = options->page_tokens,
                .max_pages = options->max_pages,
                .tensors = options->tensors,
        };
        r = open_device(g, options->device);
        if (!r)
                r = load_kernels(g, options->kernels);
        if (!r)
                r = alloc_scratch(g);
        if (r) {
                gpu_free(&g->kv);
                return r;
        }
        place_all(g);
        *ret_kv = &g->kv;
        return 0;
}

void *gpu_stream(struct model_kv *kv)
{
        return ((struct gpu *)kv)->stream;
}

int gpu_wait(struct model_kv *kv)
{
        struct gpu *g = (struct gpu *)kv;

        return DRIVER(g, StreamSynchronize, g->stream);
}
