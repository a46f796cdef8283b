/* kvlease-exchange: the client of the stores by which kvleased exchanges pages with other hosts. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/words.h"
#include "daemon/network/lanes.h"
#include "daemon/relay/relay.h"
#include "kvlease-version.h"
#include "proto/sock.h"

static const char help[] =
        "Usage: kvlease-exchange [OPTION...]\n"
        "\n"
        "Reads pages from the Redis or Valkey servers of kvleased's [remote NAME], and\n"
        "writes pages to them. kvleased connects to it, names the servers, and keeps all\n"
        "decisions and the secrets of tenants. This process needs the network; kvleased\n"
        "doesn't.\n"
        "\n"
        "      --socket PATH  where kvleased connects (its option exchange_socket), of\n"
        "                     the same user or group; a socket that systemd passes\n"
        "                     comes before [" RELAY_SOCKET "]\n"
        "  -h, --help         print this help\n"
        "  -V, --version      print the version\n"
        "\n"
        "kvlease-exchange(8) has more.\n";

/* Exit codes. */
enum { CODE_OK, CODE_FAILED, CODE_USAGE };

/* Returns an owned descriptor; -1: none, and a message was printed. */
static int listen_somewhere(const char *path)
{
        int fd;

        if (sd_listen_fds(1) > 0)
                return SD_LISTEN_FDS_START;
        /* Its group, for a kvleased of another user: as root in a container, without privileges. */
        fd = sock_listen(path, 0660);
        if (fd >= 0)
                return fd;
        fprintf(stderr, "kvlease-exchange: can't listen at %s: %s; name another path by --socket\n",
                path, strerror(-fd));
        return -1;
}

/* Returns a descriptor that is readable once the process has to end. */
static int catch_stop(void)
{
        sigset_t set;

        signal(SIGPIPE, SIG_IGN);
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        sigprocmask(SIG_BLOCK, &set, NULL);
        return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int serve(int listen_fd)
{
        struct signalfd_siginfo info;
        struct lanes lanes;
        int stop_fd = catch_stop();
        int r = stop_fd < 0 ? -errno : 0;

        lanes_init(&lanes, listen_fd);
        (void)sd_notify(0, "READY=1");
        while (r == 0 && read(stop_fd, &info, sizeof(info)) != sizeof(info))
                r = lanes_turn(&lanes, stop_fd);
        lanes_deinit(&lanes);
        fd_close(stop_fd);
        if (r < 0)
                fprintf(stderr, "kvlease-exchange: stopped: %s\n", strerror(-r));
        return r < 0 ? CODE_FAILED : CODE_OK;
}

int main(int argc, char **argv)
{
        enum { OPT_SOCKET = 256 };
        static const struct option options[] = {{"socket", required_argument, NULL, OPT_SOCKET},
                {"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}, {0}};
        const char *path = RELAY_SOCKET;
        char fault[WORDS_FAULT_MAX];
        int c, code, fd;

        if (fd_open_standard() < 0)
                return CODE_FAILED;
        opterr = 0;
        while ((c = getopt_long(argc, argv, ":hV", options, NULL)) != -1) {
                switch (c) {
                case OPT_SOCKET:
                        path = optarg;
                        break;
                case 'h':
                        fputs(help, stdout);
                        return CODE_OK;
                case 'V':
                        puts("kvlease-exchange " KVLEASE_VERSION);
                        return CODE_OK;
                case ':':
                        fprintf(stderr, "kvlease-exchange: %s: needs a value; see --help\n",
                                argv[optind - 1]);
                        return CODE_USAGE;
                default:
                        fprintf(stderr, "kvlease-exchange: %s\n",
                                option_fault("kvlease-exchange", argv[optind - 1], options, fault));
                        return CODE_USAGE;
                }
        }
        if (optind < argc) {
                fprintf(stderr, "kvlease-exchange: %s: it takes no arguments; see --help\n",
                        argv[optind]);
                return CODE_USAGE;
        }
        fd = listen_somewhere(path);
        if (fd < 0)
                return CODE_FAILED;
        printf("kvlease-exchange: serving kvleased\n");
        fflush(stdout);
        code = serve(fd);
        fd_close(fd);
        return code;
}
