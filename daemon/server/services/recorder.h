/*
 * The daemon's traffic as a trace (client/trace/trace.h), for `kvleasectl trace`. It is off after a
 * start until an administrator turns it on. Each request is a line, written when it ends or after a
 * minute without a call: its pages from the root of the text to the deepest one that it found or
 * published. Pages that it missed and never published aren't recorded.
 *
 * If calls name no request, a lookup begins one, and a publish below its deepest page continues it.
 * Such a request ends when another one reaches the same page.
 *
 * Keys are hashed to 53 bits, which every reader of JSON keeps exact, with a secret drawn for each
 * recording and never stored. Equal prefixes of a namespace are equal numbers within a recording;
 * no key, token or text can be derived from them.
 *
 * Files are STATE_DIR/traces/trace-TOKENS-N.jsonl (0600), separate for each page size: the blocks
 * of a trace have one size. A recording has at most max_files; the oldest is removed. The file
 * system keeps some free space (writer_room()). Files are written off the loop. Loop thread only,
 * unless noted.
 */
#ifndef KVL_SERVER_RECORDER_H
#define KVL_SERVER_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/state/detail.h"
#include "daemon/server/peers/server.h"

#define RECORDER_FILE_BYTES (UINT64_C(256) << 20) /* the default of a file. Not tuned */
#define RECORDER_FILES      4                     /* the default of all. Not tuned */
#define RECORDER_MIN_BYTES  4096

/* Unfinished requests that it keeps, some 100 bytes each; more are lost. Not tuned. */
#define RECORDER_REQUESTS_MAX 65536
/* Bytes that wait for the disk; requests beyond them are lost. Not tuned. */
#define RECORDER_WAITING_MAX (UINT64_C(4) << 20)
/* Pages of one request; a longer one is lost. A line is then at most half of the reader's limit,
 * and takes the loop about a millisecond. */
#define RECORDER_PAGES_MAX 32768

struct ns;
struct server;
struct writer;
struct chunk;

void recorder_init(struct server *s);

/* Starts recording. Returns 0; -EBUSY: it is on already; -EINVAL: out of range; -EROFS: the server
 * has no state directory; -ENOSPC: too little space; -errno of the directory. Errors come with the
 * sentence. */
int recorder_start(struct server *s, uint64_t max_bytes, uint32_t max_files, struct detail *d);

/* Ends the recording: unfinished requests are written as far as they are known. Idempotent. */
void recorder_stop(struct server *s);

/* Drops the requests of a namespace that ends, unwritten. */
void recorder_forget(struct server *s, const struct ns *ns);

/* Writes requests without a call for a minute. Returns the time of the next call, if nothing
 * happens; UINT64_MAX: none. */
uint64_t recorder_end_idle(struct server *s, uint64_t now_nsec);

#endif
