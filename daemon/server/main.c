/* kvleased: owns KV cache memory and leases it to inference workers. The code is in the library. */
#ifdef KVL_COVERAGE
#include <gcov.h>
#endif
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "daemon/reap/reaper.h"
#include "daemon/server/cmdline.h"
#include "daemon/server/server.h"
#include "daemon/server/config/config.h"
#include "daemon/server/base/log.h"

static void print_report(void *data, bool is_error, const char *sentence)
{
        fprintf(stderr, "%s\n", sentence);
}

static int check_config(const struct config_source *source)
{
        struct config config;

        if (config_load(source, &config, print_report, NULL) < 0)
                return EXIT_CONFIG;
        config_warn(&config, print_report, NULL); /* it starts all the same */
        config_deinit(&config);
        puts("ok");
        return EXIT_OK;
}

/* A driver's exit handlers would find, or wait for, our thread inside the driver: then _exit(). */
static int end_process(const struct server *s, enum exit_code code)
{
        log_stop();
        if (!s->life.left_behind)
                return code;
        fflush(NULL);
#ifdef KVL_COVERAGE
        __gcov_dump(); /* _exit() would leave it out */
#endif
        _exit(code);
}

static int run_server(const struct config_source *source)
{
        static struct server server; /* holds a frame's buffer: large for a stack */
        struct config config;
        enum exit_code code;
        int r;

        if (config_load(source, &config, log_report, NULL) < 0)
                return EXIT_CONFIG;
        /*
         * Tables that grow by doubling are returned to the kernel when they move. By default glibc
         * raises the threshold with each such block, and keeps the holes: 30 bytes a page.
         */
        mallopt(M_MMAP_THRESHOLD, 1 << 20);
        log_init(config.daemon.log_level, config.daemon.log_target);
        r = log_start();
        if (r < 0) {
                log_error(
                        "cannot start: no thread for the log (%s): raise TasksMax or the limit of processes",
                        strerror(-r));
                config_deinit(&config);
                return EXIT_OTHER;
        }
        code = server_init(&server, &config, source);
        if (code != EXIT_OK)
                return end_process(&server, code);
        code = server_start(&server);
        if (code == EXIT_OK)
                code = server_run(&server);
        server_deinit(&server);
        return end_process(&server, code);
}

int main(int argc, char **argv)
{
        struct cmdline cmdline;
        int code = EXIT_OK, r;

        if (reap_is_asked(argc, argv))
                return reap_process();
        /* Writes to a socket, a log, or a parent that has ended must fail, not kill. */
        signal(SIGPIPE, SIG_IGN);
        r = fd_open_standard();
        if (r < 0) {
                fprintf(stderr, "kvleased: cannot open /dev/null: %s\n", strerror(-r));
                return EXIT_OTHER;
        }
        if (cmdline_parse(argc, argv, &cmdline, &code) == 0) {
                if (cmdline.check_only)
                        code = check_config(&cmdline.source);
                else if (cmdline.keep && !parent_is_there())
                        code = parent_run(&cmdline.parent);
                else
                        code = run_server(&cmdline.source);
        }
        cmdline_deinit(&cmdline);
        return code;
}
