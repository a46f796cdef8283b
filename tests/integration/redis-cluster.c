#include "tests/integration/redis-cluster.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "daemon/remote/protocol/slots.h"
#include "tests/integration/private-daemon.h"

#define START_MSEC    20000
#define AGREE_MSEC    60000
#define WORDS_MAX     64
#define NSENTER_WORDS 4     /* before a program */
#define BUS_OFFSET    10000 /* of a node's port for the others, as Redis has it */
/* PORT_FIRST + BUS_OFFSET stays below 32768, where Linux begins to give ports to connections. */
#define PORT_FIRST 12000
#define PORTS      10000
#define PORT_TRIES 8

/* ---- programs ------------------------------------------------------------------------------- */

static bool is_program(const char *path)
{
        return access(path, X_OK) == 0;
}

int redis_cluster_init(struct redis_cluster *c)
{
        static const char *const paths[] = {"/usr/bin/redis-server", "/usr/local/bin/redis-server"};
        static const char in_tools[] = "/usr/bin/redis-check-rdb";
        const char *given = getenv("KVL_REDIS");

        *c = (struct redis_cluster){.n = 0};
        snprintf(c->dir, sizeof(c->dir), "/tmp/kvl-redis-XXXXXX");
        if (!mkdtemp(c->dir)) {
                c->dir[0] = '\0';
                return -errno;
        }
        if (given && given[0])
                snprintf(c->program, sizeof(c->program), "%s", given);
        for (unsigned i = 0; i < ARRAY_SIZE(paths) && !c->program[0]; i++)
                if (is_program(paths[i]))
                        snprintf(c->program, sizeof(c->program), "%s", paths[i]);
        if (c->program[0])
                return 0;
        if (!is_program(in_tools))
                return -ENOENT;
        /* The program acts by the name it is started under. */
        snprintf(c->program, sizeof(c->program), "%s/redis-server", c->dir);
        return symlink(in_tools, c->program) < 0 ? -errno : 0;
}

static void dir_empty(const char *path)
{
        DIR *dir = opendir(path);

        for (struct dirent *e; dir && (e = readdir(dir));)
                if (e->d_name[0] != '.')
                        unlinkat(dirfd(dir), e->d_name, 0);
        if (dir)
                closedir(dir);
}

void redis_cluster_deinit(struct redis_cluster *c)
{
        for (unsigned i = 0; i < c->n; i++) {
                if (c->servers[i].pid <= 0)
                        continue;
                kill(c->servers[i].pid, SIGKILL);
                waitpid(c->servers[i].pid, NULL, 0);
        }
        if (c->dir[0]) {
                dir_empty(c->dir);
                rmdir(c->dir);
        }
        *c = (struct redis_cluster){.n = 0};
}

/* ---- servers -------------------------------------------------------------------------------- */

static bool port_is_free(unsigned port)
{
        struct sockaddr_in address = {.sin_family = AF_INET,
                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                .sin_port = htons((uint16_t)port)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;

        fd_close(fd);
        return is_free;
}

/* A port for clients whose port for other nodes is free as well. 0: there is none. */
static uint16_t port_find(const struct redis_cluster *c)
{
        unsigned start = (unsigned)getpid() * 31 + c->n * 7;

        for (unsigned i = 0; i < PORTS; i++) {
                unsigned port = PORT_FIRST + (start + i) % PORTS;
                bool is_ours = false;

                for (unsigned k = 0; k < c->n; k++)
                        is_ours |= c->servers[k].port == port;
                if (!is_ours && port_is_free(port) && port_is_free(port + BUS_OFFSET))
                        return (uint16_t)port;
        }
        return 0;
}

static const char *server_host(const struct redis_server *s)
{
        return s->place ? s->place->host : "127.0.0.1";
}

static int server_start(struct redis_cluster *c, unsigned i, const char *const *words, bool is_tls)
{
        struct redis_server *s = &c->servers[i];
        char port[8], nodes[32], log[96], net_pid[16];
        /* nsenter becomes the program that it starts. */
        const char *argv[WORDS_MAX] = {"nsenter", "-t", net_pid, "-n", c->program, "--bind",
                server_host(s), "--port", is_tls ? "0" : port, "--tls-port", is_tls ? port : "0",
                "--save", "", "--appendonly", "no", "--dir", c->dir, "--logfile", log,
                "--cluster-config-file", nodes, "--protected-mode", "no"};
        unsigned n = 0;
        pid_t pid;

        snprintf(port, sizeof(port), "%u", s->port);
        snprintf(nodes, sizeof(nodes), "nodes-%u.conf", i);
        snprintf(log, sizeof(log), "%s/log-%u", c->dir, i);
        while (argv[n])
                n++;
        for (; words && *words; words++) {
                if (n == WORDS_MAX - 1)
                        return -E2BIG;
                argv[n++] = *words;
        }
        snprintf(net_pid, sizeof(net_pid), "%d", s->place ? (int)s->place->net_pid : 0);
        pid = proc_spawn(
                s->place ? argv : argv + NSENTER_WORDS, NULL, (struct proc_files){-1, -1, -1});
        if (pid < 0)
                return pid;
        s->pid = pid;
        for (unsigned waited = 0; waited < START_MSEC; waited += 20) {
                char *said = redis_cluster_call(c, i, "PING");
                bool answers = said && (strstr(said, "PONG") || strstr(said, "NOAUTH"));

                free(said);
                if (answers)
                        return 0;
                if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
                        s->pid = 0;
                        return -ECHILD;
                }
                sleep_msec(20);
        }
        return -ETIMEDOUT;
}

int redis_cluster_add(struct redis_cluster *c, const char *const *words, bool is_tls)
{
        struct redis_server *s = &c->servers[c->n];
        int r = -ECHILD;

        if (c->n == REDIS_MAX)
                return -E2BIG;
        s->place = c->places ? &c->places[c->n] : NULL;
        /* A server exits at once if another test has taken its port. */
        for (unsigned i = 0; i < PORT_TRIES && r == -ECHILD; i++) {
                s->port = port_find(c);
                if (s->port == 0)
                        return -EADDRINUSE;
                snprintf(s->address, sizeof(s->address), "%s:%u", server_host(s), s->port);
                r = server_start(c, c->n, words, is_tls);
        }
        c->n++;
        return r;
}

int redis_cluster_restart(
        struct redis_cluster *c, unsigned i, const char *const *words, bool is_tls)
{
        return server_start(c, i, words, is_tls);
}

char *redis_cluster_call(struct redis_cluster *c, unsigned i, const char *format, ...)
{
        char port[8], command[1024], *at = command, *word;
        const char *argv[WORDS_MAX] = {"redis-cli", "-h", server_host(&c->servers[i]), "-p", port};
        struct proc_output output;
        unsigned n = 5;
        va_list args;
        char *said;

        va_start(args, format);
        vsnprintf(command, sizeof(command), format, args);
        va_end(args);
        snprintf(port, sizeof(port), "%u", c->servers[i].port);
        for (const char *const *more = c->cli_words; more && *more; more++)
                argv[n++] = *more;
        while ((word = strsep(&at, " ")) && n < WORDS_MAX - 1)
                argv[n++] = word;
        if (proc_run(argv, NULL, START_MSEC, &output) < 0) {
                proc_output_free(&output);
                return NULL;
        }
        said = TAKE(output.out);
        proc_output_free(&output);
        return said;
}

/* ---- clusters ------------------------------------------------------------------------------- */

static bool nodes_agree(struct redis_cluster *c, unsigned n_nodes)
{
        for (unsigned i = 0; i < c->n; i++) {
                char *said = redis_cluster_call(c, i, "CLUSTER INFO"), known[32];
                bool is_good;

                snprintf(known, sizeof(known), "cluster_known_nodes:%u\r", n_nodes);
                is_good = said && strstr(said, "cluster_state:ok") && strstr(said, known) &&
                          strstr(said, "cluster_slots_ok:16384");
                free(said);
                if (!is_good)
                        return false;
        }
        return true;
}

static int agreement_await(struct redis_cluster *c)
{
        for (unsigned waited = 0; waited < AGREE_MSEC; waited += 100) {
                if (nodes_agree(c, c->n))
                        return 0;
                sleep_msec(100);
        }
        return -ETIMEDOUT;
}

/* Makes i a replica of master m, and waits until it knows m and has copied its data. */
static int replica_make(struct redis_cluster *c, unsigned i, unsigned m)
{
        char *id = redis_cluster_call(c, m, "CLUSTER MYID"), *said = NULL;
        bool is_done = false;

        if (id)
                id[strcspn(id, "\r\n")] = '\0';
        for (unsigned waited = 0; id && waited < AGREE_MSEC && !is_done; waited += 100) {
                said = redis_cluster_call(c, i, "CLUSTER REPLICATE %s", id);
                is_done = said && strncmp(said, "OK", 2) == 0;
                free(said);
                if (!is_done)
                        sleep_msec(100);
        }
        for (bool is_up = false; is_done && !is_up; sleep_msec(100)) {
                said = redis_cluster_call(c, i, "INFO replication");
                is_up = !said || strstr(said, "master_link_status:up");
                free(said);
        }
        free(id);
        return is_done ? 0 : -ETIMEDOUT;
}

/* Bytes of its master's stream of commands, or of its own. -1: it doesn't report them. */
static long long stream_offset(struct redis_cluster *c, unsigned i)
{
        static const char field[] = "master_repl_offset:";
        char *said = redis_cluster_call(c, i, "INFO replication");
        const char *at = said ? strstr(said, field) : NULL;
        long long offset = at ? strtoll(at + strlen(field), NULL, 10) : -1;

        free(said);
        return offset;
}

int redis_cluster_await_copied(struct redis_cluster *c, unsigned master, unsigned replica)
{
        long long offset = stream_offset(c, master);

        for (unsigned waited = 0; offset >= 0 && waited < AGREE_MSEC; waited += 20) {
                if (stream_offset(c, replica) >= offset)
                        return 0;
                sleep_msec(20);
        }
        return -ETIMEDOUT;
}

int redis_cluster_create(struct redis_cluster *c, unsigned n_masters, bool has_replicas)
{
        /* A replica may take over however long it heard nothing of its master: on a busy machine
         * that exceeds the servers' default. */
        static const char *const words[] = {"--cluster-enabled", "yes",
                "--cluster-replica-validity-factor", "0", "--cluster-node-timeout", "2000",
                "--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0", NULL};
        unsigned n = has_replicas ? 2 * n_masters : n_masters;
        int r = 0;

        for (unsigned i = 0; i < n && r == 0; i++)
                r = redis_cluster_add(c, words, false);
        for (unsigned i = 0; i < n_masters && r == 0; i++)
                free(redis_cluster_call(c, i, "CLUSTER ADDSLOTSRANGE %u %u",
                        i * N_SLOTS / n_masters, (i + 1) * N_SLOTS / n_masters - 1));
        for (unsigned i = 1; i < n && r == 0; i++)
                free(redis_cluster_call(c, 0, "CLUSTER MEET %s %u", server_host(&c->servers[i]),
                        c->servers[i].port));
        if (r == 0)
                r = agreement_await(c);
        for (unsigned i = n_masters; i < n && r == 0; i++)
                r = replica_make(c, i, i - n_masters);
        return r == 0 ? agreement_await(c) : r;
}

bool redis_cluster_is_master(struct redis_cluster *c, unsigned i)
{
        char *said = c->servers[i].pid > 0 ? redis_cluster_call(c, i, "INFO replication") : NULL;
        bool is_master = said && strstr(said, "role:master");

        free(said);
        return is_master;
}

static bool is_host(const struct redis_cluster *c, const char *line)
{
        for (unsigned k = 0; k < c->n; k++)
                if (strcmp(line, server_host(&c->servers[k])) == 0)
                        return true;
        return false;
}

/* A host was read, and its port follows. No two of our servers have the same. */
static int server_of(const struct redis_cluster *c, const char *port)
{
        for (unsigned k = 0; port && k < c->n; k++)
                if (c->servers[k].port == strtoul(port, NULL, 10))
                        return (int)k;
        return -1;
}

/* Without a terminal redis-cli prints values only, each on a line. A range has its first and last
 * slot, then its master's address, port and more, then those of its replicas. */
int redis_cluster_owners(struct redis_cluster *c, unsigned i, int ret_owners[REDIS_SLOTS])
{
        char *said = redis_cluster_call(c, i, "CLUSTER SLOTS"), *at = said, *line;
        unsigned long numbers[2] = {0, 0};
        unsigned n_numbers = 0;

        for (unsigned slot = 0; slot < REDIS_SLOTS; slot++)
                ret_owners[slot] = -1;
        while (said && (line = strsep(&at, "\n"))) {
                char *end;
                unsigned long number = strtoul(line, &end, 10);

                if (end > line && (*end == '\0' || *end == '\r')) {
                        numbers[0] = numbers[1];
                        numbers[1] = number;
                        n_numbers++;
                        continue;
                }
                if (!is_host(c, line))
                        continue;
                line = strsep(&at, "\n");
                for (unsigned long slot = numbers[0];
                        n_numbers == 2 && slot <= numbers[1] && slot < REDIS_SLOTS; slot++)
                        ret_owners[slot] = server_of(c, line);
                n_numbers = 0;
        }
        free(said);
        return said ? 0 : -EIO;
}

static char *node_id(struct redis_cluster *c, unsigned i)
{
        char *id = redis_cluster_call(c, i, "CLUSTER MYID");

        if (id)
                id[strcspn(id, "\r\n")] = '\0';
        return id;
}

static void move_keys(struct redis_cluster *c, unsigned slot, unsigned from, unsigned to)
{
        char *key;

        while ((key = redis_cluster_call(c, from, "CLUSTER GETKEYSINSLOT %u 1", slot))) {
                key[strcspn(key, "\r\n")] = '\0';
                if (!key[0])
                        break;
                free(redis_cluster_call(
                        c, from, "MIGRATE 127.0.0.1 %u %s 0 5000", c->servers[to].port, key));
                free(key);
        }
        free(key);
}

void redis_cluster_move_slot(struct redis_cluster *c, unsigned slot, unsigned from, unsigned to)
{
        char *from_id = node_id(c, from), *to_id = node_id(c, to);

        if (from_id && to_id) {
                free(redis_cluster_call(c, to, "CLUSTER SETSLOT %u IMPORTING %s", slot, from_id));
                free(redis_cluster_call(c, from, "CLUSTER SETSLOT %u MIGRATING %s", slot, to_id));
                move_keys(c, slot, from, to);
                free(redis_cluster_call(c, to, "CLUSTER SETSLOT %u NODE %s", slot, to_id));
                free(redis_cluster_call(c, from, "CLUSTER SETSLOT %u NODE %s", slot, to_id));
        }
        free(from_id);
        free(to_id);
}
