#include "lab/bench/hosts.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/macros.h"
#include "tests/bench/qos.h"
#include "tests/integration/pattern.h"

#define N_CHANNELS      64 /* of the layout of fixture_connect_to() */
#define MATRIX_NUMBERS  (HOSTS_PAGE_TOKENS * N_CHANNELS)
#define EXTENT_BYTES    ((uint64_t)8 << 20)
#define PATIENCE_NSEC   (60 * NSEC_PER_SEC)
#define FIND_AGAIN_NSEC (500 * NSEC_PER_MSEC)
#define TRIAL_MSEC      500
#define N_PREFILLS      256 /* after which earlier reports don't count */
#define SLOW_RUN_MSEC   2
#define SLOW_STOP_MSEC  38

/* ---- two daemons ----------------------------------------------------------------------------- */

/* A probe may take a second, not 5 ms: two cores run the server, two daemons and their clients, so
 * the scheduler decides its time. */
static int start_daemon(
        struct hosts *h, struct private_daemon *d, uint32_t n_pages, const char *codec)
{
        char lines[256], device[96];
        const struct private_tenant tenants[] = {{"a", lines}, {NULL, NULL}};
        const struct private_options options = {.tenants = tenants, .device_lines = device};
        uint64_t bytes = round_up_u64(n_pages * HOSTS_PAGE_BYTES, EXTENT_BYTES);
        int r;

        snprintf(lines, sizeof(lines),
                "remote = x\nremote_write = 16GiB\nremote_prefill = 0\nhost_codec = %s\n\n"
                "[remote x]\naddresses = %s\nconnections = %d\nprobe_timeout = 1s\n",
                codec, h->redis.servers[0].address, HOSTS_CONNECTIONS);
        snprintf(device, sizeof(device), "memory = %llu\nextent = %llu\n",
                (unsigned long long)bytes, (unsigned long long)EXTENT_BYTES);
        r = private_daemon_init(d, &options);
        if (r == 0)
                r = private_daemon_start(d);
        return r < 0 ? bench_fail("private kvleased", r) : 0;
}

int hosts_connect(
        const struct private_daemon *d, const char *name, unsigned flags, struct fixture_client *c)
{
        char socket[PRIVATE_PATH_MAX];

        return fixture_connect_to(private_daemon_socket(d, "a", socket), name, flags,
                HOSTS_PAGE_TOKENS, HOSTS_PAGE_BYTES, c);
}

/* Moves this thread and later processes into a network namespace with only a loopback device. Unix
 * sockets still lead out of it. */
static bool enter_net(void)
{
        static bool has_net;

        if (!has_net && system("command -v ip tc >/dev/null") == 0 && unshare(CLONE_NEWNET) == 0)
                has_net = system("ip link set lo up") == 0;
        return has_net;
}

/* The server makes no snapshot by itself. One on demand isn't compressed, and is found at the
 * restart. */
static const char *const server_words[] = {"--rdbcompression", "no", "--rdbchecksum", "no", NULL};

static int start_server(struct hosts *h)
{
        int r = redis_cluster_init(&h->redis);

        if (r == -ENOENT) {
                fputs("kvlease-bench: there is no redis-server here (Debian: redis-tools)\n",
                        stderr);
                return -ENODEV;
        }
        if (r == 0)
                r = redis_cluster_add(&h->redis, server_words, false);
        return r < 0 ? bench_fail("redis-server", r) : 0;
}

/* Waits until the namespace has an epoch there: pages published from now on are exported. */
static int await_epoch(struct hosts *h)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;

        while (hosts_figure(&h->there, "n_namespaces_ready") < 1) {
                if (clock_now_nsec() > until)
                        return bench_fail("an epoch of the namespace", -ETIMEDOUT);
                sleep_msec(10);
        }
        return 0;
}

/* Touches all memory of `here`, so that the first loads are as fast as later ones. */
static int touch_pages(struct hosts *h)
{
        uint32_t n = 0, want = ARRAY_SIZE(h->pages);
        int r = 0;

        while (want > 0) {
                uint32_t some = MIN(want, (uint32_t)ARRAY_SIZE(h->pages) - n);

                if (some > 0 && kvl_lease(h->asker.ns, 0, some, h->pages + n) == 0)
                        n += some;
                else
                        want /= 2;
        }
        for (uint32_t i = 0; i < n; i++)
                memset(kvl_page_ptr(h->asker.ns, h->pages[i], 0), 1, HOSTS_PAGE_BYTES);
        r = kvl_free(h->asker.ns, h->pages, n);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

int hosts_open(struct hosts *h, uint32_t there_pages, const char *codec)
{
        const struct hosts_text trial = HOSTS_TRIAL;
        int r = bench_find_cores(h->cores);

        h->here.notify_fd = h->there.notify_fd = -1;
        h->has_net = enter_net();
        if (r == 0)
                r = start_server(h);
        if (r == 0)
                r = start_daemon(h, &h->there, there_pages + HOSTS_ROOM_PAGES, codec);
        if (r == 0)
                r = start_daemon(h, &h->here, HOSTS_LONG_PAGES + HOSTS_ROOM_PAGES, codec);
        if (r == 0)
                r = hosts_connect(&h->there, "bench-maker", 0, &h->maker);
        if (r == 0)
                r = hosts_connect(&h->here, "bench-asker", 0, &h->asker);
        if (r == 0)
                r = hosts_connect(&h->here, "bench-socket", KVL_CONNECT_NO_SHM, &h->socket);
        if (r == 0)
                r = await_epoch(h);
        if (r == 0)
                r = touch_pages(h);
        if (r == 0)
                r = hosts_say_prefill(h, 1); /* everything is worth it */
        return r == 0 ? hosts_share(h, &trial, 1) : r;
}

void hosts_close(struct hosts *h)
{
        if (h->maker.conn)
                fixture_disconnect(&h->maker);
        if (h->asker.conn)
                fixture_disconnect(&h->asker);
        if (h->socket.conn)
                fixture_disconnect(&h->socket);
        private_daemon_deinit(&h->here);
        private_daemon_deinit(&h->there);
        redis_cluster_deinit(&h->redis);
        (void)bench_find_cores(h->cores);
}

int64_t hosts_figure(const struct private_daemon *d, const char *name)
{
        json_t *reply = qos_ctl(d, "exchanges");
        const json_t *row = json_array_get(json_object_get(reply, "exchanges"), 0);
        const json_t *value = json_object_get(row ? row : reply, name);
        int64_t figure = value ? json_integer_value(value) : -ENOENT;

        json_decref(reply);
        return figure;
}

/* ---- cores ----------------------------------------------------------------------------------- */

/* All threads of a process. */
static void pin_process(pid_t pid, const cpu_set_t *set)
{
        char path[64];
        struct dirent *e;
        DIR *dir;

        snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
        dir = pid > 0 ? opendir(path) : NULL;
        while (dir && (e = readdir(dir)))
                if (e->d_name[0] != '.')
                        (void)sched_setaffinity((pid_t)atoi(e->d_name), sizeof(*set), set);
        if (dir)
                closedir(dir);
}

static void pin_others(const struct hosts *h, const cpu_set_t *set)
{
        pin_process(h->here.pid, set);
        pin_process(h->there.pid, set);
        pin_process(h->redis.servers[0].pid, set);
}

void hosts_part(const struct hosts *h)
{
        cpu_set_t set;

        if (h->cores[CORE_OTHER] < 0)
                return;
        CPU_ZERO(&set);
        CPU_SET(h->cores[CORE_OTHER], &set);
        pin_others(h, &set);
        (void)bench_pin(0, h->cores[CORE_CLIENT]);
}

void hosts_spread(struct hosts *h)
{
        cpu_set_t set;

        (void)bench_find_cores(h->cores);
        if (sched_getaffinity(0, sizeof(set), &set) == 0)
                pin_others(h, &set);
}

/* ---- texts ----------------------------------------------------------------------------------- */

const uint8_t *hosts_keys(struct hosts *h, struct hosts_text t)
{
        for (uint32_t i = 0; i < t.n_pages; i++)
                pattern_key(t.chain, i, h->keys + (size_t)i * KVL_KEY_BYTES);
        return h->keys;
}

/* Makes n of a page's 16-bit numbers from `first` on (a multiple of 8). int8 stores them exactly:
 * they are whole, and each channel's first one is the greatest. */
static void make_numbers(uint16_t *to, uint64_t first, uint64_t n, uint64_t seed)
{
        uint64_t bytes = 0;

        for (uint64_t i = first; i < first + n; i++) {
                bytes = i % 8 == 0 ? pattern_mix(seed + i / 8) : bytes >> 8;
                _Float16 number = i % MATRIX_NUMBERS < N_CHANNELS
                                          ? (_Float16)127
                                          : (_Float16)((int)(bytes % 255) - 127);

                memcpy(&to[i - first], &number, sizeof(number));
        }
}

static int compute(struct hosts *h, struct hosts_text t)
{
        struct kvl_ns *ns = h->maker.ns;
        struct kvl_publish p = {.size = sizeof(p),
                .pages = h->pages,
                .keys = hosts_keys(h, t),
                .n_pages = t.n_pages,
                .last_tokens = HOSTS_PAGE_TOKENS};
        int r = kvl_lease(ns, 0, t.n_pages, h->pages);

        for (uint32_t i = 0; i < t.n_pages && r == 0; i++)
                make_numbers(kvl_page_ptr(ns, h->pages[i], 0), 0, HOSTS_PAGE_BYTES / 2,
                        pattern_seed("a", t.chain, i));
        if (r == 0)
                r = kvl_publish(ns, &p, NULL, NULL);
        if (r == 0)
                r = kvl_release(ns, h->pages, t.n_pages);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

/* A text found a second time is exported, too; a failed write is tried again. */
static int find_there(struct hosts *h, struct hosts_text t)
{
        uint64_t n_tokens;
        uint32_t n = 0;
        int r = kvl_lookup(h->maker.ns, 0, hosts_keys(h, t), t.n_pages, h->pages, &n, &n_tokens);

        if (r == 0)
                r = kvl_release(h->maker.ns, h->pages, n);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

static int share_one(struct hosts *h, struct hosts_text t)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC, again = 0;
        int r = compute(h, t);

        h->n_exported += t.n_pages;
        /* Asking for figures makes the daemon read the rings. */
        while (r == 0 && hosts_figure(&h->there, "exported_pages") < (int64_t)h->n_exported) {
                if (clock_now_nsec() > until)
                        return bench_fail("texts for other hosts", -ETIMEDOUT);
                if (clock_now_nsec() > again) {
                        r = find_there(h, t);
                        again = clock_now_nsec() + FIND_AGAIN_NSEC;
                }
                sleep_msec(5);
        }
        return r;
}

int hosts_share(struct hosts *h, const struct hosts_text *texts, unsigned n)
{
        int r = 0;

        for (unsigned i = 0; i < n && r == 0; i++)
                r = share_one(h, texts[i]);
        return r;
}

int hosts_empty(struct hosts *h, struct kvl_ns *ns)
{
        uint32_t n = 0, want = 256;
        int r;

        while (want > 0 && n < ARRAY_SIZE(h->pages)) {
                want = MIN(want, (uint32_t)ARRAY_SIZE(h->pages) - n);
                if (kvl_lease(ns, 0, want, h->pages + n) == 0)
                        n += want;
                else
                        want /= 2;
        }
        r = n > 0 ? kvl_free(ns, h->pages, n) : 0;
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

int hosts_remove(struct hosts *h, struct hosts_text t)
{
        uint64_t n_tokens, until = clock_now_nsec() + PATIENCE_NSEC;
        int r;

        do {
                uint32_t n = 0;

                /* A page released a moment ago can't be evicted before the daemon has looked. */
                r = hosts_empty(h, h->asker.ns);
                if (r == 0)
                        r = kvl_lookup(
                                h->asker.ns, 0, hosts_keys(h, t), 1, h->pages, &n, &n_tokens);
                if (r == KVL_MISS)
                        return 0;
                if (r == 0)
                        r = kvl_release(h->asker.ns, h->pages, n);
                if (r == 0 && clock_now_nsec() > until)
                        return bench_fail("a text that is to go", -ETIMEDOUT);
                sleep_msec(1);
        } while (r == 0);
        return bench_fail(kvl_last_error(), r);
}

/* The second token of each page. */
static bool is_right(const struct hosts *h, struct hosts_text t, uint32_t n)
{
        uint16_t wanted[N_CHANNELS];

        for (uint32_t i = 0; i < n; i++) {
                const uint16_t *page = kvl_page_ptr(h->asker.ns, h->pages[i], 0);

                make_numbers(wanted, N_CHANNELS, N_CHANNELS, pattern_seed("a", t.chain, i));
                if (memcmp(page + N_CHANNELS, wanted, sizeof(wanted)) != 0)
                        return false;
        }
        return true;
}

int hosts_ask(struct hosts *h, struct hosts_text t, int timeout_msec, struct hosts_answer *ret)
{
        const uint8_t *keys = hosts_keys(h, t);
        uint64_t n_tokens, began = clock_now_nsec();
        int r = kvl_lookup_wait(h->asker.ns, 0, keys, t.n_pages, timeout_msec, h->pages,
                &ret->n_pages, &n_tokens, NULL);

        ret->nsec = clock_now_nsec() - began;
        if (r == KVL_MISS)
                ret->n_pages = 0;
        if (r == KVL_MISS)
                return 0;
        if (r == 0 && !is_right(h, t, ret->n_pages))
                return bench_fail("pages of another host", -EBADMSG);
        if (r == 0)
                r = kvl_release(h->asker.ns, h->pages, ret->n_pages);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

int hosts_say_prefill(struct hosts *h, double tokens_per_sec)
{
        uint32_t n_tokens = tokens_per_sec < 1000 ? (uint32_t)tokens_per_sec : 1000;
        uint64_t nsec = (uint64_t)(n_tokens * (double)NSEC_PER_SEC / tokens_per_sec);
        int r = 0;

        for (unsigned i = 0; i < N_PREFILLS && r == 0; i++)
                r = kvl_note_prefill(h->asker.ns, n_tokens, nsec);
        return r ? bench_fail(kvl_last_error(), r) : 0;
}

/* ---- the store's state ----------------------------------------------------------------------- */

const char *const hosts_state_names[N_HOSTS_STATES] = {
        "well", "stopped", "slow", "killed", "cut-off"};

/* Every packet is too large for this queue, and is dropped silently. */
static int cut_off(bool is_cut)
{
        const char *line = is_cut ? "tc qdisc add dev lo root tbf rate 8bit burst 1 limit 1"
                                  : "tc qdisc del dev lo root";

        return system(line) == 0 ? 0 : bench_fail(line, -EIO);
}

bool hosts_can(const struct hosts *h, enum hosts_state state)
{
        return state != HOSTS_CUT_OFF || h->has_net;
}

static struct {
        pthread_t thread;
        pid_t pid;
        _Atomic bool is_over;
} slowing;

static void *make_slow(void *data)
{
        while (!atomic_load(&slowing.is_over)) {
                kill(slowing.pid, SIGSTOP);
                sleep_msec(SLOW_STOP_MSEC);
                kill(slowing.pid, SIGCONT);
                sleep_msec(SLOW_RUN_MSEC);
        }
        return NULL;
}

int hosts_save(struct hosts *h)
{
        char *said = redis_cluster_call(&h->redis, 0, "SAVE");
        bool is_saved = said && strncmp(said, "OK", 2) == 0;

        free(said);
        return is_saved ? 0 : bench_fail("a snapshot of the server", -EIO);
}

/* Restarts the server on its old port. */
static int start_again(struct hosts *h)
{
        struct redis_server *s = &h->redis.servers[0];
        cpu_set_t own;
        int r;

        (void)waitpid(s->pid, NULL, 0);
        s->pid = 0;
        (void)sched_getaffinity(0, sizeof(own), &own);
        if (h->cores[CORE_OTHER] >= 0)
                (void)bench_pin(0, h->cores[CORE_OTHER]); /* the child inherits it */
        r = redis_cluster_restart(&h->redis, 0, server_words, false);
        (void)sched_setaffinity(0, sizeof(own), &own);
        return r < 0 ? bench_fail("redis-server", r) : 0;
}

int hosts_enter(struct hosts *h, enum hosts_state state)
{
        slowing.pid = h->redis.servers[0].pid;
        if (state == HOSTS_STOPPED)
                kill(slowing.pid, SIGSTOP);
        else if (state == HOSTS_KILLED)
                kill(slowing.pid, SIGKILL);
        else if (state == HOSTS_CUT_OFF)
                return cut_off(true);
        if (state != HOSTS_SLOW)
                return 0;
        atomic_store(&slowing.is_over, false);
        return pthread_create(&slowing.thread, NULL, make_slow, NULL) == 0
                       ? 0
                       : bench_fail("thread", -EAGAIN);
}

int hosts_leave(struct hosts *h, enum hosts_state state)
{
        int r = 0;

        if (state == HOSTS_SLOW) {
                atomic_store(&slowing.is_over, true);
                pthread_join(slowing.thread, NULL);
        } else if (state == HOSTS_STOPPED) {
                kill(h->redis.servers[0].pid, SIGCONT);
        } else if (state == HOSTS_KILLED) {
                r = start_again(h);
        } else if (state == HOSTS_CUT_OFF) {
                r = cut_off(false);
        }
        return r;
}

int hosts_await_well(struct hosts *h)
{
        uint64_t until = clock_now_nsec() + PATIENCE_NSEC;
        const struct hosts_text trial = HOSTS_TRIAL;
        struct hosts_answer a;
        int r;

        do {
                r = hosts_remove(h, trial);
                if (r == 0)
                        r = hosts_ask(h, trial, TRIAL_MSEC, &a);
                if (r == 0 && a.n_pages < trial.n_pages)
                        sleep_msec(20);
                if (r == 0 && clock_now_nsec() > until)
                        r = bench_fail("a store that is well again", -ETIMEDOUT);
        } while (r == 0 && a.n_pages < trial.n_pages);
        return r;
}
