#include "lab/tune/weights.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/decoder/trained.h"

#define MAGIC "KVLDECW1"

/* Limit on a file: larger models are too slow for this decoder. */
#define FILE_BYTES_MAX (UINT64_C(1) << 28)

/* Returns 0 if no model has this shape. */
static uint64_t count_values(const struct trained_header *h)
{
        const uint64_t most = 1 << 16;
        uint64_t width = h->width, ffn = h->ffn_width, kv_width, layer;

        if (h->n_layers < 1 || h->n_layers > most || width < 1 || width > most || ffn < 1 ||
                ffn > most || h->n_heads < 1 || h->n_heads > width || h->n_kv_heads > h->n_heads)
                return 0;
        kv_width = width / h->n_heads * h->n_kv_heads;
        layer = 2 * width + 2 * width * width + 2 * width * kv_width + 3 * width * ffn;
        return 2 * MODEL_VOCAB * width + width + h->n_layers * layer;
}

static bool are_weights(const unsigned char *bytes, size_t n)
{
        struct trained_header header;

        if (n < sizeof(header))
                return false;
        memcpy(&header, bytes, sizeof(header));
        return memcmp(header.magic, MAGIC, sizeof(header.magic)) == 0 &&
               (n - sizeof(header)) / sizeof(uint16_t) == count_values(&header) &&
               (n - sizeof(header)) % sizeof(uint16_t) == 0;
}

/* Reads the whole file. *ret: owned. Returns 0, -EINVAL: it is too large, -errno. */
static int read_all(FILE *file, unsigned char **ret, size_t *ret_n)
{
        long n = -1;

        if (fseek(file, 0, SEEK_END) == 0)
                n = ftell(file);
        if (n < 0 || fseek(file, 0, SEEK_SET) != 0)
                return -errno;
        if ((uint64_t)n > FILE_BYTES_MAX)
                return -EINVAL;
        *ret = malloc((size_t)n + 1);
        if (!*ret)
                return -ENOMEM;
        *ret_n = fread(*ret, 1, (size_t)n, file);
        return ferror(file) ? -EIO : 0;
}

int weights_read(const char *path)
{
        FILE *file = fopen(path, "re");
        unsigned char *bytes = NULL;
        size_t n = 0;
        int r;

        if (!file)
                return -errno;
        r = read_all(file, &bytes, &n);
        fclose(file);
        if (r == 0 && !are_weights(bytes, n))
                r = -EINVAL;
        if (r < 0)
                free(bytes);
        else
                trained_use(bytes, n);
        return r;
}
