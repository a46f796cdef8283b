/* HTTP by GET and HEAD: /metrics, / with its parts, and /-/healthy. Only a request's method, path,
 * Host and Accept headers are used. Each connection has a thread, so one that waits for a hanging
 * daemon doesn't block /-/healthy. If there are many, slots.h chooses which to send away. */
#ifndef KVL_EXPORTER_SERVE_H
#define KVL_EXPORTER_SERVE_H

#include "client/exporter/host.h"
#include "client/exporter/scrape.h"

/* Ends idle connections. Longer than Prometheus' default of a minute between scrapes. */
#define SERVE_IDLE_SEC 120

struct server;

/* Listens at `fd` (taken, also on failure) and answers requests for these hosts (borrowed; NULL:
 * any) from `s` (borrowed). Returns 0 (*ret is owned), or -errno. */
int serve_start(int fd, struct scraper *s, const struct host_names *hosts, struct server **ret);

/* Stops answering; waits for answers under way. NULL is ignored. */
void serve_stop(struct server *s);

#endif
