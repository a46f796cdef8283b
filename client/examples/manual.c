/*
 * The examples of the library's manual pages, one function a page. As a program: runs all of them
 * against the kvleased of $KVLEASE_SOCKET, and exits with 0 if each does its work.
 */
#include <errno.h>
#include <kvlease.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_PAGES     4
#define PAGE_TOKENS 16

static const struct kvl_layout layout = {.size = sizeof(layout),
        .model = "manual",
        .version = "1",
        .dtype = KVL_DTYPE_F16,
        .n_layers = 1,
        .n_kv_heads = 1,
        .head_size = 64,
        .page_tokens = PAGE_TOKENS,
        .n_planes = 1,
        .plane_page_bytes = 4096,
        .tp_size = 1};
static uint8_t keys[N_PAGES * KVL_KEY_BYTES];

static void need(int is_so, const char *doing)
{
        if (is_so)
                return;
        fprintf(stderr, "manual: %s: %s\n", doing, kvl_last_error());
        exit(1);
}

/* Finds the pages of the keys, or leases, fills and publishes them. Both ways pin them. */
static void compute(struct kvl_ns *ns, uint32_t pages[N_PAGES])
{
        struct kvl_publish publish = {.size = sizeof(publish),
                .pages = pages,
                .keys = keys,
                .n_pages = N_PAGES,
                .last_tokens = PAGE_TOKENS};
        uint32_t n_pages = 0, i;
        uint64_t n_tokens;

        if (kvl_lookup(ns, 0, keys, N_PAGES, pages, &n_pages, &n_tokens) == 0)
                return;
        need(kvl_lease(ns, 0, N_PAGES, pages) == 0, "leasing");
        for (i = 0; i < N_PAGES; i++)
                need(kvl_page_write(ns, pages[i], 0, 0, "K and V", 8) == 0, "writing");
        need(kvl_publish(ns, &publish, NULL, NULL) == 0, "publishing");
}

/* libkvlease */
static void print_failure(int code)
{
        /* Positive: a condition. Negative: an errno. kvl_last_error() has the details. */
        fprintf(stderr, "libkvlease %s: %s: %s\n", kvl_version(), kvl_strerror(code),
                kvl_last_error());
}

/* kvlease_connect */
static struct kvl_conn *connect_rank(const char *secret)
{
        struct kvl_connect_options options = {.size = sizeof(options),
                .client_name = "rank 0",
                .group_secret = secret, /* the same in all ranks of an engine */
                .group_secret_bytes = strlen(secret),
                .timeout_msec = 5000};
        struct kvl_conn *conn;
        int r = kvl_connect(&options, &conn);

        if (r != 0) {
                fprintf(stderr, "no kvleased: %s\n", kvl_last_error());
                return NULL;
        }
        printf("client %llu of tenant %s\n", (unsigned long long)kvl_client_id(conn),
                kvl_tenant(conn));
        return conn;
}

/* kvlease_events */
static void on_event(struct kvl_conn *conn, const struct kvl_event *event, void *data)
{
        int *is_draining = data;

        (void)conn;
        if (event->type == KVL_EVENT_DRAIN)
                *is_draining = 1;
}

static int wait_for_events(struct kvl_conn *conn, int *is_draining, int msec)
{
        struct pollfd p = {.fd = kvl_fd(conn), .events = POLLIN};

        kvl_set_event_handler(conn, on_event, is_draining);
        if (poll(&p, 1, msec) < 0)
                return -errno;
        return kvl_dispatch(conn); /* < 0: the connection is over */
}

/* kvlease_namespaces */
static struct kvl_ns *open_namespace(struct kvl_conn *conn)
{
        struct kvl_ns_info info = {.size = sizeof(info)};
        struct kvl_ns *ns;

        if (kvl_ns_open(conn, NULL, &layout, NULL, 0, &ns) != 0)
                return NULL; /* kvl_last_error() has the sentence */
        kvl_ns_info(ns, &info);
        printf("%s on %s: %u pages of %u tokens\n", kvl_ns_name(ns), info.device,
                info.capacity_pages, info.page_tokens);
        return ns;
}

/* kvlease_keys */
static int keys_of(const uint32_t *tokens, uint32_t n_tokens, uint8_t *ret_keys)
{
        uint8_t root[KVL_KEY_BYTES];
        int r = kvl_key_root(&layout, root);

        /* A key for each page of 16 tokens; it names all tokens before, too. */
        return r == 0 ? kvl_keys(root, tokens, n_tokens, PAGE_TOKENS, ret_keys) : r;
}

/* kvlease_pages */
static uint32_t find_or_lease(struct kvl_ns *ns, uint32_t pages[N_PAGES])
{
        uint64_t request = kvl_request_begin(ns), n_tokens;
        uint32_t n_found = 0;
        int r = kvl_lookup(ns, request, keys, N_PAGES, pages, &n_found, &n_tokens);

        if (r == 0) {
                /* pages[0..n_found-1] are pinned: read them, then release each. */
                kvl_release(ns, pages, n_found);
        } else if (r == KVL_MISS) {
                r = kvl_lease(ns, request, N_PAGES, pages);
                /* Write the pages and publish them, or give them back: */
                if (r == 0)
                        kvl_free(ns, pages, N_PAGES);
        }
        kvl_request_end(ns, request);
        return n_found;
}

/* kvlease_single_flight */
static int compute_once(struct kvl_ns *ns, const uint32_t *leased)
{
        uint32_t n_announced;
        int r = kvl_announce(ns, leased, keys, N_PAGES, &n_announced);

        /* Another client computes this key: its page will be there after the wait. */
        if (r == KVL_PENDING)
                return kvl_wait(ns, keys + n_announced * KVL_KEY_BYTES, 10000);
        return r; /* 0: compute all pages and publish them; KVL_DUPLICATE: look up again */
}

/* kvlease_sessions */
static uint32_t count_session_pages(struct kvl_ns *ns, const char *id)
{
        struct kvl_session_info info = {.size = sizeof(info)};
        struct kvl_session_page pages[N_PAGES];
        struct kvl_session *session;
        uint32_t n_pages = 0;

        need(kvl_session_open(ns, id, strlen(id), NULL, &info, &session) == 0, "opening a session");
        if (kvl_session_pages(session, 0, N_PAGES, pages, &n_pages) == 0)
                for (uint32_t i = 0; i < n_pages; i++)
                        kvl_release(ns, &pages[i].page, 1);
        kvl_session_hint(session, KVL_HINT_CONTINUES, 0); /* the next turn will come */
        kvl_session_close(session, 0);
        return n_pages;
}

/* kvlease_page_tables */
static uint32_t block_table(const uint32_t *pages, uint32_t n_pages)
{
        struct kvl_page_table *table;
        uint32_t n = 0;

        if (kvl_page_table_new(16, 0, &table) != 0)
                return 0;
        if (kvl_page_table_append(table, pages, n_pages) == 0) {
                const uint32_t *flat = kvl_page_table_flat(table); /* for the kernel */

                n = flat[0] == pages[0] ? kvl_page_table_n_pages(table) : 0;
        }
        kvl_page_table_free(table);
        return n;
}

/* kvlease_follow */
static int count_followed(void)
{
        struct kvl_follow_event event = {.size = sizeof(event)};
        struct kvl_follower *follower;
        int n_stored = 0;

        need(kvl_follow_open(NULL, &follower) == 0, "following");
        while (kvl_follow_next(follower, 0, &event) == 1)
                n_stored += event.kind == KVL_FOLLOW_STORED; /* a router notes event.token_ids */
        kvl_follow_close(follower);
        return n_stored;
}

/* kvlease_explain */
static int explain(struct kvl_ns *ns)
{
        static const char *const states[] = {"never seen", "cached", "being computed", "evicted",
                "invalidated", "cached under another version", "expired"};
        struct kvl_explanation found[N_PAGES];
        int r = kvl_explain(ns, keys, N_PAGES, found);

        for (uint32_t i = 0; r == 0 && i < N_PAGES; i++)
                if (found[i].state < sizeof(states) / sizeof(states[0]))
                        printf("key %u: %s, %llu s ago\n", i, states[found[i].state],
                                (unsigned long long)found[i].age_sec);
        return r;
}

/* kvlease_start */
static void on_found(struct kvl_ns *ns, int code, const uint32_t *pages, uint32_t n_pages,
        uint64_t n_tokens, void *data)
{
        int *ret_code = data;

        (void)n_tokens;
        if (code == 0)
                kvl_release_start(ns, pages, n_pages, NULL, NULL);
        *ret_code = code; /* KVL_MISS: lease and compute */
}

static int look_up_in_loop(struct kvl_conn *conn, struct kvl_ns *ns)
{
        int code = -EINPROGRESS, r = kvl_lookup_start(ns, 0, keys, N_PAGES, on_found, &code);
        struct pollfd p = {.fd = kvl_fd(conn), .events = POLLIN};

        while (r >= 0 && code == -EINPROGRESS)
                r = poll(&p, 1, -1) < 0 ? -errno : kvl_dispatch(conn);
        return r < 0 ? r : code;
}

/* kvlease_streams */
static int end_step(
        struct kvl_conn *conn, struct kvl_ns *ns, const uint32_t *pages, kvl_stream stream)
{
        /* The kernels on the stream read these pages; the pins end after them. */
        int r = kvl_release_on_stream(ns, pages, N_PAGES, stream);

        /* Between two steps: gives back memory that kvleased has recalled. */
        return r == 0 ? kvl_safepoint(conn, stream) : r;
}

/* kvlease_windows */
static uint32_t read_window(struct kvl_ns *ns, const uint32_t *pinned, kvl_stream stream)
{
        struct kvl_window_options options = {.size = sizeof(options), .chunk_pages = 1};
        uint32_t at = 0, n_pages;
        const uint32_t *pages;
        struct kvl_window *window;
        int r;

        need(kvl_window_open(ns, &options, &window) == 0, "opening a window");
        r = kvl_window_append(window, pinned, N_PAGES, stream);
        need(r == 0 || r == KVL_FULL, "appending to a window"); /* FULL: pages stay on the device */
        while (at < N_PAGES &&
                kvl_window_take(window, at, N_PAGES - at, stream, &pages, &n_pages) == 0)
                at += n_pages;            /* attention reads pages[0..n_pages-1] here */
        kvl_window_close(window, stream); /* also releases the pins */
        return at;
}

/* ---- as a program ---------------------------------------------------------------------------- */

int main(void)
{
        uint32_t tokens[N_PAGES * PAGE_TOKENS], pages[N_PAGES];
        int is_draining = 0;
        struct kvl_conn *conn = connect_rank("a secret of this engine's start");
        struct kvl_ns *ns;

        need(conn != NULL, "connecting");
        for (uint32_t i = 0; i < N_PAGES * PAGE_TOKENS; i++)
                tokens[i] = i;
        need(keys_of(tokens, N_PAGES * PAGE_TOKENS, keys) == 0, "computing keys");
        ns = open_namespace(conn);
        need(ns != NULL, "opening a namespace");
        need(wait_for_events(conn, &is_draining, 0) >= 0 && !is_draining, "waiting for events");
        need(kvl_invalidate(ns, NULL, NULL) == 0, "invalidating"); /* pages of an earlier run */
        need(find_or_lease(ns, pages) == 0, "missing");
        need(look_up_in_loop(conn, ns) == KVL_MISS, "missing in a loop");
        print_failure(KVL_MISS);
        need(kvl_lease(ns, 0, N_PAGES, pages) == 0, "leasing");
        need(compute_once(ns, pages) == 0, "announcing");
        kvl_free(ns, pages, N_PAGES);
        compute(ns, pages);
        need(end_step(conn, ns, pages, NULL) >= 0, "ending a step");
        need(find_or_lease(ns, pages) == N_PAGES, "finding");
        need(look_up_in_loop(conn, ns) == 0, "finding in a loop");
        need(count_session_pages(ns, "session 1") == 0, "listing a session");
        need(block_table(pages, N_PAGES) == N_PAGES, "making a block table");
        need(count_followed() >= 0, "counting followed pages");
        need(explain(ns) == 0, "explaining");
        compute(ns, pages);
        need(read_window(ns, pages, NULL) == N_PAGES, "reading a window");
        kvl_disconnect(conn);
        return 0;
}
