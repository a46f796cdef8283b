#include "daemon/server/config/lives.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "daemon/server/base/log.h"

#define REMEMBERED_SEC 3600 /* not tuned */

/* Pause after deaths for want of memory. After two deaths within CLOSE_SEC the daemon pauses before
 * it serves, twice as long each further time. Not tuned: a dead daemon's memory is free at once,
 * and the cause of the next death recurs within seconds. */
#define CLOSE_SEC      600
#define LAST_PAUSE_SEC 30

static uint64_t boot_sec(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_BOOTTIME, &ts);
        return (uint64_t)ts.tv_sec;
}

static void add_death(struct lives *l, uint64_t sec, bool is_for_memory)
{
        if (l->n == LIVES_MAX)
                memmove(l->deaths, l->deaths + 1, --l->n * sizeof(l->deaths[0]));
        l->deaths[l->n].sec = sec;
        l->deaths[l->n++].is_for_memory = is_for_memory;
}

/* True if either count has risen. A new group's count began at 0. */
static bool has_risen(const struct cgroup_oom_kills *then, const struct cgroup_oom_kills *now)
{
        return now->of_group > then->of_group || now->of_host > then->of_host;
}

/* Reads the lines of the previous daemon: its counts, earlier deaths, and whether it ended
 * normally. */
static void read_lines(struct lives *l, const char *text, uint64_t now_sec,
        struct cgroup_oom_kills *ret_then, bool *ret_ended)
{
        for (const char *line = text; line; line = strchr(line, '\n'), line += line ? 1 : 0) {
                uint64_t a, b;

                if (sscanf(line, "kills %" SCNu64 " %" SCNu64, &a, &b) == 2)
                        *ret_then = (struct cgroup_oom_kills){.of_group = a, .of_host = b};
                else if (sscanf(line, "death %" SCNu64 " %" SCNu64, &a, &b) == 2 && a <= now_sec &&
                         now_sec - a < REMEMBERED_SEC)
                        add_death(l, a, b != 0);
                else if (strncmp(line, "ended\n", strlen("ended\n")) == 0)
                        *ret_ended = true;
        }
}

static void say_death(const struct lives *l)
{
        log_warning(
                "the kvleased before this one ended without a word, and meanwhile the kernel "
                "has killed a process for want of memory: probably it (such deaths in the last "
                "hour: %u); set less memory or host_memory, or give its control group more: kvleasectl doctor compares them",
                lives_count(l, true));
}

static uint64_t pause_sec(const struct lives *l, uint64_t now_sec)
{
        uint64_t sec = 0;
        unsigned n = 0;

        for (uint32_t i = 0; i < l->n; i++)
                if (l->deaths[i].is_for_memory && now_sec - l->deaths[i].sec < CLOSE_SEC && ++n > 1)
                        sec = sec == 0 ? 1 : MIN(2 * sec, (uint64_t)LAST_PAUSE_SEC);
        return sec;
}

static int write_lines(const struct lives *l, const struct cgroup_oom_kills *now, int lock_fd)
{
        if (dprintf(lock_fd, "kills %" PRIu64 " %" PRIu64 "\n", now->of_group, now->of_host) < 0)
                return -errno;
        for (uint32_t i = 0; i < l->n; i++)
                if (dprintf(lock_fd, "death %" PRIu64 " %d\n", l->deaths[i].sec,
                            l->deaths[i].is_for_memory) < 0)
                        return -errno;
        return 0;
}

int lives_begin(struct lives *l, const char *text, const struct cgroup_oom_kills *now, int lock_fd)
{
        struct cgroup_oom_kills then = {UINT64_MAX, UINT64_MAX};
        uint64_t now_sec = boot_sec();
        bool has_ended = false;

        *l = (struct lives){0};
        read_lines(l, text, now_sec, &then, &has_ended);
        if (text && !has_ended)
                add_death(l, now_sec, has_risen(&then, now));
        if (text && !has_ended && has_risen(&then, now)) {
                say_death(l);
                l->pause_nsec = pause_sec(l, now_sec) * NSEC_PER_SEC;
        }
        return write_lines(l, now, lock_fd);
}

void lives_end(int lock_fd)
{
        /* Without this line the next daemon counts a death too many. */
        if (dprintf(lock_fd, "ended\n") < 0)
                log_warning("cannot write into the runtime directory's lock: %s", strerror(errno));
}

uint32_t lives_count(const struct lives *l, bool for_memory)
{
        uint64_t now_sec = boot_sec();
        uint32_t n = 0;

        for (uint32_t i = 0; i < l->n; i++)
                n += now_sec - l->deaths[i].sec < REMEMBERED_SEC &&
                     (l->deaths[i].is_for_memory || !for_memory);
        return n;
}
