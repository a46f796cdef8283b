/*
 * HTTP: /metrics, / with what its page needs, and /-/healthy, by GET and HEAD; nothing else, and
 * nothing is taken from a request but its method, path, Host and Accept headers. A thread a
 * connection: one that waits for a daemon that hangs keeps nobody from /-/healthy. slots.h says who
 * is sent away for one that comes where they are many.
 */
#ifndef KVL_EXPORTER_SERVE_H
#define KVL_EXPORTER_SERVE_H

#include "client/exporter/host.h"
#include "client/exporter/scrape.h"

/* A connection without requests ends. Longer than the minute between two scrapes that is
 * Prometheus' default. */
#define SERVE_IDLE_SEC 120

struct server;

/* Listens at `fd` (taken, also on failure) and answers from `s` (borrowed) who asks for one of
 * these hosts (borrowed; NULL: for any). 0, *ret is returned owned; or -errno. */
int serve_start(int fd, struct scraper *s, const struct host_names *hosts, struct server **ret);

/* Answers nobody any more; waits for answers under way. NULL is ignored. */
void serve_stop(struct server *s);

#endif
