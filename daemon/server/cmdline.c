#include "daemon/server/cmdline.h"

/* getopt.h has a struct `option`, as we do: only this file includes both. */
#define option getopt_option
#include <getopt.h>
#include "base/words.h"
#undef option
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "daemon/core/state/state-root.h"
#include "daemon/server/server.h"
#include "kvlease-version.h"

/* Their names are one string of the environment, of 128 KiB (keeper.c). */
#define KEEP_MAX_MAX 65536

static const char help[] =
        "Usage: kvleased [OPTION...]\n"
        "\n"
        "Owns KV cache memory and leases it to inference workers.\n"
        "\n"
        "  -c, --config FILE          read this configuration, and FILE.d/*.conf; by\n"
        "                             default " CONFIG_DEFAULT_FILE "\n"
        "      --check-config         print 'ok', or all mistakes of the configuration\n"
        "      --help-config[=json]   list the options of the configuration\n"
        "      --runtime-dir DIR      put sockets and the lock file here; by default\n"
        "                             /run/kvlease\n"
        "      --state-dir DIR        put state here that outlives a restart; by default\n"
        "                             /var/lib/kvlease\n"
        "  -o, --option NAME=VALUE    override the file: daemon.KEY, device.NAME.KEY or\n"
        "                             tenant.NAME.KEY, which adds the tenant; may be\n"
        "                             repeated\n"
        "      --state-layouts        print the versions of stored state that this\n"
        "                             program reads (kvleasectl restart asks it)\n"
        "      --keep                 start a small parent process that stores cached\n"
        "                             pages and clients, and restarts the daemon when\n"
        "                             it dies: for hosts without systemd\n"
        "      --keep-max N           store at most N descriptors; by default 16384\n"
        "      --keep-tries N         give up after N early deaths in a row; by default\n"
        "                             20\n"
        "      --keep-young TIME      count a death within TIME as early; by default 10s\n"
        "      --keep-watchdog TIME   kill a daemon that doesn't respond for TIME\n"
        "  -h, --help                 show this help\n"
        "  -V, --version              show the version\n"
        "\n"
        "Signals: SIGTERM and SIGINT stop, SIGHUP reads the configuration again. With\n"
        "--keep, SIGUSR1 starts the daemon again from its file, as for an upgrade.\n"
        "\n"
        "Exit codes:\n"
        "  0   stopped\n"
        "  1   out of memory, or another failure of the system\n"
        "  2   wrong command line or configuration\n"
        "  3   failure of the runtime directory, lock or socket\n"
        "  4   failure of a device\n"
        "  5   failure of the state directory\n"
        "  75  kvleasectl restart asks the service manager to start kvleased again\n";

/* Long options without a letter. */
enum {
        OPT_CHECK = 256,
        OPT_HELP_CONFIG,
        OPT_RUNTIME_DIR,
        OPT_STATE_DIR,
        OPT_STATE_LAYOUTS,
        OPT_KEEP,
        OPT_KEEP_MAX,
        OPT_KEEP_TRIES,
        OPT_KEEP_YOUNG,
        OPT_KEEP_WATCHDOG
};

static int refuse_option(const char *sentence)
{
        fprintf(stderr, "kvleased: %s\n", sentence);
        return -1;
}

/* One line that names the word and the remedy. */
static int refuse_word(const char *word, const char *why)
{
        fprintf(stderr, "kvleased: %s: %s; see kvleased --help\n", word, why);
        return -1;
}

static int add_override(struct cmdline *c, const char *prefix, const char *value)
{
        if (c->source.n_overrides == CMDLINE_MAX_OPTIONS)
                return refuse_word(value, "too many options");
        if (asprintf(&c->overrides[c->source.n_overrides], "%s%s", prefix, value) < 0)
                return refuse_word(value, "out of memory");
        c->source.n_overrides++;
        return 0;
}

static int take_number(const char *word, const char *value, uint32_t max, uint32_t *ret)
{
        uint64_t n;

        if (parse_u64(value, &n) < 0 || n < 1 || n > max)
                return refuse_word(word, "not a number from 1 on, or too large");
        *ret = (uint32_t)n;
        return 0;
}

/* Takes an option of the parent. */
static int take_keep(struct cmdline *c, int opt, const char *word, const char *value)
{
        struct parent_options *o = &c->parent;

        switch (opt) {
        case OPT_KEEP_MAX:
                return take_number(word, value, KEEP_MAX_MAX, &o->max);
        case OPT_KEEP_TRIES:
                return take_number(word, value, UINT32_MAX, &o->tries);
        case OPT_KEEP_YOUNG:
                return parse_duration(value, &o->young_nsec) < 0 ? refuse_word(word, "not a time")
                                                                 : 0;
        case OPT_KEEP_WATCHDOG:
                if (parse_duration(value, &o->watchdog_nsec) < 0 ||
                        o->watchdog_nsec < 100 * NSEC_PER_MSEC)
                        return refuse_word(word, "not a time of 100ms or more");
                return 0;
        default:
                c->keep = true;
                return 0;
        }
}

/* Takes one option of the command line, `word` of it. Returns 0: continue; 1: done, with *code; -1:
 * refused. */
static int take_option(struct cmdline *c, int opt, const char *word, const char *value, int *code)
{
        switch (opt) {
        case 'c':
                c->source.file = value;
                return 0;
        case OPT_CHECK:
                c->check_only = true;
                return 0;
        case OPT_RUNTIME_DIR:
                return add_override(c, "daemon.runtime_dir=", value);
        case OPT_STATE_DIR:
                return add_override(c, "daemon.state_dir=", value);
        case 'o':
                return add_override(c, "", value);
        case OPT_KEEP:
        case OPT_KEEP_MAX:
        case OPT_KEEP_TRIES:
        case OPT_KEEP_YOUNG:
        case OPT_KEEP_WATCHDOG:
                return take_keep(c, opt, word, value);
        case OPT_HELP_CONFIG:
                if (value && strcmp(value, "json") != 0)
                        return refuse_word(word, "only =json is known");
                value ? options_print_json(stdout) : options_print(stdout);
                break;
        case 'h':
                fputs(help, stdout);
                break;
        case OPT_STATE_LAYOUTS:
                printf("%d\n", STATE_LAYOUT_VERSION);
                break;
        case 'V':
                puts("kvleased " KVLEASE_VERSION);
                break;
        case ':':
                return refuse_word(word, "needs a value");
        }
        *code = EXIT_OK;
        return 1;
}

int cmdline_parse(int argc, char **argv, struct cmdline *ret, int *ret_exit_code)
{
        static const struct getopt_option longs[] = {
                {"config", required_argument, NULL, 'c'},
                {"check-config", no_argument, NULL, OPT_CHECK},
                {"help-config", optional_argument, NULL, OPT_HELP_CONFIG},
                {"runtime-dir", required_argument, NULL, OPT_RUNTIME_DIR},
                {"state-dir", required_argument, NULL, OPT_STATE_DIR},
                {"state-layouts", no_argument, NULL, OPT_STATE_LAYOUTS},
                {"option", required_argument, NULL, 'o'},
                {"keep", no_argument, NULL, OPT_KEEP},
                {"keep-max", required_argument, NULL, OPT_KEEP_MAX},
                {"keep-tries", required_argument, NULL, OPT_KEEP_TRIES},
                {"keep-young", required_argument, NULL, OPT_KEEP_YOUNG},
                {"keep-watchdog", required_argument, NULL, OPT_KEEP_WATCHDOG},
                {"help", no_argument, NULL, 'h'},
                {"version", no_argument, NULL, 'V'},
                {0},
        };
        char fault[WORDS_FAULT_MAX];
        int opt, r = 0;

        *ret = (struct cmdline){.parent = {.max = PARENT_DEFAULT_MAX,
                                        .tries = PARENT_DEFAULT_TRIES,
                                        .young_nsec = PARENT_DEFAULT_YOUNG_NSEC,
                                        .argv = argv}};
        opterr = 0;
        while (r == 0 && (opt = getopt_long(argc, argv, ":c:o:hV", longs, NULL)) != -1)
                r = opt == '?' ? refuse_option(
                                         option_fault("kvleased", argv[optind - 1], longs, fault))
                               : take_option(ret, opt, argv[optind - 1], optarg, ret_exit_code);
        if (r == 0 && optind < argc)
                r = refuse_word(argv[optind], "not expected here");
        if (r < 0)
                *ret_exit_code = EXIT_CONFIG;
        ret->source.overrides = (const char *const *)ret->overrides;
        return r != 0;
}

void cmdline_deinit(struct cmdline *c)
{
        for (size_t i = 0; i < c->source.n_overrides; i++)
                free(c->overrides[i]);
}
