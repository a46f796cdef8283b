/* The daemon's messages and their fields in the journal. Needs a /run of its own, which only root
 * can mount; otherwise skipped. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/integration/harness.h"

#define WAIT_MSEC 30000 /* not tuned */

static const struct private_options to_journal = {.daemon_lines = "log_target = journal\n"};

struct entry {
        char text[8192];
};

/* Makes a socket in journald's place, in this process' mount namespace. -1: not permitted. */
static int open_journal(void)
{
        struct sockaddr_un address = {
                .sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
        int fd;

        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
                mount("none", "/run", "tmpfs", 0, "size=1m,mode=755") < 0)
                return -1;
        assert_int_equal(mkdir("/run/systemd", 0755), 0);
        assert_int_equal(mkdir("/run/systemd/journal", 0755), 0);
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        return fd;
}

/* A field's value up to the end of its line; NULL: none. Static storage. */
static const char *field(const struct entry *e, const char *name)
{
        static char value[1024];
        size_t len = strlen(name);

        for (const char *at = e->text; at; at = strchr(at, '\n')) {
                at += *at == '\n';
                if (strncmp(at, name, len) == 0 && at[len] == '=') {
                        snprintf(value, sizeof(value), "%.*s", (int)strcspn(at + len + 1, "\n"),
                                at + len + 1);
                        return value;
                }
        }
        return NULL;
}

static void assert_field(const struct entry *e, const char *name, const char *expected)
{
        const char *value = field(e, name);

        if (!value || strcmp(value, expected) != 0)
                fail_msg("%s is %s, not %s, in:\n%s", name, value ? value : "missing", expected,
                        e->text);
}

/* Waits for the message whose sentence begins like this. */
static void expect(int fd, const char *begin, struct entry *ret_entry)
{
        struct pollfd p = {fd, POLLIN, 0};

        while (poll(&p, 1, WAIT_MSEC) > 0) {
                ssize_t n = recv(fd, ret_entry->text, sizeof(ret_entry->text) - 1, 0);
                const char *message;

                assert_true(n > 0);
                ret_entry->text[n] = '\0';
                message = field(ret_entry, "MESSAGE");
                assert_non_null(message);
                if (strncmp(message, begin, strlen(begin)) == 0)
                        return;
        }
        fail_msg("no message \"%s...\"", begin);
}

static void assert_main_event(const struct entry *e, const char *priority)
{
        const char *id = field(e, "MESSAGE_ID");

        assert_non_null(id);
        assert_int_equal(strlen(id), 32);
        assert_int_equal(strspn(id, "0123456789abcdef"), 32);
        assert_field(e, "PRIORITY", priority);
        assert_field(e, "SYSLOG_IDENTIFIER", "kvleased");
}

static void check_violation(struct harness *h, int fd)
{
        struct worker *w = worker_start(h, "a", "ns", 1);
        char pid[16];
        struct entry e;

        worker_tell(w, "garbage");
        expect(fd, "process ", &e);
        assert_main_event(&e, "4");
        snprintf(pid, sizeof(pid), "%d", (int)w->pid);
        assert_field(&e, "KVLEASE_TENANT", "a");
        assert_field(&e, "KVLEASE_PEER_PID", pid);
        assert_non_null(field(&e, "KVLEASE_RULE"));
        worker_kill(w);
        h->violations = 1;
}

HARNESS_TEST(test_fields, &to_journal)
{
        int fd = open_journal();
        char uid[16], first_id[64], *text;
        struct entry e;
        size_t len;

        if (fd < 0) {
                print_message("no right to mount: skipped\n");
                skip();
        }
        assert_int_equal(truncate(h->daemon.log, 0), 0);
        harness_restart(h);
        expect(fd, "ready in ", &e);
        assert_main_event(&e, "5");
        assert_field(&e, "KVLEASE_RUNTIME_DIR", h->daemon.runtime);
        snprintf(first_id, sizeof(first_id), "%s", field(&e, "MESSAGE_ID"));
        snprintf(uid, sizeof(uid), "%u", (unsigned)geteuid());
        ctl(h, "tenants add c limit=1MiB");
        expect(fd, "tenant c was made", &e);
        assert_main_event(&e, "5");
        assert_string_not_equal(field(&e, "MESSAGE_ID"), first_id);
        assert_field(&e, "KVLEASE_TENANT", "c");
        assert_field(&e, "KVLEASE_PEER_UID", uid);
        ctl(h, "tenants remove c");
        expect(fd, "tenant c was removed", &e);
        assert_main_event(&e, "5");
        check_violation(h, fd);
        kill(h->daemon.pid, SIGHUP);
        expect(fd, "reloaded", &e);
        assert_main_event(&e, "5");
        harness_restart(h);
        h->violations = 0;
        expect(fd, "stopping", &e);
        assert_main_event(&e, "5");
        expect(fd, "ready in ", &e);
        assert_field(&e, "MESSAGE_ID", first_id); /* of the event, not of the message */
        fd_close(fd);
        /* Without a journal the daemon writes readable text. */
        assert_int_equal(unlink("/run/systemd/journal/socket"), 0);
        assert_int_equal(truncate(h->daemon.log, 0), 0);
        harness_restart(h);
        assert_int_equal(file_read(h->daemon.log, 65536, &text, &len), 0);
        assert_non_null(strstr(text, " notice: ready in "));
        free(text);
}
