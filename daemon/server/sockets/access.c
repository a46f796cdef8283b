#include "daemon/server/sockets/access.h"

#include <assert.h>
#include <errno.h>
#include <unistd.h>

static bool in_group(const struct creds *c, gid_t gid)
{
        if (c->gid == gid)
                return true;
        for (size_t i = 0; i < c->n_groups; i++)
                if (c->groups[i] == gid)
                        return true;
        return false;
}

static bool is_listed(const struct id_list *uids, const struct id_list *gids, const struct creds *c)
{
        if (id_list_has(uids, c->uid))
                return true;
        for (uint32_t i = 0; i < gids->n; i++)
                if (in_group(c, gids->ids[i]))
                        return true;
        return false;
}

bool access_has_publishers(const struct tenant_config *t)
{
        return t->access.publish_uids.n > 0 || t->access.publish_gids.n > 0;
}

bool access_may_publish(const struct tenant_config *t, const struct creds *c)
{
        return !access_has_publishers(t) ||
               is_listed(&t->access.publish_uids, &t->access.publish_gids, c);
}

/* Why its groups are of no use to a process that has too many. */
static const char *note_groups(const struct creds *c)
{
        static_assert(CREDS_GROUPS_MAX == 4096, "the sentence");
        return c->has_too_many ? "; its supplementary groups don't count, as it has more than 4096"
                               : "";
}

int access_tenant(const struct tenant_config *t, const struct creds *c, struct detail *d)
{
        if (t->access.uids.n == 0 && t->access.gids.n == 0)
                return 0;
        if (is_listed(&t->access.uids, &t->access.gids, c))
                return 0;
        return detail_set(d, -EACCES,
                "uid %u is not allowed by tenant %s: add it to the tenant's uids, or one of its "
                "groups "
                "to the tenant's gids%s",
                (unsigned)c->uid, t->name, note_groups(c));
}

/* root, the daemon's own user, or a member of this group; that one is there. */
static bool is_trusted(const char *group, const struct creds *c, bool *ret_is_there)
{
        gid_t gid;

        *ret_is_there = *group && group_number(group, &gid) == 0;
        return c->uid == 0 || c->uid == geteuid() || (*ret_is_there && in_group(c, gid));
}

static int refuse_user(
        const char *what, const char *group, bool g, const struct creds *c, struct detail *d)
{
        return detail_set(d, -EACCES, "uid %u may not %s kvleased: %s%s%s%s", (unsigned)c->uid,
                what, g ? "join group " : "use sudo", g ? group : "", g ? " or use sudo" : "",
                note_groups(c));
}

int access_admin(const char *admin_group, const struct creds *c, struct detail *d)
{
        bool g;

        return is_trusted(admin_group, c, &g) ? 0 : refuse_user("administer", admin_group, g, c, d);
}

int access_monitor(const struct daemon_config *config, const struct creds *c, struct detail *d)
{
        bool g;

        if (is_trusted(config->admin_group, c, &g) || is_trusted(config->monitor_group, c, &g))
                return 0;
        return refuse_user("monitor", config->monitor_group, g, c, d);
}
