#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "base/macros.h"
#include "daemon/core/discard.h"
#include "daemon/core/store.h"
#include "gpu/device.h"
#include "tests/unit/test-support.h"

#define BYTES ((uint64_t)4 << 20)
#define PIECE ((uint64_t)512 << 10)

/* A device, and what a client has mapped of each extent. */
struct fixture {
        struct device *device;
        struct store store;
        uint8_t *mapped[DISCARDS_MAX + 1];
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
        assert_int_equal(device_open("host", NULL, &f->device, why), 0);
}

static void close_fixture(struct fixture *f)
{
        for (unsigned i = 0; i < f->n_mapped; i++)
                assert_int_equal(munmap(f->mapped[i], BYTES), 0);
        f->device->ops->close(f->device);
}

/* Full of ones, mapped by somebody else, and discarded. */
static void discard_one(struct fixture *f)
{
        const struct device_ops *ops = f->device->ops;
        struct extent_handle handle;
        struct extent *e;
        uint8_t *at;

        assert_int_equal(ops->extent_create(f->device, BYTES, &e), 0);
        assert_int_equal(ops->extent_export(e, &handle), 0);
        at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, handle.fd, 0);
        assert_true(at != MAP_FAILED);
        fd_close(handle.fd);
        memset(at, 1, BYTES);
        f->mapped[f->n_mapped++] = at;
        discard_extent(&f->store, e);
}

/* So many bytes of it are left. */
static uint64_t n_left(const struct fixture *f, unsigned i)
{
        uint64_t n = 0;

        for (uint64_t at = 0; at < BYTES; at++)
                n += f->mapped[i][at];
        return n;
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
        assert_int_equal(f.store.discards.n, 0);
        assert_false(discard_work(&f.store));
        close_fixture(&f);
}

/* The oldest first; no more than so many wait. */
static void test_many(void **state)
{
        struct fixture f;

        open_fixture(&f);
        discard_one(&f);
        assert_true(discard_work(&f.store));
        while (f.n_mapped <= DISCARDS_MAX)
                discard_one(&f);
        assert_int_equal(f.store.discards.n, DISCARDS_MAX);
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

/* Nobody calls discard_work(). */
static void test_at_once(void **state)
{
        struct fixture f;

        open_fixture(&f);
        f.store.on_work = NULL;
        discard_one(&f);
        assert_int_equal(n_left(&f, 0), 0);
        assert_int_equal(f.store.discards.n, 0);
        close_fixture(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_pieces),
                cmocka_unit_test(test_many),
                cmocka_unit_test(test_at_once),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
