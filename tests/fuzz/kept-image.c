#include "tests/fuzz/kept-image.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

/* Contents of a stored file, without its holes. */
#define RUNS_MAX 64
struct image {
        enum keep_kind kind;
        uint32_t number;
        size_t bytes;
        unsigned n_runs;
        struct {
                uint8_t *bytes; /* owned */
                off_t at;
                size_t len;
        } runs[RUNS_MAX];
};

static void save(const struct keep_entry *k, struct image *ret)
{
        off_t at = 0, end;
        struct stat st;

        CHECK(fstat(k->fd, &st) == 0);
        *ret = (struct image){.kind = k->kind, .number = k->number, .bytes = (size_t)st.st_size};
        while ((at = lseek(k->fd, at, SEEK_DATA)) >= 0) {
                unsigned n = ret->n_runs++;

                CHECK(n < RUNS_MAX);
                end = lseek(k->fd, at, SEEK_HOLE);
                ret->runs[n].at = at;
                ret->runs[n].len = (size_t)(end - at);
                ret->runs[n].bytes = malloc(ret->runs[n].len);
                CHECK(ret->runs[n].bytes && pread(k->fd, ret->runs[n].bytes, ret->runs[n].len,
                                                    at) == (ssize_t)ret->runs[n].len);
                at = end;
        }
}

/* Restores the contents of the file, which stays the same inode. */
static void restore(const struct keep_parent *keep, struct image *image)
{
        int fd = keep_parent_find(keep, image->kind, image->number);

        CHECK(fd >= 0 && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                 (off_t)image->bytes) == 0);
        for (unsigned n = 0; n < image->n_runs; n++) {
                CHECK(pwrite(fd, image->runs[n].bytes, image->runs[n].len, image->runs[n].at) ==
                        (ssize_t)image->runs[n].len);
                free(image->runs[n].bytes);
        }
}

static struct image images[KEEP_PARENT_MAX];
static unsigned n_images;

void kept_image_take(const struct keep_parent *keep)
{
        n_images = 0;
        for (unsigned i = 0; i < KEEP_PARENT_MAX; i++)
                if (keep->entries[i].fd >= 0 && keep->entries[i].kind != KEEP_PROCESS &&
                        keep->entries[i].kind != KEEP_INDEX_READER)
                        save(&keep->entries[i], &images[n_images++]);
}

void kept_image_restore(const struct keep_parent *keep)
{
        for (unsigned i = 0; i < n_images; i++)
                restore(keep, &images[i]);
        n_images = 0;
}

/* ---- a descriptor store that stores nothing ---- */

static int add_nothing(void *data, enum keep_kind kind, uint32_t number, int fd, struct detail *d)
{
        return 0;
}

static void drop_nothing(void *data, enum keep_kind kind, uint32_t number)
{
}

static int take_nothing(void *data, enum keep_kind kind, uint32_t number)
{
        return -ENOENT;
}

static uint32_t list_nothing(void *data, enum keep_kind kind, uint32_t *ret_numbers, uint32_t max)
{
        return 0;
}

const struct keep_ops kept_image_ops = {add_nothing, drop_nothing, take_nothing, list_nothing};
