#include "gpu/device.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
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
        if (options && options->members[0])
                return span_open(name, options, ret_device, why);
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

void device_member_name(
        const struct device_props *props, unsigned index, char ret_name[DEVICE_NAME_MAX + 1])
{
        const char *at = props->n_members > 0 ? props->members : props->name;

        for (; index > 0 && *at; index--) {
                at += strcspn(at, ",");
                at += *at == ',';
        }
        snprintf(ret_name, DEVICE_NAME_MAX + 1, "%.*s", (int)strcspn(at, ","), at);
}

static struct device *member_of(struct device *d, unsigned index)
{
        return d->ops->member ? d->ops->member(d, index) : d;
}

int device_take_failure(const struct device *member, int r)
{
        if (r < 0 && r != -EBUSY && member->span)
                snprintf(member->span->why, sizeof(member->span->why), "%s: %.180s",
                        member->props.name, member->why[0] ? member->why : strerror(-r));
        return r;
}

int device_create(struct device *d, unsigned member, uint64_t bytes, struct extent **ret_extent)
{
        struct device *m = member_of(d, member);

        return device_take_failure(m, m->ops->extent_create(m, bytes, ret_extent));
}

int device_import(struct device *d, unsigned member, struct extent_handle *handle, uint64_t bytes,
        struct extent **ret_extent)
{
        struct device *m = member_of(d, member);

        return device_take_failure(m, m->ops->extent_import(m, handle, bytes, ret_extent));
}
