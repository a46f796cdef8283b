#include "tests/integration/host-net.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/integration/private-daemon.h"
#include "tests/unit/child.h"

#define SCRIPT_MSEC 20000

/* Runs a line of sh. Returns 0, or -EIO after its stderr was printed. */
__attribute__((format(printf, 1, 2))) static int script_run(const char *format, ...)
{
        char line[1024];
        const char *argv[] = {"sh", "-c", line, NULL};
        struct proc_output output;
        va_list args;
        int r;

        va_start(args, format);
        vsnprintf(line, sizeof(line), format, args);
        va_end(args);
        r = proc_run(argv, NULL, SCRIPT_MSEC, &output);
        if (r == 0 && output.status != 0) {
                fprintf(stderr, "%s: %s", line, output.err ? output.err : "\n");
                r = -EIO;
        }
        proc_output_free(&output);
        return r < 0 ? -EIO : 0;
}

/* A process that only holds a network namespace of its own. */
static pid_t host_start(void)
{
        int ready[2];
        char byte;
        pid_t pid;

        if (pipe2(ready, O_CLOEXEC) < 0)
                return -errno;
        pid = child_fork();
        if (pid == 0) {
                if (unshare(CLONE_NEWNET) == 0 && write(ready[1], "", 1) == 1)
                        for (;;)
                                pause();
                _exit(1);
        }
        fd_close(ready[1]);
        if (pid > 0 && read(ready[0], &byte, 1) != 1) {
                (void)waitpid(pid, NULL, 0);
                pid = -EPERM;
        }
        fd_close(ready[0]);
        return pid;
}

/* Makes the host's link; through it the test's namespace reaches all hosts. */
static int host_connect(struct host_net *net, unsigned i)
{
        pid_t pid = net->pids[i];

        snprintf(net->addresses[i], sizeof(net->addresses[i]), "10.79.%u.2", i);
        return script_run(
                "ip link add h%u type veth peer name eth0 netns %d && "
                "ip addr add 10.79.%u.1/24 dev h%u && ip link set h%u up && "
                "nsenter -t %d -n sh -c 'ip link set lo up && "
                "ip addr add 10.79.%u.2/24 dev eth0 && ip link set eth0 up && ip route add default via 10.79.%u.1'",
                i, (int)pid, i, i, i, (int)pid, i, i);
}

int host_net_init(struct host_net *net, unsigned n_hosts)
{
        *net = (struct host_net){.old_net = -1};
        net->old_net = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
        if (net->old_net < 0 || unshare(CLONE_NEWNET) < 0)
                return -EPERM;
        if (script_run(
                    "command -v ip tc nsenter >/dev/null && ip link set lo up && echo 1 >/proc/sys/net/ipv4/ip_forward") <
                0)
                return -ENOENT;
        for (; net->n < n_hosts; net->n++) {
                net->pids[net->n] = host_start();
                if (net->pids[net->n] < 0)
                        return -EPERM;
                if (host_connect(net, net->n) < 0)
                        return -ENOENT;
        }
        return 0;
}

void host_net_deinit(struct host_net *net)
{
        for (unsigned i = 0; i < HOST_NET_MAX; i++)
                if (net->pids[i] > 0) {
                        (void)kill(net->pids[i], SIGKILL);
                        (void)waitpid(net->pids[i], NULL, 0);
                }
        if (net->old_net >= 0)
                (void)setns(net->old_net, CLONE_NEWNET);
        fd_close(net->old_net);
        *net = (struct host_net){.old_net = -1};
}

int host_net_set(struct host_net *net, unsigned i, enum host_net_state state)
{
        int pid = (int)net->pids[i];

        switch (state) {
        case HOST_NET_DOWN:
                return script_run("nsenter -t %d -n ip link set eth0 down", pid);
        case HOST_NET_CUT:
                return script_run("ip link set h%u down", i);
        case HOST_NET_MUTE:
                return script_run("nsenter -t %d -n ip route add blackhole 10.79.%u.1/32", pid, i);
        case HOST_NET_SLOW:
                return script_run(
                        "nsenter -t %d -n tc qdisc add dev eth0 root tbf rate 8mbit burst 64kb latency 1s",
                        pid);
        default:
                /* A link that is taken down loses its routes. */
                return script_run(
                        "ip link set h%u up && nsenter -t %d -n sh -c 'ip link set eth0 up; "
                        "ip route replace default via 10.79.%u.1; "
                        "ip route del blackhole 10.79.%u.1/32 2>/dev/null; tc qdisc del dev eth0 root 2>/dev/null; true'",
                        i, pid, i, i);
        }
}
