/*
 * What browsers with the status page open are sent: one look at the daemon for all of them, every
 * two seconds while anybody watches; and a sample for the history every quarter of a minute,
 * whether anybody does or not. A thread of its own looks; the threads of connections wait for what
 * it has.
 *
 *   watch: (start) -> runs -> (stop) -> stopped, and every stream ends -> (free)
 *
 * Any thread.
 */
#ifndef KVL_EXPORTER_WATCH_H
#define KVL_EXPORTER_WATCH_H

#include <stddef.h>
#include <sys/types.h>

#include "client/exporter/scrape.h"

/* Streams at the same time: each has a thread and a connection for good, and Prometheus and people
 * need some as well. Not tuned. */
#define WATCH_STREAMS_MAX 8

struct watch;
struct stream;

/* 0: *ret is returned owned, and the thread runs; -errno. `s` is borrowed. */
int watch_start(struct scraper *s, struct watch **ret);

/* The thread ends, and so does every stream, at its next read. */
void watch_stop(struct watch *w);
void watch_free(struct watch *w);

/* 0: *ret is returned owned, and begins with the latest event there is; -EBUSY: WATCH_STREAMS_MAX
 * are open; -ENOMEM. */
int stream_open(struct watch *w, struct stream **ret);
void stream_close(struct stream *s);

/* Up to `size` more bytes of events (text/event-stream). Waits until there are some. 0: it is over.
 */
size_t stream_read(struct stream *s, char *buf, size_t size);

#endif
