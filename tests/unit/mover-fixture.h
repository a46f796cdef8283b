/* Fixture of the tests of a mover. Copies are blocked by order (gate_*), so that no test depends on
 * time. One test program each. */
#ifndef KVL_TESTS_MOVER_FIXTURE_H
#define KVL_TESTS_MOVER_FIXTURE_H

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/sum.h"
#include "daemon/tier/mover.h"
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

static inline void gate_close(unsigned nth)
{
        pthread_mutex_lock(&gate.lock);
        gate.countdown = nth;
        gate.n_copies = 0;
        pthread_mutex_unlock(&gate.lock);
}

static inline void gate_wait_inside(void)
{
        pthread_mutex_lock(&gate.lock);
        while (!gate.is_inside)
                pthread_cond_wait(&gate.news, &gate.lock);
        pthread_mutex_unlock(&gate.lock);
}

/* Whom it holds up goes on, the n-th from there on stops. */
static inline void gate_open_until(unsigned nth)
{
        pthread_mutex_lock(&gate.lock);
        gate.countdown = nth;
        gate.is_inside = false;
        pthread_cond_broadcast(&gate.news);
        pthread_mutex_unlock(&gate.lock);
}

static inline void gate_open(void)
{
        gate_open_until(0);
}

static inline unsigned gate_count(void)
{
        unsigned n;

        pthread_mutex_lock(&gate.lock);
        n = gate.n_copies;
        pthread_mutex_unlock(&gate.lock);
        return n;
}

static inline void note_signals(void)
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

/* ---- moves ---------------------------------------------------------------------------------- */

#define MAX_PAGES 8

/* Result of a callback. */
struct outcome {
        unsigned n; /* calls */
        int result;
        unsigned order; /* from 1 */
        struct move_page pages[MAX_PAGES];
};

static unsigned n_callbacks;

static inline void on_done(struct move *move, int result, void *data)
{
        struct outcome *o = data;

        o->n++;
        o->result = result;
        o->order = ++n_callbacks;
        assert_true(move->n_pages <= MAX_PAGES);
        memcpy(o->pages, move->pages, move->n_pages * sizeof(o->pages[0]));
}

static inline struct mover *start(unsigned n_threads, unsigned max_moves)
{
        struct mover_options options = {.n_threads = n_threads, .max_moves = max_moves};
        struct mover *m = NULL;

        n_callbacks = 0;
        assert_int_equal(mover_open(&options, &m), 0);
        return m;
}

static inline bool is_readable(struct mover *m, int msec)
{
        struct pollfd p = {.fd = mover_fd(m), .events = POLLIN};
        int n = poll(&p, 1, msec);

        assert_true(n >= 0);
        return n > 0;
}

static inline void reap_until(struct mover *m, const struct outcome *o)
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

static inline void fill(uint8_t *bytes, size_t n)
{
        for (size_t i = 0; i < n; i++)
                bytes[i] = (uint8_t)(random_u64() >> 13);
}

static inline bool is_all(const uint8_t *bytes, size_t n, uint8_t value)
{
        for (size_t i = 0; i < n; i++)
                if (bytes[i] != value)
                        return false;
        return true;
}

static inline struct move_plane plane_of(const void *from, void *to, size_t bytes)
{
        return (struct move_plane){.from = from, .to = to, .plain_bytes = bytes};
}

static inline struct move *simple_move(
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

static inline void submit_simple(struct mover *m, bool is_urgent, size_t bytes, struct outcome *o)
{
        struct move *move = simple_move(MOVE_DOWN, plain, stored, bytes, o);

        move->is_urgent = is_urgent;
        assert_int_equal(mover_submit(m, move), 0);
}

#endif
