/*
 * The other side of the foreign client's tests: what libkvlease makes of the same words.
 *
 *   foreign-peer keys FIELD=VALUE... TOKEN...   the layout's name; root key and the chain's keys,
 * in hex, a line each foreign-peer publish SOCKET NAME TOKEN...   leases, writes and publishes a
 * text foreign-peer lookup SOCKET NAME TOKEN...    tokens found; each page's bytes in hex, a line
 * each
 *
 * The namespace's layout is that of shared_layout; a page's bytes follow from its key.
 */
#include <kvlease.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOKENS 4096
#define MAX_PAGES  256
#define PLANES     2
#define PAGE_BYTES 4096

struct text {
        struct kvl_layout layout;
        uint32_t tokens[MAX_TOKENS], n_tokens, n_pages;
        uint8_t root[KVL_KEY_BYTES], keys[MAX_PAGES][KVL_KEY_BYTES];
};

static const struct kvl_layout shared_layout = {
        .size = sizeof(shared_layout),
        .model = "foreign-model",
        .version = "r1",
        .dtype = KVL_DTYPE_BF16,
        .n_layers = 4,
        .n_kv_heads = 2,
        .head_size = 32,
        .page_tokens = 16,
        .n_planes = PLANES,
        .plane_page_bytes = PAGE_BYTES,
        .tp_size = 1,
        .salt = "pepper",
        .salt_bytes = 6,
};

static int fail(const char *what)
{
        fprintf(stderr, "%s: %s\n", what, kvl_last_error());
        return 1;
}

static void set_field(struct kvl_layout *l, const char *name, char *value)
{
        const struct {
                const char *name;
                uint32_t *to;
        } numbers[] = {
                {"n_layers", &l->n_layers},
                {"n_kv_heads", &l->n_kv_heads},
                {"head_size", &l->head_size},
                {"page_tokens", &l->page_tokens},
                {"n_planes", &l->n_planes},
                {"tp_rank", &l->tp_rank},
                {"tp_size", &l->tp_size},
                {"layer_group", &l->layer_group},
        };

        for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); ++i)
                if (strcmp(name, numbers[i].name) == 0)
                        *numbers[i].to = (uint32_t)strtoul(value, NULL, 10);
        if (strcmp(name, "dtype") == 0)
                l->dtype = (enum kvl_dtype)strtoul(value, NULL, 10);
        if (strcmp(name, "model") == 0)
                l->model = value;
        if (strcmp(name, "version") == 0)
                l->version = value;
        if (strcmp(name, "salt") == 0) {
                l->salt = value;
                l->salt_bytes = (uint32_t)strlen(value);
        }
        if (strcmp(name, "format") == 0) {
                l->format = value;
                l->format_bytes = strlen(value);
        }
}

/* Words with a "=" are of the layout, the others are tokens. 0 or 1. */
static int read_text(struct text *t, char **words, int n_words)
{
        t->layout = shared_layout;
        for (int i = 0; i < n_words; ++i) {
                char *value = strchr(words[i], '=');

                if (value) {
                        *value = '\0';
                        set_field(&t->layout, words[i], value + 1);
                } else if (t->n_tokens < MAX_TOKENS) {
                        t->tokens[t->n_tokens++] = (uint32_t)strtoul(words[i], NULL, 10);
                }
        }
        if (kvl_key_root(&t->layout, t->root) < 0)
                return fail("kvl_key_root");
        t->n_pages = (t->n_tokens + t->layout.page_tokens - 1) / t->layout.page_tokens;
        if (t->n_pages > MAX_PAGES)
                return fail("more pages than there is room for");
        if (kvl_keys(t->root, t->tokens, t->n_tokens, t->layout.page_tokens, t->keys[0]) < 0)
                return fail("kvl_keys");
        return 0;
}

static void print_key(const uint8_t *key)
{
        for (unsigned i = 0; i < KVL_KEY_BYTES; ++i)
                printf("%02x", key[i]);
        printf("\n");
}

static int print_keys(const struct text *t)
{
        char name[KVL_NS_NAME_BYTES];

        if (kvl_layout_name(&t->layout, name) < 0)
                return fail("kvl_layout_name");
        printf("%s\n", name);
        print_key(t->root);
        for (uint32_t i = 0; i < t->n_pages; ++i)
                print_key(t->keys[i]);
        return 0;
}

/* The key's bytes over and over, each with the plane's number added. */
static void page_bytes(const uint8_t *key, unsigned plane, uint8_t ret_bytes[PAGE_BYTES])
{
        for (unsigned i = 0; i < PAGE_BYTES; ++i)
                ret_bytes[i] = (uint8_t)(key[i % KVL_KEY_BYTES] + plane);
}

static int publish_text(struct kvl_ns *ns, const struct text *t)
{
        uint32_t pages[MAX_PAGES], last = t->n_tokens % t->layout.page_tokens;
        struct kvl_publish publish = {
                .size = sizeof(publish),
                .pages = pages,
                .keys = t->keys[0],
                .n_pages = t->n_pages,
                .last_tokens = last ? last : t->layout.page_tokens,
        };
        uint8_t bytes[PAGE_BYTES];
        int r = kvl_lease(ns, 0, t->n_pages, pages);

        if (r != 0)
                return fail("kvl_lease");
        for (uint32_t i = 0; i < t->n_pages; ++i)
                for (unsigned p = 0; p < PLANES; ++p) {
                        page_bytes(t->keys[i], p, bytes);
                        if (kvl_page_write(ns, pages[i], p, 0, bytes, sizeof(bytes)) != 0)
                                return fail("kvl_page_write");
                }
        r = kvl_publish(ns, &publish, NULL, NULL);
        return r == 0 ? 0 : fail("kvl_publish");
}

static int print_found(struct kvl_ns *ns, const struct text *t)
{
        uint32_t pages[MAX_PAGES], n_pages = 0;
        uint8_t bytes[PAGE_BYTES];
        uint64_t n_tokens = 0;
        int r = kvl_lookup(ns, 0, t->keys[0], t->n_pages, pages, &n_pages, &n_tokens);

        if (r != 0 && r != KVL_MISS)
                return fail("kvl_lookup");
        printf("%llu\n", (unsigned long long)n_tokens);
        for (uint32_t i = 0; i < n_pages; ++i) {
                for (unsigned p = 0; p < PLANES; ++p) {
                        if (kvl_page_read(ns, pages[i], p, 0, bytes, sizeof(bytes)) != 0)
                                return fail("kvl_page_read");
                        for (unsigned j = 0; j < sizeof(bytes); ++j)
                                printf("%02x", bytes[j]);
                }
                printf("\n");
        }
        return 0;
}

static int talk(const char *what, const char *path, const char *name, const struct text *t)
{
        const struct kvl_connect_options o = {
                .size = sizeof(o), .socket_path = path, .client_name = "foreign-peer"};
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        int r;

        if (kvl_connect(&o, &conn) != 0)
                return fail("kvl_connect");
        if (kvl_ns_open(conn, name, &t->layout, NULL, 0, &ns) != 0)
                return fail("kvl_ns_open");
        r = strcmp(what, "publish") == 0 ? publish_text(ns, t) : print_found(ns, t);
        kvl_disconnect(conn);
        return r;
}

int main(int argc, char **argv)
{
        static struct text t;
        int first = argc > 1 && strcmp(argv[1], "keys") == 0 ? 2 : 4;

        if (argc < first) {
                fprintf(stderr, "usage: foreign-peer keys|publish|lookup ...\n");
                return 2;
        }
        if (read_text(&t, argv + first, argc - first) != 0)
                return 1;
        return first == 2 ? print_keys(&t) : talk(argv[1], argv[2], argv[3], &t);
}
