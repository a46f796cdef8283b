#include "client/exporter/process.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

/* The line has some 50 numbers and a name of 16 bytes. */
#define STAT_BYTES_MAX 4096

/* The line's fields, as proc(5) counts them; the second is the program's name. */
enum {
        FIELD_STATE = 3,
        FIELD_UTIME = 14,
        FIELD_STIME,
        FIELD_STARTTIME = 22,
        FIELD_VSIZE,
        FIELD_RSS
};

int process_parse(const char *line, struct process_stat *ret)
{
        double ticks = (double)sysconf(_SC_CLK_TCK);
        uint64_t fields[FIELD_RSS + 1] = {0};
        const char *at = strrchr(line, ')'); /* a program may have any name */
        char state;
        int len = 0;

        if (!at || sscanf(at, ") %c%n", &state, &len) != 1)
                return -EINVAL;
        at += len;
        for (unsigned i = FIELD_STATE + 1; i <= FIELD_RSS; i++) {
                char *end;

                fields[i] =
                        (uint64_t)strtoll(at, &end, 10); /* some that aren't used are negative */
                if (end == at)
                        return -EINVAL;
                at = end;
        }
        *ret = (struct process_stat){
                .cpu_seconds = (double)(fields[FIELD_UTIME] + fields[FIELD_STIME]) / ticks,
                .started_after_boot_sec = (double)fields[FIELD_STARTTIME] / ticks,
                .virtual_bytes = fields[FIELD_VSIZE],
                .resident_bytes = fields[FIELD_RSS] * (uint64_t)sysconf(_SC_PAGESIZE),
        };
        return 0;
}

/* Returns a clock's seconds. */
static double clock_seconds(clockid_t clock)
{
        struct timespec now = {0};

        clock_gettime(clock, &now);
        return (double)now.tv_sec + (double)now.tv_nsec / (double)NSEC_PER_SEC;
}

/* The machine's start, in seconds since 1970. Computed once: clocks are set while the process runs,
 * and a changing start would look like a restart. */
static pthread_once_t boot_once = PTHREAD_ONCE_INIT;
static double boot_seconds;

static void note_boot(void)
{
        boot_seconds = clock_seconds(CLOCK_REALTIME) - clock_seconds(CLOCK_BOOTTIME);
}

/* Counts the open descriptors without its own. Returns -1 if unknown. */
static int count_open_files(void)
{
        DIR *dir = opendir("/proc/self/fd");
        int n = -1; /* the one that looks */

        if (!dir)
                return -1;
        for (const struct dirent *e; (e = readdir(dir));)
                n += e->d_name[0] != '.';
        closedir(dir);
        return n;
}

static void tell_figure(
        struct text *t, const char *name, enum text_type type, const char *help, double value)
{
        text_family_of_process(t, name, type, help);
        text_sample(t, &(struct text_labels){0}, value);
}

static void tell_files(struct text *t)
{
        struct rlimit limit;
        int n = count_open_files();

        if (n >= 0)
                tell_figure(t, "open_fds", TEXT_GAUGE,
                        "File descriptors that kvlease-exporter has open.", n);
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
                tell_figure(t, "max_fds", TEXT_GAUGE,
                        "File descriptors that kvlease-exporter may have open at most.",
                        (double)limit.rlim_cur);
}

void process_tell(struct text *t)
{
        _cleanup_free_ char *line = NULL;
        struct process_stat s;
        size_t len;

        pthread_once(&boot_once, note_boot);
        tell_files(t);
        if (file_read("/proc/self/stat", STAT_BYTES_MAX, &line, &len) < 0 ||
                process_parse(line, &s) < 0)
                return;
        tell_figure(t, "cpu_seconds", TEXT_COUNTER,
                "Seconds of processor time that kvlease-exporter has used, in user and kernel mode.",
                s.cpu_seconds);
        tell_figure(t, "resident_memory_bytes", TEXT_GAUGE,
                "Memory of kvlease-exporter that is in RAM.", (double)s.resident_bytes);
        tell_figure(t, "virtual_memory_bytes", TEXT_GAUGE,
                "Address space that kvlease-exporter has mapped.", (double)s.virtual_bytes);
        tell_figure(t, "start_time_seconds", TEXT_GAUGE,
                "When kvlease-exporter started, in seconds since 1970.",
                boot_seconds + s.started_after_boot_sec);
}
