/* The threads that move bytes between tiers: in which order, and every way a move ends. What comes
 * out: test_mover.c. */
#include <stdlib.h>
#include <sys/resource.h>
#include <xxhash.h>

#include "tests/unit/alloc-fail.h"
#include "tests/unit/mover-fixture.h"

/* ---- order ---------------------------------------------------------------------------------- */

TEST(test_callbacks_run_in_reap_alone)
{
        struct mover *m = start(1, 0);
        struct outcome o;

        gate_close(1);
        submit_simple(m, false, 4096, &o);
        gate_wait_inside();
        assert_int_equal(mover_reap(m), 0);
        assert_false(is_readable(m, 0));
        gate_open();
        assert_true(is_readable(m, PATIENCE_MSEC));
        assert_int_equal(o.n, 0);
        assert_int_equal(mover_reap(m), 1);
        assert_int_equal(o.n, 1);
        assert_false(is_readable(m, 0));
        mover_close(m);
        assert_int_equal(o.n, 1);
}

/* Not each of many moves wakes the loop: urgent ones, a batch, and the last one do. */
TEST(test_rings)
{
        struct outcome o[7], urgent;
        struct mover *m = start(1, 8);

        gate_close(1);
        for (unsigned i = 0; i < 7; i++)
                submit_simple(m, false, 4096, &o[i]);
        gate_wait_inside();
        gate_open_until(3);
        gate_wait_inside(); /* in the fourth */
        assert_false(is_readable(m, 0));
        gate_open_until(1);
        gate_wait_inside();
        assert_true(is_readable(m, 0)); /* half of 8 */
        assert_int_equal(mover_reap(m), 4);
        submit_simple(m, true, 4096, &urgent);
        gate_open_until(2);
        gate_wait_inside();
        assert_true(is_readable(m, 0));
        assert_int_equal(mover_reap(m), 2);
        assert_int_equal(urgent.n, 1);
        gate_open();
        reap_until(m, &o[6]);
        mover_close(m);
}

/* Enough bytes wake the loop, though fewer than half of the allowed moves are done. */
TEST(test_rings_for_bytes)
{
        struct mover *m = start(1, 100);
        struct outcome o[6];

        gate_close(1);
        for (unsigned i = 0; i < ARRAY_SIZE(o); i++)
                submit_simple(m, false, sizeof(plain), &o[i]);
        gate_wait_inside();
        gate_open_until(3 * 4); /* pieces: in the first of the fourth move */
        gate_wait_inside();
        assert_false(is_readable(m, 0));
        gate_open_until(4);
        gate_wait_inside();
        assert_true(is_readable(m, 0));
        assert_int_equal(mover_reap(m), 4);
        gate_open();
        reap_until(m, &o[5]);
        mover_close(m);
}

TEST(test_order)
{
        struct mover *m = start(1, 0);
        struct outcome running, other[3], urgent[2];
        struct move *late;

        gate_close(1);
        submit_simple(m, false, 4096, &running);
        gate_wait_inside();
        submit_simple(m, false, 4096, &other[0]);
        late = simple_move(MOVE_DOWN, plain, stored, 4096, &other[1]);
        assert_int_equal(mover_submit(m, late), 0);
        submit_simple(m, false, 4096, &other[2]);
        submit_simple(m, true, 4096, &urgent[0]);
        mover_hurry(m, late);
        submit_simple(m, true, 4096, &urgent[1]);
        mover_hurry(m, late); /* urgent by now: it stays where it is */
        gate_open();
        reap_until(m, &other[2]);
        assert_int_equal(running.order, 1);
        assert_int_equal(urgent[0].order, 2);
        assert_int_equal(other[1].order, 3);
        assert_int_equal(urgent[1].order, 4);
        assert_int_equal(other[0].order, 5);
        assert_int_equal(other[2].order, 6);
        mover_close(m);
}

/* One that runs, or is done, is none the wiser. */
TEST(test_hurry_late)
{
        struct mover *m = start(1, 0);
        struct outcome o;
        struct move *move = simple_move(MOVE_DOWN, plain, stored, 4096, &o);

        gate_close(1);
        assert_int_equal(mover_submit(m, move), 0);
        gate_wait_inside();
        mover_hurry(m, move);
        gate_open();
        assert_true(is_readable(m, PATIENCE_MSEC));
        mover_hurry(m, move);
        reap_until(m, &o);
        assert_int_equal(o.result, 0);
        mover_close(m);
}

/* ---- cancelling ----------------------------------------------------------------------------- */

TEST(test_cancel_waiting)
{
        struct mover *m = start(1, 0);
        struct outcome running, o;
        struct move *move = simple_move(MOVE_DOWN, plain, stored + 4096, 4096, &o);

        fill(plain, 4096);
        memset(stored, 0xa5, 8192);
        gate_close(1);
        submit_simple(m, false, 4096, &running);
        gate_wait_inside();
        assert_int_equal(mover_submit(m, move), 0);
        mover_cancel(m, move);
        mover_cancel(m, move);
        assert_int_equal(o.n, 0);
        assert_true(is_readable(m, 0)); /* while the thread is busy */
        assert_int_equal(mover_reap(m), 1);
        assert_int_equal(o.result, -ECANCELED);
        assert_int_equal(o.pages[0].result, -ECANCELED);
        gate_open();
        reap_until(m, &running);
        assert_int_equal(running.result, 0);
        assert_true(is_all(stored + 4096, 4096, 0xa5));
        mover_close(m);
        assert_int_equal(o.n, 1);
}

/* The first page was moved; of the second the first piece; nothing more is begun. */
TEST(test_cancel_running)
{
        struct mover *m = start(1, 0);
        struct move *move = move_new(MOVE_DOWN, 3, 1);
        struct outcome o = {0};

        fill(plain, sizeof(plain));
        memset(stored, 0xa5, sizeof(stored));
        move->done = on_done;
        move->data = &o;
        move->planes[0] = plane_of(plain, stored, 4096);
        move->planes[1] = plane_of(plain + 4096, stored + 4096, 2 * MOVER_PIECE_BYTES);
        move->planes[2] = plane_of(plain, back, 4096);
        memset(back, 0xa5, 4096);
        gate_close(2);
        assert_int_equal(mover_submit(m, move), 0);
        gate_wait_inside();
        mover_cancel(m, move);
        assert_int_equal(mover_reap(m), 0);
        gate_open();
        reap_until(m, &o);
        assert_int_equal(gate_count(), 2);
        assert_int_equal(o.result, -ECANCELED);
        assert_int_equal(o.pages[0].result, 0);
        assert_int_equal(o.pages[0].sum, XXH3_64bits(plain, 4096));
        assert_int_equal(o.pages[1].result, -ECANCELED);
        assert_int_equal(o.pages[2].result, -ECANCELED);
        assert_true(is_all(stored + 4096 + MOVER_PIECE_BYTES, MOVER_PIECE_BYTES, 0xa5));
        assert_true(is_all(back, 4096, 0xa5));
        mover_close(m);
}

TEST(test_cancel_done)
{
        struct mover *m = start(1, 0);
        struct outcome o;
        struct move *move = simple_move(MOVE_DOWN, plain, stored, 4096, &o);

        assert_int_equal(mover_submit(m, move), 0);
        assert_true(is_readable(m, PATIENCE_MSEC));
        mover_cancel(m, move);
        assert_int_equal(mover_reap(m), 1);
        assert_int_equal(o.result, -ECANCELED);
        assert_int_equal(o.pages[0].result, 0);
        mover_close(m);
}

/* ---- limits, callbacks, the end ------------------------------------------------------------- */

TEST(test_full)
{
        struct mover *m = start(1, 2);
        struct outcome o[4], refused;
        struct move *more[2];

        gate_close(1);
        submit_simple(m, false, 4096, &o[0]);
        gate_wait_inside();
        submit_simple(m, false, 4096, &o[1]);
        more[0] = simple_move(MOVE_DOWN, plain, stored, 4096, &refused);
        assert_int_equal(mover_submit(m, more[0]), MOVER_FULL);
        submit_simple(m, true, 4096, &o[2]);
        submit_simple(m, true, 4096, &o[3]);
        more[1] = simple_move(MOVE_DOWN, plain, stored, 4096, &refused);
        more[1]->is_urgent = true;
        assert_int_equal(mover_submit(m, more[1]), MOVER_FULL);
        gate_open();
        reap_until(m, &o[1]);
        /* One more move is accepted for each that was reaped. */
        assert_int_equal(o[3].n, 1);
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(mover_submit(m, more[i]), 0);
        mover_close(m);
        assert_int_equal(refused.n, 2);
}

struct chain {
        struct mover *mover;
        unsigned left, n_done;
        int submitted; /* the last */
};

/* From each callback the next one is submitted, into the room that its own move left. */
static void on_link(struct move *done, int result, void *data)
{
        struct chain *c = data;
        struct move *move;

        c->n_done++;
        if (c->left == 0)
                return;
        c->left--;
        move = move_new(MOVE_DOWN, 1, 1);
        move->done = on_link;
        move->data = c;
        move->planes[0] = plane_of(plain, stored, 4096);
        c->submitted = mover_submit(c->mover, move);
        if (c->submitted != 0)
                move_free(move);
}

TEST(test_submit_from_callback)
{
        struct chain c = {.mover = start(1, 1), .left = 6};

        on_link(NULL, 0, &c);
        for (unsigned n = 0; n < 6;) {
                assert_true(is_readable(c.mover, PATIENCE_MSEC));
                n += mover_reap(c.mover);
                assert_int_equal(c.submitted, 0);
        }
        assert_int_equal(c.n_done, 7);
        c.left = 2;
        on_link(NULL, 0, &c);
        mover_close(c.mover); /* runs the callback, which may not */
        assert_int_equal(c.n_done, 9);
        assert_int_equal(c.submitted, -ESHUTDOWN);
        assert_int_equal(c.left, 0);
}

TEST(test_close)
{
        struct mover *m = start(1, 0);
        struct outcome running, other, urgent;

        fill(plain, 4096);
        memset(stored, 0, 4096);
        gate_close(1);
        submit_simple(m, false, 4096, &running);
        gate_wait_inside();
        submit_simple(m, false, 4096, &other);
        submit_simple(m, true, 4096, &urgent);
        gate.opens_at_join = true;
        mover_close(m);
        gate.opens_at_join = false;
        assert_int_equal(gate_count(), 1);
        assert_int_equal(running.n, 1);
        assert_int_equal(running.result, 0);
        assert_memory_equal(stored, plain, 4096);
        assert_int_equal(other.n, 1);
        assert_int_equal(other.result, -ECANCELED);
        assert_int_equal(urgent.n, 1);
        assert_int_equal(urgent.result, -ECANCELED);
        mover_close(NULL);
}

TEST(test_no_memory)
{
        alloc_fail_each(n)
        {
                struct mover *m = NULL;
                int r = mover_open(NULL, &m);
                struct move *move = move_new(MOVE_DOWN, 2, 3);

                assert_int_equal(r, m ? 0 : -ENOMEM);
                assert_true(m || alloc_fail_happened());
                assert_true(move || alloc_fail_happened());
                move_free(move);
                mover_close(m);
        }
        assert_null(move_new(MOVE_UP, SIZE_MAX / 8, 9));
        assert_null(move_new(MOVE_UP, 1, SIZE_MAX / 16));
        assert_null(move_new(MOVE_UP, SIZE_MAX / 16, 1));
}

/* Beyond what a submission brings, nothing is allocated: not even where that would fail. */
TEST(test_moves_without_memory)
{
        struct mover *m = start(1, 0);
        struct outcome o[2];
        struct move *move = simple_move(MOVE_UP, plain, stored, 2 * MOVER_PIECE_BYTES, &o[1]);

        alloc_fail_at(2); /* the first is submit_simple()'s move */
        submit_simple(m, false, 4096, &o[0]);
        assert_int_equal(mover_submit(m, move), 0); /* its sum is wrong: wiped */
        reap_until(m, &o[1]);
        assert_int_equal(o[1].result, -EBADMSG);
        mover_close(m);
        assert_false(alloc_fail_end());
        assert_int_equal(o[0].n, 1);
}

TEST(test_no_descriptor)
{
        struct rlimit old, none;
        struct mover *m = NULL;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
        none = (struct rlimit){0, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        assert_int_equal(mover_open(NULL, &m), -EMFILE);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        assert_null(m);
}

TEST(test_no_thread)
{
        const struct mover_options options = {.n_threads = 3};
        struct mover *m = NULL;

        for (unsigned n = 0; n < 3; n++) {
                gate.creates_left = n;
                assert_int_equal(mover_open(&options, &m), -EAGAIN);
                assert_null(m);
        }
        gate.creates_left = UINT_MAX;
}

/* ---- many ----------------------------------------------------------------------------------- */

#define N_MOVES 200

TEST(test_threads)
{
        static uint8_t pages[N_MOVES][4096 + 64];
        static struct outcome o[N_MOVES];
        struct mover *m = start(4, N_MOVES);

        fill(plain, sizeof(plain));
        for (unsigned i = 0; i < N_MOVES; i++) {
                size_t n = 1 + random_u64() % sizeof(pages[i]);
                struct move *move = simple_move(MOVE_DOWN, plain + i * 64, pages[i], n, &o[i]);

                move->is_urgent = random_u64() % 2;
                assert_int_equal(mover_submit(m, move), 0);
                if (random_u64() % 8 == 0)
                        mover_hurry(m, move);
                o[i].pages[1].sum = n; /* kept beside it */
                if (random_u64() % 8 == 0)
                        mover_cancel(m, move);
                if (random_u64() % 16 == 0)
                        (void)mover_reap(m);
        }
        for (unsigned i = 0; i < N_MOVES; i++)
                reap_until(m, &o[i]);
        for (unsigned i = 0; i < N_MOVES; i++)
                if (o[i].pages[0].result == 0) {
                        size_t n = o[i].pages[1].sum;

                        assert_memory_equal(pages[i], plain + i * 64, n);
                        assert_int_equal(o[i].pages[0].sum, XXH3_64bits(pages[i], n));
                }
        mover_close(m);
        assert_int_equal(n_callbacks, N_MOVES);
}

int main(void)
{
        random_start("test_mover_order");
        return test_run_all(NULL, NULL);
}
