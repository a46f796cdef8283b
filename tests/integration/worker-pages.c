/* Commands of the worker that concern pages. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/macros.h"
#include "tests/integration/pattern.h"
#include "tests/integration/worker.h"

static uint32_t pages[WORKER_MAX_WORDS], found[WORKER_MAX_WORDS];
static uint8_t keys[WORKER_MAX_WORDS * KVL_KEY_BYTES];

/* lease N */
static void do_lease(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t n = (uint32_t)strtoul(args[0], NULL, 10);
        int r = kvl_lease(w->ns, 0, n, pages);

        worker_answer_pages(r, pages, r == 0 ? n : 0);
}

/* N [min=M] [wait=MSEC] [run|runs]; returns N. */
static uint32_t parse_lease(char **args, unsigned n_args, struct kvl_lease_options *ret)
{
        *ret = (struct kvl_lease_options){.size = sizeof(*ret)};
        for (unsigned i = 1; i < n_args; ++i) {
                if (strncmp(args[i], "min=", 4) == 0)
                        ret->min_pages = (uint32_t)strtoul(args[i] + 4, NULL, 10);
                else if (strncmp(args[i], "wait=", 5) == 0)
                        ret->max_wait_msec = (int)strtol(args[i] + 5, NULL, 10);
                else if (strcmp(args[i], "run") == 0)
                        ret->flags = KVL_LEASE_CONTIGUOUS;
                else if (strcmp(args[i], "runs") == 0)
                        ret->flags = KVL_LEASE_PREFER_CONTIGUOUS;
        }
        return (uint32_t)strtoul(args[0], NULL, 10);
}

static void answer_lease(int code, const uint32_t *leased, const struct kvl_lease_result *result)
{
        printf("%d %u %d %llu", code, result->n_pages, (int)result->reason,
                (unsigned long long)result->waited_usec);
        for (uint32_t i = 0; i < result->n_pages; ++i)
                printf(" %u", leased[i]);
        printf("%s%s\n", code ? " " : "", code ? kvl_last_error() : "");
}

/* lease-with N [min=M] [wait=MSEC] [run|runs] (wait=-1: not at all): pages granted, reason,
 * microseconds waited, then the pages, or the sentence */
static void do_lease_with(struct worker_state *w, char **args, unsigned n_args)
{
        struct kvl_lease_result result = {.size = sizeof(result)};
        struct kvl_lease_options o;
        uint32_t n = parse_lease(args, n_args, &o);
        int r = kvl_lease_with(w->ns, 0, n, &o, pages, &result);

        answer_lease(r, pages, &result);
}

/* fill PAGE SEED */
static void do_fill(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t page = (uint32_t)strtoul(args[0], NULL, 10);
        uint64_t seed = strtoull(args[1], NULL, 10);
        int r = 0;

        for (unsigned i = 0; i < w->n_planes && r == 0; ++i)
                r = worker_page_fill(w->ns, page, w->first_plane + i, seed);
        worker_answer(r);
}

/* verify PAGE SEED: 0, or 1 where it holds something else */
static void do_verify(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t page = (uint32_t)strtoul(args[0], NULL, 10);
        uint64_t seed = strtoull(args[1], NULL, 10);
        bool same = true;

        for (unsigned i = 0; i < w->n_planes; ++i)
                same &= worker_page_matches(w->ns, page, w->first_plane + i, seed);
        printf("%d\n", same ? 0 : 1);
}

/* zeros PAGE...: how many of them hold anything but zeros */
static void do_zeros(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t n = worker_parse_pages(args, n_args, pages);
        unsigned n_dirty = 0;

        for (uint32_t i = 0; i < n; ++i)
                for (unsigned plane = 0; plane < w->info.n_planes; ++plane)
                        n_dirty += !worker_page_is_zero(w->ns, pages[i], plane);
        printf("0 %u\n", n_dirty);
}

/* mapped PAGE [PLANE]: 1 where it has an address here */
static void do_mapped(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t page = (uint32_t)strtoul(args[0], NULL, 10);
        uint32_t plane = n_args > 1 ? (uint32_t)strtoul(args[1], NULL, 10) : 0;

        printf("0 %d\n", kvl_page_ptr(w->ns, page, plane) != NULL);
}

/* The words of publish and publish-start. False: it has answered that they make no sense. */
static bool parse_publish(
        struct worker_state *w, char **args, unsigned n_args, struct kvl_publish *ret_publish)
{
        static uint8_t parent[KVL_KEY_BYTES];
        struct kvl_publish p = {.size = sizeof(p), .pages = pages, .keys = keys};

        p.last_tokens = w->info.page_tokens;
        p.n_pages = worker_parse_pages(args + 2, n_args - 2, pages);
        if (worker_parse_keys(args, 1, keys, WORKER_MAX_WORDS) != p.n_pages) {
                printf("%d as many keys as pages, please\n", -EINVAL);
                return false;
        }
        if (worker_parse_keys(args + 1, 1, parent, 1))
                p.parent_key = parent;
        *ret_publish = p;
        return true;
}

/* publish FIRST-KEYS PARENT|- PAGE... */
static void do_publish(struct worker_state *w, char **args, unsigned n_args)
{
        struct kvl_publish p;
        uint32_t n_done = 0;
        int r;

        if (!parse_publish(w, args, n_args, &p))
                return;
        r = kvl_publish(w->ns, &p, found, &n_done);
        worker_answer_pages(r, found, n_done);
}

/* Result of a started publish. */
static struct {
        bool done;
        int code;
        uint32_t n_pages;
} started;

static void on_published(struct kvl_ns *ns, int code, const uint32_t *published, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        started.done = true;
        started.code = code;
        started.n_pages = n_pages;
        memcpy(found, published, n_pages * sizeof(*found));
}

/* publish-start: the words of publish; doesn't wait */
static void do_publish_start(struct worker_state *w, char **args, unsigned n_args)
{
        struct kvl_publish p;

        if (!parse_publish(w, args, n_args, &p))
                return;
        started.done = false;
        worker_answer(kvl_publish_start(w->ns, &p, on_published, NULL));
}

void worker_publish_on_stream(
        struct worker_state *w, char **args, unsigned n_args, kvl_stream stream)
{
        struct kvl_publish p;

        if (!parse_publish(w, args, n_args, &p))
                return;
        started.done = false;
        worker_answer(kvl_publish_on_stream(w->ns, &p, stream, on_published, NULL));
}

/* publish-poll: 0, or -EAGAIN where publish-start isn't done. publish-wait: its answer, as publish
 */
static void do_publish_poll(struct worker_state *w, char **args, unsigned n_args)
{
        kvl_dispatch(w->conn);
        worker_answer(started.done ? 0 : -EAGAIN);
}

static void do_publish_wait(struct worker_state *w, char **args, unsigned n_args)
{
        struct pollfd p = {.fd = kvl_fd(w->conn)};
        int r = kvl_dispatch(w->conn);

        while (!started.done && r >= 0) {
                p.events = (short)(POLLIN | (kvl_wants_write(w->conn) ? POLLOUT : 0));
                poll(&p, 1, -1);
                r = kvl_dispatch(w->conn);
        }
        worker_answer_pages(started.done ? started.code : r, found, started.n_pages);
}

/* wakeups MSEC: how often an event loop is woken for the connection, since it was last used and
 * within that time */
static void do_wakeups(struct worker_state *w, char **args, unsigned n_args)
{
        uint64_t end = clock_now_nsec() + strtoull(args[0], NULL, 10) * NSEC_PER_MSEC, now;
        struct pollfd p = {.fd = kvl_fd(w->conn), .events = POLLIN};
        int n = 0;

        while ((now = clock_now_nsec()) < end) {
                n += poll(&p, 1, (int)((end - now) / NSEC_PER_MSEC) + 1) > 0;
                kvl_dispatch(w->conn);
        }
        worker_answer(n);
}

/* cache CHAIN N: the first pages of a text, leased at once, each filled with 1000 * CHAIN + its
 * index; nothing stays pinned */
static void do_cache(struct worker_state *w, char **args, unsigned n_args)
{
        unsigned chain = (unsigned)atoi(args[0]);
        struct kvl_publish p = {.size = sizeof(p), .pages = pages, .keys = keys};
        int r;

        p.n_pages = (uint32_t)atoi(args[1]);
        p.last_tokens = w->info.page_tokens;
        r = kvl_lease(w->ns, 0, p.n_pages, pages);
        for (uint32_t i = 0; i < p.n_pages && r == 0; ++i) {
                pattern_key(chain, i, keys + (size_t)i * KVL_KEY_BYTES);
                for (unsigned plane = 0; plane < w->info.n_planes && r == 0; ++plane)
                        r = worker_page_fill(w->ns, pages[i], plane, 1000 * chain + i);
        }
        if (r == 0)
                r = kvl_publish(w->ns, &p, found, NULL);
        worker_answer(r == 0 ? kvl_release(w->ns, found, p.n_pages) : r);
}

/* lookup KEYS... */
static void do_lookup(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t n_keys = worker_parse_keys(args, n_args, keys, WORKER_MAX_WORDS), n = 0;
        uint64_t n_tokens;
        int r = kvl_lookup(w->ns, 0, keys, n_keys, pages, &n, &n_tokens);

        /* Only the last page of a text may be partly filled. */
        if (r == 0 && (n_tokens > (uint64_t)n * w->info.page_tokens ||
                              n_tokens <= (uint64_t)(n - 1) * w->info.page_tokens)) {
                fprintf(stderr, "lookup: %llu tokens in %u pages\n", (unsigned long long)n_tokens,
                        n);
                r = -EIO;
        }
        worker_answer_pages(r, pages, r == 0 ? n : 0);
}

/* hits N KEYS...: looked up and released N times; how often all of them were found */
static void do_hits(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t n_keys = worker_parse_keys(args + 1, n_args - 1, keys, WORKER_MAX_WORDS), n;
        unsigned long n_times = strtoul(args[0], NULL, 10), n_whole = 0;
        uint64_t n_tokens;
        int r = 0;

        for (unsigned long i = 0; i < n_times && r >= 0; ++i) {
                /* One request each, like an engine's: a repeated hit isn't reported to the daemon
                 * again. */
                r = kvl_lookup(w->ns, i + 1, keys, n_keys, pages, &n, &n_tokens);
                if (r)
                        continue;
                n_whole += n == n_keys;
                r = kvl_release(w->ns, pages, n);
        }
        if (r < 0)
                worker_answer(r);
        else
                printf("0 %lu\n", n_whole);
}

static void do_release(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(kvl_release(w->ns, pages, worker_parse_pages(args, n_args, pages)));
}

static void do_pin(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(kvl_pin(w->ns, pages, worker_parse_pages(args, n_args, pages)));
}

static void do_free(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(kvl_free(w->ns, pages, worker_parse_pages(args, n_args, pages)));
}

static void do_map(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(kvl_map_pages(w->ns, pages, worker_parse_pages(args, n_args, pages)));
}

/* invalidate KEY|all|mismatch */
static void do_invalidate(struct worker_state *w, char **args, unsigned n_args)
{
        uint64_t n_pages = 0;
        bool is_mismatch = strcmp(args[0], "mismatch") == 0;
        uint32_t n_keys = is_mismatch ? 0 : worker_parse_keys(args, 1, keys, 1);
        int r = is_mismatch ? kvl_invalidate_mismatch(w->ns, &n_pages)
                            : kvl_invalidate(w->ns, n_keys ? keys : NULL, &n_pages);

        if (r)
                worker_answer(r);
        else
                printf("0 %llu\n", (unsigned long long)n_pages);
}

/* invalidate-lookup KEYS...: the whole namespace, and at once how many of the keys are found */
static void do_invalidate_lookup(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t n_keys = worker_parse_keys(args, n_args, keys, WORKER_MAX_WORDS), n = 0;
        uint64_t n_tokens;
        int r = kvl_invalidate(w->ns, NULL, NULL);

        if (r == 0)
                r = kvl_lookup(w->ns, 0, keys, n_keys, pages, &n, &n_tokens);
        if (r && r != KVL_MISS)
                worker_answer(r);
        else
                printf("0 %u\n", n);
}

/* poke PAGE VALUE [OFFSET], peek PAGE [OFFSET]: a byte of plane 0. Nothing a worker may do to a
 * sealed page; it shows that memory is shared. */
static void do_poke(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(worker_page_poke(w->ns, (uint32_t)strtoul(args[0], NULL, 10), 0,
                n_args > 2 ? strtoull(args[2], NULL, 10) : 0, (char)strtol(args[1], NULL, 10)));
}

static void do_peek(struct worker_state *w, char **args, unsigned n_args)
{
        char byte = 0;
        int r = worker_page_peek(w->ns, (uint32_t)strtoul(args[0], NULL, 10), 0,
                n_args > 1 ? strtoull(args[1], NULL, 10) : 0, &byte);

        if (r)
                worker_answer(r);
        else
                printf("0 %d\n", byte);
}

static sigjmp_buf fault;

static void on_fault(int signal)
{
        siglongjmp(fault, signal);
}

/* touch PAGE PLANE [write]: the page's place in the arena, whether or not it is mapped; its last
 * byte is written as it is. "faults", or is it "zeros" or "other"? */
static void do_touch(struct worker_state *w, char **args, unsigned n_args)
{
        volatile char *at = kvl_plane_base(w->ns, (uint32_t)strtoul(args[1], NULL, 10));
        struct sigaction action = {.sa_handler = on_fault}, before;
        const char *volatile what = "faults";

        at += strtoul(args[0], NULL, 10) * w->info.stride_bytes;
        sigaction(SIGSEGV, &action, &before);
        if (sigsetjmp(fault, 1) == 0) {
                uint64_t n = w->info.plane_page_bytes, i = 0;

                if (n_args > 2)
                        at[n - 1] = at[n - 1];
                while (i < n && at[i] == 0)
                        ++i;
                what = i == n ? "zeros" : "other";
        }
        sigaction(SIGSEGV, &before, NULL);
        printf("0 %s\n", what);
}

/* refuse-populate: from now on the kernel has no MADV_POPULATE_READ, like those before 5.14 */
static void do_refuse_populate(struct worker_state *w, char **args, unsigned n_args)
{
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_POPULATE_READ, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const struct sock_fprog program = {.len = ARRAY_SIZE(filter), .filter = filter};

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
                prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
                worker_answer(-errno);
        else
                worker_answer(0);
}

const struct worker_command worker_page_commands[] = {
        {"lease", do_lease},
        {"wakeups", do_wakeups},
        {"lease-with", do_lease_with},
        {"fill", do_fill},
        {"verify", do_verify},
        {"zeros", do_zeros},
        {"mapped", do_mapped},
        {"publish", do_publish},
        {"publish-start", do_publish_start},
        {"publish-poll", do_publish_poll},
        {"publish-wait", do_publish_wait},
        {"cache", do_cache},
        {"lookup", do_lookup},
        {"hits", do_hits},
        {"release", do_release},
        {"free", do_free},
        {"map", do_map},
        {"pin", do_pin},
        {"invalidate", do_invalidate},
        {"invalidate-lookup", do_invalidate_lookup},
        {"poke", do_poke},
        {"peek", do_peek},
        {"touch", do_touch},
        {"refuse-populate", do_refuse_populate},
        {NULL, NULL},
};
