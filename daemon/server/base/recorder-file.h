/*
 * Files of a recording (services/recorder.h): chunks of lines on their way to the disk, and their
 * writer. Only the jobs of its chunks use a writer, one after another (disk.h): they open, write
 * and rotate files. None of it runs in the loop.
 */
#ifndef KVL_SERVER_RECORDER_FILE_H
#define KVL_SERVER_RECORDER_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/server/base/disk.h"

#define RECORDER_PATH_MAX    512
#define RECORDER_TROUBLE_MAX 640
#define RECORDER_FILES_MAX   64

#define CHUNK_BYTES (64 * 1024) /* lines are collected for one write. Not tuned */

struct chunk {
        struct disk_job job;
        void *owner;           /* borrowed: for done() */
        struct writer *writer; /* borrowed */
        void (*done)(struct chunk *c);
        uint32_t page_tokens; /* of all its lines */
        uint32_t n_lines;
        int result;                   /* -errno: perhaps none of it was written */
        char path[RECORDER_PATH_MAX]; /* of its file; "": none */
        size_t len, size;
        char data[]; /* size */
};

/* Makes a chunk to fill and give to disk_do(); done() is called in the loop thread, and frees it.
 * NULL: no memory. Returns owned. */
struct chunk *chunk_new(void *owner, struct writer *w, uint32_t page_tokens, size_t size,
        void (*done)(struct chunk *c));
void chunk_free(struct chunk *c);

/* Space for recordings on the file system of `path`, besides the reserve for the state directory.
 * Returns free bytes; *ret_leaves: the reserve. Any thread. */
uint64_t writer_room(const char *path, uint64_t *ret_leaves);

/* Writes the reason why a chunk wasn't written; "" if it was. */
void chunk_explain(const struct chunk *c, char *ret, size_t size);

/* Makes a writer of files in `dir` of at most max_bytes each, and a chunk. All page sizes together
 * have at most max_files, and at least one each; the oldest is removed. NULL: no memory. Returns
 * owned. */
struct writer *writer_new(const char *dir, uint64_t max_bytes, uint32_t max_files);

/* Closes the files, after all chunks handed on. Takes the writer. */
void writer_close(struct disk *disk, struct writer *w);

#endif
