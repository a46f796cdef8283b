/* Envelopes: what is sealed opens, and nothing else does. */
#include "tests/unit/test-support.h"

#include <errno.h>
#include <openssl/evp.h>

#include "tests/unit/exchange-fixture.h"
#include "tests/unit/test-random.h"

#define PAYLOAD 96

/* A value as it lies in the cluster, and what it is made of. */
struct value {
        uint8_t header[ENVELOPE_BYTES];
        uint8_t payload[PAYLOAD];
};

struct scene {
        struct exchange_tenant tenant;
        struct envelope envelope;
        struct seal_key key;
        uint8_t payload[PAYLOAD];
};

static const uint8_t nonce[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

static struct scene scene_new(void)
{
        struct scene s = {.tenant = fixture_tenant()};

        assert_int_equal(fixture_envelope(&s.tenant, PAYLOAD, &s.envelope), 0);
        assert_int_equal(exchange_seal_key(&s.tenant, FIXTURE_EPOCH, &s.key), 0);
        for (unsigned i = 0; i < PAYLOAD; i++)
                s.payload[i] = (uint8_t)(i * 7);
        return s;
}

/* In three pieces, one of them empty, and with room behind the last one. */
static unsigned cut_payload(uint8_t *payload, struct iovec iov[4])
{
        iov[0] = (struct iovec){payload, 33};
        iov[1] = (struct iovec){NULL, 0};
        iov[2] = (struct iovec){payload + 33, 1};
        iov[3] = (struct iovec){payload + 34, PAYLOAD - 34};
        return 4;
}

static struct value seal(struct scene *s, const struct seal_key *key)
{
        struct iovec iov[4];
        struct value v;

        assert_int_equal(envelope_seal(&s->envelope, key, iov, cut_payload(s->payload, iov), nonce,
                                 v.header, key ? v.payload : NULL),
                0);
        if (!key)
                memcpy(v.payload, s->payload, PAYLOAD);
        return v;
}

/* Opens a copy, as it would have arrived. Where it is good its payload is the scene's. */
static enum envelope_fault open_value(const struct scene *s, const struct envelope *want,
        const struct seal_key *key, const struct value *v, uint64_t n)
{
        struct value arrived = *v;
        struct envelope says = {0};
        struct iovec iov[4];
        enum envelope_fault fault = envelope_open(
                want, key, n, arrived.header, iov, cut_payload(arrived.payload, iov), &says);

        if (fault == ENVELOPE_GOOD) {
                assert_memory_equal(arrived.payload, s->payload, PAYLOAD);
                assert_memory_equal(&says, &s->envelope, sizeof(says));
        } else {
                const struct envelope nothing = {0};

                assert_memory_equal(&says, &nothing, sizeof(says));
        }
        return fault;
}

TEST(test_opens)
{
        struct scene s = scene_new();
        struct value summed = seal(&s, NULL), sealed = seal(&s, &s.key);

        assert_int_equal(open_value(&s, &s.envelope, NULL, &summed, sizeof(summed)), ENVELOPE_GOOD);
        assert_int_equal(
                open_value(&s, &s.envelope, &s.key, &sealed, sizeof(sealed)), ENVELOPE_GOOD);
        /* Nothing of the page can be read in a sealed one. */
        for (size_t i = 64; i + 8 <= sizeof(sealed); i++) {
                const uint8_t *at = (const uint8_t *)&sealed + i;

                assert_memory_not_equal(at, s.envelope.key, 8);
                assert_memory_not_equal(at, s.envelope.parent, 8);
                assert_memory_not_equal(at, s.envelope.id, 8);
                assert_memory_not_equal(at, s.payload, 8);
        }
        assert_int_equal(
                open_value(&s, &s.envelope, &s.key, &summed, sizeof(summed)), ENVELOPE_NOT_SEALED);
        assert_int_equal(
                open_value(&s, &s.envelope, NULL, &sealed, sizeof(sealed)), ENVELOPE_SEALED);
}

/* The bytes of the format: SHA-256 of a sealed value that Python's cryptography made of the same
 * fields, by AES-256-GCM with the page's key of test_exchange_keys.c. */
TEST(test_vector)
{
        struct scene s = scene_new();
        struct value sealed = seal(&s, &s.key);
        uint8_t digest[32];
        char hex[65];

        assert_int_equal(sizeof(sealed), ENVELOPE_BYTES + PAYLOAD);
        assert_true(EVP_Digest(&sealed, sizeof(sealed), digest, NULL, EVP_sha256(), NULL));
        assert_string_equal(format_hex(digest, 32, hex),
                "cbeae9c46ea868ed75738814f5128eb8bdcc1088ac501b5aaff10ec611718f04");
}

TEST(test_nonces_differ)
{
        struct scene s = scene_new();
        struct iovec iov = {s.payload, PAYLOAD};
        struct value a, b;

        assert_int_equal(envelope_seal(&s.envelope, &s.key, &iov, 1, NULL, a.header, a.payload), 0);
        assert_int_equal(envelope_seal(&s.envelope, &s.key, &iov, 1, NULL, b.header, b.payload), 0);
        assert_memory_not_equal(a.header + 32, b.header + 32, sizeof(nonce));
        assert_memory_not_equal(a.payload, b.payload, PAYLOAD);
        assert_int_equal(open_value(&s, &s.envelope, &s.key, &a, sizeof(a)), ENVELOPE_GOOD);
}

static void refuses(const struct scene *s, const struct envelope *want, const struct value *summed,
        const struct value *sealed, enum envelope_fault fault)
{
        assert_int_equal(open_value(s, want, NULL, summed, sizeof(*summed)), fault);
        if (fault == ENVELOPE_OTHER_ID || fault == ENVELOPE_OTHER_KEY ||
                fault == ENVELOPE_OTHER_RANK)
                fault = ENVELOPE_SEAL_BROKEN; /* another key of AES's */
        assert_int_equal(open_value(s, want, &s->key, sealed, sizeof(*sealed)), fault);
}

/* A good envelope of something else than what was asked for. */
TEST(test_swapped)
{
        struct scene s = scene_new();
        struct value summed = seal(&s, NULL), sealed = seal(&s, &s.key);
        struct envelope want = s.envelope;
        struct exchange_tenant other = s.tenant;
        struct seal_key key;

        want.key[31] ^= 1;
        refuses(&s, &want, &summed, &sealed, ENVELOPE_OTHER_KEY);
        want = s.envelope;
        want.parent[0] ^= 1;
        refuses(&s, &want, &summed, &sealed, ENVELOPE_OTHER_PARENT);
        want = s.envelope;
        want.rank = UINT32_MAX;
        refuses(&s, &want, &summed, &sealed, ENVELOPE_OTHER_RANK);
        want = s.envelope;
        want.codec = 0;
        refuses(&s, &want, &summed, &sealed, ENVELOPE_OTHER_CODEC);
        want = s.envelope;
        want.tokens = 15;
        refuses(&s, &want, &summed, &sealed, ENVELOPE_TOKENS_BAD);
        want = s.envelope;
        want.payload_bytes--;
        refuses(&s, &want, &summed, &sealed, ENVELOPE_LENGTH);
        want = s.envelope;
        want.epoch++;
        refuses(&s, &want, &summed, &sealed, ENVELOPE_OTHER_EPOCH);
        /* A real request has the key of that epoch. */
        assert_int_equal(exchange_seal_key(&s.tenant, want.epoch, &key), 0);
        assert_int_equal(
                open_value(&s, &want, &key, &sealed, sizeof(sealed)), ENVELOPE_SEAL_BROKEN);

        strcpy(other.name, "other"); /* with the same secret, even */
        assert_int_equal(fixture_envelope(&other, PAYLOAD, &want), 0);
        refuses(&s, &want, &summed, &sealed, ENVELOPE_OTHER_ID);
        assert_int_equal(exchange_seal_key(&other, FIXTURE_EPOCH, &key), 0);
        assert_int_equal(
                open_value(&s, &s.envelope, &key, &sealed, sizeof(sealed)), ENVELOPE_SEAL_BROKEN);
}

TEST(test_lengths)
{
        struct scene s = scene_new();
        struct value summed = seal(&s, NULL), sealed = seal(&s, &s.key);
        struct iovec few = {sealed.payload, PAYLOAD - 1};
        struct envelope says;

        for (uint64_t n = 0; n <= ENVELOPE_BYTES; n++)
                assert_int_equal(open_value(&s, &s.envelope, &s.key, &sealed, n), ENVELOPE_SHORT);
        for (uint64_t n = ENVELOPE_BYTES + 1; n < 2 * sizeof(sealed); n++) {
                enum envelope_fault fault = n == sizeof(sealed) ? ENVELOPE_GOOD : ENVELOPE_LENGTH;

                assert_int_equal(open_value(&s, &s.envelope, &s.key, &sealed, n), fault);
                assert_int_equal(open_value(&s, &s.envelope, NULL, &summed, n), fault);
        }
        assert_int_equal(open_value(&s, &s.envelope, NULL, &summed, UINT64_MAX), ENVELOPE_LENGTH);
        assert_int_equal(
                envelope_open(&s.envelope, &s.key, sizeof(sealed), sealed.header, &few, 1, &says),
                ENVELOPE_LENGTH);
}

/* A value longer than any sealed one is refused, even if sum and request have its length. */
TEST(test_too_long)
{
        struct scene s = scene_new();
        struct value summed = seal(&s, NULL);
        static uint8_t piece[1 << 20];
        const uint64_t n = ENVELOPE_PAYLOAD_MAX + 1;
        struct iovec iov[64];
        struct envelope says;

        for (unsigned i = 0; i < ARRAY_SIZE(iov); i++)
                iov[i] = (struct iovec){piece, sizeof(piece)};
        s.envelope.payload_bytes = n;
        memcpy(summed.header + 24, &n, sizeof(n));
        fixture_mend_sum(summed.header);
        assert_int_equal(envelope_open(&s.envelope, NULL, ENVELOPE_BYTES + n, summed.header, iov,
                                 ARRAY_SIZE(iov), &says),
                ENVELOPE_LENGTH);
}

TEST(test_not_sealed_if_wrong)
{
        struct scene s = scene_new();
        struct iovec iov = {s.payload, PAYLOAD};
        const struct envelope good = s.envelope;
        struct envelope bad[6] = {good, good, good, good, good, good};
        uint8_t header[ENVELOPE_BYTES];

        bad[0].payload_bytes = 0;
        bad[1].payload_bytes = ENVELOPE_PAYLOAD_MAX + 1;
        bad[2].payload_bytes = PAYLOAD + 1; /* the pieces have fewer */
        bad[3].tokens = 0;
        bad[4].tokens = ENVELOPE_TOKENS_MAX + 1;
        bad[5].tag = 0; /* and an epoch of none */
        for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(
                        envelope_seal(&bad[i], NULL, &iov, 1, NULL, header, NULL), -EINVAL);
        assert_int_equal(envelope_seal(&good, NULL, &iov, 1, NULL, header, NULL), 0);
}

/* A correct sum over fields that this version never writes, or of another page. */
TEST(test_summed_by_enemy)
{
        static const struct {
                size_t at;
                enum envelope_fault fault;
        } rows[] = {
                {64, ENVELOPE_OTHER_ID},
                {96, ENVELOPE_OTHER_KEY},
                {128, ENVELOPE_OTHER_PARENT},
                {160, ENVELOPE_OTHER_EPOCH},
                {184, ENVELOPE_OTHER_RANK},
                {189, ENVELOPE_TOKENS_BAD},
                {192, ENVELOPE_OTHER_CODEC},
                {196, ENVELOPE_FORMAT_BAD}, /* unused, */
                {200, ENVELOPE_FORMAT_BAD}, /* and from here */
                {239, ENVELOPE_FORMAT_BAD}, /* to here */
                {240, ENVELOPE_PAYLOAD_SUM},
        };
        struct scene s = scene_new();
        struct value summed = seal(&s, NULL), v;

        for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
                v = summed;
                v.header[rows[i].at] ^= 1;
                fixture_mend_sum(v.header);
                assert_int_equal(open_value(&s, &s.envelope, NULL, &v, sizeof(v)), rows[i].fault);
        }
        /* An epoch of no tag. */
        v = summed;
        memset(v.header + 168, 0, sizeof(uint64_t));
        fixture_mend_sum(v.header);
        assert_int_equal(open_value(&s, &s.envelope, NULL, &v, sizeof(v)), ENVELOPE_FORMAT_BAD);
        v = summed;
        memset(v.header + 188, 0, sizeof(uint32_t));
        fixture_mend_sum(v.header);
        assert_int_equal(open_value(&s, &s.envelope, NULL, &v, sizeof(v)), ENVELOPE_TOKENS_BAD);
}

/* Header fields with values that this version never writes. */
TEST(test_format)
{
        static const struct {
                size_t at;
                enum envelope_fault fault;
        } rows[] = {
                {0, ENVELOPE_MAGIC_BAD},
                {8, ENVELOPE_OTHER_VERSION},
                {13, ENVELOPE_FORMAT_BAD},  /* cipher */
                {16, ENVELOPE_FORMAT_BAD},  /* header_bytes */
                {20, ENVELOPE_FORMAT_BAD},  /* unused */
                {24, ENVELOPE_LENGTH},      /* payload_bytes */
                {32, ENVELOPE_FORMAT_BAD},  /* nonce */
                {44, ENVELOPE_FORMAT_BAD},  /* unused */
                {63, ENVELOPE_FORMAT_BAD},  /* tag of GCM */
                {64, ENVELOPE_HEADER_SUM},  /* identity */
                {196, ENVELOPE_HEADER_SUM}, /* unused */
                {240, ENVELOPE_HEADER_SUM}, /* payload_sum */
                {255, ENVELOPE_HEADER_SUM},
                {256, ENVELOPE_PAYLOAD_SUM},
                {sizeof(struct value) - 1, ENVELOPE_PAYLOAD_SUM},
        };
        struct scene s = scene_new();
        struct value summed = seal(&s, NULL), sealed = seal(&s, &s.key), v;

        for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
                v = summed;
                ((uint8_t *)&v)[rows[i].at] ^= 0x40;
                assert_int_equal(open_value(&s, &s.envelope, NULL, &v, sizeof(v)), rows[i].fault);
        }
        /* Each single bit of a sealed one. */
        for (size_t bit = 0; bit < 8 * sizeof(v); bit++) {
                v = sealed;
                ((uint8_t *)&v)[bit / 8] ^= (uint8_t)(1 << bit % 8);
                assert_int_not_equal(
                        open_value(&s, &s.envelope, &s.key, &v, sizeof(v)), ENVELOPE_GOOD);
                v = summed;
                ((uint8_t *)&v)[bit / 8] ^= (uint8_t)(1 << bit % 8);
                assert_int_not_equal(
                        open_value(&s, &s.envelope, NULL, &v, sizeof(v)), ENVELOPE_GOOD);
        }
}

TEST(test_words)
{
        for (unsigned i = 0; i < N_ENVELOPE_FAULTS; i++) {
                assert_non_null(envelope_fault_name((enum envelope_fault)i));
                assert_non_null(envelope_fault_text((enum envelope_fault)i));
                for (unsigned j = 0; j < i; j++)
                        assert_string_not_equal(envelope_fault_name((enum envelope_fault)i),
                                envelope_fault_name((enum envelope_fault)j));
        }
        assert_string_equal(envelope_fault_name(N_ENVELOPE_FAULTS), "unknown");
        assert_string_equal(envelope_fault_text((enum envelope_fault) - 1), "unknown");
}

/* ---- a million enemies ----------------------------------------------------------------------- */

#define N_MUTATIONS 1000000
#define N_VALUES    9

/* Genuine values for neighbours of the requested page. They have another page, epoch, rank and
 * model, tenant, parent page, codec, or more tokens. */
static void make_values(struct value values[N_VALUES], bool is_sealed)
{
        for (unsigned i = 0; i < N_VALUES; i++) {
                struct scene s = scene_new();

                if (i == 5)
                        strcpy(s.tenant.name, "other");
                assert_int_equal(fixture_envelope(&s.tenant, PAYLOAD, &s.envelope), 0);
                s.envelope.key[0] ^= i == 1;
                s.envelope.epoch += i == 2;
                s.envelope.rank += i == 3;
                s.envelope.id[0] ^= i == 4;
                s.envelope.parent[0] ^= i == 6;
                s.envelope.codec += i == 7;
                s.envelope.tokens += i == 8;
                assert_int_equal(exchange_seal_key(&s.tenant, s.envelope.epoch, &s.key), 0);
                s.payload[0] = (uint8_t)i;
                values[i] = seal(&s, is_sealed ? &s.key : NULL);
        }
}

/* Flips bits, writes over bytes, takes a part of another value, or swaps header and payload of two;
 * from 1 to 4 times. *v is of the page that is asked for, as is values[0]. */
static void mutate(struct value *v, const struct value values[N_VALUES])
{
        uint8_t *bytes = (uint8_t *)v;

        for (unsigned n = 1 + random_below(4); n > 0; n--) {
                const struct value *other = &values[random_below(N_VALUES)];
                size_t at = random_below(sizeof(*v)), len = 1 + random_below(64);

                len = MIN(len, sizeof(*v) - at);
                switch (random_below(6)) {
                case 0:
                        bytes[at] ^= (uint8_t)(1 << random_below(8));
                        break;
                case 1:
                        bytes[at] = (uint8_t)random_u64();
                        break;
                case 2:
                        memset(bytes + at, (int)random_below(2) * 0xff, len);
                        break;
                case 3:
                        memcpy(bytes + at, (const uint8_t *)other + at, len);
                        break;
                case 4:
                        memcpy(v->payload, other->payload, PAYLOAD);
                        break;
                default:
                        memcpy(v->header, other->header, ENVELOPE_BYTES);
                        break;
                }
        }
}

TEST(test_mutations)
{
        struct scene s = scene_new();
        struct value values[2][N_VALUES];
        unsigned n_changed = 0, n_by_fault[N_ENVELOPE_FAULTS] = {0};

        random_start("test_envelope");
        make_values(values[0], false);
        make_values(values[1], true);
        s.payload[0] = 0;
        for (unsigned i = 0; i < 2; i++)
                for (unsigned j = 0; j < N_VALUES; j++)
                        assert_int_equal(
                                open_value(&s, &s.envelope, i ? &s.key : NULL, &values[i][j],
                                        sizeof(struct value)) == ENVELOPE_GOOD,
                                j == 0);
        while (n_changed < N_MUTATIONS) {
                const struct value *genuine = values[n_changed % 2];
                const struct seal_key *key = n_changed % 2 ? &s.key : NULL;
                uint64_t len = sizeof(struct value);
                struct value v = genuine[0];
                enum envelope_fault fault;

                mutate(&v, genuine);
                if (random_below(64) == 0)
                        len = random_below(2 * sizeof(v));
                if (len == sizeof(v) && memcmp(&v, &genuine[0], sizeof(v)) == 0)
                        continue; /* nothing was changed after all */
                fault = open_value(&s, &s.envelope, key, &v, len);
                assert_int_not_equal(fault, ENVELOPE_GOOD);
                n_by_fault[fault]++;
                n_changed++;
        }
        /* Each of these checks found some of them. */
        assert_true(n_by_fault[ENVELOPE_SEAL_BROKEN] > 0);
        assert_true(n_by_fault[ENVELOPE_HEADER_SUM] > 0);
        assert_true(n_by_fault[ENVELOPE_PAYLOAD_SUM] > 0);
        for (enum envelope_fault f = ENVELOPE_OTHER_ID; f <= ENVELOPE_TOKENS_BAD; f++)
                assert_true(n_by_fault[f] > 0);
}
