#include "policy/pgi-class.h"

#include "base/macros.h"
#include "policy/pgi-table.h"

/* Bounds of the lengths of texts, and of their new parts: 2k, 8k and 32k tokens distinguish a
 * question, a conversation, a document and a long context. */
#define FIRST_TOKENS UINT64_C(2048)

/* RETURNS: 4 s, 16 s, 64 s, ... 5 h. */
#define FIRST_DELAY_NSEC UINT64_C(4000000000)

/* 0: up to first, 1: up to four times that, ... n - 1. */
static uint32_t quadruple_bin(uint64_t value, uint64_t first, uint32_t n)
{
        uint32_t bin = 0;

        while (bin + 1 < n && value > first << (2 * bin))
                bin++;
        return bin;
}

uint32_t pgi_hint_code(enum evict_hint hint, uint64_t after_nsec)
{
        switch (hint) {
        case EVICT_HINT_CONTINUES:
                return PGI_HINT_CONTINUES;
        case EVICT_HINT_DONE:
                return PGI_HINT_DONE;
        case EVICT_HINT_RETURNS:
                return PGI_HINT_RETURNS + quadruple_bin(after_nsec, FIRST_DELAY_NSEC, PGI_DELAYS);
        case EVICT_HINT_UNKNOWN:
                break;
        }
        return PGI_HINT_NONE;
}

uint32_t pgi_size_bin(uint64_t tokens, uint32_t n)
{
        return quadruple_bin(tokens, FIRST_TOKENS, n);
}

static uint32_t first_class(uint32_t hint_code)
{
        switch (hint_code) {
        case PGI_HINT_NONE:
                return PGI_BODY;
        case PGI_HINT_CONTINUES:
                return PGI_CONTINUES;
        default:
                return PGI_DONE;
        }
}

uint32_t pgi_body_class(uint32_t hint_code, uint32_t turn, uint32_t length_bin, uint32_t fresh_bin)
{
        uint32_t turns = hint_code == PGI_HINT_NONE ? PGI_TURNS : PGI_TURNS_HINTED;
        uint32_t turn_bin = MIN(turn, turns) - 1;

        if (hint_code >= PGI_HINT_RETURNS)
                return PGI_RETURNS + hint_code - PGI_HINT_RETURNS;
        return first_class(hint_code) + (turn_bin * PGI_LENGTHS + length_bin) * PGI_FRESHES +
               fresh_bin;
}

uint32_t pgi_fresh_bin_of(uint32_t class)
{
        return class >= PGI_BODY && class < PGI_RETURNS ? (class - PGI_BODY) % PGI_FRESHES : 0;
}

uint32_t pgi_kid_with(uint32_t kid, uint32_t tag)
{
        uint32_t with = 1 + tag % (PGI_KIDS - 1);

        return kid == PGI_NO_KID || kid == with ? with : PGI_KIDS;
}

uint32_t pgi_shared_class(uint32_t accesses)
{
        uint32_t log2 = 31 - (uint32_t)__builtin_clz(MAX(accesses, 1U));

        return PGI_SHARED + MIN(log2, PGI_N_SHARED - 1);
}
