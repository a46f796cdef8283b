#include "daemon/core/state/keep.h"

#include <assert.h>
#include <string.h>

static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
#define BASE 62u

char *keep_name(char buf[KEEP_NAME_BYTES], enum keep_kind kind, uint32_t number)
{
        char reversed[KEEP_NAME_BYTES];
        unsigned n = 0, i = 0;

        assert(number <= KEEP_MAX_NUMBER);

        do
                reversed[n++] = digits[number % BASE];
        while ((number /= BASE) > 0);
        buf[i++] = (char)kind;
        while (n > 0)
                buf[i++] = reversed[--n];
        buf[i] = '\0';
        return buf;
}

bool keep_parse(const char *name, enum keep_kind *ret_kind, uint32_t *ret_number)
{
        static const char kinds[] = "srijfhqegkcpabl";
        size_t len = strlen(name);
        uint32_t number = 0;

        if (len < 2 || len >= KEEP_NAME_BYTES || !strchr(kinds, name[0]))
                return false;
        if (name[1] == '0' && len > 2)
                return false; /* each number has one name */
        for (size_t i = 1; i < len; i++) {
                const char *digit = strchr(digits, name[i]);

                if (!digit)
                        return false;
                number = number * BASE + (uint32_t)(digit - digits);
        }
        *ret_kind = (enum keep_kind)name[0];
        *ret_number = number;
        return true;
}
