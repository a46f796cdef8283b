/* Recognizes files that are no traces by their first bytes. */
#ifndef KVL_TRACE_OTHER_H
#define KVL_TRACE_OTHER_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a file that begins with `head` (all of it, or thousands of bytes) is no JSON lines. Then
 * a clause in `why` names its kind, and how to make a trace of it. */
bool trace_is_other(const char *head, size_t len, char *why, size_t size);

#endif
