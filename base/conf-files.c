#include "base/conf-files.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"

#define SUFFIX ".conf"

void conf_files_deinit(struct conf_files *f)
{
        for (size_t i = 0; i < f->n; i++)
                free(f->paths[i]);
        free(f->paths);
        *f = (struct conf_files){0};
}

static bool is_drop_in(const char *name)
{
        size_t len = strlen(name);

        return name[0] != '.' && len > strlen(SUFFIX) &&
               strcmp(name + len - strlen(SUFFIX), SUFFIX) == 0;
}

/* Appends "DIR/NAME"; "DIR" if name is NULL. Returns 0 or -ENOMEM. */
static int add_path(struct conf_files *f, const char *dir, const char *name)
{
        char *path;
        int n = name ? asprintf(&path, "%s/%s", dir, name) : asprintf(&path, "%s", dir);

        if (n < 0)
                return -ENOMEM;
        f->paths[f->n++] = path;
        return 0;
}

static int compare_paths(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static int read_dir(struct conf_files *f, const char *path, DIR *dir, char *err, size_t err_len)
{
        char shown[FORMAT_EXCERPT_MAX];
        const struct dirent *entry;
        int r = 0;

        errno = 0;
        while (r == 0 && (entry = readdir(dir))) {
                if (!is_drop_in(entry->d_name))
                        continue;
                if (!name_is_valid(entry->d_name, NAME_MAX))
                        return say_why(err, err_len, -EINVAL,
                                "%s: the name of the file %s has other characters than A-Z a-z 0-9 . _ -, or begins with '-': give it another one",
                                path, format_excerpt(entry->d_name, strlen(entry->d_name), shown));
                if (f->n == 1 + CONF_DROP_INS_MAX) {
                        return say_why(err, err_len, -E2BIG, "%s has more than %d files *" SUFFIX,
                                path, CONF_DROP_INS_MAX);
                }
                r = add_path(f, path, entry->d_name);
                errno = 0;
        }
        return r < 0 ? r : -errno;
}

static int find(struct conf_files *f, const char *path, char *err, size_t err_len)
{
        DIR *dir = opendir(path);
        int r;

        if (!dir)
                return errno == ENOENT ? 0 : -errno;
        r = read_dir(f, path, dir, err, err_len);
        closedir(dir);
        if (r == 0)
                qsort(f->paths + 1, f->n - 1, sizeof(*f->paths), compare_paths);
        return r;
}

int conf_files_find(const char *file, struct conf_files *ret, char *err, size_t err_len)
{
        struct conf_files f = {.paths = calloc(1 + CONF_DROP_INS_MAX, sizeof(*f.paths))};
        _cleanup_free_ char *dir = NULL;
        int r = f.paths ? add_path(&f, file, NULL) : -ENOMEM;

        err[0] = '\0';
        if (r == 0 && asprintf(&dir, "%s.d", file) < 0) {
                dir = NULL; /* asprintf leaves it undefined */
                r = -ENOMEM;
        }
        if (r == 0)
                r = find(&f, dir, err, err_len);
        if (r == 0) {
                *ret = f;
                return 0;
        }
        if (!err[0])
                snprintf(err, err_len, "cannot read the directory %s.d: %s", file, strerror(-r));
        conf_files_deinit(&f);
        return r;
}
