#include "base/parse.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"

/* More decimals than binary units below 2^60 can tell apart. */
#define FRACTION_DIGITS_MAX 18

struct unit {
        const char *name;
        uint64_t factor;
};

static bool is_digit(char c)
{
        return c >= '0' && c <= '9';
}

static const struct unit *unit_find(const struct unit *units, size_t n, const char *name)
{
        for (size_t i = 0; i < n; i++)
                if (strcmp(units[i].name, name) == 0)
                        return &units[i];
        return NULL;
}

/* Reads digits from *s and advances *s. Returns 0, -EINVAL without any, -ERANGE. */
static int take_digits(const char **s, uint64_t *ret_value)
{
        const char *p = *s;
        uint64_t value = 0;
        bool fits = true;

        if (!is_digit(*p))
                return -EINVAL;
        for (; is_digit(*p); p++)
                if (__builtin_mul_overflow(value, 10u, &value) ||
                        __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
                        fits = false;
        *s = p;
        if (!fits)
                return -ERANGE;
        *ret_value = value;
        return 0;
}

int parse_u64(const char *s, uint64_t *ret_value)
{
        uint64_t value = 0;
        int r = take_digits(&s, &value);

        if (r == -EINVAL || *s)
                return -EINVAL;
        if (r == 0)
                *ret_value = value;
        return r;
}

/* Reads ".DIGITS" if present: the fraction is *ret_num / *ret_den, else 0 / 1. Returns 0, -EINVAL
 * if no digit follows the point, -ERANGE past FRACTION_DIGITS_MAX. */
static int take_fraction(const char **s, uint64_t *ret_num, uint64_t *ret_den)
{
        const char *p = *s;
        uint64_t den = 1;
        int r;

        *ret_num = 0;
        *ret_den = 1;
        if (*p != '.')
                return 0;
        p++;
        r = take_digits(&p, ret_num);
        if (r == 0 && p - *s - 1 > FRACTION_DIGITS_MAX)
                r = -ERANGE;
        if (r == -EINVAL)
                return r;
        for (const char *digit = *s + 1; digit < p && r == 0; digit++)
                den *= 10;
        *s = p;
        *ret_den = den;
        return r;
}

int parse_bytes(const char *s, uint64_t *ret_bytes)
{
        static const struct unit units[] = {
                {"", 1},
                {"B", 1},
                {"K", UINT64_C(1) << 10},
                {"KB", UINT64_C(1) << 10},
                {"KiB", UINT64_C(1) << 10},
                {"M", UINT64_C(1) << 20},
                {"MB", UINT64_C(1) << 20},
                {"MiB", UINT64_C(1) << 20},
                {"G", UINT64_C(1) << 30},
                {"GB", UINT64_C(1) << 30},
                {"GiB", UINT64_C(1) << 30},
                {"T", UINT64_C(1) << 40},
                {"TB", UINT64_C(1) << 40},
                {"TiB", UINT64_C(1) << 40},
                {"P", UINT64_C(1) << 50},
                {"PB", UINT64_C(1) << 50},
                {"PiB", UINT64_C(1) << 50},
        };
        uint64_t whole = 0, num, den, bytes;
        const struct unit *unit;
        int whole_r, fraction_r;

        whole_r = take_digits(&s, &whole);
        if (whole_r == -EINVAL)
                return whole_r;
        fraction_r = take_fraction(&s, &num, &den);
        if (fraction_r == -EINVAL)
                return fraction_r;
        unit = unit_find(units, ARRAY_SIZE(units), s);
        if (!unit || (unit->factor == 1 && den > 1))
                return -EINVAL; /* there is no half byte */
        if (whole_r < 0 || fraction_r < 0)
                return -ERANGE;
        /* num < 10^18 and factor <= 2^50: the product fits 128 bits, the quotient 64. */
        bytes = (uint64_t)((unsigned __int128)num * unit->factor / den);
        if (__builtin_mul_overflow(whole, unit->factor, &whole) ||
                __builtin_add_overflow(whole, bytes, &bytes))
                return -ERANGE;
        *ret_bytes = bytes;
        return 0;
}

/* Units of durations: a bare number's, then from the smallest. */
static const struct unit durations[] = {
        {"", NSEC_PER_SEC},
        {"ms", NSEC_PER_MSEC},
        {"s", NSEC_PER_SEC},
        {"min", 60 * NSEC_PER_SEC},
        {"h", 3600 * NSEC_PER_SEC},
        {"d", 86400 * NSEC_PER_SEC},
};

int parse_duration(const char *s, uint64_t *ret_nsec)
{
        const struct unit *unit;
        uint64_t value = 0;
        int r = take_digits(&s, &value);

        if (r == -EINVAL)
                return r;
        unit = unit_find(durations, ARRAY_SIZE(durations), s);
        if (!unit)
                return -EINVAL;
        if (r < 0 || __builtin_mul_overflow(value, unit->factor, &value))
                return -ERANGE;
        *ret_nsec = value;
        return 0;
}

int parse_bool(const char *s, bool *ret_value)
{
        static const struct {
                const char *name;
                bool value;
        } names[] = {
                {"yes", true},
                {"no", false},
                {"true", true},
                {"false", false},
                {"on", true},
                {"off", false},
                {"1", true},
                {"0", false},
        };

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (strcmp(s, names[i].name) == 0) {
                        *ret_value = names[i].value;
                        return 0;
                }
        return -EINVAL;
}

/* Returns the value of a hexadecimal digit, -1 for anything else. */
static int hex_value(char c)
{
        if (is_digit(c))
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        if (c >= 'A' && c <= 'F')
                return c - 'A' + 10;
        return -1;
}

int parse_hex(const char *s, void *ret_data, size_t len)
{
        uint8_t *data = ret_data;

        if (strlen(s) != 2 * len)
                return -EINVAL;
        for (size_t i = 0; i < 2 * len; i++)
                if (hex_value(s[i]) < 0)
                        return -EINVAL;
        for (size_t i = 0; i < len; i++)
                data[i] = (uint8_t)(hex_value(s[2 * i]) << 4 | hex_value(s[2 * i + 1]));
        return 0;
}

char *format_hex(const void *data, size_t len, char *buf)
{
        static const char digits[] = "0123456789abcdef";
        const uint8_t *p = data;

        for (size_t i = 0; i < len; i++) {
                buf[2 * i] = digits[p[i] >> 4];
                buf[2 * i + 1] = digits[p[i] & 15];
        }
        buf[2 * len] = '\0';
        return buf;
}

char *format_bytes(uint64_t bytes, char buf[FORMAT_BYTES_MAX])
{
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
        unsigned shift = 0, hundredths, whole;
        int n;

        while (bytes >> shift >= 1024)
                shift += 10;
        whole = (unsigned)(bytes >> shift);
        /* Cut, not rounded: never shows more than there is, never "1024 KiB". */
        hundredths =
                (unsigned)((unsigned __int128)(bytes - ((uint64_t)whole << shift)) * 100 >> shift);
        n = sprintf(buf, "%u", whole);
        if (hundredths > 0)
                n += sprintf(buf + n, hundredths % 10 ? ".%02u" : ".%u",
                        hundredths % 10 ? hundredths : hundredths / 10);
        sprintf(buf + n, " %s", units[shift / 10]);
        return buf;
}

char *format_duration(uint64_t nsec, char buf[FORMAT_DURATION_MAX])
{
        size_t i = ARRAY_SIZE(durations) - 1;

        if (nsec == 0)
                return strcpy(buf, "0s");
        while (i > 1 && nsec % durations[i].factor != 0)
                i--;
        sprintf(buf, "%llu%s", (unsigned long long)(nsec / durations[i].factor), durations[i].name);
        return buf;
}

char *format_opaque(const void *data, size_t len, char *buf)
{
        const uint8_t *bytes = data;

        for (size_t i = 0; i < len; i++)
                if (bytes[i] < ' ' || bytes[i] > '~') {
                        memcpy(buf, "0x", 2);
                        format_hex(data, len, buf + 2);
                        return buf;
                }
        memcpy(buf, data, len);
        buf[len] = '\0';
        return buf;
}

char *format_excerpt(const char *text, size_t len, char buf[FORMAT_EXCERPT_MAX])
{
        char *out = buf;
        size_t i;

        /* Each step writes at most 4 bytes; "..." and the NUL need 4 more. */
        for (i = 0; i < len && out - buf <= FORMAT_EXCERPT_MAX - 8; i++) {
                unsigned char c = (unsigned char)text[i];

                if (c >= ' ' && c <= '~' && c != '\\')
                        *out++ = (char)c;
                else
                        out += sprintf(out, "\\x%02x", c);
        }
        strcpy(out, i < len ? "..." : "");
        return buf;
}

int say_why(char *why, size_t size, int r, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        (void)vsnprintf(why, size, format, args);
        va_end(args);
        return r;
}

bool is_name_char(char c)
{
        return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
               c == '_' || c == '-';
}

/* also: another permitted character; NUL: none. */
static bool is_name(const char *s, size_t max_len, char also)
{
        size_t len = 0;

        if (*s == '.' || *s == '-' || *s == '@')
                return false;
        for (; s[len]; len++)
                if (len >= max_len || (!is_name_char(s[len]) && s[len] != also))
                        return false;
        return len > 0;
}

bool name_is_valid(const char *s, size_t max_len)
{
        return is_name(s, max_len, '\0');
}

bool ns_name_is_valid(const char *s)
{
        return is_name(s, NS_NAME_MAX, '@');
}

static bool is_continued(const unsigned char *s, size_t n, size_t wanted)
{
        for (size_t i = 1; i < wanted; i++)
                if (i >= n || (s[i] & 0xc0) != 0x80)
                        return false;
        return true;
}

size_t utf8_char_len(const char *text, size_t n)
{
        const unsigned char *s = (const unsigned char *)text;

        if (s[0] < 0x80)
                return 1;
        if (s[0] >= 0xc2 && s[0] <= 0xdf)
                return is_continued(s, n, 2) ? 2 : 0;
        if ((s[0] & 0xf0) == 0xe0) {
                bool whole = is_continued(s, n, 3), overlong = s[0] == 0xe0 && whole && s[1] < 0xa0;
                bool surrogate = s[0] == 0xed && whole && s[1] > 0x9f;

                return whole && !overlong && !surrogate ? 3 : 0;
        }
        if (s[0] >= 0xf0 && s[0] <= 0xf4) {
                bool whole = is_continued(s, n, 4), overlong = s[0] == 0xf0 && whole && s[1] < 0x90;
                bool beyond = s[0] == 0xf4 && whole && s[1] > 0x8f;

                return whole && !overlong && !beyond ? 4 : 0;
        }
        return 0;
}

bool utf8_is_control(const char *s, size_t len)
{
        const unsigned char *u = (const unsigned char *)s;

        switch (len) {
        case 1:
                return u[0] < 0x20 || u[0] == 0x7f;
        case 2:
                return u[0] == 0xc2 && u[1] < 0xa0;
        case 3:
                if (u[0] != 0xe2)
                        return false;
                return (u[1] == 0x80 &&
                               (u[2] == 0x8e || u[2] == 0x8f || (u[2] >= 0xa8 && u[2] <= 0xae))) ||
                       (u[1] == 0x81 && u[2] >= 0xa6 && u[2] <= 0xa9);
        default:
                return false;
        }
}

bool text_is_plain(const char *s)
{
        size_t left = strlen(s);

        for (size_t n; left > 0; s += n, left -= n) {
                n = utf8_char_len(s, left);
                if (n == 0 || utf8_is_control(s, n))
                        return false;
        }
        return true;
}
