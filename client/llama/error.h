/* The sentence of the calling thread's last failure. */
#ifndef KVL_LLAMA_ERROR_H
#define KVL_LLAMA_ERROR_H

/* Keeps a sentence. Returns code. */
int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Does fail() with libkvlease's sentence for a failure of its own; 0 and KVL_MISS are none. */
int fail_as(int code);

#endif
