#include "tests/unit/ctl-fake.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/msg.h"
#include "proto/sock.h"
#include "tests/unit/child.h"
#include "tests/unit/ctl-fake-answers.h"
#include "tests/unit/test-support.h"

#define NOBODY 65534

struct fake {
        unsigned n_hang_ups; /* that FAKE_RESTARTED was about to */
        const struct fake_run *run;
        int listen_fd, fd; /* owned, or -1 */
        int err_fd;        /* borrowed: stderr of kvleasectl */
        struct frame_parser parser;
        struct arena arena;
        struct fake_answers answers;
        FILE *requests; /* borrowed */
        char last_request[512];
};

/* ---- the log of requests --------------------------------------------------------------------- */

static void describe(const struct msg_info *info, const ProtobufCMessage *m, FILE *to)
{
        fputs(info->name, to);
        for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
                const ProtobufCFieldDescriptor *field = &m->descriptor->fields[i];
                const void *p = (const char *)m + field->offset;

                if (field->label == PROTOBUF_C_LABEL_REPEATED) {
                        size_t n = *(const size_t *)((const char *)m + field->quantifier_offset);

                        for (size_t j = 0; j < n; j++)
                                if (field->type == PROTOBUF_C_TYPE_UINT64)
                                        fprintf(to, " %s:%" PRIu64, field->name,
                                                (*(const uint64_t *const *)p)[j]);
                                else
                                        fprintf(to, " %s:%s", field->name,
                                                (*(char *const *const *)p)[j]);
                } else if (field->type == PROTOBUF_C_TYPE_STRING) {
                        if ((*(char *const *)p)[0])
                                fprintf(to, " %s:%s", field->name, *(char *const *)p);
                } else if (field->type == PROTOBUF_C_TYPE_BOOL) {
                        if (*(const protobuf_c_boolean *)p)
                                fprintf(to, " %s", field->name);
                } else if (field->type == PROTOBUF_C_TYPE_UINT32) {
                        if (*(const uint32_t *)p)
                                fprintf(to, " %s:%" PRIu32, field->name, *(const uint32_t *)p);
                } else if (field->type == PROTOBUF_C_TYPE_ENUM) {
                        if (*(const int *)p)
                                fprintf(to, " %s:%d", field->name, *(const int *)p);
                } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
                        const ProtobufCBinaryData *bytes = p;

                        if (bytes->len > 0)
                                fprintf(to, " %s:", field->name);
                        for (size_t j = 0; j < bytes->len; j++)
                                fprintf(to, "%02x", bytes->data[j]);
                } else if (field->type == PROTOBUF_C_TYPE_UINT64) {
                        if (*(const uint64_t *)p)
                                fprintf(to, " %s:%" PRIu64, field->name, *(const uint64_t *)p);
                }
        }
}

static void log_request(struct fake *f, const struct msg_info *info, const ProtobufCMessage *m)
{
        char line[sizeof(f->last_request)] = "";
        FILE *to = fmemopen(line, sizeof(line) - 1, "w");

        assert_non_null(to);
        describe(info, m, to);
        fclose(to);
        if (strcmp(line, f->last_request) != 0) /* how often drain polls is a matter of time */
                fprintf(f->requests, "%s\n", line);
        memcpy(f->last_request, line, sizeof(line));
}

/* ---- serving --------------------------------------------------------------------------------- */

static void end_connection(struct fake *f)
{
        f->fd = fd_close(f->fd);
        frame_parser_deinit(&f->parser);
        frame_parser_init(&f->parser);
}

static void send_all(struct fake *f, const void *data, size_t len)
{
        /* If kvleasectl refuses to read on, the test doesn't fail. */
        (void)!send(f->fd, data, len, MSG_NOSIGNAL);
}

static bool hangs_up(struct fake *f)
{
        return f->run->mode == FAKE_HANGUP ||
               (f->run->mode == FAKE_RESTARTED && f->n_hang_ups++ == 0);
}

static void serve_frame(struct fake *f, const struct frame *in)
{
        static uint8_t out[FRAME_MAX_SIZE];
        const struct msg_info *info = msg_find(in->header.type);
        ProtobufCMessage *request, *reply;
        uint64_t seq = in->header.seq;
        int n;

        assert_non_null(info);
        assert_true(info->sockets & MSG_ON_ADMIN);
        arena_reset(&f->arena);
        request = msg_unpack(info->request, &f->arena, in->payload, in->header.length);
        assert_non_null(request);
        if (info->type != MSG_HELLO)
                log_request(f, info, request);
        reply = fake_answer(&f->answers, info, request);
        if (f->run->mode == FAKE_WRONG_SEQ)
                seq++;
        n = msg_pack(out, PROTO_VERSION_MAX, info->type, FRAME_REPLY, seq, 0, reply);
        assert_true(n > 0);
        if (f->run->mode == FAKE_GARBAGE)
                memcpy(out, "HTTP/1.1 400 Bad Request\r\n", 24);
        if (f->run->mode == FAKE_BAD_MESSAGE)
                memset(out + FRAME_HEADER_SIZE, 0xff, (size_t)n - FRAME_HEADER_SIZE);
        if (info->type != MSG_HELLO && hangs_up(f))
                end_connection(f);
        else
                send_all(f, out, (size_t)n);
}

static void serve(struct fake *f)
{
        ssize_t n = sock_receive(f->fd, &f->parser);
        const char *rule = "";
        struct frame in;

        if (n == -EAGAIN)
                return;
        if (n <= 0) {
                end_connection(f);
                return;
        }
        while (f->fd >= 0 && frame_parser_next(&f->parser, &in, &rule) > 0)
                serve_frame(f, &in);
}

static void serve_until_exit(struct fake *f, pid_t pid, int *ret_status)
{
        while (waitpid(pid, ret_status, WNOHANG) == 0) {
                struct pollfd p[] = {
                        {.fd = f->listen_fd, .events = POLLIN}, {.fd = f->fd, .events = POLLIN}};

                if (f->run->mode == FAKE_SLOW && lseek(f->err_fd, 0, SEEK_END) == 0) {
                        poll(NULL, 0, 5);
                        continue;
                }
                poll(p, ARRAY_SIZE(p), 5);
                if (p[0].revents & POLLIN && f->fd < 0)
                        f->fd = accept4(f->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (f->fd >= 0)
                        serve(f);
        }
}

/* ---- running --------------------------------------------------------------------------------- */

/* Makes the socket as the mode wants it; the path is relative to the fresh directory. */
static int make_socket(enum fake_mode mode, const char *dir)
{
        char *path = test_path(dir, "admin.sock");
        int fd = -1;

        if (mode != FAKE_ABSENT) {
                fd = sock_listen(path, 0600);
                assert_true(fd >= 0);
        }
        if (mode == FAKE_DEAF)
                fd = fd_close(fd);
        if (mode == FAKE_FORBIDDEN) {
                /* Root may connect to any socket, and runs kvleasectl as another user. Other users
                 * are refused even as owners. */
                assert_int_equal(chmod(dir, 0755), 0);
                assert_int_equal(chmod(path, geteuid() == 0 ? 0600 : 0), 0);
        }
        free(path);
        return fd;
}

_Noreturn static void child(
        const struct fake_run *run, int binary_fd, const char *dir, int out_fd, int err_fd)
{
        const char *argv[16] = {"kvleasectl"};
        const char *env[] = {"LC_ALL=C", "TZ=UTC", run->env, NULL};
        size_t n = 1;

        if (!run->no_socket_option) {
                argv[n++] = "--socket";
                argv[n++] = "admin.sock";
        }
        for (size_t i = 0; run->args[i]; i++) {
                assert(n + 1 < ARRAY_SIZE(argv));
                argv[n++] = run->args[i];
        }
        if (chdir(dir) < 0 || dup2(out_fd, STDOUT_FILENO) < 0 || dup2(err_fd, STDERR_FILENO) < 0)
                _exit(126);
        if (run->mode == FAKE_FORBIDDEN && geteuid() == 0 &&
                (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
                        setresuid(NOBODY, NOBODY, NOBODY) < 0))
                _exit(126);
        fexecve(binary_fd, (char **)argv, (char **)env);
        _exit(127);
}

static char *read_back(int fd)
{
        off_t size = lseek(fd, 0, SEEK_END);
        char *text = calloc(1, (size_t)size + 1);

        assert_non_null(text);
        assert_int_equal(pread(fd, text, (size_t)size, 0), size);
        return text;
}

/* Removes the sentence that an answer is late, which a busy machine makes of any. */
static void drop_lateness(char *err)
{
        char *line = strstr(err, "kvleasectl: kvleased hasn't answered on admin.sock for ");
        char *end = line ? strchr(line, '\n') : NULL;

        if (end)
                memmove(line, end + 1, strlen(end));
}

void fake_run(const char *binary, const struct fake_run *run, struct fake_result *ret)
{
        char dir[256];
        struct fake f = {.run = run, .fd = -1};
        size_t requests_len = 0;
        int out_fd = memfd_create("out", MFD_CLOEXEC), err_fd = memfd_create("err", MFD_CLOEXEC);
        int binary_fd = open(binary, O_RDONLY | O_CLOEXEC), stdout_fd = -1, wait_status = 0;
        pid_t pid;

        assert_true(out_fd >= 0 && err_fd >= 0 && binary_fd >= 0);
        if (run->out_path)
                stdout_fd = open(run->out_path, O_WRONLY | O_CLOEXEC);
        snprintf(dir, sizeof(dir), "%s", test_dir_make());
        f.listen_fd = make_socket(run->mode, dir);
        f.err_fd = err_fd;
        frame_parser_init(&f.parser);
        assert_int_equal(arena_init(&f.arena, ARENA_BUDGET_BYTES), 0);
        f.answers = (struct fake_answers){.mode = run->mode, .arena = &f.arena};
        f.requests = open_memstream(&ret->requests, &requests_len);
        assert_non_null(f.requests);
        pid = child_fork();
        assert_true(pid >= 0);
        if (pid == 0)
                child(run, binary_fd, dir, run->out_path ? stdout_fd : out_fd, err_fd);
        serve_until_exit(&f, pid, &wait_status);
        end_connection(&f);
        fclose(f.requests);
        ret->exit_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : -1;
        ret->out = read_back(out_fd);
        ret->err = read_back(err_fd);
        if (run->mode != FAKE_SLOW)
                drop_lateness(ret->err);
        arena_deinit(&f.arena);
        frame_parser_deinit(&f.parser);
        fd_close(f.listen_fd);
        fd_close(binary_fd);
        fd_close(stdout_fd);
        fd_close(out_fd);
        fd_close(err_fd);
        test_dir_remove(dir);
}

void fake_result_deinit(struct fake_result *r)
{
        free(r->out);
        free(r->err);
        free(r->requests);
        *r = (struct fake_result){0};
}
