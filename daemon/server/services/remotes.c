#include "daemon/server/services/remotes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/exchange/exchange-news.h"
#include "daemon/exchange/exchange.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/tenant.h"
#include "daemon/relay/relay.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/peers/turns.h"
#include "daemon/server/config/remote-config.h"
#include "daemon/server/base/log.h"

struct remote_service {
        struct list_link link;              /* server.services.remotes.list */
        struct server *server;              /* borrowed */
        const struct remote_config *config; /* borrowed of server.config */
        struct remote_store *store;         /* owned */
        struct exchange_news news;          /* state for its events */
        uv_poll_t poll;
};

/* ---- work ------------------------------------------------------------------------------------ */

static void on_work_wanted(void *data)
{
        struct server *s = data;

        s->services.remotes.is_due = true;
        loop_kick(&s->loop);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
        struct remote_service *r = container_of(poll, struct remote_service, poll);
        uint64_t began = clock_now_nsec();

        (void)status;
        (void)events;
        (void)remote_reap(r->store);
        (void)turns_end_part(r->server, "remotes", NULL, began);
        on_work_wanted(r->server);
}

static void on_timer(uv_timer_t *timer)
{
        on_work_wanted(container_of(timer, struct server, services.remotes.timer));
}

void remotes_turn(struct server *s)
{
        struct remotes *r = &s->services.remotes;
        uint64_t now, next;

        if (!r->is_due || list_is_empty(&r->list))
                return;
        r->is_due = false;
        now = server_now(s);
        next = exchange_work(&s->store, now);
        if (next <= now)
                on_work_wanted(s);
        else if (next != UINT64_MAX)
                uv_timer_start(&r->timer, on_timer, (next - now) / NSEC_PER_MSEC + 1, 0);
}

/* Interval of looks at the state, which don't wait. */
#define WATCH_MSEC 1000

static void count_descriptors(struct server *s)
{
        uint64_t n = 0;

        list_for_each (r, &s->services.remotes.list, struct remote_service, link)
                n += remote_descriptors(r->store);
        s->services.remotes.n_descriptors = n;
}

static void on_watch(uv_timer_t *timer)
{
        struct server *s = container_of(timer, struct server, services.remotes.watch);
        uint64_t now = server_now(s);

        count_descriptors(s);
        list_for_each (r, &s->services.remotes.list, struct remote_service, link) {
                struct remote_summary summary;

                remote_summary(r->store, &summary);
                exchange_news_see(&r->news, &summary, now);
                exchange_news_tell(&r->news, &s->store.event_log, now);
        }
}

/* ---- stores ---------------------------------------------------------------------------------- */

static struct remote_service *find_service(const struct server *s, const char *name)
{
        list_for_each (r, &s->services.remotes.list, struct remote_service, link)
                if (strcmp(r->config->name, name) == 0)
                        return r;
        return NULL;
}

struct remote_store *remotes_find(const struct server *s, const char *name)
{
        const struct remote_service *r = find_service(s, name);

        return r ? r->store : NULL;
}

static int open_store(const struct server *s, const struct remote_config *c,
        struct remote_store **ret, struct detail *d)
{
        struct remote_settings settings;
        const char *key;
        int r = remote_settings_read(c, &settings, &key, d);

        if (r < 0)
                return r;
        settings.options.socket = s->config.daemon.exchange_socket;
        return relay_open(&settings.options, ret);
}

/* Opens a remote. Returns 0; -errno, logged: it isn't available. */
static int add_service(struct server *s, const struct remote_config *c)
{
        struct remote_service *r = calloc(1, sizeof(*r));
        struct detail d = {""};
        int e = r ? open_store(s, c, &r->store, &d) : -ENOMEM;

        if (e == 0) {
                e = uv_poll_init(&s->loop.uv, &r->poll, remote_fd(r->store));
                if (e < 0)
                        remote_close(r->store);
        }
        if (e < 0) {
                log_error(
                        "[remote %s] can't be used: %s; kvleased goes on without it, and exchanges no pages there",
                        c->name, d.text[0] ? d.text : strerror(-e));
                free(r);
                return e;
        }
        r->server = s;
        r->config = c;
        r->news.name = c->name;
        list_init(&r->link);
        list_append(&s->services.remotes.list, &r->link);
        uv_poll_start(&r->poll, UV_READABLE, on_readable);
        return 0;
}

void remotes_init(struct server *s)
{
        list_init(&s->services.remotes.list);
}

void remotes_start(struct server *s)
{
        for (size_t i = 0; i < s->config.n_remotes; i++)
                (void)add_service(s, &s->config.remotes[i]);
        count_descriptors(s);
        if (!list_is_empty(&s->services.remotes.list))
                uv_timer_start(&s->services.remotes.watch, on_watch, WATCH_MSEC, WATCH_MSEC);
}

static void on_poll_closed(uv_handle_t *handle)
{
        free(container_of((uv_poll_t *)handle, struct remote_service, poll));
}

void remotes_stop(struct server *s)
{
        list_for_each (t, &s->store.tenants, struct tenant, link)
                exchange_close(t);
        list_for_each_safe (r, &s->services.remotes.list, struct remote_service, link) {
                list_remove(&r->link);
                remote_close(r->store);
                uv_close((uv_handle_t *)&r->poll, on_poll_closed);
        }
}

/* ---- tenants --------------------------------------------------------------------------------- */

static int open_exchange(struct tenant *t, const struct tenant_config *config,
        struct remote_service *r, struct detail *d)
{
        const struct tenant_remote_config *c = &config->remote;
        struct exchange_tenant whose;
        int e = tenant_secret_read(config, &whose, d);

        if (e == 0) {
                const struct exchange_options o = {
                        .remote = r->store,
                        .news = &r->news,
                        .may_write = c->write_bytes > 0,
                        .secret = whose.secret,
                        .secret_len = whose.secret_len,
                        .expiry_msec = r->config->expiry_nsec / NSEC_PER_MSEC,
                        .write_bytes_per_sec = MAX(c->write_bytes, UINT64_C(1)),
                        .probe_nsec = r->config->probe_timeout_nsec,
                        .bytes_per_sec = r->config->bandwidth_bytes,
                        .token_nsec = c->prefill > 0 ? NSEC_PER_SEC / c->prefill : 0,
                        .on_work = on_work_wanted,
                        .data = r->server,
                };

                e = exchange_open(t, &o, d);
        }
        tenant_secret_wipe(&whose);
        return e;
}

void remotes_apply(struct server *s, struct tenant *t, const struct tenant_config *config)
{
        const char *name = config->remote.name;
        struct remote_service *r = name[0] ? find_service(s, name) : NULL;
        struct detail d = {""};

        if (r && open_exchange(t, config, r, &d) == 0)
                return;
        exchange_close(t);
        if (!name[0])
                return;
        if (!r)
                log_error("tenant %s exchanges no pages with other hosts: remote %s isn't open%s",
                        t->name, name,
                        config_find_remote(&s->config, name) ? "" : ", restart kvleased for it");
        else
                log_error("tenant %s exchanges no pages with other hosts: %s", t->name, d.text);
}

void remotes_changed(struct server *s, const char *name)
{
        list_for_each (t, &s->tenancies.list, struct tenancy, link)
                if (strcmp(t->config.remote.name, name) == 0)
                        remotes_apply(s, t->tenant, &t->config);
}
