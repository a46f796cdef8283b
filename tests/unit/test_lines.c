/* Cache lines that are asked for ahead (daemon/core/cache/lines.h): of which pages, and that any
 * numbers may be given. */
#include "daemon/core/cache/lines.h"
#include "daemon/core/life/leave.h"
#include "tests/unit/shared-fixture.h"

#define N_TEXT 20u

/* The n-th call asks for what lies so far up, `most` at last. */
static uint32_t up(uint32_t n, uint32_t most, uint32_t victim)
{
        uint32_t there = MIN(n + 1, most);

        return victim - MIN(there, victim);
}

/* From the end of a text to its beginning, as evictions go: one page further ahead each time, until
 * that is 8 pages, or the beginning. */
SHARED_SCENE(test_up_a_text, 4)
{
        struct lines_ahead ahead = {0};
        uint32_t pages[N_TEXT];

        publish_chain(w->a, 1, N_TEXT, pages);
        for (uint32_t n = 1; n <= N_TEXT; n++) {
                uint32_t victim = N_TEXT - n;

                lines_prefetch_victims(&ahead, w->ns, pages[victim]);
                assert_int_equal(ahead.next, victim > 0 ? pages[victim - 1] : NODE_NONE);
                assert_int_equal(ahead.page, pages[up(n, 8, victim)]);
                assert_int_equal(ahead.key, pages[up(n, 4, victim)]);
        }
}

/* A victim that isn't what the last one continued. */
SHARED_SCENE(test_another_text, 4)
{
        uint32_t pages[N_TEXT], others[2];
        struct lines_ahead ahead = {0};

        publish_chain(w->a, 1, N_TEXT, pages);
        publish_chain(w->a, 100, 2, others);
        lines_prefetch_victims(&ahead, w->ns, pages[N_TEXT - 1]);
        lines_prefetch_victims(&ahead, w->ns, pages[N_TEXT - 2]);
        lines_prefetch_victims(&ahead, w->ns, others[1]);
        assert_int_equal(ahead.page, others[0]);
        assert_int_equal(ahead.key, others[0]);
        lines_prefetch_victims(&ahead, w->ns, pages[N_TEXT - 3]);
        assert_int_equal(ahead.page, pages[N_TEXT - 5]);
}

/* The prefetch reads clients' submissions unchecked. */
SHARED_SCENE(test_rubbish, 1)
{
        struct shm_submission s[] = {publishing(0, 1, SHM_PUBLISH_ROOT),
                publishing(UINT32_MAX, 2, SHM_PUBLISH_ROOT),
                publishing(UINT32_MAX - 1, 3, SHM_PUBLISH_CHAIN), {.op = UINT8_MAX},
                publishing(1, 4, SHM_PUBLISH_CHAIN)};

        for (size_t i = 0; i < ARRAY_SIZE(s); i++)
                s[i].ns_id = i == 0 ? 12345 : w->a->id;
        s[4].page = w->ns->geometry.capacity_pages;
        submit_prefetch(w->m, s, ARRAY_SIZE(s));
        attach_close(w->a);
        submit_prefetch(w->m, s, ARRAY_SIZE(s));
}
