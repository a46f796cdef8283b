#include "policy/evict.h"

#include <stddef.h>
#include <string.h>

const struct evict_ops *const evict_policies[] = {&evict_pgi, &evict_lru, NULL};

const struct evict_ops *evict_find(const char *name)
{
        for (const struct evict_ops *const *p = evict_policies; *p; p++)
                if (strcmp((*p)->name, name) == 0)
                        return *p;
        return NULL;
}

void evict_usage(const struct evict_ops *ops, const void *policy, struct evict_usage *ret)
{
        *ret = (struct evict_usage){0};
        if (ops->usage)
                ops->usage(policy, ret);
        else
                ret->page_bytes = ops->memory_bytes(policy);
}
