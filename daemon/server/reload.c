#include "daemon/server/reload.h"

#include <stdio.h>

#include "base/clock.h"
#include "daemon/server/followers.h"
#include "daemon/server/log.h"
#include "daemon/server/next-config.h"
#include "daemon/server/notify.h"
#include "daemon/server/server.h"
#include "daemon/server/sizing-timer.h"
#include "daemon/server/tenants.h"

static void report(void *data, bool is_error, const char *sentence)
{
        log_event(is_error ? LEVEL_ERROR : LEVEL_NOTICE, NULL, "reload: %s", sentence);
}

static void warn_pending(void *data, const char *sentence)
{
        log_warning("reload: %s", sentence);
}

static void apply_daemon(struct server *s, const struct daemon_config *next)
{
        for (size_t i = 0; i < n_options; i++)
                if (options[i].section == SECTION_DAEMON && options[i].reloadable)
                        options_copy(
                                SECTION_DAEMON, option_bit(&options[i]), &s->config.daemon, next);
        log_init(s->config.daemon.log_level, s->config.daemon.log_target);
        if (!list_is_empty(&s->hellos))
                server_await_hello(s);
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
                next_config_pending(s, &next, warn_pending, NULL);
                apply_daemon(s, &next.daemon);
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
