/*
 * A page as other hosts find it: a header of ENVELOPE_BYTES, and behind it the *payload*, which is
 * the page's bytes, plane after plane, as its codec leaves them. PURE: no I/O.
 *
 *   cleartext | hidden | payload
 *
 * Whoever holds the bytes meanwhile is an enemy: a server, what stands between, another host of
 * another tenant. What comes back is compared with what was asked for, field by field, and nothing
 * of it counts but where envelope_open() says ENVELOPE_GOOD.
 *
 *   with a seal key   AES-256-GCM (NIST SP 800-38D) over all of it: the hidden part and the payload
 *                     are encrypted, the cleartext part is authenticated. The key is the page's own
 *                     (keys.h), the nonce is random. Nobody without the tenant's secret makes an
 *                     envelope that is accepted, or moves one: to another page, rank, epoch or
 *                     tenant. He can remove one, keep one back, or bring one again that was sealed
 *                     for the same page at the same epoch.
 *   without           sums (base/sum.h): accidents are found, an enemy isn't, and everything can be
 *                     read. For a network and a server that are trusted like the hosts themselves.
 *
 * Sums aren't there in a sealed envelope: a sum of plain bytes would tell which texts are equal.
 *
 * Numbers are of the machine's byte order, which is little-endian: elsewhere the magic doesn't fit.
 * Another format has another version, and is refused as a whole.
 *
 * Any thread; memory is OpenSSL's alone.
 */
#ifndef KVL_EXCHANGE_ENVELOPE_H
#define KVL_EXCHANGE_ENVELOPE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "daemon/exchange/keys.h"

#define ENVELOPE_BYTES   256
#define ENVELOPE_MAGIC   UINT64_C(0x31656761706c766b) /* "kvlpage1" */
#define ENVELOPE_VERSION 1

/* Of a payload: what a client of the cluster moves at most as one value (REMOTE_VALUE_MAX), less
 * the header. */
#define ENVELOPE_PAYLOAD_MAX ((UINT64_C(64) << 20) - ENVELOPE_BYTES)

#define ENVELOPE_TOKENS_MAX 65535 /* of a page; as page.tokens, which has 16 bits */

/* What an envelope says. */
struct envelope {
        uint8_t id[EXCHANGE_ID_BYTES]; /* exchange_identify() */
        uint8_t key[EXCHANGE_KEY_BYTES];
        uint8_t parent[EXCHANGE_KEY_BYTES]; /* the page's before it; zeros: it begins a text */
        uint64_t epoch;
        uint32_t rank;  /* or EXCHANGE_RANK_SESSION, EXCHANGE_RANK_CHANGE */
        uint32_t codec; /* enum codec, or CODEC_BY_LAYER; which ones by layer is in the identity */
        uint64_t payload_bytes; /* 1 .. ENVELOPE_PAYLOAD_MAX */
        uint32_t tokens;        /* that the page has: 1 .. ENVELOPE_TOKENS_MAX */
        uint64_t tag;           /* as published; 0: none */
        uint64_t tag_epoch;     /* that the tag had then; 0 without a tag */
};

/* Why one isn't accepted. */
enum envelope_fault {
        ENVELOPE_GOOD,
        ENVELOPE_SHORT,     /* fewer bytes than a header and one of payload */
        ENVELOPE_MAGIC_BAD, /* it is something else, or of a machine of another byte order */
        ENVELOPE_OTHER_VERSION,
        ENVELOPE_FORMAT_BAD, /* a field has what this version never writes */
        ENVELOPE_NOT_SEALED, /* a seal key was given, and it only has sums */
        ENVELOPE_SEALED,     /* the other way round */
        ENVELOPE_LENGTH,     /* says more or less than has arrived, or than was asked for */
        ENVELOPE_HEADER_SUM,
        ENVELOPE_PAYLOAD_SUM,
        ENVELOPE_SEAL_BROKEN, /* what was sealed isn't this, or not by this key for this page */
        ENVELOPE_OTHER_ID,    /* of another tenant, model, version, layout or codec */
        ENVELOPE_OTHER_EPOCH,
        ENVELOPE_OTHER_KEY,
        ENVELOPE_OTHER_PARENT,
        ENVELOPE_OTHER_RANK,
        ENVELOPE_OTHER_CODEC,
        ENVELOPE_TOKENS_BAD, /* none, or more than a page has */
        ENVELOPE_NO_MEMORY,  /* nothing is known of it: it is a miss, and no reason to remove it */
        N_ENVELOPE_FAULTS
};

/* A word for counters, "seal-broken", and a sentence without its end, "it was sealed by another
 * key, ...". Static; of any number. */
const char *envelope_fault_name(enum envelope_fault fault);
const char *envelope_fault_text(enum envelope_fault fault);

/*
 * Writes the header of a page whose payload lies in `payload`, as many bytes as e->payload_bytes
 * (what is behind them is left alone).
 *
 * key NULL: the payload is summed where it lies, and is to be sent from there behind the header,
 * uncopied; `sealed` is NULL. Where somebody writes to it meanwhile, the sum won't fit, and whoever
 * reads it drops it.
 * With a key: e->payload_bytes of encrypted bytes are written to `sealed`, and are what is to be
 * sent. `sealed` may be where a payload of one piece lies, which is encrypted in its place then.
 * Each byte is read once.
 *
 * nonce: of 12 bytes, for tests; NULL: random, as every real one is.
 *
 * 0; -EINVAL: a field of *e is out of its range, or the pieces have fewer bytes; -ENOMEM; -EIO: no
 * random bytes. After a failure header and `sealed` have nothing that counts.
 */
int envelope_seal(const struct envelope *e, const struct seal_key *key, const struct iovec *payload,
        unsigned n_payload, const uint8_t *nonce, uint8_t header[ENVELOPE_BYTES], void *sealed);

/*
 * Looks at a value of `value_bytes` that has arrived: the header, and the rest in `payload`. Of
 * *want all must fit but `tokens`, of which the page may have as many at most, and tag and
 * tag_epoch, which aren't looked at. *ret_envelope (NULL: isn't wanted) is what it says, tag and
 * tag_epoch included, set with ENVELOPE_GOOD only; whether the tag's epoch still holds is for the
 * caller to compare.
 *
 * With a key the payload is decrypted where it lies, so nothing is copied. With anything but
 * ENVELOPE_GOOD it has nothing that counts, and mustn't be shown to anybody.
 */
enum envelope_fault envelope_open(const struct envelope *want, const struct seal_key *key,
        uint64_t value_bytes, const uint8_t header[ENVELOPE_BYTES], const struct iovec *payload,
        unsigned n_payload, struct envelope *ret_envelope);

#endif
