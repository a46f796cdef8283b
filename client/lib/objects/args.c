#include "client/lib/objects/args.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/connection/error.h"
#include "kvlease-version.h"

int args_check_count(const char *what, uint32_t n, uint32_t max)
{
        if (n >= 1 && n <= max)
                return 0;
        return error_set(-EINVAL, "the number of %s is %u, must be 1 to %u", what, n, max);
}

int args_check_ns(const struct kvl_ns *ns)
{
        if (!ns)
                return error_set(-EINVAL, "no namespace was given");
        return client_check_process(ns->conn);
}

int args_check_pages(const struct kvl_ns *ns, const uint32_t *pages, uint32_t n, uint32_t max)
{
        int r = args_check_ns(ns);

        if (r == 0)
                r = args_check_count("pages", n, max);
        if (r < 0)
                return r;
        if (!pages)
                return error_set(-EINVAL, "no pages were given");
        for (uint32_t i = 0; i < n; i++)
                if (pages[i] >= ns->info.capacity_pages)
                        return error_set(-EINVAL, "page %u is beyond the namespace's %u pages",
                                pages[i], ns->info.capacity_pages);
        return 0;
}

int args_refuse_keys(const struct kvl_ns *ns, const uint8_t *keys, uint32_t n, uint32_t max)
{
        int r = args_check_ns(ns);

        if (r == 0)
                r = args_check_count("keys", n, max);
        if (r == 0 && !keys)
                r = error_set(-EINVAL, "no keys were given");
        return r;
}

/* ---- structs of users --------------------------------------------------------------------------
 */

/* The size field that begins the user's struct. */
static size_t size_of(const void *given)
{
        size_t size;

        memcpy(&size, given, sizeof(size));
        return size;
}

int abi_check_size(const void *given, const char *what)
{
        if (given && size_of(given) < sizeof(size_t))
                return error_set(-EINVAL, "the %s size isn't set: .size = sizeof(...)", what);
        return 0;
}

int abi_copy(void *dst, size_t size, const void *src)
{
        size_t src_size = size_of(src);
        int r = abi_check_size(src, "struct's");

        if (r < 0)
                return r;
        for (size_t i = size; i < src_size; i++)
                if (((const uint8_t *)src)[i] != 0)
                        return error_set(-EINVAL,
                                "the struct sets fields that libkvlease " KVLEASE_VERSION
                                " doesn't know: upgrade libkvlease");
        memset(dst, 0, size);
        memcpy(dst, src, MIN(size, src_size));
        return 0;
}

int abi_copy_options(void *dst, size_t size, const void *options)
{
        if (options)
                return abi_copy(dst, size, options);
        memset(dst, 0, size);
        return 0;
}

int abi_check_flags(unsigned flags, unsigned known)
{
        if (flags & ~known)
                return error_set(-EINVAL, "flags 0x%x aren't known: upgrade libkvlease", flags);
        return 0;
}

void abi_fill(void *dst, const void *src, size_t size)
{
        size_t dst_size = dst ? size_of(dst) : 0;

        /* Further fields of a newer program are left as they were. */
        if (dst_size > sizeof(dst_size))
                memcpy((uint8_t *)dst + sizeof(dst_size), (const uint8_t *)src + sizeof(dst_size),
                        MIN(dst_size, size) - sizeof(dst_size));
}
