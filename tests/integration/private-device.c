/* The device that tests run on; declared in private-daemon.h. */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "gpu/device.h"
#include "tests/integration/private-daemon.h"

static char
        fake_dir[PRIVATE_PATH_MAX]; /* of the simulated driver's state; "" while there is none */

const char *private_transport(void)
{
        const char *value = getenv("KVL_DEVICE");

        return value && value[0] ? value : "host";
}

bool private_on_gpu(void)
{
        return strcmp(private_transport(), "host") != 0;
}

bool private_is_contiguous(void)
{
        return strcmp(private_transport(), "cudaipc") != 0;
}

bool private_on_real_gpu(void)
{
        const char *value = getenv("KVL_DEVICE_REAL");

        return private_on_gpu() && value && strcmp(value, "1") == 0;
}

/* Finds the first GPU's UUID in a child: a process that has loaded the driver must not fork. */
static void find_first(char uuid[DEVICE_NAME_MAX + 1])
{
        struct device_props props;
        char why[DEVICE_WHY_BYTES];
        int fds[2], status;
        ssize_t n;
        pid_t pid;

        if (pipe(fds) < 0)
                abort();
        pid = fork();
        if (pid == 0) {
                if (cuda_backend.enumerate(&props, 1, why) < 1)
                        fprintf(stderr, "no GPU here: %s\n", why);
                else if (write(fds[1], props.name, strlen(props.name)) < 0)
                        _exit(1);
                _exit(0);
        }
        close(fds[1]);
        n = read(fds[0], uuid, DEVICE_NAME_MAX);
        uuid[MAX(n, 0)] = '\0';
        close(fds[0]);
        waitpid(pid, &status, 0);
}

const char *private_device(void)
{
        static char uuid[DEVICE_NAME_MAX + 1];
        const char *named = getenv("KVL_DEVICE_UUID");

        if (!private_on_gpu())
                return "host";
        if (named && named[0])
                return named;
        if (!private_on_real_gpu())
                return PRIVATE_FAKE_UUID;
        if (!uuid[0])
                find_first(uuid);
        return uuid;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
        return remove(path);
}

static void remove_fake_dir(void)
{
        if (fake_dir[0])
                nftw(fake_dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        fake_dir[0] = '\0';
}

/* Children find the simulated driver by LD_LIBRARY_PATH; meson sets it for tests that are clients
 * themselves. */
static int set_library_path(void)
{
        const char *dir = getenv("KVL_FAKECUDA_LIB"), *path = getenv("LD_LIBRARY_PATH");
        char both[4096];

        if (!dir || (path && strstr(path, dir)))
                return 0;
        snprintf(both, sizeof(both), "%s%s%s", dir, path && path[0] ? ":" : "", path ? path : "");
        return setenv("LD_LIBRARY_PATH", both, 1) < 0 ? -errno : 0;
}

int private_device_init(void)
{
        if (private_on_real_gpu() || fake_dir[0] || !getenv("KVL_FAKECUDA_LIB"))
                return 0;
        snprintf(fake_dir, sizeof(fake_dir), "/tmp/kvl-cuda-XXXXXX");
        if (!mkdtemp(fake_dir)) {
                fake_dir[0] = '\0';
                return -errno;
        }
        if (atexit(remove_fake_dir) != 0 || setenv("FAKECUDA_DIR", fake_dir, 1) < 0)
                return -ENOMEM;
        return set_library_path();
}
