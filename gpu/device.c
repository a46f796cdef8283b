#include "gpu/device.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

const struct device_backend *const device_backends[] = {&cuda_backend, &host_backend, NULL};

bool device_is_name(const char *name)
{
        static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
        const char *uuid = name + strlen("GPU-");

        if (host_is_name(name))
                return true;
        if ((strncasecmp(name, "GPU-", 4) != 0 && strncasecmp(name, "MIG-", 4) != 0) ||
                strlen(uuid) != strlen(form))
                return false;
        for (size_t i = 0; form[i]; i++)
                if (form[i] == 'x' ? !isxdigit((unsigned char)uuid[i]) : uuid[i] != form[i])
                        return false;
        return true;
}

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
