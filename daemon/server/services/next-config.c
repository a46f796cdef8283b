#include "daemon/server/services/next-config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/parse.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/pool.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/server/config/config.h"
#include "daemon/server/peers/server.h"
#include "daemon/server/services/devices.h"
#include "proto/arena.h"

#define WHY_BYTES 192

const struct device_config *next_config_device(
        const struct config *c, const char *name, struct device_config *buf)
{
        const struct device_config *found = config_find_device(c, name);

        if (found)
                return found;
        *buf = (struct device_config){0};
        options_set_defaults(SECTION_DEVICE, buf);
        return buf;
}

const struct remote_config *next_config_remote(
        const struct config *c, const char *name, struct remote_config *buf)
{
        const struct remote_config *found = config_find_remote(c, name);

        if (found)
                return found;
        *buf = (struct remote_config){0};
        options_set_defaults(SECTION_REMOTE, buf);
        return buf;
}

/* ---- options that wait ----------------------------------------------------------------------- */

struct asker {
        const char *where; /* "[daemon]" */
        next_config_say say;
        void *data;
};

static void say_if_pending(
        void *data, const struct option *o, const char *before, const char *after)
{
        const struct asker *a = data;
        char sentence[2 * OPTION_VALUE_MAX + 128];

        if (o->reloadable)
                return;
        snprintf(sentence, sizeof(sentence), "%s %s stays '%s': '%s' needs a restart of kvleased",
                a->where, o->key, before, after);
        a->say(a->data, sentence);
}

/* Reports differences of existing and removed remotes, and each new one as a whole. */
static void remotes_pending(const struct config *now, const struct config *next, struct asker *a)
{
        char where[TENANT_NAME_MAX + 16], sentence[TENANT_NAME_MAX + 64];
        struct remote_config buf;

        a->where = where;
        for (size_t i = 0; i < now->n_remotes; i++) {
                const struct remote_config *m = &now->remotes[i];

                snprintf(where, sizeof(where), "[remote %s]", m->name);
                options_diff(SECTION_REMOTE, m, next_config_remote(next, m->name, &buf),
                        say_if_pending, a);
        }
        a->where = NULL; /* `where` ends with this function */
        for (size_t i = 0; i < next->n_remotes; i++) {
                if (config_find_remote(now, next->remotes[i].name))
                        continue;
                snprintf(sentence, sizeof(sentence),
                        "[remote %s] is new: it needs a restart of kvleased",
                        next->remotes[i].name);
                a->say(a->data, sentence);
        }
}

void next_config_pending(
        const struct server *s, const struct config *next, next_config_say say, void *data)
{
        struct asker a = {"[daemon]", say, data};

        options_diff(SECTION_DAEMON, &s->config.daemon, &next->daemon, say_if_pending, &a);
        list_for_each (pool, &s->store.pools, struct pool, link) {
                const char *name = pool->props->name;
                struct device_config now_buf, next_buf;
                char where[TENANT_NAME_MAX + 16];

                snprintf(where, sizeof(where), "[device %s]", name);
                a.where = where;
                options_diff(SECTION_DEVICE, next_config_device(&s->config, name, &now_buf),
                        next_config_device(next, name, &next_buf), say_if_pending, &a);
        }
        remotes_pending(&s->config, next, &a);
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* `auto` takes all GPUs, or the host without any. */
static bool is_used(const struct server *s, const struct config *next, const struct pool *pool)
{
        const char *names = next->daemon.devices;

        if (strcmp(names, s->config.daemon.devices) == 0)
                return true;
        if (strcmp(names, "auto") != 0)
                return config_lists_device(names, pool->props->name);
        if (pool->props->n_members > 0)
                return false;
        if (!host_is_name(pool->props->name))
                return true;
        list_for_each (other, &s->store.pools, struct pool, link)
                if (!host_is_name(other->props->name))
                        return false;
        return true;
}

static void lose_tiers(struct sentences *losses, const struct pool *pool,
        const struct device_config *now, const struct device_config *next)
{
        const char *name = pool->props->name;
        char held[FORMAT_BYTES_MAX], bytes[FORMAT_BYTES_MAX];

        for (const struct pool *tier = pool->below; tier; tier = tier->below) {
                const bool is_disk = tier->tier == TIER_DISK;
                const uint64_t size = is_disk ? next->disk_bytes : next->host_memory_bytes;

                if (tier->account.charged_bytes == 0)
                        continue;
                format_bytes(tier->account.charged_bytes, held);
                if (is_disk && strcmp(now->disk, next->disk) != 0)
                        sentences_add(losses,
                                "%s of pages on disk: [device %s] would have disk = '%s'", held,
                                name, next->disk);
                else if (tier->account.charged_bytes > (is_disk ? config_disk_budget(size) : size))
                        sentences_add(losses,
                                "of %s of pages what doesn't fit: [device %s] would have %s = %s",
                                held, name, is_disk ? "disk_size" : "host_memory",
                                format_bytes(size, bytes));
        }
}

/*
 * True if the device would have the same members, in the same order. Of host members only the
 * number counts, as they share their memory. 'all' counts as the same: it is resolved at the start.
 */
static bool same_members(const struct pool *pool, const char *next)
{
        const struct device_props *props = pool->props;
        char name[DEVICE_NAME_MAX + 1];
        unsigned n = 0;
        size_t len;

        if (strcmp(next, "all") == 0)
                return true;
        for (const char *at = next; *(at += strspn(at, ", ")); at += len, n++) {
                len = strcspn(at, ", ");
                device_member_name(props, n, name);
                if (!props->is_cpu_memory &&
                        (strlen(name) != len || strncasecmp(name, at, len) != 0))
                        return false;
        }
        return n == props->n_members;
}

static void lose_device(struct server *s, struct sentences *losses, const struct config *next,
        const struct pool *pool)
{
        const struct holding held = holding_count(s, pool, NULL);
        const char *name = pool->props->name;
        struct device_config now_buf, next_buf;
        const struct device_config *now = next_config_device(&s->config, name, &now_buf),
                                   *then = next_config_device(next, name, &next_buf);
        uint64_t budget = devices_budget(s, pool->props, then);
        char why[WHY_BYTES], bytes[FORMAT_BYTES_MAX];

        if (!is_used(s, next, pool)) {
                snprintf(why, sizeof(why), "devices would leave out %s", name);
                holding_lose(losses, &held, why);
                return;
        }
        if (then->transport == TRANSPORT_CHOICE_CUDAIPC && pool->props->survives_restart &&
                !pool->props->is_cpu_memory) {
                snprintf(why, sizeof(why),
                        "[device %s] would have transport = cudaipc, which takes over nothing",
                        name);
                holding_lose(losses, &held, why);
                return;
        }
        if (!same_members(pool, then->members)) {
                snprintf(why, sizeof(why), "[device %s] would have other members", name);
                holding_lose(losses, &held, why);
                return;
        }
        if (pool->account.charged_bytes > budget) {
                snprintf(why, sizeof(why),
                        "[device %s] would have memory = %s, and the namespaces that don't fit are lost",
                        name, format_bytes(budget, bytes));
                holding_lose(losses, &held, why);
        }
        lose_tiers(losses, pool, now, then);
}

static void lose_tenants(struct server *s, struct sentences *losses, const struct config *next)
{
        const bool has_database = strcmp(next->daemon.state_dir, s->config.daemon.state_dir) == 0;

        list_for_each (t, &s->store.tenants, struct tenant, link) {
                const struct holding held = holding_count(s, NULL, t);
                char why[WHY_BYTES];

                if (tenant_table_find(&next->tenants, t->name) ||
                        (has_database && tenantdb_find(&s->db, t->name)))
                        continue;
                snprintf(why, sizeof(why), "there would be no tenant %s", t->name);
                holding_lose(losses, &held, why);
        }
}

static void report_error(void *data, bool is_error, const char *sentence)
{
        if (is_error)
                sentences_add(data, "everything: the next kvleased wouldn't start: %s", sentence);
}

void next_config_losses(struct server *s, struct sentences *losses)
{
        const struct holding all = holding_count(s, NULL, NULL);
        struct config next;

        if (config_load(&s->source, &next, report_error, losses) < 0)
                return;
        if (next.daemon.keep_state == KEEP_STATE_OFF && keeping_is_on(&s->keeping))
                holding_lose(losses, &all, "keep_state would be off");
        if (strcmp(next.daemon.runtime_dir, s->config.daemon.runtime_dir) != 0)
                sentences_add(losses, "all clients: their sockets would be in %s instead of %s",
                        next.daemon.runtime_dir, s->config.daemon.runtime_dir);
        lose_tenants(s, losses, &next);
        list_for_each (pool, &s->store.pools, struct pool, link)
                lose_device(s, losses, &next, pool);
        config_deinit(&next);
}

/* ---- contents that a restart may lose -------------------------------------------------------- */

struct holding holding_count(
        const struct server *s, const struct pool *pool, const struct tenant *tenant)
{
        struct holding h = {0};

        list_for_each (t, &s->store.tenants, struct tenant, link) {
                if (tenant && t != tenant)
                        continue;
                list_for_each (ns, &t->namespaces, struct ns, link) {
                        if (pool && ns->device.pool != pool)
                                continue;
                        h.n_pages += ns_count_findable(ns);
                        h.n_bytes += ns_all_bytes(ns);
                        h.n_sessions += sessions_count(ns);
                }
        }
        return h;
}

void holding_lose(struct sentences *losses, const struct holding *h, const char *why)
{
        char bytes[FORMAT_BYTES_MAX];

        if (h->n_bytes > 0 || h->n_sessions > 0)
                sentences_add(losses, "%llu cached page%s (%s) and %llu session%s: %s",
                        (unsigned long long)h->n_pages, PLURAL(h->n_pages),
                        format_bytes(h->n_bytes, bytes), (unsigned long long)h->n_sessions,
                        PLURAL(h->n_sessions), why);
}

/* ---- sentences of an answer ------------------------------------------------------------------ */

/* Bytes of a field of a message besides its text: its number, and a length of at most
 * SENTENCE_BYTES. */
#define FIELD_BYTES 4

int sentences_init(struct sentences *s, struct arena *arena, size_t max_bytes)
{
        *s = (struct sentences){.arena = arena,
                .bytes_left = max_bytes,
                .texts = arena_alloc(arena, SENTENCES_MAX * sizeof(*s->texts))};
        return s->texts ? 0 : -ENOMEM;
}

void sentences_add(struct sentences *s, const char *format, ...)
{
        char text[SENTENCE_BYTES], *copy = NULL;
        size_t bytes;
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        bytes = strlen(text) + 1 + FIELD_BYTES;
        if (s->n < SENTENCES_MAX && bytes <= s->bytes_left)
                copy = arena_alloc(s->arena, strlen(text) + 1);
        if (!copy) {
                s->n_more++;
                return;
        }
        strcpy(copy, text);
        s->bytes_left -= bytes;
        s->texts[s->n++] = copy;
}
