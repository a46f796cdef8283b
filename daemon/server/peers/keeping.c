#include "daemon/server/peers/keeping.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-login.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "base/parse.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/store.h"
#include "daemon/server/peers/keeper.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/base/fd-parts.h"
#include "daemon/server/base/log.h"
#include "gpu/queue.h"

/*
 * Bound of waiting for a barrier. It takes a fraction of a millisecond, but some seconds while PID
 * 1 reloads its units. Not tuned.
 */
#define PATIENCE_MSEC 10000u

static struct server *server_of(struct keeping *k)
{
        return container_of(k, struct server, keeping);
}

/* ---- the capacity of the store --------------------------------------------------------------- */

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

/*
 * Asks $FDSTORE (systemd 254 and later, kvleased --keep), else the service manager over D-Bus,
 * which takes at most a second. Returns 0 with *ret_max, which may be 0. -ENOTCONN: this process
 * has no descriptor store ($NOTIFY_SOCKET isn't set); other -errno: the capacity is unknown.
 */
static int keep_room_find(uint32_t *ret_max)
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

/* ---- the hold -------------------------------------------------------------------------------- */

/* Notes first that the store is late, if so: all output passes this function. */
uint64_t keeping_passed(const struct server *s)
{
        uint64_t passed = UINT64_MAX;

        if (!s->keeping.keeper)
                return passed;
        passed = keeper_passed(s->keeping.keeper);
        if (passed == UINT64_MAX)
                atomic_store(&s->store.state->is_unsure, 1);
        return passed;
}

uint64_t keeping_ticket(const struct server *s)
{
        return s->keeping.ticket > keeping_passed(s) ? s->keeping.ticket : 0;
}

static void on_impatient(uv_timer_t *timer);

/* Sends held output as far as allowed. */
static void release_held(struct server *s)
{
        struct keeping *k = &s->keeping;

        peers_flush(s);
        if (keeping_ticket(s) != 0) {
                uv_timer_start(&k->patience, on_impatient, PATIENCE_MSEC, 0);
                return;
        }
        uv_timer_stop(&k->patience);
        if (!keeper_is_late(k->keeper)) /* all additions are stored */
                atomic_store(&s->store.state->is_unsure, 0);
}

static void on_passed(uv_async_t *async)
{
        struct keeping *k = container_of(async, struct keeping, passed);

        if (k->was_late && !keeper_is_late(k->keeper)) {
                log_notice("the service manager keeps descriptors again");
                k->was_late = false;
        }
        release_held(server_of(k));
}

static void note_late(struct keeping *k)
{
        k->was_late = keeper_is_late(k->keeper);
        if (k->was_late)
                log_error(
                        "the service manager hasn't confirmed for %u s that it keeps "
                        "descriptors: clients are served, but may lose what they do if kvleased is restarted before it does",
                        PATIENCE_MSEC / 1000);
}

static void on_impatient(uv_timer_t *timer)
{
        struct keeping *k = container_of(timer, struct keeping, patience);

        keeper_give_up(k->keeper);
        note_late(k);
        release_held(server_of(k));
}

void keeping_wait(struct server *s)
{
        struct detail d = {""};

        if (s->keeping.keeper && keeper_wait(s->keeping.keeper, &d) < 0)
                note_late(&s->keeping);
}

/* From the keeper's thread. */
static void wake_loop(void *data)
{
        struct server *s = data;

        uv_async_send(&s->keeping.passed);
}

/* ---- for the core ---------------------------------------------------------------------------- */

static int keep_fd(void *data, enum keep_kind kind, uint32_t number, int fd, struct detail *d)
{
        struct server *s = data;
        struct keeping *k = &s->keeping;
        int r = keeper_add(k->keeper, kind, number, fd, &k->ticket, d);

        if (r == 0 && !uv_is_active((uv_handle_t *)&k->patience) &&
                !uv_is_closing((uv_handle_t *)&k->patience))
                uv_timer_start(&k->patience, on_impatient, PATIENCE_MSEC, 0);
        return r;
}

static void drop_fd(void *data, enum keep_kind kind, uint32_t number)
{
        struct server *s = data;
        int fd = keeper_take(s->keeping.keeper, kind, number);

        fd_close(fd); /* no caller had taken it */
        keeper_drop(s->keeping.keeper, kind, number);
}

static int take_fd(void *data, enum keep_kind kind, uint32_t number)
{
        struct server *s = data;

        return keeper_take(s->keeping.keeper, kind, number);
}

static uint32_t list(void *data, enum keep_kind kind, uint32_t *ret_numbers, uint32_t max)
{
        struct server *s = data;

        return keeper_list(s->keeping.keeper, kind, ret_numbers, max);
}

static const struct keep_ops keep_ops = {keep_fd, drop_fd, take_fd, list};

/* ---- for the devices' threads ---------------------------------------------------------------- */

static int explain_failure(int r, const struct detail *d, char why[DEVICE_WHY_BYTES])
{
        if (r < 0)
                snprintf(why, DEVICE_WHY_BYTES, "%.*s", DEVICE_WHY_BYTES - 1, d->text);
        return r;
}

static int park(
        void *data, enum queue_parked what, uint32_t number, int fd, char why[DEVICE_WHY_BYTES])
{
        enum keep_kind kind = what == PARKED_CANARY ? KEEP_CANARY : KEEP_EXTENT;
        struct detail d = {""};

        return explain_failure(keeper_add(data, kind, number, fd, NULL, &d), &d, why);
}

static int wait_until_passed(void *data, char why[DEVICE_WHY_BYTES])
{
        struct detail d = {""};

        return explain_failure(keeper_wait(data, &d), &d, why);
}

static void unpark(void *data, uint32_t number)
{
        keeper_drop(data, KEEP_EXTENT, number);
}

struct queue_park keeping_park(struct server *s)
{
        return (struct queue_park){park, wait_until_passed, unpark, s->keeping.keeper};
}

int keeping_admit(const struct server *s, uint32_t n, struct detail *d)
{
        struct keeper *k = s->keeping.keeper;

        return k ? keeper_admit(k, s->store.memory.n_extents, n, d) : 0;
}

uint32_t keeping_count(const struct server *s)
{
        return s->keeping.keeper ? keeper_count(s->keeping.keeper) : 0;
}

/* ---- start and end --------------------------------------------------------------------------- */

/* Lets the service manager close its descriptors of that name, if any. */
static void release_name(const char *name)
{
        sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
}

/* Drops stored descriptors that this daemon can't use: another version left them, or nothing is to
 * be stored. */
static void release_unknown(struct server *s, bool is_on)
{
        enum keep_kind kind;
        const char *first = NULL;
        uint32_t number, n = 0;

        for (size_t i = 0; i < s->activation.n; i++) {
                struct activated *a = &s->activation.sockets[i];

                if (a->fd < 0 || activation_is_socket_name(a->name) ||
                        (is_on && keep_parse(a->name, &kind, &number)))
                        continue;
                release_name(a->name);
                a->fd = fd_close(a->fd);
                first = first ? first : a->name;
                n++;
        }
        if (n > 0)
                log_warning(
                        "%u descriptors that were kept for kvleased, or passed to it, are of no "
                        "use to it and were released ('%s' is one); sockets are called admin, default or tenant-NAME",
                        n, first);
        s->keeping.n_released += n;
}

static int inherit(struct server *s)
{
        enum keep_kind kind;
        uint32_t number;
        int r = 0;

        for (size_t i = 0; i < s->activation.n && r == 0; i++) {
                struct activated *a = &s->activation.sockets[i];

                if (a->fd < 0 || activation_is_socket_name(a->name) ||
                        !keep_parse(a->name, &kind, &number))
                        continue;
                if (kind == KEEP_LISTENER)
                        s->keeping.last_listener = MAX(s->keeping.last_listener, number);
                r = keeper_inherit(s->keeping.keeper, kind, number, fd_take(&a->fd));
        }
        return r;
}

static size_t socket_names_bytes(const struct activation *a)
{
        size_t n = 0;

        for (size_t i = 0; i < a->n; i++)
                if (activation_is_socket_name(a->sockets[i].name))
                        n += strlen(a->sockets[i].name) + 1;
        return n;
}

/* Beside them the next process needs its reserve. */
static uint64_t max_open(void)
{
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return UINT64_MAX;
        return limit.rlim_max - MIN(limit.rlim_max, (rlim_t)DESCRIPTORS_RESERVE);
}

int keeping_start(struct server *s, uint32_t max)
{
        struct keeping *k = &s->keeping;
        const struct keeper_options o = {
                .max = max,
                .max_open = max_open(),
                .other_names_bytes = socket_names_bytes(&s->activation),
                .patience_msec = PATIENCE_MSEC,
                .on_passed = wake_loop,
                .data = s,
        };
        int r = uv_async_init(&s->loop.uv, &k->passed, on_passed);

        if (r < 0)
                return r;
        uv_timer_init(&s->loop.uv, &k->patience);
        r = keeper_new(&o, &k->keeper);
        if (r < 0) {
                uv_close((uv_handle_t *)&k->passed, NULL);
                uv_close((uv_handle_t *)&k->patience, NULL);
                return r;
        }
        k->max = max;
        s->store.keep = (struct keep){&keep_ops, s};
        return 0;
}

/* 0: nothing is kept. */
static uint32_t find_max(struct server *s)
{
        uint32_t max = 0;
        int r;

        if (s->config.daemon.keep_state == KEEP_STATE_OFF)
                return 0;
        r = keep_room_find(&max);
        if (r == 0 && max > 0)
                return max;
        s->keeping.why_not = r == -ENOTCONN ? "no service manager stores its descriptors"
                             : r < 0        ? "the service manager doesn't say what it keeps"
                                            : "the service manager keeps no descriptors of it";
        return 0;
}

void keeping_say(const struct server *s)
{
        if (s->keeping.why_not)
                log_notice("nothing outlives this process, a restart empties the cache (%s): set "
                           "FileDescriptorStoreMax in kvleased.service, or start kvleased --keep",
                        s->keeping.why_not);
}

int keeping_open(struct server *s)
{
        uint32_t max = find_max(s);
        int r = 0;

        release_unknown(s, max > 0);
        if (max > 0)
                r = keeping_start(s, max);
        if (r == 0 && max > 0)
                r = inherit(s);
        if (r < 0)
                log_error("cannot keep descriptors for the next start: %s", strerror(-r));
        return r;
}

void keeping_release_rest(struct server *s)
{
        uint32_t n = s->keeping.keeper ? keeper_release_rest(s->keeping.keeper) : 0;

        if (n > 0)
                log_notice(
                        "%u descriptors that were kept for kvleased belong to nothing any more: they were released",
                        n);
        s->keeping.n_released += n;
}

void keeping_stop(struct server *s)
{
        struct keeping *k = &s->keeping;

        if (!k->keeper)
                return;
        if (!keeper_stop(k->keeper))
                s->life.left_behind = true;
        log_notice(
                "%u descriptors stay with the service manager: the next kvleased goes on with them",
                keeper_count(k->keeper));
        uv_close((uv_handle_t *)&k->passed, NULL);
        uv_close((uv_handle_t *)&k->patience, NULL);
}

void keeping_free(struct server *s)
{
        keeper_free(s->keeping.keeper);
        s->keeping.keeper = NULL;
        s->store.keep = (struct keep){0};
}
