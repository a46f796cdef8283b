#include "daemon/server/objects/tier-name.h"

const char *tier_name(enum tier_kind kind)
{
        static const char *const names[TIER_COUNT] = {
                [TIER_DEVICE] = "device",
                [TIER_HOST] = "host",
                [TIER_DISK] = "disk",
        };

        return names[kind];
}
