/*
 * The calling thread's last error: one sentence, for kvl_last_error(). Also used by kvleasectl.
 * Thread-local; nothing here allocates.
 */
#ifndef KVL_LIB_ERROR_H
#define KVL_LIB_ERROR_H

#include "base/macros.h"

/* As long as a sentence of the daemon can be (proto: detail), which may name two layouts. */
#define ERROR_TEXT_BYTES 1024

/* Notes the sentence, cut to ERROR_TEXT_BYTES; returns `code`. Keeps errno. */
int error_set(int code, const char *format, ...) KVL_PRINTF(2, 3);

/* Notes `sentence`, or the code's own text where that is empty; returns `code`. 0 leaves the last
 * one alone. */
int error_note(int code, const char *sentence);

/* Never NULL, valid until the thread's next error. */
const char *error_get(void);

#endif
