#include "tests/unit/space-fixture.h"

#include <stdio.h>
#include <unistd.h>

static char path[128];

const char *space_path(void)
{
        return path;
}

int make_path(void **state)
{
        (void)snprintf(path, sizeof(path), "/dev/shm/test_space.%d", getpid());
        return 0;
}

int remove_path(void **state)
{
        (void)unlink(path);
        return 0;
}
