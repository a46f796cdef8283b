#include "lab/bench/peer-process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/integration/private-daemon.h"

#define LINE_MAX_BYTES   65536
#define TIMEOUT_MSEC     600000 /* imports, and filling a slow one with 102,400 pages. Not tuned */
#define INSTALL          "sh tests/run.sh --part peers installs it"
#define PATH_MAX_BYTES   4096
#define SHOWN_LINE_CHARS 200

static const char *interpreter(void)
{
        const char *named = getenv("KVL_PEERS_PYTHON");

        if (named && named[0])
                return named;
        return access(PEERS_PYTHON, X_OK) == 0 ? PEERS_PYTHON : "python3";
}

/* The package's folder comes before what the environment names. */
static void python_path(char *buf, size_t size)
{
        const char *more = getenv("PYTHONPATH");

        snprintf(buf, size, "PYTHONPATH=%s%s%s", PEERS_DIR, more ? ":" : "", more ? more : "");
}

static int spawn(struct peer_process *p, const char *name, unsigned n_texts, const char *socket,
        const int cores[N_CORES], int pipes[2][2])
{
        char texts[16], core[16], server_core[16], path[PATH_MAX_BYTES], socket_line[256];
        const char *argv[] = {interpreter(), "-m", "peers", name, "--texts", texts, "--core", core,
                "--server-core", server_core, NULL};
        const char *env[] = {path, socket_line, "PYTHONDONTWRITEBYTECODE=1", NULL};
        bool is_shown = getenv("KVL_PEERS_VERBOSE") != NULL;
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC), r;

        snprintf(texts, sizeof(texts), "%u", n_texts);
        snprintf(core, sizeof(core), "%d", cores[CORE_CLIENT]);
        snprintf(server_core, sizeof(server_core), "%d", cores[CORE_OTHER]);
        snprintf(socket_line, sizeof(socket_line), "KVLEASE_SOCKET=%s", socket);
        python_path(path, sizeof(path));
        r = proc_spawn(
                argv, env, (struct proc_files){pipes[0][0], pipes[1][1], is_shown ? -1 : null});
        fd_close(null);
        if (r > 0)
                p->pid = r;
        return r < 0 ? r : 0;
}

static int start_process(struct peer_process *p, const char *name, unsigned n_texts,
        const char *socket, const int cores[N_CORES])
{
        int pipes[2][2] = {{-1, -1}, {-1, -1}};
        int r = 0;

        if (pipe2(pipes[0], O_CLOEXEC) < 0 || pipe2(pipes[1], O_CLOEXEC) < 0)
                r = -errno;
        if (r == 0)
                r = spawn(p, name, n_texts, socket, cores, pipes);
        fd_close(pipes[0][0]);
        fd_close(pipes[1][1]);
        if (r == 0) {
                p->requests = fdopen(pipes[0][1], "w");
                p->lines = fdopen(pipes[1][0], "r");
        }
        if (!p->requests)
                fd_close(pipes[0][1]);
        if (!p->lines)
                fd_close(pipes[1][0]);
        return r < 0 ? r : p->requests && p->lines ? 0 : -ENOMEM;
}

/* The next line without its end. 0; -EIO: told. It waits for the line's beginning only. */
static int read_line(struct peer_process *p, const char *name, char line[LINE_MAX_BYTES])
{
        struct pollfd wait = {.fd = fileno(p->lines), .events = POLLIN};
        int n = poll(&wait, 1, TIMEOUT_MSEC);

        if (n > 0 && fgets(line, LINE_MAX_BYTES, p->lines)) {
                line[strcspn(line, "\n")] = '\0';
                return 0;
        }
        fprintf(stderr, "kvlease-bench: peers: %s %s (KVL_PEERS_VERBOSE=1 shows what it prints)\n",
                name, n == 0 ? "says nothing" : "ended");
        return -EIO;
}

static int refuse(const char *name, const char *line)
{
        fprintf(stderr,
                "kvlease-bench: peers: %s: %.*s (KVL_PEERS_VERBOSE=1 shows what it prints)\n", name,
                SHOWN_LINE_CHARS, line);
        return -EIO;
}

/* "ready ROW..." */
static int take_rows(struct peer_process *p, const char *name, char *line)
{
        char *state = NULL;

        for (char *word = strtok_r(line, " ", &state); word; word = strtok_r(NULL, " ", &state)) {
                if (word == line)
                        continue;
                if (p->n_rows == PEER_MAX_ROWS || strlen(word) > PEER_ROW_MAX)
                        return refuse(name, "its rows are too many or too long");
                snprintf(p->rows[p->n_rows++], PEER_ROW_MAX + 1, "%s", word);
        }
        return p->n_rows > 0 ? 0 : refuse(name, "it has no rows");
}

static int await_ready(struct peer_process *p, const char *name)
{
        char line[LINE_MAX_BYTES];

        if (read_line(p, name, line) < 0)
                return -EIO;
        if (strncmp(line, "missing ", 8) == 0) {
                fprintf(stderr, "kvlease-bench: peers: no figures of %s: %.*s: " INSTALL "\n", name,
                        SHOWN_LINE_CHARS, line + 8);
                return -ENOENT;
        }
        return strncmp(line, "ready ", 6) == 0 ? take_rows(p, name, line) : refuse(name, line);
}

int peer_process_start(struct peer_process *ret, const char *name, unsigned n_texts,
        const char *socket, const int cores[N_CORES])
{
        int r;

        *ret = (struct peer_process){0};
        signal(SIGPIPE, SIG_IGN);
        r = start_process(ret, name, n_texts, socket, cores);
        r = r < 0 ? bench_fail(name, r) : await_ready(ret, name);
        if (r < 0)
                peer_process_stop(ret);
        return r;
}

/* n nanoseconds, and nothing else. */
static int take_answer(const char *name, const char *line, unsigned n, struct series *to_series)
{
        const char *at = line;

        for (unsigned i = 0; i < n; ++i) {
                char *end;
                double nsec = strtod(at, &end);

                if (end == at || !(nsec > 0))
                        return refuse(name, line);
                series_add(to_series, nsec / 1000);
                at = end;
        }
        return *at ? refuse(name, line) : 0;
}

int peer_process_hits(struct peer_process *p, const char *name, unsigned row, unsigned n,
        struct series *to_series)
{
        char line[LINE_MAX_BYTES];

        fprintf(p->requests, "%s %u\n", p->rows[row], n);
        fflush(p->requests);
        if (read_line(p, name, line) < 0)
                return -EIO;
        return take_answer(name, line, n, to_series);
}

void peer_process_stop(struct peer_process *p)
{
        if (p->requests)
                fclose(p->requests);
        if (p->lines)
                fclose(p->lines);
        if (p->pid > 0) {
                kill(p->pid, SIGKILL);
                waitpid(p->pid, NULL, 0);
        }
        *p = (struct peer_process){0};
}
