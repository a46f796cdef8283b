/* Intrusive doubly linked list with a sentinel. A list_link is embedded in the linked struct. An
 * unlinked link points at itself, so list_remove() is idempotent. Not thread-safe. */
#ifndef KVL_BASE_LIST_H
#define KVL_BASE_LIST_H

#include <stdbool.h>

#include "base/macros.h"

struct list_link {
        struct list_link *prev, *next;
};

static inline void list_init(struct list_link *l)
{
        l->prev = l->next = l;
}

static inline bool list_is_empty(const struct list_link *l)
{
        return l->next == l;
}

static inline void list_insert_before(struct list_link *at, struct list_link *l)
{
        l->prev = at->prev;
        l->next = at;
        at->prev->next = l;
        at->prev = l;
}

static inline void list_append(struct list_link *head, struct list_link *l)
{
        list_insert_before(head, l);
}

static inline void list_prepend(struct list_link *head, struct list_link *l)
{
        list_insert_before(head->next, l);
}

static inline void list_remove(struct list_link *l)
{
        l->prev->next = l->next;
        l->next->prev = l->prev;
        list_init(l);
}

/* Moves all of `from` to *ret_head, in order. Later additions to `from` aren't included. */
static inline void list_take_all(struct list_link *from, struct list_link *ret_head)
{
        list_init(ret_head);
        while (!list_is_empty(from)) {
                struct list_link *l = from->next;

                list_remove(l);
                list_append(ret_head, l);
        }
}

#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_first(head, type, member) \
        (list_is_empty(head) ? NULL : list_entry((head)->next, type, member))
#define list_last(head, type, member) \
        (list_is_empty(head) ? NULL : list_entry((head)->prev, type, member))

#define list_for_each(it, head, type, member)                                          \
        for (type *it = list_entry((head)->next, type, member); &it->member != (head); \
                it = list_entry(it->member.next, type, member))

/* The body may remove `it`, nothing else. */
#define list_for_each_safe(it, head, type, member)                        \
        for (type *it = list_entry((head)->next, type, member),           \
                  *it##_next = list_entry(it->member.next, type, member); \
                &it->member != (head);                                    \
                it = it##_next, it##_next = list_entry(it##_next->member.next, type, member))

#endif
