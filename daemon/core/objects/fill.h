/*
 * A page that is being filled where it lies: moves/fill.h.
 */
#ifndef KVL_CORE_OBJECTS_FILL_H
#define KVL_CORE_OBJECTS_FILL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct extent_set;
struct ns;

/* Who writes the bytes. */
struct fill_writer {
        /* The page's memory goes: when this returns nobody writes there any more, and the fill is
         * gone. */
        void (*stop)(void *data);
        void *data; /* borrowed */
};

struct fill {
        struct list_link link; /* extent_set.moving.fills */
        struct ns *ns;         /* borrowed */
        struct extent_set *set;
        uint32_t page;
        struct fill_writer writer;
        bool is_unwanted; /* the page was given back: it is MOVING, and this one's */
};

#endif
