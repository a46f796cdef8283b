/* Misspelt words of command lines and configuration files. */
#ifndef KVL_BASE_WORDS_H
#define KVL_BASE_WORDS_H

#include <stddef.h>

struct option; /* of <getopt.h> */

/* Returns the i-th known name; NULL: leave this one out. */
typedef const char *(*word_name_fn)(const void *data, size_t i);

/* Returns the name that `wrong` most likely means: the first one that it begins, else the one with
 * the fewest wrong letters, at most two. NULL: none is near. Words of more than 31 bytes are near
 * no name. */
const char *nearest_name(const char *wrong, size_t n, word_name_fn name, const void *data);

/* Explains why getopt_long() returned '?' with opterr 0. `arg` is argv[optind - 1], `longs` its
 * table, `program` has the --help to read. Writes one sentence without a newline to buf, cut to
 * WORDS_FAULT_MAX. It has the bytes of `arg` as they are. Reads optopt. Returns buf. */
#define WORDS_FAULT_MAX 512
const char *option_fault(const char *program, const char *arg, const struct option *longs,
        char buf[WORDS_FAULT_MAX]);

#endif
