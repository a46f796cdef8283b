#include "client/trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/fd.h"
#include "base/macros.h"
#include "base/parse.h"
#include "client/trace/build.h"
#include "client/trace/line.h"

/* ---- files that are no traces ---------------------------------------------------------------- */

/* Recognizes files that are no traces by their first bytes. */
#define RECIPE "docs/measure/TRACES.md, \"Other traces\", makes a trace of it"

/* ---- by the first bytes ---------------------------------------------------------------------- */

struct magic {
        const char *bytes;
        size_t len;
        const char *why;
};

#define MAGIC(bytes, why)                     \
        {                                     \
                bytes, sizeof(bytes) - 1, why \
        }

static const struct magic magics[] = {
        MAGIC("\x28\xb5\x2f\xfd",
                "it is compressed by zstd, and plain text or gzip is read: zstd -dc FILE | kvleasectl trace ... /dev/stdin"),
        MAGIC("\xfd"
              "7zXZ",
                "it is compressed by xz, and plain text or gzip is read: xz -dc FILE | kvleasectl trace ... /dev/stdin"),
        MAGIC("BZh",
                "it is compressed by bzip2, and plain text or gzip is read: bzip2 -dc FILE | kvleasectl trace ... /dev/stdin"),
        MAGIC("\x04\x22\x4d\x18",
                "it is compressed by lz4, and plain text or gzip is read: lz4 -dc FILE | kvleasectl trace ... /dev/stdin"),
        MAGIC("PK\x03\x04",
                "it is a zip archive, and plain text or gzip is read: unzip -p FILE | kvleasectl trace ... /dev/stdin"),
        MAGIC("PAR1", "it is a Parquet file, and JSON lines are read: in Python "
                      "pandas.read_parquet(FILE).to_json(TRACE, orient='records', lines=True)"),
        MAGIC("\xff\xfe", "it is UTF-16, and UTF-8 is read: iconv -f UTF-16 -t UTF-8 FILE"),
        MAGIC("\xfe\xff", "it is UTF-16, and UTF-8 is read: iconv -f UTF-16 -t UTF-8 FILE"),
        MAGIC("version https://git-lfs.",
                "it is a pointer of Git LFS, and not the file: git lfs pull"),
        MAGIC("<", "it is a page of HTML or XML, and not the file: download it anew"),
};

/* Tar archives have theirs after the first file's name and owner. */
static bool is_tar(const char *head, size_t len)
{
        static const char magic[] = "ustar";
        const size_t at = 257;

        return len >= at + strlen(magic) && memcmp(head + at, magic, strlen(magic)) == 0;
}

/* ---- by words -------------------------------------------------------------------------------- */

struct text {
        const char *at;
        size_t len;
};

static bool has_word(const struct text *t, const char *word)
{
        return memmem(t->at, t->len, word, strlen(word)) != NULL;
}

/* Returns where the first byte from `at` on is that is no blank. */
static size_t skip_blanks(const char *head, size_t len, size_t at)
{
        while (at < len && strchr(" \t\r\n", head[at]) && head[at])
                at++;
        return at;
}

/* Whether the first non-blank byte from `at` on is the start of an object. */
static bool has_object_at(const struct text *t, size_t at)
{
        at = skip_blanks(t->at, t->len, at);
        return at < t->len && t->at[at] == '{';
}

/* Returns the first line without its end. */
static struct text first_line(const char *head, size_t len)
{
        const char *end = memchr(head, '\n', len);

        return (struct text){head, end ? (size_t)(end - head) : len};
}

/* Counts commas, semicolons or tabs, whichever there are most of. */
static size_t count_separators(const struct text *t)
{
        static const char separators[] = ",;\t";
        size_t most = 0;

        for (const char *separator = separators; *separator; separator++) {
                size_t n = 0;

                for (size_t i = 0; i < t->len; i++)
                        n += t->at[i] == *separator;
                most = MAX(most, n);
        }
        return most;
}

/* Names a file that begins with '['. */
static const char *name_array(const struct text *all)
{
        if (!has_object_at(all, 1)) /* the rest of a damaged line */
                return NULL;
        if (!has_word(all, "\"hash_ids\"") &&
                (has_word(all, "\"conversation\"") || has_word(all, "\"conversations\"") ||
                        has_word(all, "\"messages\"")))
                return "it is ShareGPT or another array of conversations, texts instead of hash_ids: " RECIPE;
        return "it is an array of JSON, and a trace is an object a line: jq -c '.[]' FILE | kvleasectl trace ... /dev/stdin";
}

/* Whether the first line, or the rest of a damaged one, is JSON. */
static bool is_of_json(const struct text *all, const struct text *line)
{
        return has_word(line, "{") || has_word(line, "}") || has_word(line, "]") ||
               has_object_at(all, line->len);
}

/* Names a file that begins like text. */
static const char *name_table(const struct text *all, const struct text *line)
{
        if (has_word(line, "ContextTokens") && has_word(line, "GeneratedTokens"))
                return "it is an Azure LLM inference trace, a CSV of lengths without hash_ids: " RECIPE;
        if (has_word(line, "Request tokens") && has_word(line, "Response tokens"))
                return "it is BurstGPT, a CSV of lengths without hash_ids: " RECIPE;
        if (count_separators(line) >= 2 && !is_of_json(all, line))
                return "it is a CSV, and a trace is a JSON object a line: docs/measure/TRACES.md says which fields it has";
        return NULL;
}

/* Whether a file that begins with `head` (all of it, or thousands of bytes) is no JSON lines. Then
 * a clause in `why` names its kind, and how to make a trace of it. */
static bool trace_is_other(const char *head, size_t len, char *why, size_t size)
{
        const char *found = NULL;
        size_t blank = skip_blanks(head, len, 0);

        for (size_t i = 0; i < ARRAY_SIZE(magics) && !found; i++)
                if (len >= magics[i].len && memcmp(head, magics[i].bytes, magics[i].len) == 0)
                        found = magics[i].why;
        if (is_tar(head, len))
                found = "it is a tar archive, and plain text or gzip is read: tar -xOf FILE | kvleasectl trace ... /dev/stdin";
        if (!found && blank < len) {
                struct text all = {head + blank, len - blank};
                struct text line = first_line(all.at, all.len);

                found = head[blank] == '[' ? name_array(&all) : name_table(&all, &line);
        }
        if (found)
                snprintf(why, size, "%s", found);
        return found != NULL;
}

#define CHUNK_BYTES (256 << 10) /* not tuned: read at once, and between two calls of progress */

/* ---- lines from pieces of text --------------------------------------------------------------- */

struct lines {
        struct builder *builder;
        bool has_begun;
        struct trace_error *error;
        char *rest; /* owned: the start of an incomplete line */
        size_t len, size;
        bool too_long; /* only its end is looked for */
};

static int lines_end(struct lines *l, const char *text, size_t len)
{
        return builder_line(l->builder, text, len, l->error);
}

/* Keeps the piece of a line. Returns 0, -EINVAL (too long), -ENOMEM. */
static int lines_keep(struct lines *l, const char *text, size_t len)
{
        char *grown;

        if (l->too_long)
                return 0;
        if (l->len + len > TRACE_LINE_MAX) {
                l->too_long = true;
                len = TRACE_LINE_MAX + 1 - l->len; /* enough to be refused for its length */
        }
        if (l->len + len > l->size) {
                grown = realloc(l->rest, MAX(l->len + len, l->size * 2));
                if (!grown)
                        return -ENOMEM;
                l->size = MAX(l->len + len, l->size * 2);
                l->rest = grown;
        }
        memcpy(l->rest + l->len, text, len);
        l->len += len;
        return 0;
}

/* The kept line is complete: handles it. */
static int lines_flush(struct lines *l)
{
        size_t len = l->len;

        l->len = 0;
        l->too_long = false;
        return lines_end(l, l->rest, len);
}

/* Before the first line: skips a byte order mark, and refuses by name what isn't JSON lines. */
static int lines_begin(struct lines *l, const char **text, size_t *len)
{
        static const char mark[] = "\xef\xbb\xbf";
        size_t mark_len = sizeof(mark) - 1;
        struct trace_error e = {.file = l->builder->file};

        l->has_begun = true;
        if (*len >= mark_len && memcmp(*text, mark, mark_len) == 0) {
                *text += mark_len;
                *len -= mark_len;
        }
        if (!trace_is_other(*text, *len, e.text, sizeof(e.text)))
                return 0;
        *l->error = e;
        return -EINVAL;
}

static int lines_add(struct lines *l, const char *text, size_t len)
{
        int r = l->has_begun ? 0 : lines_begin(l, &text, &len);
        const char *end = text + len;

        while (r == 0 && text < end) {
                const char *newline = memchr(text, '\n', (size_t)(end - text));
                size_t n = (size_t)((newline ? newline : end) - text);

                if (newline && l->len == 0) {
                        r = lines_end(l, text, n);
                } else {
                        r = lines_keep(l, text, n);
                        if (r == 0 && newline)
                                r = lines_flush(l);
                }
                text += n + 1;
        }
        return r;
}

/* Handles the last line, which may lack its end. */
static int lines_finish(struct lines *l)
{
        return l->len > 0 ? lines_flush(l) : 0;
}

int trace_parse(const char *text, size_t len, unsigned flags, uint32_t block_tokens,
        struct trace *ret_trace, struct trace_error *ret_error)
{
        struct builder b;
        struct lines l = {.builder = &b, .error = ret_error};
        int r;

        builder_init(&b, flags, block_tokens);
        r = builder_file(&b, 0, NULL);
        if (r == 0)
                r = lines_add(&l, text, len);
        if (r == 0)
                r = lines_finish(&l);
        if (r == 0)
                r = builder_finish(&b, ret_trace, ret_error);
        free(l.rest);
        builder_deinit(&b);
        return r;
}

/* ---- files ----------------------------------------------------------------------------------- */

struct reading {
        struct builder builder;
        bool (*progress)(uint64_t done_bytes, uint64_t total_bytes, void *data);
        void *data;
        uint64_t before_bytes, total_bytes; /* of the previous files; of all */
        struct trace_error *error;
};

static int read_failed(const struct reading *rd, gzFile gz)
{
        int code, saved = errno;

        (void)gzerror(gz, &code);
        if (code == Z_MEM_ERROR)
                return -ENOMEM;
        if (code == Z_ERRNO && saved > 0) {
                *rd->error = (struct trace_error){.file = rd->builder.file};
                snprintf(rd->error->text, sizeof(rd->error->text), "%s", strerror(saved));
                return -saved;
        }
        *rd->error = (struct trace_error){.file = rd->builder.file};
        snprintf(rd->error->text, sizeof(rd->error->text),
                "the compressed data is damaged or ends early, after line %" PRIu64,
                rd->builder.line);
        return -EINVAL;
}

static int read_lines(struct reading *rd, gzFile gz, struct lines *l)
{
        _cleanup_free_ char *chunk = malloc(CHUNK_BYTES);
        int r = chunk ? 0 : -ENOMEM;

        while (r == 0) {
                int n = gzread(gz, chunk, CHUNK_BYTES);

                if (n < 0)
                        return read_failed(rd, gz);
                if (n == 0) {
                        int code;

                        /* A truncated gzip file reads as a short one. */
                        (void)gzerror(gz, &code);
                        return code == Z_OK ? lines_finish(l) : read_failed(rd, gz);
                }
                r = lines_add(l, chunk, (size_t)n);
                if (r == 0 && rd->progress &&
                        !rd->progress(rd->before_bytes + (uint64_t)MAX(gzoffset(gz), 0),
                                rd->total_bytes, rd->data))
                        r = -ECANCELED;
        }
        return r;
}

/* Takes fd. */
static int read_fd(struct reading *rd, int fd)
{
        struct lines l = {.builder = &rd->builder, .error = rd->error};
        gzFile gz = gzdopen(fd, "rb");
        int r;

        if (!gz) {
                fd_close(fd);
                return -ENOMEM;
        }
        (void)gzbuffer(gz, CHUNK_BYTES);
        r = read_lines(rd, gz, &l);
        free(l.rest);
        (void)gzclose_r(gz); /* errors were already checked */
        return r;
}

static uint64_t file_bytes(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
}

static int read_file(struct reading *rd, const char *path)
{
        int fd = open(path, O_RDONLY | O_CLOEXEC), r;

        if (fd < 0) {
                r = -errno;
                *rd->error = (struct trace_error){.file = rd->builder.file};
                snprintf(rd->error->text, sizeof(rd->error->text), "%s", strerror(-r));
                return r;
        }
        r = read_fd(rd, fd);
        rd->before_bytes += file_bytes(path);
        return r;
}

/* ---- several files --------------------------------------------------------------------------- */

static void strip(char *name, const char *ending)
{
        size_t len = strlen(name), end = strlen(ending);

        if (len > end && strcmp(name + len - end, ending) == 0)
                name[len - end] = '\0';
}

void trace_name(const char *path, char name[TRACE_NAME_SIZE])
{
        const char *slash = strrchr(path, '/');
        char copy[512];

        snprintf(copy, sizeof(copy), "%s", slash ? slash + 1 : path);
        strip(copy, ".gz");
        strip(copy, ".jsonl");
        snprintf(name, TENANT_NAME_MAX + 1, "%.*s", TENANT_NAME_MAX, copy);
        for (char *c = name; *c; c++) {
                char one[2] = {*c, '\0'};

                if (!name_is_valid(one, 1) && (c == name || !strchr(".-", *c)))
                        *c = '_';
        }
        if (name[0] == '\0')
                snprintf(name, TENANT_NAME_MAX + 1, "_");
}

/* Two files may have the same name in two directories: "chat", "chat-2". */
static int start_tenant(struct builder *b, unsigned file, const char *path)
{
        char name[TENANT_NAME_MAX + 1], base[TENANT_NAME_MAX - 3];

        trace_name(path, name);
        snprintf(base, sizeof(base), "%.*s", (int)sizeof(base) - 1, name);
        for (unsigned i = 2; builder_has_tenant(b, name); i++)
                snprintf(name, sizeof(name), "%s-%u", base, i % 1000);
        return builder_file(b, file, name);
}

static int read_files(struct reading *rd, const char *const *paths, unsigned n_paths)
{
        int r = 0;

        for (unsigned i = 0; i < n_paths; i++)
                rd->total_bytes += file_bytes(paths[i]);
        for (unsigned i = 0; i < n_paths && r == 0; i++) {
                r = n_paths > 1 ? start_tenant(&rd->builder, i, paths[i])
                                : builder_file(&rd->builder, i, NULL);
                if (r == 0)
                        r = read_file(rd, paths[i]);
        }
        return r;
}

int trace_read(
        const struct trace_source *source, struct trace *ret_trace, struct trace_error *ret_error)
{
        struct reading rd = {
                .progress = source->progress, .data = source->data, .error = ret_error};
        int r;

        *ret_error = (struct trace_error){0};
        if (source->n_paths == 0 || source->n_paths > TRACE_TENANTS_MAX) {
                snprintf(ret_error->text, sizeof(ret_error->text), "%u files; 1 to %d are read",
                        source->n_paths, TRACE_TENANTS_MAX);
                return -EINVAL;
        }
        builder_init(&rd.builder, source->flags, source->block_tokens);
        r = read_files(&rd, source->paths, source->n_paths);
        if (r == 0)
                r = builder_finish(&rd.builder, ret_trace, ret_error);
        builder_deinit(&rd.builder);
        return r;
}
