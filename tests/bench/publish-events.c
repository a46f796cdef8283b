/*
 * Events for followers: the time that the daemon's thread runs for a published page with token ids,
 * against a page of a tenant without events.
 */
#include <errno.h>

#include "base/macros.h"
#include "tests/bench/bench.h"
#include "tests/bench/fixture.h"
#include "tests/bench/publish.h"
#include "tests/integration/pattern.h"

#define PUT_PAGES 128
#define MAX_PLAIN 3 /* 2 % of the loop for 10,000 publishes a second are 2 us a page */
#define N_PAGES   (64 * FIXTURE_TEXT)

enum what { WITH, WITHOUT, N_WHATS };

struct events {
        struct fixture fixture;
        struct fixture_client clients[N_WHATS];
        uint64_t text;
        struct series series[N_WHATS];
};

static int put_text(struct events *e, struct kvl_ns *ns)
{
        uint32_t pages[PUT_PAGES], ids[PUT_PAGES * FIXTURE_PAGE_TOKENS];
        uint8_t keys[PUT_PAGES * KVL_KEY_BYTES];
        const struct kvl_publish p = {.size = sizeof(p),
                .pages = pages,
                .keys = keys,
                .n_pages = PUT_PAGES,
                .last_tokens = FIXTURE_PAGE_TOKENS,
                .token_ids = ids};
        int r;

        e->text++;
        for (unsigned i = 0; i < PUT_PAGES; i++)
                pattern_key(e->text, i, keys + i * KVL_KEY_BYTES);
        for (unsigned i = 0; i < ARRAY_SIZE(ids); i++)
                ids[i] = (uint32_t)e->text + i;
        r = kvl_lease(ns, 0, PUT_PAGES, pages);
        if (r == 0)
                r = kvl_publish(ns, &p, NULL, NULL);
        return r ? r : kvl_release(ns, pages, PUT_PAGES);
}

static int time_texts(struct events *e, enum what what, unsigned n)
{
        pid_t pid = e->fixture.daemon.pid;
        uint64_t cpu = bench_cpu_nsec(pid);
        int r = 0;

        for (unsigned i = 0; r == 0 && i < n; i++)
                r = put_text(e, e->clients[what].ns);
        series_add(&e->series[what], (double)(bench_cpu_nsec(pid) - cpu) / ((double)n * PUT_PAGES));
        return r;
}

static int one_events_round(struct events *e, unsigned n, bool warm)
{
        int r = 0;

        for (enum what w = 0; r == 0 && w < N_WHATS; w++)
                r = time_texts(e, w, n);
        for (enum what w = 0; r == 0 && w < N_WHATS; w++)
                if (kvl_invalidate(e->clients[w].ns, NULL, NULL) < 0)
                        r = -EIO;
        for (enum what w = 0; w < N_WHATS; w++)
                (warm ? series_drop_round : series_close_round)(&e->series[w]);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

static int connect_both(struct events *e)
{
        char path[PRIVATE_PATH_MAX];
        int r = fixture_connect(&e->fixture, 0, &e->clients[WITHOUT]);

        if (r < 0)
                return r;
        private_daemon_socket(&e->fixture.daemon, FIXTURE_EVENTS_TENANT, path);
        return fixture_connect_to(path, "kvlease-bench", 0, FIXTURE_PAGE_TOKENS, FIXTURE_PAGE_BYTES,
                &e->clients[WITH]);
}

int publish_run_events(struct bench_run *run)
{
        struct events e = {.fixture = FIXTURE_INIT};
        unsigned n = run->quick ? 4 : 60;
        struct bench_result *result;
        int r = 0;

        e.fixture.has_events = true;
        for (enum what w = 0; r == 0 && w < N_WHATS; w++)
                r = series_init(&e.series[w], n, run->rounds);
        if (r == 0)
                r = fixture_open(&e.fixture, N_PAGES, FIXTURE_PAGE_BYTES);
        if (r == 0)
                r = connect_both(&e);
        for (unsigned i = 0; r == 0 && i <= run->rounds; i++)
                r = one_events_round(&e, n, i == 0);
        if (r == 0) {
                result = bench_add(run, "ns", "put-128-events-processor");
                result->max_ratio = MAX_PLAIN;
                series_report(result, &e.series[WITH], &e.series[WITHOUT], "put-128-no-events");
        }
        for (enum what w = 0; w < N_WHATS; w++)
                fixture_disconnect(&e.clients[w]);
        fixture_close(&e.fixture);
        for (enum what w = 0; w < N_WHATS; w++)
                series_deinit(&e.series[w]);
        return r;
}
