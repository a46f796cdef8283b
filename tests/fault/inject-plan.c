#include "tests/fault/inject-plan.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macros.h"
#include "tests/integration/pattern.h"

const struct inject_function_info functions[N_INJECT] = {
#define X(name, error) {#name, error},
        INJECT_TABLE(X)
#undef X
};

char file_env[64], preload_env[256];
char point_env[64];
const char *const daemon_env[] = {file_env, preload_env, NULL};
const char *start_env[] = {file_env, preload_env, point_env, NULL};
static struct inject *shared;

/* ---- arming --------------------------------------------------------------------------------- */

int open_shared(void **state)
{
        static char path[] = "/tmp/kvl-inject-XXXXXX";
        _cleanup_fd_ int fd = mkostemp(path, O_CLOEXEC);
        const char *object = getenv("KVL_INJECT_SO");

        assert_true(fd >= 0);
        assert_non_null(object);
        assert_int_equal(ftruncate(fd, sizeof(*shared)), 0);
        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(shared != MAP_FAILED);
        snprintf(file_env, sizeof(file_env), "KVL_INJECT_FILE=%s", path);
        snprintf(preload_env, sizeof(preload_env), "LD_PRELOAD=%s", object);
        return 0;
}

int close_shared(void **state)
{
        munmap(shared, sizeof(*shared));
        return unlink(strchr(file_env, '=') + 1);
}

void arm(unsigned f, uint64_t k)
{
        struct inject_slot *s = &shared->slots[f];

        atomic_store(&s->error, functions[f].error);
        atomic_store(&s->fail_at, k ? atomic_load(&s->n_calls) + k : 0);
}

void hold_from(unsigned f, uint64_t k)
{
        struct inject_slot *s = &shared->slots[f];

        atomic_store(&s->hold_at, k ? atomic_load(&s->n_calls) + k : 0);
}

uint64_t count_held(unsigned f)
{
        return atomic_load(&shared->slots[f].n_held);
}

void reset_counts(void)
{
        memset(shared, 0, sizeof(*shared));
}

struct counts counts_now(void)
{
        struct counts c;

        for (unsigned f = 0; f < N_INJECT; f++)
                c.n[f] = atomic_load(&shared->slots[f].n_calls);
        return c;
}

struct counts counts_since(const struct counts *before)
{
        struct counts c = counts_now();

        for (unsigned f = 0; f < N_INJECT; f++)
                c.n[f] -= before->n[f];
        return c;
}

/* ---- which calls are tried ------------------------------------------------------------------ */

struct plan plan_new(struct counts counts, unsigned seconds)
{
        const char *point = getenv("KVL_INJECT_POINT");
        struct plan p = {.counts = counts, .random = harness_seed(), .only = N_INJECT};
        char name[32];
        unsigned long k;

        p.end_nsec = now_nsec() + seconds * UINT64_C(1000000000);
        if (point && sscanf(point, "%31[^:]:%lu", name, &k) == 2)
                for (unsigned f = 0; f < N_INJECT; f++)
                        if (strcmp(functions[f].name, name) == 0)
                                p.only = f, p.only_k = k;
        return p;
}

bool plan_next(struct plan *p)
{
        if (p->only < N_INJECT) {
                p->f = p->only;
                p->k = p->only_k;
                return p->n_tried++ == 0;
        }
        for (; now_nsec() < p->end_nsec; p->round++) {
                for (; p->f < N_INJECT; p->f++) {
                        uint64_t n = p->counts.n[p->f];

                        if (p->round >= n)
                                continue;
                        p->k = private_full() || n < 8 ? p->round + 1
                                                       : 1 + pattern_next(&p->random) % n;
                        p->n_tried++;
                        p->round_has_any = true;
                        return true;
                }
                if (!p->round_has_any)
                        return false;
                p->round_has_any = false;
                p->f = 0;
        }
        return false;
}

void plan_done(const struct plan *p, const char *what)
{
        uint64_t n = 0;

        for (unsigned f = 0; f < N_INJECT; f++)
                n += p->counts.n[f];
        print_message("%s: %u calls of %llu failed\n", what, p->n_tried, (unsigned long long)n);
        assert_true(p->n_tried > 0);
}

/* ---- the log -------------------------------------------------------------------------------- */

char *log_from(struct harness *h, size_t offset)
{
        char *text = NULL, *rest;
        size_t len = 0;

        assert_int_equal(file_read(h->daemon.log, 64 << 20, &text, &len), 0);
        rest = strdup(text + MIN(offset, len));
        assert_non_null(rest);
        free(text);
        return rest;
}

size_t log_length(struct harness *h)
{
        char *text = log_from(h, 0);
        size_t len = strlen(text);

        free(text);
        return len;
}
