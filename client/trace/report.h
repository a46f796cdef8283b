/* An analysis, for people and for programs. Texts of the trace (names of tenants) are clean. */
#ifndef KVL_TRACE_REPORT_H
#define KVL_TRACE_REPORT_H

#include <stdio.h>

#include <jansson.h>

#include "client/trace/analysis.h"

/* Plain text. */
void report_text(const struct analysis *a, FILE *to);

/* A table of hit ratios, a line a capacity and a column a policy. */
void report_curves(const struct curves *c, FILE *to);

/* Everything. Returns owned; NULL: no memory. */
json_t *report_json(const struct analysis *a);

/* [{"policy", "capacity_pages", "token_hit_ratio", ...}]. Returns owned; NULL: no memory. */
json_t *report_curves_json(const struct curves *c);

/*
 * One HTML file that stands by itself: no script, nothing is loaded from anywhere. Plots are inline
 * SVG; it follows the reader's light or dark mode. Failures are those of the stream: ferror(to).
 */
void report_html(const struct analysis *a, FILE *to);

/* Why the page size is advised: a sentence. */
char *report_page_advice(const struct page_sizes *p, char *buf, size_t size);

/* "12,031" */
char *report_count(uint64_t n, char buf[32]);

/* "340 ms", "41 s", "2.5 h" */
char *report_time(uint64_t msec, char buf[32]);

/* The mean of a distribution in the words of its values; a small one with a decimal. */
char *report_mean(const struct dist *d, char *(*show)(uint64_t, char[32]), char buf[32]);

/* "chat"; "(all)" where the trace names no tenant, "(unnamed)" where only some requests name none.
 */
const char *report_tenant(const struct trace *t, uint32_t tenant);

#endif
