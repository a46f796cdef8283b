/* tiers: code that moves pages between tiers, beside code that only moves their bytes. */
#include "lab/bench/tiers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"

#define CONTEST_BYTES ((size_t)128 << 20) /* four times the caches of the machines seen so far */

static const struct {
        const char *name;
        tiers_part_fn fn;
} parts[] = {{"moves", tiers_moves}, {"codecs", tiers_codecs}, {"perplexity", tiers_perplexity},
        {"traffic", tiers_traffic}, {"leases", tiers_leases}, {"hits", tiers_hits},
        {"prefetch", tiers_prefetch}};

static int map(int *ret_fd, size_t bytes, uint8_t **ret)
{
        void *at;

        *ret_fd = memfd_create_sized("kvlease-bench", bytes);
        if (*ret_fd < 0)
                return *ret_fd;
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *ret_fd, 0);
        if (at == MAP_FAILED)
                return -errno;
        *ret = at;
        return 0;
}

/* Magnitudes from 2^-5 to 1, of both signs. */
static void fill(uint8_t *bytes, size_t n)
{
        uint64_t x = 1;

        for (size_t i = 0; i < n; i += 2) {
                uint16_t half;

                x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
                half = (uint16_t)((x >> 63 << 15) | (0x2800 + (x >> 33) % 0x1400));
                memcpy(bytes + i, &half, 2);
        }
}

int contest_open(struct contest *c, bool quick)
{
        int r;

        *c = (struct contest){.bytes = quick ? CONTEST_BLOCK : CONTEST_BYTES, .fds = {-1, -1}};
        r = map(&c->fds[0], 2 * c->bytes, &c->plain);
        if (r == 0)
                r = map(&c->fds[1], 2 * c->bytes, &c->stored);
        if (r < 0) {
                contest_close(c);
                return bench_fail("memory", r);
        }
        fill(c->plain, 2 * c->bytes);
        memset(c->stored, 0, 2 * c->bytes);
        return 0;
}

void contest_close(struct contest *c)
{
        if (c->plain)
                munmap(c->plain, 2 * c->bytes);
        if (c->stored)
                munmap(c->stored, 2 * c->bytes);
        for (unsigned i = 0; i < ARRAY_SIZE(c->fds); i++)
                c->fds[i] = fd_close(c->fds[i]);
        c->plain = c->stored = NULL;
}

static void copy_block(const struct contest *c, bool is_up, size_t at)
{
        uint8_t *to = is_up ? c->plain : c->stored;
        const uint8_t *from = is_up ? c->stored : c->plain;

        at += c->bytes;
        for (size_t end = at + CONTEST_BLOCK; at < end; at += c->page_bytes)
                memcpy(to + at, from + at, c->page_bytes);
}

/* Nanoseconds. */
struct spent {
        uint64_t by[N_CONTEST_CLOCKS];
};

static struct spent spent_now(void)
{
        struct timespec t;

        if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) < 0)
                abort();
        return (struct spent){{[CONTEST_CLOCK] = clock_now_nsec(),
                [CONTEST_PROCESSOR] = (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec}};
}

static void add_between(struct spent *sum, struct spent begin, struct spent end)
{
        for (unsigned i = 0; i < N_CONTEST_CLOCKS; i++)
                sum->by[i] += end.by[i] - begin.by[i];
}

static int one_round(struct contest *c, contest_fn fn, void *data, struct spent *ret_own,
        struct spent *ret_memcpy)
{
        for (unsigned is_up = 0; is_up < 2; is_up++)
                for (size_t at = 0; at < c->bytes; at += CONTEST_BLOCK) {
                        struct spent begin = spent_now(), middle;
                        int r;

                        copy_block(c, is_up, at);
                        middle = spent_now();
                        r = fn(c, is_up, at, CONTEST_BLOCK, data);
                        if (r < 0)
                                return r;
                        add_between(ret_memcpy, begin, middle);
                        add_between(ret_own, middle, spent_now());
                }
        return 0;
}

static double median_rate(const struct contest *c, const struct spent *spent, unsigned n,
        unsigned clock, double *room)
{
        for (unsigned i = 0; i < n; i++)
                room[i] = 2.0 * (double)c->bytes / (double)spent[i].by[clock];
        return bench_quantile(room, n, 0.5);
}

int contest_run(struct contest *c, unsigned rounds, contest_fn fn, void *data,
        struct bench_result *const results[N_CONTEST_CLOCKS])
{
        struct spent *own = calloc(rounds, sizeof(*own)), *plain = calloc(rounds, sizeof(*plain));
        double *room = calloc(rounds, sizeof(*room));
        int r = own && plain && room ? 0 : bench_fail("rounds", -ENOMEM);

        for (unsigned i = 0; r == 0 && i < rounds; i++)
                r = one_round(c, fn, data, &own[i], &plain[i]);
        for (unsigned k = 0; r == 0 && k < N_CONTEST_CLOCKS; k++)
                if (results[k]) {
                        results[k]->baseline = "memcpy";
                        results[k]->median = median_rate(c, own, rounds, k, room);
                        results[k]->baseline_median = median_rate(c, plain, rounds, k, room);
                }
        free(own);
        free(plain);
        free(room);
        return r;
}

/* Runs all parts, or the named one. */
static int run_tiers(struct bench_run *run)
{
        bool any = false;
        int r = 0;

        for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(parts); i++) {
                if (run->argument && strcmp(run->argument, parts[i].name) != 0)
                        continue;
                any = true;
                r = parts[i].fn(run);
                if (r == -ENODEV)
                        r = 0;
        }
        if (!any)
                return bench_fail(
                        "the parts of tiers are moves, codecs, perplexity, traffic, leases and hits",
                        -EINVAL);
        return r;
}

const struct bench bench_tiers = {"tiers",
        "what pages cost on their way to other tiers and back, with codecs and without", 15,
        run_tiers, .uses_cpu = true, .argument = "[PART]"};
