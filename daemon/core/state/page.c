#include "daemon/core/state/page.h"

#include "base/fault-point.h"
#include "base/macros.h"

const char *page_state_name(enum page_state s)
{
        static const char *const names[] = {"free", "granted", "sealed", "retiring", "moving",
                "detached", "quarantined", "null", "pending"};

        return (unsigned)s < ARRAY_SIZE(names) ? names[s] : "unknown";
}

void page_turn(struct page *p, uint64_t generation, enum page_state s)
{
        FAULT_POINT("page-before-turn");
        atomic_store_explicit(&p->word, page_word(generation, s), memory_order_release);
        FAULT_POINT("page-after-turn");
}
