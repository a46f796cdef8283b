/* The reader of traces. With any text, requests are in order of time, blocks make a tree with the
 * requests as its paths, and an error names a line. The first byte chooses the flags. */
#include <errno.h>
#include <string.h>

#include "client/trace/trace.h"
#include "tests/fuzz/fuzz.h"

static void check_request(const struct sim_trace *s, const struct sim_request *r)
{
        uint32_t parent = NODE_NONE;

        CHECK(r->first <= s->n_blocks && r->n_blocks <= s->n_blocks - r->first);
        CHECK(r->tenant < s->n_tenants);
        CHECK(r->hint <= EVICT_HINT_DONE);
        for (uint32_t i = 0; i < r->n_blocks; i++) {
                uint32_t block = s->blocks[r->first + i];

                CHECK(block < s->n_unique && s->parents[block] == parent);
                parent = block;
        }
}

static void check_trace(const struct trace *t, size_t size)
{
        const struct sim_trace *s = &t->sim;

        CHECK(s->n_requests > 0 && s->n_unique <= s->n_blocks && s->n_blocks <= size);
        CHECK(s->n_tenants > 0 && s->n_tenants <= TRACE_TENANTS_MAX);
        CHECK(s->block_tokens > 0 && s->block_tokens <= TRACE_BLOCK_TOKENS_MAX);
        for (uint32_t i = 0; i < s->n_requests; i++) {
                check_request(s, &s->requests[i]);
                CHECK(i == 0 || s->requests[i].time_nsec >= s->requests[i - 1].time_nsec);
        }
}

static void check_text(const char *text, size_t max)
{
        CHECK(strlen(text) < max && text[0] != '\0');
        for (; *text; text++)
                CHECK((unsigned char)*text >= ' ' && (unsigned char)*text < 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        /* Two bits, and two for the unit of time. */
        unsigned flags = size > 0 ? data[0] & 15 : 0;
        struct trace t = {0};
        struct trace_error e = {0};
        int r = trace_parse((const char *)data, size, flags, 0, &t, &e);

        CHECK(r == 0 || r == -EINVAL);
        if (r == 0)
                check_trace(&t, size);
        else
                check_text(e.text, sizeof(e.text));
        CHECK(t.n_bad == 0 || (flags & TRACE_SKIP_BAD));
        if (t.n_bad > 0)
                check_text(t.first_bad.text, sizeof(t.first_bad.text));
        trace_free(&t);
        return 0;
}
