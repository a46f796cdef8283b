#include "daemon/core/memory/blame.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/core/state/tenant.h"

static struct blame *find_blame(struct tenant *victim, const char *by)
{
        list_for_each (b, &victim->blames, struct blame, link)
                if (strcmp(b->by, by) == 0)
                        return b;
        return NULL;
}

static unsigned count_blames(const struct tenant *victim)
{
        unsigned n = 0;

        list_for_each (b, &victim->blames, struct blame, link)
                n++;
        return n;
}

static struct blame *add_blame(struct tenant *victim, const char *by)
{
        struct blame *b = calloc(1, sizeof(*b));

        if (!b)
                return NULL;
        memcpy(b->by, by, strlen(by) + 1);
        list_append(&victim->blames, &b->link);
        return b;
}

void blame_note(struct tenant *victim, const struct tenant *by, uint64_t pages, uint64_t sets)
{
        const char *name = by ? by->name : "";
        struct blame *b = find_blame(victim, name);

        if (!b && count_blames(victim) >= BLAME_MAX) {
                name = BLAME_OTHERS;
                b = find_blame(victim, name);
        }
        if (!b)
                b = add_blame(victim, name);
        if (!b)
                return;
        b->pages += pages;
        b->sets += sets;
}

void blame_free(struct tenant *victim)
{
        list_for_each_safe (b, &victim->blames, struct blame, link) {
                list_remove(&b->link);
                free(b);
        }
}
