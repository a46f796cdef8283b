#include "tests/integration/exporter.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

#define START_MSEC 30000
#define WORDS_MAX  16

static void wait_until_it_listens(const struct exporter *e)
{
        char *text;
        size_t len;

        for (unsigned i = 0; i < START_MSEC / 10; i++) {
                bool listens;

                assert_int_equal(file_read(e->log, 1 << 16, &text, &len), 0);
                listens = strstr(text, "listening at") != NULL;
                free(text);
                if (listens)
                        return;
                assert_int_equal(kill(e->pid, 0), 0);
                sleep_msec(10);
        }
        fail_msg("the exporter doesn't listen");
}

void exporter_start(struct exporter *e, const struct harness *h, const char *const *words)
{
        const char *argv[WORDS_MAX] = {
                program_exporter(), "--socket", h->daemon.admin, "--listen", e->socket};
        const char *wrapped[PROGRAM_ARGS_MAX];
        struct proc_files files = {-1, -1, -1};
        size_t n = 5;

        snprintf(e->socket, sizeof(e->socket), "%.90s/http", h->daemon.dir);
        snprintf(e->log, sizeof(e->log), "%.90s/http.log", h->daemon.dir);
        for (; words && *words; words++) {
                assert_true(n + 1 < WORDS_MAX);
                argv[n++] = *words;
        }
        program_wrap(argv, wrapped);
        files.out = open(e->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(files.out >= 0);
        e->pid = proc_spawn(wrapped, NULL, files);
        fd_close(files.out);
        assert_true(e->pid > 0);
        wait_until_it_listens(e);
}

void exporter_stop(struct exporter *e)
{
        int status;

        assert_int_equal(kill(e->pid, SIGTERM), 0);
        assert_int_equal(proc_wait(e->pid, START_MSEC, &status), 0);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        e->pid = 0;
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

int exporter_connect(const struct exporter *e)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_true(fd >= 0 && strlen(e->socket) < sizeof(a.sun_path));
        strcpy(a.sun_path, e->socket);
        assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
        return fd;
}

static void send_all(int fd, const char *text)
{
        size_t len = strlen(text);

        while (len > 0) {
                ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

                assert_true(n > 0);
                text += n;
                len -= (size_t)n;
        }
}

/* Returns owned. */
static char *read_all(int fd)
{
        size_t len = 0, size = 1 << 16;
        char *text = malloc(size);

        assert_non_null(text);
        for (;;) {
                ssize_t n = read(fd, text + len, size - len - 1);
                assert_true(n >= 0);
                if (n == 0)
                        break;
                len += (size_t)n;
                if (len + 1 == size) {
                        char *more = realloc(text, size *= 2);

                        assert_non_null(more);
                        text = more;
                }
        }
        text[len] = '\0';
        return text;
}

void http_ask(const struct exporter *e, const char *head, struct http_answer *ret)
{
        _cleanup_fd_ int fd = exporter_connect(e);
        char *end;

        send_all(fd, head);
        send_all(fd, "Host: x\r\nConnection: close\r\n\r\n");
        ret->head = read_all(fd);
        end = strstr(ret->head, "\r\n\r\n");
        assert_non_null(end);
        assert_int_equal(sscanf(ret->head, "HTTP/1.1 %d", &ret->status), 1);
        ret->body = strdup(end + 4);
        assert_non_null(ret->body);
        end[2] = '\0';
}

void http_answer_free(struct http_answer *a)
{
        free(a->head);
        free(a->body);
}

char *exporter_metrics(const struct exporter *e)
{
        struct http_answer a;

        http_ask(e, "GET /metrics HTTP/1.1\r\n", &a);
        assert_int_equal(a.status, 200);
        free(a.head);
        return a.body;
}

/* ---- what it says ---------------------------------------------------------------------------- */

static const char *find_line(const char *metrics, const char *beginning)
{
        const char *at = metrics;

        while ((at = strstr(at, beginning)) && at > metrics && at[-1] != '\n')
                at++;
        return at;
}

bool metric_exists(const char *metrics, const char *beginning)
{
        return find_line(metrics, beginning) != NULL;
}

double metric_of(const char *metrics, const char *series)
{
        _cleanup_free_ char *beginning = NULL;
        const char *at;
        char *end;
        double value;

        assert_true(asprintf(&beginning, "%s ", series) > 0);
        at = find_line(metrics, beginning);
        if (!at)
                fail_msg("no %s", series);
        value = strtod(at + strlen(beginning), &end);
        assert_int_equal(*end, '\n');
        if (find_line(end, beginning))
                fail_msg("%s stands there twice", series);
        return value;
}
