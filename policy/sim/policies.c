#include "policy/sim/policies.h"

#include <stddef.h>
#include <string.h>

const struct evict_ops *const sim_policies[] = {
        &evict_pgi,
        &evict_lru,
        &evict_s3fifo,
        &evict_fifo,
        &evict_lfu,
        &evict_sieve,
        &evict_arc,
        &evict_lru2,
        &evict_gdsf,
        &evict_optimum,
        NULL,
};

const struct evict_ops *sim_policy_find(const char *name)
{
        for (const struct evict_ops *const *p = sim_policies; *p; p++)
                if (strcmp((*p)->name, name) == 0)
                        return *p;
        return NULL;
}
