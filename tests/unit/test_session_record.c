/* Records of sessions: what was written is read, and nothing else is. */
#include "tests/unit/test-support.h"

#include <string.h>

#include "daemon/exchange/format/session-record.h"

#define N_KEYS 3

static uint8_t payload[SESSION_RECORD_HEAD_BYTES + (N_KEYS + 1) * EXCHANGE_KEY_BYTES];

static size_t write_record(uint64_t n_tokens, uint32_t n_pages)
{
        uint8_t *keys = session_record_begin(payload, n_tokens, n_pages);

        memset(keys, 'k', N_KEYS * EXCHANGE_KEY_BYTES);
        return session_record_bytes(n_pages);
}

TEST_BARE(test_read)
{
        struct session_record r;
        size_t n = write_record(48, N_KEYS);

        assert_true(session_record_read(payload, n, &r));
        assert_int_equal(r.n_tokens, 48);
        assert_int_equal(r.n_pages, N_KEYS);
        assert_ptr_equal(r.keys, payload + SESSION_RECORD_HEAD_BYTES);
        assert_int_equal(r.keys[N_KEYS * EXCHANGE_KEY_BYTES - 1], 'k');
}

/* Any other bytes, of any length. */
TEST_BARE(test_refused)
{
        struct session_record r = {.n_pages = 77};
        size_t n = write_record(48, N_KEYS);

        for (size_t i = 0; i <= sizeof(payload); i++)
                assert_int_equal(session_record_read(payload, i, &r), i == n);
        r.n_pages = 77;
        payload[0]++; /* the version */
        assert_false(session_record_read(payload, n, &r));
        assert_false(session_record_read(payload, write_record(48, 0), &r));
        assert_false(session_record_read(payload, write_record(N_KEYS - 1, N_KEYS), &r));
        assert_false(
                session_record_read(payload, write_record((uint64_t)UINT32_MAX + 1, N_KEYS), &r));
        (void)session_record_begin(payload, UINT32_MAX, SESSION_RECORD_PAGES_MAX + 1);
        assert_false(session_record_read(
                payload, session_record_bytes(SESSION_RECORD_PAGES_MAX + 1), &r));
        assert_int_equal(r.n_pages, 77);
        assert_true(session_record_read(payload, write_record(UINT32_MAX, N_KEYS), &r));
}
