/* Checks of kvleased's files: its state, and the disk tier. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "client/ctl/ctl.h"
#include "client/ctl/doctor.h"

#define TRY_BYTES 4096
/* Tenants' state takes some KiB, and twice that while it is rewritten. Not tuned. */
#define STATE_FREE_BYTES (1 << 20)

/* Calls fn for each disk of the configuration. Returns how many. */
static unsigned for_each_disk(
        struct doctor *d, void (*fn)(struct doctor *d, const char *path, uint64_t bytes))
{
        unsigned n = 0;

        for (size_t i = 0; i < d->config.n; i++) {
                const struct doctor_line *line = &d->config.lines[i];
                uint64_t bytes;

                if (strcmp(line->section, "device") != 0 || strcmp(line->key, "disk") != 0 ||
                        !line->value[0] ||
                        doctor_setting(d, "device", line->name, "disk") != line->value)
                        continue;
                bytes = doctor_setting_bytes(d, "device", line->name, "disk_size", 0);
                n++;
                if (fn)
                        fn(d, line->value, bytes);
        }
        return n;
}

/* Whether `path` is below the directory. */
static bool is_below(const char *path, const char *dir)
{
        size_t len = strlen(dir);

        while (len > 1 && dir[len - 1] == '/')
                len--;
        return len <= 1 || (strncmp(path, dir, len) == 0 && (path[len] == '/' || !path[len]));
}

/* Expands %i in a unit's word, "kvlease-%i", by the instance of kvleased@. Owned. */
static char *expand(const struct doctor *d, const char *word)
{
        const char *at = strstr(word, "%i"), *name = strchr(d->unit_name, '@');
        char *text = NULL;
        int n;

        if (!at || !name)
                return need(strdup(word));
        n = (int)strcspn(name + 1, ".");
        if (asprintf(&text, "%.*s%.*s%s", (int)(at - word), word, n, name + 1, at + 2) < 0)
                text = NULL; /* asprintf leaves it undefined */
        return need(text);
}

/* Whether the path is below one of the words, each below `above`. */
static bool is_below_any(
        const struct doctor *d, const char *path, const char *words, const char *above)
{
        _cleanup_free_ char *copy = expand(d, words);
        char *save = NULL, dir[4096];

        for (char *word = strtok_r(copy, " \t", &save); word; word = strtok_r(NULL, " \t", &save)) {
                snprintf(dir, sizeof(dir), "%s%s", above, word + strspn(word, "-+"));
                if (is_below(path, dir))
                        return true;
        }
        return false;
}

/* Whether the unit lets the path be written: with ProtectSystem=strict, only if it is listed. */
static bool is_writable_in_unit(const struct doctor *d, const char *path)
{
        const char *protect = doctor_unit_setting(d, "ProtectSystem");

        if (!protect || strcmp(protect, "strict") != 0)
                return true;
        for (size_t i = 0; i < d->unit.n; i++) {
                const struct doctor_line *line = &d->unit.lines[i];

                if ((strcmp(line->key, "StateDirectory") == 0 &&
                            is_below_any(d, path, line->value, "/var/lib/")) ||
                        (strcmp(line->key, "ReadWritePaths") == 0 &&
                                is_below_any(d, path, line->value, "")))
                        return true;
        }
        return false;
}

/* Checks direct I/O by a descriptor, which the file system may refuse. Returns false, with a
 * finding. */
static bool find_no_direct(struct doctor *d, const char *path, int fd)
{
        int flags = fcntl(fd, F_GETFL);

        if (flags >= 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0)
                return false;
        doctor_find(d, DOCTOR_WARNING,
                "the file system of %s has no O_DIRECT: the page cache has a second copy of all bytes that are read and written",
                path);
        doctor_advise(d, "put the file on ext4 or xfs of a local disk");
        return true;
}

/* Checks the directory by an unnamed file, which is removed when it is closed. */
static bool find_in_directory(struct doctor *d, const char *path, const char *dir)
{
        _cleanup_fd_ int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

        if (fd < 0 && (errno == EACCES || errno == EPERM || errno == EROFS) && geteuid() != 0) {
                doctor_find(d, DOCTOR_UNCHECKED,
                        "%s: this user can't write there: run kvleasectl doctor as root", path);
                return true;
        }
        if (fd < 0 && errno != EOPNOTSUPP && errno != EISDIR) {
                doctor_find(
                        d, DOCTOR_ERROR, "no file can be made at %s: %s", path, strerror(errno));
                doctor_advise(
                        d, "make its directory writable for root, or set 'disk' to a path that is");
                return true;
        }
        if (fd < 0)
                return false; /* no O_TMPFILE here: making the file will show it */
        if (fallocate(fd, 0, 0, TRY_BYTES) < 0 && errno == EOPNOTSUPP) {
                doctor_find(d, DOCTOR_ERROR, "the file system of %s can't preallocate", path);
                doctor_advise(d, "put the file on ext4 or xfs of a local disk");
                return true;
        }
        return find_no_direct(d, path, fd);
}

static bool find_no_space(struct doctor *d, const char *path, const char *dir, uint64_t bytes)
{
        char wanted_text[FORMAT_BYTES_MAX], free_text[FORMAT_BYTES_MAX];
        struct statvfs st;
        uint64_t has;

        if (statvfs(dir, &st) < 0)
                return false;
        has = (uint64_t)st.f_bavail * st.f_frsize;
        if (has >= bytes)
                return false;
        doctor_find(d, DOCTOR_ERROR, "%s is to have %s, and its file system has %s left", path,
                format_bytes(bytes, wanted_text), format_bytes(has, free_text));
        doctor_advise(d, "set disk_size to less, or make room there");
        return true;
}

static void check_new_file(struct doctor *d, const char *path, const char *full, uint64_t bytes)
{
        _cleanup_free_ char *copy = need(strdup(full));
        const char *dir = dirname(copy);
        struct stat st;

        if (stat(dir, &st) < 0) {
                bool is_missing = errno == ENOENT;

                doctor_find(d, is_missing ? DOCTOR_ERROR : DOCTOR_UNCHECKED,
                        "the directory of %s can't be seen: %s", path, strerror(errno));
                if (is_missing)
                        doctor_advise(d, "mkdir -p %.*s", (int)(strrchr(path, '/') - path), path);
                return;
        }
        if (!find_no_space(d, path, dir, bytes) && !find_in_directory(d, path, dir))
                doctor_find(d, DOCTOR_OK, "%s will be made, and there is room for it", path);
}

static void check_old_file(
        struct doctor *d, const char *path, const char *full, const struct stat *st, uint64_t bytes)
{
        _cleanup_fd_ int fd = -1;

        if (!S_ISREG(st->st_mode)) {
                doctor_find(d, DOCTOR_ERROR, "%s is no regular file", path);
                doctor_advise(d, "set 'disk' to another path: it is made where it is missing");
                return;
        }
        if ((uint64_t)st->st_size != bytes) {
                char is_text[FORMAT_BYTES_MAX], wanted_text[FORMAT_BYTES_MAX];

                doctor_find(d, DOCTOR_WARNING,
                        "%s has %s and disk_size is %s: the next start makes it again, and its cached pages are lost",
                        path, format_bytes((uint64_t)st->st_size, is_text),
                        format_bytes(bytes, wanted_text));
                doctor_advise(d, "set disk_size = %" PRIu64 " to keep it", (uint64_t)st->st_size);
                return;
        }
        fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
                doctor_find(d, DOCTOR_UNCHECKED,
                        "%s can't be opened (%s): run kvleasectl doctor as root", path,
                        strerror(errno));
        else if (!find_no_direct(d, path, fd))
                doctor_find(d, DOCTOR_OK, "%s is there, and allocated", path);
}

static void check_disk(struct doctor *d, const char *path, uint64_t bytes)
{
        _cleanup_free_ char *full = doctor_path(d, "%s", path);
        struct stat st;

        if (path[0] != '/') {
                doctor_find(d, DOCTOR_UNCHECKED, "'disk' is no absolute path: see check config");
                return;
        }
        if (d->unit_path && (d->is_unit_run || d->daemon.state != DAEMON_UP) &&
                !is_writable_in_unit(d, path)) {
                doctor_find(d, DOCTOR_ERROR, "%s can't write to %s (ProtectSystem=strict)",
                        d->unit_name, path);
                doctor_advise(d, "systemctl edit %s: [Service] ReadWritePaths=%.*s", d->unit_name,
                        (int)MAX(strrchr(path, '/') - path, (ptrdiff_t)1), path);
        }
        if (stat(full, &st) == 0)
                check_old_file(d, path, full, &st, bytes);
        else if (errno == ENOENT)
                check_new_file(d, path, full, bytes);
        else
                doctor_find(d, DOCTOR_UNCHECKED, "%s can't be seen: %s", path, strerror(errno));
}

/* Returns the state directory of the running daemon, or of this configuration. Owned. */
static char *state_dir(const struct doctor *d)
{
        const char *set = doctor_setting(d, "daemon", "", "state_dir");

        if (d->daemon.state_dir && d->daemon.state_dir[0])
                return need(strdup(d->daemon.state_dir));
        if (set)
                return need(strdup(set));
        return expand(d, strchr(d->unit_name, '@') ? "/var/lib/kvlease-%i" : "/var/lib/kvlease");
}

void doctor_check_state_dir(struct doctor *d)
{
        _cleanup_free_ char *dir = state_dir(d), *path = doctor_path(d, "%s", dir);
        char text[FORMAT_BYTES_MAX];
        struct statvfs st;
        uint64_t has;

        if (statvfs(path, &st) < 0) {
                doctor_find(d, errno == ENOENT ? DOCTOR_OK : DOCTOR_UNCHECKED, "%s: %s", dir,
                        errno == ENOENT ? "kvleased makes it" : strerror(errno));
                return;
        }
        has = (uint64_t)st.f_bavail * st.f_frsize;
        format_bytes(has, text);
        /* A file system that doesn't count files reports 0 of 0. */
        if (has >= STATE_FREE_BYTES && (st.f_favail > 0 || st.f_files == 0)) {
                doctor_find(d, DOCTOR_OK, "the file system of %s has %s left", dir, text);
                return;
        }
        doctor_find(d, DOCTOR_ERROR,
                "the file system of %s has %s and %llu files left: changes of tenants are refused, and recorded traffic is lost",
                dir, text, (unsigned long long)st.f_favail);
        doctor_advise(d, "make room there, or set state_dir to a directory elsewhere");
}

void doctor_check_disk(struct doctor *d)
{
        if (for_each_disk(d, check_disk) > 0)
                return;
        if (d->config_error < 0 && d->config_error != -ENOENT)
                doctor_find(d, DOCTOR_UNCHECKED, "%s can't be read: %s", d->config_path,
                        file_read_error(d->config_error));
        else
                doctor_find(d, DOCTOR_OK, "the configuration has no disk");
}

void doctor_check_io_uring(struct doctor *d)
{
        _cleanup_free_ char *disabled = doctor_read(d, "/proc/sys/kernel/io_uring_disabled");

        if (for_each_disk(d, NULL) == 0) {
                doctor_find(d, DOCTOR_OK, "the configuration has no disk");
        } else if (disabled && strcmp(disabled, "2") == 0) {
                doctor_find(d, DOCTOR_WARNING,
                        "kernel.io_uring_disabled is 2: the disk is read and written by threads");
                doctor_advise(d,
                        "sysctl -w kernel.io_uring_disabled=1, which leaves it to root; put it into /etc/sysctl.d");
        } else {
                /* The setting exists since Linux 6.6; root may use io_uring if it is 1. */
                doctor_find(d, DOCTOR_OK, "kernel.io_uring_disabled is %s",
                        disabled ? disabled : "not there: it is allowed");
        }
}
