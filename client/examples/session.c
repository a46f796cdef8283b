/* A turn of a conversation that outlives its workers: `session [--die] ID TEXT` finds the pages of
 * the earlier turns under this ID, appends TEXT, and ends; with --die by SIGKILL. Letters are the
 * tokens, and their own K and V. */
#include <kvlease.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_TOKENS 16
#define MAX_PAGES   256

struct text {
        unsigned char letters[MAX_PAGES * PAGE_TOKENS];
        uint32_t n;
};

static void die(const char *what)
{
        fprintf(stderr, "session: %s: %s\n", what, kvl_last_error());
        exit(1);
}

/* Reads the pages, as attention would. */
static void read_pages(
        struct kvl_ns *ns, const struct kvl_session_page *pages, uint32_t n, struct text *text)
{
        for (uint32_t i = 0; i < n; text->n += pages[i++].n_tokens)
                if (kvl_page_read(ns, pages[i].page, 0, 0, text->letters + text->n,
                            pages[i].n_tokens) < 0)
                        die("reading a page");
}

/* Fills new pages, after the last full one, and publishes them as the session's end. */
static void append(struct kvl_ns *ns, struct kvl_session *session, const struct kvl_layout *layout,
        const struct kvl_session_page *have, uint32_t n_have, const struct text *text)
{
        uint32_t n_full =
                n_have > 0 && have[n_have - 1].n_tokens < PAGE_TOKENS ? n_have - 1 : n_have;
        uint32_t first = n_full * PAGE_TOKENS, tokens[PAGE_TOKENS], pages[MAX_PAGES], n_new;
        uint8_t root[KVL_KEY_BYTES], keys[MAX_PAGES * KVL_KEY_BYTES];
        const uint8_t *parent = n_full > 0 ? have[n_full - 1].key : root;
        struct kvl_publish publish = {.size = sizeof(publish), .pages = pages, .keys = keys};
        int r;

        kvl_key_root(layout, root);
        n_new = (text->n - first + PAGE_TOKENS - 1) / PAGE_TOKENS;
        if (kvl_lease(ns, 0, n_new, pages) != 0)
                die("leasing pages");
        /* A published page is read-only: its copy is extended. */
        if (n_full < n_have && kvl_page_copy(ns, have[n_full].page, pages[0]) < 0)
                die("copying the last page");
        for (uint32_t i = 0; i < n_new; i++) {
                uint32_t at = first + i * PAGE_TOKENS,
                         begin = i == 0 && n_full < n_have ? have[n_full].n_tokens : 0;
                uint32_t end = text->n - at < PAGE_TOKENS ? text->n - at : PAGE_TOKENS;

                if (kvl_page_write(
                            ns, pages[i], 0, begin, text->letters + at + begin, end - begin) < 0)
                        die("writing a page");
                for (uint32_t j = 0; j < end; j++)
                        tokens[j] = text->letters[at + j];
                kvl_key_chain(parent, tokens, end, keys + i * KVL_KEY_BYTES);
                parent = keys + i * KVL_KEY_BYTES;
                publish.last_tokens = end;
        }
        publish.n_pages = n_new;
        publish.parent_key = n_full > 0 ? have[n_full - 1].key : NULL;
        publish.session = session;
        r = kvl_publish(ns, &publish, NULL, NULL);
        if (r != 0 && r != KVL_DUPLICATE)
                die("publishing");
}

int main(int argc, char **argv)
{
        struct kvl_layout layout = {sizeof(layout), "session", "1", KVL_DTYPE_OTHER, .n_layers = 1,
                .n_kv_heads = 1, .head_size = 64, .page_tokens = PAGE_TOKENS, .n_planes = 1,
                .plane_page_bytes = 4096, .tp_size = 1};
        static struct kvl_session_page pages[MAX_PAGES];
        int dies = argc > 1 && strcmp(argv[1], "--die") == 0;
        const struct kvl_session_options options = {.size = sizeof(options), .load_msec = 200};
        struct kvl_session_info info = {.size = sizeof(info)};
        struct kvl_session *session;
        static struct text text;
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint32_t n_pages = 0;
        size_t len;
        int r;

        if (argc != 3 + dies)
                return fprintf(stderr, "usage: session [--die] ID TEXT\n"), 2;
        argv += dies;
        if (kvl_connect(NULL, &conn) || kvl_ns_open(conn, "session", &layout, NULL, 0, &ns))
                die("connecting");
        /* If hosts share their pages, it continues a turn of another host. */
        if (kvl_session_open(ns, argv[1], strlen(argv[1]), &options, &info, &session) != 0)
                die("opening the session");
        r = kvl_session_pages(session, 0, MAX_PAGES, pages, &n_pages);
        if (r != 0 && r != KVL_MISS)
                die("finding its pages");
        read_pages(ns, pages, n_pages, &text);
        printf("%s: %u pages with %u tokens are cached, %llu tokens were lost: \"%.*s\"\n",
                info.is_new ? "begins" : "resumes", n_pages, text.n,
                (unsigned long long)info.lost_tokens, (int)text.n, (const char *)text.letters);
        len = strlen(argv[2]);
        if (len == 0 || len > sizeof(text.letters) - text.n)
                return fprintf(stderr, "session: no text, or too much\n"), 2;
        memcpy(text.letters + text.n, argv[2], len);
        text.n += (uint32_t)len;
        append(ns, session, &layout, pages, n_pages, &text);
        kvl_session_hint(session, KVL_HINT_CONTINUES, 0);
        printf("published up to token %u\n", text.n);
        fflush(stdout);
        if (dies)
                raise(SIGKILL); /* published pages stay, and the session knows them */
        kvl_disconnect(conn);
        return 0;
}
