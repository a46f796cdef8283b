#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvlease.h>

#include "client/examples/decoder/pages.h"

#define PLANE_ALIGN 64 /* kvlease.h: a plane's page is a multiple of it */

struct pages {
        struct pages_options options;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint64_t request;

        char version[17];
        struct kvl_layout layout;
        uint64_t tensor_bytes; /* K or V of one layer of one page */
        unsigned char **bases; /* k of each layer, then v of each layer */
        unsigned char *memory; /* use_daemon false: all pages */
        struct model_kv kv;

        uint32_t *table;                /* page indices */
        bool *pinned;                   /* by position in the table: to release, else to free */
        uint8_t (*keys)[KVL_KEY_BYTES]; /* [0] is the root: key of page i is keys[i + 1] */
        uint32_t n_table, n_keys;
        const uint32_t *tokens;
        bool active, publishing;
        struct pages_counts counts;
};

const char *pages_error(void)
{
        return kvl_last_error();
}

/* ---- open ------------------------------------------------------------------------------------ */

static void set_layout(struct pages *p)
{
        const struct model_shape *shape = &p->options.shape;
        uint32_t n_tensors = 2 * shape->n_layers;
        uint64_t bytes = (uint64_t)shape->n_kv_heads * model_head_size(shape) *
                         p->options.page_tokens * sizeof(float);

        p->tensor_bytes = (bytes + PLANE_ALIGN - 1) / PLANE_ALIGN * PLANE_ALIGN;
        snprintf(p->version, sizeof(p->version), "%016" PRIx64, model_version(shape));
        p->layout = (struct kvl_layout){
                .size = sizeof(p->layout),
                .model = "kvlease-decoder",
                .version = p->version,
                .dtype = KVL_DTYPE_F32,
                .n_layers = shape->n_layers,
                .n_kv_heads = shape->n_kv_heads,
                .head_size = model_head_size(shape),
                .page_tokens = p->options.page_tokens,
                .n_planes = p->options.plane_per_tensor ? n_tensors : 1,
                .plane_page_bytes = p->tensor_bytes * (p->options.plane_per_tensor ? 1 : n_tensors),
                .tp_size = 1,
        };
}

static unsigned char *plane_base(const struct pages *p, uint32_t plane)
{
        if (p->options.use_daemon)
                return kvl_plane_base(p->ns, plane);
        return p->memory + plane * p->layout.plane_page_bytes * p->options.max_pages;
}

static void set_bases(struct pages *p)
{
        uint32_t n_layers = p->options.shape.n_layers;

        for (uint32_t i = 0; i < 2 * n_layers; i++) {
                uint32_t tensor = i < n_layers ? 2 * i : 2 * (i - n_layers) + 1;

                p->bases[i] = p->options.plane_per_tensor
                                      ? plane_base(p, tensor)
                                      : plane_base(p, 0) + tensor * p->tensor_bytes;
        }
        p->kv.k = p->bases;
        p->kv.v = p->bases + n_layers;
        p->kv.page_bytes = p->layout.plane_page_bytes;
        p->kv.page_tokens = p->options.page_tokens;
        p->kv.pages = p->table;
}

static int open_namespace(struct pages *p)
{
        int r = kvl_ns_open(p->conn, p->options.ns_name, &p->layout, p->options.device, 0, &p->ns);

        if (r)
                return r;
        set_bases(p);
        return 0;
}

static int open_private(struct pages *p)
{
        p->memory = calloc(p->options.max_pages, p->layout.n_planes * p->layout.plane_page_bytes);
        if (!p->memory)
                return -ENOMEM;
        set_bases(p);
        return 0;
}

static int open_connection(struct pages *p)
{
        const struct kvl_connect_options connect = {
                .size = sizeof(connect),
                .socket_path = p->options.socket,
        };
        int r = kvl_connect(&connect, &p->conn);

        if (r)
                return r;
        return open_namespace(p);
}

int pages_open(const struct pages_options *options, struct pages **ret_pages)
{
        struct pages *p = calloc(1, sizeof(*p));
        int r = -ENOMEM;

        if (!p)
                return r;
        p->options = *options;
        set_layout(p);
        p->bases = calloc(2 * (size_t)options->shape.n_layers, sizeof(*p->bases));
        p->table = calloc(options->max_pages, sizeof(*p->table));
        p->pinned = calloc(options->max_pages, sizeof(*p->pinned));
        p->keys = calloc((size_t)options->max_pages + 1, sizeof(*p->keys));
        if (p->bases && p->table && p->pinned && p->keys)
                r = kvl_key_root(&p->layout, p->keys[0]);
        if (!r)
                r = options->use_daemon ? open_connection(p) : open_private(p);
        if (r) {
                pages_close(p);
                return r;
        }
        *ret_pages = p;
        return 0;
}

void pages_close(struct pages *p)
{
        if (!p)
                return;
        /* Whatever the prompt still holds ends with the connection. */
        kvl_disconnect(p->conn);
        free(p->memory);
        free(p->keys);
        free(p->pinned);
        free(p->table);
        free(p->bases);
        free(p);
}

/* ---- a prompt -------------------------------------------------------------------------------- */

static int compute_keys(struct pages *p, uint32_t n_keys)
{
        uint32_t page_tokens = p->options.page_tokens;

        for (; p->n_keys < n_keys; p->n_keys++) {
                int r = kvl_key_chain(p->keys[p->n_keys], p->tokens + p->n_keys * page_tokens,
                        page_tokens, p->keys[p->n_keys + 1]);

                if (r)
                        return r;
        }
        return 0;
}

static int look_up(struct pages *p, uint32_t n_keys)
{
        uint32_t n = 0;
        uint64_t n_tokens;
        int r;

        p->request = kvl_request_begin(p->ns);
        if (n_keys == 0)
                return 0;
        r = kvl_lookup(p->ns, p->request, p->keys[1], n_keys, p->table, &n, &n_tokens);
        if (r == KVL_MISS)
                return 0;
        if (r)
                return r;
        /* Only full pages are ever published. */
        assert(n_tokens == (uint64_t)n * p->options.page_tokens);
        memset(p->pinned, true, n * sizeof(*p->pinned));
        p->n_table = n;
        return 0;
}

/* It was invalidated since it was opened: the one of today is empty, and as good. */
static int reopen_namespace(struct pages *p)
{
        kvl_request_end(p->ns, p->request);
        p->request = 0;
        kvl_ns_close(p->ns);
        p->ns = NULL;
        return open_namespace(p);
}

static int find_cached(struct pages *p, uint32_t n_keys)
{
        int r = compute_keys(p, n_keys);

        if (!r)
                r = look_up(p, n_keys);
        if (r != KVL_STALE)
                return r;
        r = reopen_namespace(p);
        if (!r)
                r = look_up(p, n_keys);
        return r;
}

int pages_begin(
        struct pages *p, const uint32_t *tokens, uint32_t n_tokens, uint32_t *ret_reused_tokens)
{
        assert(!p->active);
        assert(n_tokens > 0);
        p->tokens = tokens;
        p->n_table = p->n_keys = 0;
        p->counts = (struct pages_counts){};
        p->request = 0;
        p->active = true;
        p->publishing = p->options.use_daemon;
        if (p->options.use_daemon) {
                int r = find_cached(p, (n_tokens - 1) / p->options.page_tokens);

                if (r)
                        return r;
        }
        p->counts.reused = p->n_table;
        *ret_reused_tokens = p->n_table * p->options.page_tokens;
        return 0;
}

int pages_extend(struct pages *p)
{
        assert(p->active);
        assert(p->n_table < p->options.max_pages);
        if (p->options.use_daemon) {
                int r = kvl_lease(p->ns, p->request, 1, &p->table[p->n_table]);

                if (r)
                        return r;
        } else {
                /* Backwards, so that nothing comes out right by reading memory in order. */
                p->table[p->n_table] = p->options.max_pages - 1 - p->n_table;
        }
        p->pinned[p->n_table++] = false;
        return 0;
}

int pages_publish(struct pages *p, uint32_t page_no)
{
        uint32_t ours, theirs;
        int r;

        assert(p->active);
        assert(page_no < p->n_table && !p->pinned[page_no]);
        if (!p->publishing)
                return 0;
        r = compute_keys(p, page_no + 1);
        if (r)
                return r;
        ours = p->table[page_no];
        r = kvl_publish(p->ns,
                &(struct kvl_publish){
                        .size = sizeof(struct kvl_publish),
                        .pages = &ours,
                        .keys = p->keys[page_no + 1],
                        .n_pages = 1,
                        .parent_key = page_no ? p->keys[page_no] : NULL,
                        .last_tokens = p->options.page_tokens,
                        .request = p->request,
                },
                &theirs, NULL);
        switch (r) {
        case 0:
                p->pinned[page_no] = true;
                p->counts.published++;
                return 0;
        case KVL_DUPLICATE:
                p->table[page_no] = theirs;
                p->pinned[page_no] = true;
                p->counts.duplicates++;
                return kvl_free(p->ns, &ours, 1);
        case KVL_NO_PARENT:
        case KVL_STALE:
                p->publishing = false;
                return 0;
        default:
                return r;
        }
}

/* Pinned pages are a prefix of the table: publishing goes in order, and ends where it fails. */
int pages_end(struct pages *p)
{
        uint32_t n_pinned = 0;
        int r = 0, q = 0;

        assert(p->active);
        p->active = false;
        if (!p->request)
                return 0;
        while (n_pinned < p->n_table && p->pinned[n_pinned])
                n_pinned++;
        if (n_pinned > 0)
                r = kvl_release(p->ns, p->table, n_pinned);
        if (n_pinned < p->n_table)
                q = kvl_free(p->ns, p->table + n_pinned, p->n_table - n_pinned);
        if (!r)
                r = q;
        q = kvl_request_end(p->ns, p->request);
        return r ? r : q;
}

uint32_t pages_in_table(const struct pages *p)
{
        return p->n_table;
}

const struct pages_counts *pages_counts(const struct pages *p)
{
        return &p->counts;
}

const struct model_kv *pages_kv(const struct pages *p)
{
        return &p->kv;
}
