#include "daemon/server/system/turn-watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"

/* The file has three numbers: time on a processor, time waited for one (ns), slices; proc(5). */
#define SCHEDSTAT_PATH  "/proc/thread-self/schedstat"
#define SCHEDSTAT_BYTES 96

/*
 * What the thread waited for a processor is read once in so long, and after turns longer than that:
 * what it waited right before a long turn is then taken for part of it. Not tuned.
 */
#define SAMPLE_NSEC (10 * NSEC_PER_MSEC)

/* Until now, or what was known before where it can't be read. */
static uint64_t read_waited(const struct turn_watch *w)
{
        char line[SCHEDSTAT_BYTES];
        unsigned long long ran, waited;
        ssize_t n = w->schedstat_fd < 0 ? -1 : pread(w->schedstat_fd, line, sizeof(line) - 1, 0);

        if (n <= 0)
                return w->waited_nsec;
        line[n] = '\0';
        return sscanf(line, "%llu %llu", &ran, &waited) == 2 ? waited : w->waited_nsec;
}

void turn_watch_note(struct turn_watch *w, uint64_t nsec, uint64_t waited_nsec)
{
        nsec -= MIN(nsec, waited_nsec);
        call_times_note(&w->turns, nsec);
        w->longest_nsec = MAX(w->longest_nsec, nsec);
}

/* Right before the loop waits: the turn is over. */
static void on_prepare(uv_prepare_t *prepare)
{
        struct turn_watch *w = container_of(prepare, struct turn_watch, prepare);
        uint64_t now = clock_now_nsec(), idle = uv_metrics_idle_time(prepare->loop);
        uint64_t took = now - w->began_nsec, idled = idle - w->idle_nsec, waited = w->waited_nsec;

        if (now - w->sampled_nsec >= SAMPLE_NSEC) {
                w->waited_nsec = read_waited(w);
                w->sampled_nsec = now;
        }
        if (w->has_begun)
                turn_watch_note(w, took - MIN(took, idled),
                        took - MIN(took, idled) >= SAMPLE_NSEC ? w->waited_nsec - waited : 0);
        w->has_begun = true;
        w->began_nsec = now;
        w->idle_nsec = idle;
}

void turn_watch_init(struct turn_watch *w, uv_loop_t *loop)
{
        *w = (struct turn_watch){.schedstat_fd = open(SCHEDSTAT_PATH, O_RDONLY | O_CLOEXEC)};
        (void)uv_loop_configure(loop, UV_METRICS_IDLE_TIME); /* libuv 1.39; can't fail then */
        uv_prepare_init(loop, &w->prepare);
        uv_unref((uv_handle_t *)&w->prepare);
}

void turn_watch_start(struct turn_watch *w)
{
        w->waited_nsec = read_waited(w);
        w->sampled_nsec = clock_now_nsec();
        uv_prepare_start(&w->prepare, on_prepare);
}

void turn_watch_stop(struct turn_watch *w)
{
        w->schedstat_fd = fd_close(w->schedstat_fd);
}
