#include "client/lib/objects/args.h"

#include <errno.h>

#include "client/lib/connection/error.h"

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
