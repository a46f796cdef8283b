#include "daemon/server/reload.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/server/followers.h"
#include "daemon/server/log.h"
#include "daemon/server/notify.h"
#include "daemon/server/server.h"
#include "daemon/server/sizing-timer.h"
#include "daemon/server/tenants.h"

static void report(void *data, bool is_error, const char *sentence)
{
        log_event(is_error ? LEVEL_ERROR : LEVEL_NOTICE, NULL, "reload: %s", sentence);
}

/* Warns of options of one section that differ but need a restart. */
static void warn_kept(
        enum option_section section, const char *where, const void *before, const void *after)
{
        char old_text[OPTION_VALUE_MAX], new_text[OPTION_VALUE_MAX];

        for (size_t i = 0; i < n_options; i++) {
                const struct option *o = &options[i];

                if (o->section != section || o->reloadable)
                        continue;
                option_format(o, before, old_text);
                option_format(o, after, new_text);
                if (strcmp(old_text, new_text) == 0)
                        continue;
                log_warning("reload: %s %s stays '%s': '%s' needs a restart of kvleased", where,
                        o->key, option_show(o, before, old_text), option_show(o, after, new_text));
        }
}

static void apply_daemon(struct server *s, const struct daemon_config *next)
{
        warn_kept(SECTION_DAEMON, "[daemon]", &s->config.daemon, next);
        for (size_t i = 0; i < n_options; i++)
                if (options[i].section == SECTION_DAEMON && options[i].reloadable)
                        options_copy(
                                SECTION_DAEMON, option_bit(&options[i]), &s->config.daemon, next);
        log_init(s->config.daemon.log_level, s->config.daemon.log_target);
        if (!list_is_empty(&s->hellos))
                server_await_hello(s);
}

static void check_devices(struct server *s, const struct config *next)
{
        struct device_config defaults = {0};

        options_set_defaults(SECTION_DEVICE, &defaults);
        list_for_each (pool, &s->store.pools, struct pool, link) {
                const char *name = pool->props->name;
                const struct device_config *before = config_find_device(&s->config, name);
                const struct device_config *after = config_find_device(next, name);

                char where[TENANT_NAME_MAX + 16];

                snprintf(where, sizeof(where), "[device %s]", name);
                warn_kept(SECTION_DEVICE, where, before ? before : &defaults,
                        after ? after : &defaults);
        }
}

void reload_config(struct server *s)
{
        struct config next;
        char lines[64];

        snprintf(lines, sizeof(lines), "RELOADING=1\nMONOTONIC_USEC=%llu",
                (unsigned long long)(clock_now_nsec() / NSEC_PER_USEC));
        notify_now(lines);
        if (config_load(&s->source, &next, report, NULL) < 0) {
                log_message(LOG_RELOAD_FAILED, NULL, "reload: nothing was changed");
                server_note(s,
                        &(struct chronicle_note){.kind = EVENT_DAEMON, .reason = "reload failed"});
        } else {
                apply_daemon(s, &next.daemon);
                check_devices(s, &next);
                tenants_reload(s, &next);
                tenant_table_deinit(&s->config.tenants);
                s->config.tenants = next.tenants;
                s->config.has_file = next.has_file;
                sizing_timer_update(s);
                log_message(LOG_RELOADED, NULL, "reloaded");
                server_note(
                        s, &(struct chronicle_note){.kind = EVENT_DAEMON, .reason = "reloaded"});
        }
        server_notify_status(s);
        notify_now("READY=1");
}
