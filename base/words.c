#include "base/words.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"

#define NAME_MAX_LEN 31

/* Returns the edits (insert, drop, replace a letter) between two names of at most NAME_MAX_LEN
 * bytes; UINT_MAX: `b` is longer. */
static unsigned edit_distance(const char *a, const char *b)
{
        unsigned row[NAME_MAX_LEN + 1];
        size_t n = strlen(b);

        if (n > NAME_MAX_LEN)
                return UINT_MAX;
        for (size_t j = 0; j <= n; j++)
                row[j] = (unsigned)j;
        for (size_t i = 1; a[i - 1]; i++) {
                unsigned diagonal = row[0];

                row[0] = (unsigned)i;
                for (size_t j = 1; j <= n; j++) {
                        unsigned replaced = diagonal + (a[i - 1] != b[j - 1]);

                        diagonal = row[j];
                        row[j] = MIN(row[j], row[j - 1]) + 1;
                        row[j] = MIN(row[j], replaced);
                }
        }
        return row[n];
}

const char *nearest_name(const char *wrong, size_t n, word_name_fn name, const void *data)
{
        const char *best = NULL;
        unsigned best_distance = 3; /* two wrong letters are a typing error, three another word */
        size_t len = strlen(wrong);

        if (len > NAME_MAX_LEN)
                return NULL;
        for (size_t i = 0; i < n; i++)
                if (len >= 2 && name(data, i) && strncmp(wrong, name(data, i), len) == 0)
                        return name(data, i);
        for (size_t i = 0; i < n; i++) {
                const char *known = name(data, i);
                unsigned d = known ? edit_distance(wrong, known) : UINT_MAX;

                /* If half of a short word is wrong it is another word, too. */
                if (d < best_distance && d <= len / 2) {
                        best = known;
                        best_distance = d;
                }
        }
        return best;
}

static const char *long_name(const void *data, size_t i)
{
        return ((const struct option *)data)[i].name;
}

/* Returns the number of long options, and lists those that start with `name` in text, as
 * "--tenant, --timeout". */
static size_t list_longs(
        const struct option *longs, const char *name, char *text, size_t size, unsigned *ret_like)
{
        size_t n = 0, len = 0;

        text[0] = '\0';
        for (*ret_like = 0; longs[n].name; n++)
                if (strncmp(longs[n].name, name, strlen(name)) == 0 && len < size)
                        len += (size_t)snprintf(text + len, size - len, "%s--%s",
                                (*ret_like)++ > 0 ? ", " : "", longs[n].name);
        return n;
}

/* Returns the long option that got a value and takes none; NULL: that isn't the fault. */
static const struct option *without_value(const struct option *longs, const char *name)
{
        for (; longs->name; longs++)
                if (longs->val == optopt && strncmp(longs->name, name, strlen(name)) == 0)
                        return longs;
        return NULL;
}

const char *option_fault(
        const char *program, const char *arg, const struct option *longs, char buf[WORDS_FAULT_MAX])
{
        char name[WORDS_FAULT_MAX / 4], like[WORDS_FAULT_MAX / 2];
        const char *text = arg + strspn(arg, "-"), *near;
        unsigned n_like;
        size_t n;

        snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, "="), text);
        n = list_longs(longs, name, like, sizeof(like), &n_like);
        near = nearest_name(name, n, long_name, longs);
        if (optopt > 0 && without_value(longs, name))
                snprintf(buf, WORDS_FAULT_MAX, "--%s takes no value",
                        without_value(longs, name)->name);
        else if (optopt > 0)
                snprintf(buf, WORDS_FAULT_MAX, "there is no option -%c: %s --help lists them",
                        optopt, program);
        else if (n_like > 1)
                snprintf(buf, WORDS_FAULT_MAX, "--%s is short for several options: %s", name, like);
        else if (near)
                snprintf(buf, WORDS_FAULT_MAX, "there is no option %.128s: did you mean --%s?", arg,
                        near);
        else
                snprintf(buf, WORDS_FAULT_MAX, "there is no option %.128s: %s --help lists them",
                        arg, program);
        return buf;
}
