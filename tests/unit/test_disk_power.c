/*
 * Cuts the power at random moments while a disk's store works. Any part of the unflushed data may
 * be on the disk, in any order and torn (disk-sim.h). Then the disk is opened: each page has its
 * written bytes or is a miss; removed pages don't come back; all synced pages are there.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/disk-fixture.h"
#include "tests/unit/disk-sim.h"
#include "tests/unit/test-random.h"

#define N_SPACES 3
#define N_PAGES  4096 /* numbers of pages that are ever written */

/* The test's record of a page, by its number. */
struct known {
        bool was_written; /* begun to be: it may be there */
        bool is_taken;    /* out, or about to be: it needn't be there */
        bool is_out;      /* for good: it mustn't be there */
        bool is_synced;   /* it must be there, unless it is taken */
        uint8_t space;
        uint32_t life;       /* of the space; one more each time it is made */
        uint64_t generation; /* of the space */
        uint32_t length;
        uint64_t at;
        bool is_there; /* and may be read or removed */
};

/* The test's record of a space. */
struct place {
        struct disk_space *space;
        uint32_t life, dead_life;             /* lives up to dead_life are over for good */
        uint64_t generation, dead_generation; /* of this life */
};

struct run {
        struct sim sim;
        struct bench b;
        struct known pages[N_PAGES];
        uint32_t n_pages;
        struct place places[N_SPACES];
        unsigned n_waiting; /* calls without an answer */
        unsigned n_cuts, n_found, n_missed, n_synced;
};

static struct run run;

/* ---- what happens ---------------------------------------------------------------------------- */

/* A call that waits for its answer: what is true then. */
struct call {
        enum { CALL_REMOVE, CALL_RAISE, CALL_DROP, CALL_SYNC } what;
        unsigned space;
        uint32_t life, n_pages; /* SYNC: those that were there: by a copy of the table */
        uint64_t generation;
        uint32_t number;
        bool *there;
};

static void call_ended(int result, void *data)
{
        struct call *c = data;
        struct place *p = &run.places[c->space];

        assert_int_equal(result, 0);
        run.n_waiting--;
        if (c->what == CALL_REMOVE)
                run.pages[c->number].is_out = true;
        else if (c->what == CALL_RAISE && c->life == p->life)
                p->dead_generation = MAX(p->dead_generation, c->generation - 1);
        else if (c->what == CALL_DROP)
                p->dead_life = MAX(p->dead_life, c->life);
        for (uint32_t i = 0; c->what == CALL_SYNC && i < c->n_pages; i++)
                run.pages[i].is_synced = run.pages[i].is_synced || c->there[i];
        free(c->there);
        free(c);
}

static struct call *new_call(unsigned what, unsigned space)
{
        struct call *c = calloc(1, sizeof(*c));

        assert_non_null(c);
        *c = (struct call){.what = what,
                .space = space,
                .life = run.places[space].life,
                .generation = run.places[space].generation};
        run.n_waiting++;
        return c;
}

static void make_space(unsigned i)
{
        struct place *p = &run.places[i];
        uint8_t id[DISK_ID_BYTES] = {(uint8_t)(i + 1)};

        p->life++;
        p->generation = 1 + random_below(3);
        p->dead_generation = 0;
        assert_int_equal(
                disk_space_new(run.b.disk, id, id, p->generation, 4096u << i, &p->space), 0);
}

struct writing {
        struct test_io t;
        uint32_t first;
        unsigned space;
        uint32_t life;
        uint64_t generation;
        bool is_done;
};

static struct writing writings[4];

static void written(struct disk_io *io, void *data)
{
        struct writing *w = data;
        const struct place *p = &run.places[w->space];

        for (uint32_t i = 0; i < io->n; i++) {
                struct known *k = &run.pages[w->first + i];

                if (io->pages[i].result == 0) {
                        assert_true(w->life == p->life && w->generation == p->generation);
                        k->is_there = true;
                        k->at = io->pages[i].at;
                } else {
                        assert_true(io->pages[i].result == -ENOENT ||
                                    io->pages[i].result == -ECANCELED);
                        k->is_taken = true;
                }
        }
        w->t.io = NULL;
        w->is_done = true;
}

static void know(const struct writing *w)
{
        for (uint32_t i = 0; i < w->t.n; i++)
                run.pages[w->first + i] = (struct known){.was_written = true,
                        .space = (uint8_t)w->space,
                        .life = w->life,
                        .generation = w->generation,
                        .length = w->t.io->pages[i].page.length};
}

static struct writing *idle_writing(void)
{
        for (unsigned i = 0; i < ARRAY_SIZE(writings); i++) {
                if (writings[i].is_done) {
                        test_io_deinit(&writings[i].t);
                        writings[i] = (struct writing){0};
                }
                if (!writings[i].t.memory)
                        return &writings[i];
        }
        return NULL;
}

static void gone(const struct disk_page *page, uint64_t at, void *data)
{
        run.pages[page->depth].is_there = false;
        run.pages[page->depth].is_taken = true;
}

static void start_write(unsigned space)
{
        struct place *p = &run.places[space];
        struct writing *w = idle_writing();
        uint32_t slot = 4096u << space, n = 1 + random_below(4);
        int r;

        if (!w || run.n_pages + n > N_PAGES)
                return;
        *w = (struct writing){
                .first = run.n_pages, .space = space, .life = p->life, .generation = p->generation};
        test_io_init(&w->t, n, slot);
        test_io_write_pages(&w->t, w->first, random_below(3) ? slot : 1 + random_below(slot));
        w->t.io->done = written;
        w->t.io->data = w;
        know(w);
        r = disk_write(p->space, w->t.io);
        if (r == 0) {
                run.n_pages += n;
                if (random_below(20) == 0)
                        disk_cancel(run.b.disk, w->t.io);
                return;
        }
        assert_true(r == DISK_FULL || r == DISK_BUSY);
        test_io_deinit(&w->t);
        *w = (struct writing){0};
        if (r == DISK_FULL)
                (void)disk_give_chunk(run.places[random_below(N_SPACES)].space, gone, NULL);
}

/* A page that is there; UINT32_MAX: none was met. */
static uint32_t pick_page(void)
{
        for (unsigned i = 0; i < 50 && run.n_pages > 0; i++) {
                uint32_t n = random_below(run.n_pages);

                if (run.pages[n].is_there)
                        return n;
        }
        return UINT32_MAX;
}

static void remove_page(bool is_durable)
{
        uint32_t n = pick_page();
        struct disk_ref ref;
        struct call *c;

        if (n == UINT32_MAX)
                return;
        c = is_durable ? new_call(CALL_REMOVE, run.pages[n].space) : NULL;
        ref.at = run.pages[n].at;
        page_key(n, ref.key);
        run.pages[n].is_there = false;
        run.pages[n].is_taken = true;
        if (c)
                c->number = n;
        assert_int_equal(disk_remove(run.places[run.pages[n].space].space, &ref, 1,
                                 c ? call_ended : NULL, c),
                0);
}

static void forget_pages(unsigned space)
{
        for (uint32_t i = 0; i < run.n_pages; i++)
                if (run.pages[i].space == space) {
                        run.pages[i].is_there = false;
                        run.pages[i].is_taken = true;
                }
}

static void raise_space(unsigned space)
{
        struct place *p = &run.places[space];
        struct call *c;

        p->generation += 1 + random_below(3);
        c = new_call(CALL_RAISE, space);
        forget_pages(space);
        assert_int_equal(disk_raise(p->space, p->generation, call_ended, c), 0);
}

static void drop_space(unsigned space)
{
        struct call *c = new_call(CALL_DROP, space);

        forget_pages(space);
        assert_int_equal(disk_drop(run.places[space].space, call_ended, c), 0);
        make_space(space);
}

static void sync_all(void)
{
        struct call *c = new_call(CALL_SYNC, 0);

        c->n_pages = run.n_pages;
        c->there = calloc(run.n_pages + 1, sizeof(bool));
        for (uint32_t i = 0; i < run.n_pages; i++)
                c->there[i] = run.pages[i].is_there;
        assert_int_equal(disk_sync(run.b.disk, call_ended, c), 0);
}

static void reap(void)
{
        struct pollfd p = {.fd = disk_fd(run.b.disk), .events = POLLIN};

        while (poll(&p, 1, 0) == 1)
                disk_reap(run.b.disk);
}

static void step(void)
{
        unsigned what = random_below(1000);

        if (what < 250)
                start_write(random_below(N_SPACES));
        else if (what < 300)
                remove_page(true);
        else if (what < 350)
                remove_page(false);
        else if (what < 360)
                raise_space(random_below(N_SPACES));
        else if (what < 366)
                drop_space(random_below(N_SPACES));
        else if (what < 385)
                sync_all();
        else if (what < 390)
                (void)disk_give_chunk(run.places[random_below(N_SPACES)].space, gone, NULL);
        else
                (void)sim_step(&run.sim);
        reap();
        bench_check(&run.b);
}

/* ---- what is there then ---------------------------------------------------------------------- */

struct found {
        struct bench b;
        struct sim sim;
        uint32_t life[N_SPACES]; /* of what is in the space; 0: nothing was found */
};

static void check_page(struct found *f, unsigned space, const struct disk_space_info *info,
        const struct disk_page *page)
{
        const struct known *k = &run.pages[page->depth];
        const struct place *p = &run.places[space];
        struct disk_page expected;

        assert_true(page->depth < run.n_pages && k->was_written);
        expected = page_of(page->depth, k->length);
        assert_true(page_equals(page, &expected));
        assert_int_equal(k->space, space);
        assert_int_equal(k->generation, info->generation);
        assert_false(k->is_out);
        assert_true(k->life > p->dead_life);
        assert_true(k->life < p->life || k->generation > p->dead_generation);
        assert_true(f->life[space] == 0 || f->life[space] == k->life);
        f->life[space] = k->life;
}

/* Reads what is said to be there. `seen`: what really was. */
static void check_space(struct found *f, unsigned space, bool *seen)
{
        uint8_t id[DISK_ID_BYTES] = {(uint8_t)(space + 1)};
        struct disk_space *s = disk_space_find(f->b.disk, id);
        struct disk_space_info info;
        const struct disk_page *page;
        uint64_t iter = 0, at;

        if (!s)
                return;
        bench_load(&f->b, s);
        info = bench_info(s);
        while (disk_page_next(s, &iter, &page, &at)) {
                uint32_t number = page->depth;
                int r;

                check_page(f, space, &info, page);
                assert_false(seen[number]);
                r = bench_read(&f->b, s, number, at); /* compares the bytes */
                assert_true(r == 0 || r == -EBADMSG);
                seen[number] = r == 0;
                run.n_found += r == 0;
                run.n_missed += r != 0;
        }
}

static void check_image(const char *image)
{
        bool *seen = calloc(N_PAGES, sizeof(bool));
        struct found f = {0};

        f.b = (struct bench){.path = test_path(run.b.dir, "cut"),
                .options = run.b.options,
                .bytes = run.b.bytes,
                .start = sim_start,
                .start_data = &f.sim};
        {
                _cleanup_fd_ int fd = open(f.b.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

                assert_int_equal(pwrite(fd, image, run.b.bytes, 0), (ssize_t)run.b.bytes);
        }
        bench_expect(&f.b, 0);
        for (unsigned i = 0; i < N_SPACES; i++)
                check_space(&f, i, seen);
        bench_check(&f.b);
        for (uint32_t i = 0; i < run.n_pages; i++)
                if (run.pages[i].is_synced && !run.pages[i].is_taken) {
                        if (!seen[i])
                                fail_msg("page %u was synced and isn't there", i);
                        run.n_synced++;
                }
        bench_close(&f.b);
        assert_int_equal(unlink(f.b.path), 0);
        free(f.b.path);
        free(seen);
}

static void cut(void)
{
        static const unsigned parts[] = {0, 40, 128, 220, 256};
        char *image = sim_cut(&run.sim, (enum sim_tear)random_below(N_SIM_TEARS),
                parts[random_below(ARRAY_SIZE(parts))]);

        check_image(image);
        free(image);
        run.n_cuts++;
}

/* ---- a life ---------------------------------------------------------------------------------- */

static void start_life(void)
{
        memset(&run, 0, sizeof(run));
        run.sim = (struct sim){.is_manual = true, .knows_power = true};
        bench_init(&run.b, DISK_ENGINE_THREADS);
        run.b.options.depth = 6;
        run.b.bytes = 640 << 10;
        run.b.start = sim_start;
        run.b.start_data = &run.sim;
        bench_expect(&run.b, DISK_NEW);
        for (unsigned i = 0; i < N_SPACES; i++)
                make_space(i);
}

static void end_life(void)
{
        while (run.n_waiting > 0 || run.sim.n_waiting > 0) {
                sim_run(&run.sim);
                reap();
        }
        cut();
        run.sim.is_manual = false;
        bench_close(&run.b);
        for (unsigned i = 0; i < ARRAY_SIZE(writings); i++) {
                if (writings[i].t.memory)
                        test_io_deinit(&writings[i].t);
                writings[i] = (struct writing){0};
        }
        bench_deinit(&run.b);
}

TEST(test_cuts)
{
        unsigned n_lives = getenv("KVL_FULL") ? 40 : 3, n_found = 0, n_missed = 0, n_cuts = 0;
        unsigned n_synced = 0;

        for (unsigned life = 0; life < n_lives; life++) {
                start_life();
                for (unsigned i = 0; i < 1500; i++) {
                        step();
                        if (random_below(12) == 0)
                                cut();
                }
                end_life();
                n_cuts += run.n_cuts;
                n_found += run.n_found;
                n_missed += run.n_missed;
                n_synced += run.n_synced;
        }
        fprintf(stderr, "%u cuts: %u pages found, %u of these synced, %u torn or lost\n", n_cuts,
                n_found, n_synced, n_missed);
        assert_true(n_found > 0 && n_missed > 0 && n_synced > 0);
}

int main(void)
{
        random_start("test_disk_power");
        sim_set_random(random_below);
        disk_tests_in_memory();
        return test_run_all(NULL, NULL);
}
