#include "daemon/server/services/reload.h"

#include <stdio.h>

#include "base/clock.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/peer.h"
#include "daemon/server/services/remotes.h"
#include "daemon/server/services/timers.h"
#include "daemon/server/services/stop.h"
#include "daemon/server/base/log.h"
#include "daemon/server/base/notify.h"
#include "daemon/server/services/next-config.h"
#include "daemon/server/services/tenants.h"
#include "daemon/server/peers/followers.h"

struct reloader {
        struct server *server;
        reload_say say;
        void *data;
        uint32_t n_pending;
};

static void tell_asker(struct reloader *r, enum reload_kind kind, const char *sentence)
{
        if (r->say)
                r->say(r->data, kind, sentence);
}

static void report_config(void *data, bool is_error, const char *sentence)
{
        log_event(is_error ? LEVEL_ERROR : LEVEL_NOTICE, NULL, "reload: %s", sentence);
        if (is_error)
                tell_asker(data, RELOAD_ERROR, sentence);
}

static void tell_pending(void *data, const char *sentence)
{
        struct reloader *r = data;

        log_warning("reload: %s", sentence);
        r->n_pending++;
        tell_asker(r, RELOAD_PENDING, sentence);
}

static void tell_tenant(void *data, bool is_refused, const char *sentence)
{
        tell_asker(data, is_refused ? RELOAD_REFUSED : RELOAD_CHANGED, sentence);
}

static void tell_small(void *data, const char *sentence)
{
        log_warning("reload: %s", sentence);
        tell_asker(data, RELOAD_WARNING, sentence);
}

/* Reports options of a section that are put in force. */
struct option_teller {
        struct reloader *reloader;
        const char *where; /* "[daemon]" */
};

static void tell_option(void *data, const struct option *o, const char *before, const char *after)
{
        const struct option_teller *t = data;
        char sentence[2 * OPTION_VALUE_MAX + TENANT_NAME_MAX + 64];

        if (!o->reloadable)
                return;
        snprintf(sentence, sizeof(sentence), "%s %s = %s, was %s", t->where, o->key, after, before);
        log_info("reload: %s", sentence);
        tell_asker(t->reloader, RELOAD_CHANGED, sentence);
}

/* Reports the section's options that a reload can change, and changes them. */
static void apply_options(struct reloader *r, enum option_section section, const char *where,
        void *now, const void *next)
{
        struct option_teller t = {r, where};

        options_diff(section, now, next, tell_option, &t);
        for (size_t i = 0; i < n_options; i++)
                if (options[i].section == section && options[i].reloadable)
                        options_copy(section, option_bit(&options[i]), now, next);
}

/* Compares options that a reload can change. */
static bool is_alike(const struct remote_config *a, const struct remote_config *b)
{
        return a->bandwidth_bytes == b->bandwidth_bytes && a->expiry_nsec == b->expiry_nsec &&
               a->probe_timeout_nsec == b->probe_timeout_nsec;
}

/* A removed remote stays unchanged until the restart. */
static void apply_remotes(struct reloader *r, const struct config *next)
{
        struct config *now = &r->server->config;
        char where[TENANT_NAME_MAX + 16];
        struct remote_config before;

        for (size_t i = 0; i < now->n_remotes; i++) {
                struct remote_config *m = &now->remotes[i];
                const struct remote_config *wanted = config_find_remote(next, m->name);

                snprintf(where, sizeof(where), "[remote %s]", m->name);
                if (!wanted)
                        continue;
                before = *m;
                apply_options(r, SECTION_REMOTE, where, m, wanted);
                if (!is_alike(&before, m))
                        remotes_changed(r->server, m->name);
        }
}

static void apply_daemon(struct reloader *r, const struct daemon_config *next)
{
        struct server *s = r->server;

        apply_options(r, SECTION_DAEMON, "[daemon]", &s->config.daemon, next);
        log_init(s->config.daemon.log_level, s->config.daemon.log_target);
        if (!list_is_empty(&s->peers.hellos))
                peers_watch_hellos(s);
}

static void apply_config(struct reloader *r, struct config *next)
{
        struct server *s = r->server;

        next_config_pending(s, next, tell_pending, r);
        s->n_options_pending = r->n_pending;
        apply_daemon(r, &next->daemon);
        apply_remotes(r, next);
        tenants_reload(s, next, tell_tenant, r);
        tenant_room_each_small(s, tell_small, r);
        tenant_table_deinit(&s->config.tenants);
        s->config.tenants = next->tenants;
        conf_files_deinit(&s->config.files);
        s->config.files = next->files;
        s->config.has_file = next->has_file;
        s->next = *next;
        s->next.files = (struct conf_files){0};
        s->next.tenants = (struct tenant_table){0};
        sizing_timer_update(s);
}

int reload_config(struct server *s, reload_say say, void *data)
{
        struct reloader reloader = {s, say, data, 0};
        struct config next;
        char lines[64];
        int r;

        snprintf(lines, sizeof(lines), "RELOADING=1\nMONOTONIC_USEC=%llu",
                (unsigned long long)(clock_now_nsec() / NSEC_PER_USEC));
        notify_now(lines);
        r = config_load(&s->source, &next, report_config, &reloader);
        if (r < 0) {
                log_message(LOG_RELOAD_FAILED, NULL, "reload: nothing was changed");
                server_note(
                        s, &(struct event_note){.kind = EVENT_DAEMON, .reason = "reload failed"});
        } else {
                apply_config(&reloader, &next);
                log_message(LOG_RELOADED, NULL, "reloaded");
                server_note(s, &(struct event_note){.kind = EVENT_DAEMON, .reason = "reloaded"});
        }
        status_notify(s);
        notify_now("READY=1");
        return r;
}
