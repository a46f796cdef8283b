/* Strict conversions of text to values and back: the whole string must be used, no sign, no leading
 * space. Each function returns 0, -EINVAL (not this syntax) or -ERANGE (does not fit); ret_* are
 * untouched on failure. Thread-safe. */
#ifndef KVL_BASE_PARSE_H
#define KVL_BASE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

int parse_u64(const char *s, uint64_t *ret_value);

/*
 * "4096", "64KiB", "1.5GiB", "2T": units B K KB KiB M MB MiB G GB GiB T TB TiB P PB PiB, all powers
 * of 1024. The arithmetic is exact (no floating point); a fraction of a byte is cut off.
 */
int parse_bytes(const char *s, uint64_t *ret_bytes);

/* "250ms", "30s", "5min", "2h", "1d"; a bare number is seconds. */
int parse_duration(const char *s, uint64_t *ret_nsec);

/* "yes" "no" "true" "false" "on" "off" "1" "0". */
int parse_bool(const char *s, bool *ret_value);

/* Hexadecimal, exactly 2 * len digits, either case. */
int parse_hex(const char *s, void *ret_data, size_t len);

/* Writes 2 * len lower-case digits and a NUL to buf. Returns buf. */
char *format_hex(const void *data, size_t len, char *buf);

/* Formats opaque bytes for people: unchanged if all are printable ASCII, else "0x" and
 * format_hex(). buf: FORMAT_OPAQUE_BYTES(len). Returns buf. */
#define FORMAT_OPAQUE_BYTES(len) (2 * (len) + sizeof("0x"))
char *format_opaque(const void *data, size_t len, char *buf);

/* "1.5 GiB", "64 MiB", "512 B": at most two decimals, binary units. Returns buf (>= 16 bytes). */
#define FORMAT_BYTES_MAX 16
char *format_bytes(uint64_t bytes, char buf[FORMAT_BYTES_MAX]);

/* Formats a time as parse_duration() reads it, in the largest unit without a rest. Fractions of a
 * millisecond are cut off. Returns buf. */
#define FORMAT_DURATION_MAX 24
char *format_duration(uint64_t nsec, char buf[FORMAT_DURATION_MAX]);

/* Formats a piece of text for an error message: at most 63 bytes of output, all but printable ASCII
 * as \xHH, "..." at the end if it was cut. Returns buf. */
#define FORMAT_EXCERPT_MAX 64
char *format_excerpt(const char *text, size_t len, char buf[FORMAT_EXCERPT_MAX]);

/* Writes a sentence to `why`, cut to `size` bytes. Returns r, so that a function ends by it. */
KVL_PRINTF(4, 5)
int say_why(char *why, size_t size, int r, const char *format, ...);

/* Returns the bytes (1 to 4) of the UTF-8 character at `s`, which has n > 0 bytes (RFC 3629,
 * section 4); 0: it is none. n may be too large if a byte that can't continue the character
 * follows, for example a NUL. */
size_t utf8_char_len(const char *s, size_t n);

/* Whether the UTF-8 character of `len` bytes changes how a terminal shows its surroundings: C0,
 * DEL, C1, ends of lines and paragraphs (U+2028, U+2029), and changes of text direction (U+200E,
 * U+200F, U+202A to U+202E, U+2066 to U+2069). */
bool utf8_is_control(const char *s, size_t len);

/* Whether it is UTF-8 without such characters: safe in logs and tables. */
bool text_is_plain(const char *s);

/* Whether a tenant's name is valid: 1 to max_len bytes of [A-Za-z0-9._-], not starting with '.' or
 * '-' (names become file names and command arguments). */
bool name_is_valid(const char *s, size_t max_len);
#define TENANT_NAME_MAX 64
#define NS_NAME_MAX     128

/* Whether a name of a namespace or set is valid: as a tenant's, with at most NS_NAME_MAX bytes, and
 * '@' except at the start (kvl_layout_name()). */
bool ns_name_is_valid(const char *s);

/* Whether both kinds of names may have this character after their start. */
bool is_name_char(char c);

#endif
