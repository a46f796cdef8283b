/* Shared by the verbs on trace files: reading the files, the progress bar, options. */
#ifndef KVL_CTL_TRACE_RUN_H
#define KVL_CTL_TRACE_RUN_H

#include "client/ctl/ctl.h"
#include "client/trace/trace.h"

/* A progress bar on stderr, if that is a terminal. */
struct bar {
        const char *label;
        bool is_terminal;
        int shown; /* percent, -1: nothing */
};

void bar_start(struct bar *b, const char *label);
bool bar_step(uint64_t done, uint64_t total, void *bar); /* always true */
void bar_end(struct bar *b);

/* Reads the files of the arguments, as the options say. Returns CTL_OK: *ret is owned; else
 * printed. */
int trace_open(const struct ctl *ctl, struct trace *ret);

/* Returns --jobs, or the number of CPUs. CTL_OK or CTL_USAGE, printed. */
int trace_jobs(const struct ctl *ctl, unsigned *ret);

/* Reads a whole number of 1 to max; *ret is unchanged if it isn't given. Returns CTL_OK or
 * CTL_USAGE, printed. */
int trace_number(const struct ctl *ctl, enum ctl_option o, uint64_t max, uint64_t *ret);

/* Prints the failure of a simulation; err: the sentence of -EINVAL. */
int trace_fail(int r, const char *err);

#endif
