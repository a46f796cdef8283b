/* Windows that copy some planes of pages, as attention that goes layer by layer asks for them. */
#include "tests/unit/client-window.h"

#define N_PLANES 4

/* Which of them each copy was of. */
static struct {
        uint32_t at, first_plane, n_planes;
} planes_copied[64];
static uint32_t n_planes_copied;

static void note_planes(struct fake_peer *p, const struct shm_submission *s)
{
        FAKE_CHECK(n_planes_copied < ARRAY_SIZE(planes_copied));
        planes_copied[n_planes_copied].at = s->page - N_DEVICE - FIRST;
        if (s->op == SHM_OP_FETCH_PLANES) {
                planes_copied[n_planes_copied].first_plane = s->copy.first_plane;
                planes_copied[n_planes_copied].n_planes = s->copy.n_planes;
        }
        n_planes_copied++;
        fake_complete(p, s->user_data, WIRE_OK, s->copy.to);
}

static void take_planes(struct client *c, uint32_t at, uint32_t first_plane, uint32_t n_taken,
        uint32_t n, const uint32_t **ret)
{
        uint32_t got;

        assert_int_equal(kvl_window_take_planes(
                                 c->window, at, N_TEXT - at, first_plane, n_taken, NULL, ret, &got),
                0);
        assert_int_equal(got, n);
}

/* A pass over each three of the planes: the last one alone, then from the beginning. */
static void pass_by_planes(struct client *c)
{
        const uint32_t *pages;

        for (uint32_t plane = 0; plane < N_PLANES; plane += 3) {
                uint32_t n = MIN(3u, N_PLANES - plane);

                take_planes(c, 0, plane, n, N_FIRST, &pages);
                take_planes(c, 2, plane, n, 2, &pages);
                take_planes(c, 4, plane, n, 2, &pages);
                take_planes(c, 6, plane, n, 2, &pages);
                take_planes(c, 8, plane, n, 1, &pages);
                take_planes(c, 9, plane, n, 3, &pages);
        }
}

static void script_planes(struct fake_peer *p)
{
        p->fill = put_middle_below;
        p->on_fetch = note_planes;
        serve_to_ns(p);
        fake_serve(p);
        /* Each page of the middle once for each pass, and what comes after the last one. */
        FAKE_CHECK(n_planes_copied == 2 * 7 + 2);
        for (uint32_t i = 0; i < n_planes_copied; i++) {
                FAKE_CHECK(planes_copied[i].at == 2 + i % 7);
                FAKE_CHECK(planes_copied[i].first_plane == (i / 7 == 1 ? 3 : 0));
                FAKE_CHECK(planes_copied[i].n_planes == (i / 7 == 1 || i >= 14 ? 1 : 3));
        }
        fake_check_nothing_held(p);
}

TEST(test_planes)
{
        struct client c;

        n_planes = N_PLANES;
        open_client(&c, script_planes, LONG_MSEC, 0);
        pass_by_planes(&c);
        close_client(&c);
        n_planes = 1;
}

/* One that doesn't know of planes copies whole pages. */
static void script_old(struct fake_peer *p)
{
        p->fill = put_middle_below;
        p->on_fetch = note_copy;
        n_copied = 0;
        serve_to_ns(p);
        atomic_store(&p->rings.header->last_op, SHM_OP_EXPECT);
        fake_serve(p);
        FAKE_CHECK(n_copied == 2 * 7 + 2); /* each of them a FETCH with COPY */
        fake_check_nothing_held(p);
}

TEST(test_planes_old)
{
        struct client c;

        n_planes = N_PLANES;
        open_client(&c, script_old, LONG_MSEC, 0);
        pass_by_planes(&c);
        close_client(&c);
        n_planes = 1;
}
