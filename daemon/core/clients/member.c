#include "daemon/core/clients/member.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "daemon/core/cache/announced.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"

static bool group_id_is_used(const struct store *s, uint32_t id)
{
        list_for_each (t, &s->tenants, struct tenant, link)
                list_for_each (g, &t->groups, struct group, link)
                        if (g->id == id)
                                return true;
        return false;
}

static uint32_t next_group_id(struct store *s)
{
        uint32_t id;

        do
                id = (uint32_t)state_next(&s->state->last_group_id);
        while (id == 0 || group_id_is_used(s, id));
        return id;
}

static struct group *group_make(
        struct tenant *t, uint32_t id, const uint8_t token[GROUP_TOKEN_BYTES])
{
        struct group *g = calloc(1, sizeof(*g));

        if (!g)
                return NULL;
        g->tenant = t;
        g->id = id;
        memcpy(g->token, token, GROUP_TOKEN_BYTES);
        list_init(&g->members);
        list_init(&g->leaving);
        list_init(&g->grants);
        list_append(&t->groups, &g->link);
        return g;
}

/* token NULL: a random one is made. */
static struct group *group_new(struct tenant *t, const uint8_t *token)
{
        uint8_t random[GROUP_TOKEN_BYTES];

        static_assert(GROUP_TOKEN_BYTES == CLIENT_TOKEN_BYTES, "made by the same function");
        if (!token)
                client_token_random(random);
        return group_make(t, next_group_id(t->store), token ? token : random);
}

void group_free_empty(struct group *g)
{
        if (!list_is_empty(&g->members) || !list_is_empty(&g->leaving))
                return;
        assert(list_is_empty(&g->grants));
        list_remove(&g->link);
        free(g);
}

/* Ignores groups whose last member is leaving. */
static struct group *group_find(struct tenant *t, const uint8_t *token)
{
        list_for_each (g, &t->groups, struct group, link)
                if (!list_is_empty(&g->members) && memcmp(g->token, token, GROUP_TOKEN_BYTES) == 0)
                        return g;
        return NULL;
}

/* Makes a member of the group; on failure frees a group without members. NULL: no memory. */
static struct member *member_make(struct group *g, uint64_t id)
{
        struct member *m = calloc(1, sizeof(*m));

        if (!m) {
                group_free_empty(g);
                return NULL;
        }
        m->group = g;
        m->id = id;
        list_init(&m->attachments);
        list_init(&m->closing);
        list_append(&g->members, &m->link);
        g->tenant->n_members++;
        g->tenant->store->n_members++;
        return m;
}

struct member *member_adopt(struct tenant *t, uint64_t id, uint32_t group_id,
        const uint8_t group_token[GROUP_TOKEN_BYTES])
{
        struct group *g = group_find(t, group_token);

        state_raise(&t->store->state->last_member_id, id);
        state_raise(&t->store->state->last_group_id, group_id);
        if (!g)
                g = group_make(t, group_id, group_token);
        return g ? member_make(g, id) : NULL;
}

int member_new(struct tenant *t, const uint8_t *token, bool metadata_only,
        struct member **ret_member, struct detail *d)
{
        if (token && !group_find(t, token))
                return detail_set(d, -ENOENT,
                        "no group with this token: its last member has left; start a new one");
        return member_new_or_join(t, token, metadata_only, ret_member, d);
}

int member_new_or_join(struct tenant *t, const uint8_t *token, bool metadata_only,
        struct member **ret_member, struct detail *d)
{
        struct member *m;
        struct group *g;

        if (t->n_members >= t->attrs.max_clients)
                return detail_set(d, -EMFILE,
                        "tenant %s has %u clients, the most it may have; raise it with: kvleasectl tenants set %s max_clients=...",
                        t->name, t->n_members, t->name);
        g = token ? group_find(t, token) : NULL;
        if (!g)
                g = group_new(t, token);
        m = g ? member_make(g, state_next(&t->store->state->last_member_id)) : NULL;
        if (!m)
                return detail_set(d, -ENOMEM, "no memory for another client");
        m->metadata_only = metadata_only;
        if (t->store->clients)
                client_token_random(m->resume_token);
        *ret_member = m;
        return 0;
}

void member_withdraw(struct member *m)
{
        if (m->is_over)
                return;
        m->is_over = true;
        list_for_each (a, &m->attachments, struct attach, member_link)
                (void)announce_withdraw_all(a);
}

void member_linger(struct member *m)
{
        m->group->n_lingering += !m->lingers;
        m->lingers = true;
        member_withdraw(m);
}

void member_set_read_only(struct member *m, bool read_only)
{
        m->read_only = read_only;
        if (!read_only)
                return;
        list_for_each (a, &m->attachments, struct attach, member_link) {
                (void)announce_withdraw_all(a);
                if (a->magazine)
                        magazine_drain(a);
        }
}

uint64_t member_count_pins(const struct member *m)
{
        uint64_t n = m->n_pins;

        list_for_each (a, &m->attachments, struct attach, member_link) {
                uint32_t set_pages = a->ns->geometry.set_pages;

                if (!pins_is_open(&a->share))
                        continue;
                ns_for_each_set (set, a->ns)
                        for (uint32_t i = 0; i < set_pages; i++)
                                if (set->pages[i].state == PAGE_SEALED ||
                                        set->pages[i].state == PAGE_DETACHED)
                                        n += pins_count(&a->share, set->index * set_pages + i);
        }
        return n;
}
