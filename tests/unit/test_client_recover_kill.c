/*
 * Kills a daemon at each fault point of its records of clients (the core is compiled with them),
 * and between slices of long work. The next daemon finds a consistent state, and nothing of clients
 * that have exited.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/tenant-life.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/reclaim/recall.h"
#include "daemon/core/life/resume.h"
#include "daemon/core/requests/lookup.h"
#include "tests/unit/at-once.h"
#include "tests/unit/client-recover-fixture.h"
#include "tests/unit/killed-elsewhere.h"

/* ---- killed --------------------------------------------------------------------------------- */

/* Runs to the end, and every client leaves. */
static void leave(struct daemon *dm, struct attach *a, struct attach *b)
{
        uint64_t pending[] = {21};
        uint8_t fresh[CLIENT_TOKEN_BYTES] = {1, 2, 3};
        struct member *one = a->member;
        struct client_cursors *cursors;
        int fd = memfd_create_sized("ring", SHM_CLIENT_BYTES);

        need(client_record_ring(one, fd, &cursors, NULL));
        client_token_renew(one, facts->token, fresh);
        client_token_commit(one);
        need(release_pages(a, facts->sealed, 2, NOW, NULL));
        (void)magazine_drain(b);
        member_undo(one, pending, 1);
        attach_close(b);
        member_free(one);
}

#define NAME(name) name,
static const char *const points[] = {KILLED_BY_CLIENT_RECOVER(NAME) "client-before-fill",
        "client-before-live", "client-after-live", "client-ring-before", "client-ring-before-mark",
        "client-ring-after-mark", "client-frame-before", "client-frame-after", "token-before",
        "token-one", "token-before-both", "token-both", "token-settle-before", "token-settle-after",
        "attach-before-fill", "attach-before-live", "attach-after-live", "attach-share-before",
        "attach-share-before-mark", "attach-share-after-mark", "attach-pins-before",
        "attach-pins-before-mark", "attach-pins-after-mark", "socket-pin-before",
        "socket-pin-after", "pins-before-add", "pins-after-add", "magazine-before-put",
        "magazine-after-put", "magazine-before-drain", "magazine-after-drain", "attach-end-before",
        "attach-end-after", "attach-end-dropped", "client-end-before", "client-end-after",
        "client-end-dropped"};
#undef NAME

/* Its token, as it knows it, is right wherever the daemon was killed. */
static void check_token(struct daemon *dm)
{
        struct member *one = find(dm, facts->one);
        uint8_t fresh[CLIENT_TOKEN_BYTES] = {1, 2, 3};

        if (one && facts->one != 0)
                assert_true(client_token_is(one, facts->token) || client_token_is(one, fresh));
}

static bool kill_at(const char *point, unsigned pass)
{
        struct fake_keep *k = calloc(1, sizeof(*k));
        struct daemon dm;
        int status;

        memset(facts, 0, sizeof(*facts));
        fake_keep_init(k);
        status = fake_keep_fork(k, point, pass, live, leave);
        if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
                fail_msg("the first daemon failed");
        daemon_start(&dm, &k->keep);
        release_rest(k);
        check_token(&dm);
        daemon_end(&dm);
        check_nothing_kept(k);
        fake_keep_deinit(k);
        free(k);
        return WIFSIGNALED(status);
}

TEST(test_killed)
{
        for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
                if (!kill_at(points[i], 1))
                        fail_msg("%s is never passed", points[i]);
                for (unsigned pass = 2; pass <= 3; pass++)
                        (void)kill_at(points[i], pass);
        }
}

/* ---- killed between two slices -------------------------------------------------------------- */

static unsigned n_slices;

/* Both of the group go, a page at a time, and aren't done. */
static void leave_slowly(struct daemon *dm, struct attach *a, struct attach *b)
{
        dm->store.drop_slice_pages = 1;
        member_leave(b->member);
        member_leave(a->member);
        for (unsigned i = 0; i < n_slices; i++)
                assert_non_null(tasks_work(&dm->store));
        assert_true(tasks_are_left(&dm->store));
        daemon_check(dm);
}

/* Their pages are free, and their ids aren't used again. */
static void check_left(struct daemon *dm)
{
        struct ns *ns = ns_find(dm->a, "n");

        daemon_check(dm);
        assert_true(!find(dm, facts->one) && !find(dm, facts->mate));
        assert_non_null(find(dm, facts->other));
        assert_true(list_is_empty(&dm->a->groups));
        assert_int_equal(ns_n_pages(ns, PAGE_GRANTED), 0);
        assert_int_equal(ns_n_pinned(ns), 0);
        assert_int_equal(ns_n_pages(ns, PAGE_SEALED), 4);
        assert_true(join(dm->a, NULL, false)->id > facts->other);
}

TEST(test_killed_while_they_leave)
{
        for (n_slices = 0; n_slices < 8; n_slices++) {
                struct fake_keep *k = calloc(1, sizeof(*k));
                struct daemon dm;

                fake_keep_init(k);
                assert_int_equal(fake_keep_fork(k, NULL, 0, live, leave_slowly), 0);
                daemon_start(&dm, &k->keep);
                release_rest(k);
                check_left(&dm);
                daemon_end(&dm);
                check_nothing_kept(k);
                fake_keep_deinit(k);
                free(k);
        }
}

#define N_CACHED (4 * SET_PAGES)

/* Lowers the limit below the pages, which no client maps, and drops some of them. */
static void lower_slowly(struct fake_keep *k, void *data)
{
        uint32_t pages[N_CACHED];
        struct tenant_attrs attrs;
        struct daemon dm;
        struct attach *a;

        daemon_start(&dm, &k->keep);
        dm.store.drop_slice_pages = 1;
        a = open_ns(join(dm.a, NULL, true), "n", 1);
        lease(a, N_CACHED, 2, pages);
        for (unsigned i = 0; i < 4; i++)
                need(publish(a, i * SET_PAGES, SET_PAGES, pages + i * SET_PAGES));
        need(release_pages(a, pages, N_CACHED, NOW, NULL));
        attrs = dm.a->attrs;
        attrs.limit_bytes = SET_BYTES;
        need(tenant_set_attrs(dm.a, &attrs, NULL));
        assert_int_equal(dm.a->n_recalled, 3);
        for (unsigned i = 0; i < n_slices; i++)
                assert_int_equal(recall_work(&dm.store, NOW, NOW, 3), RECALL_MORE);
        daemon_check(&dm);
}

/* The next one, whose limit is another, takes back what was being taken back. */
TEST(test_killed_while_a_limit_is_met)
{
        for (n_slices = 0; n_slices < 12; n_slices++) {
                struct fake_keep *k = calloc(1, sizeof(*k));
                struct daemon dm;

                fake_keep_init(k);
                assert_int_equal(fake_keep_fork(k, NULL, 0, lower_slowly, NULL), 0);
                daemon_start(&dm, &k->keep);
                release_rest(k);
                daemon_check(&dm);
                recall_poll(&dm.store);
                while (recall_work(&dm.store, NOW, NOW, 3) == RECALL_MORE)
                        daemon_check(&dm);
                assert_int_equal(dm.a->account.charged_bytes, SET_BYTES);
                assert_int_equal(dm.a->n_recalled, 0);
                daemon_end(&dm);
                fake_keep_deinit(k);
                free(k);
        }
}

int main(void)
{
        facts_init();
        return test_run_all(NULL, NULL);
}
