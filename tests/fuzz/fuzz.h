/* Called by libFuzzer and run-corpus.c. Returns 0; aborts if a property doesn't hold. */
#ifndef KVL_TESTS_FUZZ_H
#define KVL_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* assert() in every build type. */
#define CHECK(condition)                                                                \
        do {                                                                            \
                if (!(condition)) {                                                     \
                        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
                        abort();                                                        \
                }                                                                       \
        } while (0)

#endif
