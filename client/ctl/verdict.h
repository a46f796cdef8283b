/*
 * The verdict at the top of kvleasectl status: whether all is healthy. If not, the findings, the
 * worst first, each with its remedy or the verb that shows more.
 *
 * An *error* is a failure. A *warning* should be fixed by an administrator before it does harm. A
 * *note* may be intended: with notes only, all is healthy. The verdict depends on the daemon's
 * current state only, and on no setting of kvleasectl. Not thread-safe.
 */
#ifndef KVL_CTL_VERDICT_H
#define KVL_CTL_VERDICT_H

#include <stddef.h>

#include "client/ctl/show.h"
#include "proto/figures.h"

enum severity { SEVERITY_ERROR, SEVERITY_WARNING, SEVERITY_NOTE, N_SEVERITIES };

struct finding {
        enum severity severity;
        char *what;         /* a sentence without its full stop; owned */
        const char *remedy; /* a sentence without its full stop; static */
};

struct verdict {
        const struct show_format *format; /* of sizes; borrowed */
        struct finding *findings;         /* owned, in the order in which they were found */
        size_t n_findings;
        unsigned n_devices; /* rows of verdict_of_device(), without lower tiers */
};

/* Looks at a row of ADMIN_DEVICES; `verdict` is a struct verdict: for admin_each(). */
void verdict_of_device(const void *row, void *verdict);

/* Minutes for which refused leases are reported. Not tuned. */
#define VERDICT_REFUSED_MIN 5

/* Adds that leases were refused n times in the last VERDICT_REFUSED_MIN minutes. last: the event of
 * the last one; NULL: dropped by now. */
void verdict_of_refusals(struct verdict *v, uint64_t n, const Kvlease__V1__AdminEvent *last);

/* Looks at the rest, after all devices. */
void verdict_of_status(struct verdict *v, const struct figures_status *s);

/* Returns the remedy if no page is exchanged because of kvlease-exchange or its files. NULL: pages
 * are exchanged, or nodes don't answer. Static storage. */
const char *verdict_exchange_remedy(const struct figures_remote *r);

/* Prints it as text, at most `width` columns wide: a line, and findings in at most max_lines lines.
 * A line counts those that don't fit; the first always does. Returns the lines left. */
size_t verdict_print(const struct verdict *v, size_t width, size_t max_lines);

/* Adds it to the object of --json: "well", and "findings" in the same order as in text. */
void verdict_to_json(const struct verdict *v, json_t *object);

/* Frees the findings. */
void verdict_deinit(struct verdict *v);

#endif
