#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "daemon/core/discard.h"
#include "daemon/core/store.h"
#include "gpu/device.h"
#include "tests/unit/test-support.h"

#define BYTES      ((uint64_t)4 << 20)
#define PIECE      ((uint64_t)512 << 10)
#define MAPPED_MAX (DISCARDS_MAX_EXTENTS + 2)

/* A device, and what a client has mapped of each extent. */
struct fixture {
        struct device *device;
        struct store store;
        uint8_t *mapped[MAPPED_MAX];
        unsigned n_mapped, n_told;
};

static void on_work(void *data)
{
        struct fixture *f = data;

        f->n_told++;
}

static void open_fixture(struct fixture *f)
{
        char why[DEVICE_WHY_BYTES];

        *f = (struct fixture){.store = {.on_work = on_work}};
        f->store.callback_data = f;
        discards_init(&f->store.discards);
        assert_int_equal(device_open("host", NULL, &f->device, why), 0);
}

static void close_fixture(struct fixture *f)
{
        for (unsigned i = 0; i < f->n_mapped; i++)
                assert_int_equal(munmap(f->mapped[i], BYTES), 0);
        f->device->ops->close(f->device);
}

/* Full of ones, and mapped by somebody else. */
static struct extent *new_extent(struct fixture *f)
{
        const struct device_ops *ops = f->device->ops;
        struct extent_handle handle;
        struct extent *e;
        uint8_t *at;

        assert_true(f->n_mapped < MAPPED_MAX);
        assert_int_equal(ops->extent_create(f->device, BYTES, &e), 0);
        assert_int_equal(ops->extent_export(e, &handle), 0);
        at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, handle.fd, 0);
        assert_true(at != MAP_FAILED);
        fd_close(handle.fd);
        memset(at, 1, BYTES);
        f->mapped[f->n_mapped++] = at;
        return e;
}

static void discard_one(struct fixture *f)
{
        struct extent *e = new_extent(f);

        discard_extents(&f->store, &(struct discarded){.extents = &e, .n = 1});
}

/* Two that this process has mapped, and touched. Where. */
static const uint8_t *discard_mapped(struct fixture *f)
{
        const struct device_ops *ops = f->device->ops;
        struct extent *extents[2] = {new_extent(f), new_extent(f)};
        struct discarded what = {.extent_bytes = BYTES, .extents = extents, .n = 2};
        const uint8_t *at;

        assert_int_equal(ops->arena_reserve(f->device, 2 * BYTES, 0, &what.arena), 0);
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(
                        ops->arena_map(what.arena, i * BYTES, extents[i], DEVICE_READ_WRITE), 0);
        at = ops->arena_base(what.arena);
        for (uint64_t i = 0; i < 2 * BYTES; i += 4096)
                assert_int_equal(at[i], 1);
        discard_extents(&f->store, &what);
        memset(extents, 0, sizeof(extents));
        return at;
}

/* So many bytes of it are left. */
static uint64_t n_left(const struct fixture *f, unsigned i)
{
        uint64_t n = 0;

        for (uint64_t at = 0; at < BYTES; at++)
                n += f->mapped[i][at];
        return n;
}

/* The kernel reads a byte there for this process. */
static bool is_mapped(const uint8_t *at)
{
        int fds[2];
        bool is;

        assert_int_equal(pipe(fds), 0);
        is = write(fds[1], at, 1) == 1;
        assert_true(is || errno == EFAULT);
        close(fds[0]);
        close(fds[1]);
        return is;
}

static bool is_waiting(const struct fixture *f)
{
        return !list_is_empty(&f->store.discards.waiting);
}

static void test_pieces(void **state)
{
        struct fixture f;

        open_fixture(&f);
        discard_one(&f);
        assert_int_equal(f.n_told, 1);
        assert_int_equal(n_left(&f, 0), BYTES);
        for (uint64_t left = BYTES - PIECE; left > 0; left -= PIECE) {
                assert_true(discard_work(&f.store));
                assert_int_equal(n_left(&f, 0), left);
        }
        assert_false(discard_work(&f.store));
        assert_int_equal(n_left(&f, 0), 0);
        assert_false(is_waiting(&f));
        assert_int_equal(f.store.discards.n_extents, 0);
        assert_false(discard_work(&f.store));
        close_fixture(&f);
}

/* What is mapped here as well: each extent until its last piece has gone. */
static void test_mapped(void **state)
{
        struct fixture f;
        const uint8_t *at;

        open_fixture(&f);
        at = discard_mapped(&f);
        for (unsigned i = 0; i < 2; i++)
                for (uint64_t left = BYTES; left > 0; left -= PIECE) {
                        assert_int_equal(n_left(&f, i), left);
                        assert_true(is_mapped(at + i * BYTES));
                        assert_true(is_mapped(at + BYTES));
                        assert_int_equal(discard_work(&f.store), i == 0 || left > PIECE);
                }
        assert_int_equal(n_left(&f, 1), 0);
        assert_false(is_mapped(at) || is_mapped(at + BYTES));
        assert_int_equal(f.store.discards.n_extents, 0);
        close_fixture(&f);
}

/* In the middle of the first of two, and of the second. */
static void test_mapped_at_once(void **state)
{
        for (unsigned n_done = 0; n_done < 2 * BYTES / PIECE; n_done += 3) {
                struct fixture f;
                const uint8_t *at;

                open_fixture(&f);
                at = discard_mapped(&f);
                for (unsigned i = 0; i < n_done; i++)
                        assert_true(discard_work(&f.store));
                discard_all(&f.store);
                assert_int_equal(n_left(&f, 0) + n_left(&f, 1), 0);
                assert_false(is_mapped(at) || is_mapped(at + BYTES));
                assert_int_equal(f.store.discards.n_extents, 0);
                close_fixture(&f);
        }
}

/* The oldest first; no more than so many wait. */
static void test_many(void **state)
{
        struct fixture f;

        open_fixture(&f);
        discard_one(&f);
        assert_true(discard_work(&f.store));
        while (f.n_mapped <= DISCARDS_MAX_EXTENTS)
                discard_one(&f);
        assert_int_equal(f.store.discards.n_extents, DISCARDS_MAX_EXTENTS);
        assert_int_equal(n_left(&f, 0), 0);
        assert_int_equal(n_left(&f, 1), BYTES);
        assert_true(discard_work(&f.store));
        assert_int_equal(f.mapped[1][0], 0); /* from its start */
        assert_int_equal(n_left(&f, 1), BYTES - PIECE);
        assert_int_equal(n_left(&f, 2), BYTES);
        discard_all(&f.store);
        for (unsigned i = 0; i < f.n_mapped; i++)
                assert_int_equal(n_left(&f, i), 0);
        close_fixture(&f);
}

/* More than may wait: it does, alone. */
static void test_too_many(void **state)
{
        struct extent *extents[DISCARDS_MAX_EXTENTS + 1];
        struct fixture f;

        open_fixture(&f);
        discard_one(&f);
        for (unsigned i = 0; i < ARRAY_SIZE(extents); i++)
                extents[i] = new_extent(&f);
        discard_extents(&f.store,
                &(struct discarded){.extents = extents, .n = (uint32_t)ARRAY_SIZE(extents)});
        assert_int_equal(n_left(&f, 0), 0);
        assert_int_equal(n_left(&f, 1), BYTES);
        assert_int_equal(f.store.discards.n_extents, ARRAY_SIZE(extents));
        while (discard_work(&f.store))
                ;
        for (unsigned i = 0; i < f.n_mapped; i++)
                assert_int_equal(n_left(&f, i), 0);
        close_fixture(&f);
}

/* Nobody calls discard_work(). */
static void test_at_once(void **state)
{
        struct fixture f;
        const uint8_t *at;

        open_fixture(&f);
        f.store.on_work = NULL;
        discard_one(&f);
        assert_int_equal(n_left(&f, 0), 0);
        assert_false(is_waiting(&f));
        at = discard_mapped(&f);
        assert_int_equal(n_left(&f, 1) + n_left(&f, 2), 0);
        assert_false(is_mapped(at));
        discard_extents(&f.store, &(struct discarded){.n = 0});
        assert_false(is_waiting(&f));
        close_fixture(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_pieces),
                cmocka_unit_test(test_mapped),
                cmocka_unit_test(test_mapped_at_once),
                cmocka_unit_test(test_many),
                cmocka_unit_test(test_too_many),
                cmocka_unit_test(test_at_once),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
