#include "daemon/server/peers/access.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
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

/* Notes that the groups of a process with too many aren't used. */
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
                "uid %u is not allowed by tenant %s: add it with kvleasectl tenants set %s uids+=%u, or one of its groups with gids+=GROUP%s",
                (unsigned)c->uid, t->name, t->name, (unsigned)c->uid, note_groups(c));
}

/* Appends a change of access. does: "connect to", "publish in". */
static void tell_lists(const char *does, const char *tenant, const struct id_list *const before[2],
        const struct id_list *const after[2], struct detail *d)
{
        bool was_open = before[0]->n + before[1]->n == 0, is_open = after[0]->n + after[1]->n == 0;
        char uids[ID_LIST_TEXT_MAX + 1], gids[ID_LIST_TEXT_MAX + 1];
        size_t len = strlen(d->text), room = sizeof(d->text) - len;
        char *end = d->text + len;

        id_list_beyond(before[0], after[0], uids);
        id_list_beyond(before[1], after[1], gids);
        if (was_open && !is_open)
                snprintf(end, room,
                        "%sall but the listed users and groups may no longer %s tenant %s",
                        len > 0 ? "; " : "", does, tenant);
        else if (is_open && !was_open)
                snprintf(end, room, "%sall that reach its socket may %s tenant %s now",
                        len > 0 ? "; " : "", does, tenant);
        else if (*uids || *gids)
                snprintf(end, room, "%s%s%.200s%s%s%.200s may no longer %s tenant %s",
                        len > 0 ? "; " : "", *uids ? "uids " : "", uids,
                        *uids && *gids ? " and " : "", *gids ? "gids " : "", gids, does, tenant);
}

void access_tell_change(const char *tenant, const struct access_config *before,
        const struct access_config *after, struct detail *d)
{
        d->text[0] = '\0';
        tell_lists("connect to", tenant, (const struct id_list *[]){&before->uids, &before->gids},
                (const struct id_list *[]){&after->uids, &after->gids}, d);
        tell_lists("publish in", tenant,
                (const struct id_list *[]){&before->publish_uids, &before->publish_gids},
                (const struct id_list *[]){&after->publish_uids, &after->publish_gids}, d);
}

/* True for root, the daemon's own user, or a member of this group (*ret_is_there: the group
 * exists). */
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
