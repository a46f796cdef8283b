#include "daemon/core/cache/wake.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macros.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/memory/tasks.h"

#define WORD_BITS 64u

/* Words of the bitmap that take as long to check as a wake-up. Not tuned. */
#define WORDS_PER_WAKE 4096u

/* Wakes at most `most` threads and returns their number. Not a private futex: the threads are in
 * other processes. The kernel compares the word with the value that a thread has seen before the
 * thread sleeps. The change comes first, so a thread sleeps only if it is woken here. (On a
 * big-endian machine the lower half would be 4 bytes on; none runs this.) */
static uint32_t wake_at(struct ns *ns, uint32_t page, uint32_t most)
{
        long n = syscall(
                SYS_futex, &ns->shared.lines[page].state, FUTEX_WAKE, (int)most, NULL, NULL, 0);

        return n > 0 ? (uint32_t)n : 0;
}

static uint32_t n_words(const struct ns *ns)
{
        return (ns->shared.capacity_pages + WORD_BITS - 1) / WORD_BITS;
}

static bool mark_page(struct ns *ns, uint32_t page)
{
        struct ns_wakes *w = &ns->catalog.announced.wakes;
        uint64_t bit = UINT64_C(1) << (page % WORD_BITS);

        if (!w->pages)
                w->pages = calloc(n_words(ns), sizeof(*w->pages));
        if (!w->pages)
                return false;
        w->n += (w->pages[page / WORD_BITS] & bit) == 0;
        w->pages[page / WORD_BITS] |= bit;
        return true;
}

static void unmark_page(struct ns_wakes *w, uint32_t page)
{
        w->pages[page / WORD_BITS] &= ~(UINT64_C(1) << (page % WORD_BITS));
        w->n--;
}

/* If not all threads of a page were woken, its next turn is after the other pages. */
static bool wake_marked(struct task *c, uint64_t budget)
{
        struct ns *ns = container_of(c, struct ns, catalog.announced.wakes.task);
        struct ns_wakes *w = &ns->catalog.announced.wakes;
        uint32_t left = (uint32_t)MIN(budget, WAKE_SLICE), n_looks = 0;

        while (w->n > 0 && left > 0) {
                uint64_t bits = w->pages[w->at / WORD_BITS] >> (w->at % WORD_BITS);
                uint32_t page, n;

                if (bits == 0) {
                        w->at = (w->at / WORD_BITS + 1) % n_words(ns) * WORD_BITS;
                        left -= ++n_looks % WORDS_PER_WAKE == 0;
                        continue;
                }
                page = w->at + (uint32_t)__builtin_ctzll(bits);
                w->at = (page + 1) % (n_words(ns) * WORD_BITS);
                n = wake_at(ns, page, left);
                if (n < left)
                        unmark_page(w, page);
                left -= MIN(left, n + 1);
        }
        w->n_lately = 0;
        return w->n > 0;
}

void wake_waiters(struct ns *ns, uint32_t page)
{
        struct ns_wakes *w = &ns->catalog.announced.wakes;
        uint32_t left = WAKE_SLICE - w->n_lately, n;

        if (left > 0 && !task_is_queued(&w->task)) {
                n = wake_at(ns, page, left);
                w->n_lately += MIN(left, n + 1);
                if (n < left)
                        return;
        }
        if (!mark_page(ns, page))
                (void)wake_at(ns, page, INT_MAX);
        else if (!task_is_queued(&w->task))
                task_queue(&w->task, ns->tenant);
}

void wake_init(struct ns *ns)
{
        task_init(&ns->catalog.announced.wakes.task);
        ns->catalog.announced.wakes.task.work = wake_marked;
}

void wake_deinit(struct ns *ns)
{
        task_remove(&ns->catalog.announced.wakes.task, ns->tenant);
        free(ns->catalog.announced.wakes.pages);
        ns->catalog.announced.wakes = (struct ns_wakes){0};
        wake_init(ns);
}
