#include "client/trace/other.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"

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

bool trace_is_other(const char *head, size_t len, char *why, size_t size)
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
