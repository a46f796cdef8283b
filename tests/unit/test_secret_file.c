/* Secrets in files of their own: which files are believed, and what is in them. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/secret-file.h"

struct scene {
        const char *dir;
        char *path;
};

static struct scene scene_new(const void *bytes, size_t n, mode_t mode)
{
        struct scene s = {.dir = test_dir_make()};
        int fd;

        s.path = test_path(s.dir, "secret");
        fd = open(s.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, bytes, n), n);
        assert_int_equal(fchmod(fd, mode), 0);
        close(fd);
        return s;
}

static void scene_free(struct scene *s)
{
        free(s->path);
        test_dir_remove(s->dir);
}

/* Reads 4 to 8 bytes. After an error there is nothing, and the sentence has `part`. */
static int read_secret(const char *path, struct secret *ret, const char *part)
{
        const struct secret nothing = {0};
        char why[SECRET_WHY_BYTES] = "";
        int r;

        memset(ret, 0x55, sizeof(*ret));
        r = secret_read(path, 4, 8, ret, why);
        if (r < 0) {
                assert_memory_equal(ret, &nothing, sizeof(nothing));
                if (!strstr(why, part))
                        fail_msg("no '%s' in: %s", part, why);
        }
        return r;
}

static void is_read(const void *bytes, size_t n, mode_t mode, const char *secret, size_t len)
{
        struct scene s = scene_new(bytes, n, mode);
        struct secret got;

        assert_int_equal(read_secret(s.path, &got, ""), 0);
        assert_int_equal(got.len, len);
        assert_memory_equal(got.bytes, secret, len + 1);
        secret_wipe(&got);
        assert_int_equal(got.len, 0);
        assert_int_equal(got.bytes[0], 0);
        scene_free(&s);
}

static void is_refused(const void *bytes, size_t n, mode_t mode, int error, const char *part)
{
        struct scene s = scene_new(bytes, n, mode);
        struct secret got;

        assert_int_equal(read_secret(s.path, &got, part), error);
        scene_free(&s);
}

TEST(test_contents)
{
        is_read("abcd", 4, 0600, "abcd", 4);
        is_read("abcd\n", 5, 0600, "abcd", 4);
        is_read("abcd\n\n", 6, 0600, "abcd\n", 5);
        is_read("abcdefgh\n", 9, 0600, "abcdefgh", 8);
        is_read("a\0cd", 4, 0600, "a\0cd", 4);
        is_refused("", 0, 0600, -EINVAL, "has 0 bytes, at least 4 are needed");
        is_refused("abc\n", 4, 0600, -EINVAL, "has 3 bytes, at least 4 are needed: openssl");
        is_refused("abcdefghi", 9, 0600, -EINVAL, "has more than 8 bytes");
        is_refused("abcdefgh\n\n", 10, 0600, -EINVAL, "has more than 8 bytes");
        is_refused("abcdefghijklmnopqrst", 20, 0600, -EINVAL, "has more than 8 bytes");
}

TEST(test_modes)
{
        is_read("abcd", 4, 0400, "abcd", 4);
        is_read("abcd", 4, 0640, "abcd", 4);
        is_refused("abcd", 4, 0644, -EACCES, "has mode 0644");
        is_refused("abcd", 4, 0604, -EACCES, "chmod 600");
        is_refused("abcd", 4, 0602, -EACCES, "has mode 0602");
        is_refused("abcd", 4, 0660, -EACCES, "has mode 0660");
}

TEST(test_owner)
{
        struct scene s = scene_new("abcd", 4, 0600);
        struct secret got;

        if (geteuid() != 0) {
                scene_free(&s);
                skip();
        }
        assert_int_equal(chown(s.path, 12345, 0), 0);
        assert_int_equal(read_secret(s.path, &got, "belongs to uid 12345"), -EACCES);
        scene_free(&s);
}

TEST(test_no_file)
{
        struct scene s = scene_new("abcd", 4, 0600);
        char *other = test_path(s.dir, "other");
        struct secret got;

        assert_int_equal(read_secret(other, &got, "No such file"), -ENOENT);
        assert_int_equal(read_secret(s.dir, &got, "is no regular file"), -EISDIR);
        assert_int_equal(symlink(s.path, other), 0);
        assert_int_equal(read_secret(other, &got, ""), 0);
        assert_int_equal(unlink(other), 0);
        assert_int_equal(mkfifo(other, 0600), 0); /* isn't waited for */
        assert_int_equal(read_secret(other, &got, "is no regular file"), -EBADFD);
        free(other);
        scene_free(&s);
}
