/* Finds a page of KV cache, or makes it: the second run finds what the first one wrote. */
#include <kvlease.h>
#include <stdio.h>

int main(void)
{
        struct kvl_layout layout = {sizeof(layout), "hello", "1", KVL_DTYPE_F16, .n_layers = 1,
                .n_kv_heads = 1, .head_size = 64, .page_tokens = 16, .n_planes = 1,
                .plane_page_bytes = 4096, .tp_size = 1};
        uint32_t tokens[16] = {'H', 'e', 'l', 'l', 'o'}, page, n_pages;
        uint8_t root[KVL_KEY_BYTES], key[KVL_KEY_BYTES];
        struct kvl_publish publish = {sizeof(publish), &page, key, .n_pages = 1, .last_tokens = 16};
        char kv[64] = "what attention computed for them";
        struct kvl_conn *conn;
        struct kvl_ns *ns;
        uint64_t n_tokens;

        if (kvl_connect(NULL, &conn) || kvl_ns_open(conn, "hello", &layout, NULL, 0, &ns))
                return fprintf(stderr, "hello: %s\n", kvl_last_error()), 1;
        kvl_key_root(&layout, root);
        kvl_key_chain(root, tokens, 16, key); /* names these 16 tokens and all before them */
        if (kvl_lookup(ns, 0, key, 1, &page, &n_pages, &n_tokens) == 0) {
                kvl_page_read(ns, page, 0, 0, kv, sizeof(kv)); /* kernels use kvl_page_ptr() */
                printf("found page %u: %s\n", page, kv);
        } else if (kvl_lease(ns, 0, 1, &page) == 0) {
                kvl_page_write(ns, page, 0, 0, kv, sizeof(kv));
                printf("publish: %s\n", kvl_strerror(kvl_publish(ns, &publish, NULL, NULL)));
        } else {
                fprintf(stderr, "hello: %s\n", kvl_last_error());
        }
        kvl_disconnect(conn); /* what it pinned ends, what it published stays */
        return 0;
}
