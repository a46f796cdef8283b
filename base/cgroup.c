#include "base/cgroup.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/macros.h"
#include "base/parse.h"

#define FILE_BYTES_MAX 65536

/* Version 1 reports a number near 2^63 for no limit. */
#define NO_LIMIT_MIN (UINT64_C(1) << 62)

/* The memory controller's mount, whether /proc/PID/cgroup names it, and its files. */
static const struct controller {
        const char *mount;
        bool has_names;
        const char *limit, *events;
} controllers[] = {
        {"/sys/fs/cgroup/memory", true, "memory.limit_in_bytes", "memory.oom_control"},
        {"/sys/fs/cgroup", false, "memory.max", "memory.events"},
};

/* Returns the owned text of a file below the root, or NULL with *ret_error. */
KVL_PRINTF(2, 3) static char *read_text(int *ret_error, const char *format, ...)
{
        char path[2 * CGROUP_PATH_MAX], *text = NULL;
        va_list ap;
        size_t len;
        int n;

        va_start(ap, format);
        n = vsnprintf(path, sizeof(path), format, ap);
        va_end(ap);
        n = n < (int)sizeof(path) ? file_read(path, FILE_BYTES_MAX, &text, &len) : -ENAMETOOLONG;
        if (ret_error)
                *ret_error = n;
        return n < 0 ? NULL : text;
}

/* Reads a number that is the file's first word. */
static int read_number(const char *root, const char *group, const char *file, uint64_t *ret_number)
{
        int error;
        _cleanup_free_ char *text = read_text(&error, "%s%s/%s", root, group, file);

        if (!text)
                return error;
        text[strcspn(text, " \n")] = '\0';
        return parse_u64(text, ret_number);
}

/* Whether "memory" is among the names, as in "cpu,memory". Version 2 has no names. */
static bool is_named(const struct controller *c, const char *names, size_t len)
{
        static const char name[] = "memory";

        if (!c->has_names)
                return len == 0;
        for (size_t at = 0, n; at < len; at += n + 1) {
                for (n = 0; at + n < len && names[at + n] != ',';)
                        n++;
                if (n == strlen(name) && strncmp(names + at, name, n) == 0)
                        return true;
        }
        return false;
}

/* Finds the path in a line such as "4:memory:/a" or "0::/a" of /proc/PID/cgroup. NULL: none. */
static const char *find_group(const char *text, const struct controller *c, size_t *ret_len)
{
        for (const char *line = text; *line;) {
                size_t len = strcspn(line, "\n"), names = strcspn(line, ":\n") + 1, path;

                path = names < len ? names + strcspn(line + names, ":\n") + 1 : len;
                if (path < len && is_named(c, line + names, path - 1 - names)) {
                        *ret_len = len - path;
                        return line + path;
                }
                line += len + (line[len] == '\n');
        }
        return NULL;
}

/* Whether a path of /proc/PID/cgroup is outside of this process' cgroup namespace. "/.." is above
 * the namespace's root, "/../a" beside it. */
static bool is_outside(const char *path, size_t len)
{
        return len >= 3 && strncmp(path, "/..", 3) == 0 && (len == 3 || path[3] == '/');
}

/* Finds the process' group of the controller, as a path below the root. Returns 0; -ENODATA: it has
 * none; -EXDEV: it is outside of this cgroup namespace; -ENAMETOOLONG. */
static int group_of(const char *text, const struct controller *c, char group[CGROUP_PATH_MAX])
{
        const char *path;
        size_t len;
        int n;

        path = find_group(text, c, &len);
        if (!path)
                return -ENODATA;
        if (is_outside(path, len))
                return -EXDEV;
        n = snprintf(group, CGROUP_PATH_MAX, "%s%.*s", c->mount, (int)len, path);
        if (n >= CGROUP_PATH_MAX)
                return -ENAMETOOLONG;
        for (; n > 0 && group[n - 1] == '/'; n--)
                group[n - 1] = '\0';
        return 0;
}

/* Finds the lowest limit from the group up to the controller's mount. A container may see the mount
 * alone. */
static int lowest_limit(const char *root, const struct controller *c, char group[CGROUP_PATH_MAX],
        char ret_group[CGROUP_PATH_MAX], uint64_t *ret_bytes)
{
        int r = -ENODATA;
        uint64_t bytes;

        for (;;) {
                int error = read_number(root, group, c->limit, &bytes);

                if (error == 0 && bytes < NO_LIMIT_MIN && bytes < *ret_bytes) {
                        *ret_bytes = bytes;
                        strcpy(ret_group, group);
                        r = 0;
                } else if (r == -ENODATA && error == -EACCES) {
                        r = error;
                }
                if (strlen(group) <= strlen(c->mount))
                        return r;
                *strrchr(group, '/') = '\0';
        }
}

static char *read_groups(const char *root, uint64_t pid, int *ret_error)
{
        if (pid == 0)
                return read_text(ret_error, "%s/proc/self/cgroup", root);
        return read_text(ret_error, "%s/proc/%llu/cgroup", root, (unsigned long long)pid);
}

int cgroup_memory_limit(
        const char *root, uint64_t pid, char ret_group[CGROUP_PATH_MAX], uint64_t *ret_bytes)
{
        int error, r = -ENODATA;
        _cleanup_free_ char *text = read_groups(root, pid, &error);
        char group[CGROUP_PATH_MAX];

        if (!text)
                return error;
        *ret_bytes = UINT64_MAX;
        for (size_t i = 0; i < ARRAY_SIZE(controllers); i++) {
                error = group_of(text, &controllers[i], group);
                if (error == 0)
                        error = lowest_limit(root, &controllers[i], group, ret_group, ret_bytes);
                if (error == 0 || r == -ENODATA)
                        r = error;
        }
        return r;
}

/* Returns the number after a word at the start of a line; 0: none. */
static uint64_t number_behind(const char *text, const char *word)
{
        size_t len = strlen(word);

        for (const char *at = text; at && *at; at = strchr(at, '\n'), at += at ? 1 : 0)
                if (strncmp(at, word, len) == 0 && at[len] == ' ')
                        return strtoull(at + len, NULL, 10);
        return 0;
}

struct cgroup_oom_kills cgroup_oom_kills(void)
{
        _cleanup_free_ char *groups = read_groups("", 0, NULL);
        _cleanup_free_ char *host = read_text(NULL, "/proc/vmstat");
        struct cgroup_oom_kills kills = {0};
        char group[CGROUP_PATH_MAX];

        for (size_t i = 0; groups && i < ARRAY_SIZE(controllers); i++)
                if (group_of(groups, &controllers[i], group) == 0) {
                        _cleanup_free_ char *text =
                                read_text(NULL, "%s/%s", group, controllers[i].events);

                        if (text)
                                kills.of_group += number_behind(text, "oom_kill");
                }
        if (host)
                kills.of_host = number_behind(host, "oom_kill");
        return kills;
}
