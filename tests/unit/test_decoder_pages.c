/*
 * The decoder's page table against a library that is played by this file: what it does with each
 * condition the real one may return, and that it keeps nothing.
 */
#include <errno.h>
#include <string.h>

#include <kvlease.h>

#include "client/examples/decoder/gpu.h"
#include "client/examples/decoder/kv-host.h"
#include "client/examples/decoder/pages.h"
#include "tests/unit/test-support.h"

enum { PAGE_TOKENS = 4, CAPACITY = 16, PLANE_BYTES = 4096, WAIT_MSEC = 700 };

enum use { USE_FREE, USE_LEASED, USE_CACHED };

static struct {
        enum use use[CAPACITY];
        int pins[CAPACITY];
        uint8_t keys[CAPACITY][KVL_KEY_BYTES];
        unsigned char memory[4][CAPACITY * PLANE_BYTES];
        struct kvl_layout layout;
        int next_code; /* of the function next_fn, once n_before calls have passed */
        const char *next_fn;
        int n_before;
        int reopen_code; /* of kvl_ns_open() but the first */
        int n_opens, n_requests, n_waits;
        bool is_gpu;
        bool wants_memory; /* sends REVOKE at the next dispatch */
        int n_safepoints;
        kvl_event_fn on_event;
        void *event_data;
        struct {
                kvl_done_fn done; /* NULL: none */
                void *data;
                struct kvl_publish publish;
                int n_before; /* calls of dispatch until it is on its way */
        } on_stream;
        /* The text of the window, and which of its two pages of buffer is in use. */
        uint32_t window[CAPACITY], n_window, n_takes;
} lib;

/* Where all tests run, and what stands for the GPU's stream. */
static bool on_gpu;
static int stream;

static int injected(const char *fn)
{
        if (!lib.next_fn || strcmp(lib.next_fn, fn) != 0 || lib.n_before-- > 0)
                return 0;
        lib.next_fn = NULL;
        return lib.next_code;
}

static void inject(const char *fn, int n_before, int code)
{
        lib.next_fn = fn;
        lib.n_before = n_before;
        lib.next_code = code;
}

static unsigned count(enum use use)
{
        unsigned n = 0;

        for (int i = 0; i < CAPACITY; i++)
                n += lib.use[i] == use;
        return n;
}

static int pins(void)
{
        int n = 0;

        for (int i = 0; i < CAPACITY; i++)
                n += lib.pins[i];
        return n;
}

/* ---- the library ----------------------------------------------------------------------------- */

const char *kvl_last_error(void)
{
        return "as injected";
}

int kvl_connect(const struct kvl_connect_options *options, struct kvl_conn **ret_conn)
{
        *ret_conn = (struct kvl_conn *)(void *)&lib;
        return injected("connect");
}

void kvl_disconnect(struct kvl_conn *conn)
{
}

int kvl_ns_open(struct kvl_conn *conn, const char *name, const struct kvl_layout *layout,
        const char *device, unsigned flags, struct kvl_ns **ret_ns)
{
        assert_true(layout->plane_page_bytes <= PLANE_BYTES);
        lib.layout = *layout;
        if (lib.n_opens++ > 0 && lib.reopen_code)
                return lib.reopen_code;
        *ret_ns = (struct kvl_ns *)(void *)&lib;
        return injected("ns_open");
}

/* Deep layers are tried with a daemon alone: tests/integration/test_decoder.c. */
int kvl_ns_open_with(struct kvl_conn *conn, const char *name, const struct kvl_layout *layout,
        const struct kvl_ns_options *options, struct kvl_ns **ret_ns)
{
        return -ENOSYS;
}

int kvl_session_open(struct kvl_ns *ns, const void *id, size_t id_bytes,
        const struct kvl_session_options *options, struct kvl_session_info *info,
        struct kvl_session **ret_session)
{
        return -ENOSYS;
}

int kvl_session_keep(struct kvl_session *session, const struct kvl_token_range *ranges,
        uint32_t n_ranges, uint32_t *ret_n_pages)
{
        return -ENOSYS;
}

int kvl_session_close(struct kvl_session *session, int drop)
{
        return -ENOSYS;
}

void kvl_ns_close(struct kvl_ns *ns)
{
}

void kvl_ns_info(const struct kvl_ns *ns, struct kvl_ns_info *info)
{
        assert_int_equal(info->size, sizeof(*info));
        info->is_cpu_memory = !lib.is_gpu;
        strcpy(info->device, lib.is_gpu ? "GPU-0" : "host");
}

void *kvl_page_ptr(const struct kvl_ns *ns, uint32_t page, uint32_t plane)
{
        assert_true(plane < lib.layout.n_planes);
        assert_true(page < CAPACITY);
        assert_true(lib.use[page] == USE_LEASED || lib.pins[page] > 0);
        return lib.memory[plane] + page * PLANE_BYTES;
}

void kvl_set_event_handler(struct kvl_conn *conn, kvl_event_fn fn, void *data)
{
        lib.on_event = fn;
        lib.event_data = data;
}

int kvl_fd(const struct kvl_conn *conn)
{
        return -1;
}

int kvl_wants_write(const struct kvl_conn *conn)
{
        return 0;
}

int kvl_key_root(const struct kvl_layout *layout, uint8_t ret_key[KVL_KEY_BYTES])
{
        memset(ret_key, 7, KVL_KEY_BYTES);
        return 0;
}

int kvl_key_chain(const uint8_t parent[KVL_KEY_BYTES], const uint32_t *tokens, uint32_t n_tokens,
        uint8_t ret_key[KVL_KEY_BYTES])
{
        memcpy(ret_key, parent, KVL_KEY_BYTES);
        for (uint32_t i = 0; i < n_tokens; i++)
                for (uint32_t j = 0; j < KVL_KEY_BYTES; j++)
                        ret_key[j] = (uint8_t)(ret_key[j] * 31 + tokens[i] + j);
        return 0;
}

uint64_t kvl_request_begin(struct kvl_ns *ns)
{
        lib.n_requests++;
        return 1;
}

int kvl_note_prefill(struct kvl_ns *ns, uint32_t n_tokens, uint64_t nsec)
{
        return 0;
}

int kvl_request_end(struct kvl_ns *ns, uint64_t request)
{
        assert_int_equal(request, 1);
        lib.n_requests--;
        return 0;
}

#include "tests/unit/decoder-library.h"

int kvl_publish(struct kvl_ns *ns, const struct kvl_publish *publish, uint32_t *ret_pages,
        uint32_t *ret_n_pages)
{
        int r = injected("publish");

        assert_int_equal(publish->n_pages, 1);
        assert_int_equal(lib.use[publish->pages[0]], USE_LEASED);
        if (r)
                return r;
        if (publish->parent_key && find_key(publish->parent_key) < 0)
                return KVL_NO_PARENT;
        return publish_page(publish, ret_pages);
}

static void check_stream(kvl_stream s)
{
        assert_ptr_equal(s, on_gpu ? &stream : NULL);
}

/* The call takes effect later, but borrows its arguments only until it returns. */
int kvl_publish_on_stream(struct kvl_ns *ns, const struct kvl_publish *publish, kvl_stream s,
        kvl_done_fn done, void *data)
{
        static uint32_t page;
        static uint8_t keys[2][KVL_KEY_BYTES];
        int r = injected("publish_start");

        check_stream(s);
        assert_null(lib.on_stream.done);
        if (r)
                return r;
        page = publish->pages[0];
        memcpy(keys[0], publish->keys, KVL_KEY_BYTES);
        lib.on_stream.publish = *publish;
        lib.on_stream.publish.pages = &page;
        lib.on_stream.publish.keys = keys[0];
        if (publish->parent_key)
                lib.on_stream.publish.parent_key =
                        memcpy(keys[1], publish->parent_key, KVL_KEY_BYTES);
        lib.on_stream.done = done;
        lib.on_stream.data = data;
        lib.on_stream.n_before = 2;
        return 0;
}

int kvl_dispatch(struct kvl_conn *conn)
{
        const struct kvl_event revoke = {.type = KVL_EVENT_REVOKE};
        kvl_done_fn done = lib.on_stream.done;
        uint32_t page = KVL_PAGE_NONE;
        int r = injected("dispatch");

        if (r)
                return r;
        if (lib.wants_memory)
                lib.on_event(conn, &revoke, lib.event_data);
        lib.wants_memory = false;
        if (!done || lib.on_stream.n_before-- > 0)
                return 0;
        lib.on_stream.done = NULL;
        r = kvl_publish((void *)&lib, &lib.on_stream.publish, &page, NULL);
        done((void *)&lib, r, &page, page != KVL_PAGE_NONE, 0, lib.on_stream.data);
        return 1;
}

int kvl_release_on_stream(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, kvl_stream s)
{
        check_stream(s);
        return kvl_release(ns, pages, n_pages);
}

int kvl_free_on_stream(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages, kvl_stream s)
{
        check_stream(s);
        return kvl_free(ns, pages, n_pages);
}

int kvl_find(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens)
{
        return kvl_lookup(ns, request, keys, n_keys, ret_pages, ret_n_pages, ret_n_tokens);
}

int kvl_lookup_wait(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        int timeout_msec, uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens,
        int *ret_is_pending)
{
        assert_int_equal(timeout_msec, WAIT_MSEC);
        lib.n_waits++;
        return kvl_lookup(ns, request, keys, n_keys, ret_pages, ret_n_pages, ret_n_tokens);
}

int kvl_window_open(
        struct kvl_ns *ns, const struct kvl_window_options *options, struct kvl_window **ret_window)
{
        int r = injected("window_open");

        /* 16 pages are on the device: 1 and 8 at the ends, and 3 for new and moving pages. */
        assert_int_equal(options->chunk_pages, 2);
        assert_int_equal(options->first_tokens, PAGE_TOKENS);
        assert_int_equal(options->last_tokens, 8 * PAGE_TOKENS);
        assert_int_equal(options->request, 1);
        if (r)
                return r;
        lib.use[0] = lib.use[1] = USE_LEASED;
        lib.n_window = 0;
        *ret_window = (struct kvl_window *)(void *)&lib;
        return 0;
}

int kvl_window_append(
        struct kvl_window *window, const uint32_t *pages, uint32_t n_pages, kvl_stream s)
{
        int r = injected("window_append");

        check_stream(s);
        if (r < 0)
                return r;
        memcpy(lib.window + lib.n_window, pages, n_pages * sizeof(*pages));
        lib.n_window += n_pages;
        return r;
}

/* Copies one page, and spoils what was given before. */
int kvl_window_take(struct kvl_window *window, uint32_t first, uint32_t n_pages, kvl_stream s,
        const uint32_t **ret_pages, uint32_t *ret_n_pages)
{
        static const uint32_t buffer[] = {0, 1};
        uint32_t half = lib.n_takes++ % 2;
        int r = injected("window_take");

        check_stream(s);
        assert_true(first < lib.n_window && n_pages > 0);
        if (r)
                return r;
        for (uint32_t plane = 0; plane < lib.layout.n_planes; plane++) {
                unsigned char *memory = lib.memory[plane];

                memset(memory + (1 - half) * PLANE_BYTES, 0x7f, PLANE_BYTES);
                memcpy(memory + half * PLANE_BYTES, memory + lib.window[first] * PLANE_BYTES,
                        PLANE_BYTES);
        }
        *ret_pages = &buffer[half];
        *ret_n_pages = 1;
        return 0;
}

int kvl_window_close(struct kvl_window *window, kvl_stream s)
{
        if (!window)
                return 0;
        check_stream(s);
        lib.use[0] = lib.use[1] = USE_FREE;
        return kvl_release((void *)&lib, lib.window, lib.n_window);
}

int kvl_safepoint(struct kvl_conn *conn, kvl_stream s)
{
        check_stream(s);
        assert_int_equal(count(USE_LEASED), 0);
        assert_int_equal(pins(), 0);
        lib.n_safepoints++;
        return injected("safepoint");
}

/* ---- the GPU: memory and attention of the CPU ------------------------------------------------ */

int gpu_new(const struct gpu_options *options, struct model_kv **ret_kv)
{
        int r = injected("gpu_new");

        assert_string_equal(options->device, "GPU-0");
        assert_string_equal(options->kernels, "file");
        return r ? r
                 : kv_host_new(options->shape, options->page_tokens, options->max_pages,
                           options->tensors, ret_kv);
}

int gpu_alloc(struct model_kv *kv, uint64_t bytes, unsigned char **ret_address)
{
        assert_true(bytes <= sizeof(lib.memory));
        *ret_address = lib.memory[0];
        return injected("gpu_alloc");
}

void *gpu_stream(struct model_kv *kv)
{
        return &stream;
}

int gpu_wait(struct model_kv *kv)
{
        return 0;
}

const char *gpu_error(void)
{
        return "";
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const uint32_t text[14] = {256, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};

static struct pages_options small = {
        .shape = {.seed = 1,
                .n_layers = 2,
                .width = 16,
                .n_heads = 2,
                .n_kv_heads = 1,
                .ffn_width = 8},
        .use_daemon = true,
        .kernels = "file",
        .ns_name = "test",
        .page_tokens = PAGE_TOKENS,
        .max_pages = 8,
};

/* One prompt, as the decoder's main.c does it. 0, or the code of what failed. */
static int run(struct pages *p, uint32_t n_tokens, float *ret_logits)
{
        struct model *m = model_new(&small.shape, PAGE_TOKENS);
        uint32_t at = 0, end;
        int r, q;

        assert_non_null(m);
        r = pages_begin(p, text, n_tokens, &at);
        for (; !r && at < n_tokens; at = end) {
                end = at + PAGE_TOKENS < n_tokens ? at + PAGE_TOKENS : n_tokens;
                r = pages_extend(p);
                if (r)
                        break;
                r = model_forward(m, pages_kv(p), text + at, end - at, at, ret_logits);
                if (!r && end % PAGE_TOKENS == 0)
                        r = pages_publish(p, at / PAGE_TOKENS);
        }
        model_free(m);
        q = pages_end(p);
        assert_int_equal(count(USE_LEASED), 0);
        assert_int_equal(pins(), 0);
        assert_int_equal(lib.n_requests, 0);
        return r ? r : q;
}

static struct pages *open_pages(void)
{
        struct pages *p;

        memset(&lib, 0, sizeof(lib));
        lib.is_gpu = on_gpu;
        assert_int_equal(pages_open(&small, &p), 0);
        assert_string_equal(pages_device(p), on_gpu ? "GPU-0" : "host");
        return p;
}

static void check_counts(
        const struct pages *p, uint32_t reused, uint32_t published, uint32_t duplicates)
{
        assert_int_equal(pages_counts(p)->reused, reused);
        assert_int_equal(pages_counts(p)->published, published);
        assert_int_equal(pages_counts(p)->duplicates, duplicates);
}

static void test_cold_then_warm(void **state)
{
        for (int planes = 0; planes < 2; planes++) {
                float cold[MODEL_VOCAB], warm[MODEL_VOCAB];
                struct pages *p;

                small.plane_per_tensor = planes;
                p = open_pages();
                assert_int_equal(lib.layout.n_planes, planes ? 4 : 1);
                assert_int_equal(run(p, 14, cold), 0);
                check_counts(p, 0, 3, 0);
                assert_int_equal(run(p, 14, warm), 0);
                check_counts(p, 3, 0, 0);
                assert_memory_equal(cold, warm, sizeof(cold));
                pages_close(p);
        }
        small.plane_per_tensor = false;
}

/* With the option, pages that other clients compute or bring up are waited for. */
static void test_waits_for_others(void **state)
{
        float cold[MODEL_VOCAB], warm[MODEL_VOCAB];
        struct pages *p = open_pages();

        assert_int_equal(run(p, 14, cold), 0);
        assert_int_equal(lib.n_waits, 0);
        pages_close(p);
        small.wait_msec = WAIT_MSEC;
        p = open_pages();
        assert_int_equal(run(p, 14, cold), 0);
        assert_int_equal(run(p, 14, warm), 0);
        assert_int_equal(lib.n_waits, 2);
        check_counts(p, 3, 0, 0);
        assert_memory_equal(cold, warm, sizeof(cold));
        pages_close(p);
        small.wait_msec = 0;
}

static void test_last_token_is_always_computed(void **state)
{
        float cold[MODEL_VOCAB], warm[MODEL_VOCAB] = {0};
        struct pages *p = open_pages();

        assert_int_equal(run(p, 12, cold), 0);
        check_counts(p, 0, 3, 0);
        assert_int_equal(run(p, 12, warm), 0);
        check_counts(p, 2, 0, 1);
        assert_memory_equal(cold, warm, sizeof(cold));
        assert_int_equal(count(USE_CACHED), 3);
        pages_close(p);
}

static void test_no_parent_goes_on_alone(void **state)
{
        const int codes[] = {KVL_NO_PARENT, KVL_STALE};

        for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
                float logits[MODEL_VOCAB], cold[MODEL_VOCAB];
                struct pages *p = open_pages();

                inject("publish", 1, codes[i]);
                assert_int_equal(run(p, 14, logits), 0);
                check_counts(p, 0, 1, 0);
                assert_int_equal(run(p, 14, cold), 0);
                check_counts(p, 1, 2, 0);
                assert_memory_equal(logits, cold, sizeof(cold));
                pages_close(p);
        }
}

static void test_stale_at_begin_reopens_once(void **state)
{
        float logits[MODEL_VOCAB];
        struct pages *p = open_pages();

        inject("lookup", 0, KVL_STALE);
        assert_int_equal(run(p, 14, logits), 0);
        assert_int_equal(lib.n_opens, 2);
        check_counts(p, 0, 3, 0);
        pages_close(p);
}

static void test_stale_and_gone(void **state)
{
        float logits[MODEL_VOCAB];
        struct pages *p = open_pages();

        inject("lookup", 0, KVL_STALE);
        lib.reopen_code = -ECONNRESET;
        assert_int_equal(run(p, 14, logits), -ECONNRESET);
        pages_close(p);
}

static void test_no_room_is_told(void **state)
{
        const int codes[] = {KVL_QUOTA, KVL_FULL, KVL_DRAINING, -ENOTCONN};

        for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
                float logits[MODEL_VOCAB];
                struct pages *p = open_pages();

                inject("lease", 2, codes[i]);
                assert_int_equal(run(p, 14, logits), codes[i]);
                check_counts(p, 0, 2, 0);
                assert_string_equal(pages_error(), "as injected");
                pages_close(p);
        }
}

static void test_open_fails(void **state)
{
        struct pages *p = NULL;

        memset(&lib, 0, sizeof(lib));
        lib.is_gpu = on_gpu;
        inject("connect", 0, -ECONNREFUSED);
        assert_int_equal(pages_open(&small, &p), -ECONNREFUSED);
        inject("ns_open", 0, KVL_LAYOUT);
        assert_int_equal(pages_open(&small, &p), KVL_LAYOUT);
        assert_null(p);
}

/* On a GPU the failure may come before the publish is under way, or instead of its answer. */
static void test_publish_fails(void **state)
{
        float logits[MODEL_VOCAB];
        struct pages *p = open_pages();

        inject(on_gpu ? "publish_start" : "publish", 1, -EIO);
        assert_int_equal(run(p, 14, logits), -EIO);
        check_counts(p, 0, 1, 0);
        pages_close(p);
        if (!on_gpu)
                return;
        p = open_pages();
        inject("publish", 1, -EIO);
        assert_int_equal(run(p, 14, logits), -EIO);
        pages_close(p);
        p = open_pages();
        inject("dispatch", 1, -ECONNRESET);
        assert_int_equal(run(p, 14, logits), -ECONNRESET);
        pages_close(p);
}

static void test_somebody_was_first(void **state)
{
        float cold[MODEL_VOCAB], logits[MODEL_VOCAB];
        struct pages *p = open_pages();

        assert_int_equal(run(p, 14, cold), 0);
        inject("lookup", 0, KVL_MISS);
        assert_int_equal(run(p, 14, logits), 0);
        check_counts(p, 0, 0, 3);
        assert_memory_equal(cold, logits, sizeof(cold));
        pages_close(p);
}

/* Through a window: the same bits, with the same reuse; and what comes of its failures. */
static void test_window(void **state)
{
        float cold[MODEL_VOCAB], logits[MODEL_VOCAB];
        struct pages *p = open_pages();

        assert_int_equal(run(p, 14, cold), 0);
        pages_close(p);
        small.device_pages = 16;
        p = open_pages();
        assert_int_equal(run(p, 14, logits), 0);
        check_counts(p, 0, 3, 0);
        assert_true(lib.n_takes > 0);
        assert_memory_equal(cold, logits, sizeof(cold));
        assert_int_equal(run(p, 14, logits), 0);
        check_counts(p, 3, 0, 0);
        assert_memory_equal(cold, logits, sizeof(cold));
        inject("lookup", 0, KVL_MISS);
        assert_int_equal(run(p, 14, logits), 0);
        check_counts(p, 0, 0, 3);
        assert_memory_equal(cold, logits, sizeof(cold));
        inject("window_append", 0, KVL_MISS); /* a page stays on the device */
        assert_int_equal(run(p, 14, logits), 0);
        assert_memory_equal(cold, logits, sizeof(cold));
        inject("publish", 1, KVL_STALE);
        inject("lookup", 0, KVL_MISS);
        assert_int_equal(run(p, 14, logits), 0);
        assert_memory_equal(cold, logits, sizeof(cold));
        inject("lookup", 0, KVL_STALE); /* the window goes with the namespace */
        assert_int_equal(run(p, 14, logits), 0);
        assert_memory_equal(cold, logits, sizeof(cold));
        inject("window_open", 0, KVL_FULL);
        assert_int_equal(run(p, 14, logits), KVL_FULL);
        inject("window_append", 0, -ENOMEM);
        assert_int_equal(run(p, 14, logits), -ENOMEM);
        inject("window_append", 0, KVL_FULL);
        assert_int_equal(run(p, 14, logits), KVL_FULL);
        inject("window_take", 3, KVL_MISS);
        assert_int_equal(run(p, 14, logits), KVL_MISS);
        assert_int_equal(run(p, 14, logits), 0);
        assert_memory_equal(cold, logits, sizeof(cold));
        pages_close(p);
        small.device_pages = 0;
}

/* Memory goes back when it was asked for, once nothing is held; kvl_safepoint() looks. */
static void test_memory_is_given_back(void **state)
{
        float logits[MODEL_VOCAB];
        struct pages *p = open_pages();

        assert_int_equal(run(p, 14, logits), 0);
        assert_int_equal(lib.n_safepoints, 0);
        lib.wants_memory = true;
        assert_int_equal(run(p, 14, logits), 0);
        assert_int_equal(lib.n_safepoints, 1);
        assert_int_equal(run(p, 14, logits), 0);
        assert_int_equal(lib.n_safepoints, 1);

        lib.wants_memory = true;
        inject("safepoint", 0, -EIO);
        assert_int_equal(run(p, 14, logits), -EIO);
        lib.wants_memory = true;
        inject("safepoint", 0, -ENOTCONN);
        assert_int_equal(run(p, 14, logits), 0);
        pages_close(p);
}

/* The oracle, with the same memory as below the daemon. */
static void test_private_memory(void **state)
{
        float cold[MODEL_VOCAB], oracle[MODEL_VOCAB];
        struct pages *p = open_pages();

        assert_int_equal(run(p, 14, cold), 0);
        pages_close(p);
        for (int planes = 0; planes < 2; planes++) {
                struct pages_options private = small;

                memset(&lib, 0, sizeof(lib));
                private.use_daemon = false;
                private.plane_per_tensor = planes;
                private.device = on_gpu ? "GPU-0" : NULL;
                assert_int_equal(pages_open(&private, &p), 0);
                assert_string_equal(pages_device(p), on_gpu ? "GPU-0" : "host");
                assert_int_equal(run(p, 14, oracle), 0);
                check_counts(p, 0, 0, 0);
                assert_memory_equal(cold, oracle, sizeof(cold));
                pages_close(p);
        }
}

static void test_gpu_fails(void **state)
{
        struct pages_options private = small;
        struct pages *p = NULL;

        if (!on_gpu)
                return;
        memset(&lib, 0, sizeof(lib));
        lib.is_gpu = true;
        inject("gpu_new", 0, -ENODEV);
        assert_int_equal(pages_open(&small, &p), -ENODEV);
        private.use_daemon = false;
        private.device = "GPU-0";
        inject("gpu_new", 0, -ENOENT);
        assert_int_equal(pages_open(&private, &p), -ENOENT);
        inject("gpu_alloc", 0, -ENOMEM);
        assert_int_equal(pages_open(&private, &p), -ENOMEM);
        assert_null(p);
}

static int on_the_gpu(void **state)
{
        on_gpu = true;
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST_ROW(test_cold_then_warm),
                TEST_ROW(test_waits_for_others),
                TEST_ROW(test_last_token_is_always_computed),
                TEST_ROW(test_no_parent_goes_on_alone),
                TEST_ROW(test_stale_at_begin_reopens_once),
                TEST_ROW(test_stale_and_gone),
                TEST_ROW(test_no_room_is_told),
                TEST_ROW(test_open_fails),
                TEST_ROW(test_publish_fails),
                TEST_ROW(test_somebody_was_first),
                TEST_ROW(test_window),
                TEST_ROW(test_memory_is_given_back),
                TEST_ROW(test_private_memory),
                TEST_ROW(test_gpu_fails),
        };
        int n_failed = cmocka_run_group_tests_name("host", tests, NULL, NULL);

        return n_failed + cmocka_run_group_tests_name("gpu", tests, on_the_gpu, NULL);
}
