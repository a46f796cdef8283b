#include "policy/hosts/hosts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "policy/bucket.h"
#include "policy/hosts/mix.h"

#define NSEC_A_SEC UINT64_C(1000000000)

/* State of a block on a host: uses since its publication there, and whether its text is long. */
#define USES_MAX 127
#define IS_LONG  128

/* Unit of written bytes: policy/bucket.h has at most a million units a second. */
#define UNIT_BYTES 4096

/* The first n blocks of a request's text, which are to be written. */
struct export_text {
        uint32_t request, n, at; /* blocks before `at` are in the store */
        uint32_t n_first;        /* n before it grew */
        bool is_found;           /* some of it, and not only published */
        bool was_asked;          /* block `at` was asked for: the store lacks it */
};

struct host {
        struct hosts *all;
        struct sim *cache;  /* owned */
        uint8_t *uses;      /* owned; of each block of the trace */
        uint32_t copy;      /* copy of the trace that it serves */
        uint64_t busy_nsec; /* until when it computes */
        uint64_t computed_tokens;
        struct bucket bucket;      /* of written bytes, in UNIT_BYTES */
        uint64_t writes_nsec;      /* until then texts have been written */
        struct export_text *texts; /* owned: HOSTS_TEXTS_MAX, in the order of their turns; NULL:
                                      nothing waits ever */
        uint32_t n_texts;
        uint32_t *seen_sec; /* owned; of each block of the trace, one more than when the host had
                               it and saw it in the store; 0: it didn't. NULL as texts */
};

struct copy {
        uint64_t shift_nsec;
        uint32_t next;  /* request */
        uint32_t turn;  /* of its hosts, for the next one that may be any */
        uint32_t *host; /* owned; with HOSTS_SESSION: of each request that ran */
};

/* Counts of an interval. */
struct window {
        uint64_t number, bytes, keys;
};

struct hosts {
        struct sim_trace trace;
        struct hosts_options options;
        struct host *hosts;  /* owned */
        struct copy *copies; /* owned */
        uint32_t *order;     /* owned: a heap of copies, by the time of their next requests */
        uint32_t n_copies, n_waiting, group;
        struct values *values; /* owned; NULL: there is no store */
        struct lanes *lanes;
        uint64_t now_nsec, first_nsec;
        uint64_t draws;
        int error; /* of a write, for want of memory */
        struct window window;
        struct hosts_result result;
};

static const struct sim_request *request_of(const struct hosts *h, uint32_t request)
{
        return &h->trace.requests[request];
}

static const uint32_t *path_of(const struct hosts *h, uint32_t request)
{
        return h->trace.blocks + request_of(h, request)->first;
}

/* Tokens of the first n blocks of a request. */
static uint64_t tokens_in(const struct hosts *h, uint32_t request, uint32_t n)
{
        return MIN((uint64_t)n * h->trace.block_tokens, request_of(h, request)->input_tokens);
}

/* Fewer than 2^32 tokens: no overflow. */
static uint64_t compute_nsec(const struct hosts *h, uint64_t tokens)
{
        return tokens * NSEC_A_SEC / h->options.prefill_tokens_per_sec;
}

/* ---- the store ------------------------------------------------------------------------------- */

static uint32_t key_of(const struct hosts *h, uint32_t copy, uint32_t block)
{
        return copy * h->trace.n_unique + block;
}

/* Node of page j of a block: pseudo-random and constant. */
static uint64_t place_of(uint32_t key, uint32_t j)
{
        return hosts_mix((uint64_t)key * HOSTS_PROBE_KEYS + j + 1);
}

static uint64_t page_bytes(const struct hosts *h)
{
        return h->options.store.block_bytes / h->options.store.keys_per_block;
}

static void count_traffic(struct hosts *h, uint64_t bytes, uint64_t keys)
{
        uint64_t number = h->now_nsec / HOSTS_PEAK_NSEC;

        if (number != h->window.number)
                h->window = (struct window){.number = number};
        h->window.bytes += bytes;
        h->window.keys += keys;
        h->result.peak_bytes = MAX(h->result.peak_bytes, h->window.bytes);
        h->result.peak_keys = MAX(h->result.peak_keys, h->window.keys);
}

static void count_probes(struct hosts *h, uint64_t n_blocks)
{
        uint64_t n = n_blocks * h->options.store.keys_per_block;

        h->result.probes += n;
        count_traffic(h, 0, n);
}

static void count_touches(struct hosts *h, uint64_t n_blocks)
{
        uint64_t n = n_blocks * h->options.store.keys_per_block;

        h->result.touches += n;
        count_traffic(h, 0, n);
}

/* Longest wait for a node of a block to begin to write. Nodes only know the current time: all
 * writes of hosts since the last request reach them together. */
static uint64_t node_wait_nsec(const struct hosts *h, uint32_t key)
{
        uint64_t wait = 0;

        for (uint32_t j = 0; j < h->options.store.keys_per_block; j++)
                wait = MAX(wait, lanes_write_wait_nsec(h->lanes, place_of(key, j), h->now_nsec));
        return wait;
}

static struct bucket_limit write_limit(const struct hosts *h)
{
        uint64_t rate = h->options.store.write_bytes_per_sec;

        if (rate == 0)
                return (struct bucket_limit){.burst = 1};
        rate = MAX(UINT64_C(1), MIN(rate / UNIT_BYTES, (uint64_t)BUCKET_MAX_RATE));
        return (struct bucket_limit){.rate = (uint32_t)rate, .burst = (uint32_t)rate};
}

/* How long the host has to wait until it may write. */
static uint64_t write_wait_nsec(const struct hosts *h, const struct host *host, uint64_t at_nsec)
{
        return bucket_wait_nsec(&host->bucket, write_limit(h), at_nsec);
}

/* A block that isn't there is written, as the host could do at that time. */
static void write_block(struct hosts *h, struct host *host, uint32_t key, uint64_t at_nsec)
{
        const struct hosts_store *store = &h->options.store;
        uint64_t units = 1 + store->block_bytes / UNIT_BYTES;

        if (values_put(h->values, key, h->now_nsec) < 0) {
                h->error = -ENOMEM;
                return;
        }
        bucket_take(
                &host->bucket, write_limit(h), (uint32_t)MIN(units, (uint64_t)UINT32_MAX), at_nsec);
        for (uint32_t j = 0; j < store->keys_per_block; j++)
                lanes_write(h->lanes, place_of(key, j), page_bytes(h), h->now_nsec);
        h->result.writes += store->keys_per_block;
        h->result.write_bytes += store->block_bytes;
        count_traffic(h, store->block_bytes, 0);
}

static bool is_admitted(const struct hosts *h, uint8_t uses)
{
        const struct tier_filter *f = &h->options.store.filter;

        return tier_admits(f, uses & USES_MAX, uses & IS_LONG ? f->long_tokens : 0);
}

/* A host's cache evicts a block. */
static void block_leaves(void *data, uint32_t block)
{
        struct host *host = data;
        struct hosts *h = host->all;
        uint32_t n_keys = h->options.store.keys_per_block, key = key_of(h, host->copy, block);

        if (!is_admitted(h, host->uses[block])) {
                h->result.refused_writes += n_keys;
                return;
        }
        count_probes(h, 1);
        if (values_has(h->values, key, h->now_nsec))
                h->result.known_writes += n_keys;
        else if (write_wait_nsec(h, host, h->now_nsec) > 0 ||
                 node_wait_nsec(h, key) > HOSTS_DEMOTED_NSEC)
                h->result.dropped_writes += n_keys;
        else
                write_block(h, host, key, h->now_nsec);
}

/* ---- texts that are to be written ------------------------------------------------------------ */

static void note_seen(struct host *host, uint32_t block, uint64_t at_nsec)
{
        host->seen_sec[block] = (uint32_t)(at_nsec / NSEC_A_SEC) + 1;
}

/* Did the host see it in the store lately, since it has it? */
static bool was_seen(const struct host *host, uint32_t block, uint64_t at_nsec)
{
        uint32_t seen = host->seen_sec[block];

        return seen > 0 && at_nsec / NSEC_A_SEC + 1 - seen < HOSTS_TOUCH_NSEC / NSEC_A_SEC;
}

/* Cuts a text behind its first n blocks. */
static void cut_text(struct hosts *h, struct export_text *t, uint32_t n)
{
        n = MAX(n, t->at);
        h->result.dropped_writes += (uint64_t)(t->n - n) * h->options.store.keys_per_block;
        t->n = n;
}

/* If the host evicted the text's end: it ends where it began to grow, or is dropped. */
static void find_end(struct hosts *h, const struct host *host, struct export_text *t)
{
        uint32_t n_cached = sim_would_hit(host->cache, t->request);

        if (n_cached < t->n)
                cut_text(h, t, n_cached < t->n_first ? 0 : t->n_first);
}

/* Whether the host may write by now. Sets writes_nsec to when it may. */
static bool may_write(const struct hosts *h, struct host *host)
{
        host->writes_nsec += write_wait_nsec(h, host, host->writes_nsec);
        return host->writes_nsec <= h->now_nsec;
}

/* Exports the next block of the text. Returns true if it was there, or was written. False: it has
 * to wait; or the host waited in vain, and the text is dropped, as its later blocks would be
 * useless. */
static bool export_next(struct hosts *h, struct host *host, struct export_text *t)
{
        uint32_t block = path_of(h, t->request)[t->at], key = key_of(h, host->copy, block);

        if (was_seen(host, block, host->writes_nsec))
                return true;
        if (!t->was_asked)
                count_touches(h, 1);
        t->was_asked = true;
        if (values_use(h->values, key, h->now_nsec)) {
                h->result.known_writes += h->options.store.keys_per_block;
                note_seen(host, block, host->writes_nsec);
                return true;
        }
        if (!may_write(h, host))
                return false;
        if (node_wait_nsec(h, key) > HOSTS_WRITE_NSEC) {
                host->writes_nsec += HOSTS_WRITE_NSEC;
                cut_text(h, t, 0);
                return false;
        }
        write_block(h, host, key, host->writes_nsec);
        note_seen(host, block, host->writes_nsec);
        return true;
}

/* Writes all that the host could have written until now. Its cache didn't change since. */
static void write_texts(struct hosts *h, struct host *host)
{
        while (host->n_texts > 0 && host->writes_nsec <= h->now_nsec && h->error == 0) {
                struct export_text *t = &host->texts[0];

                find_end(h, host, t);
                while (t->at < t->n && export_next(h, host, t)) {
                        t->at++;
                        t->was_asked = false;
                }
                if (t->at < t->n)
                        return;
                memmove(t, t + 1, --host->n_texts * sizeof(*t));
        }
}

/* True: a text waits that ends with the n-th block of the request's path, or one that ended right
 * before it grows by it. */
static bool join_text(const struct hosts *h, struct host *host, uint32_t request, uint32_t n)
{
        const uint32_t *path = path_of(h, request);

        for (uint32_t i = 0; i < host->n_texts; i++) {
                struct export_text *t = &host->texts[i];
                uint32_t end = t->n > 0 ? path_of(h, t->request)[t->n - 1] : UINT32_MAX;

                if (end == path[n - 1])
                        return true;
                if (n > 1 && end == path[n - 2]) {
                        t->request = request;
                        t->n = n;
                        return true;
                }
        }
        return false;
}

/* Adds a text to write: the first n blocks of the request, which the host has. Found texts go
 * first, then the newest; texts without a place are dropped. */
static void add_text(
        struct hosts *h, struct host *host, uint32_t request, uint32_t n, bool is_found)
{
        const struct export_text text = {
                .request = request, .n = n, .n_first = n, .is_found = is_found};
        uint32_t turn = 0;

        if (was_seen(host, path_of(h, request)[n - 1], h->now_nsec) ||
                join_text(h, host, request, n))
                return;
        if (host->n_texts == HOSTS_TEXTS_MAX) {
                if (host->texts[HOSTS_TEXTS_MAX - 1].is_found && !is_found) {
                        h->result.dropped_writes += h->options.store.keys_per_block;
                        return;
                }
                cut_text(h, &host->texts[--host->n_texts], 0);
        }
        while (!is_found && turn < host->n_texts && host->texts[turn].is_found)
                turn++;
        memmove(&host->texts[turn + 1], &host->texts[turn],
                (host->n_texts++ - turn) * sizeof(host->texts[0]));
        host->texts[turn] = text;
        host->writes_nsec = MAX(host->writes_nsec, h->now_nsec);
}

/* Writes for a group's hosts all that they could have written until now. */
static void write_texts_of(struct hosts *h, uint32_t copy)
{
        for (uint32_t i = 0; i < h->group; i++)
                if (h->hosts[copy * h->group + i].n_texts > 0)
                        write_texts(h, &h->hosts[copy * h->group + i]);
}

/* Is a page at the end of the block, found or published by the request, a reason to write its text?
 */
static bool ends_text(const struct hosts *h, const struct host *host, uint32_t request, uint32_t i)
{
        return tier_admits(&h->options.store.filter, host->uses[path_of(h, request)[i]] & USES_MAX,
                tokens_in(h, request, i + 1));
}

/* The host has served the request: it had n_local blocks, of which the last was found, and loaded
 * those up to n_had; those behind it are published, one after the other. */
static void export_texts(
        struct hosts *h, struct host *host, uint32_t request, uint32_t n_local, uint32_t n_had)
{
        uint32_t n_keys = h->options.store.keys_per_block;
        uint32_t n_cached = sim_would_hit(host->cache, request);

        if (n_local > 0 && n_local <= n_cached && ends_text(h, host, request, n_local - 1))
                add_text(h, host, request, n_local, true);
        for (uint32_t i = n_had; i < n_cached; i++)
                if (ends_text(h, host, request, i))
                        add_text(h, host, request, i + 1, false);
                else
                        h->result.refused_writes += n_keys;
        write_texts(h, host);
}

/* ---- loads ----------------------------------------------------------------------------------- */

/* Blocks from `from` on that are in the store without a gap. */
static uint32_t probe_run(struct hosts *h, uint32_t copy, uint32_t request, uint32_t from)
{
        uint32_t n_blocks = request_of(h, request)->n_blocks, at = from;
        uint32_t n_batch = MAX(HOSTS_PROBE_KEYS / h->options.store.keys_per_block, 1u);

        while (at < n_blocks) {
                uint32_t end = at + MIN(n_batch, n_blocks - at);

                count_probes(h, end - at);
                while (at < end && values_has(h->values, key_of(h, copy, path_of(h, request)[at]),
                                           h->now_nsec))
                        at++;
                if (at < end)
                        break;
        }
        return at - from;
}

/* Marks the blocks before the wanted ones as used: these are useless without them. */
static void touch_ancestors(struct hosts *h, uint32_t copy, uint32_t request, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                if (values_use_again(h->values, key_of(h, copy, path_of(h, request)[i]),
                            HOSTS_TOUCH_NSEC, h->now_nsec))
                        count_touches(h, 1);
}

/* Loads blocks from .. from + n - 1, if that is faster than to compute them. */
static bool load_run(struct hosts *h, uint32_t host, uint32_t request, uint32_t from, uint32_t n)
{
        const struct hosts_store *store = &h->options.store;
        uint32_t copy = h->hosts[host].copy;
        uint64_t tokens = tokens_in(h, request, from + n) - tokens_in(h, request, from), nsec;

        if (tokens == 0 || tokens < store->min_tokens)
                return false;
        lanes_begin(h->lanes, host);
        for (uint32_t i = from; i < from + n; i++)
                for (uint32_t j = 0; j < store->keys_per_block; j++)
                        lanes_add(h->lanes, place_of(key_of(h, copy, path_of(h, request)[i]), j),
                                page_bytes(h));
        nsec = lanes_estimate(h->lanes, h->now_nsec);
        if (nsec >= compute_nsec(h, tokens)) {
                h->result.lost_loads++;
                h->result.lost_tokens += tokens;
                return false;
        }
        lanes_load(h->lanes, h->now_nsec);
        for (uint32_t i = from; i < from + n; i++)
                (void)values_use(h->values, key_of(h, copy, path_of(h, request)[i]), h->now_nsec);
        h->result.loads++;
        h->result.load_nsec += nsec;
        h->result.load_bytes += n * store->block_bytes;
        h->result.remote_tokens += tokens;
        count_traffic(h, n * store->block_bytes, 0);
        return true;
}

/* Loads blocks from the store, behind the host's own. */
static uint32_t fetch_blocks(struct hosts *h, uint32_t host, uint32_t request, uint32_t n_local)
{
        const struct sim_request *r = request_of(h, request);
        uint64_t lacks = r->input_tokens - tokens_in(h, request, n_local);
        uint32_t copy = h->hosts[host].copy, n;

        if (!h->values || n_local == r->n_blocks || lacks < h->options.store.min_tokens)
                return 0;
        if (h->options.store.export == HOSTS_EXPORT_DEMOTION)
                touch_ancestors(h, copy, request, n_local);
        n = probe_run(h, copy, request, n_local);
        return load_run(h, host, request, n_local, n) ? n : 0;
}

/* ---- a request ------------------------------------------------------------------------------- */

/* A block of the request's path is used; one that is new there (not found) is published. */
static void note_use(uint8_t *uses, bool is_new, bool is_long)
{
        unsigned n = is_new ? 1 : MIN((*uses & USES_MAX) + 1u, (unsigned)USES_MAX);

        *uses = (uint8_t)(n | (is_long || (!is_new && (*uses & IS_LONG)) ? IS_LONG : 0));
}

/* Called before the cache is updated: blocks evicted meanwhile aren't of this path. */
static void note_uses(
        struct hosts *h, struct host *host, uint32_t request, uint32_t n_local, uint32_t n_remote)
{
        const struct tier_filter *f = &h->options.store.filter;
        const struct sim_request *r = request_of(h, request);
        bool is_long = f->long_tokens > 0 && r->input_tokens >= f->long_tokens;

        for (uint32_t i = 0; i < r->n_blocks; i++) {
                uint32_t block = path_of(h, request)[i];

                note_use(&host->uses[block], i >= n_local, is_long);
                if (!host->texts || i < n_local)
                        continue;
                host->seen_sec[block] = 0;
                if (i < n_local + n_remote)
                        note_seen(host, block, h->now_nsec);
        }
}

static void serve_request(struct hosts *h, uint32_t host_number, uint32_t request)
{
        struct host *host = &h->hosts[host_number];
        const struct sim_request *r = request_of(h, request);
        uint32_t n_local = sim_would_hit(host->cache, request);
        uint32_t n_remote = fetch_blocks(h, host_number, request, n_local);
        uint64_t computed = r->input_tokens - tokens_in(h, request, n_local + n_remote);

        h->result.requests++;
        h->result.input_tokens += r->input_tokens;
        h->result.local_tokens += tokens_in(h, request, n_local);
        note_uses(h, host, request, n_local, n_remote);
        sim_run_one(host->cache, request);
        if (host->texts)
                export_texts(h, host, request, n_local, n_local + n_remote);
        host->computed_tokens += computed;
        host->busy_nsec = MIN(
                MAX(host->busy_nsec, h->now_nsec) + compute_nsec(h, computed), SIM_TIME_MAX_NSEC);
}

/* ---- which host ------------------------------------------------------------------------------ */

/* The host of the copy's, among those that admits() accepts (at least one), that is idle first; of
 * several, the next by turn. */
static uint32_t least_busy(struct hosts *h, uint32_t copy, const uint32_t *hits, uint32_t least)
{
        uint32_t first = copy * h->group, best = UINT32_MAX, turn = h->copies[copy].turn;
        uint64_t best_nsec = UINT64_MAX;

        for (uint32_t i = 0; i < h->group; i++) {
                uint32_t number = (turn + i) % h->group;
                uint64_t nsec = MAX(h->hosts[first + number].busy_nsec, h->now_nsec);

                if ((hits && hits[number] < least) || nsec >= best_nsec)
                        continue;
                best = number;
                best_nsec = nsec;
        }
        h->copies[copy].turn = (best + 1) % h->group;
        return first + best;
}

/* The host with most of the text. */
static uint32_t host_by_prefix(struct hosts *h, uint32_t copy, uint32_t request)
{
        uint32_t hits[HOSTS_MAX], most = 0, n_blocks = request_of(h, request)->n_blocks;

        for (uint32_t i = 0; i < h->group; i++) {
                hits[i] = sim_would_hit(h->hosts[copy * h->group + i].cache, request);
                most = MAX(most, hits[i]);
        }
        if (most < n_blocks - n_blocks / 2)
                return least_busy(h, copy, NULL, 0);
        return least_busy(h, copy, hits, most);
}

static uint32_t host_by_session(struct hosts *h, uint32_t copy, uint32_t request)
{
        uint32_t before = h->options.continued[request], *host = h->copies[copy].host;

        host[request] = before < request ? host[before] : least_busy(h, copy, NULL, 0);
        return host[request];
}

static uint32_t choose_host(struct hosts *h, uint32_t copy, uint32_t request)
{
        struct copy *c = &h->copies[copy];
        uint32_t number;

        switch (h->options.affinity) {
        case HOSTS_SESSION:
                return host_by_session(h, copy, request);
        case HOSTS_PREFIX:
                return host_by_prefix(h, copy, request);
        case HOSTS_RANDOM:
                number = (uint32_t)(hosts_mix(hosts_mix(h->options.cache.seed) + ++h->draws) %
                                    h->group);
                return copy * h->group + number;
        default:
                number = c->turn;
                c->turn = (c->turn + 1) % h->group;
                return copy * h->group + number;
        }
}

/* ---- all requests ---------------------------------------------------------------------------- */

static uint64_t time_of(const struct hosts *h, uint32_t copy)
{
        const struct copy *c = &h->copies[copy];

        return MIN(request_of(h, c->next)->time_nsec, SIM_TIME_MAX_NSEC) + c->shift_nsec;
}

static bool comes_first(const struct hosts *h, uint32_t a, uint32_t b)
{
        uint64_t time_a = time_of(h, a), time_b = time_of(h, b);

        return time_a != time_b ? time_a < time_b : a < b;
}

/* Moves the copy at place i of the heap down to its place. */
static void heap_sink(struct hosts *h, uint32_t i)
{
        uint32_t copy = h->order[i], child;

        while ((child = 2 * i + 1) < h->n_waiting) {
                if (child + 1 < h->n_waiting &&
                        comes_first(h, h->order[child + 1], h->order[child]))
                        child++;
                if (!comes_first(h, h->order[child], copy))
                        break;
                h->order[i] = h->order[child];
                i = child;
        }
        h->order[i] = copy;
}

static void run_next(struct hosts *h)
{
        uint32_t copy = h->order[0];
        struct copy *c = &h->copies[copy];

        h->now_nsec = time_of(h, copy);
        if (h->result.requests == 0)
                h->first_nsec = h->now_nsec;
        write_texts_of(h, copy);
        serve_request(h, choose_host(h, copy, c->next), c->next);
        if (++c->next == h->trace.n_requests)
                h->order[0] = h->order[--h->n_waiting];
        if (h->n_waiting > 0)
                heap_sink(h, 0);
}

uint64_t hosts_n_requests(const struct hosts *h)
{
        return (uint64_t)h->n_copies * h->trace.n_requests;
}

int64_t hosts_run(struct hosts *h, uint64_t n)
{
        for (; n > 0 && h->n_waiting > 0 && h->error == 0; n--)
                run_next(h);
        return h->error < 0 ? h->error : (int64_t)(hosts_n_requests(h) - h->result.requests);
}

void hosts_result(const struct hosts *h, struct hosts_result *ret)
{
        *ret = h->result;
        ret->duration_nsec = h->now_nsec - h->first_nsec;
        for (uint32_t i = 0; i < h->options.n_hosts; i++)
                ret->most_tokens = MAX(ret->most_tokens, h->hosts[i].computed_tokens);
        if (h->values)
                values_stats(h->values, &ret->values);
}

const char *hosts_check(const struct hosts *h)
{
        const char *wrong = h->values ? values_check(h->values) : NULL;

        for (uint32_t i = 0; i < h->options.n_hosts && !wrong; i++)
                wrong = sim_check(h->hosts[i].cache);
        return wrong;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static bool are_valid(const struct hosts_options *o)
{
        const struct hosts_store *s = &o->store;

        if (o->n_hosts == 0 || o->n_hosts > HOSTS_MAX || o->group == 0 ||
                (o->n_hosts > o->group && o->n_hosts % o->group != 0))
                return false;
        if (o->cache.may_bypass || o->cache.expect > 0 || sim_takes_time(&o->cache.engine) ||
                o->cache.tenant != SIM_ALL_TENANTS || o->prefill_tokens_per_sec == 0 ||
                o->affinity >= HOSTS_AFFINITIES || (o->affinity == HOSTS_SESSION && !o->continued))
                return false;
        return s->values.capacity == 0 || (s->block_bytes > 0 && s->keys_per_block > 0 &&
                                                  s->keys_per_block <= HOSTS_PROBE_KEYS);
}

static int make_store(struct hosts *h)
{
        struct values_options values = h->options.store.values;
        struct lanes_options lanes = h->options.store.lanes;
        int r;

        if (values.capacity == 0)
                return 0;
        values.n_keys = h->n_copies * h->trace.n_unique;
        values.seed = h->options.cache.seed;
        lanes.n_hosts = h->options.n_hosts;
        r = values_new(&values, &h->values);
        return r == 0 ? lanes_new(&lanes, &h->lanes) : r;
}

static int make_copy(struct hosts *h, uint32_t i)
{
        struct copy *c = &h->copies[i];

        h->order[i] = i;
        c->shift_nsec = HOSTS_SPREAD_NSEC / h->n_copies * i;
        if (h->options.affinity != HOSTS_SESSION)
                return 0;
        c->host = calloc((size_t)h->trace.n_requests + 1, sizeof(*c->host));
        return c->host ? 0 : -ENOMEM;
}

static int make_host(struct hosts *h, uint32_t i)
{
        struct sim_options cache = h->options.cache;
        struct host *host = &h->hosts[i];

        host->all = h;
        host->copy = i / h->group;
        host->uses = calloc((size_t)h->trace.n_unique + 1, sizeof(*host->uses));
        if (!host->uses)
                return -ENOMEM;
        if (h->values && h->options.store.export == HOSTS_EXPORT_DEMOTION) {
                cache.leaves = block_leaves;
                cache.leaves_data = host;
        } else if (h->values) {
                host->texts = calloc(HOSTS_TEXTS_MAX, sizeof(*host->texts));
                host->seen_sec = calloc((size_t)h->trace.n_unique + 1, sizeof(*host->seen_sec));
                if (!host->texts || !host->seen_sec)
                        return -ENOMEM;
        }
        return sim_new(&h->trace, &cache, &host->cache);
}

static int make_all(struct hosts *h)
{
        int r;

        h->hosts = calloc(h->options.n_hosts, sizeof(*h->hosts));
        h->copies = calloc(h->n_copies, sizeof(*h->copies));
        h->order = calloc(h->n_copies, sizeof(*h->order));
        if (!h->hosts || !h->copies || !h->order)
                return -ENOMEM;
        r = make_store(h);
        for (uint32_t i = 0; i < h->n_copies && r == 0; i++)
                r = make_copy(h, i);
        for (uint32_t i = 0; i < h->options.n_hosts && r == 0; i++)
                r = make_host(h, i);
        /* Copies begin in their order, so that this is a heap. */
        h->n_waiting = h->trace.n_requests > 0 ? h->n_copies : 0;
        return r;
}

int hosts_new(const struct sim_trace *trace, const struct hosts_options *options,
        struct hosts **ret_hosts)
{
        struct hosts *h;
        int r;

        if (!are_valid(options))
                return -EINVAL;
        h = calloc(1, sizeof(*h));
        if (!h)
                return -ENOMEM;
        h->trace = *trace;
        h->options = *options;
        h->group = MIN(options->group, options->n_hosts);
        h->n_copies = options->n_hosts / h->group;
        r = (uint64_t)h->n_copies * trace->n_unique > HOSTS_KEYS_MAX ? -EFBIG : make_all(h);
        if (r < 0) {
                hosts_free(h);
                return r;
        }
        *ret_hosts = h;
        return 0;
}

void hosts_free(struct hosts *h)
{
        if (!h)
                return;
        for (uint32_t i = 0; h->hosts && i < h->options.n_hosts; i++) {
                sim_free(h->hosts[i].cache);
                free(h->hosts[i].uses);
                free(h->hosts[i].texts);
                free(h->hosts[i].seen_sec);
        }
        for (uint32_t i = 0; h->copies && i < h->n_copies; i++)
                free(h->copies[i].host);
        values_free(h->values);
        lanes_free(h->lanes);
        free(h->hosts);
        free(h->copies);
        free(h->order);
        free(h);
}
