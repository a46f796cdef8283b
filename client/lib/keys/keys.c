/* Layouts and the keys made from them. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/macros.h"
#include "base/parse.h"
#include "client/lib/connection/error.h"
#include "client/lib/keys/layout.h"
#include "client/lib/keys/page-keys.h"
#include "client/lib/objects/args.h"

/* Limits of the protocol. */
#define TEXT_MAX             128
#define SALT_MAX             64
#define FORMAT_MAX           64
#define PAGE_TOKENS_MAX      1024
#define PLANES_MAX           1024
#define TP_MAX               1024
#define PLANE_PAGE_ALIGNMENT 64

/* ---- layouts -----------------------------------------------------------------------------------
 */

static int check_range(const char *field, uint64_t value, uint64_t min, uint64_t max)
{
        if (value >= min && value <= max)
                return 0;
        return error_set(-EINVAL, "layout: %s is %llu, must be %llu to %llu", field,
                (unsigned long long)value, (unsigned long long)min, (unsigned long long)max);
}

static int check_layout(const struct kvl_layout *l)
{
        const struct {
                const char *field;
                uint64_t value, min, max;
        } rows[] = {
                {"the length of model", l->model ? strlen(l->model) : 0, 1, TEXT_MAX},
                {"the length of version", strlen(l->version), 0, TEXT_MAX},
                {"dtype", (uint64_t)l->dtype, 1, KVL_DTYPE_OTHER},
                {"n_layers", l->n_layers, 1, UINT32_MAX},
                {"n_kv_heads", l->n_kv_heads, 1, UINT32_MAX},
                {"head_size", l->head_size, 1, UINT32_MAX},
                {"page_tokens", l->page_tokens, 1, PAGE_TOKENS_MAX},
                {"n_planes", l->n_planes, 1, PLANES_MAX},
                {"plane_page_bytes", l->plane_page_bytes, 1, INT64_MAX},
                {"tp_size", l->tp_size, 1, TP_MAX},
                {"salt_bytes", l->salt_bytes, 0, SALT_MAX},
                {"format_bytes", l->format_bytes, 0, FORMAT_MAX},
        };
        int r = 0;

        for (size_t i = 0; i < ARRAY_SIZE(rows) && r == 0; i++)
                r = check_range(rows[i].field, rows[i].value, rows[i].min, rows[i].max);
        if (r < 0)
                return r;
        if (l->plane_page_bytes % PLANE_PAGE_ALIGNMENT != 0)
                return error_set(-EINVAL,
                        "layout: plane_page_bytes is %llu, must be a multiple of %d",
                        (unsigned long long)l->plane_page_bytes, PLANE_PAGE_ALIGNMENT);
        if (l->salt_bytes > 0 && !l->salt)
                return error_set(-EINVAL, "layout: salt_bytes is set, but no salt");
        if (l->format_bytes > 0 && !l->format)
                return error_set(-EINVAL, "layout: format_bytes is set, but no format");
        return check_range("tp_rank", l->tp_rank, 0, l->tp_size - 1);
}

int layout_copy(const struct kvl_layout *layout, struct kvl_layout *ret_layout)
{
        struct kvl_layout l;
        int r;

        if (!layout)
                return error_set(-EINVAL, "no layout was given");
        r = abi_copy(&l, sizeof(l), layout);
        if (r < 0)
                return r;
        if (!l.version)
                l.version = "";
        /* A zeroed struct says 0 of 0: no tensor parallelism. */
        if (l.tp_size == 0 && l.tp_rank == 0)
                l.tp_size = 1;
        r = check_layout(&l);
        if (r == 0)
                *ret_layout = l;
        return r;
}

/* ---- keys --------------------------------------------------------------------------------------
 */

/* The hash input is a list of fields, each with a tag of one byte, a length of four (little-endian)
 * and that many bytes. So no two lists have the same encoding. The first field names the kind of
 * key. Tags and order never change: keys are compared between versions of this library. */
enum key_tag {
        TAG_DOMAIN = 0,
        TAG_MODEL = 1,
        TAG_VERSION = 2,
        TAG_DTYPE = 3,
        TAG_N_LAYERS = 4,
        TAG_N_KV_HEADS = 5,
        TAG_HEAD_SIZE = 6,
        TAG_PAGE_TOKENS = 7,
        TAG_TP_RANK = 8,
        TAG_TP_SIZE = 9,
        TAG_LAYER_GROUP = 10,
        TAG_SALT = 11,
        /* 12 and 13 were used by chain keys 1. */
        TAG_FORMAT = 14,
        TAG_N_PLANES = 15,
        TAG_PLANE_PAGE_BYTES = 16,
};

#define ROOT_DOMAIN "kvlease root key 1"
#define NAME_DOMAIN "kvlease layout name 1"

#define FIELD_HEAD_BYTES 5

struct fields {
        size_t len;
        uint8_t bytes[1024]; /* of a layout: check_layout() limits its strings */
};
static_assert((TAG_PLANE_PAGE_BYTES + 1) * (FIELD_HEAD_BYTES + sizeof(uint64_t)) +
                              sizeof(ROOT_DOMAIN) + sizeof(NAME_DOMAIN) + 2 * TEXT_MAX + SALT_MAX +
                              FORMAT_MAX <=
                      sizeof(((struct fields *)0)->bytes),
        "room for all fields, each once");

/* Adds a field's head. Returns where its bytes go. */
static uint8_t *add_field(struct fields *f, enum key_tag tag, size_t len)
{
        uint32_t le_len = htole32((uint32_t)len);
        uint8_t *at = f->bytes + f->len;

        at[0] = (uint8_t)tag;
        memcpy(at + 1, &le_len, sizeof(le_len));
        f->len += FIELD_HEAD_BYTES + len;
        return at + FIELD_HEAD_BYTES;
}

static void add_bytes(struct fields *f, enum key_tag tag, const void *bytes, size_t len)
{
        uint8_t *at = add_field(f, tag, len);

        if (len > 0)
                memcpy(at, bytes, len);
}

static void add_u32(struct fields *f, enum key_tag tag, uint32_t value)
{
        value = htole32(value);
        add_bytes(f, tag, &value, sizeof(value));
}

static int hash_fields(const struct fields *f, uint8_t ret_key[KVL_KEY_BYTES])
{
        uint8_t digest[EVP_MAX_MD_SIZE];
        unsigned len = 0;

        if (EVP_Digest(f->bytes, f->len, digest, &len, EVP_sha256(), NULL) != 1 ||
                len != KVL_KEY_BYTES)
                return error_set(-EIO, "libcrypto couldn't compute a SHA-256");
        memcpy(ret_key, digest, KVL_KEY_BYTES);
        return 0;
}

int group_token_of(
        const void *secret, size_t secret_bytes, uint8_t ret_token[KVL_GROUP_TOKEN_BYTES])
{
        static const char domain[] = "kvlease group secret 1"; /* hashed with its NUL */
        uint8_t digest[EVP_MAX_MD_SIZE];
        EVP_MD_CTX *md = EVP_MD_CTX_new();
        unsigned len = 0;
        bool done = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1 &&
                    EVP_DigestUpdate(md, domain, sizeof(domain)) == 1 &&
                    EVP_DigestUpdate(md, secret, secret_bytes) == 1 &&
                    EVP_DigestFinal_ex(md, digest, &len) == 1 && len == KVL_KEY_BYTES;

        EVP_MD_CTX_free(md);
        if (!done)
                return error_set(-EIO, "libcrypto couldn't compute a SHA-256");
        memcpy(ret_token, digest, KVL_GROUP_TOKEN_BYTES);
        return 0;
}

/* Adds the fields that keys and names of layouts share. version NULL: without it. */
static void add_layout(struct fields *f, const struct kvl_layout *l, const char *version)
{
        add_bytes(f, TAG_MODEL, l->model, strlen(l->model));
        if (version)
                add_bytes(f, TAG_VERSION, version, strlen(version));
        add_u32(f, TAG_DTYPE, l->dtype);
        add_u32(f, TAG_N_LAYERS, l->n_layers);
        add_u32(f, TAG_N_KV_HEADS, l->n_kv_heads);
        add_u32(f, TAG_HEAD_SIZE, l->head_size);
        add_u32(f, TAG_PAGE_TOKENS, l->page_tokens);
        add_u32(f, TAG_TP_RANK, l->tp_rank);
        add_u32(f, TAG_TP_SIZE, l->tp_size);
        add_u32(f, TAG_LAYER_GROUP, l->layer_group);
        add_bytes(f, TAG_SALT, l->salt, l->salt_bytes);
        /* Newer than the others: without it a key is the same as before formats existed. */
        if (l->format_bytes > 0)
                add_bytes(f, TAG_FORMAT, l->format, l->format_bytes);
}

int kvl_key_root(const struct kvl_layout *layout, uint8_t ret_key[KVL_KEY_BYTES])
{
        struct kvl_layout l;
        struct fields f;
        int r;

        if (!ret_key)
                return error_set(-EINVAL, "there is no room for the key");
        r = layout_copy(layout, &l);
        if (r < 0)
                return r;
        f.len = 0;
        add_bytes(&f, TAG_DOMAIN, ROOT_DOMAIN, strlen(ROOT_DOMAIN));
        /* Without the planes: a page's place in memory doesn't change its contents. */
        add_layout(&f, &l, l.version);
        return hash_fields(&f, ret_key);
}

#define NAME_HASH_BYTES 6
#define NAME_MODEL_MAX  (KVL_NS_NAME_BYTES - 1 - 1 - 2 * NAME_HASH_BYTES)

int layout_name(const struct kvl_layout *l, char ret_name[KVL_NS_NAME_BYTES])
{
        uint64_t le_bytes = htole64(l->plane_page_bytes);
        uint8_t digest[KVL_KEY_BYTES];
        struct fields f = {.len = 0};
        size_t n = MIN(strlen(l->model), (size_t)NAME_MODEL_MAX);
        int r;

        add_bytes(&f, TAG_DOMAIN, NAME_DOMAIN, strlen(NAME_DOMAIN));
        add_layout(&f, l, NULL);
        add_u32(&f, TAG_N_PLANES, l->n_planes);
        add_bytes(&f, TAG_PLANE_PAGE_BYTES, &le_bytes, sizeof(le_bytes));
        r = hash_fields(&f, digest);
        if (r < 0)
                return r;
        for (size_t i = 0; i < n; i++)
                ret_name[i] = is_name_char(l->model[i]) ? l->model[i] : '_';
        if (ret_name[0] == '.' || ret_name[0] == '-')
                ret_name[0] = '_';
        ret_name[n] = '@';
        format_hex(digest, NAME_HASH_BYTES, ret_name + n + 1);
        return 0;
}

int kvl_layout_name(const struct kvl_layout *layout, char ret_name[KVL_NS_NAME_BYTES])
{
        struct kvl_layout l;
        int r;

        if (!ret_name)
                return error_set(-EINVAL, "there is no room for the name");
        r = layout_copy(layout, &l);
        return r < 0 ? r : layout_name(&l, ret_name);
}

int keys_check_page_tokens(uint32_t page_tokens)
{
        if (page_tokens > 0 && page_tokens <= PAGE_TOKENS_MAX)
                return 0;
        return error_set(
                -EINVAL, "a page holds 1 to %d tokens, not %u", PAGE_TOKENS_MAX, page_tokens);
}

int keys_check(
        const uint8_t *parent, const uint32_t *tokens, uint32_t n_tokens, const uint8_t *ret_keys)
{
        if (parent && (n_tokens == 0 || (tokens && ret_keys)))
                return 0;
        return error_set(-EINVAL, "a parent key, tokens and room for the keys are needed");
}

int kvl_keys(const uint8_t parent[KVL_KEY_BYTES], const uint32_t *tokens, uint32_t n_tokens,
        uint32_t page_tokens, uint8_t *ret_keys)
{
        int r = keys_check(parent, tokens, n_tokens, ret_keys);

        if (r == 0)
                r = keys_check_page_tokens(page_tokens);
        if (r == 0 && n_tokens > 0)
                page_keys(page_keys_fastest(n_tokens), parent, tokens, n_tokens, page_tokens,
                        ret_keys);
        return r;
}

int kvl_key_chain(const uint8_t parent[KVL_KEY_BYTES], const uint32_t *tokens, uint32_t n_tokens,
        uint8_t ret_key[KVL_KEY_BYTES])
{
        return kvl_keys(parent, tokens, n_tokens, n_tokens, ret_key);
}
