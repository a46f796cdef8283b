/* Access rules, and the kernel's data about a peer. */
#include "tests/unit/child.h"
#include "tests/unit/test-support.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/server/peers/access.h"

static struct tenant_config tenant_with(const char *a, const char *b)
{
        struct tenant_config t;
        char err[1024];

        tenant_config_init(&t, "t");
        assert_int_equal(tenant_config_apply(&t, a, err, sizeof(err)), 0);
        assert_int_equal(tenant_config_apply(&t, b, err, sizeof(err)), 0);
        return t;
}

static int try(const struct tenant_config *t, uid_t uid, gid_t gid, gid_t group)
{
        const struct creds c = {.uid = uid, .gid = gid, .groups = &group, .n_groups = 1};
        struct detail d = {""};
        int r = access_tenant(t, &c, &d);

        assert_int_equal(r == 0, d.text[0] == '\0');
        return r;
}

TEST(test_tenant_rules)
{
        struct tenant_config t = tenant_with("uids=", "gids=");

        assert_int_equal(try(&t, 5, 6, 7), 0); /* no rule: the socket is the rule */
        t = tenant_with("uids=5, 8", "gids=");
        assert_int_equal(try(&t, 5, 6, 7), 0);
        assert_int_equal(try(&t, 8, 6, 7), 0);
        assert_int_equal(try(&t, 6, 5, 8), -EACCES); /* groups are no users */
        assert_int_equal(try(&t, 0, 0, 0), -EACCES);
        t = tenant_with("uids=", "gids=7");
        assert_int_equal(try(&t, 1, 7, 2), 0);
        assert_int_equal(try(&t, 1, 2, 7), 0);
        assert_int_equal(try(&t, 7, 1, 2), -EACCES);
        t = tenant_with("uids=5", "gids=7");
        assert_int_equal(try(&t, 5, 1, 2), 0);
        assert_int_equal(try(&t, 1, 1, 7), 0);
        assert_int_equal(try(&t, 1, 1, 2), -EACCES);
}

static bool may_publish(const struct tenant_config *t, uid_t uid, gid_t gid, gid_t group)
{
        const struct creds c = {.uid = uid, .gid = gid, .groups = &group, .n_groups = 1};

        return access_may_publish(t, &c);
}

TEST(test_publishers)
{
        struct tenant_config t = tenant_with("uids=1", "gids=2");

        assert_false(access_has_publishers(&t));
        assert_true(may_publish(&t, 5, 6, 7)); /* every admitted user */
        t = tenant_with("publish_uids=5", "publish_gids=");
        assert_true(access_has_publishers(&t));
        assert_true(may_publish(&t, 5, 6, 7));
        assert_false(may_publish(&t, 6, 5, 5)); /* groups are no users */
        assert_false(may_publish(&t, 0, 0, 0));
        t = tenant_with("publish_uids=", "publish_gids=7");
        assert_true(access_has_publishers(&t));
        assert_true(may_publish(&t, 1, 7, 2));
        assert_true(may_publish(&t, 1, 2, 7));
        assert_false(may_publish(&t, 7, 1, 2));
        t = tenant_with("publish_uids=5", "publish_gids=7");
        assert_true(may_publish(&t, 5, 1, 2));
        assert_true(may_publish(&t, 1, 1, 7));
        assert_false(may_publish(&t, 1, 1, 2));
        assert_int_equal(try(&t, 1, 1, 2), 0); /* readers are admitted all the same */
}

TEST(test_sentence)
{
        struct tenant_config t = tenant_with("uids=5", "gids=");
        const struct creds c = {.uid = 77};
        struct detail d = {""};

        assert_int_equal(access_tenant(&t, &c, &d), -EACCES);
        assert_non_null(strstr(d.text, "uid 77"));
        assert_non_null(strstr(d.text, "tenant t"));
        assert_null(strstr(d.text, "more than"));
        assert_int_equal(
                access_tenant(&t, &(struct creds){.uid = 77, .has_too_many = true}, &d), -EACCES);
        assert_non_null(strstr(d.text, "more than 4096"));
}

/* Applies it; returns the text of the list, or of the refusal. */
static const char *amended(struct tenant_config *t, const char *assignment, const struct id_list *l)
{
        static char err[1024];

        err[0] = '\0';
        if (tenant_config_apply(t, assignment, err, sizeof(err)) == 0)
                return l->text;
        assert_true(*err);
        return err;
}

#define ASSERT_AMENDED(t, assignment, list, wanted)                                            \
        do {                                                                                   \
                const char *text_ = amended(t, assignment, &(t)->access.list);                 \
                if (!strstr(text_, wanted) || (!strchr(wanted, ':') && strcmp(text_, wanted))) \
                        fail_msg("%s: \"%s\"", assignment, text_);                             \
        } while (0)

/* Adding to lists denies no user, and removing from lists admits none. */
TEST(test_lists_are_amended)
{
        struct tenant_config t = tenant_with("uids=5 root", "gids="), before;
        char many[ID_LIST_TEXT_MAX] = "uids+=";

        ASSERT_AMENDED(&t, "uids+=7, 8", uids, "5 root, 7, 8");
        assert_int_equal(try(&t, 8, 1, 1), 0);
        ASSERT_AMENDED(&t, "uids+=0,7,9", uids, "5 root, 7, 8, 9"); /* root is 0 */
        ASSERT_AMENDED(&t, "uids-=0 7", uids, "5, 8, 9");
        ASSERT_AMENDED(&t, "gids+=6", gids, "6"); /* not its first list */
        before = t;
        ASSERT_AMENDED(&t, "uids-=5,7", uids, "uids: '7' is not in the list");
        ASSERT_AMENDED(&t, "uids+=", uids, "uids: '' is empty");
        ASSERT_AMENDED(&t, "uids+=no-such-user-here", uids, "uids: 'no-such-user-here' is no user");
        ASSERT_AMENDED(&t, "limit+=1GiB", uids, "limit is no list: limit=VALUE sets it");
        ASSERT_AMENDED(&t, "nonsense+=1", uids, "no option 'nonsense': kvleased");
        for (unsigned i = 0; i < ID_LIST_MAX; i++)
                sprintf(many + strlen(many), "%u ", 100 + i);
        ASSERT_AMENDED(&t, many, uids, "uids: '5, 8, 9, 100");
        assert_memory_equal(&before.access, &t.access, sizeof(t.access));
        ASSERT_AMENDED(&t, "uids-=5,8,9", uids, "");
        ASSERT_AMENDED(&t, "gids-=6", gids,
                "gids-=6: tenant t would list no users or groups, and whoever reaches its socket may connect: gids= does that");
        t = tenant_with("uids=", "gids=");
        ASSERT_AMENDED(&t, "uids+=5", uids,
                "uids+=5: tenant t lists no users or groups, so whoever reaches its socket may connect: uids=5 would allow that to those alone");
        ASSERT_AMENDED(&t, "publish_uids+=5", publish_uids, "so all its clients may publish: ");
}

static void assert_tells(struct tenant_config *before, const char *assignment, const char *wanted)
{
        struct tenant_config after = *before;
        struct detail d = {"left"};
        char err[1024];

        assert_int_equal(tenant_config_apply(&after, assignment, err, sizeof(err)), 0);
        access_tell_change("t", &before->access, &after.access, &d);
        assert_string_equal(d.text, wanted);
}

TEST(test_lost_access_is_told)
{
        struct tenant_config t = tenant_with("uids=root 5,6", "gids=7");

        assert_tells(&t, "uids=5,6,0,8", "");
        assert_tells(&t, "limit=1GiB", "");
        assert_tells(&t, "uids=9", "uids root, 5, 6 may no longer connect to tenant t");
        assert_tells(&t, "uids=", "uids root, 5, 6 may no longer connect to tenant t");
        assert_tells(&t, "gids-=7", "gids 7 may no longer connect to tenant t");
        assert_tells(&t, "publish_gids=7",
                "all but the listed users and groups may no longer publish in tenant t");
        t = tenant_with("uids=5", "publish_uids=5");
        assert_tells(&t, "uids=", "all that reach its socket may connect to tenant t now");
        assert_tells(&t, "publish_uids=6", "uids 5 may no longer publish in tenant t");
        t = tenant_with("uids=", "gids=");
        assert_tells(&t, "uids=5",
                "all but the listed users and groups may no longer connect to tenant t");
}

static int try_admin(const char *group, uid_t uid, gid_t gid, gid_t supplementary)
{
        const struct creds c = {.uid = uid, .gid = gid, .groups = &supplementary, .n_groups = 1};
        struct detail d = {""};

        return access_admin(group, &c, &d);
}

TEST(test_admin)
{
        gid_t gid; /* of "daemon", which LSB wants everywhere */

        assert_int_equal(try_admin("", 0, 4, 4), 0);
        assert_int_equal(try_admin("", geteuid(), 4, 4), 0);
        assert_int_equal(try_admin("", 54321, 0, 0), -EACCES);
        assert_int_equal(try_admin("no-such-group", 54321, 0, 0), -EACCES);
        if (group_number("daemon", &gid) < 0)
                skip();
        assert_int_equal(try_admin("daemon", 54321, gid, 54321), 0);
        assert_int_equal(try_admin("daemon", 54321, 54321, gid), 0);
        assert_int_equal(try_admin("daemon", 54321, 54321, 54321), -EACCES);
        assert_int_equal(try_admin("", 54321, gid, 54321), -EACCES);
}

TEST(test_group_number)
{
        gid_t gid = 7;

        assert_int_equal(group_number("root", &gid), 0);
        assert_int_equal(gid, 0);
        assert_int_equal(group_number("54321", &gid), 0);
        assert_int_equal(gid, 54321);
        assert_int_equal(group_number("4294967294", &gid), 0);
        assert_int_equal(gid, 4294967294);
        /* (gid_t)-1 is "leave it as it is" of chown(). */
        assert_int_equal(group_number("4294967295", &gid), -ENOENT);
        assert_int_equal(group_number("54321x", &gid), -ENOENT);
        assert_int_equal(group_number("-1", &gid), -ENOENT);
        assert_int_equal(gid, 4294967294);
}

static void check_own_creds(unsigned n_groups, const gid_t *groups)
{
        struct creds c;
        int fds[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        assert_int_equal(creds_get(fds[0], &c), 0);
        assert_int_equal(c.pid, getpid());
        assert_int_equal(c.uid, geteuid());
        assert_int_equal(c.gid, getegid());
        assert_int_equal(c.has_too_many, n_groups > CREDS_GROUPS_MAX);
        if (c.has_too_many)
                n_groups = 0;
        assert_int_equal(c.n_groups, n_groups);
        if (n_groups)
                assert_memory_equal(c.groups, groups, n_groups * sizeof(*groups));
        creds_deinit(&c);
        close(fds[0]);
        close(fds[1]);
}

TEST(test_creds)
{
        gid_t groups[1024];
        int n = getgroups(ARRAY_SIZE(groups), groups);

        assert_true(n >= 0);
        check_own_creds((unsigned)n, groups);
}

/* None, and so many that the kernel takes 2 ms to tell, which aren't asked for: a process of its
 * own each. */
TEST(test_groups_of_any_number)
{
        static const unsigned numbers[] = {0, 1, 64, CREDS_GROUPS_MAX, CREDS_GROUPS_MAX + 1, 65536};

        if (geteuid() != 0)
                skip();
        for (unsigned i = 0; i < ARRAY_SIZE(numbers); i++) {
                static gid_t groups[65536];
                int status;
                pid_t pid;

                for (unsigned k = 0; k < numbers[i]; k++)
                        groups[k] = 1000 + k; /* the kernel sorts them */
                pid = child_fork();
                if (pid == 0) {
                        if (setgroups(numbers[i], groups) < 0)
                                _exit(77);
                        check_own_creds(numbers[i], groups);
                        _exit(0);
                }
                assert_int_equal(waitpid(pid, &status, 0), pid);
                assert_int_equal(status, 0);
        }
}

TEST(test_pidfd)
{
        pid_t pid = child_fork();
        struct pollfd p;
        int fd;

        if (pid == 0) {
                pause();
                _exit(0);
        }
        fd = creds_open_pidfd(pid);
        assert_true(fd >= 0);
        assert_false(creds_pidfd_exited(fd));
        kill(pid, SIGKILL);
        p = (struct pollfd){fd, POLLIN, 0};
        assert_int_equal(poll(&p, 1, 10000), 1);
        assert_true(creds_pidfd_exited(fd));
        waitpid(pid, NULL, 0);
        assert_true(creds_pidfd_exited(fd));
        close(fd);
        assert_int_equal(creds_open_pidfd(pid), -ESRCH);
}
