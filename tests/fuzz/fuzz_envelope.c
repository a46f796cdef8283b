/*
 * Values read under a page's name. Bit 0 of the first byte: the tenant has a secret. Bit 1: the
 * rest is the value as read, or else changes of a genuine one, four bytes each: where (2), and two
 * bytes to write there.
 *
 * Only values that a host of the tenant wrote are accepted. With sums: the value equals the bytes
 * that sealing its contents gives. With a secret: the value is the genuine one.
 */
#include <string.h>

#include "base/macros.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/exchange-fixture.h"

#define PAYLOAD 64

struct value {
        uint8_t header[ENVELOPE_BYTES];
        uint8_t payload[PAYLOAD];
};

static struct value genuine[2]; /* without a secret, with one */
static struct exchange_tenant tenant;
static struct envelope envelope;
static struct seal_key seal_key;

static void make_genuine(void)
{
        static const uint8_t nonce[12] = "fuzz";
        uint8_t payload[PAYLOAD];
        struct iovec iov = {payload, PAYLOAD};

        memset(payload, 'p', PAYLOAD);
        tenant = fixture_tenant();
        CHECK(fixture_envelope(&tenant, PAYLOAD, &envelope) == 0);
        CHECK(exchange_seal_key(&tenant, FIXTURE_EPOCH, &seal_key) == 0);
        CHECK(envelope_seal(&envelope, NULL, &iov, 1, NULL, genuine[0].header, NULL) == 0);
        memcpy(genuine[0].payload, payload, PAYLOAD);
        CHECK(envelope_seal(&envelope, &seal_key, &iov, 1, nonce, genuine[1].header,
                      genuine[1].payload) == 0);
}

/* Sealing the accepted value's contents gives the value. */
static void check_sums(const uint8_t *value, const struct envelope *says, struct iovec payload)
{
        uint8_t header[ENVELOPE_BYTES];

        CHECK(envelope_seal(says, NULL, &payload, 1, NULL, header, NULL) == 0);
        CHECK(memcmp(header, value, ENVELOPE_BYTES) == 0);
}

static void run_raw(const uint8_t *data, size_t size, bool is_sealed)
{
        struct envelope want = envelope, says;
        struct iovec iov = {NULL, size > ENVELOPE_BYTES ? size - ENVELOPE_BYTES : 0};
        uint8_t header[ENVELOPE_BYTES] = {0};
        enum envelope_fault fault;

        iov.iov_base = malloc(iov.iov_len + 1);
        CHECK(iov.iov_base);
        memcpy(header, data, MIN(size, sizeof(header)));
        if (iov.iov_len > 0)
                memcpy(iov.iov_base, data + ENVELOPE_BYTES, iov.iov_len);
        want.payload_bytes = iov.iov_len;
        fault = envelope_open(&want, is_sealed ? &seal_key : NULL, size, header, &iov, 1, &says);
        CHECK(fault < N_ENVELOPE_FAULTS && envelope_fault_name(fault));
        if (fault == ENVELOPE_GOOD && is_sealed)
                CHECK(size == sizeof(genuine[1]) && memcmp(data, &genuine[1], size) == 0);
        else if (fault == ENVELOPE_GOOD)
                check_sums(data, &says, iov);
        free(iov.iov_base);
}

static void run_changes(const uint8_t *data, size_t size, bool is_sealed)
{
        struct value v = genuine[is_sealed];
        struct iovec iov = {v.payload, PAYLOAD};
        struct envelope says;
        bool is_same;

        for (; size >= 4; data += 4, size -= 4) {
                size_t at = (data[0] | (size_t)data[1] << 8) % (sizeof(v) - 1);

                memcpy((uint8_t *)&v + at, data + 2, 2);
        }
        is_same = memcmp(&v, &genuine[is_sealed], sizeof(v)) == 0;
        if (envelope_open(&envelope, is_sealed ? &seal_key : NULL, sizeof(v), v.header, &iov, 1,
                    &says) != ENVELOPE_GOOD)
                CHECK(!is_same);
        else if (is_sealed)
                CHECK(is_same);
        else
                check_sums(v.header, &says, iov);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (size == 0)
                return 0;
        if (envelope.tokens == 0)
                make_genuine();
        if (data[0] & 2)
                run_changes(data + 1, size - 1, data[0] & 1);
        else
                run_raw(data + 1, size - 1, data[0] & 1);
        return 0;
}
