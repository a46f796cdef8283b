#include "daemon/tier/mover.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fault-point.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/sum.h"
#include "base/thread.h"

#define DEFAULT_MAX_MOVES 64

/* Plain bytes moved before the loop is woken while more wait: some 250 us. A wake per move costs 12
 * us of a virtual machine's processor, which is a copy of 200 KiB (kvlease-bench tiers). */
#define RING_BYTES ((uint64_t)4 << 20)

/* Priority below the loop's, which must not wait for a shared processor: p99 of leases over a
 * socket halved (kvlease-bench tiers leases). On an idle processor moves are no slower. Not
 * tuned. */
#define NICER_BY 5

enum lane { LANE_URGENT, LANE_OTHER, N_LANES };

enum task_state { TASK_WAITING, TASK_RUNNING, TASK_DONE };

/* A move and the mover's data about it. */
struct task {
        struct list_link link; /* mover.waiting[] or .done; none while it runs */
        enum task_state state;
        enum lane lane; /* lane in which it counts */
        atomic_bool is_cancelled;
        uint64_t plain_bytes; /* of all its pages */
        struct move move;
        struct move_page pages[]; /* behind them the planes */
};

struct mover {
        pthread_mutex_t lock; /* of what follows; never held while bytes move */
        pthread_cond_t wake;  /* threads: a move, or the end */
        struct list_link waiting[N_LANES];
        struct list_link done;
        unsigned n_done; /* of moves done since the last wakeup */
        uint64_t unrung_bytes;
        bool is_rung, stopping;

        /* The loop's, or constant. */
        unsigned n_moves[N_LANES], max_moves;
        int event_fd; /* readable soon after is_rung is set */
        unsigned n_threads;
        pthread_t threads[];
};

static struct task *task_of(struct move *move)
{
        return container_of(move, struct task, move);
}

/* ---- moves ----------------------------------------------------------------------------------- */

struct move *move_new(enum move_direction direction, size_t n_pages, size_t n_planes)
{
        size_t all_planes, planes_bytes, pages_bytes, bytes;
        struct task *t;

        assert(n_pages > 0 && n_planes > 0);

        if (__builtin_mul_overflow(n_pages, n_planes, &all_planes) ||
                __builtin_mul_overflow(all_planes, sizeof(struct move_plane), &planes_bytes) ||
                __builtin_mul_overflow(n_pages, sizeof(struct move_page), &pages_bytes) ||
                __builtin_add_overflow(sizeof(*t) + pages_bytes, planes_bytes, &bytes))
                return NULL;
        t = calloc(1, bytes);
        if (!t)
                return NULL;
        list_init(&t->link);
        t->move = (struct move){.direction = direction,
                .n_pages = n_pages,
                .n_planes = n_planes,
                .pages = t->pages,
                .planes = (void *)(t->pages + n_pages)};
        return &t->move;
}

void move_free(struct move *move)
{
        if (move)
                free(task_of(move));
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* A unit that is moved without a check: MOVER_PIECE_BYTES of a plane without a codec, else a
 * matrix, which can be encoded by itself. */
struct piece {
        enum codec codec;
        struct codec_shape shape;
        uint8_t *plain, *stored; /* plain: NULL where the bytes are only summed up */
        size_t plain_bytes, stored_bytes;
        struct codec_error *error; /* of move_plane, for its first piece */
};

/* Decodes an encoded matrix again and adds its error. Without memory nothing is measured. */
static void measure_error(const struct piece *x)
{
        void *decoded = x->plain_bytes <= MOVER_ERROR_BYTES ? malloc(x->plain_bytes) : NULL;

        if (decoded && codec_decode(x->codec, &x->shape, x->stored, decoded) == 0)
                codec_error_add(x->error, &x->shape, x->plain, decoded);
        free(decoded);
}

/* 0 or -errno. */
typedef int (*piece_fn)(const struct piece *x, struct sum *sum);

static int piece_down(const struct piece *x, struct sum *sum)
{
        int r;

        if (x->codec == CODEC_NONE) {
                sum_copy(sum, x->stored, x->plain, x->plain_bytes);
                return 0;
        }
        r = codec_encode(x->codec, &x->shape, x->plain, x->stored);
        if (r == 0)
                sum_add(sum, x->stored, x->stored_bytes);
        if (r == 0 && x->error)
                measure_error(x);
        return r;
}

static int piece_up(const struct piece *x, struct sum *sum)
{
        if (x->codec == CODEC_NONE && x->plain) {
                sum_copy(sum, x->plain, x->stored, x->plain_bytes);
                return 0;
        }
        sum_add(sum, x->stored, x->stored_bytes);
        return x->plain ? codec_decode(x->codec, &x->shape, x->stored, x->plain) : 0;
}

static int piece_read_back(const struct piece *x, struct sum *sum)
{
        sum_add(sum, x->stored, x->stored_bytes);
        return 0;
}

/* The first piece of a plane; all but the last have its length. */
static struct piece first_piece(enum move_direction direction, const struct move_plane *plane)
{
        uint8_t *from = (uint8_t *)(uintptr_t)plane->from, *to = plane->to;
        struct piece x = {.codec = plane->codec,
                .plain = direction == MOVE_DOWN ? from : to,
                .stored = direction == MOVE_DOWN ? to : from,
                .plain_bytes = MIN(plane->plain_bytes, MOVER_PIECE_BYTES)};

        x.stored_bytes = x.plain_bytes;
        if (x.codec != CODEC_NONE) {
                x.shape = *plane->shape;
                x.shape.n_matrices = 1;
                x.plain_bytes = codec_plain_bytes(&x.shape);
                x.stored_bytes = codec_encoded_bytes(x.codec, &x.shape);
                x.error = plane->error;
        }
        return x;
}

/* own: the plane's own sum, computed as well; or NULL. */
static int each_piece_of(struct task *t, const struct move_plane *plane, struct sum *sum,
        struct sum *own, piece_fn fn)
{
        struct piece x = first_piece(t->move.direction, plane);
        int r = 0;

        for (size_t left = plane->plain_bytes; left > 0 && r == 0; left -= x.plain_bytes) {
                if (atomic_load_explicit(&t->is_cancelled, memory_order_relaxed))
                        return -ECANCELED;
                if (left < x.plain_bytes) /* without codec alone */
                        x.plain_bytes = x.stored_bytes = left;
                FAULT_POINT("mover-before-piece");
                r = fn(&x, sum);
                if (own)
                        sum_add(own, x.stored, x.stored_bytes);
                FAULT_POINT("mover-after-piece");
                if (x.plain)
                        x.plain += x.plain_bytes;
                x.stored += x.stored_bytes;
                x.error = NULL;
        }
        return r;
}

static int each_piece(struct task *t, const struct move_plane *planes, struct sum *sum, piece_fn fn)
{
        int r = 0;

        sum_begin(sum);
        for (size_t i = 0; i < t->move.n_planes && r == 0; i++)
                r = each_piece_of(t, &planes[i], sum, NULL, fn);
        return r;
}

static int page_down(struct task *t, struct move_page *page, const struct move_plane *planes)
{
        struct sum sum;
        uint64_t found;
        int r = each_piece(t, planes, &sum, piece_down);

        if (r < 0)
                return r;
        found = sum_end(&sum);
        FAULT_POINT("mover-before-read-back");
        if (t->move.reads_back)
                r = each_piece(t, planes, &sum, piece_read_back);
        if (r == 0 && sum_end(&sum) != found)
                r = -EIO;
        if (r == 0)
                page->sum = found;
        return r;
}

/* Zeroes the planes, so that they aren't taken for a page. */
static void wipe_pages(const struct move *move, const struct move_plane *planes)
{
        FAULT_POINT("mover-before-wipe");
        for (size_t i = 0; i < move->n_planes; i++)
                if (planes[i].to)
                        memset(planes[i].to, 0, planes[i].plain_bytes);
        FAULT_POINT("mover-after-wipe");
}

/* MOVE_SUM_BOTH: as each_piece(), and sets the planes' sums. */
static int each_piece_up_both(struct task *t, struct move_plane *planes, struct sum *sum)
{
        int r = 0;

        sum_begin(sum);
        for (size_t i = 0; i < t->move.n_planes && r == 0; i++) {
                struct sum own;

                sum_begin(&own);
                r = each_piece_of(t, &planes[i], sum, &own, piece_up);
                planes[i].sum = sum_end(&own);
        }
        return r;
}

/* MOVE_SUM_PLANES. 0; -EBADMSG; -ECANCELED. */
static int each_plane_up(struct task *t, const struct move_plane *planes)
{
        int r = 0;

        for (size_t i = 0; i < t->move.n_planes && r == 0; i++) {
                struct sum sum;

                sum_begin(&sum);
                r = each_piece_of(t, &planes[i], &sum, NULL, piece_up);
                if (r == 0 && sum_end(&sum) != planes[i].sum)
                        r = -EBADMSG;
        }
        return r;
}

static int page_up(struct task *t, const struct move_page *page, struct move_plane *planes)
{
        enum move_sums sums = t->move.sums;
        struct sum sum;
        int r;

        if (sums == MOVE_SUM_PLANES)
                r = each_plane_up(t, planes);
        else if (sums == MOVE_SUM_BOTH)
                r = each_piece_up_both(t, planes, &sum);
        else
                r = each_piece(t, planes, &sum, piece_up);
        if (r == 0 && (sums == MOVE_SUM_PAGE || sums == MOVE_SUM_BOTH) &&
                sum_end(&sum) != page->sum)
                r = -EBADMSG;
        if (r == -EBADMSG)
                wipe_pages(&t->move, planes);
        return r;
}

/* In a thread, without the lock. */
static void run_move(struct task *t)
{
        struct move *move = &t->move;

        for (size_t i = 0; i < move->n_pages; i++) {
                struct move_plane *planes = move->planes + i * move->n_planes;
                struct move_page *page = &move->pages[i];

                page->result = move->direction == MOVE_DOWN ? page_down(t, page, planes)
                                                            : page_up(t, page, planes);
        }
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Locked. NULL: none. */
static struct task *next_task(struct mover *m)
{
        struct task *t = list_first(&m->waiting[LANE_URGENT], struct task, link);

        return t ? t : list_first(&m->waiting[LANE_OTHER], struct task, link);
}

/* Not locked: the woken thread wants the lock. */
static void ring_owner(struct mover *m)
{
        const uint64_t one = 1;

        if (write(m->event_fd, &one, sizeof(one)) < 0)
                assert(errno == EAGAIN); /* readable as it is */
}

/* Locked. Returns true if ring_owner() must be called: for urgent moves, when the threads run out
 * of work, and after many moves. */
static bool set_done(struct mover *m, struct task *t)
{
        bool was_rung = m->is_rung;

        t->state = TASK_DONE;
        list_append(&m->done, &t->link);
        m->n_done++;
        m->unrung_bytes += t->plain_bytes;
        m->is_rung |= t->move.is_urgent || t->is_cancelled || !next_task(m) ||
                      m->unrung_bytes >= RING_BYTES || m->n_done >= m->max_moves / 2;
        return m->is_rung && !was_rung;
}

/* In a thread, without the lock. */
static void finish_move(struct mover *m, struct task *t)
{
        bool is_to_ring;

        FAULT_POINT("mover-before-done");
        pthread_mutex_lock(&m->lock);
        is_to_ring = set_done(m, t);
        pthread_mutex_unlock(&m->lock);
        FAULT_POINT("mover-after-done");
        if (is_to_ring)
                ring_owner(m);
}

static void *thread_main(void *data)
{
        struct mover *m = data;
        struct task *t;

        /* On Linux, of this thread alone. */
        (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICER_BY);
        pthread_mutex_lock(&m->lock);
        for (;;) {
                while (!(t = next_task(m)) && !m->stopping)
                        pthread_cond_wait(&m->wake, &m->lock);
                if (!t)
                        break;
                list_remove(&t->link);
                t->state = TASK_RUNNING;
                pthread_mutex_unlock(&m->lock);
                run_move(t);
                finish_move(m, t);
                pthread_mutex_lock(&m->lock);
        }
        pthread_mutex_unlock(&m->lock);
        return NULL;
}

/* 0 or -EAGAIN. */
static int start_threads(struct mover *m, unsigned n)
{
        int r = 0;

        while (m->n_threads < n && r == 0) {
                r = thread_start(&m->threads[m->n_threads], NULL, thread_main, m);
                if (r == 0)
                        m->n_threads++;
        }
        return r;
}

static void join_threads(struct mover *m)
{
        pthread_mutex_lock(&m->lock);
        m->stopping = true;
        pthread_cond_broadcast(&m->wake);
        pthread_mutex_unlock(&m->lock);
        while (m->n_threads > 0)
                pthread_join(m->threads[--m->n_threads], NULL);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void mover_free(struct mover *m)
{
        fd_close(m->event_fd);
        pthread_mutex_destroy(&m->lock);
        pthread_cond_destroy(&m->wake);
        free(m);
}

int mover_open(const struct mover_options *options, struct mover **ret_mover)
{
        unsigned n_threads = options && options->n_threads ? options->n_threads : 1;
        struct mover *m = calloc(1, sizeof(*m) + n_threads * sizeof(m->threads[0]));
        int r;

        if (!m)
                return -ENOMEM;
        thread_lock_init(&m->lock); /* sleeps took most of the time of moves of 64 KiB */
        pthread_cond_init(&m->wake, NULL);
        for (unsigned i = 0; i < N_LANES; i++)
                list_init(&m->waiting[i]);
        list_init(&m->done);
        m->max_moves = options && options->max_moves ? options->max_moves : DEFAULT_MAX_MOVES;
        m->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        r = m->event_fd < 0 ? -errno : start_threads(m, n_threads);
        if (r < 0) {
                join_threads(m);
                mover_free(m);
                return r;
        }
        *ret_mover = m;
        return 0;
}

int mover_fd(const struct mover *m)
{
        return m->event_fd;
}

static size_t matrix_bytes(const struct codec_shape *shape)
{
        struct codec_shape one = *shape;

        one.n_matrices = 1;
        return codec_plain_bytes(&one);
}

/* And counts its plain bytes. */
static uint64_t check_move(const struct move *move)
{
        uint64_t bytes = 0;

        assert(move->direction == MOVE_UP || move->sums == MOVE_SUM_PAGE);
        for (size_t i = 0; i < move->n_pages * move->n_planes; i++) {
                const struct move_plane *p = &move->planes[i];

                assert(p->from && (p->to || move->direction == MOVE_UP) && p->plain_bytes > 0 &&
                        p->codec < N_CODECS);
                assert(p->codec == CODEC_NONE || p->plain_bytes % matrix_bytes(p->shape) == 0);
                bytes += p->plain_bytes;
        }
        return bytes;
}

int mover_submit(struct mover *m, struct move *move)
{
        struct task *t = task_of(move);

        t->plain_bytes = check_move(move);
        if (m->stopping)
                return -ESHUTDOWN;
        t->lane = move->is_urgent ? LANE_URGENT : LANE_OTHER;
        if (m->n_moves[t->lane] >= m->max_moves)
                return MOVER_FULL;
        m->n_moves[t->lane]++;
        pthread_mutex_lock(&m->lock);
        t->state = TASK_WAITING;
        list_append(&m->waiting[t->lane], &t->link);
        pthread_mutex_unlock(&m->lock);
        pthread_cond_signal(&m->wake);
        return 0;
}

/* Locked. One that waits. As set_done(). */
static bool cancel_waiting(struct mover *m, struct task *t)
{
        atomic_store_explicit(&t->is_cancelled, true, memory_order_relaxed);
        for (size_t i = 0; i < t->move.n_pages; i++)
                t->move.pages[i].result = -ECANCELED;
        list_remove(&t->link);
        return set_done(m, t);
}

void mover_cancel(struct mover *m, struct move *move)
{
        struct task *t = task_of(move);
        bool is_to_ring = false;

        pthread_mutex_lock(&m->lock);
        if (t->state == TASK_WAITING)
                is_to_ring = cancel_waiting(m, t);
        else
                atomic_store_explicit(&t->is_cancelled, true, memory_order_relaxed);
        pthread_mutex_unlock(&m->lock);
        if (is_to_ring)
                ring_owner(m);
}

void mover_hurry(struct mover *m, struct move *move)
{
        struct task *t = task_of(move);

        pthread_mutex_lock(&m->lock);
        if (t->state == TASK_WAITING && !move->is_urgent) {
                list_remove(&t->link);
                list_append(&m->waiting[LANE_URGENT], &t->link);
        }
        move->is_urgent = true;
        pthread_mutex_unlock(&m->lock);
}

static int result_of(const struct task *t)
{
        if (atomic_load_explicit(&t->is_cancelled, memory_order_relaxed))
                return -ECANCELED;
        for (size_t i = 0; i < t->move.n_pages; i++)
                if (t->move.pages[i].result < 0)
                        return t->move.pages[i].result;
        return 0;
}

unsigned mover_reap(struct mover *m)
{
        struct list_link turn;
        struct task *t;
        uint64_t rung;
        unsigned n = 0;

        pthread_mutex_lock(&m->lock);
        if (read(m->event_fd, &rung, sizeof(rung)) < 0)
                assert(errno == EAGAIN);
        list_take_all(&m->done, &turn);
        m->n_done = 0;
        m->unrung_bytes = 0;
        m->is_rung = false;
        pthread_mutex_unlock(&m->lock);
        for (; (t = list_first(&turn, struct task, link)); n++) {
                list_remove(&t->link);
                m->n_moves[t->lane]--;
                if (t->move.done)
                        t->move.done(&t->move, result_of(t), t->move.data);
                move_free(&t->move);
        }
        return n;
}

void mover_close(struct mover *m)
{
        struct task *t;

        if (!m)
                return;
        pthread_mutex_lock(&m->lock);
        while ((t = next_task(m)))
                (void)cancel_waiting(m, t); /* reaped below */
        pthread_mutex_unlock(&m->lock);
        join_threads(m);
        (void)mover_reap(m);
        mover_free(m);
}
