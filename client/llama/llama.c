#include "client/llama/llama.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_CHUNK 256
#define MIN_CHUNK     16
#define MAX_CHUNK     1024
#define STATE_ONLY    1 /* LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY */
#define ROPE_NORM_MAX 2 /* rope types of one dimension: none (-1), norm (0), neox (2) */

/* ---- opening --------------------------------------------------------------------------------- */

static int check_options(const struct kvl_llama_options *o)
{
        if (o->size < sizeof(*o))
                return fail(-EINVAL, "options.size is %zu, not %zu", o->size, sizeof(*o));
        if (!o->weights || !*o->weights || strlen(o->weights) > 256)
                return fail(-EINVAL,
                        "options.weights has 1 to 256 bytes: kvl_llama_hash_files() makes such a name");
        if (o->chunk_tokens && (o->chunk_tokens < MIN_CHUNK || o->chunk_tokens > MAX_CHUNK))
                return fail(-EINVAL, "options.chunk_tokens is %d to %d, not %u", MIN_CHUNK,
                        MAX_CHUNK, o->chunk_tokens);
        if (o->model && (!*o->model || strlen(o->model) > 64))
                return fail(-EINVAL, "options.model has 1 to 64 bytes");
        return 0;
}

/* Refuses contexts for which llama.cpp would end the process, or drop rows. */
static int check_context(const struct kvl_llama *l, const struct kvl_llama_options *o)
{
        uint32_t n_seqs = l->f.n_seq_max(l->ctx);
        int32_t window = l->f.model_n_swa(l->model);
        int rope = l->f.model_rope_type(l->model);

        if (n_seqs < 2)
                return fail(-EOPNOTSUPP,
                        "the context has one sequence: make it with n_seq_max = 2 or more, and kv_unified");
        if (o->scratch_seq < 0 || (uint32_t)o->scratch_seq >= n_seqs)
                return fail(-EINVAL, "options.scratch_seq is 0 to %u, not %d", n_seqs - 1,
                        o->scratch_seq);
        if (window > 0 && !o->swa_full)
                return fail(-EOPNOTSUPP,
                        "the model has a sliding window of %d tokens: make the context with swa_full, and say so in the options",
                        window);
        if (window > 0 && (uint32_t)window < l->chunk)
                return fail(-EOPNOTSUPP,
                        "the model's sliding window has %d tokens: set options.chunk_tokens to at most that, not %u",
                        window, l->chunk);
        if (rope > ROPE_NORM_MAX)
                return fail(-EOPNOTSUPP, "the model has positions of several dimensions (M-RoPE)");
        if (l->f.model_has_encoder(l->model))
                return fail(-EOPNOTSUPP, "the model has an encoder, on which its rows depend");
        if (l->f.memory_seq_pos_max(l->memory, o->scratch_seq) >= 0)
                return fail(
                        -EBUSY, "sequence %d, the scratch sequence, isn't empty", o->scratch_seq);
        return 0;
}

static bool copy_options(struct kvl_llama *l, const struct kvl_llama_options *o)
{
        const char *device = o->device ? o->device : "host";

        if (o->model)
                snprintf(l->model_name, sizeof(l->model_name), "%s", o->model);
        else if (l->f.model_desc(l->model, l->model_name, sizeof(l->model_name)) <= 0)
                snprintf(l->model_name, sizeof(l->model_name), "llama.cpp");
        if (o->salt_bytes > sizeof(l->salt) || strlen(device) >= sizeof(l->device))
                return false;
        if (o->salt_bytes)
                memcpy(l->salt, o->salt, o->salt_bytes);
        l->salt_bytes = o->salt_bytes;
        snprintf(l->device, sizeof(l->device), "%s", device);
        return true;
}

static int make_handle(struct kvl_llama *l, const struct kvl_llama_options *o)
{
        int e = llama_functions_find(o->library, &l->f, &l->library);

        if (e)
                return e;
        l->memory = l->f.get_memory(l->ctx);
        l->model = l->f.get_model(l->ctx);
        if (!l->memory || !l->model)
                return fail(-EOPNOTSUPP, "the context has no memory of tokens");
        if (!copy_options(l, o))
                return fail(-EINVAL, "options.salt and options.device have at most 64 bytes");
        e = check_context(l, o);
        e = e ? e : llama_probe(l, o);
        if (e)
                return e;
        l->page_bytes = l->shape.row_bytes * l->chunk;
        if (l->page_bytes < l->shape.state_bytes)
                l->page_bytes = l->shape.state_bytes;
        l->page = malloc(l->page_bytes);
        l->other = malloc(l->page_bytes);
        l->blob = malloc(blob_bytes(&l->shape, BLOB_ROWS | BLOB_STATE, l->chunk));
        if (!l->page || !l->other || !l->blob)
                return fail(-ENOMEM, "no memory for a chunk of %zu bytes", l->page_bytes);
        return 0;
}

int kvl_llama_new(
        struct llama_context *ctx, const struct kvl_llama_options *options, struct kvl_llama **ret)
{
        struct kvl_llama *l;
        int e;

        if (!ctx || !options || !ret)
                return fail(-EINVAL, "a context and options are needed");
        e = check_options(options);
        if (e)
                return e;
        l = calloc(1, sizeof(*l));
        if (!l)
                return fail(-ENOMEM, "out of memory");
        l->ctx = ctx;
        l->scratch = options->scratch_seq;
        l->chunk = options->chunk_tokens ? options->chunk_tokens : DEFAULT_CHUNK;
        e = make_handle(l, options);
        if (e) {
                kvl_llama_free(l);
                return e;
        }
        *ret = l;
        return 0;
}

void kvl_llama_free(struct kvl_llama *l)
{
        if (!l)
                return;
        kvl_llama_detach(l);
        blob_shape_free(&l->shape);
        free(l->page);
        free(l->other);
        free(l->blob);
        if (l->library)
                dlclose(l->library);
        free(l);
}

/* ---- attaching ------------------------------------------------------------------------------- */

/* ret_root: the root key of the namespace. */
static int open_ns(struct kvl_llama *l, struct kvl_conn *conn, const char *kind, uint64_t bytes,
        uint8_t *ret_root, struct kvl_ns **ret)
{
        char format[65]; /* a word, and 192 bits */
        int at;
        struct kvl_layout layout = {.size = sizeof(layout),
                .model = l->model_name,
                .version = "",
                .dtype = KVL_DTYPE_OTHER,
                .n_layers = 1,
                .n_kv_heads = 1,
                .head_size = 1,
                .page_tokens = l->chunk,
                .n_planes = 1,
                .salt = l->salt,
                .salt_bytes = l->salt_bytes,
                .format = format,
                .format_bytes = sizeof(format) - 1};
        int e;

        at = snprintf(format, sizeof(format), "llama.cpp %-5s ", kind);
        for (int i = 0; i < 24; ++i)
                at += snprintf(format + at, sizeof(format) - (size_t)at, "%02x", l->identity[i]);
        layout.format_bytes = (size_t)at;
        layout.plane_page_bytes = bytes < 4096 ? 4096 : (bytes + 63) / 64 * 64;
        e = kvl_key_root(&layout, ret_root);
        e = e ? e : kvl_ns_open(conn, NULL, &layout, l->device, 0, ret);
        return fail_as(e);
}

int kvl_llama_attach(struct kvl_llama *l, struct kvl_conn *conn)
{
        uint64_t rows = l ? l->shape.row_bytes * l->chunk : 0;
        int e = 0;

        if (!l || !conn)
                return fail(-EINVAL, "a handle and a connection are needed");
        if (l->rows || l->state)
                return fail(-EALREADY, "the handle is attached to a connection");
        if (l->shape.state_bytes)
                e = open_ns(l, conn, "state", l->shape.state_bytes, l->root, &l->state);
        /* Both have the same keys. */
        if (!e && rows)
                e = open_ns(l, conn, "rows", rows, l->root, &l->rows);
        if (e)
                kvl_llama_detach(l);
        return e;
}

void kvl_llama_detach(struct kvl_llama *l)
{
        if (!l)
                return;
        kvl_ns_close(l->rows);
        kvl_ns_close(l->state);
        l->rows = l->state = NULL;
}

void kvl_llama_info(const struct kvl_llama *l, struct kvl_llama_info *info)
{
        struct kvl_llama_info all = {.size = sizeof(all)};

        if (!l || !info)
                return;
        all.chunk_tokens = l->chunk;
        all.has_rows = l->shape.row_bytes != 0;
        all.has_state = l->shape.state_bytes != 0;
        all.chunk_bytes = l->shape.row_bytes * l->chunk;
        all.state_bytes = l->shape.state_bytes;
        memcpy(all.identity, l->identity, sizeof(all.identity));
        memcpy((char *)info + sizeof(info->size), (char *)&all + sizeof(all.size),
                (info->size < sizeof(all) ? info->size : sizeof(all)) - sizeof(all.size));
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* The full chunks of a text, and their keys. */
struct text {
        uint32_t n;       /* chunks */
        uint32_t n_found; /* of these, from the first on: cached, with rows and state */
        uint32_t n_rows;  /* of these, from the first on: rows cached */
        uint8_t *keys;    /* owned */
        uint32_t *pages;  /* owned: room for n */
};

static const uint8_t *key_of(const struct text *t, uint32_t chunk)
{
        return t->keys + (size_t)chunk * KVL_KEY_BYTES;
}

static void text_free(struct text *t)
{
        free(t->keys);
        free(t->pages);
}

static int count_cached(struct kvl_ns *ns, const uint8_t *keys, uint32_t n, uint32_t *ret_n)
{
        int r = n ? kvl_probe(ns, keys, n, NULL, ret_n) : KVL_MISS;

        if (r)
                *ret_n = 0;
        return r == KVL_MISS ? 0 : fail_as(r);
}

/* Makes the keys of a text, and finds its cached pages. Call text_free() also after a failure. */
static int text_find(
        const struct kvl_llama *l, const int32_t *tokens, uint32_t n_tokens, struct text *ret)
{
        uint32_t n = n_tokens / l->chunk, found;
        int e = 0;

        *ret = (struct text){.n = n, .n_rows = n};
        if (!tokens && n_tokens)
                return fail(-EINVAL, "tokens are needed");
        if (!l->rows && !l->state)
                return fail(-ENOTCONN, "the handle isn't attached to a connection");
        ret->keys = malloc((size_t)n * KVL_KEY_BYTES + 1);
        ret->pages = malloc((size_t)n * sizeof(*ret->pages) + 1);
        if (!ret->keys || !ret->pages)
                return fail(-ENOMEM, "out of memory");
        e = fail_as(kvl_keys(l->root, (const uint32_t *)tokens, n * l->chunk, l->chunk, ret->keys));
        if (!e && l->rows)
                e = count_cached(l->rows, ret->keys, n, &ret->n_rows);
        ret->n_found = ret->n_rows;
        /* A state is a page by itself. */
        while (!e && l->state && ret->n_found) {
                e = count_cached(l->state, key_of(ret, ret->n_found - 1), 1, &found);
                if (found)
                        break;
                --ret->n_found;
        }
        return e;
}

int kvl_llama_find(
        struct kvl_llama *l, const int32_t *tokens, uint32_t n_tokens, uint32_t *ret_n_tokens)
{
        struct text t;
        int e;

        if (!l || !ret_n_tokens)
                return fail(-EINVAL, "a handle is needed");
        e = text_find(l, tokens, n_tokens, &t);
        text_free(&t);
        if (e)
                return e;
        if (!t.n_found)
                return KVL_MISS;
        *ret_n_tokens = t.n_found * l->chunk;
        return 0;
}

/* ---- between pages and the context ----------------------------------------------------------- */

static bool drop(struct kvl_llama *l, int32_t seq, uint32_t from_token)
{
        return l->f.memory_seq_rm(l->memory, seq, from_token ? (int32_t)from_token : -1, -1);
}

/* Reads a state of the sequence into l->page: the rows of a chunk, or the state at its end. */
static int take_out(struct kvl_llama *l, int32_t seq, uint32_t chunk, enum blob_part part)
{
        bool is_rows = part == BLOB_ROWS;
        int parts = is_rows ? BLOB_ROWS | (l->state ? BLOB_STATE : 0) : BLOB_STATE;
        uint32_t first = chunk * l->chunk, flags = is_rows ? 0 : STATE_ONLY;
        size_t bytes = blob_bytes(&l->shape, parts, l->chunk);
        size_t n;
        int e;

        if (is_rows) {
                l->f.memory_seq_cp(
                        l->memory, seq, l->scratch, (int32_t)first, (int32_t)(first + l->chunk));
                seq = l->scratch;
        }
        n = l->f.state_seq_get_size_ext(l->ctx, seq, flags);
        if (n == bytes)
                n = l->f.state_seq_get_data_ext(l->ctx, l->blob, bytes, seq, flags);
        if (is_rows)
                drop(l, l->scratch, 0);
        if (n != bytes)
                return fail(-EBADMSG,
                        "libllama's state of tokens %u to %u has %zu bytes, not %zu: were rows dropped (a sliding window without swa_full)?",
                        first, first + l->chunk - 1, n, bytes);
        e = blob_unpack(&l->shape, l->blob, bytes, parts, first, l->chunk, is_rows ? l->page : NULL,
                is_rows ? NULL : l->page);
        return e;
}

/* Puts l->page into the sequence. */
static int put_in(struct kvl_llama *l, int32_t seq, uint32_t chunk, enum blob_part part)
{
        bool is_rows = part == BLOB_ROWS;
        int parts = is_rows ? BLOB_ROWS | (l->state ? BLOB_NO_CELL : 0) : BLOB_STATE;
        uint32_t first = chunk * l->chunk;
        size_t bytes = blob_bytes(&l->shape, parts, l->chunk);
        int32_t to = is_rows ? l->scratch : seq;
        bool ok;

        blob_pack(&l->shape, parts, first, l->chunk, l->page, l->page, l->blob);
        ok = l->f.state_seq_set_data_ext(l->ctx, l->blob, bytes, to, is_rows ? 0 : STATE_ONLY) ==
             bytes;
        if (ok && is_rows)
                l->f.memory_seq_cp(l->memory, to, seq, (int32_t)first, (int32_t)(first + l->chunk));
        if (is_rows)
                drop(l, l->scratch, 0);
        return ok ? 0
                  : fail(-ENOBUFS,
                            "libllama didn't take tokens %u to %u: has the context free cells?",
                            first, first + l->chunk - 1);
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Pins the pages of rows, as many as there are; n_found becomes their number. */
static int pin_rows(struct kvl_llama *l, struct text *t)
{
        uint64_t n_tokens;
        int e = kvl_lookup(l->rows, 0, t->keys, t->n_found, t->pages, &t->n_found, &n_tokens);

        return fail_as(e);
}

static int load_rows(struct kvl_llama *l, int32_t seq, const struct text *t, uint32_t from,
        uint32_t *ret_n_tokens)
{
        int e = 0;

        for (uint32_t i = from; !e && i < t->n_found; ++i) {
                e = fail_as(kvl_page_read(
                        l->rows, t->pages[i], 0, 0, l->page, l->shape.row_bytes * l->chunk));
                e = e ? e : put_in(l, seq, i, BLOB_ROWS);
                if (!e)
                        *ret_n_tokens = (i + 1) * l->chunk;
        }
        return e;
}

static int load_state(struct kvl_llama *l, int32_t seq, const struct text *t)
{
        uint32_t page, n;
        uint64_t n_tokens;
        int e = kvl_lookup(l->state, 0, key_of(t, t->n_found - 1), 1, &page, &n, &n_tokens);

        if (e == KVL_MISS)
                return fail(-EAGAIN, "the state of token %u was evicted meanwhile",
                        t->n_found * l->chunk);
        if (e)
                return fail_as(e);
        e = fail_as(kvl_page_read(l->state, page, 0, 0, l->page, l->shape.state_bytes));
        kvl_release(l->state, &page, 1);
        return e ? e : put_in(l, seq, t->n_found - 1, BLOB_STATE);
}

int kvl_llama_load(struct kvl_llama *l, int32_t seq, const int32_t *tokens, uint32_t n_tokens,
        uint32_t n_have, uint32_t *ret_n_tokens)
{
        uint32_t from, n_pinned;
        struct text t;
        int e;

        if (!l || !ret_n_tokens || seq < 0 || seq == l->scratch)
                return fail(-EINVAL,
                        "a handle, and another sequence than the scratch sequence, are needed");
        e = text_find(l, tokens, n_tokens, &t);
        if (!e && t.n_found && l->rows)
                e = pin_rows(l, &t);
        n_pinned = !e && l->rows ? t.n_found : 0;
        if (!e && t.n_found * l->chunk <= n_have)
                e = KVL_MISS;
        if (e) {
                *ret_n_tokens = n_have;
                goto out;
        }
        from = l->state ? 0 : n_have / l->chunk;
        *ret_n_tokens = from * l->chunk;
        if (!drop(l, seq, from * l->chunk))
                e = fail(-EINVAL, "libllama can't drop tokens of sequence %d", seq);
        if (!e && l->rows)
                e = load_rows(l, seq, &t, from, ret_n_tokens);
        if (!e && l->state)
                e = load_state(l, seq, &t);
        *ret_n_tokens = e && l->state ? 0 : e ? *ret_n_tokens : t.n_found * l->chunk;
        if (e)
                drop(l, seq, *ret_n_tokens);
out:
        if (n_pinned)
                kvl_release(l->rows, t.pages, n_pinned);
        text_free(&t);
        return e;
}

/* ---- saving ---------------------------------------------------------------------------------- */

static int publish(
        struct kvl_ns *ns, uint32_t page, const uint8_t *key, const uint8_t *parent, uint32_t chunk)
{
        struct kvl_publish p = {.size = sizeof(p),
                .pages = &page,
                .keys = key,
                .n_pages = 1,
                .parent_key = parent,
                .last_tokens = chunk};
        uint32_t got, n = 0;
        int e = kvl_publish(ns, &p, &got, &n);

        fail_as(e);
        if (n)
                kvl_release(ns, &got, 1);
        /* Another process was first, or the page couldn't be published. */
        if (e)
                kvl_free(ns, &page, 1);
        return e == KVL_DUPLICATE ? 0 : e;
}

static int save_part(
        struct kvl_llama *l, int32_t seq, const struct text *t, uint32_t chunk, enum blob_part part)
{
        struct kvl_lease_options no_wait = {.size = sizeof(no_wait), .max_wait_msec = -1};
        bool is_rows = part == BLOB_ROWS;
        struct kvl_ns *ns = is_rows ? l->rows : l->state;
        size_t bytes = is_rows ? l->shape.row_bytes * l->chunk : l->shape.state_bytes;
        uint32_t page;
        int e = fail_as(kvl_lease_with(ns, 0, 1, &no_wait, &page, NULL));

        if (e)
                return e;
        e = take_out(l, seq, chunk, part);
        e = e ? e : fail_as(kvl_page_write(ns, page, 0, 0, l->page, bytes));
        if (e) {
                kvl_free(ns, &page, 1);
                return e;
        }
        return publish(ns, page, key_of(t, chunk), is_rows && chunk ? key_of(t, chunk - 1) : NULL,
                l->chunk);
}

/* Checks that the sequence can have these tokens. */
static int check_sequence(const struct kvl_llama *l, int32_t seq, const struct text *t)
{
        int32_t first = seq < 0 || seq == l->scratch ? -1 : l->f.memory_seq_pos_min(l->memory, seq);
        int32_t last = first < 0 ? -1 : l->f.memory_seq_pos_max(l->memory, seq);

        /* A recurrent model has the last position alone. */
        if ((l->rows && !l->state && first != 0) || last < (int32_t)(t->n * l->chunk) - 1)
                return fail(-EINVAL, "sequence %d has positions %d to %d, not 0 to %u", seq, first,
                        last, t->n * l->chunk - 1);
        return 0;
}

int kvl_llama_save(struct kvl_llama *l, int32_t seq, const int32_t *tokens, uint32_t n_tokens,
        uint32_t *ret_n_tokens)
{
        struct text t;
        int e;

        if (!l)
                return fail(-EINVAL, "a handle is needed");
        e = text_find(l, tokens, n_tokens, &t);
        if (!e && t.n)
                e = check_sequence(l, seq, &t);
        while (!e && l->rows && t.n_rows < t.n) {
                e = save_part(l, seq, &t, t.n_rows, BLOB_ROWS);
                t.n_rows += e == 0;
        }
        if (!e && l->state && t.n_found < t.n && n_tokens % l->chunk == 0 &&
                l->f.memory_seq_pos_max(l->memory, seq) == (int32_t)n_tokens - 1) {
                e = save_part(l, seq, &t, t.n - 1, BLOB_STATE);
                t.n_found = e ? t.n_found : t.n;
        }
        if (ret_n_tokens && e != -EINVAL)
                *ret_n_tokens = (l->state ? t.n_found : t.n_rows) * l->chunk;
        text_free(&t);
        return e;
}

int kvl_llama_verify(struct kvl_llama *l, int32_t seq, const int32_t *tokens, uint32_t n_tokens,
        uint32_t *ret_n_compared)
{
        uint32_t n = 0, n_pinned = 0;
        struct text t;
        int e;

        if (!l)
                return fail(-EINVAL, "a handle is needed");
        e = text_find(l, tokens, n_tokens, &t);
        t.n_found = t.n_rows;
        if (!e && t.n)
                e = check_sequence(l, seq, &t);
        if (!e && l->rows && t.n_found) {
                e = pin_rows(l, &t);
                n_pinned = e ? 0 : t.n_found;
                e = e == KVL_MISS ? 0 : e;
        }
        for (; !e && n < n_pinned; ++n) {
                e = take_out(l, seq, n, BLOB_ROWS);
                e = e ? e
                      : fail_as(kvl_page_read(l->rows, t.pages[n], 0, 0, l->other,
                                l->shape.row_bytes * l->chunk));
                if (!e && blob_differ(&l->shape, BLOB_ROWS, l->chunk, l->page, l->other)) {
                        e = fail(-EBADMSG, "rows of tokens %u to %u differ from those in page %u",
                                n * l->chunk, (n + 1) * l->chunk - 1, t.pages[n]);
                        kvl_invalidate_mismatch(l->rows, NULL);
                }
        }
        if (n_pinned)
                kvl_release(l->rows, t.pages, n_pinned);
        if (ret_n_compared)
                *ret_n_compared = n * l->chunk;
        text_free(&t);
        return e;
}
