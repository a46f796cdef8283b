#include "daemon/core/cache/lines.h"

#include "daemon/core/cache/history.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/shared.h"

/* How many victims ahead have their lines prefetched, and then their keys' lines; and the pages
 * prefetched per call until then. Not tuned. */
#define PAGES_AHEAD UINT32_C(8)
#define KEYS_AHEAD  UINT32_C(4)
#define AT_ONCE     2

void lines_prefetch_used(const struct ns *ns, uint32_t page)
{
        if (page >= ns->geometry.capacity_pages)
                return;
        tree_prefetch(&ns->tree, page);
        __builtin_prefetch(&ns->records.pages[page], 1);
        if (ns->evict->prefetch)
                ns->evict->prefetch(ns->policy, page);
}

void lines_prefetch_page(const struct ns *ns, uint32_t page)
{
        if (page >= ns->geometry.capacity_pages)
                return;
        lines_prefetch_used(ns, page);
        __builtin_prefetch(&ns->records.notes[page], 1);
        __builtin_prefetch(&ns->shared.lines[page], 1);
}

void lines_prefetch_key(const struct ns *ns, const uint8_t key[KEY_BYTES])
{
        uint64_t id = store_hash_key(ns->store, key);

        shared_prefetch(&ns->shared, shared_hash(&ns->shared, key));
        history_prefetch(ns, id);
        if (ns->evict->prefetch_id)
                ns->evict->prefetch_id(ns->policy, id);
}

static void prefetch_pins(const struct ns *ns, uint32_t page)
{
        list_for_each (a, &ns->clients.attachments, struct attach, ns_link)
                if (pins_is_open(&a->share))
                        __builtin_prefetch((const uint32_t *)a->share.counters + page);
}

/* Moves one page up. Returns false at the beginning of the text. */
static bool go_up(const struct ns *ns, uint32_t *page)
{
        uint32_t up = tree_has(&ns->tree, *page) ? tree_parent(&ns->tree, *page) : NODE_NONE;

        if (up == NODE_NONE)
                return false;
        *page = up;
        return true;
}

/* The next victim was the predicted one. */
static void come_closer(struct lines_ahead *a, uint32_t victim)
{
        if (victim != a->next)
                a->n_pages = a->n_keys = 0;
        if (a->n_pages > 0)
                a->n_pages--;
        else
                a->page = victim;
        if (a->n_keys > 0)
                a->n_keys--;
        else
                a->key = victim;
}

void lines_prefetch_victims(struct lines_ahead *a, const struct ns *ns, uint32_t victim)
{
        come_closer(a, victim);
        a->next = tree_parent(&ns->tree, victim);
        for (unsigned i = 0; i < AT_ONCE && a->n_pages < PAGES_AHEAD && go_up(ns, &a->page); i++) {
                lines_prefetch_page(ns, a->page);
                prefetch_pins(ns, a->page);
                a->n_pages++;
        }
        for (unsigned i = 0;
                i < AT_ONCE && a->n_keys < MIN(a->n_pages, KEYS_AHEAD) && go_up(ns, &a->key); i++) {
                lines_prefetch_key(ns, ns_page(ns, a->key)->key);
                a->n_keys++;
        }
}
