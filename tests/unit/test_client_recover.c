/*
 * Clients that outlive the daemon: a child is the one that ends, the test the one that comes after,
 * and looks at what it has of them: all of it, where segments and tables are damaged or lost, too.
 * Killed at each fault point: test_client_recover_kill.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/core/clients/announce.h"
#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/client-record.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/member.h"
#include "daemon/core/core.h"
#include "daemon/core/state/state-root.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/namespace.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/state/state.h"
#include "daemon/core/life/resume.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/requests/lookup.h"
#include "daemon/core/requests/publish.h"
#include "proto/status.h"
#include "tests/unit/at-once.h"
#include "tests/unit/client-recover-fixture.h"

/* ---- what the second one finds -------------------------------------------------------------- */

static void check_mapped(const struct attach *a, bool is_mapped)
{
        uint32_t n = 0;

        list_for_each (set, &a->ns->device.sets_bound, struct extent_set, link)
                n += map_find(&a->mapped, set->index) != NULL;
        assert_int_equal(n, is_mapped ? a->ns->device.n_sets : 0);
        assert_true(a->ns->device.n_sets > 0 || !is_mapped);
}

TEST(test_all_of_it)
{
        struct fake_keep *k = calloc(1, sizeof(*k));
        struct member *one, *mate, *other;
        struct client_who who;
        struct attach *a, *b;
        struct daemon dm;

        fake_keep_init(k);
        assert_int_equal(fake_keep_fork(k, NULL, 0, live, NULL), 0);
        daemon_start(&dm, &k->keep);
        daemon_check(&dm);
        one = find(&dm, facts->one);
        mate = find(&dm, facts->mate);
        other = find(&dm, facts->other);
        assert_true(one && mate && other);
        assert_ptr_equal(one->group, mate->group);
        assert_int_equal(one->group->id, facts->group_id);
        assert_memory_equal(one->group->token, facts->group_token, GROUP_TOKEN_BYTES);
        assert_string_equal(other->group->tenant->name, "b");
        assert_true(other->metadata_only && !one->metadata_only);
        assert_true(client_is_muted(other) && !client_is_muted(one));
        assert_true(client_token_is(one, facts->token) && !client_token_is(mate, facts->token));
        client_get_who(one, &who);
        assert_int_equal(who.uid, 7);
        assert_string_equal(who.name, "test");
        assert_true(client_frame_is_done(one, 77) && !client_frame_is_done(one, 78));

        a = attach_find(one, 1);
        b = attach_find(mate, 1);
        assert_true(a && b && attach_find(one, 2) && attach_find(other, 1));
        assert_string_equal(a->ns->name, "n");
        assert_string_equal(attach_find(one, 2)->ns->name, "late");
        check_mapped(a, true);
        check_mapped(attach_find(other, 1), false);

        assert_int_equal(one->n_pins, 6);
        assert_int_equal(ns_page(a->ns, facts->sealed[0])->n_pins, 2);
        assert_int_equal(ns_page(a->ns, facts->sealed[2])->n_pins, 1);
        for (unsigned i = 0; i < 8; i++)
                need(grants_check_page(a, facts->leased[i], NULL));
        need(grants_check_page(b, facts->claimed, NULL));
        assert_int_equal(b->magazine->n_pages, facts->n_ready);
        assert_int_equal(b->ns->clients.n_ready, facts->n_ready);
        assert_true(attach_sync(b));
        assert_int_equal(b->magazine->n_pages, facts->n_ready);
        assert_true(shared_is_pinned(a->ns, facts->in_segment));

        /* Counting goes on from there. */
        need(release_pages(a, facts->sealed, 4, NOW, NULL));
        assert_int_equal(one->n_pins, 2);
        assert_true(join(dm.a, NULL, false)->id > facts->other);
        release_rest(k);
        daemon_end(&dm);
        check_nothing_kept(k);
        fake_keep_deinit(k);
        free(k);
}

TEST(test_undo_and_resume)
{
        struct fake_keep *k = calloc(1, sizeof(*k));
        uint64_t frames[] = {13, 22, UINT64_C(1) << 32};
        uint32_t sets[1] = {0}, lost[1] = {3};
        struct member *one;
        struct daemon dm;
        struct attach *a;

        fake_keep_init(k);
        assert_int_equal(fake_keep_fork(k, NULL, 0, live, NULL), 0);
        daemon_start(&dm, &k->keep);
        one = find(&dm, facts->one);
        a = attach_find(one, 1);
        assert_int_equal(a->ns->device.n_sets, 2);
        member_undo(one, frames, 3);
        assert_null(attach_find(one, 2));
        for (unsigned i = 0; i < 8; i++)
                assert_int_equal(grants_check_page(a, facts->leased[i], NULL), i < 5 ? 0 : -EINVAL);
        need(attach_name_mapped(a, sets, 1, &dm.d));
        assert_int_equal(attach_name_mapped(a, lost, 1, &dm.d), -ESTALE);
        assert_non_null(strstr(dm.d.text, "set 3 of namespace n"));
        member_resumed(one);
        assert_int_equal(a->mapped.n_used, 1);
        assert_non_null(map_find(&a->mapped, 0));
        assert_int_equal(one->n_mapped_sets, 1);
        daemon_end(&dm);
        fake_keep_deinit(k);
        free(k);
}

/* A repeated request that was executed before is executed once. */
TEST(test_repeats)
{
        struct fake_keep *k = calloc(1, sizeof(*k));
        struct publish_one o = {.parent = PAGE_NONE, .tokens = 16};
        uint8_t key[2 * KEY_BYTES];
        struct member *one, *mate;
        struct attach *a, *b;
        struct daemon dm;
        uint32_t page;

        fake_keep_init(k);
        assert_int_equal(fake_keep_fork(k, NULL, 0, live, NULL), 0);
        daemon_start(&dm, &k->keep);
        one = find(&dm, facts->one);
        mate = find(&dm, facts->mate);
        a = attach_find(one, 1);
        b = attach_find(mate, 1);

        assert_int_equal(publish(a, 0, 4, facts->sealed), -EINVAL);
        one->repeats = true;
        need(publish(a, 0, 4, facts->sealed));
        assert_int_equal(one->n_pins, 6);                             /* those it had */
        assert_int_equal(publish(a, 100, 4, facts->sealed), -EINVAL); /* other keys */
        make_keys(key, 0, 2);
        o.page = facts->sealed[0];
        o.key = key;
        mate->repeats = true;
        assert_int_equal(publish_shared(b, &o, NOW, &page, NULL), -EINVAL); /* another client */

        /* The mate's own, published before it had been told. */
        mate->repeats = false;
        make_keys(key, 50, 1);
        o.page = facts->claimed;
        need(publish_shared(b, &o, NOW, &page, NULL));
        assert_int_equal(publish_shared(b, &o, NOW, &page, NULL), -EINVAL);
        mate->repeats = true;
        page = PAGE_NONE;
        need(publish_shared(b, &o, NOW, &page, NULL));
        assert_int_equal(page, facts->claimed);

        /* The mate may have leased what it frees since. */
        free_pages_again(b, facts->leased, 2);
        need(grants_check_page(a, facts->leased[0], NULL));
        free_pages_again(a, facts->leased, 2);
        free_pages_again(a, facts->leased, 2);
        assert_int_equal(grants_check_page(a, facts->leased[0], NULL), -EINVAL);
        daemon_end(&dm);
        fake_keep_deinit(k);
        free(k);
}

/* The client is killed between two messages of a report. */
static void report_half(struct daemon *dm, struct attach *a, struct attach *b)
{
        uint64_t n;

        member_free(b->member);
        need(report_pages(a, facts->leased, 3, false, true, &n, NULL));
}

/* Pages that the client reported before aren't freed if the rest of the list lacks them. */
TEST(test_half_report)
{
        struct fake_keep *k = calloc(1, sizeof(*k));
        struct daemon dm;
        struct attach *a;
        uint64_t n;

        fake_keep_init(k);
        assert_int_equal(fake_keep_fork(k, NULL, 0, live, report_half), 0);
        daemon_start(&dm, &k->keep);
        a = attach_find(find(&dm, facts->one), 1);
        assert_int_equal(report_pages(a, facts->leased + 3, 2, true, false, &n, &dm.d), -ESTALE);
        assert_non_null(strstr(dm.d.text, "begin it anew"));
        for (unsigned i = 0; i < 8; i++)
                need(grants_check_page(a, facts->leased[i], NULL));
        need(report_pages(a, facts->leased, 3, false, true, &n, NULL));
        need(report_pages(a, facts->leased + 3, 2, true, false, &n, NULL));
        for (unsigned i = 0; i < 8; i++)
                assert_int_equal(grants_check_page(a, facts->leased[i], NULL), i < 5 ? 0 : -EINVAL);
        daemon_end(&dm);
        fake_keep_deinit(k);
        free(k);
}

static void invalidate(struct daemon *dm, struct attach *a, struct attach *b)
{
        uint64_t n;

        need(ns_invalidate(a->ns, CAUSE_NAMESPACE, &n));
}

/* Pages that were invalidated, and that a client reads, weren't swept before the end. */
TEST(test_stale_pins)
{
        struct fake_keep *k = calloc(1, sizeof(*k));
        struct daemon dm;
        struct attach *a;

        fake_keep_init(k);
        assert_int_equal(fake_keep_fork(k, NULL, 0, live, invalidate), 0);
        daemon_start(&dm, &k->keep);
        daemon_check(&dm);
        a = attach_find(find(&dm, facts->one), 1);
        assert_int_equal(a->member->n_pins, 6);
        assert_int_equal(a->ns->catalog.n_stale, 4);
        need(release_pages(a, facts->sealed, 4, NOW, NULL));
        need(release_pages(a, facts->sealed, 2, NOW, NULL));
        daemon_check(&dm);
        while (store_work(&dm.store, 4))
                ;
        assert_int_equal(a->ns->catalog.n_stale, 0);
        daemon_end(&dm);
        fake_keep_deinit(k);
        free(k);
}

/* Two pages of other hosts are on their way, for a client that goes on living. */
static void import_half(struct daemon *dm, struct attach *a, struct attach *b)
{
        uint8_t keys[2 * KEY_BYTES];
        uint32_t pages[2], n, page;

        assert_int_equal(lease_make_ready(a, 2, 2, NOW), 2);
        for (unsigned i = 0; i < 2; i++)
                pages[i] = grants_take_page(a, PAGE_SEQ_IMPORT);
        make_keys(keys, 900, 2);
        need(announce_pages(a, pages, keys, 2, &n, &page, &dm->d));
}

TEST(test_half_import)
{
        struct fake_keep *k = calloc(1, sizeof(*k));
        uint8_t key[KEY_BYTES];
        struct daemon dm;
        struct attach *a;

        fake_keep_init(k);
        assert_int_equal(fake_keep_fork(k, NULL, 0, live, import_half), 0);
        daemon_start(&dm, &k->keep);
        daemon_check(&dm);
        a = attach_find(find(&dm, facts->one), 1);
        /* Only pages that clients leased are theirs. */
        assert_int_equal(a->ns->device.n_pages[PAGE_GRANTED], 8 + 1 + facts->n_ready);
        assert_int_equal(dm.recovery.n_unclaimed, 2);
        make_keys(key, 900, 1);
        assert_int_equal(announce_state(a, key, NULL), KVL_STATUS_MISS);
        daemon_end(&dm);
        fake_keep_deinit(k);
        free(k);
}

/* ---- a hostile segment ---------------------------------------------------------------------- */

static void scribble(struct daemon *dm, struct attach *a, struct attach *b)
{
        uint32_t ready = 0, slot;

        memset(b->share.header, 0xff, sizeof(*b->share.header));
        for (slot = 0; slot < SHM_MAGAZINE_SLOTS && ready == 0; slot++)
                ready = b->share.magazine[slot];
        for (slot = SHM_MAGAZINE_SLOTS / 2; slot < SHM_MAGAZINE_SLOTS; slot++)
                b->share.magazine[slot] = slot % 5 == 0   ? ready
                                          : slot % 5 == 1 ? facts->leased[0] + 1
                                          : slot % 5 == 2 ? facts->sealed[0] + 1
                                          : slot % 5 == 3 ? UINT32_MAX
                                                          : N_SETS * SET_PAGES + slot;
        for (uint32_t page = 0; page < b->share.capacity_pages; page++)
                b->share.counters[page] = UINT32_MAX;
}

TEST(test_hostile_segment)
{
        struct fake_keep *k = calloc(1, sizeof(*k));
        struct daemon dm;
        struct attach *b;

        fake_keep_init(k);
        assert_int_equal(fake_keep_fork(k, NULL, 0, live, scribble), 0);
        daemon_start(&dm, &k->keep);
        daemon_check(&dm);
        b = attach_find(find(&dm, facts->mate), 1);
        assert_int_equal(b->magazine->n_pages, facts->n_ready);
        for (uint32_t slot = SHM_MAGAZINE_SLOTS / 2; slot < SHM_MAGAZINE_SLOTS; slot++)
                assert_int_equal(b->share.magazine[slot], 0);
        assert_true(attach_sync(b));
        daemon_end(&dm);
        fake_keep_deinit(k);
        free(k);
}

/* Another file has the segment's name: the row belonged to another client before. */
TEST(test_other_segment)
{
        struct fake_keep *k = calloc(1, sizeof(*k));
        struct daemon dm;
        struct attach *b;

        fake_keep_init(k);
        assert_int_equal(fake_keep_fork(k, NULL, 0, live, NULL), 0);
        for (uint32_t i = 0; i < k->n; i++)
                if (k->kept[i].kind == KEEP_PINS || k->kept[i].kind == KEEP_SOCKET_PINS) {
                        struct stat st;

                        assert_int_equal(fstat(k->kept[i].fd, &st), 0);
                        fd_close(k->kept[i].fd);
                        k->kept[i].fd = memfd_create_sized("other", (uint64_t)st.st_size);
                }
        daemon_start(&dm, &k->keep);
        daemon_check(&dm);
        b = attach_find(find(&dm, facts->mate), 1);
        assert_false(pins_is_open(&b->share));
        assert_int_equal(find(&dm, facts->one)->n_pins, 0);
        need(attach_share(b, NULL));
        daemon_end(&dm);
        fake_keep_deinit(k);
        free(k);
}

static void start_once(struct fake_keep *k, void *data)
{
        struct daemon dm;

        daemon_start(&dm, &k->keep);
        atomic_store(&dm.store.state->is_unsure, 0);
}

/* The file of its pins is lost, though the client was told that they count. Its pages stay until it
 * has exited, also at the next start. */
TEST(test_lost_pins)
{
        static const enum keep_kind kinds[] = {KEEP_PINS, KEEP_SOCKET_PINS};
        uint64_t members[2];

        for (unsigned i = 0; i < 2; i++) {
                struct fake_keep *k = calloc(1, sizeof(*k));
                struct member *m;
                struct daemon dm;
                struct attach *a;

                fake_keep_init(k);
                assert_int_equal(fake_keep_fork(k, NULL, 0, live, NULL), 0);
                members[0] = facts->mate, members[1] = facts->one;
                for (uint32_t row = 0; row < 8; row++)
                        keep_drop(&k->keep, kinds[i], row);
                fake_keep_set_unsure(k);
                assert_int_equal(fake_keep_fork(k, NULL, 0, start_once, NULL), 0);
                daemon_start(&dm, &k->keep);
                daemon_check(&dm);
                m = find(&dm, members[i]);
                a = attach_find(m, 1);
                assert_true(a->pins_lost && client_is_lost(m));
                assert_false(client_is_lost(find(&dm, members[!i])));
                assert_true(shared_is_pinned(a->ns, facts->sealed[2]));
                assert_true(shared_run_is_pinned(a->ns, facts->sealed[2], 1));
                member_free(m);
                assert_false(shared_is_pinned(
                        attach_find(find(&dm, members[!i]), 1)->ns, facts->sealed[2]));
                daemon_end(&dm);
                fake_keep_deinit(k);
                free(k);
        }
}

/* Without the tables the readers and writers of kept pages are unknown. */
TEST(test_tables_lost)
{
        static const uint32_t rubbish = UINT32_MAX;
        struct fake_keep *k = calloc(1, sizeof(*k));

        for (unsigned i = 0; i < 2; i++) {
                struct store store;
                struct detail d;
                bool is_lost;

                fake_keep_init(k);
                assert_int_equal(fake_keep_fork(k, NULL, 0, live, NULL), 0);
                if (i == 0)
                        keep_drop(&k->keep, KEEP_CLIENTS, 0);
                else
                        assert_true(pwrite(fake_keep_find(k, KEEP_CLIENTS, 0), &rubbish,
                                            sizeof(rubbish), 0) > 0);
                store_init(&store, &evict_lru);
                store.keep = k->keep;
                assert_int_equal(state_open(&store, &is_lost, &d), 1);
                assert_false(is_lost);
                need(client_records_open(&store, &is_lost, &d));
                assert_true(is_lost);
                assert_non_null(strstr(d.text, "not who uses them: kvleased starts empty"));
                assert_int_equal(k->n, 2);
                assert_int_equal(fake_keep_count(k, KEEP_STATE), 1);
                assert_int_equal(fake_keep_count(k, KEEP_CLIENTS), 1);
                assert_int_equal(store.state->n_restarts, 0);
                assert_int_equal(store.boot_epoch, store.state->boot_epoch);
                store_deinit(&store);
                /* The tables that replaced them serve the next daemon. */
                fake_keep_restart(k);
                {
                        struct daemon dm;

                        daemon_start(&dm, &k->keep);
                        assert_int_equal(dm.store.state->n_restarts, 1);
                        daemon_end(&dm);
                }
                fake_keep_deinit(k);
        }
        free(k);
}

/* ---- no room -------------------------------------------------------------------------------- */

TEST(test_no_room)
{
        struct fake_keep *k = calloc(1, sizeof(*k));
        _cleanup_fd_ int pidfd = pidfd_open(getpid(), 0);
        struct client_who who = {.pid = getpid()};
        struct client_cursors *cursors;
        struct member *m, *refused;
        struct daemon dm;
        struct attach *a;
        uint32_t page;

        fake_keep_init(k);
        daemon_start(&dm, &k->keep);
        m = join(dm.a, NULL, false);
        a = open_ns(m, "n", 1);
        lease(a, 1, 2, &page);
        k->room = k->n;
        need(member_new(dm.a, NULL, false, &refused, NULL));
        assert_int_equal(client_record(refused, &who, pidfd, &dm.d), -EMFILE);
        assert_non_null(strstr(dm.d.text, "no room"));
        assert_false(client_is_recorded(refused));
        assert_int_equal(attach_share(a, &dm.d), -EMFILE);
        assert_non_null(strstr(dm.d.text, "no room"));
        assert_false(pins_is_open(&a->share));
        assert_int_equal(publish(a, 0, 1, &page), -EMFILE);
        need(grants_check_page(a, page, NULL));
        assert_int_equal(client_record_ring(m, pidfd, &cursors, &dm.d), -EMFILE);
        assert_null(cursors);
        k->room = FAKE_KEEP_MAX;
        need(client_record(refused, &who, pidfd, &dm.d));
        need(attach_share(a, &dm.d));
        daemon_end(&dm);
        check_nothing_kept(k);
        fake_keep_deinit(k);
        free(k);
}

/* Rows are used again. */
TEST(test_rows)
{
        struct fake_keep *k = calloc(1, sizeof(*k));
        struct member *first, *second;
        struct daemon dm;
        uint32_t row;

        fake_keep_init(k);
        daemon_start(&dm, &k->keep);
        first = join(dm.a, NULL, false);
        second = join(dm.a, NULL, false);
        row = first->record;
        assert_true(second->record != row);
        member_free(first);
        assert_int_equal(join(dm.b, NULL, false)->record, row);
        daemon_end(&dm);
        fake_keep_deinit(k);
        free(k);
}

/* ---- tokens --------------------------------------------------------------------------------- */

TEST(test_tokens)
{
        struct fake_keep *k = calloc(1, sizeof(*k));
        uint8_t first[CLIENT_TOKEN_BYTES], second[CLIENT_TOKEN_BYTES], third[CLIENT_TOKEN_BYTES];
        struct daemon dm;
        struct member *m;

        fake_keep_init(k);
        daemon_start(&dm, &k->keep);
        m = join(dm.a, NULL, false);
        memcpy(first, m->resume_token, sizeof(first));
        client_token_random(second);
        client_token_random(third);
        assert_true(client_token_is(m, first));
        assert_false(client_token_is(m, (uint8_t[CLIENT_TOKEN_BYTES]){0}));
        client_token_renew(m, first, second);
        assert_true(client_token_is(m, first) && client_token_is(m, second));
        /* The reply was lost: it comes with the first again. */
        client_token_renew(m, first, third);
        assert_true(client_token_is(m, first) && client_token_is(m, third));
        assert_false(client_token_is(m, second));
        client_token_commit(m);
        assert_true(client_token_is(m, third));
        assert_false(client_token_is(m, first));
        daemon_end(&dm);
        fake_keep_deinit(k);
        free(k);
}

int main(void)
{
        facts_init();
        return test_run_all(NULL, NULL);
}
