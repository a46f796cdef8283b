#include "client/ctl/remote.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/parse.h"
#include "client/ctl/option.h"
#include "client/ctl/verb.h"
#include "client/ctl/width.h"

extern char **environ;

#define SCHEME "ssh://"

/* Exit codes of ssh and of shells; ours are lower. */
#define SSH_FAILED    255
#define SHELL_CANNOT  126 /* it is there and can't be run */
#define SHELL_MISSING 127

/* ---- where ----------------------------------------------------------------------------------- */

/* Letters, digits and what names of users and hosts may have besides; no beginning of an option. */
static bool is_name(const char *text, size_t len, const char *besides)
{
        if (len == 0 || len > REMOTE_NAME_MAX || text[0] == '-')
                return false;
        for (size_t i = 0; i < len; i++) {
                char c = text[i];

                if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                            (c && strchr(besides, c))))
                        return false;
        }
        return true;
}

static int fail_url(const char *url)
{
        return fail(CTL_USAGE, "--host is '%s': ssh://[USER@]HOST[:PORT]", url);
}

/* Copies a part that was checked. */
static void copy_part(char *to, const char *from, size_t len)
{
        memcpy(to, from, len);
        to[len] = '\0';
}

static bool take_user(const char **at, struct remote *ret)
{
        const char *end = strchr(*at, '@');

        if (!end)
                return true;
        if (!is_name(*at, (size_t)(end - *at), "._-"))
                return false;
        copy_part(ret->user, *at, (size_t)(end - *at));
        *at = end + 1;
        return true;
}

/* "HOST", or an address of IPv6 in brackets. */
static bool take_host(const char **at, struct remote *ret)
{
        bool is_bracketed = **at == '[';
        const char *begin = *at + is_bracketed;
        size_t len = strcspn(begin, is_bracketed ? "]" : ":/");

        if (!is_name(begin, len, is_bracketed ? ":.%" : "._-") ||
                (is_bracketed && begin[len] != ']'))
                return false;
        copy_part(ret->host, begin, len);
        *at = begin + len + is_bracketed;
        return true;
}

static bool take_port(const char **at, struct remote *ret)
{
        size_t len;
        uint64_t port;

        if (**at != ':')
                return true;
        len = strcspn(++*at, "/");
        if (len == 0 || len >= sizeof(ret->port))
                return false;
        copy_part(ret->port, *at, len);
        *at += len;
        return parse_u64(ret->port, &port) == 0 && port > 0 && port <= UINT16_MAX;
}

int remote_parse(const char *url, struct remote *ret)
{
        const char *at = url + strlen(SCHEME);

        *ret = (struct remote){0};
        if (strncmp(url, SCHEME, strlen(SCHEME)) != 0 || !take_user(&at, ret) ||
                !take_host(&at, ret) || !take_port(&at, ret))
                return fail_url(url);
        return *at == '\0' || strcmp(at, "/") == 0 ? CTL_OK : fail_url(url);
}

/* ---- what ------------------------------------------------------------------------------------ */

void remote_quote(const char *word, FILE *to)
{
        fputc('\'', to);
        for (; *word; word++)
                /* fish takes backslashes between quotes for its own, others don't; outside of them
                 * all take the character behind one as it is. */
                if (*word == '\'' || *word == '\\')
                        fprintf(to, "'\\%c'", *word);
                else
                        fputc(*word, to);
        fputc('\'', to);
}

static void put_word(const char *word, FILE *to)
{
        fputc(' ', to);
        remote_quote(word, to);
}

static void put_option(const struct ctl *ctl, size_t o, FILE *to)
{
        char *word = NULL;

        if (asprintf(&word, "--%s%s%s", option_rows[o].name, option_rows[o].value ? "=" : "",
                    ctl->options[o]) < 0)
                need(NULL);
        put_word(word, to);
        free(word);
}

/* The command line for the shell there. Owned. */
static char *remote_command(const struct ctl *ctl)
{
        char *text = NULL;
        size_t size = 0, width = output_width();
        FILE *to = need(open_memstream(&text, &size));
        const char *name = ctl->verb->name, *second = strchr(name, ' ');
        _cleanup_free_ char *first = need(strndup(name, strcspn(name, " ")));

        /* What is printed there is read here. */
        if (width > 0)
                fprintf(to, "env KVLEASE_COLUMNS=%zu ", width);
        fputs("kvleasectl", to);
        for (size_t o = 0; o < CTL_N_OPTIONS; o++)
                if (ctl->options[o] && o != CTL_OPTION_HOST)
                        put_option(ctl, o, to);
        put_word("--", to);
        put_word(first, to);
        if (second)
                put_word(second + 1, to);
        for (unsigned i = 0; i < ctl->n_args; i++)
                put_word(ctl->args[i], to);
        fclose(to);
        return need(text);
}

/* ---- running --------------------------------------------------------------------------------- */

static volatile sig_atomic_t ssh_pid, passed_on; /* the last signal that was; 0: none */

static void on_signal(int number)
{
        passed_on = number;
        if (ssh_pid > 0)
                kill(ssh_pid, number);
}

/* top's screen alone needs a terminal there, and keys. Others read nothing: a loop that runs
 * kvleasectl for each line that it reads keeps its lines. */
static const char *terminal_option(const struct ctl *ctl)
{
        return ctl->verb->run == verb_top && !ctl->options[CTL_OPTION_BATCH] ? "-t" : "-n";
}

/* Starts ssh. 0 or an errno. */
static int start_ssh(const struct ctl *ctl, const struct remote *r, char *command, pid_t *ret_pid)
{
        const char *argv[16];
        posix_spawnattr_t attributes;
        sigset_t defaults;
        int n = 0, error;

        argv[n++] = "ssh";
        argv[n++] = terminal_option(ctl);
        if (r->user[0]) {
                argv[n++] = "-l";
                argv[n++] = r->user;
        }
        if (r->port[0]) {
                argv[n++] = "-p";
                argv[n++] = r->port;
        }
        argv[n++] = "--";
        argv[n++] = r->host;
        argv[n++] = command;
        argv[n] = NULL;
        posix_spawnattr_init(&attributes);
        sigemptyset(&defaults);
        sigaddset(&defaults, SIGPIPE); /* which main() ignores */
        posix_spawnattr_setsigdefault(&attributes, &defaults);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
        error = posix_spawnp(ret_pid, "ssh", NULL, &attributes, (char **)argv, environ);
        posix_spawnattr_destroy(&attributes);
        return error;
}

/* What became of ssh, as our exit code. */
static int judge_end(const struct remote *r, int status)
{
        int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

        /* ssh takes a signal that ends it for a failure of its own. */
        if (passed_on && WIFEXITED(status) && WEXITSTATUS(status) == SSH_FAILED)
                number = passed_on;
        if (number) {
                signal(number, SIG_DFL);
                raise(number); /* as if we had been ended so ourselves */
                return CTL_UNREACHABLE;
        }
        switch (WEXITSTATUS(status)) {
        case SSH_FAILED:
                return fail(CTL_UNREACHABLE,
                        "ssh to %s failed, or the connection broke: ssh says why; try ssh %s true",
                        r->host, r->host);
        case SHELL_MISSING:
                return fail(CTL_UNREACHABLE,
                        "there is no kvleasectl on %s in the PATH of ssh's shell: install "
                        "kvlease-tools there",
                        r->host);
        case SHELL_CANNOT:
                return fail(CTL_UNREACHABLE, "kvleasectl can't be run on %s by this user", r->host);
        default:
                return WEXITSTATUS(status);
        }
}

int remote_run(const struct ctl *ctl)
{
        const int signals[] = {SIGINT, SIGTERM, SIGHUP};
        _cleanup_free_ char *command = NULL;
        struct remote r;
        int status, error, code = remote_parse(ctl->options[CTL_OPTION_HOST], &r);
        pid_t pid;

        if (code != CTL_OK)
                return code;
        command = remote_command(ctl);
        error = start_ssh(ctl, &r, command, &pid);
        if (error == ENOENT)
                return fail(CTL_UNREACHABLE, "there is no ssh in PATH: install openssh-client");
        if (error)
                return fail(CTL_UNREACHABLE, "ssh can't be started: %s", strerror(error));
        ssh_pid = pid;
        for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
                signal(signals[i], on_signal);
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return fail(
                                CTL_UNREACHABLE, "ssh can't be waited for: %s", strerror(errno));
        return judge_end(&r, status);
}
