#include "daemon/core/group.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "daemon/core/announce.h"
#include "daemon/core/detail.h"
#include "daemon/core/store.h"
#include "daemon/core/tenant.h"

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
        do
                s->last_group_id++;
        while (s->last_group_id == 0 || group_id_is_used(s, s->last_group_id));
        return s->last_group_id;
}

static struct group *group_new(struct tenant *t)
{
        struct hash_seed random = hash_seed_random(); /* 16 bytes of the kernel's */
        struct group *g = calloc(1, sizeof(*g));

        static_assert(sizeof(random) == GROUP_TOKEN_BYTES, "a token is 16 random bytes");
        if (!g)
                return NULL;
        g->tenant = t;
        g->id = next_group_id(t->store);
        memcpy(g->token, &random, GROUP_TOKEN_BYTES);
        list_init(&g->members);
        list_init(&g->grants);
        list_append(&t->groups, &g->link);
        return g;
}

static void group_free(struct group *g)
{
        assert(list_is_empty(&g->members) && list_is_empty(&g->grants));
        list_remove(&g->link);
        free(g);
}

static struct group *group_find(struct tenant *t, const uint8_t *token)
{
        list_for_each (g, &t->groups, struct group, link)
                if (memcmp(g->token, token, GROUP_TOKEN_BYTES) == 0)
                        return g;
        return NULL;
}

int member_new(struct tenant *t, const uint8_t *token, bool metadata_only,
        struct member **ret_member, struct detail *d)
{
        struct member *m;
        struct group *g;

        if (t->n_members >= t->attrs.max_clients)
                return detail_set(d, -EMFILE,
                        "tenant %s has %u clients, the most it may have; raise it with: kvleasectl "
                        "tenants set %s max_clients=...",
                        t->name, t->n_members, t->name);
        g = token ? group_find(t, token) : NULL;
        if (token && !g)
                return detail_set(d, -ENOENT,
                        "no group with this token: its last member has left; start a new one");
        m = calloc(1, sizeof(*m));
        if (m && !g)
                g = group_new(t);
        if (!m || !g) {
                free(m);
                return detail_set(d, -ENOMEM, "no memory for another client");
        }
        m->group = g;
        m->id = ++t->store->last_member_id;
        m->metadata_only = metadata_only;
        list_init(&m->attachments);
        list_append(&g->members, &m->link);
        t->n_members++;
        t->store->n_members++;
        *ret_member = m;
        return 0;
}

void member_withdraw(struct member *m)
{
        if (m->is_over)
                return;
        m->is_over = true;
        list_for_each (a, &m->attachments, struct attach, member_link)
                announce_withdraw_all(a);
}

void member_linger(struct member *m)
{
        m->group->n_lingering += !m->lingers;
        m->lingers = true;
        member_withdraw(m);
}

void member_free(struct member *m)
{
        struct group *g = m->group;

        while (!list_is_empty(&m->attachments))
                attach_close(list_first(&m->attachments, struct attach, member_link));
        assert(m->n_pins == 0 && m->n_mapped_sets == 0);
        list_remove(&m->link);
        g->n_lingering -= m->lingers;
        g->tenant->n_members--;
        g->tenant->store->n_members--;
        if (list_is_empty(&g->members))
                group_free(g);
        free(m);
}
