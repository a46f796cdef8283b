/* kvleasectl: the administrator's end of kvleased. */
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/admin.h"
#include "client/ctl/option.h"
#include "client/ctl/verb.h"
#include "kvlease-version.h"

#define DEFAULT_DIR "/run/kvlease"

/* DIR/admin.sock; for those who may only read, its monitor.sock. Returns owned. */
static char *socket_in(const char *dir)
{
        char *admin = NULL, *monitor = NULL, *chosen;

        if (asprintf(&admin, "%s/admin.sock", dir) < 0 ||
                asprintf(&monitor, "%s/monitor.sock", dir) < 0)
                need(NULL);
        chosen = access(admin, W_OK) < 0 && errno == EACCES && access(monitor, W_OK) == 0 ? monitor
                                                                                          : admin;
        free(chosen == admin ? monitor : admin);
        return chosen;
}

/* Returns owned. */
static char *socket_path(const struct ctl *ctl)
{
        const char *dir = ctl->options[CTL_OPTION_RUNTIME_DIR];
        const char *env = getenv("KVLEASE_ADMIN_SOCKET");

        if (ctl->options[CTL_OPTION_SOCKET])
                return need(strdup(ctl->options[CTL_OPTION_SOCKET]));
        if (!dir && env && env[0])
                return need(strdup(env));
        return socket_in(dir ? dir : DEFAULT_DIR);
}

static int run_command(struct ctl *ctl)
{
        int r;

        if (ctl->options[CTL_OPTION_HELP]) {
                if (ctl->options[CTL_OPTION_JSON])
                        return verb_help_json(stdout);
                if (ctl->verb)
                        verb_help(ctl->verb, stdout);
                else
                        verb_help_all(stdout);
                return CTL_OK;
        }
        if (ctl->options[CTL_OPTION_VERSION]) {
                puts("kvleasectl " KVLEASE_VERSION);
                return CTL_OK;
        }
        r = ctl->verb->check ? ctl->verb->check(ctl) : CTL_OK;
        if (r != CTL_OK)
                return r;
        ctl->socket_path = socket_path(ctl);
        ctl->format = (struct show_format){
                .json = ctl->options[CTL_OPTION_JSON],
                .plain_numbers = ctl->options[CTL_OPTION_BYTES],
                .headings = !ctl->options[CTL_OPTION_NO_HEADINGS],
        };
        r = ctl->verb->offline ? CTL_OK : admin_open(ctl->socket_path, &ctl->admin);
        return r == CTL_OK ? ctl->verb->run(ctl) : r;
}

/* Has the reader of a pipe ended, as `| head` does? */
static bool nobody_reads(void)
{
        struct pollfd p = {STDOUT_FILENO, POLLOUT, 0};

        return poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP));
}

/* Returns an error code if the output was cut off: it must not look like a whole answer. */
static int finish_output(int code)
{
        errno = 0;
        if (fflush(stdout) == 0 && !ferror(stdout))
                return code;
        if (nobody_reads())
                return CTL_REFUSED;
        return fail(CTL_REFUSED, "can't write the result: %s",
                errno ? strerror(errno) : "output error");
}

int main(int argc, char **argv)
{
        struct ctl ctl = {0};
        int r;

        setlocale(LC_CTYPE, ""); /* which bytes libsmartcols may print as they are */
        signal(SIGPIPE, SIG_IGN);
        r = options_parse(argc, argv, &ctl);
        if (r == CTL_OK)
                r = run_command(&ctl);
        admin_close(ctl.admin);
        free(ctl.socket_path);
        return finish_output(r);
}
