#include "tests/traffic/traffic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/pattern.h"

#define SECOND 1e9
#define HOUR   3600.0

static void die(const char *why)
{
        fprintf(stderr, "traffic: %s\n", why);
        abort();
}

/* ---- random numbers -------------------------------------------------------------------------- */

static uint64_t random_number(struct traffic *t)
{
        return pattern_next(&t->random);
}

/* 0..n-1, n > 0 */
static uint32_t below(struct traffic *t, uint32_t n)
{
        return (uint32_t)(random_number(t) % n);
}

/* 0 <= x < 1 */
static double uniform(struct traffic *t)
{
        return (double)(random_number(t) >> 11) / 9007199254740992.0;
}

static double exponential(struct traffic *t, double mean)
{
        return -mean * log(1 - uniform(t));
}

/* exp() of a normal deviate: median 1. */
static double log_normal(struct traffic *t)
{
        return exp(sqrt(-2 * log(1 - uniform(t))) * cos(6.283185307179586 * uniform(t)));
}

/* ---- texts and requests ---------------------------------------------------------------------- */

static void *grown(void *array, size_t *max, size_t n, size_t size)
{
        if (n <= *max)
                return array;
        *max = MAX(n, *max * 2);
        array = realloc(array, *max * size);
        if (!array)
                die("no memory");
        return array;
}

/* `n` new blocks below `parent`; the last one. */
static uint32_t more_text(struct traffic *t, uint32_t parent, uint32_t n)
{
        t->parents = grown(
                t->parents, &t->max_unique, t->trace.n_unique + (size_t)n, sizeof(*t->parents));
        for (; n > 0; n--) {
                t->parents[t->trace.n_unique] = parent;
                parent = t->trace.n_unique++;
        }
        return parent;
}

/* One for the text that ends with the block `end`, and a partial tail of its own. */
static void ask(struct traffic *t, double seconds, uint32_t end)
{
        uint32_t tail = more_text(t, end, 1), n = 0;
        struct sim_request *r;

        for (uint32_t at = tail; at != NODE_NONE; at = t->parents[at])
                n++;
        t->requests = grown(t->requests, &t->max_requests, t->trace.n_requests + (size_t)1,
                sizeof(*t->requests));
        t->blocks =
                grown(t->blocks, &t->max_blocks, (size_t)t->trace.n_blocks + n, sizeof(*t->blocks));
        r = &t->requests[t->trace.n_requests++];
        *r = (struct sim_request){
                .time_nsec = (uint64_t)(seconds * SECOND),
                .first = t->trace.n_blocks,
                .n_blocks = n,
                .input_tokens =
                        (n - 1) * TRAFFIC_BLOCK_TOKENS + 1 + below(t, TRAFFIC_BLOCK_TOKENS - 1),
        };
        t->trace.n_blocks += n;
        for (uint32_t at = tail; at != NODE_NONE; at = t->parents[at])
                t->blocks[r->first + --n] = at;
}

/* ---- prompts that are asked for again and again ---------------------------------------------- */

#define MAX_PROMPTS 3000

struct prompts {
        uint32_t n, ends[MAX_PROMPTS];
        double sums[MAX_PROMPTS]; /* of 1 / (i + 1)^alpha */
};

static struct prompts *new_prompts(struct traffic *t, uint32_t n, uint32_t pages, double alpha)
{
        struct prompts *p = malloc(sizeof(*p));
        double sum = 0;

        if (!p)
                die("no memory");
        p->n = n;
        for (uint32_t i = 0; i < n; i++) {
                p->ends[i] = more_text(t, NODE_NONE, pages > 0 ? pages : 1 + below(t, 12));
                p->sums[i] = sum += pow(i + 1, -alpha);
        }
        return p;
}

/* Number i in proportion to 1 / (i + 1)^alpha. */
static uint32_t drawn(struct traffic *t, const struct prompts *p)
{
        double at = uniform(t) * p->sums[p->n - 1];
        uint32_t from = 0, to = p->n - 1;

        while (from < to) {
                uint32_t middle = (from + to) / 2;

                if (p->sums[middle] < at)
                        from = middle + 1;
                else
                        to = middle;
        }
        return from;
}

static void popular(struct traffic *t, double alpha, double drift)
{
        struct prompts *p = new_prompts(t, MAX_PROMPTS, 0, alpha);
        double now = 0;

        for (uint32_t k = 0; k < 20000; k++) {
                now += exponential(t, 0.1);
                ask(t, now, p->ends[(drawn(t, p) + (uint32_t)(k * drift)) % p->n]);
        }
        free(p);
}

static void zipf(struct traffic *t)
{
        popular(t, 0.9, 0);
}

static void drifting(struct traffic *t)
{
        popular(t, 0.9, 0.1);
}

static void even(struct traffic *t)
{
        popular(t, 0, 0);
}

/* Traffic that suits LRU: the chance of a request falls with the number of others since. */
static void stack(struct traffic *t)
{
        struct prompts *p = new_prompts(t, 2000, 8, 0);
        double now = 0;

        for (uint32_t k = 0; k < 15000; k++) {
                uint32_t at = (uint32_t)MIN(60 * log_normal(t) * log_normal(t), p->n - 1.0);
                uint32_t end = p->ends[at];

                memmove(&p->ends[1], &p->ends[0], at * sizeof(p->ends[0]));
                p->ends[0] = end;
                ask(t, now += exponential(t, 0.2), end);
        }
        free(p);
}

static void one_hit_wonders(struct traffic *t)
{
        struct prompts *p = new_prompts(t, 500, 8, 0.7);
        double now = 0;

        for (uint32_t k = 0; k < 15000; k++) {
                bool again = uniform(t) < 0.1;

                now += exponential(t, 0.2);
                ask(t, now, again ? p->ends[drawn(t, p)] : more_text(t, NODE_NONE, 8));
        }
        free(p);
}

/* A set of texts for ten minutes, then another. */
static void working_sets(struct traffic *t)
{
        double now = 0;

        for (uint32_t set = 0; set < 8; set++) {
                struct prompts *p = new_prompts(t, 300, 10, 0.3);

                for (uint32_t k = 0; k < 1500; k++)
                        ask(t, now += exponential(t, 0.4), p->ends[drawn(t, p)]);
                free(p);
        }
}

static void loop(struct traffic *t)
{
        struct prompts *p = new_prompts(t, 400, 10, 0);

        for (uint32_t i = 0; i < 4800; i++)
                ask(t, 0.5 * i, p->ends[i % p->n]);
        free(p);
}

/* ---- conversations --------------------------------------------------------------------------- */

struct habits {
        uint32_t n; /* conversations */
        double per_second;
        double goes_on; /* the chance of another turn */
        double pause;   /* seconds, median */
};

/* Below eight system prompts. Turns follow after log-normal pauses. */
static void conversations(struct traffic *t, struct habits h)
{
        uint32_t prompts[8];
        double start = 0;

        for (uint32_t i = 0; i < ARRAY_SIZE(prompts); i++)
                prompts[i] = more_text(t, NODE_NONE, 1 + below(t, 8));
        for (uint32_t i = 0; i < h.n; i++) {
                uint32_t prompt = prompts[below(t, below(t, 8) + 1)];
                uint32_t text = more_text(t, prompt, 1 + below(t, 20));
                double now = start += exponential(t, 1 / h.per_second);

                for (;;) {
                        ask(t, now, text);
                        if (uniform(t) > h.goes_on)
                                break;
                        now += h.pause * log_normal(t);
                        text = more_text(t, text, 1 + below(t, 5));
                }
        }
}

static void chats(struct traffic *t)
{
        conversations(t, (struct habits){6000, 2, 0.7, 60});
}

static void long_chats(struct traffic *t)
{
        conversations(t, (struct habits){2000, 0.5, 0.9, 20});
}

static void slow_chats(struct traffic *t)
{
        conversations(t, (struct habits){4000, 2, 0.7, 600});
}

/* 100 texts that are read once, every five minutes. */
static void batch_jobs(struct traffic *t)
{
        conversations(t, (struct habits){3000, 1, 0.7, 60});
        for (uint32_t job = 0; job < 10; job++)
                for (uint32_t i = 0; i < 100; i++)
                        ask(t, 300 * job + 0.3 * i, more_text(t, NODE_NONE, 20 + below(t, 40)));
}

/* 3,000 texts that are read once, 50 a second, in the middle. */
static void flood(struct traffic *t)
{
        conversations(t, (struct habits){3000, 1, 0.7, 60});
        for (uint32_t i = 0; i < 3000; i++)
                ask(t, 1500 + 0.02 * i, more_text(t, NODE_NONE, 10 + below(t, 30)));
}

static void hour_of_silence(struct traffic *t)
{
        conversations(t, (struct habits){4000, 2, 0.7, 60});
        for (uint32_t i = 0; i < t->trace.n_requests; i++)
                if (t->requests[i].time_nsec > 1000 * SECOND)
                        t->requests[i].time_nsec += (uint64_t)(HOUR * SECOND);
}

static void two_tenants(struct traffic *t)
{
        struct prompts *p = new_prompts(t, 1000, 4, 0.8);
        double now = 0;

        conversations(t, (struct habits){100, 0.05, 0.8, 60});
        while (now < 2000)
                ask(t, now += exponential(t, 0.1), p->ends[drawn(t, p)]);
        free(p);
}

struct work {
        uint32_t n_agents;
        uint32_t context, more_context; /* blocks, at first: at least, and up to so many more */
        uint32_t steps, more_steps;
        double every, pause; /* seconds: from agent to agent, mean; from step to step, median */
};

/* Contexts below one prompt, that grow by a little with every step. */
static void agents_at(struct traffic *t, struct work w)
{
        uint32_t prompt = more_text(t, NODE_NONE, 20);
        double start = 0;

        for (uint32_t i = 0; i < w.n_agents; i++) {
                uint32_t text = more_text(t, prompt, w.context + below(t, w.more_context));
                double now = start += exponential(t, w.every);
                uint32_t n = w.steps + below(t, w.more_steps);

                for (uint32_t k = 0; k < n; k++) {
                        ask(t, now, text);
                        now += w.pause * log_normal(t);
                        text = more_text(t, text, 1 + below(t, 3));
                }
        }
}

/* Contexts of 100 k tokens. */
static void agents(struct traffic *t)
{
        agents_at(t, (struct work){60, 150, 60, 20, 60, 20, 8});
}

/* Each seed has other agents, of 20,000 to 180,000 tokens. */
static void few_agents(struct traffic *t)
{
        uint32_t context = 40 + below(t, 200);

        agents_at(t, (struct work){30 + below(t, 60), context, context / 2, 10, 10 + below(t, 60),
                             5 + 30 * uniform(t), 2 + 20 * uniform(t)});
}

/* Endings of requests (sim_request.ending): of calls of three tools, and of answers. */
#define TOOLS   3
#define ANSWERS 40

static void ask_ending(struct traffic *t, double seconds, uint32_t end, uint32_t ending)
{
        ask(t, seconds, end);
        t->requests[t->trace.n_requests - 1].ending = ending;
}

/* Each question takes some calls of tools, which return soon. Half of the answers get another
 * question, after minutes. */
static void tool_agents(struct traffic *t)
{
        uint32_t prompt = more_text(t, NODE_NONE, 12);
        double start = 0;

        for (uint32_t i = 0; i < 1500; i++) {
                uint32_t text = more_text(t, prompt, 2 + below(t, 12));
                double now = start += exponential(t, 1.5);

                do {
                        for (uint32_t n = below(t, 8); n > 0; n--) {
                                ask_ending(t, now, text, 1 + below(t, TOOLS));
                                now += 6 * log_normal(t);
                                text = more_text(t, text, 1 + below(t, 4));
                        }
                        ask_ending(t, now, text, 1 + TOOLS + below(t, ANSWERS));
                        now += 240 * log_normal(t);
                        text = more_text(t, text, 1 + below(t, 2));
                } while (uniform(t) < 0.5);
        }
}

const struct traffic_kind traffic_kinds[] = {
        {"zipf", "prompts of Zipf's popularity", zipf, 1},
        {"drifting", "the same, whose popularity drifts", drifting, 1},
        {"even", "prompts that are all as popular", even, 1},
        {"stack", "what LRU is made for: the nearer in time, the more likely", stack, 1},
        {"one-hit-wonders", "nine texts of ten are read once", one_hit_wonders, 1},
        {"working-sets", "prompts that change every ten minutes", working_sets, 1},
        {"loop", "texts in turn, which LRU hits only where all of them fit", loop, 1},
        {"chats", "conversations below system prompts", chats, 1},
        {"long-chats", "conversations of ten turns", long_chats, 1},
        {"slow-chats", "conversations with pauses of ten minutes", slow_chats, 1},
        {"batch-jobs", "conversations, and jobs that read 100 texts once", batch_jobs, 1},
        {"flood", "conversations, and 3,000 texts read once within a minute", flood, 1},
        {"silence", "conversations, and an hour without any", hour_of_silence, 1},
        {"two-tenants", "an API with 100 times the requests of conversations", two_tenants, 1},
        {"agents", "contexts of 100,000 tokens that grow step by step", agents, 1},
        {"few-agents", "a thousand requests of other agents in each seed", few_agents, 1},
        {"tool-agents", "questions that take calls of tools, with endings", tool_agents, 1},
        {"chats-fast", "conversations, a thousand times as fast", chats, 0.001},
        {"chats-slow", "conversations, a thousand times as slow", chats, 1000},
        {"stack-fast", "what LRU is made for, a thousand times as fast", stack, 0.001},
        {"zipf-no-clock", "prompts of Zipf's popularity, all at the same time", zipf, 0},
        {"chats-no-clock", "conversations, all at the same time", chats, 0},
};
const size_t n_traffic_kinds = ARRAY_SIZE(traffic_kinds);

static int by_time(const void *a, const void *b)
{
        const struct sim_request *x = a, *y = b;

        if (x->time_nsec != y->time_nsec)
                return x->time_nsec < y->time_nsec ? -1 : 1;
        return x->first < y->first ? -1 : x->first > y->first;
}

void traffic_make(struct traffic *t, const struct traffic_kind *kind, uint64_t seed)
{
        *t = (struct traffic){.random = pattern_mix(seed)};
        kind->make(t);
        qsort(t->requests, t->trace.n_requests, sizeof(*t->requests), by_time);
        for (uint32_t i = 0; i < t->trace.n_requests; i++)
                t->requests[i].time_nsec =
                        (uint64_t)((double)t->requests[i].time_nsec * kind->time_scale);
        t->trace.requests = t->requests;
        t->trace.blocks = t->blocks;
        t->trace.parents = t->parents;
        t->trace.n_tenants = 1;
        t->trace.block_tokens = TRAFFIC_BLOCK_TOKENS;
}

void traffic_free(struct traffic *t)
{
        free(t->requests);
        free(t->blocks);
        free(t->parents);
        *t = (struct traffic){0};
}

double traffic_hit_percent(
        const struct traffic *t, const struct evict_ops *policy, double percent, uint64_t seed)
{
        return traffic_hit_percent_expecting(t, policy, percent, seed, 0, 0);
}

double traffic_hit_percent_expecting(const struct traffic *t, const struct evict_ops *policy,
        double percent, uint64_t seed, uint32_t expect, uint32_t wrong_percent)
{
        struct sim_options options = {
                .policy = policy,
                .capacity_pages = (uint32_t)MAX(t->trace.n_unique * percent / 100, 1.0),
                .expect = expect,
                .wrong_percent = wrong_percent,
                .tenant = SIM_ALL_TENANTS,
                .seed = seed,
        };
        struct sim_result result;
        const char *wrong;
        struct sim *s;

        if (sim_new(&t->trace, &options, &s) < 0 || sim_run(s, UINT32_MAX) != 0)
                die("the simulator failed");
        wrong = sim_check(s);
        if (wrong)
                die(wrong);
        sim_result(s, &result);
        sim_free(s);
        return 100.0 * (double)result.hit_tokens / (double)result.input_tokens;
}
