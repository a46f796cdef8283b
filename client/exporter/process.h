/* Metrics of the exporter's own process, under the names of Prometheus' client libraries
 * (process_cpu_seconds_total, ...), for existing dashboards and alerts. Read from /proc/self only:
 * the service sees nothing else of /proc. */
#ifndef KVL_EXPORTER_PROCESS_H
#define KVL_EXPORTER_PROCESS_H

#include <stdint.h>

#include "client/exporter/text.h"

struct process_stat {
        double cpu_seconds;            /* in user and kernel mode, of all threads */
        double started_after_boot_sec; /* when the process started */
        uint64_t virtual_bytes, resident_bytes;
};

/* Reads the line of /proc/PID/stat. Returns 0; -EINVAL: it isn't one. */
int process_parse(const char *line, struct process_stat *ret);

/* Appends the families that can be read. Thread-safe. */
void process_tell(struct text *t);

#endif
