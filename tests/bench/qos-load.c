/*
 * Competitors of the pinned tenant in the benchmark `qos`. A dynamic tenant looks texts up,
 * computes and publishes those that aren't cached (a copy of a page's bytes), and calls safe
 * points. It runs as fast as it can; its texts are far more than its memory. A burner does this in
 * memory of its own, of the size of the other's share, with a table as index. It makes as many
 * steps as the tenants in the round before, so that caches and memory do the same work. It computes
 * for the rest of its time.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "tests/bench/qos.h"
#include "tests/bench/table.h"
#include "tests/integration/pattern.h"

#define WORKING_SETS 4   /* specification: of all, in pools */
#define SETTLE_MSEC  200 /* of safe points before a tenant parks; not tuned */
#define WAIT_MSEC    60000
#define SPINS        300 /* between two looks at the clock: about a microsecond; not tuned */

struct competitor {
        struct qos *q;
        unsigned number;
        uint64_t random, n_texts;
        uint8_t *page; /* the bytes to "compute" */
        uint8_t keys[QOS_TEXT * KVL_KEY_BYTES];
        struct kvl_conn *conn; /* a tenant's */
        struct kvl_ns *ns;
        struct table *table; /* a burner's */
        uint8_t *memory;
        uint32_t n_pages;
        uint64_t copies; /* thousandths of a page that it owes */
};

static int connect_tenant(struct competitor *c)
{
        char name[16];

        snprintf(name, sizeof(name), "t%u", c->number);
        return qos_connect(&c->q->daemon, name, KVL_CONNECT_SAFEPOINTS, &c->conn, &c->ns);
}

static void choose_text(struct competitor *c)
{
        uint64_t chain = pattern_next(&c->random) % c->n_texts;

        for (uint32_t i = 0; i < QOS_TEXT; ++i)
                pattern_key(chain, i, c->keys + i * KVL_KEY_BYTES);
}

/* ---- a dynamic tenant ----------------------------------------------------------------------- */

/* Publishes the computed pages from page `first` of the text on, and releases all. */
static int publish(struct competitor *c, uint32_t first, const uint32_t *pages, uint32_t n)
{
        uint32_t carriers[QOS_TEXT], n_done = 0;
        struct kvl_publish p = {.size = sizeof(p),
                .pages = pages,
                .keys = c->keys + first * KVL_KEY_BYTES,
                .n_pages = n,
                .parent_key = first > 0 ? c->keys + (first - 1) * KVL_KEY_BYTES : NULL,
                .last_tokens = QOS_PAGE_TOKENS};
        int r = kvl_publish(c->ns, &p, carriers, &n_done), code = r;

        if (code < 0)
                return r;
        r = n_done > 0 ? kvl_release(c->ns, carriers, n_done) : 0;
        for (uint32_t i = 0; r == 0 && i < n_done; ++i)
                if (carriers[i] != pages[i])
                        r = kvl_free(c->ns, &pages[i], 1);
        return r < 0 || n_done == n ? r : kvl_free(c->ns, pages + n_done, n - n_done);
}

static int tenant_step(struct competitor *c)
{
        uint32_t found[QOS_TEXT], pages[QOS_TEXT], n = 0;
        uint64_t tokens;
        int r;

        choose_text(c);
        r = kvl_lookup(c->ns, 0, c->keys, QOS_TEXT, found, &n, &tokens);
        if (r < 0)
                return r;
        if (r > 0)
                n = 0;
        r = n < QOS_TEXT ? kvl_lease(c->ns, 0, QOS_TEXT - n, pages) : 0;
        if (r > 0)
                atomic_fetch_add(&c->q->words->n_refused, 1);
        else if (r == 0 && n < QOS_TEXT) {
                for (uint32_t i = 0; i < QOS_TEXT - n; ++i)
                        memcpy(kvl_page_ptr(c->ns, pages[i], 0), c->page, QOS_PAGE_BYTES);
                atomic_fetch_add(&c->q->words->n_copied[QOS_LOADED], QOS_TEXT - n);
                r = publish(c, n, pages, QOS_TEXT - n);
        }
        if (r >= 0 && n > 0)
                r = kvl_release(c->ns, found, n);
        if (r >= 0)
                r = kvl_dispatch(c->conn);
        return r >= 0 ? kvl_safepoint(c->conn, NULL) : r;
}

/* Gives back recalled memory before the tenant parks. */
static int tenant_settle(struct competitor *c)
{
        int r = 0;

        for (unsigned i = 0; r >= 0 && i < SETTLE_MSEC / 10; ++i) {
                sleep_msec(10);
                r = kvl_dispatch(c->conn);
                if (r >= 0)
                        r = kvl_safepoint(c->conn, NULL);
        }
        return r;
}

/* ---- a burner ------------------------------------------------------------------------------- */

static int open_burner(struct competitor *c)
{
        c->n_pages = (uint32_t)(qos_fair(c->q, c->number) / QOS_PAGE_BYTES);
        c->memory = malloc((size_t)c->n_pages * QOS_PAGE_BYTES);
        if (!c->memory || table_new(c->n_pages, &c->table) < 0)
                return -ENOMEM;
        memset(c->memory, 1, (size_t)c->n_pages * QOS_PAGE_BYTES);
        for (uint32_t i = 0; i < c->n_pages / 2; ++i) {
                uint8_t key[KVL_KEY_BYTES];

                pattern_key(i / QOS_TEXT, i % QOS_TEXT, key);
                table_insert(c->table, key, i, QOS_PAGE_TOKENS);
        }
        return 0;
}

static uint64_t cpu_nsec(void)
{
        struct timespec t;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int burner_step(struct competitor *c)
{
        struct qos_words *w = c->q->words;
        uint64_t tokens, end = cpu_nsec() + atomic_load(&w->step_nsec);
        uint32_t found[QOS_TEXT], n, at = (uint32_t)(pattern_next(&c->random) % c->n_pages);

        choose_text(c);
        n = table_lookup(c->table, c->keys, QOS_TEXT, found, &tokens);
        c->copies += atomic_load(&w->copies_per_1000);
        for (; c->copies >= 1000; c->copies -= 1000) {
                memcpy(c->memory + (size_t)(at++ % c->n_pages) * QOS_PAGE_BYTES, c->page,
                        QOS_PAGE_BYTES);
                atomic_fetch_add(&w->n_copied[QOS_ALONE], 1);
        }
        table_release(c->table, found, n);
        while (cpu_nsec() < end)
                for (unsigned i = 0; i < SPINS; ++i)
                        pattern_next(&c->random);
        return 0;
}

/* ---- both ----------------------------------------------------------------------------------- */

static int compete(struct competitor *c, enum qos_phase phase)
{
        struct qos_words *w = c->q->words;
        int r = phase == QOS_LOADED ? connect_tenant(c) : open_burner(c);

        atomic_fetch_add(&w->n_ready, 1);
        while (r >= 0 && !atomic_load(&w->failed)) {
                if (atomic_load(&w->phase) != (int)phase) {
                        sleep_msec(1);
                        continue;
                }
                atomic_fetch_add(&w->n_running[phase], 1);
                while (r >= 0 && atomic_load(&w->phase) == (int)phase) {
                        r = phase == QOS_LOADED ? tenant_step(c) : burner_step(c);
                        atomic_fetch_add(&w->n_steps[phase], 1);
                }
                if (r >= 0 && phase == QOS_LOADED)
                        r = tenant_settle(c);
                atomic_fetch_sub(&w->n_running[phase], 1);
        }
        return r;
}

static void competitor_main(struct qos *q, enum qos_phase phase, unsigned number)
{
        struct competitor c = {.q = q, .number = number, .random = pattern_mix(number)};
        int core = q->cores[number % N_CORES], r = -ENOMEM;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        c.n_texts = WORKING_SETS * qos_pool(q) / QOS_DYNAMIC / (QOS_TEXT * QOS_PAGE_BYTES);
        c.page = calloc(1, QOS_PAGE_BYTES);
        if (bench_pin(0, core < 0 ? q->cores[CORE_CLIENT] : core) == 0 && c.page)
                r = compete(&c, phase);
        if (r < 0) {
                fprintf(stderr, "kvlease-bench: competitor %u: %s\n", number,
                        phase == QOS_LOADED ? kvl_last_error() : strerror(-r));
                atomic_store(&q->words->failed, true);
        }
        _exit(1);
}

/* Waits until `*word` is `value`. */
static int wait_word(struct qos *q, _Atomic unsigned *word, unsigned value)
{
        for (unsigned i = 0; i < WAIT_MSEC; ++i) {
                if (atomic_load(&q->words->failed))
                        return bench_fail("a competitor", -EIO);
                if (atomic_load(word) == value)
                        return 0;
                sleep_msec(1);
        }
        return bench_fail("the competitors", -ETIMEDOUT);
}

int qos_load_start(struct qos *q)
{
        q->words = mmap(
                NULL, sizeof(*q->words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (q->words == MAP_FAILED) {
                q->words = NULL;
                return bench_fail("memory", -errno);
        }
        atomic_store(&q->words->phase, QOS_N_PHASES);
        for (unsigned i = 0; i < QOS_N_PHASES * QOS_DYNAMIC; ++i) {
                unsigned phase = i / QOS_DYNAMIC, number = i % QOS_DYNAMIC;
                pid_t pid = fork();

                if (pid == 0)
                        competitor_main(q, phase, number);
                if (pid < 0)
                        return bench_fail("fork", -errno);
                q->pids[phase][number] = pid;
        }
        return wait_word(q, &q->words->n_ready, QOS_N_PHASES * QOS_DYNAMIC);
}

void qos_load_stop(struct qos *q)
{
        for (unsigned i = 0; i < QOS_N_PHASES * QOS_DYNAMIC; ++i) {
                pid_t *pid = &q->pids[i / QOS_DYNAMIC][i % QOS_DYNAMIC];

                if (*pid > 0) {
                        kill(*pid, SIGKILL);
                        waitpid(*pid, NULL, 0);
                }
                *pid = 0;
        }
        if (q->words)
                munmap(q->words, sizeof(*q->words));
        q->words = NULL;
}

int qos_load_switch(struct qos *q, int phase)
{
        struct qos_words *w = q->words;
        int r = 0;

        atomic_store(&w->phase, phase);
        for (unsigned p = 0; r == 0 && p < QOS_N_PHASES; ++p)
                r = wait_word(q, &w->n_running[p], (int)p == phase ? QOS_DYNAMIC : 0);
        return r;
}

struct qos_work qos_load_work(const struct qos *q, enum qos_phase phase)
{
        return (struct qos_work){.at_nsec = now_nsec(),
                .n_steps = atomic_load(&q->words->n_steps[phase]),
                .n_copied = atomic_load(&q->words->n_copied[phase])};
}

void qos_load_burn_like(struct qos *q, struct qos_work before)
{
        struct qos_work now = qos_load_work(q, QOS_LOADED);
        uint64_t n_steps = MAX(now.n_steps - before.n_steps, UINT64_C(1));
        uint64_t n_cores = q->cores[CORE_OTHER] < 0 ? 1 : N_CORES;

        atomic_store(&q->words->step_nsec, n_cores * (now.at_nsec - before.at_nsec) / n_steps);
        atomic_store(&q->words->copies_per_1000, (now.n_copied - before.n_copied) * 1000 / n_steps);
}
