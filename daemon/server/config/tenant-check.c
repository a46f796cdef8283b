#include "daemon/server/config/tenant-check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"
#include "daemon/core/state/codecs.h"
#include "daemon/core/reclaim/warm.h"
#include "policy/evict.h"
#include "policy/schedule.h"

#define ON_DEVICE "device="

#define TAG_SEPARATORS ", \t"
#define TAG_DIGITS_MAX 20 /* of 2^64 - 1 */

int placement_parse(const char *text, enum place_policy *ret_policy, const char **ret_device)
{
        *ret_device = "";
        if (strcmp(text, "pack") == 0) {
                *ret_policy = PLACE_PACK;
        } else if (strcmp(text, "spread") == 0) {
                *ret_policy = PLACE_SPREAD;
        } else if (strncmp(text, ON_DEVICE, strlen(ON_DEVICE)) == 0 &&
                   name_is_valid(text + strlen(ON_DEVICE), DEVICE_NAME_MAX)) {
                *ret_policy = PLACE_DEVICE;
                *ret_device = text + strlen(ON_DEVICE);
        } else {
                return -EINVAL;
        }
        return 0;
}

uint64_t tenant_reserve_min(const struct tenant_config *c)
{
        return c->reservation.min_bytes == TENANT_RESERVE_AUTO ? c->reservation.bytes
                                                               : c->reservation.min_bytes;
}

uint64_t tenant_reserve_max(const struct tenant_config *c)
{
        return c->reservation.max_bytes == TENANT_RESERVE_AUTO ? c->reservation.bytes
                                                               : c->reservation.max_bytes;
}

bool tenant_reserve_is_moved(const struct tenant_config *c)
{
        return c->reservation.sizer == SIZING_ON ||
               (c->reservation.sizer == SIZING_OFF && c->reservation.schedule[0]);
}

int tenant_refuse_small(const struct tenant_config *c, enum small_cause cause, uint64_t most_bytes,
        const char *device, uint64_t extent_bytes, struct detail *d)
{
        char most[FORMAT_BYTES_MAX], set[FORMAT_BYTES_MAX], what[128], remedy[128];

        format_bytes(most_bytes, most);
        format_bytes(extent_bytes, set);
        switch (cause) {
        case SMALL_LIMIT:
                snprintf(what, sizeof(what), "its limit of %s is less", most);
                snprintf(remedy, sizeof(remedy), "raise its limit to %s or more", set);
                break;
        case SMALL_RESERVE:
                snprintf(what, sizeof(what), "burst = none keeps it to its reservation of %s, less",
                        most);
                snprintf(remedy, sizeof(remedy), "raise reserve to %s or more, set burst = pool",
                        set);
                break;
        case SMALL_OTHERS:
                snprintf(what, sizeof(what), "reservations of others leave it %s, less", most);
                snprintf(remedy, sizeof(remedy),
                        "lower those until %s are left, give the device more memory", set);
                break;
        }
        return detail_set(d, -ENOSPC,
                "tenant %s can lease no page: %s than an extent set of %s%s (%s); %s, or set a smaller 'extent' in [device %s] and restart kvleased",
                c->name, what, device ? "device " : "a device", device ? device : "", set, remedy,
                device ? device : "NAME");
}

/* Refuses options that need a reservation. */
static int check_dynamic(const struct tenant_config *c, const struct daemon_config *daemon,
        const char **ret_key, struct detail *d)
{
        const char *key = NULL;

        if (c->class != TENANT_DYNAMIC)
                return 0;
        if (c->reservation.bytes > 0)
                key = "reserve";
        else if (tenant_reserve_min(c) > 0)
                key = "reserve_min";
        else if (tenant_reserve_max(c) > 0)
                key = "reserve_max";
        else if (c->reservation.sizer != SIZING_OFF)
                key = "sizer";
        else if (c->reservation.schedule[0])
                key = "schedule";
        *ret_key = key;
        return !key ? 0
                    : detail_set(d, -EINVAL,
                              "%s is for a tenant with class = pinned, this one is dynamic: change class, or set %s to its default",
                              key, key);
}

static int check_range(const struct tenant_config *c, const struct daemon_config *daemon,
        const char **ret_key, struct detail *d)
{
        uint64_t min = tenant_reserve_min(c), max = tenant_reserve_max(c);
        char a[FORMAT_BYTES_MAX], b[FORMAT_BYTES_MAX];

        *ret_key = "reserve_min";
        if (min > max && c->reservation.min_bytes != TENANT_RESERVE_AUTO &&
                c->reservation.max_bytes != TENANT_RESERVE_AUTO)
                return detail_set(d, -EINVAL,
                        "reserve_min (%s) is larger than reserve_max (%s): one of them must change",
                        format_bytes(min, a), format_bytes(max, b));
        if (c->reservation.bytes < min)
                return detail_set(d, -EINVAL,
                        "reserve (%s) is below reserve_min (%s): one of them must change",
                        format_bytes(c->reservation.bytes, a), format_bytes(min, b));
        *ret_key = "reserve_max";
        if (c->reservation.bytes > max)
                return detail_set(d, -EINVAL,
                        "reserve (%s) is above reserve_max (%s): one of them must change",
                        format_bytes(c->reservation.bytes, a), format_bytes(max, b));
        return 0;
}

static int check_limit(
        const struct tenant_config *c, const char *key, uint64_t bytes, struct detail *d)
{
        char a[FORMAT_BYTES_MAX], b[FORMAT_BYTES_MAX];

        if (bytes <= c->limit_bytes)
                return 0;
        return detail_set(d, -EINVAL,
                "%s (%s) is above the tenant's limit (%s): raise limit, or lower %s", key,
                format_bytes(bytes, a), format_bytes(c->limit_bytes, b), key);
}

static int parse_warm_tag(const char *text, size_t len, uint64_t *ret)
{
        char number[TAG_DIGITS_MAX + 1];

        if (len == 0 || len > TAG_DIGITS_MAX)
                return -EINVAL;
        memcpy(number, text, len);
        number[len] = '\0';
        return parse_u64(number, ret) < 0 || *ret == 0 ? -EINVAL : 0;
}

int tenant_parse_warm_tags(const char *text, struct warm_request *ret)
{
        *ret = (struct warm_request){0};
        for (text += strspn(text, TAG_SEPARATORS); *text; text += strspn(text, TAG_SEPARATORS)) {
                size_t len = strcspn(text, TAG_SEPARATORS);

                if (ret->n_tags == WARM_MAX_TAGS ||
                        parse_warm_tag(text, len, &ret->tags[ret->n_tags]) < 0)
                        return -EINVAL;
                ret->n_tags++;
                text += len;
        }
        return 0;
}

static int check_reserve(const struct tenant_config *c, const struct daemon_config *daemon,
        const char **ret_key, struct detail *d)
{
        *ret_key = "reserve";
        return check_limit(c, "reserve", c->reservation.bytes, d);
}

static int check_reserve_max(const struct tenant_config *c, const struct daemon_config *daemon,
        const char **ret_key, struct detail *d)
{
        *ret_key = "reserve_max";
        /* `auto` is 'reserve', which was checked already. */
        if (c->reservation.max_bytes == TENANT_RESERVE_AUTO)
                return 0;
        return check_limit(c, "reserve_max", tenant_reserve_max(c), d);
}

static int check_warm_tags(const struct tenant_config *c, const struct daemon_config *daemon,
        const char **ret_key, struct detail *d)
{
        struct warm_request rq;

        *ret_key = "warm_tags";
        if (tenant_parse_warm_tags(c->warm_tags, &rq) == 0)
                return 0;
        return detail_set(d, -EINVAL,
                "warm_tags: '%s' isn't up to %d numbers from 1 to 2^64 - 1, separated by spaces or commas",
                c->warm_tags, WARM_MAX_TAGS);
}

static int check_codec(const char *key, const char *text, const char **ret_key, struct detail *d)
{
        struct detail why;

        *ret_key = key;
        if (codec_layers_check(text, &why) == 0)
                return 0;
        return detail_set(d, -EINVAL, "%s: %s", key, why.text);
}

static int check_host_codec(const struct tenant_config *c, const struct daemon_config *daemon,
        const char **ret_key, struct detail *d)
{
        return check_codec("host_codec", c->host_codec, ret_key, d);
}

static int check_disk_codec(const struct tenant_config *c, const struct daemon_config *daemon,
        const char **ret_key, struct detail *d)
{
        return check_codec("disk_codec", c->disk_codec, ret_key, d);
}

static int check_remote_name(const struct tenant_config *c, const struct daemon_config *daemon,
        const char **ret_key, struct detail *d)
{
        *ret_key = "remote";
        if (!c->remote.name[0] || name_is_valid(c->remote.name, TENANT_NAME_MAX))
                return 0;
        return detail_set(d, -EINVAL, "remote: '%s' isn't the name of a section [remote NAME]",
                c->remote.name);
}

static int check_placement(const struct tenant_config *c, const struct daemon_config *daemon,
        const char **ret_key, struct detail *d)
{
        enum place_policy policy;
        const char *device;

        *ret_key = "placement";
        if (placement_parse(c->placement, &policy, &device) == 0)
                return 0;
        return detail_set(d, -EINVAL,
                "placement: '%s' is unknown, allowed are pack, spread, device=UUID", c->placement);
}

static int check_schedule(const struct tenant_config *c, const struct daemon_config *daemon,
        const char **ret_key, struct detail *d)
{
        struct schedule schedule;
        char why[512];
        int r = schedule_parse(c->reservation.schedule, &schedule, why, sizeof(why));

        *ret_key = "schedule";
        if (r < 0)
                return detail_set(d, -EINVAL, "schedule: %s", why);
        for (uint32_t i = 0; i < schedule.n && r == 0; i++)
                r = check_limit(c, "a maximum of schedule", schedule.spans[i].max_bytes, d);
        return r;
}

static int check_miss_cost(const struct tenant_config *c, const struct daemon_config *daemon,
        const char **ret_key, struct detail *d)
{
        const struct evict_ops *own = evict_find(config_tenant_evict_names[c->eviction.policy]);
        const struct evict_ops *ops = own ? own : evict_find(config_evict_names[daemon->evict]);

        *ret_key = "miss_cost";
        if (c->eviction.miss_cost == MISS_COST_TOKENS || ops->goes_by_cost)
                return 0;
        return detail_set(d, -EINVAL,
                "miss_cost = compute is for evict = pgi, and evict is %s%s: change evict, or set miss_cost to tokens",
                ops->name, own ? "" : ", as [daemon] has it");
}

/* The order matters: the administrator sees the first check that fails. */
static int (*const checks[])(const struct tenant_config *c, const struct daemon_config *daemon,
        const char **ret_key, struct detail *d) = {
        check_dynamic,
        check_range,
        check_reserve,
        check_reserve_max,
        check_schedule,
        check_miss_cost,
        check_warm_tags,
        check_host_codec,
        check_disk_codec,
        check_remote_name,
        check_placement,
};

int tenant_config_check(
        const struct tenant_config *c, const struct daemon_config *daemon, struct detail *d)
{
        const char *key;
        int r = 0;

        for (size_t i = 0; i < ARRAY_SIZE(checks) && r == 0; i++)
                r = checks[i](c, daemon, &key, d);
        return r;
}

void tenant_config_check_all(const struct tenant_config *c, const struct daemon_config *daemon,
        tenant_check_fn fn, void *data)
{
        struct detail d = {""};
        const char *key;

        for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
                if (checks[i](c, daemon, &key, &d) < 0)
                        fn(data, key, d.text);
}
