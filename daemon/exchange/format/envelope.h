/*
 * A page as stored for other hosts: a header of ENVELOPE_BYTES, and behind it the *payload*: the
 * page's bytes, plane after plane, as encoded by its codec. PURE: no I/O.
 *
 *   cleartext | hidden | payload
 *
 * The store, the network, and hosts of other tenants are not trusted. Every received field is
 * compared with the wanted one, and nothing counts unless envelope_open() says ENVELOPE_GOOD.
 *
 * - With a seal key: AES-256-GCM (NIST SP 800-38D) over all of it. The hidden part and the payload
 *   are encrypted, the cleartext part is authenticated. The key is the page's own (keys.h), the
 *   nonce is random. Without the tenant's secret, no valid envelope can be made, or moved to
 *   another page, rank, epoch or tenant. An attacker can remove one, delay one, or replay one that
 *   was sealed for the same page at the same epoch.
 * - Without: sums (base/sum.h). They detect accidents, not attacks, and everything can be read. For
 *   a network and a server that are trusted like the hosts themselves.
 *
 * A sealed envelope has no sums: a sum of plain bytes would tell which texts are equal.
 *
 * Numbers are in the machine's byte order, little-endian: elsewhere the magic doesn't match.
 * Another format has another version, and is refused as a whole.
 *
 * Any thread; only OpenSSL allocates memory.
 */
#ifndef KVL_EXCHANGE_ENVELOPE_H
#define KVL_EXCHANGE_ENVELOPE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "daemon/exchange/format/keys.h"

#define ENVELOPE_BYTES   256
#define ENVELOPE_MAGIC   UINT64_C(0x31656761706c766b) /* "kvlpage1" */
#define ENVELOPE_VERSION 1

/* Largest payload: the largest value of the client of the cluster (REMOTE_VALUE_MAX), less the
 * header. */
#define ENVELOPE_PAYLOAD_MAX ((UINT64_C(64) << 20) - ENVELOPE_BYTES)

#define ENVELOPE_TOKENS_MAX 65535 /* of a page; as page.tokens, which has 16 bits */

/* Contents of an envelope. */
struct envelope {
        uint8_t id[EXCHANGE_ID_BYTES]; /* exchange_identify() */
        uint8_t key[EXCHANGE_KEY_BYTES];
        uint8_t parent[EXCHANGE_KEY_BYTES]; /* of the page before it; zeros: it begins a text */
        uint64_t epoch;
        uint32_t rank;          /* or EXCHANGE_RANK_SESSION, EXCHANGE_RANK_CHANGE */
        uint32_t codec;         /* enum codec, or CODEC_BY_LAYER: the identity has those by layer */
        uint64_t payload_bytes; /* 1 .. ENVELOPE_PAYLOAD_MAX */
        uint32_t tokens;        /* tokens of the page: 1 .. ENVELOPE_TOKENS_MAX */
        uint64_t tag;           /* as published; 0: none */
        uint64_t tag_epoch;     /* the tag's epoch then; 0 without a tag */
};

/* Reasons for which an envelope isn't accepted. */
enum envelope_fault {
        ENVELOPE_GOOD,
        ENVELOPE_SHORT,     /* fewer bytes than a header and one of payload */
        ENVELOPE_MAGIC_BAD, /* another file, or of a machine of another byte order */
        ENVELOPE_OTHER_VERSION,
        ENVELOPE_FORMAT_BAD, /* a field has a value that this version never writes */
        ENVELOPE_NOT_SEALED, /* a seal key was given, and the envelope only has sums */
        ENVELOPE_SEALED,     /* no seal key was given, and the envelope is sealed */
        ENVELOPE_LENGTH,     /* the length differs from the received or the wanted one */
        ENVELOPE_HEADER_SUM,
        ENVELOPE_PAYLOAD_SUM,
        ENVELOPE_SEAL_BROKEN, /* changed, or not sealed by this key for this page */
        ENVELOPE_OTHER_ID,    /* of another tenant, model, version, layout or codec */
        ENVELOPE_OTHER_EPOCH,
        ENVELOPE_OTHER_KEY,
        ENVELOPE_OTHER_PARENT,
        ENVELOPE_OTHER_RANK,
        ENVELOPE_OTHER_CODEC,
        ENVELOPE_TOKENS_BAD, /* none, or more than a page has */
        ENVELOPE_NO_MEMORY,  /* unknown: a miss, and no reason to remove it */
        N_ENVELOPE_FAULTS
};

/* A word for counters ("seal-broken"), and the beginning of a sentence ("it was sealed by another
 * key, ..."). Static; for any number. */
const char *envelope_fault_name(enum envelope_fault fault);
const char *envelope_fault_text(enum envelope_fault fault);

/*
 * Writes the header of a page whose e->payload_bytes lie in `payload` (bytes behind them are left
 * alone).
 *
 * key NULL: the payload is summed in place, and must be sent from there behind the header,
 * uncopied; `sealed` is NULL. If the payload changes meanwhile, the sum won't match, and its reader
 * drops it.
 *
 * With a key: e->payload_bytes of encrypted bytes are written to `sealed`, to be sent. `sealed` may
 * be the payload itself if that has one piece, which is then encrypted in place. Each byte is read
 * once.
 *
 * nonce: of 12 bytes, for tests; NULL: random.
 *
 * Returns 0; -EINVAL: a field of *e is out of its range, or the pieces are too short; -ENOMEM;
 * -EIO: no random bytes. After a failure the contents of header and `sealed` are undefined.
 */
int envelope_seal(const struct envelope *e, const struct seal_key *key, const struct iovec *payload,
        unsigned n_payload, const uint8_t *nonce, uint8_t header[ENVELOPE_BYTES], void *sealed);

/*
 * Checks a received value of `value_bytes`: the header, and the rest in `payload`. All of *want
 * must match, except `tokens` (an upper bound), and tag and tag_epoch (unused). *ret_envelope (may
 * be NULL) gets the contents, with tag and tag_epoch, only with ENVELOPE_GOOD. The caller must
 * compare the tag's epoch.
 *
 * With a key the payload is decrypted in place. With any other result its contents are undefined,
 * and must not be shown to clients.
 */
enum envelope_fault envelope_open(const struct envelope *want, const struct seal_key *key,
        uint64_t value_bytes, const uint8_t header[ENVELOPE_BYTES], const struct iovec *payload,
        unsigned n_payload, struct envelope *ret_envelope);

#endif
