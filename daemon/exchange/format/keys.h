/*
 * Names under which a tenant's objects are stored for other hosts (daemon/remote), and the keys
 * that seal them (envelope.h). PURE: no I/O and no clock.
 *
 *   page      kvl:1:TENANT:{PLACE}:PART      PART in decimal;
 *   epoch     kvl:1:TENANT:{PLACE}:epoch;
 *   change    kvl:1:TENANT:{PLACE}:change;
 *   session   kvl:1:TENANT:{PLACE}:session.
 *
 * PLACE is a *place*: 64 lower-case hexadecimal digits of HMAC-SHA256 (RFC 2104) with the tenant's
 * secret. For a page it is over the epoch's scope (the model's identity, or the name of a namespace
 * set), the epoch and the page's key. For a change (change.h) it is over its epoch. Braces make it
 * the tag by which a cluster chooses the slot. So the parts of one page in the namespaces of a set
 * (the ranks of a model) lie in one slot. One EXISTS with their keys tells whether the page is
 * complete. Pages of one text are spread over all nodes.
 *
 * Without the secret, a name reveals neither model nor page, and no name can be made for a guessed
 * text. For a tenant without a secret, anyone can make names: HMAC with the empty secret. In any
 * case a server's ACL can separate tenants by the pattern "kvl:1:TENANT:*".
 *
 * PART is the rank, if the place holds the model's identity. If it holds a set's name, PART is a
 * *member's number*, made of the member's identity and rank. It also separates members with the
 * same rank and layer group, and versions of a model under one name of a set. It has 32 bits. Two
 * members with the same number overwrite each other's values, which costs misses. The envelope has
 * identity and rank, so a page of another member is never accepted.
 *
 * An *epoch* is a number of 64 bits that all hosts of a tenant share for a model, stored under the
 * epoch's name. It is part of every page's place, so pages of another epoch aren't found. It should
 * be a random number, not a count: servers evict, and a restarted count would bring back pages that
 * were invalidated under the same number.
 *
 * Any thread. Functions that return an int return 0, or -ENOMEM if OpenSSL has no memory; then the
 * contents of results are undefined.
 */
#ifndef KVL_EXCHANGE_KEYS_H
#define KVL_EXCHANGE_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "base/parse.h"

#define EXCHANGE_ID_BYTES    32 /* of an identity: SHA-256 */
#define EXCHANGE_PLACE_BYTES 32 /* of a place: HMAC-SHA256 */
#define EXCHANGE_KEY_BYTES   32 /* of a page's key: KEY_BYTES of the daemon's core */

/* Bytes of a model's texts together with its salt and format: more than NS_TEXT_MAX, NS_SALT_MAX,
 * NS_FORMAT_MAX and CODEC_LAYERS_TEXT_MAX of the daemon's core allow. */
#define EXCHANGE_TEXTS_MAX 1536

/* Bytes of a tenant's secret. With the least, 128 random bits can't be guessed. The most isn't
 * tuned. */
#define EXCHANGE_SECRET_MIN 16
#define EXCHANGE_SECRET_MAX 256

/* "kvl:1:" TENANT ":{" PLACE "}:" and "4294967295" or "session", terminated. */
#define EXCHANGE_NAME_MAX \
        (sizeof("kvl:1:") - 1 + TENANT_NAME_MAX + 2 + 2 * EXCHANGE_PLACE_BYTES + 2 + 10 + 1)

/* The rank in the envelope of a session's record, different from any page's. */
#define EXCHANGE_RANK_SESSION (UINT32_MAX - 1)

/* The rank in the envelope of a change. */
#define EXCHANGE_RANK_CHANGE (UINT32_MAX - 2)

#define EXCHANGE_SESSION_MAX 64 /* bytes of a session's id: SESSION_ID_MAX of the core */

/* The tenant, with the same values on all hosts that exchange pages. */
struct exchange_tenant {
        char name[TENANT_NAME_MAX + 1];
        size_t secret_len; /* 0: it has none; else EXCHANGE_SECRET_MIN .. EXCHANGE_SECRET_MAX */
        uint8_t secret[EXCHANGE_SECRET_MAX];
};

/*
 * Properties that determine the bytes of pages: all of them are in the identity, so pages that
 * differ in any are never confused. All borrowed; texts are terminated, NULL is "".
 *
 * The rank isn't included: it is in a page's PART, and in its envelope.
 */
struct exchange_model {
        /* The namespace's name, so that keys of two namespaces never collide. Members of a set have
         * names of their own, the same on every host: only these distinguish two members with the
         * same rank and layer group. */
        const char *scope;
        const char *model, *version;
        uint32_t dtype, n_layers, n_kv_heads, head_size, page_tokens, n_planes;
        uint64_t plane_page_bytes;
        uint32_t tp_size, layer_group;
        const char *codecs; /* of payloads: "none", or as codec_layers_format() writes them */
        const void *salt, *format;
        size_t salt_len, format_len;
};

/* Hashes the tenant's name and all of the model. -ENAMETOOLONG: its texts have more than
 * EXCHANGE_TEXTS_MAX bytes together. */
int exchange_identify(const struct exchange_tenant *t, const struct exchange_model *m,
        uint8_t ret_id[EXCHANGE_ID_BYTES]);

/* ---- places and names ------------------------------------------------------------------------ */

/* The number of a member of a set. It depends on the tenant's secret, so that a name doesn't
 * confirm a guessed model. */
int exchange_member_number(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        uint32_t rank, uint32_t *ret_number);

/* The place of a page, for all ranks; id: the scope of its epoch. */
int exchange_page_place(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        uint64_t epoch, const uint8_t key[EXCHANGE_KEY_BYTES],
        uint8_t ret_place[EXCHANGE_PLACE_BYTES]);

/* The name of one part of the page at a place: of a rank, or of the member with this number. Costs
 * no HMAC. Returns its length, below EXCHANGE_NAME_MAX; buf is terminated. */
size_t exchange_page_name(const struct exchange_tenant *t,
        const uint8_t place[EXCHANGE_PLACE_BYTES], uint32_t part, char buf[EXCHANGE_NAME_MAX]);

/* Changes the name of a part of a page to that of another part; returns as above. */
size_t exchange_page_rename(char name[EXCHANGE_NAME_MAX], uint32_t part);

/* The name of an epoch; buf is terminated, below, too. */
int exchange_epoch_name(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        char buf[EXCHANGE_NAME_MAX]);

/* The name of the change at the end of this epoch, and its place, which is the key in its
 * envelope. */
int exchange_change_name(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        uint64_t epoch, uint8_t ret_place[EXCHANGE_PLACE_BYTES], char buf[EXCHANGE_NAME_MAX]);

/* The place of a session's record, which is also the key in its envelope. -EINVAL (both functions):
 * the session's id has no byte, or more than EXCHANGE_SESSION_MAX. */
int exchange_session_place(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        const void *session, size_t session_len, uint8_t ret_place[EXCHANGE_PLACE_BYTES]);
int exchange_session_name(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        const void *session, size_t session_len, char buf[EXCHANGE_NAME_MAX]);

/* ---- keys that seal -------------------------------------------------------------------------- */

/* A tenant's key, from which each page's own key is derived. So the uses of one key don't depend on
 * the number of pages: a random nonce of 96 bits allows 2^32 uses of a key (NIST SP 800-38D, 8.3),
 * which a thousand hosts would reach in a day. */
struct seal_key {
        uint8_t bytes[32];
};

/* The key of a tenant at an epoch, by HKDF-SHA256 (RFC 5869) from its secret. Keep it as long as
 * the epoch holds. -EINVAL: the tenant has no secret, so its pages are summed, not sealed. */
int exchange_seal_key(const struct exchange_tenant *t, uint64_t epoch, struct seal_key *ret_key);

/* The key of one page for AES-256, by HMAC-SHA256 from the tenant's. */
int exchange_page_key(const struct seal_key *k, const uint8_t id[EXCHANGE_ID_BYTES], uint32_t rank,
        const uint8_t key[EXCHANGE_KEY_BYTES], uint8_t ret_key[32]);

#endif
