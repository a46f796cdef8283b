#include "daemon/server/peers/tier-name.h"

#include "daemon/core/state/pool.h"

const char *tier_name(enum tier_kind kind)
{
        static const char *const names[TIER_COUNT] = {
                [TIER_DEVICE] = "device",
                [TIER_HOST] = "host",
                [TIER_DISK] = "disk",
        };

        return names[kind];
}

const char *pool_device_name(const struct pool *pool)
{
        while (pool->above)
                pool = pool->above;
        return pool->props->name;
}
