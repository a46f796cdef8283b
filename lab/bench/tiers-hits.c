/* hit-ratio-host: the conversation trace through a daemon with ten times its device's memory in
 * host memory. Compared with a daemon whose device is eleven times as large. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/macros.h"
#include "client/trace/trace.h"
#include "lab/bench/replay.h"
#include "lab/bench/tiers.h"

#define TRACE          "mooncake-conversation.jsonl" /* in $KVL_TRACES, else beside the source */
#define POLICY         "pgi"
#define DEVICE_PAGES   (4 * REPLAY_SET_PAGES) /* of 183 k blocks in the trace 1.1 % */
#define HOST_TIMES     10                     /* specification */
#define MAX_POINTS     0.5                    /* specification */
#define QUICK_REQUESTS 300u

static int compare(const struct trace *trace, struct bench_run *run)
{
        uint32_t n =
                run->quick ? MIN(trace->sim.n_requests, QUICK_REQUESTS) : trace->sim.n_requests;
        const struct replay_cache caches[] = {
                {POLICY, DEVICE_PAGES, HOST_TIMES * DEVICE_PAGES},
                {POLICY, (1 + HOST_TIMES) * DEVICE_PAGES, 0},
        };
        struct bench_result *hits = bench_add(run, "%", "hit-ratio-host"), *off;
        int r = replay_measure(&trace->sim, n, &caches[0], &hits->median);

        if (r == 0)
                r = replay_measure(&trace->sim, n, &caches[1], &hits->baseline_median);
        if (r < 0)
                return r;
        hits->baseline = "device";
        off = bench_add(run, "points", "hit-ratio-host-lost");
        off->median = fmax(hits->baseline_median - hits->median, 0);
        off->max_value = MAX_POINTS;
        return 0;
}

int tiers_hits(struct bench_run *run)
{
        const char *dir = getenv("KVL_TRACES"), *path;
        struct trace_error error;
        struct trace trace = {0};
        char buf[PATH_MAX];
        int r;

        (void)snprintf(buf, sizeof(buf), "%s/%s", dir ? dir : TRACES_DIR, TRACE);
        path = buf;
        if (access(path, R_OK) < 0) {
                fprintf(stderr,
                        "kvlease-bench: no hit-ratio-host: %s isn't there ($KVL_TRACES: where)\n",
                        path);
                return -ENODEV;
        }
        r = trace_read(&(struct trace_source){&path, 1, TRACE_SKIP_BAD}, &trace, &error);
        if (r < 0)
                return bench_fail(error.text[0] ? error.text : path, r);
        r = compare(&trace, run);
        trace_free(&trace);
        return r;
}
