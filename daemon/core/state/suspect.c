#include "daemon/core/state/suspect.h"

#include <string.h>

#include "base/hash.h"
#include "base/macros.h"
#include "daemon/core/state/detail.h"

uint64_t suspect_mark(const char *tenant_name)
{
        /* Not secret: a process that can write the root needs no collision. */
        struct hash_seed seed = {STATE_MAGIC, 1};

        return hash_bytes(seed, tenant_name, strlen(tenant_name)) | 1;
}

struct state_serving suspect_take_over(struct store *s, uint64_t tenant_mark, uint64_t client)
{
        struct state_serving was = suspect_serve(s, tenant_mark, client);

        if (s->state)
                s->state->serving.takes_over = 1;
        return was;
}

void suspect_note_crash(struct state_root *r)
{
        atomic_store_explicit(&r->crashed, 1, memory_order_relaxed);
}

static struct state_suspect *find_suspect(const struct store *s, uint64_t tenant, uint64_t client)
{
        for (unsigned i = 0; i < STATE_SUSPECTS; i++) {
                struct state_suspect *p = &s->state->suspects[i];

                if (p->n_deaths > 0 && p->tenant == tenant && p->client == client)
                        return p;
        }
        return NULL;
}

/* Returns a free row, or the one that was served longest ago. */
static struct state_suspect *take_row(struct store *s)
{
        struct state_suspect *oldest = s->state->suspects;

        for (unsigned i = 0; i < STATE_SUSPECTS; i++) {
                struct state_suspect *p = &s->state->suspects[i];

                if (p->n_deaths == 0)
                        return p;
                if (p->last_nsec < oldest->last_nsec)
                        oldest = p;
        }
        return oldest;
}

/* Counts a crash; returns the number of the suspect's crashes. */
static uint32_t count_death(
        struct store *s, uint64_t tenant, uint64_t client, bool took_over, uint64_t now_nsec)
{
        struct state_suspect *p = find_suspect(s, tenant, client);

        if (!p) {
                p = take_row(s);
                *p = (struct state_suspect){.tenant = tenant, .client = client};
        }
        p->last_nsec = now_nsec;
        p->n_taking_over += took_over && p->n_taking_over < UINT32_MAX;
        p->n_deaths += p->n_deaths < UINT32_MAX;
        return p->n_deaths;
}

static bool is_recent(const struct state_suspect *p, uint64_t now_nsec)
{
        return now_nsec >= p->last_nsec && now_nsec - p->last_nsec < SUSPECT_FORGET_NSEC;
}

bool suspects_count(struct store *s, uint64_t now_nsec, struct detail *d)
{
        const struct state_serving was = s->state->serving;
        bool crashed = atomic_load_explicit(&s->state->crashed, memory_order_relaxed) != 0;
        uint32_t n;

        s->state->serving = (struct state_serving){0, 0, 0};
        atomic_store_explicit(&s->state->crashed, 0, memory_order_relaxed);
        for (unsigned i = 0; i < STATE_SUSPECTS; i++)
                if (!is_recent(&s->state->suspects[i], now_nsec))
                        s->state->suspects[i] = (struct state_suspect){0};
        if (!crashed || was.tenant == 0)
                return false;
        (void)count_death(s, was.tenant, 0, false, now_nsec);
        n = was.client == 0 ? 0
                            : count_death(s, was.tenant, was.client, was.takes_over != 0, now_nsec);
        (void)detail_set(d, 0,
                "the kvleased before this one died by a fault of its own while it served client "
                "%llu%s, at %u of its deaths by now; this is a bug of kvleased: please report it",
                (unsigned long long)was.client, was.client == 0 ? " (a new one)" : "", MAX(n, 1u));
        return true;
}

bool suspect_is_client(
        const struct store *s, uint64_t tenant_mark, uint64_t client, bool *ret_unread)
{
        const struct state_suspect *p = find_suspect(s, tenant_mark, client);
        const struct state_suspect *all = find_suspect(s, tenant_mark, 0);

        *ret_unread = p && p->n_taking_over > 0;
        return *ret_unread || (p && p->n_deaths >= SUSPECT_CLIENT_DEATHS) ||
               (all && all->n_deaths >= SUSPECT_TENANT_DEATHS);
}

bool suspect_is_tenant(const struct store *s, uint64_t tenant_mark, uint64_t now_nsec)
{
        const struct state_suspect *all = s->state ? find_suspect(s, tenant_mark, 0) : NULL;

        return all && all->n_deaths >= SUSPECT_TENANT_DEATHS && is_recent(all, now_nsec);
}

void suspects_forget(struct store *s)
{
        if (!s->state)
                return;
        memset(s->state->suspects, 0, sizeof(s->state->suspects));
        s->state->serving = (struct state_serving){0, 0, 0};
}
