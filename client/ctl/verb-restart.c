/* Restarting kvleased: shows what a restart would keep and lose, and does it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "client/ctl/admin.h"
#include "client/ctl/program.h"
#include "client/ctl/verb.h"
#include "proto/kvlease.pb-c.h"
#include "proto/msg.h"

#define TIMEOUT_TEXT   "30s" /* not tuned */
#define CONFIG_REFUSED 2     /* kvleased's exit code */

/* Copied from the status, which the next call frees. */
struct process {
        uint64_t pid, pid_namespace;
};

/* Whether the pid is valid here: in another namespace it is another process. */
static bool is_here(const struct process *p)
{
        struct stat st;

        return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == p->pid_namespace;
}

/* Finds the program that would be started: as named, or the daemon's, upgraded or not. */
static bool find_binary(
        const struct ctl *ctl, const struct process *p, char ret_path[PROGRAM_PATH_BYTES])
{
        const char *named = ctl->options[CTL_OPTION_BINARY];

        if (!named)
                return is_here(p) && program_of("", p->pid, ret_path) >= 0;
        snprintf(ret_path, PROGRAM_PATH_BYTES, "%s", named);
        return true;
}

/* Whether a list of versions such as "1 2" (kvleased --state-layouts) has the number. */
static bool has_number(const char *list, uint32_t number)
{
        char *end;

        for (const char *at = list; *at; at = *end ? end + 1 : end)
                if (strtoul(at, &end, 10) == number && end != at)
                        return true;
        return false;
}

/* Checks that the next program can read the stored state. Returns NULL, or a sentence (owned). */
static char *judge_binary(const struct ctl *ctl, const struct process *p, uint32_t layout)
{
        char path[PROGRAM_PATH_BYTES], layouts[256], *why = NULL, *printable;
        int n;

        if (!find_binary(ctl, p, path)) {
                n = asprintf(&why,
                        "perhaps everything: the program of process %" PRIu64
                        " can't be seen from here; name it with --binary, or ask as root, and in the daemon's pid namespace",
                        p->pid);
                return need(n < 0 ? NULL : why);
        }
        printable = text_printable(path);
        if (program_read((const char *[]){path, "--state-layouts", NULL}, false, layouts,
                    sizeof(layouts)) != 0)
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

#define ARGUMENTS_BYTES (1 << 17)
#define ARGUMENTS_MAX   1024

/* Whether this user reads files as the daemon does: root, or the daemon's user. */
static bool is_as_daemon(const struct process *p)
{
        char path[64];
        struct stat st;

        snprintf(path, sizeof(path), "/proc/%" PRIu64, p->pid);
        return stat(path, &st) == 0 && (geteuid() == 0 || geteuid() == st.st_uid);
}

/* Reads the daemon's arguments into `argv`, after `first`, ending with NULL; `text` (owned) holds
 * them. Returns false if they are unknown, or one is a file relative to the daemon's directory. */
static bool read_arguments(const struct process *p, const char *first,
        const char *argv[ARGUMENTS_MAX + 3], char **ret_text)
{
        char path[64], *text;
        size_t len, n = 0;

        snprintf(path, sizeof(path), "/proc/%" PRIu64 "/cmdline", p->pid);
        if (file_read(path, ARGUMENTS_BYTES, &text, &len) < 0)
                return false;
        *ret_text = text;
        argv[n++] = first;
        argv[n++] = "--check-config";
        for (const char *at = text + strlen(text) + 1; at < text + len; at += strlen(at) + 1) {
                bool names_file =
                        strcmp(argv[n - 1], "-c") == 0 || strcmp(argv[n - 1], "--config") == 0;

                if (n == ARGUMENTS_MAX + 2 || (names_file && at[0] != '/'))
                        return false;
                argv[n++] = at;
        }
        argv[n] = NULL;
        return true;
}

/* Checks the configuration by the next program. Returns NULL, or a sentence (owned). If it can't be
 * run as the daemon would, the daemon's own check must do. */
static char *judge_config(const struct ctl *ctl, const struct process *p)
{
        const char *argv[ARGUMENTS_MAX + 3];
        char path[PROGRAM_PATH_BYTES], said[4096], *printable, *why = NULL;
        _cleanup_free_ char *text = NULL;

        if (!is_here(p) || !is_as_daemon(p) || !find_binary(ctl, p, path) ||
                !read_arguments(p, path, argv, &text) ||
                program_read(argv, true, said, sizeof(said)) != CONFIG_REFUSED)
                return NULL;
        said[strcspn(said, "\n")] = '\0';
        printable = text_printable(said);
        if (asprintf(&why, "everything: %s refuses the configuration: %s", path, printable) < 0)
                why = need(NULL);
        free(printable);
        return why;
}

static int ask_restart(
        const struct ctl *ctl, bool check, const Kvlease__V1__AdminRestartReply **ret_reply)
{
        Kvlease__V1__AdminRestartRequest request = KVLEASE__V1__ADMIN_RESTART_REQUEST__INIT;
        const ProtobufCMessage *reply;
        int r;

        request.check = request.config = check;
        request.force = ctl->options[CTL_OPTION_FORCE] != NULL;
        r = admin_call(ctl->admin, MSG_ADMIN_RESTART, &request.base, &reply);
        if (r == CTL_OK)
                *ret_reply = (const Kvlease__V1__AdminRestartReply *)reply;
        return r;
}

/* Asks for the daemon's process. Before and after an upgrade it may be an older one: it knows this
 * request, too. */
static int ask_process(struct admin *admin, const Kvlease__V1__AdminProcessReply **ret_reply)
{
        Kvlease__V1__AdminListRequest request = KVLEASE__V1__ADMIN_LIST_REQUEST__INIT;
        const ProtobufCMessage *reply;
        int r = admin_call(admin, MSG_ADMIN_PROCESS, &request.base, &reply);

        if (r == CTL_OK)
                *ret_reply = (const Kvlease__V1__AdminProcessReply *)reply;
        return r;
}

/* Makes a list of losses, the program's first. */
static json_t *losses_json(const Kvlease__V1__AdminRestartReply *m, const char *binary)
{
        json_t *losses = show_texts(m->n_losses, m->losses);

        if (binary)
                json_array_insert_new(losses, 0, need(json_string(binary)));
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
                printf("kept: %" PRIu64 " page%s in %s, %" PRIu64
                       " session%s, %u client%s; %u of at most %u descriptors\n",
                        m->pages, PLURAL(m->pages), format_bytes(m->bound_bytes, bytes),
                        m->sessions, PLURAL(m->sessions), m->clients_kept, PLURAL(m->clients_kept),
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
        const Kvlease__V1__AdminProcessReply *s;
        int r = ask_process(ctl->admin, &s);

        if (r == CTL_OK && ctl->format.json)
                show_json(json_pack("{s:b, s:f, s:I, s:i}", "restarted", 1, "seconds",
                        (double)(clock_now_nsec() - begin_nsec) / NSEC_PER_SEC, "pages",
                        (json_int_t)s->pages_sealed, "clients", (int)s->n_clients));
        else if (r == CTL_OK)
                printf("restarted in %.2f s: %" PRIu64 " page%s, %u client%s\n",
                        (double)(clock_now_nsec() - begin_nsec) / NSEC_PER_SEC, s->pages_sealed,
                        PLURAL(s->pages_sealed), s->n_clients, PLURAL(s->n_clients));
        return r;
}

/* Restarts the daemon. The next one answers at the same stored socket, or at one that it makes. The
 * end of this one is seen by its connection, as its process may be in another pid namespace. */
static int restart_daemon(const struct ctl *ctl)
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
                return fail(CTL_USAGE, "--check doesn't restart: remove --force and --timeout");
        if (timeout && parse_duration(timeout, &nsec) < 0)
                return fail_value(ctl, CTL_OPTION_TIMEOUT, "a time, such as 90s, 5min or 2h");
        return CTL_OK;
}

int verb_restart(const struct ctl *ctl)
{
        bool is_check = ctl->options[CTL_OPTION_CHECK], is_forced = ctl->options[CTL_OPTION_FORCE];
        const Kvlease__V1__AdminRestartReply *m;
        const Kvlease__V1__AdminProcessReply *s;
        char *binary = NULL;
        struct process process = {0};
        bool loses;
        int r = ask_process(ctl->admin, &s);

        if (r == CTL_OK) {
                process = (struct process){s->pid, s->pid_namespace};
                r = ask_restart(ctl, true, &m);
        }
        if (r != CTL_OK)
                return r;
        if (m->keeps_state)
                binary = judge_binary(ctl, &process, m->state_layout);
        if (!binary)
                binary = judge_config(ctl, &process);
        loses = binary || m->n_losses + m->more_losses > 0;
        if (is_check || (loses && !is_forced))
                print_plan(ctl, m, binary);
        free(binary);
        if (is_check)
                return loses ? CTL_LOSS : CTL_OK;
        if (loses && !is_forced) {
                fflush(stdout);
                return fail(CTL_LOSS,
                        "not restarted, since the restart would lose this: --force restarts anyway");
        }
        return restart_daemon(ctl);
}
