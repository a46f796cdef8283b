#include "daemon/server/peers/keep-room.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <systemd/sd-bus.h>
#include <systemd/sd-login.h>

#include "base/macros.h"
#include "base/parse.h"

#define TIMEOUT_USEC UINT64_C(1000000) /* of a call; PID 1 answers in milliseconds. Not tuned. */

#define MANAGER "org.freedesktop.systemd1"
#define UNITS   "/org/freedesktop/systemd1/unit"
#define SERVICE MANAGER ".Service"

/* systemd's own socket, for root without a bus; org.freedesktop.systemd1(5) */
#define PRIVATE_SOCKET "unix:path=/run/systemd/private"

static int open_private(sd_bus **ret_bus)
{
        int r = sd_bus_new(ret_bus);

        if (r >= 0)
                r = sd_bus_set_address(*ret_bus, PRIVATE_SOCKET);
        return r < 0 ? r : sd_bus_start(*ret_bus);
}

static int open_bus(sd_bus **ret_bus)
{
        if (geteuid() == 0 && open_private(ret_bus) >= 0)
                return 0;
        *ret_bus = sd_bus_close_unref(*ret_bus);
        return sd_bus_open_system(ret_bus);
}

/* A number of the service at `path`. */
static int get_number(sd_bus *bus, const char *path, const char *name, uint32_t *ret)
{
        return sd_bus_get_property_trivial(bus, MANAGER, path, SERVICE, name, NULL, 'u', ret);
}

/* Asks the unit, if this process is its main process: other units' properties don't count. */
static int ask_unit(sd_bus *bus, const char *path, uint32_t *ret_max)
{
        uint32_t pid;
        int r = sd_bus_set_method_call_timeout(bus, TIMEOUT_USEC);

        if (r >= 0)
                r = get_number(bus, path, "MainPID", &pid);
        if (r >= 0 && pid != (uint32_t)getpid())
                r = -ESRCH;
        return r < 0 ? r : get_number(bus, path, "FileDescriptorStoreMax", ret_max);
}

static int ask_manager(uint32_t *ret_max)
{
        _cleanup_free_ char *unit = NULL, *path = NULL;
        sd_bus *bus = NULL;
        int r = sd_pid_get_unit(0, &unit);

        if (r >= 0)
                r = sd_bus_path_encode(UNITS, unit, &path);
        if (r >= 0)
                r = open_bus(&bus);
        if (r >= 0)
                r = ask_unit(bus, path, ret_max);
        sd_bus_close_unref(bus);
        return MIN(r, 0);
}

int keep_room_find(uint32_t *ret_max)
{
        const char *text = getenv("FDSTORE");
        uint64_t n;

        if (!getenv("NOTIFY_SOCKET"))
                return -ENOTCONN;
        if (!text)
                return ask_manager(ret_max);
        if (parse_u64(text, &n) < 0 || n > UINT32_MAX)
                return -EINVAL;
        *ret_max = (uint32_t)n;
        return 0;
}
