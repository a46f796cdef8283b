/* Bytes of pages; declared in worker.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/pattern.h"
#include "tests/integration/worker.h"

#define PIECE UINT64_C(4096) /* bytes copied at a time; not tuned */

static struct kvl_ns_info info_of(const struct kvl_ns *ns)
{
        struct kvl_ns_info info = {.size = sizeof(info)};

        kvl_ns_info(ns, &info);
        return info;
}

/* A matrix of worker_layout(): tokens by channels, 2 KiB. */
#define N_CHANNELS     32
#define MATRIX_NUMBERS 512

/* Numbers that int8 stores exactly: whole numbers; each channel has the greatest one. */
static void make_numbers(uint64_t *piece, uint64_t bytes, uint64_t at)
{
        for (uint64_t i = 0; i < bytes / 4; i++) {
                uint8_t *where = (uint8_t *)piece + i * 4;
                float number = 127;
                uint32_t word;

                memcpy(&word, where, sizeof(word));
                if ((at / 4 + i) % MATRIX_NUMBERS >= N_CHANNELS)
                        number = (float)((int)(word % 255) - 127);
                memcpy(where, &number, sizeof(number));
        }
}

/* Contents of a page there: bytes that follow from the seed or, with KVL_WORKER_NUMBERS, numbers
 * that do. */
static void make_piece(uint64_t *piece, uint64_t bytes, uint64_t seed, unsigned plane, uint64_t at)
{
        pattern_fill_from(piece, bytes, seed, plane, at);
        if (getenv("KVL_WORKER_NUMBERS"))
                make_numbers(piece, bytes, at);
}

int worker_page_fill(struct kvl_ns *ns, uint32_t page, unsigned plane, uint64_t seed)
{
        uint64_t bytes = info_of(ns).plane_page_bytes, piece[PIECE / 8];
        int r = 0;

        for (uint64_t at = 0; at < bytes && r == 0; at += PIECE) {
                make_piece(piece, MIN(PIECE, bytes - at), seed, plane, at);
                r = kvl_page_write(ns, page, plane, at, piece, MIN(PIECE, bytes - at));
        }
        return r;
}

bool worker_page_copy_matches(struct kvl_ns *ns, uint32_t page, unsigned plane, uint64_t seed)
{
        uint64_t bytes = info_of(ns).plane_page_bytes, piece[PIECE / 8], wanted[PIECE / 8];

        for (uint64_t at = 0; at < bytes; at += PIECE) {
                const uint64_t n = MIN(PIECE, bytes - at);

                make_piece(wanted, n, seed, plane, at);
                if (kvl_page_read(ns, page, plane, at, piece, n) != 0 ||
                        memcmp(piece, wanted, n) != 0)
                        return false;
        }
        return true;
}

bool worker_page_matches(struct kvl_ns *ns, uint32_t page, unsigned plane, uint64_t seed)
{
        struct kvl_ns_info info = info_of(ns);
        const uint8_t *bytes = kvl_page_ptr(ns, page, plane);
        uint64_t wanted[PIECE / 8];

        if (!bytes)
                return false;
        if (!info.is_cpu_memory)
                return worker_page_copy_matches(ns, page, plane, seed);
        for (uint64_t at = 0; at < info.plane_page_bytes; at += PIECE) {
                const uint64_t n = MIN(PIECE, info.plane_page_bytes - at);

                make_piece(wanted, n, seed, plane, at);
                if (memcmp(bytes + at, wanted, n) != 0)
                        return false;
        }
        return true;
}

bool worker_page_is_zero(struct kvl_ns *ns, uint32_t page, unsigned plane)
{
        uint64_t bytes = info_of(ns).plane_page_bytes, n;
        char piece[PIECE];

        for (uint64_t at = 0; at < bytes; at += n) {
                n = MIN(PIECE, bytes - at);
                if (kvl_page_read(ns, page, plane, at, piece, n) != 0 || piece[0] != 0 ||
                        memcmp(piece, piece + 1, n - 1) != 0)
                        return false;
        }
        return true;
}

int worker_page_poke(struct kvl_ns *ns, uint32_t page, unsigned plane, uint64_t offset, char byte)
{
        volatile char *at = kvl_page_ptr(ns, page, plane);

        if (!info_of(ns).is_cpu_memory)
                return kvl_page_write(ns, page, plane, offset, &byte, 1);
        if (!at)
                return -ENOENT;
        at[offset] = byte;
        return 0;
}

int worker_page_peek(
        struct kvl_ns *ns, uint32_t page, unsigned plane, uint64_t offset, char *ret_byte)
{
        volatile const char *at = kvl_page_ptr(ns, page, plane);

        if (!info_of(ns).is_cpu_memory)
                return kvl_page_read(ns, page, plane, offset, ret_byte, 1);
        if (!at)
                return -ENOENT;
        *ret_byte = at[offset];
        return 0;
}
