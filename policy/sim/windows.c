/*
 * Requests to a model in which one group of layers has full attention, and the others attend to a
 * window. Pages are as in vLLM's cache. Each block of a text has a page of the full group, which
 * continues the one before it. It also has a page of each group with a window, which continues
 * nothing. A hit ends at the end of a block. It takes all pages of full attention before that, and
 * the last pages of each window. These cover the window's tokens less one, or the whole text if
 * that is shorter.
 *
 * A request holds all pages of full attention, and the window pages before its current block.
 * Missing pages are inserted block by block, window pages first. If there is no room, the rest
 * isn't cached. Later texts are expected to leave this one at three places: its end, the end of the
 * cached pages of full attention, or up to half a window before either. The window of a page has
 * passed if no such text needs the page. vLLM's adapter decides in the same way.
 */
#include "base/macros.h"
#include "policy/sim/sim-impl.h"

struct window_run {
        struct sim *s;
        const uint32_t *path;
        uint32_t n_blocks;
        uint32_t n_window;   /* blocks of a window */
        uint32_t n_found;    /* blocks of full attention that were cached */
        uint32_t n_held;     /* blocks whose page of full attention is held */
        uint32_t first, end; /* blocks whose pages of windows are held */
        uint64_t now;
};

static bool has_windows(const struct sim *s, uint32_t block)
{
        for (uint32_t group = 0; group < s->options.windows.groups; group++)
                if (sim_slot(s, sim_window_page(s, block, group)) == NODE_NONE)
                        return false;
        return true;
}

/* Number of blocks of the longest hit. */
static uint32_t longest_hit(const struct window_run *run)
{
        uint32_t n = 0;

        for (uint32_t i = run->n_found; i-- > 0;) {
                n = has_windows(run->s, run->path[i]) ? n + 1 : 0;
                if (n == run->n_window)
                        return i + n;
        }
        return n;
}

/* Releases block i's window pages of the first n_groups groups. */
static void let_go(const struct window_run *run, uint32_t i, uint32_t n_groups)
{
        struct sim *s = run->s;

        for (uint32_t group = 0; group < n_groups; group++)
                s->options.policy->idle(
                        s->policy, sim_slot(s, sim_window_page(s, run->path[i], group)), run->now);
}

static void find_windows(struct window_run *run, uint32_t n_hit)
{
        struct sim *s = run->s;
        const struct evict_ops *ops = s->options.policy;
        uint64_t request = (uint64_t)s->next + 1;

        for (uint32_t i = 0; i < run->n_found; i++)
                ops->hold(s->policy, sim_slot(s, run->path[i]));
        run->n_held = run->n_found;
        if (run->n_found > 0)
                ops->touch(s->policy, sim_slot(s, run->path[run->n_found - 1]), request, run->now);
        run->first = n_hit - MIN(n_hit, run->n_window);
        run->end = n_hit;
        for (uint32_t i = run->end; i-- > run->first;)
                for (uint32_t group = 0; group < s->options.windows.groups; group++) {
                        uint32_t slot = sim_slot(s, sim_window_page(s, run->path[i], group));

                        ops->hold(s->policy, slot);
                        ops->touch(s->policy, slot, request, run->now);
                }
}

static bool has_passed(const struct window_run *run, uint32_t i)
{
        uint64_t end = (uint64_t)i + run->n_window + MAX(run->n_window / 2, 1U);
        bool is_before_fork = i < run->n_found && end >= run->n_found;

        return end < run->n_blocks && !is_before_fork;
}

/* Holds the window pages of block i, inserting missing ones. Returns false, holding none, if there
 * is no room for all. */
static bool add_windows(struct window_run *run, uint32_t i)
{
        struct sim *s = run->s;
        bool passed = s->options.windows.told && has_passed(run, i);

        for (uint32_t group = 0; group < s->options.windows.groups; group++) {
                uint32_t slot = sim_slot(s, sim_window_page(s, run->path[i], group));

                if (slot != NODE_NONE) {
                        s->options.policy->hold(s->policy, slot);
                } else if (sim_make_room(s, run->now)) {
                        sim_insert_window(s, s->next, i, group, passed, run->now);
                } else {
                        let_go(run, i, group);
                        return false;
                }
        }
        return true;
}

static bool add_block(struct window_run *run, uint32_t i)
{
        if (!add_windows(run, i))
                return false;
        run->end = i + 1;
        if (i >= run->n_found) {
                if (!sim_make_room(run->s, run->now))
                        return false;
                sim_insert(run->s, run->s->next, i, run->now);
                run->n_held = i + 1;
        }
        if (run->end - run->first > run->n_window)
                let_go(run, run->first++, run->s->options.windows.groups);
        return true;
}

void windows_run(struct sim *s, const struct sim_request *r)
{
        const struct evict_ops *ops = s->options.policy;
        struct window_run run = {
                .s = s,
                .path = s->trace.blocks + r->first,
                .n_blocks = r->n_blocks,
                .n_window = MAX((s->options.windows.tokens - 1 + s->trace.block_tokens - 1) /
                                        s->trace.block_tokens,
                        1U),
                .now = r->time_nsec,
        };
        uint32_t n_hit;

        run.n_found = sim_longest_hit(s, run.path, r->n_blocks);
        n_hit = longest_hit(&run);
        sim_count_request(s, r, n_hit);
        find_windows(&run, n_hit);
        for (uint32_t i = n_hit; i < r->n_blocks && add_block(&run, i); i++)
                ;
        sim_end_request(s, r, run.n_held);
        while (run.end-- > run.first)
                let_go(&run, run.end, s->options.windows.groups);
        while (run.n_held-- > 0)
                ops->idle(s->policy, sim_slot(s, run.path[run.n_held]), run.now);
        sim_work(s, run.now);
}
