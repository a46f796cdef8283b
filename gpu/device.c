#include "gpu/device.h"

#include <errno.h>

const struct device_backend *const device_backends[] = {&host_backend, NULL};

int device_open(const char *name, struct device **ret_device)
{
        for (const struct device_backend *const *b = device_backends; *b; b++) {
                int r = (*b)->open(name, ret_device);

                if (r != -ENODEV)
                        return r;
        }
        return -ENODEV;
}
