/* Runs a fuzz target once on every file of the directories given. */
#include <dirent.h>
#include <string.h>

#include "base/fd.h"
#include "tests/fuzz/fuzz.h"

#define INPUT_MAX_BYTES (1 << 20)

static void run_file(const char *dir, const char *name)
{
        _cleanup_free_ char *path = NULL, *text = NULL, *exact = NULL;
        size_t len;

        CHECK(asprintf(&path, "%s/%s", dir, name) > 0);
        if (file_read(path, INPUT_MAX_BYTES, &text, &len) < 0) {
                fprintf(stderr, "can't read %s\n", path);
                exit(1);
        }
        /* Without the NUL that file_read() adds: the sanitizer then sees a read past the end. */
        exact = malloc(len ? len : 1);
        CHECK(exact);
        memcpy(exact, text, len);
        LLVMFuzzerTestOneInput((const uint8_t *)exact, len);
}

static unsigned run_dir(const char *path)
{
        DIR *dir = opendir(path);
        unsigned n = 0;

        if (!dir) {
                perror(path);
                exit(1);
        }
        for (struct dirent *e; (e = readdir(dir));)
                if (e->d_name[0] != '.') {
                        run_file(path, e->d_name);
                        n++;
                }
        closedir(dir);
        return n;
}

int main(int argc, char **argv)
{
        unsigned n = 0;

        for (int i = 1; i < argc; i++)
                n += run_dir(argv[i]);
        printf("%u inputs\n", n);
        return n > 0 ? 0 : 1; /* an empty corpus tests nothing */
}
