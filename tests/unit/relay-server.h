/* kvlease-exchange as a child of the test, and stores that are reached through it. */
#ifndef KVL_TESTS_RELAY_SERVER_H
#define KVL_TESTS_RELAY_SERVER_H

#include "tests/unit/remote-fixture.h"
#include "tests/unit/test-support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/relay/relay.h"

struct relay_server {
        char dir[32], socket[64], secret[64];
        pid_t pid;  /* 0: it doesn't run */
        int log_fd; /* borrowed: for the process' log; 0: the test's stderr */
};

/* The process, which ends with the test. */
static inline void relay_server_run(struct relay_server *s)
{
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (s->log_fd)
                (void)dup2(s->log_fd, STDERR_FILENO);
        (void)execl(KVLEASE_EXCHANGE, "kvlease-exchange", "--socket", s->socket, NULL);
        _exit(127);
}

static inline void relay_server_start(struct relay_server *s)
{
        if (!s->dir[0]) {
                (void)strcpy(s->dir, "/tmp/kvl-relay-XXXXXX");
                assert_non_null(mkdtemp(s->dir));
        }
        (void)snprintf(s->socket, sizeof(s->socket), "%s/sock", s->dir);
        (void)snprintf(s->secret, sizeof(s->secret), "%s/secret", s->dir);
        s->pid = fork();
        assert_true(s->pid >= 0);
        if (s->pid == 0)
                relay_server_run(s);
        while (access(s->socket, F_OK) < 0)
                usleep(1000);
}

static inline void relay_server_kill(struct relay_server *s)
{
        kill(s->pid, SIGKILL);
        waitpid(s->pid, NULL, 0);
        (void)unlink(s->socket);
        s->pid = 0;
}

static inline void relay_server_stop(struct relay_server *s)
{
        if (s->pid > 0)
                relay_server_kill(s);
        (void)unlink(s->secret);
        (void)rmdir(s->dir);
}

/* Does what store_open() does, through the server. */
static inline int relay_server_open(
        struct relay_server *s, const struct remote_options *options, struct remote_store **ret)
{
        const struct relay_options o = {.socket = s->socket,
                .secret_file = options->secret ? s->secret : NULL,
                .remote = options_patient(options)};

        if (options->secret) {
                FILE *f = fopen(s->secret, "we");

                assert_non_null(f);
                (void)fputs(options->secret, f);
                assert_int_equal(fclose(f), 0);
                assert_int_equal(chmod(s->secret, 0600), 0);
        }
        return relay_open(&o, ret);
}

/* The lanes of values may be ready later than that of questions. */
static inline void relay_await_lanes(struct remote_store *s)
{
        struct one o;

        for (unsigned i = 0; i < 2 * RELAY_LARGE_LANES; i++) {
                char byte;

                while (one_call(s, REMOTE_READ, "{kvl:1:a:none}", &byte, 1, &o) == -EHOSTDOWN)
                        usleep(1000);
        }
}

#endif
