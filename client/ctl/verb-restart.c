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

/* The program that would be started: as named, or what the daemon runs, upgraded or not. */
static bool find_binary(const struct ctl *ctl, uint64_t pid, char ret_path[PATH_BYTES])
{
        static const char deleted[] = " (deleted)";
        const char *named = ctl->options[CTL_OPTION_BINARY];
        char link[64];
        ssize_t n;

        if (named) {
                snprintf(ret_path, PATH_BYTES, "%s", named);
                return true;
        }
        snprintf(link, sizeof(link), "/proc/%" PRIu64 "/exe", pid);
        n = readlink(link, ret_path, PATH_BYTES - 1);
        if (n <= 0)
                return false;
        ret_path[n] = '\0';
        /* Replaced by another file of that name. */
        if ((size_t)n > sizeof(deleted) && strcmp(ret_path + n - sizeof(deleted) + 1, deleted) == 0)
                ret_path[(size_t)n - sizeof(deleted) + 1] = '\0';
        return true;
}

/* What a program prints, up to `size`, within PROGRAM_MSEC. False: it didn't end well. */
static bool read_output(const char *path, const char *option, char *ret, size_t size)
{
        char *argv[] = {(char *)path, (char *)option, NULL};
        posix_spawn_file_actions_t actions;
        struct pollfd p = {.events = POLLIN};
        size_t len = 0;
        ssize_t n = 1;
        int fds[2], status = -1, r;
        pid_t pid;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return false;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
        r = posix_spawn(&pid, path, &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        close(fds[1]);
        if (r != 0) {
                close(fds[0]);
                return false;
        }
        p.fd = fds[0];
        while (n > 0 && len + 1 < size && poll(&p, 1, PROGRAM_MSEC) > 0) {
                n = read(fds[0], ret + len, size - 1 - len);
                len += n > 0 ? (size_t)n : 0;
        }
        close(fds[0]);
        if (n != 0)
                kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        ret[len] = '\0';
        return n == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
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
static char *judge_binary(const struct ctl *ctl, uint64_t pid, uint32_t layout)
{
        char path[PATH_BYTES], layouts[256], *why = NULL, *printable;
        int n;

        if (!find_binary(ctl, pid, path)) {
                n = asprintf(&why,
                        "perhaps everything: the program of process %" PRIu64
                        " can't be seen from here; name it with --binary, or ask as root",
                        pid);
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

/* False: it is still there after the timeout. */
static bool wait_exit(int pidfd, uint64_t timeout_nsec)
{
        struct pollfd p = {pidfd, POLLIN, 0};

        return pidfd < 0 || poll(&p, 1, (int)(timeout_nsec / NSEC_PER_MSEC)) > 0;
}

/* The next daemon answers at the same socket, which is kept; or at one that it makes. */
static int greet_next(const struct ctl *ctl, uint64_t begin_nsec)
{
        const Kvlease__V1__AdminStatusReply *s;
        struct admin *admin;
        int r = admin_open(ctl->socket_path, &admin);

        if (r != CTL_OK)
                return r;
        r = ask_status(admin, &s);
        if (r == CTL_OK && ctl->format.json)
                show_json(json_pack("{s:b, s:f, s:I, s:i}", "restarted", 1, "seconds",
                        (double)(clock_now_nsec() - begin_nsec) / NSEC_PER_SEC, "pages",
                        (json_int_t)s->pages_sealed, "clients", (int)s->n_clients));
        else if (r == CTL_OK)
                printf("restarted in %.2f s: %" PRIu64 " pages, %u clients\n",
                        (double)(clock_now_nsec() - begin_nsec) / NSEC_PER_SEC, s->pages_sealed,
                        s->n_clients);
        admin_close(admin);
        return r;
}

static int restart(const struct ctl *ctl, uint64_t pid)
{
        const Kvlease__V1__AdminRestartReply *m;
        const char *timeout = ctl->options[CTL_OPTION_TIMEOUT];
        uint64_t begin_nsec = clock_now_nsec(), timeout_nsec = 0;
        int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
        int r = parse_duration(timeout ? timeout : TIMEOUT_TEXT, &timeout_nsec);

        r = r < 0 ? CTL_USAGE : ask_restart(ctl, false, &m);
        if (r == CTL_OK && !wait_exit(pidfd, timeout_nsec))
                r = fail(CTL_TIMEOUT, "kvleased (process %" PRIu64 ") hasn't ended in %s", pid,
                        timeout ? timeout : TIMEOUT_TEXT);
        fd_close(pidfd);
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
        uint64_t pid = 0;
        bool loses;
        int r = ask_status(ctl->admin, &s);

        if (r == CTL_OK) {
                pid = s->pid;
                r = ask_restart(ctl, true, &m);
        }
        if (r != CTL_OK)
                return r;
        if (m->keeps_state)
                binary = judge_binary(ctl, pid, m->state_layout);
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
        return restart(ctl, pid);
}
