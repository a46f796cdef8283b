/*
 * libkvlease-llama with a libllama of a few functions (fake-llama.c): chunks of all kinds of models
 * between contexts, refusals, engines that are kept apart, pages that others damage, and a daemon
 * that is full or gone. tests/engines/llama runs the same with libllama.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/kvlease.h"
#include "client/llama/blob.h"
#include "client/llama/kvlease-llama.h"
#include "tests/integration/fake-llama.h"
#include "tests/integration/harness.h"

#define CHUNK   32
#define SCRATCH 1
#define SEQ     2
#define N       200 /* tokens of the text: 6 chunks and 8 tokens */
#define FULL    192

static const struct private_tenant tenants[] = {
        {"a", ""}, {"small", "limit = 2MiB\n"}, {NULL, NULL}};
static const struct private_options options = {
        .tenants = tenants, .device_lines = "memory = 32MiB\nextent = 2MiB\n"};
static const struct fake_options plain = {.n_seqs = 4, .n_cells = 2048, .type_k = 1};

/* An engine: a context, and its handle, attached to a connection. */
struct engine {
        struct llama_context *ctx;
        struct kvl_conn *conn;
        struct kvl_llama *llama;
};

static int make_handle(struct llama_context *ctx, const char *weights, struct kvl_llama **ret)
{
        struct kvl_llama_options o = {.size = sizeof(o),
                .weights = weights,
                .chunk_tokens = CHUNK,
                .scratch_seq = SCRATCH,
                .swa_full = 1};

        return kvl_llama_new(ctx, &o, ret);
}

static struct engine start_as(
        struct harness *h, const char *tenant, struct fake_options model, const char *weights)
{
        char socket[PRIVATE_PATH_MAX];
        struct kvl_connect_options to = {
                .size = sizeof(to), .socket_path = socket, .timeout_msec = 2000};
        struct engine e = {.ctx = fake_new(&model)};

        private_daemon_socket(&h->daemon, tenant, socket);
        assert_int_equal(kvl_connect(&to, &e.conn), 0);
        if (make_handle(e.ctx, weights, &e.llama))
                fail_msg("%s", kvl_llama_last_error());
        assert_int_equal(kvl_llama_attach(e.llama, e.conn), 0);
        return e;
}

static struct engine start(struct harness *h, struct fake_options model)
{
        return start_as(h, "a", model, "w");
}

static void stop(struct engine *e)
{
        /* Nothing is left in the scratch sequence. */
        assert_int_equal(fake_sum(e->ctx, SCRATCH) == fake_sum(e->ctx, 3), 1);
        kvl_llama_free(e->llama);
        kvl_disconnect(e->conn);
        fake_free(e->ctx);
}

/* Removes positions from, .., end - 1. */
static void forget(struct engine *e, int32_t from, int32_t end)
{
        llama_memory_seq_rm((struct llama_memory_i *)e->ctx, SEQ, from, end);
}

static void make_text(int32_t *ret, uint32_t n, uint32_t seed)
{
        for (uint32_t i = 0; i < n; ++i)
                ret[i] = (int32_t)((i * 37 + seed * 101 + i / CHUNK) % 1000);
}

/* Computes what can't be loaded, as an engine does; returns how many tokens were loaded. */
static uint32_t run(struct engine *e, const int32_t *text, uint32_t n)
{
        uint32_t loaded = 0, chunk_end = n / CHUNK * CHUNK;

        if (kvl_llama_load(e->llama, SEQ, text, n - 1, 0, &loaded))
                loaded = 0;
        assert_true(fake_compute(e->ctx, SEQ, text + loaded, chunk_end - loaded));
        assert_int_equal(kvl_llama_save(e->llama, SEQ, text, chunk_end, NULL), 0);
        assert_true(fake_compute(e->ctx, SEQ, text + chunk_end, n - chunk_end));
        return loaded;
}

/* Returns fake_sum() of a context that computes all of the text itself. */
static uint64_t computed(struct fake_options model, const int32_t *text, uint32_t n)
{
        struct llama_context *ctx = fake_new(&model);
        uint64_t sum;

        assert_true(fake_compute(ctx, SEQ, text, n));
        sum = fake_sum(ctx, SEQ);
        fake_free(ctx);
        return sum;
}

HARNESS_TEST(test_kinds_of_models, &options)
{
        struct fake_options models[] = {plain, plain, plain, plain, plain, plain, plain};
        int32_t text[N], longer[2 * N];

        models[1].is_transposed = true;
        models[2].has_window = true;
        models[2].window = 40;
        models[3].has_no_v = true;
        models[4].is_hybrid = true;
        models[5].is_recurrent = true;
        models[6].is_transposed = models[6].is_scattered = true;
        make_text(text, N, 1);
        make_text(longer, 2 * N, 1);
        for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); ++i) {
                struct engine a = start(h, models[i]), b = start(h, models[i]);
                uint32_t n = 0;

                assert_int_equal(run(&a, text, N), 0);
                assert_int_equal(kvl_llama_find(b.llama, longer, 2 * N, &n), 0);
                assert_int_equal(n, FULL);
                assert_int_equal(run(&b, text, N), FULL);
                assert_true(fake_sum(b.ctx, SEQ) == computed(models[i], text, N));
                assert_int_equal(kvl_llama_verify(b.llama, SEQ, text, N, &n), 0);
                assert_int_equal(n, models[i].is_recurrent ? 0 : FULL);
                /* Without its last token a text has a chunk less, where no state was saved. */
                assert_int_equal(kvl_llama_find(b.llama, text, FULL - 1, &n),
                        models[i].is_recurrent || models[i].is_hybrid ? KVL_MISS : 0);
                stop(&a);
                stop(&b);
        }
}

/* Rows that the sequence has stay; rows beyond the common text are replaced. */
HARNESS_TEST(test_load_continues, &options)
{
        struct engine a = start(h, plain), b = start(h, plain);
        int32_t text[N], other[N];
        uint32_t n = 0;

        make_text(text, N, 1);
        memcpy(other, text, sizeof(text));
        other[70] = 999;
        run(&a, text, N);
        assert_true(fake_compute(b.ctx, SEQ, other, N));
        assert_int_equal(kvl_llama_load(b.llama, SEQ, text, N, 70, &n), 0);
        assert_int_equal(n, FULL);
        assert_true(fake_sum(b.ctx, SEQ) == computed(plain, text, FULL));
        n = 7;
        assert_int_equal(kvl_llama_load(b.llama, SEQ, text, N, FULL, &n), KVL_MISS);
        assert_int_equal(n, FULL);
        assert_int_equal(kvl_llama_load(b.llama, SEQ, text, CHUNK - 1, 0, &n), KVL_MISS);
        assert_int_equal(kvl_llama_load(b.llama, SCRATCH, text, N, 0, &n), -EINVAL);
        assert_int_equal(kvl_llama_save(b.llama, 3, text, N, &n), -EINVAL);
        stop(&a);
        stop(&b);
}

/* No free cells: the sequence has what fits, and nothing that isn't of the text. */
HARNESS_TEST(test_no_cells, &options)
{
        struct fake_options few = plain;
        struct engine a = start(h, plain), b;
        int32_t text[N];
        uint32_t n = 7;

        few.n_cells = 100;
        make_text(text, N, 1);
        run(&a, text, N);
        b = start(h, few);
        assert_int_equal(kvl_llama_load(b.llama, SEQ, text, N, 0, &n), -ENOBUFS);
        assert_int_equal(n, 96);
        assert_true(fake_sum(b.ctx, SEQ) == computed(plain, text, 96));
        stop(&a);
        stop(&b);
}

HARNESS_TEST(test_identity, &options)
{
        struct engine a = start(h, plain);
        struct fake_options others[] = {plain, plain, plain, plain};
        int32_t text[N];
        uint32_t n;

        others[0].weights = 1; /* the same name, other numbers */
        others[1].is_transposed = true;
        others[2].type_k = 30;
        make_text(text, N, 1);
        run(&a, text, N);
        for (int i = 0; i < 4; ++i) {
                struct engine b = start_as(h, "a", others[i], i == 3 ? "v" : "w");

                assert_int_equal(kvl_llama_find(b.llama, text, N, &n), KVL_MISS);
                stop(&b);
        }
        stop(&a);
}

static void assert_refused(struct fake_options model, int code, const char *word)
{
        struct llama_context *ctx = fake_new(&model);
        struct kvl_llama *llama;

        assert_int_equal(make_handle(ctx, "w", &llama), code);
        if (!strstr(kvl_llama_last_error(), word))
                fail_msg("%s", kvl_llama_last_error());
        fake_free(ctx);
}

TEST_WITH(test_refusals, NULL, NULL, NULL)
{
        struct fake_options model = plain;
        struct kvl_llama_options o = {
                .size = sizeof(o), .weights = "w", .scratch_seq = SCRATCH, .chunk_tokens = CHUNK};
        struct llama_context *ctx;
        struct kvl_llama *llama;

        model.is_split = true;
        assert_refused(model, -EOPNOTSUPP, "kv_unified");
        model = plain;
        model.n_seqs = 1;
        assert_refused(model, -EOPNOTSUPP, "n_seq_max");
        model.n_seqs = 4;
        model.rope = 8;
        assert_refused(model, -EOPNOTSUPP, "M-RoPE");
        model = plain;
        model.has_window = true;
        model.window = CHUNK - 1;
        assert_refused(model, -EOPNOTSUPP, "chunk_tokens");
        model.n_cells = 4;
        model.window = CHUNK;
        assert_refused(model, -EIO, "free cells");
        model.n_cells = 2048;
        ctx = fake_new(&model);
        assert_int_equal(kvl_llama_new(ctx, &o, &llama), -EOPNOTSUPP);
        assert_non_null(strstr(kvl_llama_last_error(), "swa_full"));
        o.library = "/nowhere/libllama.so";
        assert_int_equal(kvl_llama_new(ctx, &o, &llama), -ENOENT);
        assert_non_null(strstr(kvl_llama_last_error(), o.library));
        o.weights = "";
        assert_int_equal(kvl_llama_new(ctx, &o, &llama), -EINVAL);
        assert_true(fake_compute(ctx, SCRATCH, (int32_t[]){1}, 1));
        assert_int_equal(make_handle(ctx, "w", &llama), -EBUSY);
        fake_free(ctx);
}

/* Rows that are gone aren't saved, and the sentence says so. */
HARNESS_TEST(test_rows_dropped, &options)
{
        struct engine a = start(h, plain);
        int32_t text[N];
        uint32_t n = 7;

        make_text(text, N, 1);
        assert_true(fake_compute(a.ctx, SEQ, text, N));
        forget(&a, 40, 41);
        assert_int_equal(kvl_llama_save(a.llama, SEQ, text, N, &n), -EBADMSG);
        assert_non_null(strstr(kvl_llama_last_error(), "tokens 32 to 63"));
        assert_int_equal(n, CHUNK);
        forget(&a, -1, 10);
        assert_int_equal(kvl_llama_save(a.llama, SEQ, text, N, &n), -EINVAL);
        stop(&a);
}

/* Other processes of the tenant can write what they like to their own pages: numbers change, and
 * verify finds them. */
HARNESS_TEST(test_planted_page, &options)
{
        struct engine a, b;
        int32_t text[N];
        uint32_t n;

        make_text(text, N, 1);
        a = start(h, plain);
        /* A context keeps its identity; then it computes with other weights. */
        fake_set_weights(a.ctx, 5);
        run(&a, text, N);
        b = start(h, plain);
        assert_true(fake_compute(b.ctx, SEQ, text, N));
        assert_int_equal(kvl_llama_verify(b.llama, SEQ, text, N, &n), -EBADMSG);
        assert_int_equal(ctl_tenant(h, "a", "verify_failures"), 1);
        assert_int_equal(kvl_llama_find(b.llama, text, N, &n), KVL_MISS);
        stop(&a);
        stop(&b);
}

/* Another process holds all that the tenant may have. */
HARNESS_TEST(test_full, &options)
{
        struct kvl_layout layout = {.size = sizeof(layout),
                .model = "m",
                .dtype = KVL_DTYPE_F16,
                .n_layers = 1,
                .n_kv_heads = 1,
                .head_size = 1,
                .page_tokens = 16,
                .n_planes = 1,
                .plane_page_bytes = 4096};
        struct engine a = start_as(h, "small", plain, "w"), b = start_as(h, "small", plain, "w");
        int32_t text[N];
        uint32_t n = 7, page;
        struct kvl_ns *ns;
        int e;

        make_text(text, N, 1);
        assert_int_equal(kvl_ns_open(b.conn, NULL, &layout, "host", 0, &ns), 0);
        do
                e = kvl_lease(ns, 0, 1, &page);
        while (!e);
        assert_true(fake_compute(a.ctx, SEQ, text, N));
        e = kvl_llama_save(a.llama, SEQ, text, N, &n);
        assert_true(e == KVL_QUOTA || e == KVL_FULL);
        assert_int_equal(n, 0);
        kvl_ns_close(ns);
        assert_int_equal(kvl_llama_save(a.llama, SEQ, text, N, &n), 0);
        assert_int_equal(n, FULL);
        stop(&a);
        stop(&b);
}

/* After the daemon's end a handle goes on with a new connection, without another probe. */
HARNESS_TEST(test_daemon_gone, &options)
{
        char socket[PRIVATE_PATH_MAX];
        struct kvl_connect_options to = {.size = sizeof(to), .socket_path = socket};
        struct engine a = start(h, plain);
        int32_t text[N];
        uint32_t n = 7;

        make_text(text, N, 1);
        run(&a, text, N);
        harness_restart(h);
        make_text(text, N, 2);
        forget(&a, -1, -1);
        assert_true(fake_compute(a.ctx, SEQ, text, N));
        assert_true(kvl_llama_save(a.llama, SEQ, text, N, &n) != 0);
        assert_int_equal(n, 0);
        kvl_llama_detach(a.llama);
        kvl_disconnect(a.conn);
        assert_int_equal(kvl_llama_find(a.llama, text, N, &n), -ENOTCONN);
        private_daemon_socket(&h->daemon, "a", socket);
        assert_int_equal(kvl_connect(&to, &a.conn), 0);
        assert_int_equal(kvl_llama_attach(a.llama, a.conn), 0);
        assert_int_equal(kvl_llama_attach(a.llama, a.conn), -EALREADY);
        assert_int_equal(kvl_llama_save(a.llama, SEQ, text, N, &n), 0);
        assert_int_equal(n, FULL);
        stop(&a);
}

/* States that aren't of the shape are refused, whatever they say: none is read beyond its end, and
 * what passes is the same bytes again. */
TEST_WITH(test_damaged_states, NULL, NULL, NULL)
{
        struct fake_options model = plain;
        int32_t text[CHUNK];
        struct blob_shape shape;
        uint8_t *bytes_of, rows[CHUNK * 128], other[CHUNK * 128], status[64];
        struct llama_context *ctx;
        size_t bytes, n_refused = 0;

        model.is_hybrid = true;
        make_text(text, CHUNK, 1);
        ctx = fake_new(&model);
        fake_compute(ctx, SEQ, text, CHUNK);
        bytes_of = fake_state(ctx, SEQ, &bytes);
        assert_int_equal(blob_learn(&shape, bytes_of, bytes, 0, CHUNK, true, true), 0);
        assert_true(shape.row_bytes * CHUNK <= sizeof(rows) && shape.state_bytes == sizeof(status));
        assert_int_equal(blob_bytes(&shape, BLOB_ROWS | BLOB_STATE, CHUNK), bytes);
        for (size_t i = 0; i < bytes; ++i) {
                /* A copy of its exact size, so that sanitizers see a read beyond the end. */
                uint8_t *short_one = malloc(i + 1);
                struct blob_shape learned;

                memcpy(short_one, bytes_of, i);
                assert_int_equal(blob_unpack(&shape, short_one, i, BLOB_ROWS | BLOB_STATE, 0, CHUNK,
                                         rows, status),
                        -EBADMSG);
                assert_true(blob_learn(&learned, short_one, i, 0, CHUNK, true, true) < 0);
                blob_shape_free(&learned);
                free(short_one);
        }
        assert_int_equal(blob_unpack(&shape, bytes_of, bytes, BLOB_ROWS | BLOB_STATE, 0, CHUNK,
                                 rows, status),
                0);
        for (size_t i = 8; i < bytes; ++i) {
                struct blob_shape learned;

                bytes_of[i] ^= 0xff;
                if (blob_unpack(&shape, bytes_of, bytes, BLOB_ROWS | BLOB_STATE, 0, CHUNK, other,
                            status))
                        ++n_refused;
                /* Numbers, which may be anything, or the numbers of sequences, which aren't read.
                 */
                (void)blob_learn(&learned, bytes_of, bytes, 0, CHUNK, true, true);
                blob_shape_free(&learned);
                bytes_of[i] ^= 0xff;
        }
        assert_int_equal(n_refused, bytes - 8 - shape.row_bytes * CHUNK - shape.state_bytes -
                                            4 * CHUNK /* sequences */);
        blob_shape_free(&shape);
        free(bytes_of);
        fake_free(ctx);
}
