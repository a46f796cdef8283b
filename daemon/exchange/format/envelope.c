#include "daemon/exchange/format/envelope.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdbool.h>
#include <string.h>

#include "base/macros.h"
#include "base/sum.h"

#define NONCE_BYTES 12 /* the size that GCM is designed for: SP 800-38D, 5.2.1.1 */
#define TAG_BYTES   16

enum cipher { CIPHER_NONE = 0, CIPHER_AES_256_GCM = 1 };

/* The unencrypted part. It is authenticated up to `tag`. */
struct cleartext {
        uint64_t magic;
        uint32_t version, cipher;
        uint32_t header_bytes, unused;
        uint64_t payload_bytes;
        uint8_t nonce[NONCE_BYTES]; /* zeros where it isn't sealed, like tag */
        uint32_t unused_too;
        uint8_t tag[TAG_BYTES];
};

struct hidden {
        uint8_t id[EXCHANGE_ID_BYTES];
        uint8_t key[EXCHANGE_KEY_BYTES];
        uint8_t parent[EXCHANGE_KEY_BYTES];
        uint64_t epoch, tag, tag_epoch;
        uint32_t rank, tokens, codec, unused;
        uint64_t unused_too[5];
        uint64_t payload_sum; /* 0 where it is sealed, like header_sum */
        uint64_t header_sum;  /* of all before it */
};

struct header {
        struct cleartext clear;
        struct hidden hidden;
};
static_assert(sizeof(struct cleartext) == 64, "the format");
static_assert(offsetof(struct cleartext, tag) == 48, "the format");
static_assert(sizeof(struct hidden) == 192, "the format");
static_assert(sizeof(struct header) == ENVELOPE_BYTES, "the format");
static_assert(offsetof(struct header, hidden.epoch) == 160, "the format");
static_assert(offsetof(struct header, hidden.rank) == 184, "the format");
static_assert(offsetof(struct header, hidden.header_sum) == 248, "the format");

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Iterates over pieces of a payload with `left` bytes to come; none is empty. */
struct piece_walk {
        const struct iovec *iov;
        unsigned n;
        uint64_t left;
};

static bool piece_next(struct piece_walk *w, uint8_t **ret_bytes, size_t *ret_n)
{
        while (w->left > 0 && w->n > 0) {
                *ret_bytes = w->iov->iov_base;
                *ret_n = MIN(w->iov->iov_len, w->left);
                w->iov++;
                w->n--;
                w->left -= *ret_n;
                if (*ret_n > 0)
                        return true;
        }
        return false;
}

static bool pieces_hold(const struct iovec *iov, unsigned n, uint64_t bytes)
{
        for (unsigned i = 0; i < n && bytes > 0; i++)
                bytes -= MIN(bytes, iov[i].iov_len);
        return bytes == 0;
}

static uint64_t sum_payload(const struct iovec *iov, unsigned n, uint64_t bytes)
{
        struct piece_walk w = {iov, n, bytes};
        struct sum sum;
        uint8_t *at;
        size_t len;

        sum_begin(&sum);
        while (piece_next(&w, &at, &len))
                sum_add(&sum, at, len);
        return sum_end(&sum);
}

static uint64_t sum_header(const struct header *h)
{
        return sum_of(h, offsetof(struct header, hidden.header_sum));
}

/* ---- AES-256-GCM ----------------------------------------------------------------------------- */

/* Begins with the page's own key and the cleartext part. NULL: OpenSSL has no memory. */
static EVP_CIPHER_CTX *gcm_begin(const struct seal_key *key, const struct envelope *of,
        const struct cleartext *clear, bool encrypts)
{
        uint8_t page_key[32];
        EVP_CIPHER_CTX *context = NULL;
        int n;

        if (exchange_page_key(key, of->id, of->rank, of->key, page_key) == 0)
                context = EVP_CIPHER_CTX_new();
        if (context && !(EVP_CipherInit_ex(context, EVP_aes_256_gcm(), NULL, page_key, clear->nonce,
                                 encrypts) &&
                               EVP_CipherUpdate(context, NULL, &n, (const uint8_t *)clear,
                                       offsetof(struct cleartext, tag)))) {
                EVP_CIPHER_CTX_free(context);
                context = NULL;
        }
        OPENSSL_cleanse(page_key, sizeof(page_key));
        return context;
}

/* `from` and `to` are the same or don't overlap. */
static bool gcm_step(EVP_CIPHER_CTX *context, uint8_t *to, const uint8_t *from, size_t n)
{
        static_assert(ENVELOPE_PAYLOAD_MAX <= INT_MAX, "OpenSSL counts bytes by int");
        int done;

        return EVP_CipherUpdate(context, to, &done, from, (int)n) && (size_t)done == n;
}

/* ---- sealing --------------------------------------------------------------------------------- */

static bool envelope_is_valid(const struct envelope *e)
{
        return e->payload_bytes > 0 && e->payload_bytes <= ENVELOPE_PAYLOAD_MAX && e->tokens > 0 &&
               e->tokens <= ENVELOPE_TOKENS_MAX && (e->tag != 0 || e->tag_epoch == 0);
}

static void header_fill(struct header *h, const struct envelope *e, enum cipher cipher)
{
        *h = (struct header){
                .clear = {.magic = ENVELOPE_MAGIC,
                        .version = ENVELOPE_VERSION,
                        .cipher = cipher,
                        .header_bytes = ENVELOPE_BYTES,
                        .payload_bytes = e->payload_bytes},
                .hidden = {.epoch = e->epoch,
                        .tag = e->tag,
                        .tag_epoch = e->tag_epoch,
                        .rank = e->rank,
                        .tokens = e->tokens,
                        .codec = e->codec},
        };
        memcpy(h->hidden.id, e->id, sizeof(h->hidden.id));
        memcpy(h->hidden.key, e->key, sizeof(h->hidden.key));
        memcpy(h->hidden.parent, e->parent, sizeof(h->hidden.parent));
}

static int seal_encrypted(struct header *h, const struct envelope *e, const struct seal_key *key,
        struct piece_walk w, uint8_t *sealed)
{
        EVP_CIPHER_CTX *context = gcm_begin(key, e, &h->clear, true);
        uint8_t *at, *hidden = (uint8_t *)&h->hidden;
        bool ok = context && gcm_step(context, hidden, hidden, sizeof(h->hidden));
        size_t len;
        int none;

        while (ok && piece_next(&w, &at, &len)) {
                ok = gcm_step(context, sealed, at, len);
                sealed += len;
        }
        ok = ok && EVP_CipherFinal_ex(context, sealed, &none) &&
             EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, h->clear.tag);
        EVP_CIPHER_CTX_free(context);
        return ok ? 0 : -ENOMEM;
}

int envelope_seal(const struct envelope *e, const struct seal_key *key, const struct iovec *payload,
        unsigned n_payload, const uint8_t *nonce, uint8_t header[ENVELOPE_BYTES], void *sealed)
{
        struct header h;
        int r = 0;

        if (!envelope_is_valid(e) || !pieces_hold(payload, n_payload, e->payload_bytes))
                return -EINVAL;
        header_fill(&h, e, key ? CIPHER_AES_256_GCM : CIPHER_NONE);
        if (!key) {
                h.hidden.payload_sum = sum_payload(payload, n_payload, e->payload_bytes);
                h.hidden.header_sum = sum_header(&h);
        } else {
                if (nonce)
                        memcpy(h.clear.nonce, nonce, NONCE_BYTES);
                else if (RAND_bytes(h.clear.nonce, NONCE_BYTES) != 1)
                        return -EIO;
                r = seal_encrypted(&h, e, key,
                        (struct piece_walk){payload, n_payload, e->payload_bytes}, sealed);
        }
        if (r == 0)
                memcpy(header, &h, sizeof(h));
        return r;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_zero(const void *bytes, size_t n)
{
        const uint8_t *at = bytes;

        for (size_t i = 0; i < n; i++)
                if (at[i])
                        return false;
        return true;
}

static enum envelope_fault check_clear(const struct cleartext *c, const struct envelope *want,
        bool is_sealed, uint64_t value_bytes)
{
        if (c->magic != ENVELOPE_MAGIC)
                return ENVELOPE_MAGIC_BAD;
        if (c->version != ENVELOPE_VERSION)
                return ENVELOPE_OTHER_VERSION;
        if (c->header_bytes != ENVELOPE_BYTES || c->unused || c->unused_too ||
                c->cipher > CIPHER_AES_256_GCM)
                return ENVELOPE_FORMAT_BAD;
        if (is_sealed != (c->cipher == CIPHER_AES_256_GCM))
                return is_sealed ? ENVELOPE_NOT_SEALED : ENVELOPE_SEALED;
        if (!is_sealed && !(is_zero(c->nonce, sizeof(c->nonce)) && is_zero(c->tag, sizeof(c->tag))))
                return ENVELOPE_FORMAT_BAD;
        if (c->payload_bytes != value_bytes - ENVELOPE_BYTES ||
                c->payload_bytes != want->payload_bytes || c->payload_bytes > ENVELOPE_PAYLOAD_MAX)
                return ENVELOPE_LENGTH;
        return ENVELOPE_GOOD;
}

/* Compares the authenticated fields with the wanted ones. */
static enum envelope_fault check_hidden(const struct hidden *h, const struct envelope *want)
{
        if (h->unused || !is_zero(h->unused_too, sizeof(h->unused_too)))
                return ENVELOPE_FORMAT_BAD;
        if (memcmp(h->id, want->id, sizeof(h->id)) != 0)
                return ENVELOPE_OTHER_ID;
        if (h->epoch != want->epoch)
                return ENVELOPE_OTHER_EPOCH;
        if (memcmp(h->key, want->key, sizeof(h->key)) != 0)
                return ENVELOPE_OTHER_KEY;
        if (memcmp(h->parent, want->parent, sizeof(h->parent)) != 0)
                return ENVELOPE_OTHER_PARENT;
        if (h->rank != want->rank)
                return ENVELOPE_OTHER_RANK;
        if (h->codec != want->codec)
                return ENVELOPE_OTHER_CODEC;
        if (h->tokens == 0 || h->tokens > want->tokens)
                return ENVELOPE_TOKENS_BAD;
        return h->tag == 0 && h->tag_epoch != 0 ? ENVELOPE_FORMAT_BAD : ENVELOPE_GOOD;
}

static enum envelope_fault open_encrypted(struct header *h, const struct envelope *want,
        const struct seal_key *key, struct piece_walk w)
{
        EVP_CIPHER_CTX *context = gcm_begin(key, want, &h->clear, false);
        uint8_t *at, *hidden = (uint8_t *)&h->hidden, nothing[TAG_BYTES];
        bool ok = context && gcm_step(context, hidden, hidden, sizeof(h->hidden));
        enum envelope_fault fault;
        size_t len;
        int none;

        while (ok && piece_next(&w, &at, &len))
                ok = gcm_step(context, at, at, len);
        ok = ok && EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, h->clear.tag);
        if (!ok)
                fault = ENVELOPE_NO_MEMORY;
        else if (!EVP_CipherFinal_ex(context, nothing, &none))
                fault = ENVELOPE_SEAL_BROKEN;
        else if (h->hidden.payload_sum || h->hidden.header_sum)
                fault = ENVELOPE_FORMAT_BAD;
        else
                fault = check_hidden(&h->hidden, want);
        EVP_CIPHER_CTX_free(context);
        return fault;
}

static enum envelope_fault open_summed(const struct header *h, const struct envelope *want,
        const struct iovec *payload, unsigned n_payload)
{
        enum envelope_fault fault = ENVELOPE_HEADER_SUM;

        if (h->hidden.header_sum == sum_header(h))
                fault = check_hidden(&h->hidden, want);
        if (fault == ENVELOPE_GOOD &&
                h->hidden.payload_sum != sum_payload(payload, n_payload, want->payload_bytes))
                fault = ENVELOPE_PAYLOAD_SUM;
        return fault;
}

enum envelope_fault envelope_open(const struct envelope *want, const struct seal_key *key,
        uint64_t value_bytes, const uint8_t header[ENVELOPE_BYTES], const struct iovec *payload,
        unsigned n_payload, struct envelope *ret_envelope)
{
        enum envelope_fault fault;
        struct header h;

        if (value_bytes <= ENVELOPE_BYTES)
                return ENVELOPE_SHORT;
        memcpy(&h, header, sizeof(h));
        fault = check_clear(&h.clear, want, key != NULL, value_bytes);
        if (fault == ENVELOPE_GOOD && !pieces_hold(payload, n_payload, want->payload_bytes))
                fault = ENVELOPE_LENGTH;
        if (fault == ENVELOPE_GOOD && key)
                fault = open_encrypted(&h, want, key,
                        (struct piece_walk){payload, n_payload, want->payload_bytes});
        else if (fault == ENVELOPE_GOOD)
                fault = open_summed(&h, want, payload, n_payload);
        if (fault == ENVELOPE_GOOD && ret_envelope) {
                *ret_envelope = *want;
                ret_envelope->tokens = h.hidden.tokens;
                ret_envelope->tag = h.hidden.tag;
                ret_envelope->tag_epoch = h.hidden.tag_epoch;
        }
        return fault;
}

/* ---- words ----------------------------------------------------------------------------------- */

static const struct {
        const char *name, *text;
} faults[N_ENVELOPE_FAULTS] = {
        [ENVELOPE_GOOD] = {"good", "it is what was asked for"},
        [ENVELOPE_SHORT] = {"short", "the value is shorter than a header and a byte"},
        [ENVELOPE_MAGIC_BAD] = {"magic",
                "the value is no page, or was written by a machine of another byte order"},
        [ENVELOPE_OTHER_VERSION] = {"version", "it has the format of another version of kvlease"},
        [ENVELOPE_FORMAT_BAD] = {"format", "a field has what kvlease never writes"},
        [ENVELOPE_NOT_SEALED] = {"not-sealed",
                "it isn't encrypted, and the tenant has a secret here: give all hosts the same remote_secret"},
        [ENVELOPE_SEALED] = {"sealed",
                "it is encrypted, and the tenant has no secret here: give all hosts the same remote_secret"},
        [ENVELOPE_LENGTH] = {"length", "it says another length than has arrived or a page has"},
        [ENVELOPE_HEADER_SUM] = {"header-sum", "its header was changed after it was written"},
        [ENVELOPE_PAYLOAD_SUM] = {"payload-sum", "its bytes were changed after it was written"},
        [ENVELOPE_SEAL_BROKEN] = {"seal-broken",
                "it was changed, or sealed for another page, or by another secret"},
        [ENVELOPE_OTHER_ID] = {"identity", "it is of another tenant, model, layout or codec"},
        [ENVELOPE_OTHER_EPOCH] = {"epoch", "it is of another epoch: it was invalidated"},
        [ENVELOPE_OTHER_KEY] = {"key", "it is another page"},
        [ENVELOPE_OTHER_PARENT] = {"parent", "it comes behind another page"},
        [ENVELOPE_OTHER_RANK] = {"rank", "it is another rank's part of the page"},
        [ENVELOPE_OTHER_CODEC] = {"codec", "its bytes are coded otherwise"},
        [ENVELOPE_TOKENS_BAD] = {"tokens", "it says to have no token, or more than a page has"},
        [ENVELOPE_NO_MEMORY] = {"no-memory", "there was no memory to look at it"},
};

const char *envelope_fault_name(enum envelope_fault fault)
{
        return (unsigned)fault < N_ENVELOPE_FAULTS ? faults[fault].name : "unknown";
}

const char *envelope_fault_text(enum envelope_fault fault)
{
        return (unsigned)fault < N_ENVELOPE_FAULTS ? faults[fault].text : "unknown";
}
