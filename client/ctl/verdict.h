/*
 * What kvleasectl status says first: whether all is well, and else what isn't, the worst first,
 * each with what to do about it or the verb that shows more.
 *
 * An *error* is something that doesn't work. A *warning* is something that an administrator should
 * mend before it hurts. A *note* may well be meant as it is: with notes alone all is well. It is
 * judged by what the daemon says at this moment, and by no setting of kvleasectl. One thread.
 */
#ifndef KVL_CTL_VERDICT_H
#define KVL_CTL_VERDICT_H

#include <stddef.h>

#include "client/ctl/show.h"
#include "proto/kvlease.pb-c.h"

enum severity { SEVERITY_ERROR, SEVERITY_WARNING, SEVERITY_NOTE, N_SEVERITIES };

struct finding {
        enum severity severity;
        char *what;         /* a sentence without its full stop; owned */
        const char *remedy; /* the same; static */
};

struct verdict {
        const struct show_format *format; /* of sizes; borrowed */
        struct finding *findings;         /* owned, in the order in which they were found */
        size_t n_findings;
        unsigned n_devices; /* that verdict_of_device() was given, but for what lies below them */
};

/* Looks at a row of ADMIN_DEVICES; `verdict` is a struct verdict: for admin_each(). */
void verdict_of_device(const void *row, void *verdict);

/* Of how long ago refused leases are told. Not tuned. */
#define VERDICT_REFUSED_MIN 5

/* Leases were refused n times in the last VERDICT_REFUSED_MIN minutes. last: the event of the last
 * one; NULL: it is gone by now. */
void verdict_of_refusals(struct verdict *v, uint64_t n, const Kvlease__V1__AdminEvent *last);

/* Looks at the rest, after all devices. */
void verdict_of_status(struct verdict *v, const Kvlease__V1__AdminStatusReply *s);

/* Prints it as text, at most `width` columns wide. */
void verdict_print(const struct verdict *v, size_t width);

/* Adds it to the object of --json: "well", and "findings" in the same order as in text. */
void verdict_to_json(const struct verdict *v, json_t *object);

/* Frees the findings. */
void verdict_deinit(struct verdict *v);

#endif
