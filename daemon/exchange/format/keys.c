#include "daemon/exchange/format/keys.h"

#include <assert.h>
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"

/* ---- hashed messages ------------------------------------------------------------------------- */

#define MESSAGE_FIELDS_MAX 12

/* Fields in sequence, each with its length before it, so that different fields have different
 * bytes. Numbers are little-endian, as in the envelope. */
struct message {
        size_t n;
        bool is_full;
        uint8_t bytes[EXCHANGE_TEXTS_MAX + TENANT_NAME_MAX + MESSAGE_FIELDS_MAX * 8 + 128];
};

static void message_add(struct message *m, const void *field, size_t n)
{
        const uint64_t len = n;

        if (m->is_full || n > sizeof(m->bytes) - m->n ||
                sizeof(len) > sizeof(m->bytes) - m->n - n) {
                m->is_full = true;
                return;
        }
        memcpy(m->bytes + m->n, &len, sizeof(len));
        if (n > 0)
                memcpy(m->bytes + m->n + sizeof(len), field, n);
        m->n += sizeof(len) + n;
}

static void message_add_text(struct message *m, const char *text)
{
        message_add(m, text, text ? strlen(text) : 0);
}

static void message_add_number(struct message *m, uint64_t number)
{
        message_add(m, &number, sizeof(number));
}

/* Begins a hash with its purpose, so that places of different kinds never collide. */
static void message_begin(struct message *m, const char *kind)
{
        m->n = 0;
        m->is_full = false;
        message_add_text(m, kind);
}

static int message_hmac(
        const struct message *m, const uint8_t *key, size_t key_len, uint8_t ret_hmac[32])
{
        assert(!m->is_full);
        return HMAC(EVP_sha256(), key, (int)key_len, m->bytes, m->n, ret_hmac, NULL) ? 0 : -ENOMEM;
}

/* ---- identities ------------------------------------------------------------------------------ */

static size_t texts_len(const struct exchange_model *m)
{
        const char *const texts[] = {m->scope, m->model, m->version, m->codecs};
        size_t n = 0;

        for (unsigned i = 0; i < ARRAY_SIZE(texts); i++)
                n += texts[i] ? strlen(texts[i]) : 0;
        return n;
}

int exchange_identify(const struct exchange_tenant *t, const struct exchange_model *m,
        uint8_t ret_id[EXCHANGE_ID_BYTES])
{
        const uint64_t numbers[] = {m->dtype, m->n_layers, m->n_kv_heads, m->head_size,
                m->page_tokens, m->n_planes, m->plane_page_bytes, m->tp_size, m->layer_group};
        const size_t texts = texts_len(m);
        struct message message;

        if (texts > EXCHANGE_TEXTS_MAX || m->salt_len > EXCHANGE_TEXTS_MAX - texts ||
                m->format_len > EXCHANGE_TEXTS_MAX - texts - m->salt_len)
                return -ENAMETOOLONG;
        message_begin(&message, "kvl:1 identity");
        message_add_text(&message, t->name);
        message_add_text(&message, m->scope);
        message_add_text(&message, m->model);
        message_add_text(&message, m->version);
        message_add(&message, numbers, sizeof(numbers));
        message_add_text(&message, m->codecs);
        message_add(&message, m->salt, m->salt_len);
        message_add(&message, m->format, m->format_len);
        assert(!message.is_full);
        return EVP_Digest(message.bytes, message.n, ret_id, NULL, EVP_sha256(), NULL) ? 0 : -ENOMEM;
}

/* ---- places and names ------------------------------------------------------------------------ */

static int place_of(const struct exchange_tenant *t, const struct message *m,
        uint8_t ret_place[EXCHANGE_PLACE_BYTES])
{
        return message_hmac(m, t->secret, t->secret_len, ret_place);
}

int exchange_member_number(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        uint32_t rank, uint32_t *ret_number)
{
        uint8_t hmac[EXCHANGE_PLACE_BYTES];
        struct message m;
        int r;

        message_begin(&m, "kvl:1 member");
        message_add(&m, id, EXCHANGE_ID_BYTES);
        message_add_number(&m, rank);
        r = place_of(t, &m, hmac);
        if (r < 0)
                return r;
        memcpy(ret_number, hmac, sizeof(*ret_number));
        return 0;
}

int exchange_page_place(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        uint64_t epoch, const uint8_t key[EXCHANGE_KEY_BYTES],
        uint8_t ret_place[EXCHANGE_PLACE_BYTES])
{
        struct message m;

        message_begin(&m, "kvl:1 page");
        message_add(&m, id, EXCHANGE_ID_BYTES);
        message_add_number(&m, epoch);
        message_add(&m, key, EXCHANGE_KEY_BYTES);
        return place_of(t, &m, ret_place);
}

static size_t name_of(const struct exchange_tenant *t, const uint8_t place[EXCHANGE_PLACE_BYTES],
        const char *end, char buf[EXCHANGE_NAME_MAX])
{
        char hex[2 * EXCHANGE_PLACE_BYTES + 1];
        int n = snprintf(buf, EXCHANGE_NAME_MAX, "kvl:1:%s:{%s}:%s", t->name,
                format_hex(place, EXCHANGE_PLACE_BYTES, hex), end);

        assert(n > 0 && (size_t)n < EXCHANGE_NAME_MAX);
        return (size_t)n;
}

size_t exchange_page_name(const struct exchange_tenant *t,
        const uint8_t place[EXCHANGE_PLACE_BYTES], uint32_t part, char buf[EXCHANGE_NAME_MAX])
{
        (void)name_of(t, place, "", buf);
        return exchange_page_rename(buf, part);
}

size_t exchange_page_rename(char name[EXCHANGE_NAME_MAX], uint32_t part)
{
        char *end = strrchr(name, ':') + 1;
        size_t before = (size_t)(end - name);
        int n = snprintf(end, EXCHANGE_NAME_MAX - before, "%u", (unsigned)part);

        assert(n > 0 && (size_t)n < EXCHANGE_NAME_MAX - before);
        return before + (size_t)n;
}

int exchange_epoch_name(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        char buf[EXCHANGE_NAME_MAX])
{
        uint8_t place[EXCHANGE_PLACE_BYTES];
        struct message m;
        int r;

        message_begin(&m, "kvl:1 epoch");
        message_add(&m, id, EXCHANGE_ID_BYTES);
        r = place_of(t, &m, place);
        if (r == 0)
                (void)name_of(t, place, "epoch", buf);
        return r;
}

int exchange_change_name(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        uint64_t epoch, uint8_t ret_place[EXCHANGE_PLACE_BYTES], char buf[EXCHANGE_NAME_MAX])
{
        struct message m;
        int r;

        message_begin(&m, "kvl:1 change");
        message_add(&m, id, EXCHANGE_ID_BYTES);
        message_add_number(&m, epoch);
        r = place_of(t, &m, ret_place);
        if (r == 0)
                (void)name_of(t, ret_place, "change", buf);
        return r;
}

int exchange_session_place(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        const void *session, size_t session_len, uint8_t ret_place[EXCHANGE_PLACE_BYTES])
{
        struct message m;

        if (session_len == 0 || session_len > EXCHANGE_SESSION_MAX)
                return -EINVAL;
        message_begin(&m, "kvl:1 session");
        message_add(&m, id, EXCHANGE_ID_BYTES);
        message_add(&m, session, session_len);
        return place_of(t, &m, ret_place);
}

int exchange_session_name(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        const void *session, size_t session_len, char buf[EXCHANGE_NAME_MAX])
{
        uint8_t place[EXCHANGE_PLACE_BYTES];
        int r = exchange_session_place(t, id, session, session_len, place);

        if (r == 0)
                (void)name_of(t, place, "session", buf);
        return r;
}

/* ---- keys that seal -------------------------------------------------------------------------- */

static int derive_key(
        const struct exchange_tenant *t, const struct message *info, uint8_t ret_key[32])
{
        static char salt[] = "kvl:1 seal", digest[] = "SHA256";
        const OSSL_PARAM params[] = {
                OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
                OSSL_PARAM_construct_octet_string(
                        OSSL_KDF_PARAM_KEY, (void *)t->secret, t->secret_len),
                OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, sizeof(salt) - 1),
                OSSL_PARAM_construct_octet_string(
                        OSSL_KDF_PARAM_INFO, (void *)info->bytes, info->n),
                OSSL_PARAM_construct_end(),
        };
        EVP_KDF *hkdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
        EVP_KDF_CTX *context = hkdf ? EVP_KDF_CTX_new(hkdf) : NULL;
        int r = context && EVP_KDF_derive(context, ret_key, 32, params) > 0 ? 0 : -ENOMEM;

        EVP_KDF_CTX_free(context);
        EVP_KDF_free(hkdf);
        return r;
}

int exchange_seal_key(const struct exchange_tenant *t, uint64_t epoch, struct seal_key *ret_key)
{
        struct message info;

        if (t->secret_len == 0)
                return -EINVAL;
        message_begin(&info, "kvl:1 seal");
        message_add_text(&info, t->name);
        message_add_number(&info, epoch);
        return derive_key(t, &info, ret_key->bytes);
}

int exchange_page_key(const struct seal_key *k, const uint8_t id[EXCHANGE_ID_BYTES], uint32_t rank,
        const uint8_t key[EXCHANGE_KEY_BYTES], uint8_t ret_key[32])
{
        struct message m;

        message_begin(&m, "kvl:1 seal page");
        message_add(&m, id, EXCHANGE_ID_BYTES);
        message_add_number(&m, rank);
        message_add(&m, key, EXCHANGE_KEY_BYTES);
        return message_hmac(&m, k->bytes, sizeof(k->bytes), ret_key);
}
