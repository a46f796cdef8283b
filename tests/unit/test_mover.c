/* The threads that move bytes between tiers: what comes out. In which order, and every way a move
 * ends: test_mover_order.c. */
#include <xxhash.h>

#include "tests/unit/mover-fixture.h"

/* ---- what comes out ------------------------------------------------------------------------- */

TEST(test_down_and_up)
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
                        at += p->codec == CODEC_NONE ? p->plain_bytes
                                                     : codec_encoded_bytes(p->codec, p->shape);
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

TEST(test_batch)
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

/* ---- sums of planes ------------------------------------------------------------------------- */

/* Its sum is right, and no encoder made it. */
TEST(test_undecodable)
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

/* Memory that doesn't hold what was written to it: one plane's bytes lie over the other's. */
TEST(test_read_back)
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

int main(void)
{
        random_start("test_mover");
        return test_run_all(NULL, NULL);
}
