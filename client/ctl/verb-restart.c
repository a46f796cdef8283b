/* Restarting kvleased: what that would keep and lose, and doing it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "client/ctl/admin.h"
#include "client/ctl/verb.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"

#define PATH_BYTES   4096
#define TIMEOUT_TEXT "30s" /* not tuned */
#define PROGRAM_MSEC 5000  /* for a program that says which layouts it reads. Not tuned */

extern char **environ;

/* What kvleasectl needs of the status, which is gone with the next call. */
struct process {
        uint64_t pid, pid_namespace;
};

/* Elsewhere the number is somebody else's here. */
static bool is_here(const struct process *p)
{
        struct stat st;

        return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == p->pid_namespace;
}

/* The program that would be started: as named, or what the daemon runs, upgraded or not. */
static bool find_binary(const struct ctl *ctl, const struct process *p, char ret_path[PATH_BYTES])
{
        static const char deleted[] = " (deleted)";
        const char *named = ctl->options[CTL_OPTION_BINARY];
        char link[64];
        ssize_t n;

        if (named) {
                snprintf(ret_path, PATH_BYTES, "%s", named);
                return true;
        }
        if (!is_here(p))
                return false;
        snprintf(link, sizeof(link), "/proc/%" PRIu64 "/exe", p->pid);
        n = readlink(link, ret_path, PATH_BYTES - 1);
        if (n <= 0)
                return false;
        ret_path[n] = '\0';
        /* Replaced by another file of that name. */
        if ((size_t)n > sizeof(deleted) && strcmp(ret_path + n - sizeof(deleted) + 1, deleted) == 0)
                ret_path[(size_t)n - sizeof(deleted) + 1] = '\0';
        return true;
}

/* Until something is there to be read, or the other end is closed. False: not in time. */
static bool wait_until(int fd, uint64_t until_nsec)
{
        uint64_t now = clock_now_nsec();
        struct pollfd p = {fd, POLLIN, 0};

        return now < until_nsec && poll(&p, 1, (int)((until_nsec - now) / NSEC_PER_MSEC) + 1) > 0;
}

/* Its exit code; -1: it was killed, as it hadn't ended in time. */
static int end_program(pid_t pid, uint64_t until_nsec)
{
        _cleanup_fd_ int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        int status = -1;

        if (pidfd < 0 || !wait_until(pidfd, until_nsec))
                kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Starts it with its standard output in a pipe; the other end is returned owned. */
static int start_program(const char *path, const char *option, pid_t *ret_pid)
{
        char *argv[] = {(char *)path, (char *)option, NULL};
        posix_spawn_file_actions_t actions;
        int fds[2], r;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -1;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
        r = posix_spawn(ret_pid, path, &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        close(fds[1]);
        return r == 0 ? fds[0] : fd_close(fds[0]);
}

/* What a program prints, less than `size`, within PROGRAM_MSEC. False: it didn't end well. */
static bool read_output(const char *path, const char *option, char *ret, size_t size)
{
        uint64_t until = clock_now_nsec() + PROGRAM_MSEC * NSEC_PER_MSEC;
        size_t len = 0;
        ssize_t n = 1;
        pid_t pid;
        int fd = start_program(path, option, &pid);

        if (fd < 0)
                return false;
        while (n > 0 && len + 1 < size && wait_until(fd, until)) {
                n = read(fd, ret + len, size - 1 - len);
                len += n > 0 ? (size_t)n : 0;
        }
        close(fd);
        ret[len] = '\0';
        return end_program(pid, n == 0 ? until : 0) == 0 && n == 0;
}

/* "1 2": versions, as kvleased --state-layouts prints them. */
static bool has_number(const char *list, uint32_t number)
{
        char *end;

        for (const char *at = list; *at; at = *end ? end + 1 : end)
                if (strtoul(at, &end, 10) == number && end != at)
                        return true;
        return false;
}

/* What the program that comes next makes of what is kept: NULL, or a sentence (owned). */
static char *judge_binary(const struct ctl *ctl, const struct process *p, uint32_t layout)
{
        char path[PATH_BYTES], layouts[256], *why = NULL, *printable;
        int n;

        if (!find_binary(ctl, p, path)) {
                n = asprintf(&why,
                        "perhaps everything: the program of process %" PRIu64
                        " can't be seen from here; name it with --binary, or ask as root, and in "
                        "the daemon's pid namespace",
                        p->pid);
                return need(n < 0 ? NULL : why);
        }
        printable = text_printable(path);
        if (!read_output(path, "--state-layouts", layouts, sizeof(layouts)))
                n = asprintf(&why,
                        "everything: %s doesn't say which layouts of kept state it reads",
                        printable);
        else if (!has_number(layouts, layout))
                n = asprintf(&why,
                        "everything: %s reads kept state of layout %.*s, and this kvleased's is %u",
                        printable, (int)strcspn(layouts, "\n"), layouts, layout);
        else
                n = 0;
        free(printable);
        return n < 0 ? need(NULL) : why;
}

static int ask_restart(
        const struct ctl *ctl, bool check, const Kvlease__V1__AdminRestartReply **ret_reply)
{
        Kvlease__V1__AdminRestartRequest request = KVLEASE__V1__ADMIN_RESTART_REQUEST__INIT;
        const ProtobufCMessage *reply;
        int r;

        request.check = check;
        request.force = ctl->options[CTL_OPTION_FORCE] != NULL;
        r = admin_call(ctl->admin, MSG_ADMIN_RESTART, &request.base, &reply);
        if (r == CTL_OK)
                *ret_reply = (const Kvlease__V1__AdminRestartReply *)reply;
        return r;
}

static int ask_status(struct admin *admin, const Kvlease__V1__AdminStatusReply **ret_reply)
{
        Kvlease__V1__AdminStatusRequest request = KVLEASE__V1__ADMIN_STATUS_REQUEST__INIT;
        const ProtobufCMessage *reply;
        int r = admin_call(admin, MSG_ADMIN_STATUS, &request.base, &reply);

        if (r == CTL_OK)
                *ret_reply = (const Kvlease__V1__AdminStatusReply *)reply;
        return r;
}

static json_t *losses_json(const Kvlease__V1__AdminRestartReply *m, const char *binary)
{
        json_t *losses = need(json_array());

        if (binary)
                json_array_append_new(losses, json_string(binary));
        for (size_t i = 0; i < m->n_losses; i++)
                json_array_append_new(losses, json_string(m->losses[i]));
        return losses;
}

static void print_plan(
        const struct ctl *ctl, const Kvlease__V1__AdminRestartReply *m, const char *binary)
{
        char bytes[FORMAT_BYTES_MAX];

        if (ctl->format.json) {
                show_json(json_pack("{s:b, s:i, s:i, s:i, s:I, s:I, s:I, s:i, s:i, s:o, s:i}",
                        "keeps_state", m->keeps_state, "state_layout", (int)m->state_layout,
                        "kept_fds", (int)m->kept_fds, "kept_max", (int)m->kept_max, "pages",
                        (json_int_t)m->pages, "bound_bytes", (json_int_t)m->bound_bytes, "sessions",
                        (json_int_t)m->sessions, "clients_kept", (int)m->clients_kept,
                        "clients_lost", (int)m->clients_lost, "losses", losses_json(m, binary),
                        "more_losses", (int)m->more_losses));
                return;
        }
        if (m->keeps_state)
                printf("kept: %" PRIu64 " pages in %s, %" PRIu64
                       " sessions, %u clients; %u of at most %u descriptors\n",
                        m->pages, format_bytes(m->bound_bytes, bytes), m->sessions, m->clients_kept,
                        m->kept_fds, m->kept_max);
        if (binary)
                printf("lost: %s\n", binary);
        for (size_t i = 0; i < m->n_losses; i++) {
                char *text = text_printable(m->losses[i]);

                printf("lost: %s\n", text);
                free(text);
        }
        if (m->more_losses > 0)
                printf("lost: %u other things\n", m->more_losses);
        if (!binary && m->n_losses + m->more_losses == 0)
                puts("nothing would be lost");
}

static int greet_next(const struct ctl *ctl, uint64_t begin_nsec)
{
        const Kvlease__V1__AdminStatusReply *s;
        int r = ask_status(ctl->admin, &s);

        if (r == CTL_OK && ctl->format.json)
                show_json(json_pack("{s:b, s:f, s:I, s:i}", "restarted", 1, "seconds",
                        (double)(clock_now_nsec() - begin_nsec) / NSEC_PER_SEC, "pages",
                        (json_int_t)s->pages_sealed, "clients", (int)s->n_clients));
        else if (r == CTL_OK)
                printf("restarted in %.2f s: %" PRIu64 " pages, %u clients\n",
                        (double)(clock_now_nsec() - begin_nsec) / NSEC_PER_SEC, s->pages_sealed,
                        s->n_clients);
        return r;
}

/* The next daemon answers at the same socket, which is kept; or at one that it makes. Not by its
 * process that this one is known to have ended, which may be of another pid namespace. */
static int restart(const struct ctl *ctl)
{
        const Kvlease__V1__AdminRestartReply *m;
        const char *timeout = ctl->options[CTL_OPTION_TIMEOUT];
        uint64_t begin_nsec = clock_now_nsec(), timeout_nsec = 0;
        int r = parse_duration(timeout ? timeout : TIMEOUT_TEXT, &timeout_nsec);

        r = r < 0 ? CTL_USAGE : ask_restart(ctl, false, &m);
        if (r == CTL_OK)
                r = admin_await_next(
                        ctl->admin, begin_nsec + MIN(timeout_nsec, UINT64_MAX - begin_nsec));
        return r == CTL_OK ? greet_next(ctl, begin_nsec) : r;
}

int check_restart(const struct ctl *ctl)
{
        const char *timeout = ctl->options[CTL_OPTION_TIMEOUT];
        uint64_t nsec;

        if (ctl->options[CTL_OPTION_CHECK] && (timeout || ctl->options[CTL_OPTION_FORCE]))
                return fail(CTL_USAGE, "--check restarts nothing: leave --force and --timeout out");
        if (timeout && parse_duration(timeout, &nsec) < 0)
                return fail(CTL_USAGE, "'%s' is no time: try 90s, 5min or 2h", timeout);
        return CTL_OK;
}

int verb_restart(const struct ctl *ctl)
{
        bool is_check = ctl->options[CTL_OPTION_CHECK], is_forced = ctl->options[CTL_OPTION_FORCE];
        const Kvlease__V1__AdminRestartReply *m;
        const Kvlease__V1__AdminStatusReply *s;
        char *binary = NULL;
        struct process process = {0};
        bool loses;
        int r = ask_status(ctl->admin, &s);

        if (r == CTL_OK) {
                process = (struct process){s->pid, s->pid_namespace};
                r = ask_restart(ctl, true, &m);
        }
        if (r != CTL_OK)
                return r;
        if (m->keeps_state)
                binary = judge_binary(ctl, &process, m->state_layout);
        loses = binary || m->n_losses + m->more_losses > 0;
        if (is_check || (loses && !is_forced))
                print_plan(ctl, m, binary);
        free(binary);
        if (is_check)
                return loses ? CTL_LOSS : CTL_OK;
        if (loses && !is_forced) {
                fflush(stdout);
                return fail(CTL_LOSS,
                        "not restarted, for what would be lost: --force does it all the same");
        }
        return restart(ctl);
}
