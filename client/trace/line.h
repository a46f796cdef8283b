/* One line of a trace: parsed into checked fields. */
#ifndef KVL_TRACE_LINE_H
#define KVL_TRACE_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "client/trace/trace.h"

/* Longest line, in bytes. A request of a million tokens in 16-token blocks has 62,500 ids of at
 * most 19 digits: 1.3 MB. The JSON reader holds many times a line's bytes. */
#define TRACE_LINE_MAX (UINT32_C(2) << 20)

struct trace_line {
        uint64_t time_nsec;
        bool has_time, has_fraction; /* the line has a time; the time is no whole number */
        uint32_t input_tokens, output_tokens;
        uint32_t ending;    /* evict_ops.ending() */
        uint8_t hint;       /* enum evict_hint */
        const char *tenant; /* of `object`; "" if the line names none */
        const json_t *ids;  /* of `object`: an array of integers >= 0 */
        json_t *object;     /* owned; line_done() */
};

/* `unit`: of times. Returns 0, or -EINVAL with a clause in err ("input_length is missing"),
 * printable and without the line's number. *ret is to be freed only on success. */
int line_parse(const char *text, size_t len, enum trace_unit unit, struct trace_line *ret,
        char *err, size_t err_len);

void line_done(struct trace_line *line);

#endif
