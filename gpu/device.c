#include "gpu/device.h"

#include <errno.h>
#include <string.h>

const struct device_backend *const device_backends[] = {&cuda_backend, &host_backend, NULL};

int device_open(const char *name, const struct device_options *options, struct device **ret_device,
        char why[DEVICE_WHY_BYTES])
{
        char text[DEVICE_WHY_BYTES];

        why[0] = '\0';
        for (const struct device_backend *const *b = device_backends; *b; b++) {
                int r;

                text[0] = '\0';
                r = (*b)->open(name, options, ret_device, text);
                if (text[0])
                        memcpy(why, text, sizeof(text));
                if (r != -ENODEV)
                        return r;
        }
        return -ENODEV;
}
