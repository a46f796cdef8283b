#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvlease.h>

#include "client/examples/decoder/deep.h"
#include "client/examples/decoder/gpu.h"
#include "client/examples/decoder/kv-host.h"
#include "client/examples/decoder/pages.h"

#define PLANE_ALIGN 64 /* kvlease.h: a plane's page is a multiple of it */
#define POLL_MSEC   1  /* between checks of a publish that waits for the stream; not tuned */

struct pages {
        struct pages_options options;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint64_t request;

        char version[17];
        struct kvl_layout layout; /* of the layers that aren't deep, with a daemon */
        uint32_t n_tensors;       /* of a page of that layout */
        struct deep *deep;        /* NULL: no deep layers */
        uint64_t tensor_bytes;    /* K or V of one layer of one page */
        unsigned char *memory;    /* use_daemon false: all pages */
        bool is_gpu, is_revoked;  /* pages are on a GPU; the daemon recalls memory */
        struct kvl_ns_info info;
        struct model_kv *kv;

        uint32_t *table;                /* page indices */
        unsigned char **tensors;        /* of the table's pages: struct model_kv */
        bool *pinned;                   /* by position in the table: to be released, else freed */
        uint8_t (*keys)[KVL_KEY_BYTES]; /* [0] is the root: key of page i is keys[i + 1] */
        uint32_t n_table, n_keys;
        const uint32_t *tokens;
        struct kvl_window *window; /* has the published pages, with device_pages */
        uint32_t n_window;
        struct page_source source;
        unsigned char **chunk; /* the source's last chunk, as tensors */
        bool active, publishing;
        struct pages_counts counts;
};

static const char *own_error = ""; /* errors outside of the library */

const char *pages_error(void)
{
        if (*own_error)
                return own_error;
        return *gpu_error() ? gpu_error() : kvl_last_error();
}

/* ---- open ------------------------------------------------------------------------------------ */

uint64_t pages_tensor_bytes(const struct model_shape *shape, uint32_t page_tokens)
{
        uint64_t bytes = (uint64_t)shape->n_kv_heads * model_head_size(shape) * page_tokens *
                         sizeof(uint16_t);

        return (bytes + PLANE_ALIGN - 1) / PLANE_ALIGN * PLANE_ALIGN;
}

static void set_layout(struct pages *p)
{
        const struct model_shape *shape = &p->options.shape;
        uint32_t n_layers = shape->n_layers - (p->options.use_daemon ? p->options.n_deep : 0);

        p->n_tensors = 2 * n_layers;
        p->tensor_bytes = pages_tensor_bytes(shape, p->options.page_tokens);
        snprintf(p->version, sizeof(p->version), "%016" PRIx64, model_version(shape));
        p->layout = (struct kvl_layout){
                .size = sizeof(p->layout),
                .model = "kvlease-decoder",
                .version = p->version,
                .dtype = KVL_DTYPE_F16,
                .n_layers = n_layers,
                .n_kv_heads = shape->n_kv_heads,
                .head_size = model_head_size(shape),
                .page_tokens = p->options.page_tokens,
                .n_planes = p->options.plane_per_tensor ? p->n_tensors : 1,
                .plane_page_bytes =
                        p->tensor_bytes * (p->options.plane_per_tensor ? 1 : p->n_tensors),
                .tp_size = 1,
        };
}

static unsigned char *plane_page(const struct pages *p, uint32_t plane, uint32_t page)
{
        uint64_t index = (uint64_t)plane * p->options.max_pages + page;

        if (p->options.use_daemon)
                return kvl_page_ptr(p->ns, page, plane);
        return p->memory + index * p->layout.plane_page_bytes;
}

static unsigned char *tensor(const struct pages *p, uint32_t page, uint32_t i)
{
        return p->options.plane_per_tensor ? plane_page(p, i, page)
                                           : plane_page(p, 0, page) + i * p->tensor_bytes;
}

/* Enters a page in the table: its number, and the address of each of its tensors. */
static void place_page(struct pages *p, uint32_t at, uint32_t page)
{
        uint32_t n_tensors = 2 * p->options.shape.n_layers;

        p->table[at] = page;
        for (uint32_t i = 0; i < p->n_tensors; i++)
                p->tensors[(size_t)at * n_tensors + i] = tensor(p, page, i);
}

/* Makes the model's access to pages on their device. */
static int make_kv(struct pages *p)
{
        const struct gpu_options gpu = {
                .shape = &p->options.shape,
                .page_tokens = p->options.page_tokens,
                .max_pages = p->options.max_pages,
                .tensors = p->tensors,
                .device = p->info.device,
                .kernels = p->options.kernels,
        };

        p->is_gpu = !p->info.is_cpu_memory;
        if (p->is_gpu && p->deep) {
                own_error =
                        "--deep-layers: the kernels of a GPU attend to all pages; --device=host computes on the CPU";
                return -EOPNOTSUPP;
        }
        if (p->is_gpu)
                return gpu_new(&gpu, &p->kv);
        return kv_host_new(&p->options.shape, p->options.page_tokens, p->options.max_pages,
                p->tensors, &p->kv);
}

static int open_namespace(struct pages *p)
{
        const struct kvl_ns_options options = {
                .size = sizeof(options),
                .device = p->options.device,
                .set = p->options.ns_name,
                .set_size = DEEP_SET_SIZE,
        };
        int r;

        if (p->deep)
                r = kvl_ns_open_with(p->conn, p->options.ns_name, &p->layout, &options, &p->ns);
        else
                r = kvl_ns_open(
                        p->conn, p->options.ns_name, &p->layout, p->options.device, 0, &p->ns);

        if (r)
                return r;
        p->info.size = sizeof(p->info);
        kvl_ns_info(p->ns, &p->info);
        return 0;
}

/* Opens the deep layers' group. */
static int open_deep(struct pages *p)
{
        struct deep_options options = {
                .conn = p->conn,
                .layout = p->layout,
                .ns_name = p->options.ns_name,
                .device = p->options.device,
                .tensors = p->tensors,
                .tensor_bytes = p->tensor_bytes,
                .n_layers = p->options.shape.n_layers,
                .n_deep = p->options.n_deep,
                .max_pages = p->options.max_pages,
                .n_most = p->options.n_deep_pages,
        };
        uint32_t n_tensors = 2 * options.n_deep;

        if (options.n_deep == 0)
                return 0;
        options.layout.layer_group = 1;
        options.layout.n_layers = options.n_deep;
        options.layout.n_planes = p->options.plane_per_tensor ? n_tensors : 1;
        options.layout.plane_page_bytes =
                p->tensor_bytes * (p->options.plane_per_tensor ? 1 : n_tensors);
        return deep_open(&options, &p->deep);
}

static int open_private(struct pages *p)
{
        uint64_t bytes = p->layout.n_planes * p->layout.plane_page_bytes * p->options.max_pages;
        const char *device = p->options.device ? p->options.device : "host";
        int r = open_deep(p);

        if (r)
                return r;
        snprintf(p->info.device, sizeof(p->info.device), "%s", device);
        p->info.is_cpu_memory = strcmp(device, "host") == 0;
        r = make_kv(p);
        if (r || p->is_gpu)
                return r ? r : gpu_alloc(p->kv, bytes, &p->memory);
        p->memory = calloc(1, bytes);
        return p->memory ? 0 : -ENOMEM;
}

static void on_event(struct kvl_conn *conn, const struct kvl_event *event, void *data)
{
        struct pages *p = data;

        if (event->type == KVL_EVENT_REVOKE)
                p->is_revoked = true;
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
        kvl_set_event_handler(p->conn, on_event, p);
        r = open_deep(p);
        if (!r)
                r = open_namespace(p);
        return r ? r : make_kv(p);
}

int pages_open(const struct pages_options *options, struct pages **ret_pages)
{
        struct pages *p = calloc(1, sizeof(*p));
        int r = -ENOMEM;

        if (!p)
                return r;
        p->options = *options;
        set_layout(p);
        p->tensors = calloc(
                (size_t)options->max_pages * 2 * options->shape.n_layers, sizeof(*p->tensors));
        p->table = calloc(options->max_pages, sizeof(*p->table));
        p->pinned = calloc(options->max_pages, sizeof(*p->pinned));
        p->keys = calloc((size_t)options->max_pages + 1, sizeof(*p->keys));
        p->chunk =
                calloc((size_t)options->max_pages * 2 * options->shape.n_layers, sizeof(*p->chunk));
        if (p->tensors && p->table && p->pinned && p->keys && p->chunk)
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
        if (p->kv && p->is_gpu)
                gpu_wait(p->kv); /* nothing uses pages any more */
        /* The end of the connection also ends the prompt's pages. */
        kvl_disconnect(p->conn);
        deep_close(p->deep);
        if (!p->is_gpu)
                free(p->memory);
        if (p->kv)
                p->kv->ops->free(p->kv);
        free(p->chunk);
        free(p->keys);
        free(p->pinned);
        free(p->table);
        free(p->tensors);
        free(p);
}

/* ---- a window -------------------------------------------------------------------------------- */

static void *stream_of(const struct pages *p)
{
        return p->is_gpu ? gpu_stream(p->kv) : NULL;
}

/* Appends the pinned pages that aren't in the window yet. */
static int append_to_window(struct pages *p)
{
        uint32_t first = p->n_window;
        int r;

        if (!p->window)
                return 0;
        while (p->n_window < p->n_table && p->pinned[p->n_window])
                p->n_window++;
        if (p->n_window == first)
                return 0;
        r = kvl_window_append(p->window, p->table + first, p->n_window - first, stream_of(p));
        if (r == -EINVAL || r == -ENOMEM)
                p->n_window = first;
        return r == KVL_MISS ? 0 : r; /* read in its tier */
}

static int take(struct page_source *source, uint32_t layer, uint32_t is_v, uint32_t first_page,
        uint32_t n_pages, unsigned char *const **ret_tensors, uint32_t *ret_n_pages)
{
        struct pages *p = (struct pages *)((char *)source - offsetof(struct pages, source));
        uint32_t n_tensors = 2 * p->options.shape.n_layers, i = 2 * layer + is_v;
        const uint32_t *pages;
        int r;

        if (first_page >= p->n_window) { /* being written, not published yet */
                *ret_tensors = model_kv_row(p->kv, first_page);
                *ret_n_pages = n_pages;
                return 0;
        }
        r = kvl_window_take(p->window, first_page, n_pages, stream_of(p), &pages, ret_n_pages);
        if (r)
                return r;
        for (uint32_t j = 0; j < *ret_n_pages; j++)
                p->chunk[(size_t)j * n_tensors + i] = tensor(p, pages[j], i);
        *ret_tensors = p->chunk;
        return 0;
}

/* Opens a window. Each half of the buffer has an eighth of the pages, the beginning of the sequence
 * a sixteenth. One page is written, one published, and one being demoted; the rest is for the
 * sequence's end. */
static int open_window(struct pages *p)
{
        uint32_t n = p->options.device_pages, n_chunk = n / 8, n_first = n / 16 ? n / 16 : 1;
        uint64_t n_last = n - 2 * n_chunk - n_first - 3;
        const struct kvl_window_options options = {
                .size = sizeof(options),
                .first_tokens = (uint64_t)n_first * p->options.page_tokens,
                .last_tokens = n_last * p->options.page_tokens,
                .chunk_pages = n_chunk,
                .request = p->request,
        };

        p->n_window = 0;
        p->source.take = take;
        p->kv->source = &p->source;
        return kvl_window_open(p->ns, &options, &p->window);
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

/* Keeps those of n found and pinned pages that the deep layers have, too. */
static int keep_common(struct pages *p, uint32_t *n)
{
        uint32_t n_found = *n;
        int r = deep_begin(p->deep, p->keys[1], n_found, n);

        if (r || *n == n_found)
                return r;
        return kvl_release(p->ns, p->table + *n, n_found - *n);
}

static int find_pages(struct pages *p, uint32_t n_keys, uint32_t *ret_n, uint64_t *ret_n_tokens)
{
        if (p->window)
                return kvl_find(
                        p->ns, p->request, p->keys[1], n_keys, p->table, ret_n, ret_n_tokens);
        if (p->options.wait_msec > 0)
                return kvl_lookup_wait(p->ns, p->request, p->keys[1], n_keys,
                        (int)p->options.wait_msec, p->table, ret_n, ret_n_tokens, NULL);
        return kvl_lookup(p->ns, p->request, p->keys[1], n_keys, p->table, ret_n, ret_n_tokens);
}

static int look_up(struct pages *p, uint32_t n_keys)
{
        uint32_t n = 0;
        uint64_t n_tokens = 0;
        int r;

        p->request = kvl_request_begin(p->ns);
        r = p->options.device_pages > 0 ? open_window(p) : 0;
        if (!r && n_keys == 0 && p->deep)
                r = keep_common(p, &n);
        if (r || n_keys == 0)
                return r;
        r = find_pages(p, n_keys, &n, &n_tokens);
        if (r == KVL_MISS)
                return p->deep ? keep_common(p, &n) : 0;
        if (r)
                return r;
        /* Only full pages are ever published. */
        assert(n_tokens == (uint64_t)n * p->options.page_tokens);
        r = p->deep ? keep_common(p, &n) : 0;
        if (r)
                return r;
        p->n_table = n;
        memset(p->pinned, true, n * sizeof(*p->pinned));
        if (p->window)
                return append_to_window(p);
        for (uint32_t i = 0; i < n; i++)
                place_page(p, i, p->table[i]);
        return 0;
}

/* The namespace was invalidated since it was opened: the current one is empty, and as good. */
static int reopen_namespace(struct pages *p)
{
        kvl_request_end(p->ns, p->request);
        p->request = 0;
        p->window = NULL; /* the namespace's */
        kvl_ns_close(p->ns);
        p->ns = NULL;
        if (p->deep) {
                int r = deep_reopen(p->deep);

                if (r)
                        return r;
        }
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

/* Returns the full pages that may be reused: not the last token's page, and with deep layers only
 * those without counted attention. */
static uint32_t reusable(const struct pages *p, uint32_t n_tokens)
{
        uint32_t n = (n_tokens - 1) / p->options.page_tokens;

        return p->deep && n > deep_first(p->deep) ? deep_first(p->deep) : n;
}

int pages_begin(
        struct pages *p, const uint32_t *tokens, uint32_t n_tokens, uint32_t *ret_reused_tokens)
{
        uint32_t n_deep;
        int r = 0;

        assert(!p->active);
        assert(n_tokens > 0);
        p->tokens = tokens;
        p->n_table = p->n_keys = 0;
        p->counts = (struct pages_counts){};
        p->request = 0;
        p->active = true;
        p->publishing = p->options.use_daemon;
        if (p->options.use_daemon)
                r = find_cached(p, reusable(p, n_tokens));
        else if (p->deep)
                r = deep_begin(p->deep, NULL, 0, &n_deep);
        if (r)
                return r;
        p->counts.reused = p->n_table;
        *ret_reused_tokens = p->n_table * p->options.page_tokens;
        return 0;
}

int pages_extend(struct pages *p)
{
        /* Private memory is used backwards, so that reading it in order gives wrong results. */
        uint32_t page = p->options.max_pages - 1 - p->n_table;

        assert(p->active);
        assert(p->n_table < p->options.max_pages);
        if (p->options.use_daemon) {
                int r = kvl_lease(p->ns, p->request, 1, &page);

                if (r)
                        return r;
        }
        place_page(p, p->n_table, page);
        p->pinned[p->n_table++] = false;
        if (p->deep) {
                int r = deep_extend(p->deep, p->kv);

                p->counts.given_up = deep_n_given_up(p->deep);
                return r;
        }
        return 0;
}

/* ---- publishing ------------------------------------------------------------------------------ */

struct published {
        bool is_done;
        int code;
        uint32_t page;
};

static void on_published(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        struct published *published = data;

        published->is_done = true;
        published->code = code;
        if (n_pages > 0)
                published->page = pages[0];
}

/* Publishes after the kernels that write the page, without waiting for them. The owner of its key
 * must be known before the next page is published, so this waits for the answer; an engine would go
 * on, and look later. */
static int publish_on_stream(struct pages *p, const struct kvl_publish *publish, uint32_t *ret_page)
{
        struct published published = {};
        int r = kvl_publish_on_stream(p->ns, publish, gpu_stream(p->kv), on_published, &published);

        if (r)
                return r;
        while (!published.is_done) {
                struct pollfd wait = {
                        .fd = kvl_fd(p->conn),
                        .events = (short)(kvl_wants_write(p->conn) ? POLLIN | POLLOUT : POLLIN),
                };

                r = kvl_dispatch(p->conn);
                if (r < 0 && !published.is_done)
                        return r;
                if (r == 0)
                        poll(&wait, 1, POLL_MSEC);
        }
        *ret_page = published.page;
        return published.code;
}

static int publish(struct pages *p, uint32_t page_no, uint32_t *ret_page)
{
        const struct kvl_publish publish = {
                .size = sizeof(publish),
                .pages = &p->table[page_no],
                .keys = p->keys[page_no + 1],
                .n_pages = 1,
                .parent_key = page_no ? p->keys[page_no] : NULL,
                .last_tokens = p->options.page_tokens,
                .request = p->request,
        };

        if (p->is_gpu)
                return publish_on_stream(p, &publish, ret_page);
        return kvl_publish(p->ns, &publish, ret_page, NULL);
}

/* Publishes in the namespace of the layers that aren't deep, or of all. */
static int publish_page(struct pages *p, uint32_t page_no)
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
        r = publish(p, page_no, &theirs);
        switch (r) {
        case 0:
                p->pinned[page_no] = true;
                p->counts.published++;
                return append_to_window(p);
        case KVL_DUPLICATE:
                place_page(p, page_no, theirs);
                p->pinned[page_no] = true;
                p->counts.duplicates++;
                r = kvl_free(p->ns, &ours, 1);
                return r ? r : append_to_window(p);
        case KVL_NO_PARENT:
        case KVL_STALE:
                p->publishing = false;
                return 0;
        default:
                return r;
        }
}

int pages_publish(struct pages *p, uint32_t page_no)
{
        int r = publish_page(p, page_no);

        if (r || !p->deep || !p->publishing)
                return r;
        r = deep_publish(p->deep, page_no, (const uint8_t(*)[KVL_KEY_BYTES])p->keys);
        if (r != KVL_NO_PARENT && r != KVL_STALE)
                return r;
        p->publishing = false;
        return 0;
}

/* ---- end ------------------------------------------------------------------------------------- */

/* Releases pages; on a GPU after the work on the stream, for which an engine doesn't wait. */
static int release(struct pages *p, uint32_t first, uint32_t n_pages)
{
        if (p->is_gpu)
                return kvl_release_on_stream(p->ns, p->table + first, n_pages, gpu_stream(p->kv));
        return kvl_release(p->ns, p->table + first, n_pages);
}

static int close_window(struct pages *p)
{
        int r = kvl_window_close(p->window, p->window ? stream_of(p) : NULL);

        p->window = NULL;
        p->n_window = 0;
        p->kv->source = NULL;
        return r;
}

static int give_up(struct pages *p, uint32_t first)
{
        const uint32_t *pages = p->table + first;

        if (p->is_gpu)
                return kvl_free_on_stream(p->ns, pages, p->n_table - first, gpu_stream(p->kv));
        return kvl_free(p->ns, pages, p->n_table - first);
}

/* Gives recalled memory back between two prompts, when no page is held: prompts are short here. The
 * next call that needs the daemon reports its absence. */
static int give_back(struct pages *p)
{
        int r;

        if (!p->options.use_daemon || kvl_dispatch(p->conn) < 0 || !p->is_revoked)
                return 0;
        p->is_revoked = false;
        r = kvl_safepoint(p->conn, p->is_gpu ? gpu_stream(p->kv) : NULL);
        return r < 0 && r != -ENOTCONN ? r : 0;
}

int pages_note_prefill(struct pages *p, uint32_t n_tokens, double msec)
{
        int r = p->ns ? kvl_note_prefill(p->ns, n_tokens, (uint64_t)(msec * 1e6) + 1) : 0;

        return r == -EAGAIN ? 0 : r; /* a hint */
}

/* Pinned pages are a prefix of the table: publishing is in order, and stops where it fails. */
int pages_end(struct pages *p)
{
        uint32_t n_pinned = 0, n_window = p->n_window;
        int r, q = 0;

        assert(p->active);
        p->active = false;
        if (!p->request)
                return 0;
        while (n_pinned < p->n_table && p->pinned[n_pinned])
                n_pinned++;
        r = close_window(p);
        if (r == 0 && n_pinned > n_window)
                r = release(p, n_window, n_pinned - n_window);
        if (n_pinned < p->n_table)
                q = give_up(p, n_pinned);
        if (!r)
                r = q;
        q = p->deep ? deep_end(p->deep) : 0;
        if (!r)
                r = q;
        q = kvl_request_end(p->ns, p->request);
        if (!r)
                r = q;
        return r ? r : give_back(p);
}

uint32_t pages_in_table(const struct pages *p)
{
        return p->n_table;
}

const struct pages_counts *pages_counts(const struct pages *p)
{
        return &p->counts;
}

const char *pages_device(const struct pages *p)
{
        return p->info.device;
}

struct model_kv *pages_kv(const struct pages *p)
{
        return p->kv;
}
