#include "daemon/core/memory/below.h"

#include "daemon/core/state/store.h"
#include "daemon/tier/disk.h"

bool space_takes(const struct ns *ns)
{
        const struct pool *pool = ns->tiers[TIER_DISK].pool;
        const struct disk_file *disk = pool ? pool->disk : NULL;

        return ns->space.is_ready && disk_takes(disk);
}

static bool lies_below(const struct ns *ns, enum tier_kind kind)
{
        return ns->tiers[kind].pool && (kind != TIER_DISK || space_takes(ns));
}

enum tier_kind tier_below(const struct ns *ns, enum tier_kind kind)
{
        do
                kind++;
        while (kind < TIER_COUNT && !lies_below(ns, kind));
        return kind;
}

bool tier_may_demote(const struct ns *ns, enum tier_kind kind)
{
        return ns->tiers[kind].pool && tier_below(ns, kind) < TIER_COUNT;
}

bool demote_is_possible(const struct ns *ns)
{
        return tier_may_demote(ns, TIER_DEVICE);
}

void demote_note_taken(struct ns *ns)
{
        struct store *s = ns->store;

        if (!tier_may_demote(ns, TIER_DEVICE))
                return;
        ns->demotion.may_be_due = true;
        if (s->owner.on_transfer_work)
                s->owner.on_transfer_work(s->owner.data);
}
