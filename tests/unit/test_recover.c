/* A daemon's state after a kill at every store to it, and at any moment: what was answered is
 * there, nothing has two owners; and what was damaged is gone, never wrong. */
#include "daemon/core/clients/grants.h"
#include "daemon/core/core.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/life/open.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/records.h"
#include "daemon/core/state/shared.h"
#include "daemon/core/reclaim/recall.h"
#include "tests/unit/at-once.h"
#include "tests/unit/recover-child.h"

#include <signal.h>

#include "tests/unit/core-fault-points.h"
#include "tests/unit/killed-elsewhere.h"
#include "tests/unit/test-random.h"

#define N_RANDOM 40

/* ---- a script that comes by every store ----------------------------------------------------- */

static void announce(struct life *l, uint32_t page, unsigned id)
{
        uint8_t key[KEY_BYTES];
        uint32_t n, other;

        key_of(id, key);
        CHECK(announce_pages(l->a, &page, key, 1, &n, &other, &l->d) == 0);
}

/* Published as announced; withdrawn; and published from another page first. */
static void script_announce(struct life *l)
{
        uint32_t page = life_lease(l, 10), other;

        announce(l, page, 10);
        life_publish_page(l, page, 10, 0, 3);
        page = life_lease(l, 11);
        announce(l, page, 11);
        CHECK(free_pages(l->a, &page, 1, &l->d) == 0);
        page = life_lease(l, 12);
        other = life_lease(l, 12);
        announce(l, page, 12);
        life_publish_page(l, other, 12, 10, 0);
        CHECK(free_pages(l->a, &page, 1, &l->d) == 0);
}

/* A cached page gets its tag when it is published again. */
static void script_tags(struct life *l)
{
        uint8_t key[KEY_BYTES];
        uint32_t page = life_lease(l, 1), sealed, n;
        struct publish p = {
                .pages = &page, .keys = key, .n = 1, .last_tokens = PAGE_TOKENS, .tag = 9};

        key_of(1, key);
        note(l, 1, MAYBE); /* with that tag */
        CHECK(publish_pages(l->a, &p, l->now_nsec, &sealed, &n, &l->d) == KVL_STATUS_DUPLICATE);
        l->o->ids[1].tag = 9;
        note(l, 1, PRESENT);
        CHECK(release_pages(l->a, &sealed, 1, l->now_nsec, &l->d) == 0);
        CHECK(free_pages(l->a, &page, 1, &l->d) == 0);
}

static void work(struct life *l)
{
        recall_poll(&l->store);
        while (recall_work(&l->store, l->now_nsec, SECOND, 1000) == RECALL_MORE)
                ;
}

/* Unpinned texts of two pages in two sets; then one set is emptied into the other. */
static void script_compact(struct life *l)
{
        for (unsigned id = 20; id < 20 + 2 * SET_PAGES; id++)
                life_publish(l, id, id % 2 == 1 ? id - 1 : 0, id);
        for (unsigned id = 20; id < 20 + 2 * SET_PAGES; id++)
                life_release(l, id);
        for (unsigned id = 20; id < 20 + 2 * SET_PAGES; id++)
                if (id % 4 == 2)
                        life_drop(l, id);
        l->now_nsec += 100 * SECOND;
        for (unsigned i = 0; i < 20 && compact_turn(&l->store, l->now_nsec); i++) {
                work(l);
                l->now_nsec += SECOND / 10;
        }
        for (unsigned id = 20; id < 20 + 2 * SET_PAGES; id++)
                CHECK(l->o->ids[id].known == ABSENT || life_find(l->a->ns, id) != PAGE_NONE);
}

static void script_other_ns(struct life *l)
{
        uint64_t n_pages, n_kept;
        struct attach *a = life_open(l, l->m, "other"), *own = l->a;
        struct ns *ns = a->ns;
        uint32_t page;

        l->a = a;
        page = life_lease(l, 1);
        CHECK(free_pages(a, &page, 1, &l->d) == 0);
        l->a = own;
        attach_close(a);
        CHECK(store_purge(&l->store, l->t, ns, true, &n_pages, &n_kept) == 0);
}

/* The next key from *next on whose home is that bucket, as a page's without parent. */
static void publish_at(struct life *l, struct attach *a, uint32_t home, uint32_t *next)
{
        const struct shared *s = &a->ns->shared;
        uint8_t key[KEY_BYTES] = {0};
        uint32_t page, sealed, n;
        struct publish p = {.pages = &page, .keys = key, .n = 1, .last_tokens = PAGE_TOKENS};

        do
                memcpy(key, &(uint32_t){(*next)++}, sizeof(*next));
        while (shm_bucket_index(shared_hash(s, key), s->n_buckets, 0) != home);
        CHECK(lease_pages(a, 1, l->now_nsec, &page, &l->d) == 0);
        CHECK(publish_pages(a, &p, l->now_nsec, &sealed, &n, &l->d) == 0);
        CHECK(release_pages(a, &page, 1, l->now_nsec, &l->d) == 0);
}

/* Two buckets of an index are full, and one key more wants to be there. */
static void script_crowd(struct life *l)
{
        struct attach *a = life_open(l, l->m, "crowd");
        uint64_t n_pages, n_kept, n_unindexed = l->store.counters.unindexed;
        struct ns *ns = a->ns;
        uint32_t next = 1;

        for (unsigned i = 0; i < SHM_BUCKET_SLOTS / 2; i++)
                publish_at(l, a, 2, &next);
        for (unsigned i = 0; i < SHM_BUCKET_SLOTS * 3 / 2 + 1; i++)
                publish_at(l, a, 1, &next);
        CHECK(l->store.counters.unindexed == n_unindexed);
        life_check(l);
        attach_close(a);
        CHECK(store_purge(&l->store, l->t, ns, true, &n_pages, &n_kept) == 0);
}

/* All that is cached becomes stale, and sessions end, by another version of the weights. */
static void script_version(struct life *l)
{
        for (unsigned id = 1; id <= N_IDS; id++)
                if (l->o->ids[id].known != ABSENT)
                        note(l, id, MAYBE);
        l->o->has_session = false;
        member_free(l->m);
        l->version = "v2";
        life_join(l);
        for (unsigned id = 1; id <= N_IDS; id++)
                note(l, id, ABSENT);
        life_publish(l, 1, 0, 0);
        while (store_work(&l->store, 4))
                ;
        life_publish(l, 2, 1, 0);
}

static int open_talk(struct life *l, bool must_exist)
{
        uint32_t handle;
        bool created;
        int r = session_open(l->a,
                &(struct session_request){(const uint8_t *)"talk", 4, must_exist, 0, l->now_nsec},
                &handle, &created, &l->d);

        return r == 0 ? session_close(l->a, handle, false, l->now_nsec, &l->d) : r;
}

/* The first of a namespace: its log begins. */
static void script_session(struct life *l)
{
        CHECK(open_talk(l, false) == 0);
        l->o->has_session = true;
}

static int run_script(struct keep_parent *k, void *data)
{
        struct life l;

        life_begin(&l, k, data);
        store_recover_end(&l.store, &l.o->recovery);
        life_join(&l);
        for (unsigned id = 1; id <= 6; id++)
                life_publish(&l, id, id > 1 ? id - 1 : 0, id == 2 ? 5 : 0);
        script_announce(&l);
        life_drop(&l, 4);
        script_tags(&l);
        script_compact(&l);
        script_other_ns(&l);
        script_crowd(&l);
        script_session(&l);
        CHECK(l.store.counters.compacted_pages > 0);
        CHECK(recall_sets(l.t, l.a->ns, 1, SECOND) == 1);
        script_version(&l);
        life_check(&l);
        return 0;
}

static int run_verify(struct keep_parent *k, void *data)
{
        struct life l;
        uint32_t page;

        life_begin(&l, k, data);
        life_verify(&l);
        /* And it goes on. */
        if (ns_find(l.t, "n"))
                l.version = ns_find(l.t, "n")->layout.version;
        life_join(&l);
        CHECK(!l.o->has_session || open_talk(&l, true) == 0);
        page = life_lease(&l, 9);
        life_check(&l);
        CHECK(free_pages(l.a, &page, 1, &l.d) == 0);
        member_free(l.m);
        life_check(&l);
        return 0;
}

static void verify(struct keep_parent *k, struct oracle *o, const char *after)
{
        int status = in_child(k, run_verify, o);

        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
                fail_msg("after %s: %#x", after, (unsigned)status);
}

/* ---- kills ---------------------------------------------------------------------------------- */

static int run_armed(struct keep_parent *k, void *data)
{
        setenv("KVL_FAULT_PASS", getenv("KVL_TEST_PASS"), 1);
        setenv("KVL_FAULT_POINT", getenv("KVL_TEST_POINT"), 1);
        return run_script(k, data);
}

#define NAME(name) name,
static const char *const promised[] = {KILLED_BY_RECOVER(NAME)};
static const char *const points[] = {FAULT_POINTS(NAME)};
#undef NAME

static bool is_promised(const char *name)
{
        for (size_t i = 0; i < ARRAY_SIZE(promised); i++)
                if (strcmp(name, promised[i]) == 0)
                        return true;
        return false;
}

/* Is it in what this file is about? Sessions and clients have tests of their own. */
static bool is_ours(const char *name)
{
        static const char *const ours[] = {"state-", "records-", "options-", "epoch-", "set-",
                "page-", "line-", "slot-", "index-", "extent-", "publish-", "announce-", "move-",
                "tag-", "feed-"};

        for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
                if (strncmp(name, ours[i], strlen(ours[i])) == 0)
                        return true;
        return false;
}

/* True where the script came by so often. */
static bool kill_at(const char *point, const char *pass)
{
        struct keep_parent k;
        struct oracle *o = oracle_new();
        char after[128];
        int status;

        snprintf(after, sizeof(after), "%s, pass %s", point, pass);
        keep_parent_init(&k);
        setenv("KVL_TEST_POINT", point, 1);
        setenv("KVL_TEST_PASS", pass, 1);
        status = in_child(&k, run_armed, o);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
                assert_exited(status);
        verify(&k, o, after);
        verify(&k, o, after); /* what was repaired stays so */
        keep_parent_deinit(&k);
        munmap(o, sizeof(*o));
        return WIFSIGNALED(status);
}

TEST(test_every_point)
{
        static const char *const passes[] = {"1", "2", "3", "9", "20"};
        unsigned n = 0, n_promised = 0;

        for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
                if (!is_ours(points[i]) && !is_promised(points[i]))
                        continue;
                if (!kill_at(points[i], passes[0]))
                        fail_msg("nothing comes by %s", points[i]);
                for (size_t j = 1; j < ARRAY_SIZE(passes) && kill_at(points[i], passes[j]); j++)
                        ;
                n_promised += is_promised(points[i]);
                n++;
        }
        fprintf(stderr, "%u points\n", n);
        assert_int_equal(n_promised, ARRAY_SIZE(promised));
        assert_true(n >= 45);
}

/* A daemon that is killed while it recovers. */
TEST(test_during_recovery)
{
        static const char *const names[] = {"restart-before-epoch", "restart-before-count",
                "recover-after-sets", "recover-after-index", "recover-after-tree",
                "page-before-turn", "page-after-turn", "line-before-state", "line-after-state",
                "slot-before-remove", "page-before-reparent", "recover-half-fed"};

        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                struct keep_parent k;
                struct oracle *o = oracle_new();

                keep_parent_init(&k);
                setenv("KVL_TEST_POINT", "move-two-pages", 1);
                setenv("KVL_TEST_PASS", "1", 1);
                assert_true(WIFSIGNALED(in_child(&k, run_armed, o)));
                setenv("KVL_FAULT_POINT", names[i], 1);
                setenv("KVL_FAULT_PASS", "1", 1);
                (void)in_child(&k, run_verify, o);
                unsetenv("KVL_FAULT_POINT");
                verify(&k, o, names[i]);
                keep_parent_deinit(&k);
                munmap(o, sizeof(*o));
        }
}

static unsigned random_parent(const struct oracle *o)
{
        unsigned id = 1 + random_below(N_IDS);

        return o->ids[id].known == PRESENT ? id : 0;
}

/* Continues the previous life, of which no page is pinned any more. */
static int run_random(struct keep_parent *k, void *data)
{
        struct life l;

        life_begin(&l, k, data);
        life_verify(&l);
        life_join(&l);
        random_state = l.o->seed;
        for (unsigned id = 1; id <= N_IDS; id++)
                if (l.o->ids[id].known != ABSENT)
                        note(&l, id, life_find(l.a->ns, id) == PAGE_NONE ? ABSENT : CACHED);
        while (l.now_nsec < UINT64_MAX / 2) { /* until it is killed */
                unsigned id = 1 + random_below(N_IDS);

                l.now_nsec += SECOND / 100;
                switch (l.o->ids[id].known) {
                case ABSENT:
                        life_publish(&l, id, random_parent(l.o), random_below(3));
                        break;
                case CACHED:
                        if (life_find(l.a->ns, id) == PAGE_NONE)
                                note(&l, id, ABSENT);
                        else
                                life_drop(&l, id);
                        break;
                default:
                        if (random_below(2))
                                life_drop(&l, id);
                        else
                                life_release(&l, id);
                }
                if (random_below(8) == 0 && compact_turn(&l.store, l.now_nsec))
                        work(&l);
        }
        return 0;
}

TEST(test_any_moment)
{
        struct keep_parent k;
        struct oracle *o = oracle_new();

        random_start("test_any_moment");
        keep_parent_init(&k);
        for (unsigned i = 0; i < N_RANDOM; i++) {
                int status;

                o->seed = random_u64();
                status = keep_parent_run(&k, run_random, o, 1000 + random_below(60000));
                if (!WIFSIGNALED(status))
                        fail_msg("life %u: %#x", i, (unsigned)status);
        }
        assert_true(o->n_done > 1000);
        verify(&k, o, "random kills");
        fprintf(stderr, "%u operations\n", o->n_done);
        keep_parent_deinit(&k);
        munmap(o, sizeof(*o));
}

/* ---- a layout's format ---------------------------------------------------------------------- */

static struct ns_layout format_layout(const char *format)
{
        struct ns_layout l = life_layout("v1");

        l.format_len = (uint32_t)strlen(format);
        memcpy(l.format, format, l.format_len);
        return l;
}

static int run_format(struct keep_parent *k, void *data)
{
        struct ns_layout with = format_layout("flash NHD"), without = format_layout("");
        struct life l;

        life_begin(&l, k, data);
        CHECK(store_recover_end(&l.store, &l.o->recovery) == 0);
        CHECK(member_new(l.t, NULL, true, &l.m, &l.d) == 0);
        CHECK(attach_open(l.m, "with", &with, "", false, &l.a, &l.d) == 0);
        CHECK(attach_open(l.m, "without", &without, "", false, &l.a, &l.d) == 0);
        life_check(&l);
        return 0;
}

static int run_with_format(struct keep_parent *k, void *data)
{
        struct ns_layout with = format_layout("flash NHD"), other = format_layout("flash HND");
        struct life l;
        struct ns *ns;

        life_begin(&l, k, data);
        CHECK(store_recover_end(&l.store, &l.o->recovery) == 0);
        CHECK(l.o->recovery.n_lost == 0);
        ns = ns_find(l.t, "without");
        CHECK(ns && ns->layout.format_len == 0);
        CHECK(member_new(l.t, NULL, true, &l.m, &l.d) == 0);
        CHECK(attach_open(l.m, "with", &other, "", false, &l.a, &l.d) == KVL_STATUS_LAYOUT);
        CHECK(strstr(l.d.text, "another format") && strstr(l.d.text, "format flash NHD"));
        CHECK(attach_open(l.m, "with", &with, "", false, &l.a, &l.d) == 0);
        life_check(&l);
        return 0;
}

static int run_without_with(struct keep_parent *k, void *data)
{
        struct life l;

        life_begin(&l, k, data);
        CHECK(store_recover_end(&l.store, &l.o->recovery) == 0);
        CHECK(l.o->recovery.n_lost == 1 && !ns_find(l.t, "with") && ns_find(l.t, "without"));
        life_check(&l);
        return 0;
}

/* Records of a namespace with a format: found again with it. Where its bytes are damaged, or gone
 * as for a daemon that knows none, that namespace is. */
TEST(test_format)
{
        static const uint8_t zeros[sizeof(struct records_format)];
        struct records_header h;

        for (unsigned i = 0; i < 3; i++) {
                struct oracle *o = oracle_new();
                struct keep_parent k;
                int fd = -1;

                keep_parent_init(&k);
                assert_exited(in_child(&k, run_format, o));
                assert_exited(in_child(&k, run_with_format, o));
                for (unsigned n = 0; n < KEEP_PARENT_MAX; n++)
                        if (k.entries[n].fd >= 0 && k.entries[n].kind == KEEP_RECORDS &&
                                pread(k.entries[n].fd, &h, sizeof(h), 0) == sizeof(h) &&
                                h.format.len > 0)
                                fd = k.entries[n].fd;
                assert_true(fd >= 0);
                if (i > 0) {
                        h.format.bytes[0] ^= 1;
                        assert_true(pwrite(fd, i == 1 ? (const void *)&h.format : zeros,
                                            sizeof(h.format),
                                            offsetof(struct records_header, format)) ==
                                    sizeof(h.format));
                        assert_exited(in_child(&k, run_without_with, o));
                }
                keep_parent_deinit(&k);
                munmap(o, sizeof(*o));
        }
}

/* ---- what is refused ------------------------------------------------------------------------ */

static int run_refused(struct keep_parent *k, void *data)
{
        struct life l;

        life_begin(&l, k, data);
        CHECK(l.is_lost && !l.is_adopted && strstr(l.d.text, "layout version"));
        CHECK(list_is_empty(&l.t->namespaces));
        life_check(&l);
        return 0;
}

/* Nothing of what another version wrote is read, and nothing of it stays kept. */
TEST(test_other_version)
{
        struct keep_parent k;
        struct oracle *o = oracle_new();
        uint32_t version = STATE_LAYOUT_VERSION + 1;
        int fd;

        keep_parent_init(&k);
        assert_exited(in_child(&k, run_script, o));
        fd = keep_parent_find(&k, KEEP_STATE, 0);
        assert_int_equal(
                pwrite(fd, &version, sizeof(version), offsetof(struct state_root, version)),
                sizeof(version));
        assert_exited(in_child(&k, run_refused, o));
        assert_int_equal(keep_parent_count(&k, KEEP_STATE), 1);
        assert_int_equal(keep_parent_count(&k, KEEP_RECORDS), 0);
        assert_int_equal(keep_parent_count(&k, KEEP_EXTENT), 0);
        assert_int_equal(keep_parent_count(&k, KEEP_INDEX), 0);
        keep_parent_deinit(&k);
        munmap(o, sizeof(*o));
}
