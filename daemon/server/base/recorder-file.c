#include "daemon/server/base/recorder-file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "daemon/server/base/log.h"

/* Page sizes with an open file at a time; more are lost. Models of one host are few. Not tuned. */
#define STREAMS_MAX 8

/* The result of a chunk of another page size: no file operation here fails like that. */
#define TOO_MANY_SIZES (-E2BIG)

/* Free space left in the file system for kvleased's other files, as a part and at most. */
#define LEAVE_PART      20
#define LEAVE_MAX_BYTES (UINT64_C(1) << 30)

/* Bound of files of earlier recordings: no free number is searched beyond. */
#define NUMBER_MAX 1000000

/* The files of one page size. */
struct stream {
        uint32_t page_tokens;                 /* 0: unused */
        uint32_t numbers[RECORDER_FILES_MAX]; /* of its files, the oldest first */
        uint32_t n_files;
        uint64_t bytes; /* of the last, which is open */
        int fd;         /* -1: none */
};

struct writer {
        struct disk_job closing;
        char dir[RECORDER_PATH_MAX];
        uint64_t max_bytes;
        uint32_t max_files;
        struct stream streams[STREAMS_MAX];
};

static void name_file(
        const struct writer *w, uint32_t page_tokens, uint32_t number, char path[RECORDER_PATH_MAX])
{
        snprintf(path, RECORDER_PATH_MAX, "%.*s/trace-%" PRIu32 "-%" PRIu32 ".jsonl",
                RECORDER_PATH_MAX - 64, w->dir, page_tokens, number);
}

/* ---- in the disk's thread -------------------------------------------------------------------- */

static struct stream *stream_for(struct writer *w, uint32_t page_tokens)
{
        for (unsigned i = 0; i < STREAMS_MAX; i++)
                if (w->streams[i].page_tokens == page_tokens || w->streams[i].page_tokens == 0) {
                        w->streams[i].page_tokens = page_tokens;
                        return &w->streams[i];
                }
        return NULL;
}

/* Opens a file under the first free number from the last one on. */
static int open_next(struct writer *w, struct stream *st)
{
        uint32_t number = st->n_files > 0 ? st->numbers[st->n_files - 1] + 1 : 1;
        char path[RECORDER_PATH_MAX];

        for (; number <= NUMBER_MAX; number++) {
                name_file(w, st->page_tokens, number, path);
                st->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
                if (st->fd >= 0 || errno != EEXIST)
                        break;
        }
        if (st->fd < 0)
                return -errno;
        st->numbers[st->n_files++] = number;
        st->bytes = 0;
        return 0;
}

static void drop_oldest(struct writer *w, struct stream *st)
{
        char path[RECORDER_PATH_MAX];

        name_file(w, st->page_tokens, st->numbers[0], path);
        (void)unlink(path);
        st->n_files--;
        memmove(st->numbers, st->numbers + 1, st->n_files * sizeof(*st->numbers));
}

/* Removes a file of the page size with most files besides the current one. Returns false if there
 * is none. */
static bool drop_any(struct writer *w)
{
        struct stream *most = NULL;
        uint32_t n_most = 0;

        for (unsigned i = 0; i < STREAMS_MAX; i++) {
                struct stream *st = &w->streams[i];
                uint32_t n = st->n_files - (st->fd >= 0);

                if (n > n_most) {
                        most = st;
                        n_most = n;
                }
        }
        if (most)
                drop_oldest(w, most);
        return most;
}

static uint32_t count_files(const struct writer *w)
{
        uint32_t n = 0;

        for (unsigned i = 0; i < STREAMS_MAX; i++)
                n += w->streams[i].n_files;
        return n;
}

static int rotate(struct writer *w, struct stream *st)
{
        st->fd = fd_close(st->fd);
        while (count_files(w) >= w->max_files && drop_any(w))
                ;
        return open_next(w, st);
}

/* Makes room for `len` bytes by removing older files of this recording. Returns 0 or -ENOSPC. */
static int make_room(struct writer *w, size_t len)
{
        uint64_t leaves;

        while (writer_room(w->dir, &leaves) < len)
                if (!drop_any(w))
                        return -ENOSPC;
        return 0;
}

/* Writes all of it, or takes back the part that was written. */
static int write_all(struct stream *st, const char *data, size_t len)
{
        size_t done = 0;
        int r = 0;

        while (done < len && r == 0) {
                ssize_t n = write(st->fd, data + done, len - done);

                if (n < 0 && errno != EINTR)
                        r = -errno;
                done += n > 0 ? (size_t)n : 0;
        }
        if (r == 0)
                st->bytes += len;
        else if (ftruncate(st->fd, (off_t)st->bytes) < 0 ||
                 lseek(st->fd, (off_t)st->bytes, SEEK_SET) < 0)
                st->fd = fd_close(st->fd);
        return r;
}

static void run_chunk(struct disk_job *job)
{
        struct chunk *c = container_of(job, struct chunk, job);
        struct writer *w = c->writer;
        struct stream *st = stream_for(w, c->page_tokens);
        int r = 0;

        if (!st)
                r = TOO_MANY_SIZES;
        else
                r = make_room(w, c->len);
        if (r == 0 && (st->fd < 0 || st->bytes >= w->max_bytes))
                r = rotate(w, st);
        if (r == 0)
                r = write_all(st, c->data, c->len);
        if (r == 0)
                name_file(w, c->page_tokens, st->numbers[st->n_files - 1], c->path);
        c->result = r;
}

static void run_close(struct disk_job *job)
{
        struct writer *w = container_of(job, struct writer, closing);

        for (unsigned i = 0; i < STREAMS_MAX; i++)
                w->streams[i].fd = fd_close(w->streams[i].fd);
}

/* ---- in the loop's --------------------------------------------------------------------------- */

uint64_t writer_room(const char *path, uint64_t *ret_leaves)
{
        struct statvfs st;
        uint64_t free_bytes;

        *ret_leaves = 0;
        if (statvfs(path, &st) < 0)
                return UINT64_MAX; /* writing will say why */
        free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
        *ret_leaves = MIN((uint64_t)st.f_blocks * st.f_frsize / LEAVE_PART, LEAVE_MAX_BYTES);
        return minus_u64(free_bytes, *ret_leaves);
}

void chunk_explain(const struct chunk *c, char *ret, size_t size)
{
        char bytes[FORMAT_BYTES_MAX];
        uint64_t leaves;

        ret[0] = '\0';
        if (c->result == TOO_MANY_SIZES) {
                snprintf(ret, size, "there are more than %d page sizes", STREAMS_MAX);
        } else if (c->result == -ENOSPC) {
                (void)writer_room(c->writer->dir, &leaves);
                snprintf(ret, size, "no room in %s, whose file system keeps %s free: make room",
                        c->writer->dir, format_bytes(leaves, bytes));
        } else if (c->result < 0) {
                snprintf(ret, size, "cannot write to %s: %s", c->writer->dir, strerror(-c->result));
        }
}

static void end_chunk(struct disk_job *job)
{
        struct chunk *c = container_of(job, struct chunk, job);
        char why[RECORDER_TROUBLE_MAX];

        if (c->result < 0 &&
                log_first_of(c->result == TOO_MANY_SIZES ? "recorder-sizes" : "recorder-disk")) {
                chunk_explain(c, why, sizeof(why));
                log_warning("requests are lost to the recording: %s", why);
        }
        c->done(c);
}

struct chunk *chunk_new(void *owner, struct writer *w, uint32_t page_tokens, size_t size,
        void (*done)(struct chunk *c))
{
        struct chunk *c = malloc(sizeof(*c) + size);

        if (!c)
                return NULL;
        *c = (struct chunk){
                .job = {.run = run_chunk, .done = end_chunk},
                .owner = owner,
                .writer = w,
                .done = done,
                .page_tokens = page_tokens,
                .size = size,
        };
        list_init(&c->job.link);
        return c;
}

void chunk_free(struct chunk *c)
{
        free(c);
}

struct writer *writer_new(const char *dir, uint64_t max_bytes, uint32_t max_files)
{
        struct writer *w = calloc(1, sizeof(*w));

        if (!w)
                return NULL;
        snprintf(w->dir, sizeof(w->dir), "%s", dir);
        w->max_bytes = max_bytes;
        w->max_files = max_files;
        for (unsigned i = 0; i < STREAMS_MAX; i++)
                w->streams[i].fd = -1;
        return w;
}

static void end_close(struct disk_job *job)
{
        free(container_of(job, struct writer, closing));
}

void writer_close(struct disk *disk, struct writer *w)
{
        w->closing = (struct disk_job){.run = run_close, .done = end_close};
        list_init(&w->closing.link);
        disk_do(disk, &w->closing);
}
