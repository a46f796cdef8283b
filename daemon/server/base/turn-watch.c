#include "daemon/server/base/turn-watch.h"

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
 * Interval of reading the thread's wait for a processor; it is also read after turns longer than
 * that. A wait just before a long turn then counts as part of it. Not tuned.
 */
#define SAMPLE_NSEC (10 * NSEC_PER_MSEC)

/* Reads the thread's wait for a processor until now; the last value if it is unreadable. */
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

/* ---- parts ----------------------------------------------------------------------------------- */

void turn_watch_part(struct turn_watch *w, const char *what, const char *tenant, uint64_t nsec)
{
        if (nsec < TURN_RECORD_NSEC || nsec <= w->now.what_nsec)
                return;
        w->now.what = what;
        w->now.what_nsec = nsec;
        (void)snprintf(w->now.tenant, sizeof(w->now.tenant), "%s", tenant ? tenant : "");
}

uint64_t turn_watch_since(
        struct turn_watch *w, const char *what, const char *tenant, uint64_t began_nsec)
{
        uint64_t now = clock_now_nsec();

        turn_watch_part(w, what, tenant, now - began_nsec);
        return now;
}

static bool is_recent(const struct turn_record *r, uint64_t now_nsec)
{
        return r->at_nsec > 0 && now_nsec - r->at_nsec < TURNS_RECENT * TURNS_RECENT_NSEC;
}

const struct turn_record *turn_watch_recent(const struct turn_watch *w, size_t n, uint64_t now_nsec)
{
        uint64_t oldest = now_nsec / TURNS_RECENT_NSEC + 1;

        for (size_t i = 0; i < TURNS_RECENT; i++) {
                const struct turn_record *r = &w->recent[(oldest + i) % TURNS_RECENT];

                if (is_recent(r, now_nsec) && n-- == 0)
                        return r;
        }
        return NULL;
}

static void note_record(struct turn_watch *w, const struct turn_record *turn)
{
        struct turn_record *recent = &w->recent[turn->at_nsec / TURNS_RECENT_NSEC % TURNS_RECENT];
        size_t i;

        /* The old record is an hour old, or shorter. */
        if (turn->at_nsec - recent->at_nsec >= TURNS_RECENT_NSEC || turn->nsec > recent->nsec)
                *recent = *turn;
        if (turn->nsec <= w->longest[TURNS_LONGEST - 1].nsec)
                return;
        for (i = TURNS_LONGEST - 1; i > 0 && w->longest[i - 1].nsec < turn->nsec; i--)
                w->longest[i] = w->longest[i - 1];
        w->longest[i] = *turn;
}

/* ---- how long they are ----------------------------------------------------------------------- */

void turn_watch_note(struct turn_watch *w, uint64_t now_nsec, uint64_t nsec, uint64_t waited_nsec)
{
        nsec -= MIN(nsec, waited_nsec);
        call_times_note(&w->turns, nsec);
        w->longest_nsec = MAX(w->longest_nsec, nsec);
        if (nsec >= TURN_RECORD_NSEC) {
                w->now.at_nsec = now_nsec;
                w->now.nsec = nsec;
                note_record(w, &w->now);
        }
        w->now = (struct turn_record){0};
}

void turn_watch_wake(struct turn_watch *w)
{
        /* The loop's time is that of the end of its wait, rounded down. */
        uint64_t woke_before = (uv_now(w->check.loop) + 1) * NSEC_PER_MSEC;

        if (w->is_awake)
                return;
        w->is_awake = true;
        w->began_nsec = MIN(clock_now_nsec(), woke_before);
}

/* After the callbacks of this turn's descriptors. */
static void on_check(uv_check_t *check)
{
        turn_watch_wake(container_of(check, struct turn_watch, check));
}

/* Called just before the loop waits: the turn has ended. */
static void on_prepare(uv_prepare_t *prepare)
{
        struct turn_watch *w = container_of(prepare, struct turn_watch, prepare);
        uint64_t now = clock_now_nsec(), took = now - w->began_nsec, waited = w->waited_nsec;

        if (now - w->sampled_nsec >= SAMPLE_NSEC) {
                w->waited_nsec = read_waited(w);
                w->sampled_nsec = now;
        }
        if (w->is_awake)
                turn_watch_note(w, now, took, took >= SAMPLE_NSEC ? w->waited_nsec - waited : 0);
        w->is_awake = false;
}

void turn_watch_init(struct turn_watch *w, uv_loop_t *loop)
{
        *w = (struct turn_watch){.schedstat_fd = open(SCHEDSTAT_PATH, O_RDONLY | O_CLOEXEC)};
        uv_prepare_init(loop, &w->prepare);
        uv_unref((uv_handle_t *)&w->prepare);
        uv_check_init(loop, &w->check);
        uv_unref((uv_handle_t *)&w->check);
}

void turn_watch_start(struct turn_watch *w)
{
        w->waited_nsec = read_waited(w);
        w->sampled_nsec = clock_now_nsec();
        uv_prepare_start(&w->prepare, on_prepare);
        uv_check_start(&w->check, on_check);
}

void turn_watch_stop(struct turn_watch *w)
{
        w->schedstat_fd = fd_close(w->schedstat_fd);
}
