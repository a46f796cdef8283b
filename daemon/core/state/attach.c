#include "daemon/core/state/group.h"

#include "daemon/core/state/detail.h"
#include "proto/status.h"

int attach_check_version(const struct attach *a, struct detail *d)
{
        if (a->version_epoch == a->ns->version_epoch)
                return 0;
        return detail_set(d, KVL_STATUS_STALE,
                "namespace %s has version %s now; close it and open it with that version",
                a->ns->name, a->ns->layout.version);
}

struct attach *attach_find(struct member *m, uint32_t id)
{
        list_for_each (a, &m->attachments, struct attach, member_link)
                if (a->id == id)
                        return a;
        return NULL;
}
