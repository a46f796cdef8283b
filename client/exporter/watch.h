/*
 * Events for browsers with the status page open: one scrape for all of them every two seconds while
 * there are any. Also takes a sample for the history every quarter of a minute, with or without
 * browsers. A thread of its own scrapes; the connections' threads wait for its events.
 *
 *   watch: (start) -> runs -> (stop) -> stopped, and every stream ends -> (free)
 *
 * Thread-safe.
 */
#ifndef KVL_EXPORTER_WATCH_H
#define KVL_EXPORTER_WATCH_H

#include <stddef.h>
#include <sys/types.h>

#include "client/exporter/scrape.h"

/* Most streams at a time: each has a thread and a connection for long, and Prometheus and people
 * need some as well. Not tuned. */
#define WATCH_STREAMS_MAX 8

struct watch;
struct stream;

/* Returns 0: *ret is owned, and the thread runs; or -errno. `s` is borrowed. */
int watch_start(struct scraper *s, struct watch **ret);

/* Ends the thread, and each stream at its next read. */
void watch_stop(struct watch *w);
void watch_free(struct watch *w);

/* Returns 0: *ret is owned, and begins with the latest event; -EBUSY: WATCH_STREAMS_MAX are open;
 * -ENOMEM. */
int stream_open(struct watch *w, struct stream **ret);
void stream_close(struct stream *s);

/* Reads up to `size` more bytes of events (text/event-stream); waits for some. 0: it is over. */
size_t stream_read(struct stream *s, char *buf, size_t size);

#endif
