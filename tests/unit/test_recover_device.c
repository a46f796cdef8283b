/* Recovery of a device's memory. The next daemon takes it over, also behind a queue. It rejects a
 * device that may have lost its contents, and a namespace with missing parts. */
#include "daemon/core/life/open.h"
#include "tests/unit/at-once.h"
#include "tests/unit/recover-child.h"

#include <fcntl.h>

#include "base/fd.h"
#include "tests/unit/killed-elsewhere.h"

/* ---- a device behind a queue ---------------------------------------------------------------- */

/* Ten pages of its own. */
static void publish_ten(struct life *l)
{
        for (unsigned i = 0; i < 10; i++) {
                unsigned id = l->o->n_lives * 10 - 9 + i;

                life_publish(l, id, i > 0 ? id - 1 : 0, 0);
        }
        life_check(l);
}

static int run_on(struct keep_parent *k, struct oracle *o, enum life_device how)
{
        struct life l;

        life_begin_on(&l, k, o, how);
        life_verify(&l);
        life_join(&l);
        publish_ten(&l);
        return 0;
}

static int run_on_queue(struct keep_parent *k, void *data)
{
        return run_on(k, data, LIFE_QUEUE);
}

/* Each life finds what all before it published, with its bytes, and goes on. */
TEST(test_behind_queue)
{
        struct keep_parent k;
        struct oracle *o = oracle_new();

        keep_parent_init(&k);
        for (unsigned i = 0; i < 4; i++) {
                assert_exited(in_child(&k, run_on_queue, o));
                assert_int_equal(o->n_found, i * 10);
        }
        assert_int_equal(keep_parent_count(&k, KEEP_EXTENT), 5);
        assert_int_equal(keep_parent_count(&k, KEEP_CANARY), 0);
        keep_parent_deinit(&k);
        munmap(o, sizeof(*o));
}

static int run_lost(struct keep_parent *k, void *data)
{
        struct life l;

        life_begin_on(&l, k, data, LIFE_QUEUE);
        CHECK(l.o->recovery.n_lost == 1 && !ns_find(l.t, "n"));
        store_recover_end(&l.store, &l.o->recovery);
        life_check(&l);
        CHECK(queue_close(l.queue));
        return 0;
}

static void take_away(struct keep_parent *k, enum keep_kind kind, uint32_t number)
{
        for (unsigned i = 0; i < KEEP_PARENT_MAX; i++)
                if (k->entries[i].fd >= 0 && k->entries[i].kind == kind &&
                        k->entries[i].number == number)
                        k->entries[i].fd = fd_close(k->entries[i].fd);
}

/* A namespace of which an extent wasn't kept: clients find nothing in it any more, and what they
 * are reading is there as long as they have it mapped. */
TEST(test_lost)
{
        struct keep_parent k;
        struct oracle *o = oracle_new();
        struct shm_index *index;
        uint64_t begin[2];
        int fd;

        keep_parent_init(&k);
        assert_exited(in_child(&k, run_on_queue, o));
        fd = fcntl(keep_parent_find(&k, KEEP_EXTENT, 1), F_DUPFD_CLOEXEC, 0);
        index = mmap(NULL, SHM_HEADER_BYTES, PROT_READ, MAP_SHARED,
                keep_parent_find(&k, KEEP_INDEX_READER, 1), 0);
        assert_true(fd >= 0 && index != MAP_FAILED);
        assert_true(index->epoch < 100 && index->version_epoch < 100);
        assert_int_equal(pread(fd, &begin[0], sizeof(begin[0]), 0), sizeof(begin[0]));
        assert_true(begin[0] != 0);
        take_away(&k, KEEP_EXTENT, 2);
        assert_exited(in_child(&k, run_lost, o));
        assert_int_equal(keep_parent_count(&k, KEEP_EXTENT), 0);
        assert_int_equal(keep_parent_count(&k, KEEP_INDEX), 0);
        assert_int_equal(pread(fd, &begin[1], sizeof(begin[1]), 0), sizeof(begin[1]));
        assert_true(begin[1] == begin[0]);
        assert_true(index->epoch == UINT64_MAX && index->version_epoch == UINT64_MAX);
        munmap(index, SHM_HEADER_BYTES);
        fd_close(fd);
        keep_parent_deinit(&k);
        munmap(o, sizeof(*o));
}

/* ---- a device that can lose what it held ---------------------------------------------------- */

static int run_on_gpu(struct keep_parent *k, void *data)
{
        return run_on(k, data, LIFE_GPU);
}

/* A namespace without memory, and nothing else. */
static int run_idle(struct keep_parent *k, void *data)
{
        struct life l;

        life_begin_on(&l, k, data, LIFE_GPU);
        CHECK(l.o->recovery.n_lost == 0);
        life_verify(&l);
        CHECK(member_new(l.t, NULL, true, &l.m, &l.d) == 0);
        (void)life_open(&l, l.m, "idle");
        return 0;
}

/* Nothing of the device is believed: what had memory there is gone, what hadn't isn't, and it goes
 * on. */
static int run_doubted(struct keep_parent *k, void *data)
{
        struct life l;

        life_begin_on(&l, k, data, LIFE_GPU);
        CHECK(l.o->recovery.n_lost == 1 && l.o->recovery.n_namespaces == 1);
        CHECK(!ns_find(l.t, "n") && ns_find(l.t, "idle"));
        CHECK(l.store.memory.n_extents == 0 && l.t->account.charged_bytes == 0);
        for (unsigned id = 1; id <= N_IDS; id++)
                note(&l, id, ABSENT);
        life_verify(&l);
        life_join(&l);
        publish_ten(&l);
        return 0;
}

static int canary_of(struct keep_parent *k)
{
        int fd = keep_parent_find(k, KEEP_CANARY, 1);

        assert_true(fd >= 0);
        return fd;
}

static void clear_canary(struct keep_parent *k)
{
        assert_int_equal(fd_punch_hole(canary_of(k), 0, 8), 0);
}

static void lose_canary(struct keep_parent *k)
{
        take_away(k, KEEP_CANARY, 1);
}

/* Replaces the canary by a file that can't be imported. */
static void swap_canary(struct keep_parent *k)
{
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

        assert_true(fd >= 0 && dup3(fd, canary_of(k), O_CLOEXEC) >= 0);
        fd_close(fd);
}

TEST(test_canary)
{
        static void (*const harms[])(struct keep_parent *) = {
                clear_canary, lose_canary, swap_canary};

        for (size_t i = 0; i < ARRAY_SIZE(harms); i++) {
                struct keep_parent k;
                struct oracle *o = oracle_new();

                keep_parent_init(&k);
                assert_exited(in_child(&k, run_idle, o));
                assert_int_equal(keep_parent_count(&k, KEEP_CANARY), 0); /* not before it is used */
                o->n_lives = 0;
                assert_exited(in_child(&k, run_on_gpu, o));
                assert_exited(in_child(&k, run_on_gpu, o));
                assert_int_equal(o->n_found, 10);
                assert_int_equal(keep_parent_count(&k, KEEP_CANARY), 1);
                harms[i](&k);
                assert_exited(in_child(&k, run_doubted, o));
                assert_int_equal(keep_parent_count(&k, KEEP_CANARY), 1);
                assert_int_equal(keep_parent_count(&k, KEEP_EXTENT), 2);
                assert_exited(in_child(&k, run_on_gpu, o));
                assert_int_equal(o->n_found, 10);
                keep_parent_deinit(&k);
                munmap(o, sizeof(*o));
        }
}

/* Killed before and after a value is in the root, of a device that is new, and of one that lost its
 * memory. */
TEST(test_canary_killed)
{
#define NAME(name) name,
        static const char *const names[] = {KILLED_BY_CANARY(NAME)};
#undef NAME

        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                struct keep_parent k;
                struct oracle *o = oracle_new();

                keep_parent_init(&k);
                setenv("KVL_FAULT_PASS", "1", 1);
                setenv("KVL_FAULT_POINT", names[i], 1);
                assert_true(WIFSIGNALED(in_child(&k, run_on_gpu, o)));
                unsetenv("KVL_FAULT_POINT");
                assert_exited(in_child(&k, run_idle, o));
                o->n_lives = 0;
                assert_exited(in_child(&k, run_on_gpu, o));
                clear_canary(&k);
                setenv("KVL_FAULT_POINT", names[i], 1);
                assert_true(WIFSIGNALED(in_child(&k, run_doubted, o)));
                unsetenv("KVL_FAULT_POINT");
                assert_exited(in_child(&k, run_doubted, o));
                assert_exited(in_child(&k, run_on_gpu, o));
                assert_int_equal(o->n_found, 10);
                keep_parent_deinit(&k);
                munmap(o, sizeof(*o));
        }
}

/* ---- extents that can't be had -------------------------------------------------------------- */

/* In the first set of the first namespace. */
#define SECOND_PLANE 2

static bool is_on_queue;

static int run_planes(struct keep_parent *k, void *data)
{
        struct lease_request rq = {.n = 1, .min = 1, .seq = 7};
        struct ns_layout layout = life_layout("v1");
        struct lease_result ret;
        struct life l;
        uint32_t page;
        int r;

        life_begin_on(&l, k, data, is_on_queue ? LIFE_QUEUE : LIFE_INLINE);
        CHECK(store_recover_end(&l.store, &l.o->recovery) == 0);
        CHECK(member_new(l.t, NULL, true, &l.m, &l.d) == 0);
        layout.n_planes = 2;
        CHECK(attach_open(l.m, "planes", &layout, "", false, &l.a, &l.d) == 0);
        while ((r = lease_ask(l.a, &rq, l.now_nsec, &page, &ret, &l.d)) == -EINPROGRESS)
                while (pool_reap(l.a->ns->device.pool) == 0)
                        usleep(100);
        CHECK(r == 0);
        return 0;
}

static int run_without_plane(struct keep_parent *k, void *data)
{
        struct life l;

        life_begin_on(&l, k, data, is_on_queue ? LIFE_QUEUE : LIFE_INLINE);
        CHECK(l.o->recovery.n_lost == 1 && list_is_empty(&l.t->namespaces));
        CHECK(store_recover_end(&l.store, &l.o->recovery) == 0);
        CHECK(!l.queue || queue_close(l.queue)); /* what it had to drop is dropped */
        return 0;
}

/* One plane of a set is gone, or isn't what it was. */
static void lose_plane(bool is_gone)
{
        struct oracle *o = oracle_new();
        struct keep_parent k;

        keep_parent_init(&k);
        assert_exited(in_child(&k, run_planes, o));
        assert_int_equal(keep_parent_count(&k, KEEP_EXTENT), 2);
        for (unsigned i = 0; i < KEEP_PARENT_MAX; i++) {
                struct keep_entry *e = &k.entries[i];

                if (e->fd < 0 || e->kind != KEEP_EXTENT || e->number != SECOND_PLANE)
                        continue;
                fd_close(e->fd);
                e->fd = is_gone ? -1 : memfd_create_sized("other", 4096);
        }
        assert_exited(in_child(&k, run_without_plane, o));
        assert_int_equal(keep_parent_count(&k, KEEP_EXTENT), 0);
        assert_int_equal(keep_parent_count(&k, KEEP_RECORDS), 0);
        keep_parent_deinit(&k);
        munmap(o, sizeof(*o));
}

/* Extents of a lost namespace that were taken over are released. */
TEST(test_lost_extents)
{
        for (unsigned i = 0; i < 4; i++) {
                is_on_queue = i & 1;
                lose_plane(i & 2);
        }
        is_on_queue = false;
}
