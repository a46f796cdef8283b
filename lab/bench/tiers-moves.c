/* The mover without codec: pages are moved down and up again, and verified on their way up by the
 * sums of their way down. This thread submits and reaps, and sleeps meanwhile. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "base/macros.h"
#include "daemon/tier/mover.h"
#include "lab/bench/tiers.h"

#define MIN_RATIO       0.85 /* specification, from 256 KiB on */
#define MIN_RATIO_BYTES ((size_t)256 << 10)

struct moves {
        struct contest contest;
        struct mover *mover;
        uint64_t *sums; /* owned; of each page */
        bool reads_back;
        unsigned n_left; /* submitted */
        int result;      /* the first failure */
};

static uint64_t *sum_at(struct moves *m, const void *plain)
{
        return &m->sums[(size_t)((const uint8_t *)plain - m->contest.plain) /
                        m->contest.page_bytes];
}

static void on_done(struct move *move, int result, void *data)
{
        struct moves *m = data;

        m->n_left--;
        if (result < 0 && m->result == 0)
                m->result = result;
        if (move->direction == MOVE_DOWN)
                *sum_at(m, move->planes[0].from) = move->pages[0].sum;
}

static struct move *new_move(struct moves *m, bool is_up, size_t at)
{
        struct move *move = move_new(is_up ? MOVE_UP : MOVE_DOWN, 1, 1);
        uint8_t *plain = m->contest.plain + at, *stored = m->contest.stored + at;

        if (!move)
                return NULL;
        move->planes[0] = (struct move_plane){
                .from = is_up ? stored : plain,
                .to = is_up ? plain : stored,
                .plain_bytes = m->contest.page_bytes,
        };
        move->pages[0].sum = is_up ? *sum_at(m, plain) : 0;
        move->reads_back = m->reads_back && !is_up;
        move->done = on_done;
        move->data = m;
        return move;
}

static void reap(struct moves *m)
{
        struct pollfd p = {.fd = mover_fd(m->mover), .events = POLLIN};

        if (poll(&p, 1, -1) < 0 && errno != EINTR)
                m->result = -errno;
        (void)mover_reap(m->mover);
}

static int submit(struct moves *m, bool is_up, size_t at)
{
        struct move *move = new_move(m, is_up, at);
        int r;

        if (!move)
                return -ENOMEM;
        while ((r = mover_submit(m->mover, move)) == MOVER_FULL)
                reap(m);
        if (r == 0)
                m->n_left++;
        else
                move_free(move);
        return r;
}

static int move_block(struct contest *c, bool is_up, size_t at, size_t bytes, void *data)
{
        struct moves *m = data;
        int r = 0;

        for (size_t end = at + bytes; at < end && r == 0; at += c->page_bytes)
                r = submit(m, is_up, at);
        while (m->n_left > 0)
                reap(m);
        if (r == 0)
                r = m->result;
        return r < 0 ? bench_fail("moving", r) : 0;
}

static int measure(struct moves *m, struct bench_run *run, size_t page_bytes, bool reads_back)
{
        const char *what = reads_back ? "read-back" : "moved";
        struct bench_result *const results[] = {
                [CONTEST_CLOCK] = bench_add(run, "GB/s", "%s-%zuKiB", what, page_bytes >> 10),
                [CONTEST_PROCESSOR] =
                        bench_add(run, "GB/s", "%s-%zuKiB-processor", what, page_bytes >> 10),
        };

        m->contest.page_bytes = page_bytes;
        m->reads_back = reads_back;
        if (!reads_back && page_bytes >= MIN_RATIO_BYTES)
                results[CONTEST_CLOCK]->min_ratio = MIN_RATIO;
        return contest_run(&m->contest, run->rounds, move_block, m, results);
}

static int open_moves(struct moves *m, bool quick)
{
        int r = contest_open(&m->contest, quick);

        if (r < 0)
                return r;
        m->sums = calloc(m->contest.bytes / 4096, sizeof(m->sums[0]));
        r = m->sums ? mover_open(NULL, &m->mover) : -ENOMEM;
        return r < 0 ? bench_fail("mover", r) : 0;
}

int tiers_moves(struct bench_run *run)
{
        static const size_t sizes[] = {64 << 10, 256 << 10, 1 << 20, 4 << 20};
        struct moves m = {.contest.fds = {-1, -1}};
        int r = open_moves(&m, run->quick);

        for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(sizes); i++)
                r = measure(&m, run, sizes[i], false);
        if (r == 0)
                r = measure(&m, run, 1 << 20, true);
        mover_close(m.mover);
        contest_close(&m.contest);
        free(m.sums);
        return r;
}
