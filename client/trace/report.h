/* Reports of an analysis, for people and for programs. Strings of the trace (names of tenants) are
 * printable. */
#ifndef KVL_TRACE_REPORT_H
#define KVL_TRACE_REPORT_H

#include <stdio.h>

#include <jansson.h>

#include "client/trace/analysis.h"

/* Writes plain text. */
void report_text(const struct analysis *a, FILE *to);

/* Writes a table of hit ratios, a line a capacity and a column a policy. */
void report_curves(const struct curves *c, FILE *to);

/* Returns all of it, owned; NULL: no memory. */
json_t *report_json(const struct analysis *a);

/* [{"policy", "capacity_pages", "token_hit_ratio", ...}]. Returns owned; NULL: no memory. */
json_t *report_curves_json(const struct curves *c);

/* Writes one self-contained HTML file: no script, and it loads nothing. Plots are inline SVG; it
 * follows the reader's light or dark mode. Failures are those of the stream: ferror(to). */
void report_html(const struct analysis *a, FILE *to);

/* Writes why the page size is advised: a sentence. */
char *report_page_advice(const struct page_sizes *p, char *buf, size_t size);

/* Returns part of a whole; 0 if that is 0. */
double report_percent(uint64_t n, uint64_t of);

/* Makes a JSON integer, which is signed. */
json_t *report_number(uint64_t n);

/* "12,031" */
char *report_count(uint64_t n, char buf[32]);

/* "340 ms", "41 s", "2.5 h" */
char *report_time(uint64_t msec, char buf[32]);

/* Formats the mean of a distribution like its values; a small one with a decimal. */
char *report_mean(const struct dist *d, char *(*show)(uint64_t, char[32]), char buf[32]);

/* Returns "chat"; "(all)" if the trace names no tenant, "(unnamed)" if only some requests name
 * none. */
const char *report_tenant(const struct trace *t, uint32_t tenant);

#endif
