/* Reports of simulated hosts (host-runs.h), for people and for programs. */
#ifndef KVL_TRACE_REPORT_HOSTS_H
#define KVL_TRACE_REPORT_HOSTS_H

#include <stdio.h>

#include <jansson.h>

#include "client/trace/host-runs.h"

/* Writes plain text: a line for each number of hosts and affinity, after host_runs_run() of this
 * trace. Failures are those of the stream: ferror(to). */
void report_hosts_text(const struct host_runs *h, const struct sim_trace *t, FILE *to);

/* Returns the same and all counters, owned; NULL: no memory. */
json_t *report_hosts_json(const struct host_runs *h, const struct sim_trace *t);

#endif
