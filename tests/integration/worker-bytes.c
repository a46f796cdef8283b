/* Bytes of pages; declared in worker.h. */
#include <errno.h>
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

int worker_page_fill(struct kvl_ns *ns, uint32_t page, unsigned plane, uint64_t seed)
{
        uint64_t bytes = info_of(ns).plane_page_bytes, piece[PIECE / 8];
        int r = 0;

        for (uint64_t at = 0; at < bytes && r == 0; at += PIECE) {
                pattern_fill_from(piece, MIN(PIECE, bytes - at), seed, plane, at);
                r = kvl_page_write(ns, page, plane, at, piece, MIN(PIECE, bytes - at));
        }
        return r;
}

bool worker_page_copy_matches(struct kvl_ns *ns, uint32_t page, unsigned plane, uint64_t seed)
{
        uint64_t bytes = info_of(ns).plane_page_bytes, piece[PIECE / 8];

        for (uint64_t at = 0; at < bytes; at += PIECE)
                if (kvl_page_read(ns, page, plane, at, piece, MIN(PIECE, bytes - at)) != 0 ||
                        !pattern_matches_from(piece, MIN(PIECE, bytes - at), seed, plane, at))
                        return false;
        return true;
}

bool worker_page_matches(struct kvl_ns *ns, uint32_t page, unsigned plane, uint64_t seed)
{
        struct kvl_ns_info info = info_of(ns);
        const void *at = kvl_page_ptr(ns, page, plane);

        if (!at)
                return false;
        if (!info.is_cpu_memory)
                return worker_page_copy_matches(ns, page, plane, seed);
        return pattern_matches(at, info.plane_page_bytes, seed, plane);
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
