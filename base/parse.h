/*
 * Text to values and back, strict: the whole string must be used, no sign, no leading space.
 * Every function returns 0 or -EINVAL (not this syntax) or -ERANGE (does not fit); ret_* untouched
 * on failure. Thread-safe.
 */
#ifndef KVL_BASE_PARSE_H
#define KVL_BASE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/*
 * Opaque bytes for people: as they are where all are printable ASCII, else "0x" and format_hex().
 * buf: FORMAT_OPAQUE_BYTES(len). Returns buf.
 */
#define FORMAT_OPAQUE_BYTES(len) (2 * (len) + sizeof("0x"))
char *format_opaque(const void *data, size_t len, char *buf);

/* "1.5 GiB", "64 MiB", "512 B": at most two decimals, binary units. Returns buf (>= 16 bytes). */
#define FORMAT_BYTES_MAX 16
char *format_bytes(uint64_t bytes, char buf[FORMAT_BYTES_MAX]);

/* The time as parse_duration() reads it, in the largest unit that leaves no rest. What is less than
 * a millisecond is cut off. Returns buf. */
#define FORMAT_DURATION_MAX 24
char *format_duration(uint64_t nsec, char buf[FORMAT_DURATION_MAX]);

/*
 * A piece of text for an error message: at most 63 bytes of output, everything but printable ASCII
 * as \xHH, "..." at the end where it was cut. Returns buf.
 */
#define FORMAT_EXCERPT_MAX 64
char *format_excerpt(const char *text, size_t len, char buf[FORMAT_EXCERPT_MAX]);

/* Bytes of the character of UTF-8 that `s`, n > 0 bytes, begins with (RFC 3629, section 4): 1 to 4.
 * 0: it is none. Where what follows is another byte than one that continues it, a NUL for one, n
 * may be more than there are. */
size_t utf8_char_len(const char *s, size_t n);

/*
 * Whether the character of UTF-8, `len` bytes, changes how a terminal shows what is around it: C0,
 * DEL, C1, ends of lines and paragraphs (U+2028, U+2029), and what turns the direction of text
 * round (U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069).
 */
bool utf8_is_control(const char *s, size_t len);

/* Whether it is UTF-8 without such characters: safe in logs and tables. */
bool text_is_plain(const char *s);

/*
 * Names of tenants: 1 to max_len bytes of [A-Za-z0-9._-], not starting with '.' or '-' (they become
 * file names and command arguments).
 */
bool name_is_valid(const char *s, size_t max_len);
#define TENANT_NAME_MAX 64
#define NS_NAME_MAX     128

/* Names of namespaces and their sets: as those of tenants, at most NS_NAME_MAX bytes, and with '@'
 * that isn't the first (kvl_layout_name()). */
bool ns_name_is_valid(const char *s);

/* Whether names of both kinds may have this character anywhere but at their beginning. */
bool is_name_char(char c);

#endif
