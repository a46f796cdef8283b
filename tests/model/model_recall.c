/* Recalls of sets from clients. */
#include <errno.h>

#include "daemon/core/clients/attach.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/reclaim/recall.h"
#include "tests/model/model.h"

/* Bytes of the tenant's sets that are recalled. */
uint64_t recalled_bytes(int t)
{
        uint64_t bytes = 0;

        for (int i = 0; i < N_NS; i++)
                for (uint32_t set = 0; set < MAX_SETS; set++)
                        bytes += spaces[t][i].recalled[set] ? spaces[t][i].set_bytes : 0;
        return bytes;
}

/* The wanted bytes were recalled, in whole sets, or all there were. Sets in use only by pages in
 * magazines were freed before. */
void check_recalled(int t, uint64_t wanted, uint64_t bytes, unsigned taken_before)
{
        CHECK(bytes < wanted + EXTENT_BYTES, "%llu bytes recalled", (unsigned long long)bytes);
        CHECK(bytes >= wanted || n_taken_back > taken_before || recalled_bytes(t) == usage_of(t),
                "only %llu bytes recalled", (unsigned long long)bytes);
}

void op_recall(void)
{
        uint32_t t = rnd(N_TENANTS);
        struct model_ns *only = rnd(2) ? &spaces[t][rnd(N_NS)] : NULL;
        uint64_t wanted = rnd(8) ? 1 + rnd(4096) : UINT64_MAX - EXTENT_BYTES, bytes;
        unsigned taken = n_taken_back;

        op = "recall";
        if (only && !only->exists)
                return;
        recall_sets(tenants[t], only ? real_ns(only) : NULL, wanted, rnd(2) ? 1 + rnd(5000) : 0);
        bytes = learn_recalled(true);
        learn(NULL, MAY_TAKE_BACK);
        CHECK(bytes < wanted + EXTENT_BYTES, "%llu bytes recalled", (unsigned long long)bytes);
        if (!only)
                check_recalled((int)t, wanted, bytes, taken);
}

static void check_purged(const struct model_ns *ns)
{
        for (int key = 0; key < N_KEYS; key++)
                CHECK(!ns->exists || ns->where[key] == NONE ||
                                !ns->recalled[(uint32_t)ns->where[key] / ns->set_pages],
                        "key %d is still cached in a recalled set", key);
}

void op_recall_work(void)
{
        enum recall_next next;

        op = "recall work";
        if (rnd(2))
                recall_poll(&store);
        next = recall_work(&store, now_nsec, 1000, 1 + rnd(rnd(4) ? 20 : 1000));
        CHECK((next == RECALL_NOTHING) == list_is_empty(&store.recalls.sets), "%d", (int)next);
        learn(NULL, MAY_PURGE);
        for (int t = 0; next != RECALL_MORE && t < N_TENANTS; t++)
                for (int i = 0; i < N_NS; i++)
                        check_purged(&spaces[t][i]);
}

bool set_is_used(const struct model_ns *ns, uint32_t set)
{
        for (uint32_t i = 0; i < ns->set_pages; i++)
                if (ns->pages[set * ns->set_pages + i].state != M_FREE)
                        return true;
        return false;
}

/* Picks a set that may be given back, if there is one. */
static struct model_attach *pick_idle(struct model_ns **ret_ns, uint32_t *ret_set)
{
        uint32_t start = rnd(N_MEMBERS * N_NS);

        for (uint32_t i = 0; i < N_MEMBERS * N_NS; i++) {
                uint32_t k = (start + i) % (N_MEMBERS * N_NS);
                struct model_member *m = &members[k / N_NS];
                struct model_ns *ns = &spaces[m->tenant][k % N_NS];
                struct model_attach *a = &m->attach[k % N_NS];

                for (uint32_t set = 0; m->real && a->real && set < MAX_SETS; set++)
                        if (a->mapped[set] && ns->recalled[set] && !set_is_used(ns, set)) {
                                *ret_ns = ns;
                                *ret_set = set;
                                return a;
                        }
        }
        return NULL;
}

void op_unmapped(void)
{
        struct model_member *m;
        struct model_attach *a;
        struct model_ns *ns;
        struct detail d;
        uint32_t set;
        int r;

        op = "unmapped";
        a = rnd(4) ? pick_idle(&ns, &set) : NULL;
        if (!a) {
                a = any_attach(&m, &ns);
                set = a ? rnd(ns->n_pages / ns->set_pages) : 0;
        }
        if (!a)
                return;
        r = attach_unmapped(a->real, set, &d);
        if (!a->mapped[set])
                CHECK(r == -ENOENT, "%d", r);
        else if (!ns->recalled[set] || set_is_used(ns, set))
                CHECK(r == -EBUSY, "%d", r);
        else
                CHECK(r == 0, "%d: %s", r, d.text);
        if (r != 0)
                return;
        n_unmapped++;
        a->mapped[set] = false;
}
