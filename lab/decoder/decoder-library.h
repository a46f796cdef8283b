/* A library of one namespace that the test plays for the decoder: a part of the test, after `lib`
 * (with use, pins and keys of CAPACITY pages), PAGE_TOKENS and injected(). */
#ifndef KVL_TESTS_DECODER_LIBRARY_H
#define KVL_TESTS_DECODER_LIBRARY_H

static int find_key(const uint8_t *key)
{
        for (int i = 0; i < CAPACITY; i++)
                if (lib.use[i] == USE_CACHED && memcmp(lib.keys[i], key, KVL_KEY_BYTES) == 0)
                        return i;
        return -1;
}

int kvl_lookup(struct kvl_ns *ns, uint64_t request, const uint8_t *wanted, uint32_t n_keys,
        uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens)
{
        uint32_t n = 0;
        int r = injected("lookup"), page;

        if (r)
                return r;
        while (n < n_keys && (page = find_key(wanted + (size_t)n * KVL_KEY_BYTES)) >= 0) {
                lib.pins[page]++;
                ret_pages[n++] = (uint32_t)page;
        }
        if (n == 0)
                return KVL_MISS;
        *ret_n_pages = n;
        *ret_n_tokens = (uint64_t)n * PAGE_TOKENS;
        return 0;
}

int kvl_lease(struct kvl_ns *ns, uint64_t request, uint32_t n_pages, uint32_t *ret_pages)
{
        int r = injected("lease");

        assert_int_equal(n_pages, 1);
        if (r)
                return r;
        for (uint32_t i = CAPACITY; i-- > 0;) {
                if (lib.use[i] != USE_FREE)
                        continue;
                lib.use[i] = USE_LEASED;
                *ret_pages = i;
                return 0;
        }
        return KVL_FULL;
}

/* Publishes a page for kvl_publish(), which has checked its arguments. */
static int publish_page(const struct kvl_publish *publish, uint32_t *ret_pages)
{
        int theirs = find_key(publish->keys);
        uint32_t page = publish->pages[0];

        if (theirs >= 0) {
                lib.pins[theirs]++;
                ret_pages[0] = (uint32_t)theirs;
                return KVL_DUPLICATE;
        }
        lib.use[page] = USE_CACHED;
        lib.pins[page] = 1;
        memcpy(lib.keys[page], publish->keys, KVL_KEY_BYTES);
        ret_pages[0] = page;
        return 0;
}

int kvl_release(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        for (uint32_t i = 0; i < n_pages; i++)
                assert_true(lib.pins[pages[i]]-- > 0);
        return injected("release");
}

int kvl_free(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages)
{
        for (uint32_t i = 0; i < n_pages; i++) {
                assert_int_equal(lib.use[pages[i]], USE_LEASED);
                lib.use[pages[i]] = USE_FREE;
        }
        return injected("free");
}

#endif
