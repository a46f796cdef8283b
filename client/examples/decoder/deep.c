#include "client/examples/decoder/deep.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/examples/decoder/scores.h"

/* Weight of older attention after each page: a half after seven pages. Not tuned. */
#define FADE 0.9f

struct deep {
        struct deep_options options;
        struct kvl_ns *ns;
        struct kvl_session *session;
        struct scores *scores, *sums; /* of layers; sums over the deep ones */
        uint32_t *table;              /* page numbers of kept pages */
        bool *is_kept, *is_pinned;
        uint32_t n_table, n_kept, n_published, n_given_up;
        struct kvl_token_range *ranges;
};

/* ---- the namespace --------------------------------------------------------------------------- */

static int open_namespace(struct deep *d)
{
        const struct deep_options *o = &d->options;
        char name[DEEP_NAME_BYTES];
        struct kvl_ns_options options = {
                .size = sizeof(options),
                .device = o->device,
                .set = o->ns_name,
                .set_size = DEEP_SET_SIZE,
        };

        snprintf(name, sizeof(name), "%s-deep", o->ns_name);
        return kvl_ns_open_with(o->conn, name, &o->layout, &options, &d->ns);
}

int deep_reopen(struct deep *d)
{
        int r = d->session ? kvl_session_close(d->session, 0) : 0;

        (void)r; /* the namespace's end has closed it */
        d->session = NULL;
        kvl_ns_close(d->ns);
        d->ns = NULL;
        return open_namespace(d);
}

int deep_open(const struct deep_options *options, struct deep **ret_deep)
{
        struct deep *d = calloc(1, sizeof(*d));
        int r = -ENOMEM;

        if (!d)
                return r;
        d->options = *options;
        d->table = calloc(options->max_pages, sizeof(*d->table));
        d->is_kept = calloc(options->max_pages, sizeof(*d->is_kept));
        d->is_pinned = calloc(options->max_pages, sizeof(*d->is_pinned));
        d->ranges = calloc(DEEP_MAX_PAGES + 1, sizeof(*d->ranges));
        d->scores = scores_new(options->n_layers, options->max_pages);
        d->sums = scores_new(1, options->max_pages);
        if (d->table && d->is_kept && d->is_pinned && d->ranges && d->scores && d->sums)
                r = options->conn ? open_namespace(d) : 0;
        if (r) {
                deep_close(d);
                return r;
        }
        *ret_deep = d;
        return 0;
}

void deep_close(struct deep *d)
{
        if (!d)
                return;
        scores_free(d->sums);
        scores_free(d->scores);
        free(d->ranges);
        free(d->is_pinned);
        free(d->is_kept);
        free(d->table);
        free(d); /* the namespace ends with the connection */
}

/* ---- the table ------------------------------------------------------------------------------- */

static unsigned char *page_tensor(const struct deep *d, uint32_t page, uint32_t i)
{
        if (d->options.layout.n_planes > 1)
                return kvl_page_ptr(d->ns, page, i);
        return (unsigned char *)kvl_page_ptr(d->ns, page, 0) + i * d->options.tensor_bytes;
}

/* Returns K and V of the deep layers in a row of the table. */
static unsigned char **deep_row(const struct deep *d, uint32_t at)
{
        const struct deep_options *o = &d->options;

        return o->tensors + (size_t)at * 2 * o->n_layers + 2 * (o->n_layers - o->n_deep);
}

static void enter_page(struct deep *d, uint32_t at, uint32_t page, bool is_pinned)
{
        d->table[at] = page;
        d->is_pinned[at] = is_pinned;
        for (uint32_t i = 0; d->ns && i < 2 * d->options.n_deep; i++)
                deep_row(d, at)[i] = page_tensor(d, page, i);
}

static int open_session(struct deep *d)
{
        char id[KVL_SESSION_ID_MAX];
        int n = snprintf(id, sizeof(id), "decoder-deep-%ld-%p", (long)getpid(), (void *)d);

        return kvl_session_open(d->ns, id, (size_t)n, NULL, NULL, &d->session);
}

int deep_begin(struct deep *d, const uint8_t *keys, uint32_t n_keys, uint32_t *ret_n)
{
        uint64_t n_tokens;
        int r;

        *ret_n = 0;
        d->n_table = d->n_kept = d->n_published = d->n_given_up = 0;
        scores_clear(d->scores);
        if (!d->ns)
                return 0;
        r = open_session(d);
        if (r || n_keys == 0)
                return r;
        r = kvl_lookup(d->ns, 0, keys, n_keys, d->table, ret_n, &n_tokens);
        if (r == KVL_MISS)
                return 0;
        if (r)
                return r;
        for (uint32_t i = 0; i < *ret_n; i++) {
                enter_page(d, i, d->table[i], true);
                d->is_kept[i] = true;
        }
        d->n_table = d->n_kept = d->n_published = *ret_n;
        return 0;
}

uint32_t deep_first(const struct deep *d)
{
        return d->options.n_most / 2;
}

uint32_t deep_n_given_up(const struct deep *d)
{
        return d->n_given_up;
}

/* ---- giving up ------------------------------------------------------------------------------- */

/* Returns the next page to give up: by the sum over all deep layers, as the group's pages hold all
 * of them. */
static uint32_t next_to_go(struct deep *d)
{
        for (uint32_t page = 0; page < d->n_table; page++) {
                float sum = 0;

                for (uint32_t i = 0; i < d->options.n_deep; i++)
                        sum += scores_mass(
                                d->scores, d->options.n_layers - d->options.n_deep + i, page);
                scores_set_mass(d->sums, 0, page, sum);
        }
        return scores_least(d->sums, 0, d->is_kept, d->n_table);
}

/* Writes the kept published pages as ranges. */
static uint32_t kept_ranges(const struct deep *d)
{
        uint32_t tokens = d->options.layout.page_tokens, n = 0;

        for (uint32_t page = 0; page < d->n_published; page++) {
                if (!d->is_kept[page])
                        continue;
                if (n > 0 && page > 0 && d->is_kept[page - 1])
                        d->ranges[n - 1].end_token += tokens;
                else
                        d->ranges[n++] = (struct kvl_token_range){
                                (uint64_t)page * tokens, (uint64_t)(page + 1) * tokens};
        }
        return n;
}

/* Gives up a page: attention skips it from now on. A published page is also removed from the
 * session. If other sessions are truncated at the same time (-EAGAIN), that happens with the next
 * page. */
static int give_up_page(struct deep *d, uint32_t page)
{
        uint32_t n_ranges, n = 0;
        int r = 0;

        d->is_kept[page] = false;
        d->n_kept--;
        for (uint32_t i = 0; i < 2 * d->options.n_deep; i++)
                deep_row(d, page)[i] = NULL;
        d->n_given_up += !d->ns || !d->is_pinned[page];
        if (!d->ns)
                return 0;
        if (!d->is_pinned[page])
                return kvl_free(d->ns, &d->table[page], 1);
        n_ranges = kept_ranges(d);
        if (n_ranges > 0) /* else the session's end gives it up */
                r = kvl_session_keep(d->session, d->ranges, n_ranges, &n);
        if (r && r != -EAGAIN)
                return r;
        d->n_given_up += n;
        return kvl_release(d->ns, &d->table[page], 1);
}

int deep_extend(struct deep *d, struct model_kv *kv)
{
        uint32_t page = 0;
        int r = 0;

        assert(d->n_table < d->options.max_pages);
        while (!r && d->n_kept >= d->options.n_most)
                r = give_up_page(d, next_to_go(d));
        if (!r && d->ns)
                r = kvl_lease(d->ns, 0, 1, &page);
        if (r)
                return r;
        d->is_kept[d->n_table] = true;
        d->n_kept++;
        enter_page(d, d->n_table, page, false);
        kv->scores = d->n_table >= deep_first(d) ? d->scores : NULL;
        scores_fade(d->scores, FADE);
        d->n_table++;
        return 0;
}

/* ---- publishing, and the end ----------------------------------------------------------------- */

int deep_publish(struct deep *d, uint32_t page, const uint8_t (*keys)[KVL_KEY_BYTES])
{
        const struct kvl_publish publish = {
                .size = sizeof(publish),
                .pages = &d->table[page],
                .keys = keys[page + 1],
                .n_pages = 1,
                .parent_key = page ? keys[page] : NULL,
                .last_tokens = d->options.layout.page_tokens,
                .session = d->session,
        };
        uint32_t ours = d->table[page], theirs;
        int r;

        if (!d->ns)
                return 0;
        r = kvl_publish(d->ns, &publish, &theirs, NULL);
        if (r && r != KVL_DUPLICATE)
                return r;
        d->n_published = page + 1;
        enter_page(d, page, theirs, true);
        return r == KVL_DUPLICATE ? kvl_free(d->ns, &ours, 1) : 0;
}

int deep_end(struct deep *d)
{
        int r = 0, q;

        for (uint32_t i = 0; d->ns && i < d->n_table; i++) {
                if (!d->is_kept[i])
                        continue;
                q = (d->is_pinned[i] ? kvl_release : kvl_free)(d->ns, &d->table[i], 1);
                r = r ? r : q;
        }
        q = d->session ? kvl_session_close(d->session, 1) : 0;
        d->session = NULL;
        return r ? r : q;
}
