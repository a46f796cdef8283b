/*
 * The calling thread's last error: one sentence, for kvl_last_error(). Also used by kvleasectl.
 * Thread-local; nothing here allocates.
 */
#ifndef KVL_LIB_ERROR_H
#define KVL_LIB_ERROR_H

#include "base/macros.h"

/* The daemon's longest sentence (proto: detail), which may name two layouts. */
#define ERROR_TEXT_BYTES 1024

/* Notes the sentence, cut to ERROR_TEXT_BYTES; returns `code`. Keeps errno. */
int error_set(int code, const char *format, ...) KVL_PRINTF(2, 3);

/* Notes `sentence`, or the code's own text if that is empty; returns `code`. 0 keeps the last
 * error. */
int error_note(int code, const char *sentence);

/* The last error: never NULL, valid until the thread's next error. */
const char *error_get(void);

#endif
