/*
 * Under which names things of a tenant lie where other hosts find them (daemon/remote), and the
 * keys that seal what lies there (envelope.h). PURE: nothing here asks a host, a file or a clock.
 *
 *   page            kvl:1:TENANT:{PLACE}:PART      PART in decimal
 *   epoch           kvl:1:TENANT:{PLACE}:epoch
 *   change          kvl:1:TENANT:{PLACE}:change
 *   session         kvl:1:TENANT:{PLACE}:session
 *
 * PLACE is a *place*: 64 lower-case hexadecimal digits of HMAC-SHA256 (RFC 2104) with the tenant's
 * secret, over what the thing is: for a page what its epoch is of (the model's identity, or the
 * name of a namespace set), the epoch and the page's key; for a change (change.h) the epoch that
 * it is of. Braces make it the tag by which a cluster
 * chooses the slot. So the parts that the namespaces of a set (the ranks of a model) have of one
 * page lie in one slot, and one EXISTS with a key for each of them says whether the page is
 * complete; pages of one text are spread over all nodes. Who has no secret learns of a name neither
 * model nor page, and can't make a name for a text that he guesses. A tenant without a secret has
 * names anybody can make: HMAC with the empty secret. A server's ACL can hold tenants apart by the
 * pattern "kvl:1:TENANT:*" in any case.
 *
 * PART is the rank, where the place holds the model's identity. Where it holds a set's name it is a
 * *member's number*, made of the member's own identity and rank: so it tells apart also members
 * that have one rank and layer group, and versions of a model that hosts have at the same time
 * under one name of a set. It has 32 bits. Two members that have the same one overwrite each
 * other's values, which costs misses; the identity and the rank are in the envelope, so that a page
 * of another member is never taken for one's own.
 *
 * An *epoch* is a number of 64 bits that all hosts of a tenant have for a model, kept under the
 * epoch's name; it is part of every page's place, so pages of another epoch aren't even found. It
 * should be a random number rather than a count: servers evict what they hold, and a count that
 * begins anew would bring pages back that were invalidated under the same number.
 *
 * Any thread. Functions that return an int return 0, or -ENOMEM where OpenSSL has no memory, with
 * nothing written that counts.
 */
#ifndef KVL_EXCHANGE_KEYS_H
#define KVL_EXCHANGE_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "base/parse.h"

#define EXCHANGE_ID_BYTES    32 /* of an identity: SHA-256 */
#define EXCHANGE_PLACE_BYTES 32 /* of a place: HMAC-SHA256 */
#define EXCHANGE_KEY_BYTES   32 /* of a page's key: KEY_BYTES of the daemon's core */

/* The texts of a model together with its salt and format; NS_TEXT_MAX, NS_SALT_MAX, NS_FORMAT_MAX
 * and CODEC_LAYERS_TEXT_MAX of the daemon's core fit with room to spare. */
#define EXCHANGE_TEXTS_MAX 1536

/* Bytes of a tenant's secret. The least is what makes guessing hopeless where the bytes are random:
 * 128 bits. The most isn't tuned. */
#define EXCHANGE_SECRET_MIN 16
#define EXCHANGE_SECRET_MAX 256

/* "kvl:1:" TENANT ":{" PLACE "}:" and "4294967295" or "session", terminated. */
#define EXCHANGE_NAME_MAX \
        (sizeof("kvl:1:") - 1 + TENANT_NAME_MAX + 2 + 2 * EXCHANGE_PLACE_BYTES + 2 + 10 + 1)

/* The rank in the envelope of a session's record, which is no page's: so neither is ever taken for
 * the other. */
#define EXCHANGE_RANK_SESSION (UINT32_MAX - 1)

/* Likewise in the envelope of a change. */
#define EXCHANGE_RANK_CHANGE (UINT32_MAX - 2)

#define EXCHANGE_SESSION_MAX 64 /* bytes of what names a session: SESSION_ID_MAX of the core */

/* Whose things they are, as all hosts that exchange pages have it. */
struct exchange_tenant {
        char name[TENANT_NAME_MAX + 1];
        size_t secret_len; /* 0: it has none; else EXCHANGE_SECRET_MIN .. EXCHANGE_SECRET_MAX */
        uint8_t secret[EXCHANGE_SECRET_MAX];
};

/*
 * What the bytes of pages are: all of it is in the identity, and what differs in anything is never
 * taken for the other. All borrowed; texts are terminated, NULL is "".
 *
 * The rank isn't there: it is in a page's PART, and in its envelope.
 */
struct exchange_model {
        /* The namespace's name, so that keys of two namespaces never meet. Those of a set have
         * names of their own, which are the same on every host: nothing else tells two of them
         * apart that an engine has given the same rank and layer group. */
        const char *scope;
        const char *model, *version;
        uint32_t dtype, n_layers, n_kv_heads, head_size, page_tokens, n_planes;
        uint64_t plane_page_bytes;
        uint32_t tp_size, layer_group;
        const char *codecs; /* of payloads: "none", or as codec_layers_format() writes them */
        const void *salt, *format;
        size_t salt_len, format_len;
};

/* The tenant's name and all of the model. -ENAMETOOLONG: its texts have more than
 * EXCHANGE_TEXTS_MAX bytes together. */
int exchange_identify(const struct exchange_tenant *t, const struct exchange_model *m,
        uint8_t ret_id[EXCHANGE_ID_BYTES]);

/* ---- places and names ------------------------------------------------------------------------ */

/* The number of a member of a set. It is made with the tenant's secret:
 * who reads names must not be able to tell by it whether a model that he guesses is theirs. */
int exchange_member_number(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        uint32_t rank, uint32_t *ret_number);

/* Of a page, for all ranks; id: what its epoch is of. */
int exchange_page_place(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        uint64_t epoch, const uint8_t key[EXCHANGE_KEY_BYTES],
        uint8_t ret_place[EXCHANGE_PLACE_BYTES]);

/* The name of one part of the page at a place: of a rank, or of the member
 * with this number. Costs no HMAC. Returns its length, below EXCHANGE_NAME_MAX; buf is terminated.
 */
size_t exchange_page_name(const struct exchange_tenant *t,
        const uint8_t place[EXCHANGE_PLACE_BYTES], uint32_t part, char buf[EXCHANGE_NAME_MAX]);

/* The name of a part of a page becomes that of another part of the same page; as above. */
size_t exchange_page_rename(char name[EXCHANGE_NAME_MAX], uint32_t part);

/* The name of an epoch; buf is terminated, in what follows too. */
int exchange_epoch_name(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        char buf[EXCHANGE_NAME_MAX]);

/* Of what was invalidated when this epoch ended, and its place, which is the key in its envelope.
 */
int exchange_change_name(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        uint64_t epoch, uint8_t ret_place[EXCHANGE_PLACE_BYTES], char buf[EXCHANGE_NAME_MAX]);

/* The place, which is the key in the envelope of a session's record, too. -EINVAL: what names the
 * session has no byte, or more than EXCHANGE_SESSION_MAX; of both. */
int exchange_session_place(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        const void *session, size_t session_len, uint8_t ret_place[EXCHANGE_PLACE_BYTES]);
int exchange_session_name(const struct exchange_tenant *t, const uint8_t id[EXCHANGE_ID_BYTES],
        const void *session, size_t session_len, char buf[EXCHANGE_NAME_MAX]);

/* ---- keys that seal -------------------------------------------------------------------------- */

/* From it each page's own key is made, so how often one key is used doesn't depend on how many
 * pages there are: a random nonce of 96 bits allows 2^32 uses of a key (NIST SP 800-38D, 8.3),
 * which a thousand hosts would reach in a day. */
struct seal_key {
        uint8_t bytes[32];
};

/* Of a tenant at an epoch, by HKDF-SHA256 (RFC 5869) from its secret. To be kept as long as the
 * epoch holds. -EINVAL: the tenant has no secret, so its pages are summed, not sealed. */
int exchange_seal_key(const struct exchange_tenant *t, uint64_t epoch, struct seal_key *ret_key);

/* The key of one page for AES-256, by HMAC-SHA256 from the tenant's. */
int exchange_page_key(const struct seal_key *k, const uint8_t id[EXCHANGE_ID_BYTES], uint32_t rank,
        const uint8_t key[EXCHANGE_KEY_BYTES], uint8_t ret_key[32]);

#endif
