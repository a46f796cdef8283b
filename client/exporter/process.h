/*
 * The exporter's own process, under the names that Prometheus' client libraries have for it
 * (process_cpu_seconds_total, ...), so that dashboards and alerts which know these work here, too.
 * Read from /proc/self alone: the service sees nothing else of /proc.
 */
#ifndef KVL_EXPORTER_PROCESS_H
#define KVL_EXPORTER_PROCESS_H

#include <stdint.h>

#include "client/exporter/text.h"

struct process_stat {
        double cpu_seconds;            /* in user and kernel mode, of all threads */
        double started_after_boot_sec; /* when the process started */
        uint64_t virtual_bytes, resident_bytes;
};

/* Reads the line of /proc/PID/stat. 0; -EINVAL: it isn't one. */
int process_parse(const char *line, struct process_stat *ret);

/* Appends the families. What can't be read is left out. Any thread. */
void process_tell(struct text *t);

#endif
