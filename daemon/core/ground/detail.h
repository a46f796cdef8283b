/* A sentence for people that goes with a status: names the thing, the limit and the remedy. */
#ifndef KVL_CORE_DETAIL_H
#define KVL_CORE_DETAIL_H

#include "base/macros.h"

struct detail {
        char text[1024]; /* two layouts with the longest names fit */
};

/* Sets the sentence, returns `code`, so that `return detail_set(d, -EINVAL, "...")` works. d may be
 * NULL. */
KVL_PRINTF(3, 4) int detail_set(struct detail *d, int code, const char *format, ...);

#endif
