#include "daemon/core/cache/tag.h"

#include <errno.h>
#include <stdlib.h>

#include "base/fault-point.h"
#include "base/map.h"

struct tags {
        struct map heads; /* tag - 1 -> the tag's first page */
};

static uint64_t *head_of(const struct ns *ns, uint64_t tag)
{
        return ns->catalog.tags ? map_find(&ns->catalog.tags->heads, tag - 1) : NULL;
}

int tag_reserve(struct ns *ns)
{
        if (!ns->catalog.tags) {
                ns->catalog.tags = calloc(1, sizeof(*ns->catalog.tags));
                if (!ns->catalog.tags)
                        return -ENOMEM;
                map_init(&ns->catalog.tags->heads);
        }
        return map_reserve(&ns->catalog.tags->heads, 1);
}

void tag_store(struct ns *ns, uint32_t page, uint64_t tag)
{
        if (tag != 0 || ns_note(ns, page)->has_extra)
                ns_make_extra(ns, page)->tag = tag;
}

void tag_add(struct ns *ns, uint32_t page, uint64_t tag)
{
        if (ns_extra(ns, page)->tag != 0)
                return;
        FAULT_POINT("tag-before-store");
        tag_store(ns, page, tag);
        FAULT_POINT("tag-after-store");
        tag_enter(ns, page);
}

void tag_enter(struct ns *ns, uint32_t page)
{
        struct page_extra *extra = ns_make_extra(ns, page);
        uint64_t tag = extra->tag, *head = head_of(ns, tag);
        int r;

        extra->tag_prev = 0;
        extra->tag_next = head ? (uint32_t)*head + 1 : 0;
        if (head)
                ns_make_extra(ns, (uint32_t)*head)->tag_prev = page + 1;
        r = map_put(&ns->catalog.tags->heads, tag - 1, page);
        assert(r == 0); /* memory was reserved */
        (void)r;
}

void tag_remove(struct ns *ns, uint32_t page)
{
        struct page_extra *extra;

        if (ns_extra(ns, page)->tag == 0)
                return;
        extra = ns_make_extra(ns, page);
        if (extra->tag_prev)
                ns_make_extra(ns, extra->tag_prev - 1)->tag_next = extra->tag_next;
        else if (extra->tag_next)
                *head_of(ns, extra->tag) = extra->tag_next - 1;
        else
                (void)map_remove(&ns->catalog.tags->heads, extra->tag - 1);
        if (extra->tag_next)
                ns_make_extra(ns, extra->tag_next - 1)->tag_prev = extra->tag_prev;
        extra->tag = 0;
        extra->tag_prev = extra->tag_next = 0;
}

void tag_moved(struct ns *ns, uint32_t page, uint32_t to)
{
        uint64_t tag = ns_extra(ns, page)->tag;

        if (tag == 0)
                return;
        tag_remove(ns, page); /* leaves space in the map if it was the last one */
        tag_add(ns, to, tag);
}

uint32_t tag_first(const struct ns *ns, uint64_t tag)
{
        const uint64_t *head = head_of(ns, tag);

        return head ? (uint32_t)*head : PAGE_NONE;
}

void tags_reset(struct ns *ns)
{
        if (!ns->catalog.tags)
                return;
        map_deinit(&ns->catalog.tags->heads);
        free(ns->catalog.tags);
        ns->catalog.tags = NULL;
}

/* ---- check ----------------------------------------------------------------------------------- */

static bool is_findable(const struct ns *ns, uint32_t page)
{
        const struct page *p = ns_page(ns, page);

        return p && p->state == PAGE_SEALED && !ns_page_is_stale(ns, p);
}

static uint64_t count_tagged(const struct ns *ns)
{
        uint32_t set_pages = ns->geometry.set_pages;
        uint64_t n = 0;

        ns_for_each_set (set, ns)
                for (uint32_t i = 0, page = set->index * set_pages; i < set_pages; i++, page++)
                        n += ns_extra(ns, page)->tag != 0 && is_findable(ns, page);
        return n;
}

const char *tags_check(const struct ns *ns)
{
        uint64_t n_left = count_tagged(ns);
        struct map_slot slot;
        size_t iter = 0;

        while (ns->catalog.tags && map_next(&ns->catalog.tags->heads, &iter, &slot)) {
                uint32_t page = (uint32_t)slot.value, before = 0, next;

                for (;; page = next - 1) {
                        const struct page_extra *extra;

                        if (!is_findable(ns, page) || n_left == 0)
                                return "a tag has a page that isn't cached, or has it twice";
                        extra = ns_extra(ns, page);
                        if (extra->tag != slot.key + 1 || extra->tag_prev != before)
                                return "a page in the list of a tag doesn't belong there";
                        n_left--;
                        next = extra->tag_next;
                        before = page + 1;
                        if (next == 0)
                                break;
                }
        }
        return n_left == 0 ? NULL : "a page with a tag isn't in the tag's list";
}
