/*
 * Replies of a server in RESP2, with the parsers of CLUSTER SLOTS and of redirections. The first
 * byte says in which pieces the rest arrives. The tokens don't depend on the pieces. Nothing is
 * read beyond the bytes that have arrived. Every slot has an owner that exists, or none.
 */
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/remote/protocol/slots.h"
#include "tests/fuzz/fuzz.h"

#define BULK_MAX 4096

/* A digest of all tokens: two parses are the same if theirs are. */
struct digest {
        uint64_t value;
        int result;
        unsigned n_tokens;
};

static void digest_add(struct digest *d, const void *data, size_t len)
{
        const uint8_t *bytes = data;

        for (size_t i = 0; i < len; i++)
                d->value = (d->value ^ bytes[i]) * UINT64_C(0x100000001b3);
}

static void digest_token(struct digest *d, const struct resp_token *t)
{
        struct slot_redirect to;

        CHECK(t->depth <= RESP_DEPTH_MAX && t->text_len <= RESP_LINE_MAX);
        digest_add(d, &t->kind, sizeof(t->kind));
        digest_add(d, &t->depth, sizeof(t->depth));
        digest_add(d, &t->index, sizeof(t->index));
        digest_add(d, &t->number, sizeof(t->number));
        digest_add(d, t->text, t->text_len);
        d->n_tokens++;
        if (t->kind == RESP_ERROR && slot_redirect_parse(t->text, t->text_len, &to))
                CHECK(to.slot < N_SLOTS && to.to.port > 0 &&
                        strlen(to.to.host) < sizeof(to.to.host));
}

static void check_table(const struct slot_table *table)
{
        unsigned n = 0;

        CHECK(table->n_owners <= SLOT_OWNERS_MAX);
        for (unsigned i = 0; i < N_SLOTS; i++) {
                CHECK(table->owner_of[i] == SLOT_NOBODY || table->owner_of[i] < table->n_owners);
                n += table->owner_of[i] != SLOT_NOBODY;
        }
        CHECK(n == table->n_served);
}

/* Parses the data in pieces of `step` bytes, each of them in memory of its own length. */
static struct digest parse(const uint8_t *data, size_t size, size_t step)
{
        static struct slot_table table;
        struct digest d = {.value = UINT64_C(0xcbf29ce484222325)};
        size_t at = 0, arrived = 0, used;
        struct slot_reader reader;
        struct resp_parser p;
        bool is_slots = true, has_table = false;

        resp_init(&p, BULK_MAX);
        slot_reader_init(&reader, &table);
        while (d.result == 0) {
                struct resp_token t = {.kind = RESP_MORE};

                if (p.payload_left > 0) {
                        used = MIN(arrived - at, (size_t)p.payload_left);
                        digest_add(&d, data + at, used);
                        if (is_slots)
                                is_slots = slot_reader_text(
                                                   &reader, (const char *)data + at, used) == 0;
                        resp_took(&p, used);
                        at += used;
                }
                if (p.payload_left == 0) {
                        d.result = resp_next(&p, (const char *)data + at, arrived - at, &used, &t);
                        CHECK(used <= arrived - at);
                        if (d.result < 0)
                                break;
                        at += used;
                }
                if (t.kind == RESP_MORE) {
                        if (arrived == size)
                                break;
                        arrived = MIN(arrived + step, size);
                        continue;
                }
                digest_token(&d, &t);
                has_table |= t.kind == RESP_ARRAY;
                if (is_slots)
                        is_slots = slot_reader_token(&reader, &t) == 0;
                if (t.kind == RESP_END && has_table) {
                        check_table(&table);
                        slot_reader_init(&reader, &table);
                        has_table = false;
                }
                is_slots |= t.kind == RESP_END;
        }
        if (has_table)
                check_table(&table);
        return d;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct digest whole, pieces;

        if (size == 0)
                return 0;
        whole = parse(data + 1, size - 1, size);
        pieces = parse(data + 1, size - 1, 1 + data[0] % 64);
        CHECK(whole.result == pieces.result && whole.n_tokens == pieces.n_tokens);
        CHECK(whole.value == pieces.value || whole.result < 0);
        return 0;
}
