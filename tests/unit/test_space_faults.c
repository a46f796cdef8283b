/* The daemon's state over a disk that is slow, fails, or loses its power (disk-sim.h): only
 * requests for its pages wait for it, and pages that are found have their bytes. */
#include <fcntl.h>
#include <unistd.h>

#include "daemon/core/moves/space.h"
#include "daemon/core/requests/invalidate.h"
#include "tests/unit/disk-sim.h"
#include "tests/unit/test-random.h"
#include "tests/unit/tier-fixture.h"

static char path[128];

static int make_path(void **state)
{
        (void)snprintf(path, sizeof(path), "/dev/shm/test_space_faults.%d", getpid());
        return 0;
}

static int remove_path(void **state)
{
        (void)unlink(path);
        return 0;
}

static void begin(struct tiers *w, struct sim *sim)
{
        sim_set_random(random_below);
        tiers_open(w, &(struct tiers_want){.evict = &evict_lru,
                              .n_device = 2,
                              .n_planes = 1,
                              .disk = path,
                              .disk_bytes = 32 * MIB,
                              .start = sim_start,
                              .start_data = sim});
}

/* Does the work of a turn of the loop. */
static void turn(struct tiers *w)
{
        w->now_nsec += NSEC_PER_SEC;
        store_set_now(&w->store, w->now_nsec);
        (void)demote_turn(&w->store, w->now_nsec);
        (void)transfer_work(&w->store);
        for (unsigned i = 0; i < 20; i++) {
                struct pollfd fd = {.fd = mover_fd(w->store.moving.mover), .events = POLLIN};

                (void)disk_reap(w->disk);
                (void)poll(&fd, 1, 0);
                (void)mover_reap(w->store.moving.mover);
                (void)transfer_work(&w->store);
        }
}

/* Asked for again, so that the disk takes it. False: no room. */
static bool cache(struct tiers *w, unsigned key)
{
        if (!tier_cache(w, key, 1))
                return false;
        assert_int_equal(count_hits(w->attach, key, 1), 1);
        turn(w);
        return true;
}

static unsigned count_on_disk(struct tiers *w, unsigned n_keys)
{
        unsigned n = 0;

        for (unsigned key = 0; key < n_keys; key++)
                n += tier_find(w, key) != PAGE_NONE && tier_of(w, key) == TIER_DISK;
        return n;
}

/* ---- slow ------------------------------------------------------------------------------------ */

/* While the disk does nothing, leases find room, and fetches wait. */
TEST_WITH(test_slow, make_path, remove_path, NULL)
{
        struct sim sim = {.error = -EIO};
        struct told told;
        unsigned n_disk, key = 0;
        struct tiers w;

        begin(&w, &sim);
        for (unsigned i = 0; i < 200; i++) {
                assert_true(cache(&w, i));
                tiers_settle(&w);
        }
        n_disk = count_on_disk(&w, 200);
        assert_true(n_disk > 50);
        sim.is_manual = true;
        for (unsigned i = 200; i < 400; i++)
                assert_true(cache(&w, i));
        while (sim.n_waiting == 0) /* a thread copies the pages first */
                turn(&w);
        tiers_check(&w);
        assert_true(w.store.counters.evictions > 0); /* what can't go down goes */
        while (tier_find(&w, key) == PAGE_NONE || tier_of(&w, key) != TIER_DISK)
                key++;
        assert_int_equal(tier_fetch(&w, tier_find(&w, key), PAGE_NONE, &told), 0);
        for (unsigned i = 0; i < 10; i++)
                turn(&w);
        assert_int_equal(told.n, 0);
        sim.is_manual = false;
        sim_run(&sim);
        tiers_settle(&w);
        assert_int_equal(told.n, 1);
        assert_int_equal(told.status, 0);
        assert_true(tier_is_filled(&w, told.page, key));
        tiers_end(&w);
}

/* ---- failing --------------------------------------------------------------------------------- */

/* A page that can't be read now is there later. */
TEST_WITH(test_errors, make_path, remove_path, NULL)
{
        struct sim sim = {.error = -EIO};
        unsigned n_right = 0, n_gone = 0;
        struct tiers w;

        begin(&w, &sim);
        for (unsigned i = 0; i < 300; i++) {
                assert_true(cache(&w, i));
                tiers_settle(&w);
        }
        for (unsigned key = 0; key < 300; key++) {
                struct told told;

                if (tier_find(&w, key) == PAGE_NONE || tier_of(&w, key) != TIER_DISK)
                        continue;
                sim.fails = key % 3 == 0 ? 1u << DISK_OP_READ : 0;
                assert_int_equal(tier_fetch(&w, tier_find(&w, key), PAGE_NONE, &told), 0);
                tiers_settle(&w);
                sim.fails = 0;
                assert_int_equal(told.n, 1);
                n_gone += told.status != 0;
                n_right += told.status == 0;
                if (told.status == 0)
                        assert_true(tier_is_filled(&w, told.page, key));
        }
        assert_true(n_right > 20 && n_gone > 5);
        assert_int_equal(w.store.counters.pages_damaged, 0);
        tiers_end(&w);
}

/* Given up: what lay there is gone, the rest goes on. */
TEST_WITH(test_dies, make_path, remove_path, NULL)
{
        struct sim sim = {.error = -EIO};
        struct tiers w;

        begin(&w, &sim);
        for (unsigned i = 0; i < 200; i++)
                assert_true(cache(&w, i));
        sim.fails = ~0u;
        for (unsigned i = 200; i < 500; i++) {
                assert_true(cache(&w, i));
                tiers_settle(&w); /* however slow the mover is: as many failures as it takes */
        }
        assert_int_equal(disk_state(w.disk), DISK_OFF);
        assert_int_equal(count_on_disk(&w, 500), 0);
        for (unsigned i = 480; i < 500; i++)
                assert_true(tier_is_filled(&w, tier_find(&w, i), i));
        tiers_end(&w);
}

/* ---- without power --------------------------------------------------------------------------- */

#define N_KEYS 300

static void note_kept(int result, void *data)
{
        assert_int_equal(result, 0);
        *(bool *)data = true;
}

static void invalidate(struct tiers *w, unsigned key, bool *is_kept)
{
        uint8_t bytes[KEY_BYTES];
        uint64_t n;

        *is_kept = false;
        make_keys(bytes, key, 1);
        assert_int_equal(invalidate_key(w->attach, bytes, &n, NULL), 0);
        assert_int_equal(space_promise(&w->store, note_kept, is_kept), 0);
}

static void put_image(const char *image, uint64_t bytes)
{
        int fd = open(path, O_WRONLY | O_CLOEXEC);

        assert_int_equal(pwrite(fd, image, bytes, 0), (ssize_t)bytes);
        close(fd);
}

/* Checks the pages that a daemon finds in the file after a cut. */
static unsigned look_after(const bool *is_kept)
{
        struct sim sim = {.error = -EIO};
        unsigned n = 0;
        struct tiers w;

        begin(&w, &sim);
        for (unsigned i = 0; i < 100 && !w.ns->space.is_ready; i++)
                turn(&w);
        tiers_settle(&w);
        for (unsigned key = 0; key < N_KEYS; key++) {
                struct told told;

                if (tier_find(&w, key) == PAGE_NONE)
                        continue;
                assert_false(is_kept[key]); /* that it doesn't come back */
                if (tier_of(&w, key) != TIER_DISK)
                        continue;
                assert_int_equal(tier_fetch(&w, tier_find(&w, key), PAGE_NONE, &told), 0);
                tiers_settle(&w);
                if (told.status != 0)
                        continue;
                assert_true(tier_is_filled(&w, told.page, key));
                n++;
        }
        tiers_end(&w);
        return n;
}

static unsigned cut_once(void)
{
        struct sim sim = {.error = -EIO, .is_manual = true, .knows_power = true};
        static bool is_kept[N_KEYS], is_dropped[N_KEYS], was_kept[N_KEYS];
        unsigned n_steps = 200 + random_below(400), n;
        struct tiers w;
        char *image;

        memset(is_kept, 0, sizeof(is_kept));
        memset(is_dropped, 0, sizeof(is_dropped));
        remove_path(NULL);
        {
                struct sim first = {.error = -EIO};

                begin(&w, &first); /* the file is made before anything is cut */
                tiers_end(&w);
        }
        begin(&w, &sim);
        for (unsigned i = 0; i < n_steps; i++) {
                unsigned key = random_below(N_KEYS);
                uint32_t page = tier_find(&w, key);

                if (page == PAGE_NONE && !is_dropped[key]) {
                        (void)cache(&w, key);
                } else if (page != PAGE_NONE && random_below(24) == 0) {
                        is_dropped[key] = true; /* for good */
                        invalidate(&w, key, &is_kept[key]);
                }
                for (unsigned k = random_below(8); k > 0; k--)
                        (void)sim_step(&sim);
                turn(&w);
        }
        image = sim_cut(&sim, random_below(N_SIM_TEARS), random_below(257));
        memcpy(was_kept, is_kept, sizeof(was_kept)); /* more are from here on */
        n = sim.bytes > 0;
        sim.is_manual = false;
        sim_run(&sim);
        tiers_end(&w);
        put_image(image, sim.bytes);
        free(image);
        n += look_after(was_kept);
        return n;
}

TEST_WITH(test_power, make_path, remove_path, NULL)
{
        unsigned n_found = 0;

        random_start("test_space_faults");
        for (unsigned i = 0; i < 5; i++)
                n_found += cut_once();
        assert_true(n_found > 40);
}

#define DISK_TEST(name) cmocka_unit_test_setup_teardown(name, make_path, remove_path)
