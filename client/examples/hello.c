/* Finds a page of KV cache, or makes it. Run it twice: the second finds what the first wrote. */
#include <kvlease.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct kvl_layout layout = {
        .size = sizeof(layout),
        .model = "hello",
        .version = "1",
        .dtype = KVL_DTYPE_F16,
        .n_layers = 1,
        .n_kv_heads = 1,
        .head_size = 64,
        .page_tokens = 16,
        .n_planes = 1,
        .plane_page_bytes = 4096, /* K and V of 16 tokens, 64 halves each */
        .tp_size = 1,
};

static void must(int r)
{
        if (r != 0) {
                fprintf(stderr, "hello: %s\n", kvl_last_error());
                exit(1);
        }
}

int main(void)
{
        uint32_t tokens[16] = {'H', 'e', 'l', 'l', 'o'}, page, n_pages;
        uint8_t root[KVL_KEY_BYTES], key[KVL_KEY_BYTES];
        struct kvl_publish publish = {sizeof(publish), &page, key, 1, NULL, 16, 0};
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint64_t n_tokens;

        must(kvl_connect(NULL, &conn)); /* to $KVLEASE_SOCKET */
        must(kvl_ns_open(conn, "hello", &layout, NULL, 0, &ns));
        must(kvl_key_root(&layout, root));
        must(kvl_key_chain(root, tokens, 16, key));

        if (kvl_lookup(ns, 0, key, 1, &page, &n_pages, &n_tokens) == 0) {
                printf("found page %u: %s\n", page, (char *)kvl_page_ptr(ns, page, 0));
        } else {
                must(kvl_lease(ns, 0, 1, &page));
                strcpy(kvl_page_ptr(ns, page, 0), "what attention computed for these 16 tokens");
                must(kvl_publish(ns, &publish, NULL, NULL));
                printf("published page %u\n", page);
        }
        must(kvl_release(ns, &page, 1));
        kvl_disconnect(conn);
        return 0;
}
