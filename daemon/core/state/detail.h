/* A sentence for people that explains a status: it names the thing, the limit and the remedy. */
#ifndef KVL_CORE_DETAIL_H
#define KVL_CORE_DETAIL_H

#include "base/macros.h"

struct detail {
        char text[1024]; /* two layouts with the longest names fit */
};

/* Sets the sentence and returns `code`, for `return detail_set(d, -EINVAL, "...")`. d may be NULL.
 */
KVL_PRINTF(3, 4) int detail_set(struct detail *d, int code, const char *format, ...);

#endif
