#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/fakecuda/fake.h"

#define RULES_MAX     32
#define CONTROL_BYTES 4096
#define CALL_BYTES    48

enum rule_kind { RULE_FAIL, RULE_DELAY };

struct rule {
        enum rule_kind kind;
        char call[CALL_BYTES]; /* "*": any */
        unsigned long value;   /* result, or milliseconds */
        unsigned long nth, times, seen;
};

/* The rules of the environment come first, those of the control file behind them. */
static struct {
        pthread_mutex_t lock;
        struct rule rules[RULES_MAX];
        unsigned n, from_environment;
        bool is_parsed;
        unsigned bad, bad_now; /* enum fake_bad */
        char control[CONTROL_BYTES];
        struct timespec control_mtime;
        unsigned generation; /* counts the changes of the control file */
} faults = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* "CALL:VALUE[:NTH[:TIMES]]" */
static void add_rule(enum rule_kind kind, const char *text)
{
        struct rule r = {.kind = kind, .nth = 1, .times = 1};

        if (sscanf(text, "%47[^:]:%lu:%lu:%lu", r.call, &r.value, &r.nth, &r.times) < 2 || !r.nth)
                fake_die("can't read the rule \"%s\": want CALL:VALUE[:NTH[:TIMES]]", text);
        if (faults.n == RULES_MAX)
                fake_die("more than %d fault rules", RULES_MAX);
        faults.rules[faults.n++] = r;
}

static void add_rules(enum rule_kind kind, const char *list)
{
        char copy[CONTROL_BYTES], *save = NULL;

        if (!list)
                return;
        snprintf(copy, sizeof(copy), "%s", list);
        for (char *one = strtok_r(copy, "; \t", &save); one; one = strtok_r(NULL, "; \t", &save))
                add_rule(kind, one);
}

static unsigned parse_bad(const char *list)
{
        unsigned bad = 0;

        if (list && strstr(list, "memset"))
                bad |= BAD_MEMSET;
        if (list && strstr(list, "capturing"))
                bad |= BAD_CAPTURING;
        if (list && strstr(list, "cleared"))
                bad |= BAD_CLEARED;
        return bad;
}

static void parse_environment(void)
{
        add_rules(RULE_FAIL, getenv("FAKECUDA_FAIL"));
        add_rules(RULE_DELAY, getenv("FAKECUDA_DELAY"));
        faults.from_environment = faults.n;
        faults.bad = faults.bad_now = parse_bad(getenv("FAKECUDA_BAD"));
        faults.is_parsed = true;
}

static void parse_control(void)
{
        char copy[CONTROL_BYTES], *save = NULL;

        faults.n = faults.from_environment;
        faults.bad_now = faults.bad;
        snprintf(copy, sizeof(copy), "%s", faults.control);
        for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                if (strncmp(line, "fail=", 5) == 0)
                        add_rules(RULE_FAIL, line + 5);
                else if (strncmp(line, "delay=", 6) == 0)
                        add_rules(RULE_DELAY, line + 6);
                else if (strncmp(line, "bad=", 4) == 0)
                        faults.bad_now |= parse_bad(line + 4);
                else if (*line != '#')
                        fake_die("can't read the control file's line \"%s\"", line);
        }
}

/* A file that isn't there is an empty one. Rules count from when the file was last written. */
static void look_at_control(void)
{
        const char *path = getenv("FAKECUDA_CONTROL");
        char text[CONTROL_BYTES] = "";
        struct timespec mtime = {0};
        struct stat st;
        int fd;

        if (!path)
                return;
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
                ssize_t n = read(fd, text, sizeof(text) - 1);

                text[n < 0 ? 0 : n] = '\0';
                if (fstat(fd, &st) == 0)
                        mtime = st.st_mtim;
                close(fd);
        }
        if (strcmp(text, faults.control) == 0 && mtime.tv_sec == faults.control_mtime.tv_sec &&
                mtime.tv_nsec == faults.control_mtime.tv_nsec)
                return;
        memcpy(faults.control, text, sizeof(text));
        faults.control_mtime = mtime;
        faults.generation++;
        parse_control();
}

static void refresh(void)
{
        if (!faults.is_parsed)
                parse_environment();
        look_at_control();
}

/* Counts the call at every rule of its name; the first that is due, or NULL. */
static struct rule *due(enum rule_kind kind, const char *call)
{
        struct rule *found = NULL;

        for (unsigned i = 0; i < faults.n; i++) {
                struct rule *r = &faults.rules[i];

                if (r->kind != kind || (strcmp(r->call, call) != 0 && strcmp(r->call, "*") != 0))
                        continue;
                r->seen++;
                if (!found && r->seen >= r->nth && (!r->times || r->seen < r->nth + r->times))
                        found = r;
        }
        return found;
}

static uint64_t now_msec(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void fake_delay(const char *call)
{
        uint64_t end = 0;
        unsigned generation;
        struct rule *r;

        pthread_mutex_lock(&faults.lock);
        refresh();
        r = due(RULE_DELAY, call);
        if (r)
                end = now_msec() + r->value;
        generation = faults.generation;
        while (now_msec() < end && generation == faults.generation) {
                pthread_mutex_unlock(&faults.lock);
                nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
                pthread_mutex_lock(&faults.lock);
                look_at_control();
        }
        pthread_mutex_unlock(&faults.lock);
}

cu_result fake_fault(const char *call)
{
        struct rule *r;
        cu_result result;

        pthread_mutex_lock(&faults.lock);
        refresh();
        r = due(RULE_FAIL, call);
        result = r ? (cu_result)r->value : CU_OK;
        pthread_mutex_unlock(&faults.lock);
        return result;
}

bool fake_is_bad(enum fake_bad what)
{
        bool bad;

        pthread_mutex_lock(&faults.lock);
        refresh();
        bad = faults.bad_now & what;
        pthread_mutex_unlock(&faults.lock);
        return bad;
}

bool fake_is_fatal(cu_result result)
{
        switch (result) {
        case CU_ECC_UNCORRECTABLE:
        case CU_ILLEGAL_ADDRESS:
        case CU_LAUNCH_TIMEOUT:
        case CU_CONTEXT_IS_DESTROYED:
        case CU_HARDWARE_STACK_ERROR:
        case 715: /* illegal instruction */
        case 716: /* misaligned address */
        case 717: /* invalid address space */
        case 718: /* invalid PC */
        case CU_LAUNCH_FAILED:
                return true;
        default:
                return false;
        }
}
