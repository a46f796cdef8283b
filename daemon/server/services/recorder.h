/*
 * The daemon's traffic as a trace (client/trace/trace.h), for `kvleasectl trace`: off until an
 * administrator says otherwise, and after a start. A line a request, written when it ends or nobody
 * has heard of it for a minute: its pages from the root of the text to the deepest that it found or
 * published. What it looked for, missed and never published isn't known.
 *
 * Calls may name no request. Then a lookup begins one, and what is published below the page where
 * one has got to goes on with it; there nobody tells its end, but another one that gets to the same
 * page.
 *
 * Keys are hashed with a secret drawn for each recording and never kept, to 53 bits, which every
 * reader of JSON keeps exact: equal prefixes of one namespace are equal numbers within a recording,
 * and no key, token or text can be had from them.
 *
 * Files are STATE_DIR/traces/trace-TOKENS-N.jsonl (0600), for each page size its own: the blocks of
 * a trace are of one size. All of a recording are at most max_files, the oldest goes; and the file
 * system keeps some room (writer_room()). Written off the loop. Loop thread only, where not
 * said otherwise.
 */
#ifndef KVL_SERVER_RECORDER_H
#define KVL_SERVER_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/ground/detail.h"
#include "daemon/server/objects/services.h"

#define RECORDER_FILE_BYTES (UINT64_C(256) << 20) /* the default of a file. Not tuned */
#define RECORDER_FILES      4                     /* the default of all. Not tuned */
#define RECORDER_MIN_BYTES  4096

/* Requests under way that it keeps in mind: some 100 bytes each. More are lost. Not tuned. */
#define RECORDER_REQUESTS_MAX 65536
/* What waits for the disk; a request that comes on top is lost. Not tuned. */
#define RECORDER_WAITING_MAX (UINT64_C(4) << 20)
/* Pages of one request, so that a line is at most half of what the reader takes and takes the loop
 * about a millisecond; a longer one is lost. */
#define RECORDER_PAGES_MAX 32768

struct ns;
struct server;
struct writer;
struct chunk;

void recorder_init(struct server *s);

/* 0; -EBUSY: it is on already; -EINVAL: out of range; -EROFS: the server has no state directory;
 * -ENOSPC: there is too little room; -errno of the directory. With the sentence. */
int recorder_start(struct server *s, uint64_t max_bytes, uint32_t max_files, struct detail *d);

/* Ends it: requests under way are written as far as they are known. Nothing where it is off. */
void recorder_stop(struct server *s);

/* The namespace goes: so do its requests, unwritten. */
void recorder_forget(struct server *s, const struct ns *ns);

/* Writes requests nobody has heard of for a minute. When there will be more, if nothing happens;
 * UINT64_MAX: none. */
uint64_t recorder_end_idle(struct server *s, uint64_t now_nsec);

#endif
