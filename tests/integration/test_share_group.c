/* A tenant shared by several users: users that may publish, users that only look up, and how each
 * finds the socket. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/integration/harness.h"

#define ALICE  "54321" /* publishes */
#define BOB    "54322" /* reads */
#define TEAM   "54400" /* a group that publishes */
#define LAYOUT 8       /* KVL_LAYOUT */

static const struct private_tenant rows[] = {
        {"team", "limit = 8MiB\nshare_group = on\nuids = " ALICE ", " BOB "\n"
                 "publish_uids = " ALICE "\npublish_gids = " TEAM "\n"},
        {"own", "limit = 4MiB\nuids = " BOB "\n"}, {"open", "limit = 8MiB\nshare_group = on\n"},
        {NULL, NULL}};
static const struct private_options options = {.tenants = rows};

static void assert_denied(struct worker *w, const char *words)
{
        assert_int_equal(worker_ask(w, "%s", words), -EACCES);
        if (!strstr(w->rest, "may only look up in tenant"))
                fail_msg("%s: no reason in \"%s\"", words, w->rest);
}

/* All that a reader may not, and all that it may. The namespace has chain 1 of 4 pages. */
static void check_reader(struct worker *w)
{
        uint32_t pages[4];

        assert_int_equal(worker_ask(w, "lookup 1:0-3"), 0);
        assert_int_equal(worker_numbers(w, pages, 4), 4);
        for (unsigned i = 0; i < 4; ++i)
                worker_tell(w, "verify %u %u", pages[i], 1000 + i);
        assert_denied(w, "lease 1");
        assert_denied(w, "lease 600");
        assert_denied(w, "invalidate all");
        worker_tell(w, "release %u %u %u %u", pages[0], pages[1], pages[2], pages[3]);
        assert_int_equal(worker_ask(w, "lookup 2:0-0"), 1); /* a miss is no refusal */
        assert_int_equal(worker_ask(w, "lookup 1:0-3"), 0);
        worker_tell(w, "release %u %u %u %u", pages[0], pages[1], pages[2], pages[3]);
}

/* A client loses the right to publish at once, with all that it holds, and gets it again. */
HARNESS_TEST(test_rights_change, &options)
{
        struct worker *w = worker_start(h, "open", "ns", 1), *reader;
        uint32_t pages[4], granted[8];

        worker_publish_chain(w, 1, 4, pages);
        worker_tell(w, "release %u %u %u %u", pages[0], pages[1], pages[2], pages[3]);
        worker_tell(w, "lease 8"); /* and a magazine, where memory is shared */
        worker_numbers(w, granted, 8);
        ctl(h, "tenants set open publish_uids=" ALICE);
        assert_int_equal(ctl_status(h, "pages_ready"), 0);
        assert_int_equal(worker_ask(w, "publish 3:0-0 - %u", granted[0]), -EACCES);
        assert_int_equal(worker_ask(w, "publish 3:1-2 - %u %u", granted[1], granted[2]), -EACCES);
        check_reader(w);
        assert_int_equal(ctl_status(h, "pages_ready"), 0);
        assert_int_equal(ctl_tenant(h, "open", "pages_granted"), 8);
        assert_int_equal(ctl_tenant(h, "open", "pages_sealed"), 4);
        reader = worker_start(h, "open", "ns", 1);
        check_reader(reader);
        worker_tell(reader, "close");
        assert_int_equal(worker_ask(reader, "open fresh 1"), -ENOENT);
        assert_non_null(strstr(reader->rest, "clients that may publish"));
        assert_int_equal(worker_ask(reader, "open ns 1 v9"), LAYOUT);
        assert_non_null(strstr(reader->rest, "may not change it"));
        worker_tell(w, "lookup 1:0-3"); /* nothing was retired */
        worker_tell(w, "release %u %u %u %u", pages[0], pages[1], pages[2], pages[3]);
        ctl(h, "tenants set open publish_uids=");
        worker_tell(w, "publish 3:0-0 - %u", granted[0]);
        worker_tell(w, "free %u", granted[1]);
        worker_tell(w, "lease 1");
        worker_tell(reader, "open fresh 1");
        worker_tell(reader, "lease 1");
}

/* Pages that the client may no longer free are freed when it leaves. */
HARNESS_TEST(test_free_is_denied, &options)
{
        struct worker *w = worker_start(h, "open", "ns", 1);
        uint32_t granted[2];

        worker_tell(w, "lease 2");
        worker_numbers(w, granted, 2);
        ctl(h, "tenants set open publish_gids=" TEAM);
        assert_int_equal(worker_ask(w, "free %u", granted[0]), -EACCES);
        assert_int_equal(ctl_tenant(h, "open", "pages_granted"), 2);
        worker_stop(w);
        ctl_wait_status(h, "pages_granted", 0);
}

/* Opens the paths to the sockets to all users. */
static void open_paths(struct harness *h)
{
        char path[PRIVATE_PATH_MAX];

        assert_int_equal(chmod(h->daemon.dir, 0755), 0);
        for (const struct private_tenant *t = rows; t->name; ++t) {
                snprintf(path, sizeof(path), "%.40s/t/%s", h->daemon.runtime, t->name);
                assert_int_equal(chmod(path, 0755), 0);
        }
}

/* A worker that runs as the user, with one more group ("": none). */
static struct worker *spawn_as(struct harness *h, const char *uid, const char *group)
{
        char path[PRIVATE_PATH_MAX];
        FILE *f;

        snprintf(path, sizeof(path), "%.40s/as-%s-%s", h->daemon.dir, uid, group);
        f = fopen(path, "we");
        assert_non_null(f);
        fprintf(f, "#!/bin/sh\nexec setpriv --reuid=%s --regid=%s --groups=%s%s%s -- '%s'\n", uid,
                uid, uid, *group ? "," : "", group, program_worker());
        fclose(f);
        assert_int_equal(chmod(path, 0755), 0);
        return worker_spawn_as(h, path);
}

HARNESS_TEST(test_users, &options)
{
        struct worker *alice, *bob, *teammate;
        uint32_t pages[4];

        harness_play_others(h);
        open_paths(h);
        alice = spawn_as(h, ALICE, "");
        bob = spawn_as(h, BOB, "");
        teammate = spawn_as(h, BOB, TEAM);
        worker_attach(alice, "team", "ns", 1);
        worker_publish_chain(alice, 1, 4, pages);
        worker_tell(alice, "release %u %u %u %u", pages[0], pages[1], pages[2], pages[3]);
        worker_attach(bob, "team", "ns", 1);
        check_reader(bob);
        assert_denied(bob, "lease 1");
        worker_attach(teammate, "team", "ns", 1);
        worker_publish_chain(teammate, 2, 4, pages);
        assert_int_equal(worker_ask(bob, "lookup 2:0-3"), 0);
        /* Only the group's account is charged. */
        assert_int_equal(ctl_tenant(h, "team", "pages_sealed"), 8);
        assert_int_equal(ctl_tenant(h, "own", "charged_bytes"), 0);
        worker_tell(alice, "lease 1800");
        assert_int_equal(worker_ask(alice, "lease 300"), 3); /* KVL_QUOTA: 8 MiB are 2048 pages */
}

/* Through the default socket a user finds the tenant of its own. */
HARNESS_TEST(test_default_socket, &options)
{
        struct worker *alice, *bob;

        harness_play_others(h);
        open_paths(h);
        alice = spawn_as(h, ALICE, "");
        bob = spawn_as(h, BOB, "");
        assert_int_equal(worker_ask(alice, "connect %s/sock", h->daemon.runtime), -EACCES);
        assert_non_null(strstr(alice->rest, "uid " ALICE " is listed by share group team alone"));
        worker_tell(bob, "connect %s/sock", h->daemon.runtime);
        worker_tell(bob, "open ns 1");
        worker_tell(bob, "info");
        assert_non_null(strstr(bob->rest, "tenant=own"));
        worker_tell(bob, "lease 1");
}
