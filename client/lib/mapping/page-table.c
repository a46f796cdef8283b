/* Page tables: the same pages as one array, and as groups. Room is made before pages are written,
 * so a failure changes nothing. Groups that a truncation empties stay for later appends. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "client/lib/connection/error.h"
#include "client/lib/kvlease.h"

#define MIN_GROUP_PAGES 16
#define MAX_GROUP_PAGES 4096
#define MIN_ROOM        16u /* pages, or groups; not tuned */

struct kvl_page_table {
        uint32_t group_pages, max_pages;
        uint32_t n_pages;
        uint32_t *flat; /* owned; flat_room entries, the first n_pages are used */
        uint32_t flat_room;
        uint32_t **groups;    /* owned, as are the first n_groups: group_pages entries each */
        uint32_t groups_room; /* of `groups` */
        uint32_t n_groups;    /* made; at least as many as n_pages need */
};

/* Groups that n_pages use. */
static uint32_t groups_of(const struct kvl_page_table *t, uint32_t n_pages)
{
        return n_pages / t->group_pages + (n_pages % t->group_pages > 0);
}

int kvl_page_table_new(uint32_t group_pages, uint32_t max_pages, struct kvl_page_table **ret_table)
{
        struct kvl_page_table *t;

        if (group_pages < MIN_GROUP_PAGES || group_pages > MAX_GROUP_PAGES ||
                (group_pages & (group_pages - 1)) != 0)
                return error_set(-EINVAL, "group_pages is %u, must be a power of two, %d to %d",
                        group_pages, MIN_GROUP_PAGES, MAX_GROUP_PAGES);
        if (!ret_table)
                return error_set(-EINVAL, "there is no room for the table");
        t = calloc(1, sizeof(*t));
        if (!t)
                return error_set(-ENOMEM, "out of memory");
        t->group_pages = group_pages;
        t->max_pages = max_pages > 0 ? max_pages : UINT32_MAX;
        *ret_table = t;
        return 0;
}

void kvl_page_table_free(struct kvl_page_table *table)
{
        if (!table)
                return;
        for (uint32_t i = 0; i < table->n_groups; i++)
                free(table->groups[i]);
        free(table->groups);
        free(table->flat);
        free(table);
}

/* ---- room --------------------------------------------------------------------------------------
 */

/* Grows an array to at least `needed` (> 0) and at most `most` items; it may move. Returns NULL if
 * out of memory (nothing changed). */
static void *grow_array(
        void *array, size_t item_bytes, uint32_t *room, uint32_t needed, uint32_t most)
{
        uint64_t next = MAX((uint64_t)*room * 2, (uint64_t)MIN_ROOM);
        void *moved;

        if (needed <= *room)
                return array;
        next = MAX(next, (uint64_t)needed);
        next = MIN(next, (uint64_t)most);
        moved = realloc(array, next * item_bytes);
        if (moved)
                *room = (uint32_t)next;
        return moved;
}

static int make_groups(struct kvl_page_table *t, uint32_t n_groups)
{
        size_t bytes = t->group_pages * sizeof(uint32_t);
        uint32_t **groups = grow_array(
                t->groups, sizeof(*groups), &t->groups_room, n_groups, groups_of(t, t->max_pages));

        if (!groups)
                return -ENOMEM;
        t->groups = groups;
        for (; t->n_groups < n_groups; t->n_groups++) {
                uint32_t *group = malloc(bytes);

                if (!group)
                        return -ENOMEM;
                memset(group, 0xff, bytes); /* KVL_PAGE_NONE */
                t->groups[t->n_groups] = group;
        }
        return 0;
}

/* Makes room for this many pages. Returns 0 or -ENOMEM (nothing changed). */
static int make_room(struct kvl_page_table *t, uint32_t n_pages)
{
        uint32_t *flat;
        int r = make_groups(t, groups_of(t, n_pages));

        if (r < 0)
                return r;
        /* Last: users of the flat array see it move. */
        flat = grow_array(t->flat, sizeof(*flat), &t->flat_room, n_pages, t->max_pages);
        if (!flat)
                return -ENOMEM;
        t->flat = flat;
        return 0;
}

/* ---- pages -------------------------------------------------------------------------------------
 */

/* Copies pages `first` to `end` of the flat array to the groups. */
static void copy_to_groups(struct kvl_page_table *t, uint32_t first, uint32_t end)
{
        for (uint32_t i = first, n; i < end; i += n) {
                uint32_t at = i % t->group_pages;

                n = MIN(end - i, t->group_pages - at);
                memcpy(t->groups[i / t->group_pages] + at, t->flat + i, n * sizeof(*t->flat));
        }
}

int kvl_page_table_append(struct kvl_page_table *table, const uint32_t *pages, uint32_t n_pages)
{
        uint32_t end;

        if (!table || (!pages && n_pages > 0))
                return error_set(-EINVAL, "a table and pages are needed");
        if (n_pages == 0)
                return 0;
        if (n_pages > table->max_pages - table->n_pages)
                return error_set(-ENOSPC, "the table has %u pages and may have %u: not %u more",
                        table->n_pages, table->max_pages, n_pages);
        end = table->n_pages + n_pages;
        if (make_room(table, end) < 0)
                return error_set(-ENOMEM, "out of memory");
        memcpy(table->flat + table->n_pages, pages, n_pages * sizeof(*pages));
        copy_to_groups(table, table->n_pages, end);
        table->n_pages = end;
        return 0;
}

int kvl_page_table_replace(struct kvl_page_table *table, uint32_t index, uint32_t page)
{
        if (!table)
                return error_set(-EINVAL, "no table was given");
        if (index >= table->n_pages)
                return error_set(
                        -EINVAL, "there is no page %u: the table has %u", index, table->n_pages);
        table->flat[index] = page;
        copy_to_groups(table, index, index + 1);
        return 0;
}

int kvl_page_table_truncate(struct kvl_page_table *table, uint32_t n_first, uint32_t n_last)
{
        uint32_t end, was;

        if (!table)
                return error_set(-EINVAL, "no table was given");
        was = table->n_pages;
        if (n_first > was || n_last > was - n_first)
                return error_set(-EINVAL, "the first %u and the last %u are more than %u pages",
                        n_first, n_last, was);
        end = n_first + n_last;
        if (end == was)
                return 0;
        memmove(table->flat + n_first, table->flat + was - n_last, n_last * sizeof(*table->flat));
        copy_to_groups(table, n_first, end);
        for (uint32_t i = end; i < was; i++)
                table->groups[i / table->group_pages][i % table->group_pages] = KVL_PAGE_NONE;
        table->n_pages = end;
        return 0;
}

/* ---- what it holds -----------------------------------------------------------------------------
 */

uint32_t kvl_page_table_n_pages(const struct kvl_page_table *table)
{
        return table ? table->n_pages : 0;
}

const uint32_t *kvl_page_table_flat(const struct kvl_page_table *table)
{
        return table && table->n_pages > 0 ? table->flat : NULL;
}

const uint32_t *const *kvl_page_table_groups(
        const struct kvl_page_table *table, uint32_t *ret_n_groups)
{
        uint32_t n_groups = table ? groups_of(table, table->n_pages) : 0;

        if (ret_n_groups)
                *ret_n_groups = n_groups;
        return n_groups > 0 ? (const uint32_t *const *)table->groups : NULL;
}
