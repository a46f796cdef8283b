#include "client/trace/build.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "client/trace/line.h"
#include "client/trace/trace.h"

/* ---- size of blocks -------------------------------------------------------------------------- */

/*
 * Determines the size of a trace's blocks from its lines, which don't state it. PURE.
 *
 * A line has a number of tokens and of blocks. Traces count them in one of two ways. Either the
 * last block may be partial and has an id (the published Mooncake traces). Or only full blocks have
 * ids, and the rest of the sequence has none. Read in the wrong way a size may appear doubled, so
 * both ways are considered.
 */
static void block_size_init(struct block_size *s)
{
        *s = (struct block_size){.partial = {1, UINT64_MAX}, .full = {1, UINT64_MAX}};
}

static void narrow_range(struct block_range *r, uint64_t least, uint64_t most)
{
        r->least = MAX(r->least, least);
        r->most = MIN(r->most, most);
}

/* Adds a line's tokens and blocks. Nothing if one of them is 0. */
static void block_size_line(struct block_size *s, uint64_t tokens, uint32_t n_blocks)
{
        uint64_t n = n_blocks;

        if (tokens == 0 || n == 0)
                return;
        narrow_range(
                &s->partial, (tokens - 1) / n + 1, n > 1 ? (tokens - 1) / (n - 1) : UINT64_MAX);
        narrow_range(&s->full, tokens / (n + 1) + 1, tokens / n);
}

static uint32_t powers_in(const struct block_range *r)
{
        uint32_t bits = 0;

        for (unsigned i = 0; UINT64_C(1) << i <= TRACE_BLOCK_TOKENS_MAX; i++)
                if (UINT64_C(1) << i >= r->least && UINT64_C(1) << i <= r->most)
                        bits |= UINT32_C(1) << i;
        return bits;
}

/* Returns a bit mask: bit i is set if 2^i tokens fit all lines in one of the two ways; up to
 * TRACE_BLOCK_TOKENS_MAX. */
static uint32_t block_size_fits(const struct block_size *s)
{
        return powers_in(&s->partial) | powers_in(&s->full);
}

/* Returns the size to read the trace with: the smallest power of two that fits if the last block
 * may be partial, else the smallest that fits with full blocks only. 0: none fits, or it exceeds
 * TRACE_BLOCK_TOKENS_MAX. */
static uint32_t block_size_choose(const struct block_size *s)
{
        uint32_t bits = powers_in(&s->partial);

        if (s->partial.least > TRACE_BLOCK_TOKENS_MAX && s->partial.least <= s->partial.most)
                return 0;
        if (bits == 0)
                bits = powers_in(&s->full);
        return bits & -bits; /* the lowest bit is that number of tokens */
}

/* Writes why none fits: a sentence without its end, with the remedy. */
static void block_size_explain(const struct block_size *s, char *buf, size_t size)
{
        const struct block_range *fits =
                s->partial.least <= s->partial.most ? &s->partial : &s->full;

        if (fits->least > TRACE_BLOCK_TOKENS_MAX && fits->least <= fits->most)
                snprintf(buf, size,
                        "its blocks have %" PRIu64
                        " tokens or more, and no more than %d are found out: give the right number by --block-tokens",
                        fits->least, TRACE_BLOCK_TOKENS_MAX);
        else if (fits->least <= fits->most)
                snprintf(buf, size,
                        "its blocks have %" PRIu64 " to %" PRIu64
                        " tokens, and none of these is a power of two: give the right number by --block-tokens",
                        fits->least, fits->most);
        else
                snprintf(buf, size,
                        "its lines contradict each other: in one a block has %" PRIu64
                        " tokens or more, in another one %" PRIu64
                        " or fewer; give the right number by --block-tokens",
                        s->partial.least, s->partial.most);
}

/* Limit on blocks, and on ids. In keys of nodes (node_key()) tenants count down from the top. */
#define NUMBERS_MAX (UINT32_MAX - 1 - TRACE_TENANTS_MAX)

void builder_init(struct builder *b, unsigned flags, uint32_t block_tokens)
{
        *b = (struct builder){.flags = flags, .block_tokens = block_tokens};
        map_init(&b->contents);
        map_init(&b->nodes);
        block_size_init(&b->block_size);
}

static void free_names(char **names, uint32_t n)
{
        for (uint32_t i = 0; names && i < n; i++)
                free(names[i]);
        free(names);
}

void builder_deinit(struct builder *b)
{
        map_deinit(&b->contents);
        map_deinit(&b->nodes);
        free(b->requests);
        free(b->blocks);
        free(b->parents);
        free_names(b->tenants, b->n_tenants);
        *b = (struct builder){0};
}

void trace_free(struct trace *t)
{
        free((void *)t->sim.requests);
        free((void *)t->sim.blocks);
        free((void *)t->sim.parents);
        free_names(t->tenants, t->sim.n_tenants);
        *t = (struct trace){0};
}

/* Makes room for n elements. Returns 0 or -ENOMEM (unchanged). */
static int grow_array(void *array, size_t *max, size_t n, size_t size)
{
        void **p = array, *grown;
        size_t new_max = MAX(n, *max + *max / 2);

        if (n <= *max)
                return 0;
        grown = realloc(*p, new_max * size); /* counts are below 2^33 */
        if (!grown)
                return -ENOMEM;
        *p = grown;
        *max = new_max;
        return 0;
}

/* ---- tenants --------------------------------------------------------------------------------- */

static bool tenant_find(const struct builder *b, const char *name, uint32_t *ret)
{
        for (uint32_t i = 0; i < b->n_tenants; i++)
                if (strcmp(b->tenants[i], name) == 0) {
                        *ret = i;
                        return true;
                }
        return false;
}

bool builder_has_tenant(const struct builder *b, const char *name)
{
        uint32_t tenant;

        return tenant_find(b, name, &tenant);
}

/* Removes tenants from number `first` on. */
static void remove_tenants(struct builder *b, uint32_t first)
{
        while (b->n_tenants > first)
                free(b->tenants[--b->n_tenants]);
}

/* Returns 0 or -ENOMEM. */
static int tenant_add(struct builder *b, const char *name, uint32_t *ret)
{
        char *copy = strdup(name);
        char **grown = copy ? realloc(b->tenants, (b->n_tenants + 1) * sizeof(*grown)) : NULL;

        if (!grown) {
                free(copy);
                return -ENOMEM;
        }
        b->tenants = grown;
        b->tenants[b->n_tenants] = copy;
        *ret = b->n_tenants++;
        return 0;
}

int builder_file(struct builder *b, unsigned file, const char *name)
{
        b->file = file;
        b->is_tenant = name;
        b->line = 0;
        b->last_nsec = 0;
        return name ? tenant_add(b, name, &b->tenant) : 0;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* The line can't be read, for this reason. Returns 0 if such lines are skipped, else -EINVAL. */
static int refuse_line(struct builder *b, const char *why, struct trace_error *ret_error)
{
        struct trace_error e = {.file = b->file, .line = b->line};

        snprintf(e.text, sizeof(e.text), "%s", why);
        if (!(b->flags & TRACE_SKIP_BAD)) {
                *ret_error = e;
                return -EINVAL;
        }
        if (b->n_bad++ == 0)
                b->first_bad = e;
        return 0;
}

/* Returns a block's key. If this reader chains: (the previous block, the content). Ids that are
 * chained are keys alone, within a tenant. */
static uint64_t node_key(
        const struct builder *b, uint32_t tenant, uint32_t parent, uint32_t content)
{
        uint32_t place = UINT32_MAX - 1 - tenant;

        if ((b->flags & TRACE_CHAIN) && parent != NODE_NONE)
                place = parent;
        return (uint64_t)place << 32 | content;
}

static uint64_t id_at(const json_t *ids, uint32_t i)
{
        return (uint64_t)json_integer_value(json_array_get(ids, i));
}

/* Returns the number of an id, new or known. The map must have room. */
static uint32_t content_number(struct builder *b, uint64_t id)
{
        const uint64_t *known = map_find(&b->contents, id);
        uint32_t number = known ? (uint32_t)*known : (uint32_t)b->contents.n_used;

        if (!known)
                (void)map_put(&b->contents, id, number); /* can't fail: reserved */
        return number;
}

/* Makes blocks of ids[0..n-1]; there must be room. Returns how many: fewer than n if the next id
 * followed another block before. */
static uint32_t add_path(struct builder *b, uint32_t tenant, const json_t *ids, uint32_t n)
{
        uint32_t *path = b->blocks + b->n_blocks, parent = NODE_NONE;

        for (uint32_t i = 0; i < n; i++) {
                uint64_t key = node_key(b, tenant, parent, content_number(b, id_at(ids, i)));
                const uint64_t *known = map_find(&b->nodes, key);

                if (known && b->parents[*known] != parent)
                        return i;
                path[i] = known ? (uint32_t)*known : b->n_parents;
                if (!known) {
                        (void)map_put(&b->nodes, key, b->n_parents); /* can't fail: reserved */
                        b->parents[b->n_parents++] = parent;
                }
                parent = path[i];
        }
        return n;
}

/* Removes the blocks that add_path() made of these ids, from number `first` on. */
static void remove_path(
        struct builder *b, uint32_t tenant, const json_t *ids, uint32_t n, uint32_t first)
{
        const uint32_t *path = b->blocks + b->n_blocks;

        for (uint32_t i = 0; i < n; i++)
                if (path[i] >= first)
                        (void)map_remove(
                                &b->nodes, node_key(b, tenant, i > 0 ? path[i - 1] : NODE_NONE,
                                                   content_number(b, id_at(ids, i))));
        b->n_parents = first;
}

/* Makes room for a line of n ids. Returns 0 or -ENOMEM. */
static int reserve_line(struct builder *b, uint32_t n)
{
        int r = grow_array(
                &b->requests, &b->max_requests, (size_t)b->n_requests + 1, sizeof(*b->requests));

        if (r == 0)
                r = grow_array(&b->blocks, &b->max_blocks, b->n_blocks + n, sizeof(*b->blocks));
        if (r == 0)
                r = grow_array(&b->parents, &b->max_parents, (size_t)b->n_parents + n,
                        sizeof(*b->parents));
        if (r == 0)
                r = map_reserve(&b->contents, n);
        return r == 0 ? map_reserve(&b->nodes, n) : r;
}

/* Returns the tenant of a line, new or known. Returns 0, -ENOMEM, or -E2BIG: too many. */
static int line_tenant(struct builder *b, const struct trace_line *l, uint32_t *ret)
{
        *ret = b->tenant;
        if (b->is_tenant || tenant_find(b, l->tenant, ret))
                return 0;
        return b->n_tenants == TRACE_TENANTS_MAX ? -E2BIG : tenant_add(b, l->tenant, ret);
}

static void add_request(
        struct builder *b, const struct trace_line *l, uint32_t tenant, uint32_t n_blocks)
{
        b->requests[b->n_requests++] = (struct sim_request){
                .time_nsec = l->time_nsec,
                .first = b->n_blocks,
                .n_blocks = n_blocks,
                .input_tokens = l->input_tokens,
                .output_tokens = l->output_tokens,
                .tenant = tenant,
                .ending = l->ending,
                .hint = l->hint,
        };
        b->n_blocks += n_blocks;
        b->n_fractions += l->has_fraction;
        block_size_line(&b->block_size, l->input_tokens, n_blocks);
        b->n_late += l->time_nsec < b->last_nsec;
        b->last_nsec = MAX(b->last_nsec, l->time_nsec);
}

/* Settles a line's time. If no line has one, requests come a second apart. Returns 0; -ENOMSG: this
 * line lacks a time, and earlier ones have one. -EINVAL with *ret_error: earlier lines lack a time.
 * That is fatal even if bad lines are skipped, as all lines with a time would be. */
static int settle_time(struct builder *b, struct trace_line *l, struct trace_error *ret_error)
{
        if (b->n_requests == 0)
                b->has_times = l->has_time;
        if (!l->has_time)
                l->time_nsec = b->n_requests * NSEC_PER_SEC;
        if (b->has_times == l->has_time)
                return 0;
        if (!l->has_time)
                return -ENOMSG;
        *ret_error = (struct trace_error){.file = b->file};
        snprintf(ret_error->text, sizeof(ret_error->text),
                "line %" PRIu64
                " has a timestamp, and lines read before have none: leave those out, or all timestamps",
                b->line);
        return -EINVAL;
}

static int add_line(struct builder *b, struct trace_line *l, struct trace_error *ret_error)
{
        uint32_t n = (uint32_t)json_array_size(l->ids), first = b->n_parents, made, tenant;
        uint32_t n_tenants = b->n_tenants;
        char why[sizeof(ret_error->text)];
        int r = settle_time(b, l, ret_error);

        if (r == -ENOMSG)
                return refuse_line(
                        b, "timestamp is missing, and lines before this one have one", ret_error);
        if (r < 0)
                return r;
        r = line_tenant(b, l, &tenant);
        if (r == -E2BIG) {
                snprintf(why, sizeof(why), "one more than %d tenants", TRACE_TENANTS_MAX);
                return refuse_line(b, why, ret_error);
        }
        if (r == 0 && (b->n_requests == UINT32_MAX || n > NUMBERS_MAX - b->n_parents ||
                              n > NUMBERS_MAX - b->contents.n_used))
                r = -ENOMEM;
        if (r == 0)
                r = reserve_line(b, n);
        if (r < 0)
                return r;
        made = add_path(b, tenant, l->ids, n);
        if (made == n) {
                add_request(b, l, tenant, n);
                return 0;
        }
        remove_path(b, tenant, l->ids, made, first);
        remove_tenants(b, n_tenants);
        snprintf(why, sizeof(why),
                "hash_ids[%" PRIu32 "] is %" PRIu64
                ", which followed another id before: these ids name the content of a block: read them with --chain",
                made, id_at(l->ids, made));
        return refuse_line(b, why, ret_error);
}

static bool is_blank(const char *text, size_t len)
{
        for (size_t i = 0; i < len; i++)
                if (!strchr(" \t\r", text[i]) || text[i] == '\0')
                        return false;
        return true;
}

int builder_line(struct builder *b, const char *text, size_t len, struct trace_error *ret_error)
{
        char why[sizeof(ret_error->text)];
        struct trace_line line;
        int r;

        b->line++;
        if (is_blank(text, len))
                return 0;
        r = line_parse(text, len, (enum trace_unit)(b->flags >> TRACE_UNIT_SHIFT), &line, why,
                sizeof(why));
        if (r == -EINVAL)
                return refuse_line(b, why, ret_error);
        if (r < 0)
                return r;
        r = add_line(b, &line, ret_error);
        line_done(&line);
        return r;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Compares by time, then by order of reading: `first` grows with every block. */
static int compare_requests(const void *a, const void *b)
{
        const struct sim_request *x = a, *y = b;

        if (x->time_nsec != y->time_nsec)
                return x->time_nsec < y->time_nsec ? -1 : 1;
        if (x->first != y->first)
                return x->first < y->first ? -1 : 1;
        return (x->n_blocks > y->n_blocks) - (x->n_blocks < y->n_blocks);
}

static int find_block_tokens(struct builder *b, uint32_t *ret_fits, struct trace_error *ret_error)
{
        *ret_fits = 0;
        if (b->block_tokens > 0)
                return 0;
        *ret_fits = block_size_fits(&b->block_size);
        b->block_tokens = block_size_choose(&b->block_size);
        if (b->block_tokens > 0)
                return 0;
        block_size_explain(&b->block_size, ret_error->text, sizeof(ret_error->text));
        return -EINVAL;
}

int builder_finish(struct builder *b, struct trace *ret_trace, struct trace_error *ret_error)
{
        uint32_t fits;

        *ret_error = b->n_bad > 0 ? b->first_bad : (struct trace_error){0};
        if (b->n_requests == 0) {
                if (b->n_bad == 0)
                        snprintf(ret_error->text, sizeof(ret_error->text), "no request in it");
                return -EINVAL;
        }
        *ret_error = (struct trace_error){0};
        if (find_block_tokens(b, &fits, ret_error) < 0)
                return -EINVAL;
        qsort(b->requests, b->n_requests, sizeof(*b->requests), compare_requests);
        *ret_trace = (struct trace){
                .sim = {.requests = b->requests,
                        .blocks = b->blocks,
                        .parents = b->parents,
                        .n_blocks = b->n_blocks,
                        .n_requests = b->n_requests,
                        .n_unique = b->n_parents,
                        .n_tenants = b->n_tenants,
                        .block_tokens = b->block_tokens},
                .tenants = b->tenants,
                .block_sizes = fits,
                .n_bad = b->n_bad,
                .n_late = b->n_late,
                .n_fractions = b->n_fractions,
                .has_times = b->has_times,
                .first_bad = b->first_bad,
        };
        b->requests = NULL;
        b->blocks = b->parents = NULL;
        b->tenants = NULL;
        b->n_tenants = 0;
        return 0;
}
