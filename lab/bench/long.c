/*
 * A text of a 7B model that is larger than its device. A decode step reads all that each layer
 * keeps of it, layer after layer, by copies of that layer's planes. Device and lower tier are both
 * host memory. No attention is computed: the bytes read are summed up. The argument is the text's
 * number of tokens: 32,768 is the whole case (16 GiB of K and V over a device of 10 GiB). Others
 * have a device in proportion.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "tests/bench/bench.h"
#include "lab/bench/long-text.h"
#include "tests/bench/qos.h"

#define MIB (UINT64_C(1) << 20)

#define WHOLE_TOKENS  32768u
#define WHOLE_BUDGET  (UINT64_C(10) << 30) /* with all heads; with fewer a part of it */
#define ALL_HEADS     32u
#define TENTH_TOKENS  3264u /* measured without an argument */
#define QUICK_TOKENS  2048u
#define MAX_TOKENS    (1u << 20)
#define SMALLEST      28 /* pages: two ends, the buffer, and those being demoted */
#define KEEPS_FIRST   16 /* a sixteenth of the text at its beginning, */
#define KEEPS_LAST    4  /* a quarter at its end */
#define SHALLOW       8  /* layers that keep everything, of a model in two groups */
#define MIN_OF_MEMCPY 0.8

#define CODECS "0-7:none,8-23:int8,24-:int4"

/* Scales are of fewer numbers than a channel has, so steps are at most these parts of its greatest
 * number; halves are exact to a thousandth of that. */
#define MOST_INT8 (0.5 / 127 + 0.001)
#define MOST_INT4 (0.5 / 7 + 0.001)

struct scene {
        struct bench_run *run;
        struct private_daemon daemon;
        char socket[PRIVATE_PATH_MAX];
        uint32_t n_tokens, n_pages, n_kv_heads;
        uint64_t budget;
        double peak; /* bytes of the device */
        struct long_numbers numbers;
        struct long_text texts[2]; /* groups of layers */
        unsigned n_texts;
        uint8_t *from, *to; /* of memcpy(), owned, mapped */
};

/* ---- what the daemon says -------------------------------------------------------------------- */

/* Bytes charged in the tier; NAN after a message. */
static double charged(const struct scene *s, const char *tier)
{
        json_t *reply = qos_ctl(&s->daemon, "devices"), *row;
        double bytes = NAN;
        size_t i;

        json_array_foreach(json_object_get(reply, "devices"), i, row)
        {
                const char *is = json_string_value(json_object_get(row, "tier"));

                if (is && strcmp(is, tier) == 0)
                        bytes = json_number_value(json_object_get(row, "charged_bytes"));
        }
        json_decref(reply);
        return bytes;
}

static int note_peak(struct scene *s)
{
        double bytes = charged(s, "device");

        if (isnan(bytes))
                return -EIO;
        s->peak = fmax(s->peak, bytes);
        return 0;
}

/* ---- the scene ------------------------------------------------------------------------------- */

static int start_daemon(struct scene *s)
{
        uint64_t text = s->n_pages * LONG_LAYERS *
                        long_plane_bytes(&(struct long_shape){.n_kv_heads = s->n_kv_heads});
        char lines[128];
        static const struct private_tenant tenants[] = {{"a", NULL}, {NULL, NULL}};
        const struct private_options options = {.tenants = tenants, .device_lines = lines};
        int r;

        s->budget = WHOLE_BUDGET / WHOLE_TOKENS * s->n_tokens / ALL_HEADS * s->n_kv_heads;
        s->budget = MAX(s->budget, SMALLEST * (text / s->n_pages));
        s->budget = round_up_u64(s->budget, 64 * MIB);
        snprintf(lines, sizeof(lines), "memory = %llu\nextent = 2MiB\nhost_memory = %llu\n",
                (unsigned long long)s->budget,
                (unsigned long long)round_up_u64(text + 128 * MIB, 64 * MIB));
        s->daemon = (struct private_daemon){.notify_fd = -1};
        r = private_daemon_init(&s->daemon, &options);
        if (r == 0)
                r = private_daemon_start(&s->daemon);
        if (r < 0)
                return bench_fail("private kvleased", r);
        private_daemon_socket(&s->daemon, "a", s->socket);
        return 0;
}

static int open_scene(struct scene *s, const char *codecs, bool has_groups)
{
        const struct long_shape all = {s->n_kv_heads, 0, LONG_LAYERS, codecs},
                                groups[] = {{s->n_kv_heads, 0, SHALLOW, NULL},
                                        {s->n_kv_heads, SHALLOW, LONG_LAYERS - SHALLOW, NULL}};
        static const char *const names[] = {"shallow", "deep"};
        int r = start_daemon(s);

        if (r == 0)
                r = long_numbers_make(&s->numbers, s->n_kv_heads);
        s->n_texts = has_groups ? 2 : 1;
        for (unsigned i = 0; i < s->n_texts && r == 0; i++)
                r = long_open(&s->texts[i], s->socket, has_groups ? names[i] : "all",
                        has_groups ? "model" : NULL, has_groups ? &groups[i] : &all, &s->numbers,
                        s->n_pages);
        for (uint32_t page = 0; page < s->n_pages && r == 0; page++) {
                for (unsigned i = 0; i < s->n_texts && r == 0; i++)
                        r = long_append(&s->texts[i]);
                if (r == 0 && page % 8 == 7)
                        r = note_peak(s);
        }
        return r;
}

static void close_scene(struct scene *s)
{
        for (unsigned i = 0; i < s->n_texts; i++)
                long_close(&s->texts[i]);
        s->n_texts = 0;
        long_numbers_free(&s->numbers);
        private_daemon_deinit(&s->daemon);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* One decode step over all groups of layers. */
static int step(struct scene *s, enum long_reading reading, struct long_pass *pass)
{
        int r = 0;

        for (unsigned i = 0; i < s->n_texts && r == 0; i++)
                r = long_step(&s->texts[i], false, reading, pass);
        return r;
}

/* Every page is right, and the step after the first copies of pages is as all that follow. */
static int compare(struct scene *s)
{
        struct long_pass pass = {0};
        int r = step(s, LONG_COMPARES, &pass);

        if (r == 0 && pass.n_wrong > 0)
                r = bench_fail("a page has other bytes than were published", -EIO);
        if (r == 0 && (pass.worst[1] > MOST_INT8 || pass.worst[2] > MOST_INT4))
                r = bench_fail("a codec is further off than its steps allow", -EIO);
        return r;
}

#define MEMCPY_BYTES (256 * MIB)

/* Maps shared memory, like that of device and host: children (kvleasectl) leave it as it is. A
 * private page would be copied at its next write. NULL: failed. */
static uint8_t *map_memory(void)
{
        int fd = memfd_create_sized("kvlease-bench", MEMCPY_BYTES);
        void *memory = MAP_FAILED;

        if (fd >= 0) {
                memory = mmap(NULL, MEMCPY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
                close(fd);
        }
        if (memory == MAP_FAILED)
                return NULL;
        memset(memory, 1, MEMCPY_BYTES);
        return memory;
}

/* MiB/s of memcpy() in pieces as large as a plane's page. */
static double memcpy_rate(const struct scene *s)
{
        size_t piece = long_plane_bytes(&s->texts[0].shape);
        uint64_t start = clock_now_nsec();

        for (size_t at = 0; at + piece <= MEMCPY_BYTES; at += piece)
                memcpy(s->to + at, s->from + at, piece);
        return (double)MEMCPY_BYTES / (double)MIB / ((double)(clock_now_nsec() - start) / 1e9);
}

/* Results of each round; rows of one allocation. */
struct rounds {
        double *step_sec, *wait_sec;      /* of a step that reads: all of it, and in the library */
        double *copy_sec;                 /* of one that waits for copies and reads nothing */
        double *memcpy_rate;              /* MiB/s */
        uint64_t moved_bytes, read_bytes; /* of any step */
};

static int rounds_new(struct rounds *ret, unsigned n)
{
        *ret = (struct rounds){.step_sec = calloc(4 * (size_t)n, sizeof(*ret->step_sec))};
        if (!ret->step_sec)
                return bench_fail("rounds", -ENOMEM);
        ret->wait_sec = ret->step_sec + n;
        ret->copy_sec = ret->wait_sec + n;
        ret->memcpy_rate = ret->copy_sec + n;
        return 0;
}

static void report(const struct scene *s, const char *name, const struct rounds *all)
{
        unsigned n = s->run->rounds;
        double moved = (double)all->moved_bytes / (double)MIB;
        struct bench_result *r;

        bench_add(s->run, "s", "%s-step", name)->median = bench_quantile(all->step_sec, n, 0.5);
        bench_add(s->run, "s", "%s-step-waits", name)->median =
                bench_quantile(all->wait_sec, n, 0.5);
        bench_add(s->run, "MiB", "%s-step-reads", name)->median =
                (double)all->read_bytes / (double)MIB;
        bench_add(s->run, "MiB", "%s-step-moves", name)->median = moved;
        bench_add(s->run, "MiB", "%s-host", name)->median = charged(s, "host") / (double)MIB;
        if (all->moved_bytes == 0)
                return;
        r = bench_add(s->run, "MiB/s", "%s-copies", name);
        r->median = moved / bench_quantile(all->copy_sec, n, 0.5);
        r->baseline = "memcpy";
        r->baseline_median = bench_quantile(all->memcpy_rate, n, 0.5);
        /* A codec's time is its own: it decodes. */
        if (!s->texts[0].shape.codecs)
                r->min_ratio = MIN_OF_MEMCPY;
}

static int measure_round(struct scene *s, struct rounds *all, unsigned i)
{
        struct long_pass waits = {0}, reads = {0};
        int r;

        all->memcpy_rate[i] = memcpy_rate(s);
        r = step(s, LONG_WAITS, &waits);
        if (r == 0)
                r = step(s, LONG_READS, &reads);
        all->copy_sec[i] = waits.all_sec;
        all->step_sec[i] = reads.all_sec;
        all->wait_sec[i] = reads.wait_sec;
        all->moved_bytes = reads.moved_bytes;
        all->read_bytes = reads.read_bytes;
        return r == 0 ? note_peak(s) : r;
}

static int measure_steps(struct scene *s, const char *name)
{
        struct rounds all;
        int r = rounds_new(&all, s->run->rounds);

        if (r == 0)
                r = compare(s);
        for (unsigned i = 0; i < s->run->rounds && r == 0; i++)
                r = measure_round(s, &all, i);
        if (r == 0)
                report(s, name, &all);
        free(all.step_sec);
        return r;
}

/* Measures a layer by its planes, beside whole pages moved for it. */
static int measure_whole(struct scene *s, const char *name)
{
        struct long_pass planes = {0}, whole = {0};
        struct bench_result *result;
        int r = long_step(&s->texts[0], true, LONG_WAITS, &whole);

        if (r == 0)
                r = step(s, LONG_WAITS, &planes);
        if (r < 0)
                return r;
        result = bench_add(s->run, "s", "%s-layer", name);
        result->median = planes.all_sec / LONG_LAYERS;
        result->baseline = "whole pages";
        result->baseline_median = whole.all_sec;
        result = bench_add(s->run, "MiB", "%s-layer-moves", name);
        result->median = (double)planes.moved_bytes / LONG_LAYERS / (double)MIB;
        result->baseline = "whole pages";
        result->baseline_median = (double)whole.moved_bytes / (double)MIB;
        return 0;
}

static int keep(struct scene *s)
{
        /* The shallow one of two groups keeps everything. */
        struct long_text *t = &s->texts[s->n_texts - 1];

        return long_keep(t, s->n_tokens / KEEPS_FIRST, s->n_tokens / KEEPS_LAST);
}

static int measure_scene(struct scene *s, const char *name, const char *codecs, bool has_groups)
{
        struct bench_result *peak;
        char kept[32];
        int r;

        s->peak = 0;
        snprintf(kept, sizeof(kept), "%s-keep", name);
        r = open_scene(s, codecs, has_groups);
        if (r == 0 && !has_groups)
                r = measure_steps(s, name);
        if (r == 0 && !has_groups && !codecs)
                r = measure_whole(s, name);
        if (r == 0)
                r = keep(s);
        if (r == 0)
                r = measure_steps(s, kept);
        if (r == 0) {
                peak = bench_add(s->run, "MiB", "%s-device-peak", name);
                peak->median = s->peak / (double)MIB;
                peak->max_value = (double)s->budget / (double)MIB;
        }
        close_scene(s);
        return r;
}

static int read_tokens(const struct bench_run *run, uint32_t *ret)
{
        char *end = NULL;
        unsigned long n = run->argument ? strtoul(run->argument, &end, 10) : 0;

        *ret = run->quick ? QUICK_TOKENS : TENTH_TOKENS;
        if (!run->argument)
                return 0;
        if (*end || n < QUICK_TOKENS || n > MAX_TOKENS) {
                fprintf(stderr, "kvlease-bench: long: %s tokens: %u to %u are allowed\n",
                        run->argument, QUICK_TOKENS, MAX_TOKENS);
                return -EINVAL;
        }
        *ret = (uint32_t)n;
        return 0;
}

static int measure(struct bench_run *run)
{
        struct scene s = {.run = run};
        int r = read_tokens(run, &s.n_tokens);

        if (r < 0)
                return r;
        s.n_pages = s.n_tokens / LONG_PAGE_TOKENS;
        s.from = map_memory();
        s.to = map_memory();
        if (!s.from || !s.to)
                r = bench_fail("memcpy", -ENOMEM);
        s.n_kv_heads = 8;
        if (r == 0)
                r = measure_scene(&s, "gqa", NULL, false);
        s.n_kv_heads = run->quick ? 8 : ALL_HEADS;
        if (r == 0 && !run->quick)
                r = measure_scene(&s, "mha", NULL, false);
        if (r == 0)
                r = measure_scene(&s, "codecs", CODECS, false);
        if (r == 0)
                r = measure_scene(&s, "groups", NULL, true);
        if (s.from)
                munmap(s.from, MEMCPY_BYTES);
        if (s.to)
                munmap(s.to, MEMCPY_BYTES);
        return r;
}

const struct bench bench_long = {
        .name = "long",
        .help = "texts larger than the device, layer by layer",
        .rounds = 3,
        .fn = measure,
        .uses_cpu = true,
        .argument = "TOKENS",
};
