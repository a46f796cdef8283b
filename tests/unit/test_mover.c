/* The threads that move bytes between tiers: what comes out, in which order, and every way a move
 * ends. Copies are held up by order (gate_*), so that nothing here depends on time. */
#include "daemon/tier/mover.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <xxhash.h>

#include "base/sum.h"
#include "tests/unit/alloc-fail.h"
#include "tests/unit/test-random.h"
#include "tests/unit/test-support.h"

#define PATIENCE_MSEC 30000

/* ---- the gate -----------------------------------------------------------------------------------
 * Each sum_copy() of a mover comes by it; the n-th from closing on stops in front, until it is
 * opened.
 */

static struct {
        pthread_mutex_t lock;
        pthread_cond_t news;
        unsigned countdown; /* 0: open */
        bool is_inside;
        unsigned n_copies;
        bool all_signals_blocked;
        unsigned creates_left; /* threads that can be made; UINT_MAX: any number */
        bool opens_at_join;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .creates_left = UINT_MAX};

static void gate_close(unsigned nth)
{
        pthread_mutex_lock(&gate.lock);
        gate.countdown = nth;
        gate.n_copies = 0;
        pthread_mutex_unlock(&gate.lock);
}

static void gate_wait_inside(void)
{
        pthread_mutex_lock(&gate.lock);
        while (!gate.is_inside)
                pthread_cond_wait(&gate.news, &gate.lock);
        pthread_mutex_unlock(&gate.lock);
}

/* Whom it holds up goes on, the n-th from there on stops. */
static void gate_open_until(unsigned nth)
{
        pthread_mutex_lock(&gate.lock);
        gate.countdown = nth;
        gate.is_inside = false;
        pthread_cond_broadcast(&gate.news);
        pthread_mutex_unlock(&gate.lock);
}

static void gate_open(void)
{
        gate_open_until(0);
}

static unsigned gate_count(void)
{
        unsigned n;

        pthread_mutex_lock(&gate.lock);
        n = gate.n_copies;
        pthread_mutex_unlock(&gate.lock);
        return n;
}

static void note_signals(void)
{
        sigset_t blocked;

        pthread_sigmask(SIG_SETMASK, NULL, &blocked);
        gate.all_signals_blocked = sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGCHLD);
}

void __real_sum_copy(struct sum *s, void *to, const void *from, size_t n);
void __wrap_sum_copy(struct sum *s, void *to, const void *from, size_t n);

void __wrap_sum_copy(struct sum *s, void *to, const void *from, size_t n)
{
        pthread_mutex_lock(&gate.lock);
        gate.n_copies++;
        note_signals();
        if (gate.countdown > 0 && --gate.countdown == 0) {
                gate.is_inside = true;
                pthread_cond_broadcast(&gate.news);
        }
        while (gate.is_inside)
                pthread_cond_wait(&gate.news, &gate.lock);
        pthread_mutex_unlock(&gate.lock);
        __real_sum_copy(s, to, from, n);
}

int __real_pthread_create(
        pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *data), void *data);
int __wrap_pthread_create(
        pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *data), void *data);

int __wrap_pthread_create(
        pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *data), void *data)
{
        if (gate.creates_left == 0)
                return EAGAIN;
        if (gate.creates_left != UINT_MAX)
                gate.creates_left--;
        return __real_pthread_create(ret, attr, fn, data);
}

int __real_pthread_join(pthread_t thread, void **ret);
int __wrap_pthread_join(pthread_t thread, void **ret);

int __wrap_pthread_join(pthread_t thread, void **ret)
{
        if (gate.opens_at_join)
                gate_open();
        return __real_pthread_join(thread, ret);
}

/* ---- moves --------------------------------------------------------------------------------------
 */

#define MAX_PAGES 8

/* What a callback saw. */
struct outcome {
        unsigned n; /* calls */
        int result;
        unsigned order; /* from 1 */
        struct move_page pages[MAX_PAGES];
};

static unsigned n_callbacks;

static void on_done(struct move *move, int result, void *data)
{
        struct outcome *o = data;

        o->n++;
        o->result = result;
        o->order = ++n_callbacks;
        assert_true(move->n_pages <= MAX_PAGES);
        memcpy(o->pages, move->pages, move->n_pages * sizeof(o->pages[0]));
}

static struct mover *start(unsigned n_threads, unsigned max_moves)
{
        struct mover_options options = {.n_threads = n_threads, .max_moves = max_moves};
        struct mover *m = NULL;

        n_callbacks = 0;
        assert_int_equal(mover_open(&options, &m), 0);
        return m;
}

static bool is_readable(struct mover *m, int msec)
{
        struct pollfd p = {.fd = mover_fd(m), .events = POLLIN};
        int n = poll(&p, 1, msec);

        assert_true(n >= 0);
        return n > 0;
}

static void reap_until(struct mover *m, const struct outcome *o)
{
        while (o->n == 0) {
                assert_true(is_readable(m, PATIENCE_MSEC));
                (void)mover_reap(m);
        }
        assert_int_equal(o->n, 1);
}

/* Pages of one plane without codec. */
#define BUFFER_BYTES (4 * MOVER_PIECE_BYTES)
static uint8_t plain[BUFFER_BYTES], stored[BUFFER_BYTES], back[BUFFER_BYTES];

static void fill(uint8_t *bytes, size_t n)
{
        for (size_t i = 0; i < n; i++)
                bytes[i] = (uint8_t)(random_u64() >> 13);
}

static bool is_all(const uint8_t *bytes, size_t n, uint8_t value)
{
        for (size_t i = 0; i < n; i++)
                if (bytes[i] != value)
                        return false;
        return true;
}

static struct move_plane plane_of(const void *from, void *to, size_t bytes)
{
        return (struct move_plane){.from = from, .to = to, .plain_bytes = bytes};
}

static struct move *simple_move(
        enum move_direction direction, const void *from, void *to, size_t bytes, struct outcome *o)
{
        struct move *move = move_new(direction, 1, 1);

        assert_non_null(move);
        *o = (struct outcome){0};
        move->done = on_done;
        move->data = o;
        move->planes[0] = plane_of(from, to, bytes);
        return move;
}

static void submit_simple(struct mover *m, bool is_urgent, size_t bytes, struct outcome *o)
{
        struct move *move = simple_move(MOVE_DOWN, plain, stored, bytes, o);

        move->is_urgent = is_urgent;
        assert_int_equal(mover_submit(m, move), 0);
}

/* ---- what comes out ----------------------------------------------------------------------------
 */

static void test_down_and_up(void **state)
{
        static const size_t sizes[] = {1, 4096, 65536, MOVER_PIECE_BYTES, MOVER_PIECE_BYTES + 1,
                3 * MOVER_PIECE_BYTES - 77};
        struct mover *m = start(0, 0);
        struct outcome o;

        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                struct move *move;

                fill(plain, sizes[i]);
                memset(stored, 0xa5, sizeof(stored));
                memset(back, 0xa5, sizeof(back));
                submit_simple(m, false, sizes[i], &o);
                reap_until(m, &o);
                assert_int_equal(o.result, 0);
                assert_int_equal(o.pages[0].result, 0);
                assert_memory_equal(stored, plain, sizes[i]);
                assert_true(is_all(stored + sizes[i], sizeof(stored) - sizes[i], 0xa5));
                assert_int_equal(o.pages[0].sum, XXH3_64bits(plain, sizes[i]));
                move = simple_move(MOVE_UP, stored, back, sizes[i], &o);
                move->pages[0].sum = XXH3_64bits(plain, sizes[i]);
                assert_int_equal(mover_submit(m, move), 0);
                reap_until(m, &o);
                assert_int_equal(o.result, 0);
                assert_memory_equal(back, plain, sizes[i]);
                assert_true(is_all(back + sizes[i], sizeof(back) - sizes[i], 0xa5));
        }
        assert_true(gate.all_signals_blocked);
        mover_close(m);
}

/* A batch of pages of three planes: as they are, int8 and fp8. */
#define N_PAGES  3
#define N_PLANES 3

static const struct codec_shape shape = {CODEC_F16, false, 2, 24, 40};

struct batch {
        uint16_t plain[N_PAGES][N_PLANES][2 * 24 * 40], back[N_PAGES][N_PLANES][2 * 24 * 40];
        uint8_t stored[N_PAGES][N_PLANES * 2 * 2 * 24 * 40]; /* planes one behind the other */
        size_t stored_bytes;                                 /* of a page */
};

static void batch_fill(struct batch *b)
{
        memset(b, 0, sizeof(*b));
        memset(b->stored, 0xa5, sizeof(b->stored));
        for (unsigned page = 0; page < N_PAGES; page++)
                for (unsigned i = 0; i < N_PLANES; i++)
                        for (unsigned k = 0; k < ARRAY_SIZE(b->plain[0][0]); k++)
                                b->plain[page][i][k] =
                                        (uint16_t)(0x3800 + random_u64() % 0x400); /* 0.5 to 1 */
}

static struct move *batch_move(struct batch *b, enum move_direction direction, struct outcome *o)
{
        struct move *move = move_new(direction, N_PAGES, N_PLANES);

        assert_non_null(move);
        *o = (struct outcome){0};
        move->done = on_done;
        move->data = o;
        for (unsigned page = 0; page < N_PAGES; page++) {
                uint8_t *at = b->stored[page];

                for (unsigned i = 0; i < N_PLANES; i++) {
                        struct move_plane *p = &move->planes[page * N_PLANES + i];

                        *p = direction == MOVE_DOWN
                                     ? plane_of(b->plain[page][i], at, sizeof(b->plain[page][i]))
                                     : plane_of(at, b->back[page][i], sizeof(b->back[page][i]));
                        p->codec = CODEC_NONE + i;
                        p->shape = i > 0 ? &shape : NULL;
                        at += move_stored_bytes(p);
                }
                b->stored_bytes = (size_t)(at - b->stored[page]);
        }
        return move;
}

static void batch_run(struct mover *m, struct move *move, struct outcome *o)
{
        assert_int_equal(mover_submit(m, move), 0);
        reap_until(m, o);
}

static void batch_down(struct mover *m, struct batch *b, struct outcome *o)
{
        batch_fill(b);
        batch_run(m, batch_move(b, MOVE_DOWN, o), o);
        assert_int_equal(o->result, 0);
}

static void check_down(const struct batch *b, const struct outcome *o, unsigned page)
{
        uint8_t expected[sizeof(b->plain[0][0])];
        const uint8_t *at = b->stored[page];

        for (unsigned codec = 0; codec < N_PLANES; codec++) {
                size_t n = codec_encoded_bytes(codec, &shape);

                assert_int_equal(codec_encode(codec, &shape, b->plain[page][codec], expected), 0);
                assert_memory_equal(at, expected, n);
                at += n;
        }
        assert_true(is_all(at, sizeof(b->stored[page]) - b->stored_bytes, 0xa5));
        assert_int_equal(o->pages[page].sum, XXH3_64bits(b->stored[page], b->stored_bytes));
}

static struct move *batch_up(struct batch *b, const struct outcome *down, struct outcome *o)
{
        struct move *move = batch_move(b, MOVE_UP, o);

        memset(b->back, 0xa5, sizeof(b->back));
        for (unsigned page = 0; page < N_PAGES; page++)
                move->pages[page].sum = down->pages[page].sum;
        return move;
}

static void check_up(const struct batch *b, const struct outcome *o, unsigned page)
{
        uint16_t expected[ARRAY_SIZE(b->plain[0][0])];
        const uint8_t *at = b->stored[page];

        assert_int_equal(o->pages[page].result, 0);
        for (unsigned codec = 0; codec < N_PLANES; codec++) {
                assert_int_equal(codec_decode(codec, &shape, at, expected), 0);
                assert_memory_equal(b->back[page][codec], expected, sizeof(expected));
                at += codec_encoded_bytes(codec, &shape);
        }
        assert_memory_equal(b->back[page][0], b->plain[page][0], sizeof(b->plain[page][0]));
}

static void test_batch(void **state)
{
        struct mover *m = start(1, 0);
        struct outcome down, up;
        struct batch b;

        for (unsigned turn = 0; turn < 2; turn++) {
                struct move *move;

                batch_fill(&b);
                move = batch_move(&b, MOVE_DOWN, &down);
                move->reads_back = turn == 1;
                batch_run(m, move, &down);
                assert_int_equal(down.result, 0);
                batch_run(m, batch_up(&b, &down, &up), &up);
                assert_int_equal(up.result, 0);
                for (unsigned page = 0; page < N_PAGES; page++) {
                        check_down(&b, &down, page);
                        check_up(&b, &up, page);
                }
        }
        mover_close(m);
}

/* A bit of each plane's stored bytes, or of the sum. */
static void test_damaged(void **state)
{
        struct mover *m = start(1, 0);
        struct outcome down, up;
        struct batch b;

        batch_down(m, &b, &down);
        for (unsigned i = 0; i < 20; i++) {
                size_t at = random_u64() % b.stored_bytes;
                struct move *move;

                b.stored[1][at] ^= 0x01;
                move = batch_up(&b, &down, &up);
                if (i == 0) {
                        b.stored[1][at] ^= 0x01;
                        move->pages[1].sum ^= 1;
                }
                batch_run(m, move, &up);
                assert_int_equal(up.result, -EBADMSG);
                assert_int_equal(up.pages[1].result, -EBADMSG);
                assert_true(is_all((uint8_t *)b.back[1], sizeof(b.back[1]), 0));
                check_up(&b, &up, 0);
                check_up(&b, &up, 2);
                if (i > 0)
                        b.stored[1][at] ^= 0x01;
        }
        mover_close(m);
}

/* Its sum is right, and no encoder made it. */
static void test_undecodable(void **state)
{
        struct mover *m = start(1, 0);
        struct outcome down, up;
        struct batch b;

        batch_down(m, &b, &down);
        b.stored[2][sizeof(b.plain[0][0]) + 1] = 0x7c; /* a maximum: infinity */
        down.pages[2].sum = XXH3_64bits(b.stored[2], b.stored_bytes);
        batch_run(m, batch_up(&b, &down, &up), &up);
        assert_int_equal(up.result, -EBADMSG);
        assert_int_equal(up.pages[2].result, -EBADMSG);
        assert_true(is_all((uint8_t *)b.back[2], sizeof(b.back[2]), 0));
        check_up(&b, &up, 0);
        check_up(&b, &up, 1);
        mover_close(m);
}

static void test_not_finite(void **state)
{
        struct mover *m = start(1, 0);
        struct outcome o;
        struct move *move;
        struct batch b;

        batch_fill(&b);
        b.plain[0][1][77] = 0x7e00;
        move = batch_move(&b, MOVE_DOWN, &o);
        move->pages[0].sum = 42;
        batch_run(m, move, &o);
        assert_int_equal(o.result, -EDOM);
        assert_int_equal(o.pages[0].result, -EDOM);
        assert_int_equal(o.pages[0].sum, 42);
        check_down(&b, &o, 1);
        check_down(&b, &o, 2);
        mover_close(m);
}

/* Memory that doesn't hold what was written to it: one plane's bytes lie over the other's. */
static void test_read_back(void **state)
{
        struct mover *m = start(1, 0);
        struct outcome o;

        fill(plain, 8192);
        for (unsigned reads_back = 0; reads_back < 2; reads_back++) {
                struct move *move = move_new(MOVE_DOWN, 1, 2);

                o = (struct outcome){0};
                move->done = on_done;
                move->data = &o;
                move->reads_back = reads_back;
                move->planes[0] = plane_of(plain, stored, 4096);
                move->planes[1] = plane_of(plain + 4096, stored, 4096);
                assert_int_equal(mover_submit(m, move), 0);
                reap_until(m, &o);
                assert_int_equal(o.result, reads_back ? -EIO : 0);
                assert_int_equal(o.pages[0].result, o.result);
                if (reads_back)
                        assert_int_equal(o.pages[0].sum, 0);
                else
                        assert_int_equal(o.pages[0].sum, XXH3_64bits(plain, 8192));
        }
        mover_close(m);
}

/* ---- order --------------------------------------------------------------------------------------
 */

static void test_callbacks_run_in_reap_alone(void **state)
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

/* The loop isn't woken for each of many, but for who waits, for some, and for the last. */
static void test_rings(void **state)
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

/* As many bytes, though fewer than half of what may be submitted. */
static void test_rings_for_bytes(void **state)
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

static void test_order(void **state)
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
static void test_hurry_late(void **state)
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

/* ---- cancelling ---------------------------------------------------------------------------------
 */

static void test_cancel_waiting(void **state)
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
static void test_cancel_running(void **state)
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

static void test_cancel_done(void **state)
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

/* ---- limits, callbacks, the end -----------------------------------------------------------------
 */

static void test_full(void **state)
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
        /* As many as were reaped. */
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

static void test_submit_from_callback(void **state)
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

static void test_close(void **state)
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

static void test_no_memory(void **state)
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
static void test_moves_without_memory(void **state)
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

static void test_no_descriptor(void **state)
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

static void test_no_thread(void **state)
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

/* ---- many ---------------------------------------------------------------------------------------
 */

#define N_MOVES 200

static void test_threads(void **state)
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
        const struct CMUnitTest tests[] = {
                TEST(test_down_and_up),
                TEST(test_batch),
                TEST(test_damaged),
                TEST(test_undecodable),
                TEST(test_not_finite),
                TEST(test_read_back),
                TEST(test_callbacks_run_in_reap_alone),
                TEST(test_rings),
                TEST(test_rings_for_bytes),
                TEST(test_order),
                TEST(test_hurry_late),
                TEST(test_cancel_waiting),
                TEST(test_cancel_running),
                TEST(test_cancel_done),
                TEST(test_full),
                TEST(test_submit_from_callback),
                TEST(test_close),
                TEST(test_no_memory),
                TEST(test_moves_without_memory),
                TEST(test_no_descriptor),
                TEST(test_no_thread),
                TEST(test_threads),
        };

        random_start("test_mover");
        return RUN_TESTS(tests);
}
