/* Commands of the worker that concern sessions, tags and explanations. One session is open at a
 * time. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tests/integration/pattern.h"
#include "tests/integration/worker.h"

static struct kvl_session *session;
static struct kvl_session_page session_pages[WORKER_MAX_WORDS];
static uint32_t n_session_pages; /* that were found last */
static uint32_t pages[WORKER_MAX_WORDS];
static uint8_t keys[WORKER_MAX_WORDS * KVL_KEY_BYTES];

struct kvl_session *worker_session(void)
{
        return session;
}

/* session-open ID [must] [load=MSEC] [SECONDS]: is it new, pages, tokens, lost tokens */
static void do_open(struct worker_state *w, char **args, unsigned n_args)
{
        struct kvl_session_options o = {.size = sizeof(o)};
        struct kvl_session_info info = {.size = sizeof(info)};
        int r;

        for (unsigned i = 1; i < n_args; ++i) {
                if (strcmp(args[i], "must") == 0)
                        o.must_exist = 1;
                else if (strncmp(args[i], "load=", 5) == 0)
                        o.load_msec = (uint32_t)strtoul(args[i] + 5, NULL, 10);
                else
                        o.expire_sec = (uint32_t)strtoul(args[i], NULL, 10);
        }
        r = kvl_session_open(w->ns, args[0], strlen(args[0]), &o, &info, &session);
        if (r)
                worker_answer(r);
        else
                printf("0 %d %u %" PRIu64 " %" PRIu64 "\n", info.is_new, info.n_pages,
                        info.n_tokens, info.lost_tokens);
}

/* session-pages FROM MAX: page, tokens and position of each */
static void do_pages(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t n = 0;
        int r = kvl_session_pages(session, (uint32_t)strtoul(args[0], NULL, 10),
                (uint32_t)strtoul(args[1], NULL, 10), session_pages, &n);

        n_session_pages = r == 0 ? n : 0;
        if (r) {
                worker_answer(r);
                return;
        }
        printf("0");
        for (uint32_t i = 0; i < n; ++i)
                printf(" %u %u %" PRIu64, session_pages[i].page, session_pages[i].n_tokens,
                        session_pages[i].first_token);
        printf("\n");
}

/* session-keys KEYS...: are they those of the pages found last? 0 or 1 */
static void do_keys(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t n = worker_parse_keys(args, n_args, keys, WORKER_MAX_WORDS);
        bool same = n == n_session_pages;

        for (uint32_t i = 0; same && i < n; ++i)
                same = memcmp(session_pages[i].key, keys + i * KVL_KEY_BYTES, KVL_KEY_BYTES) == 0;
        printf("%d\n", same ? 0 : 1);
}

/* session-release: all pages found last */
static void do_release(struct worker_state *w, char **args, unsigned n_args)
{
        for (uint32_t i = 0; i < n_session_pages; ++i)
                pages[i] = session_pages[i].page;
        worker_answer(kvl_release(w->ns, pages, n_session_pages));
}

/* publish-with session|- TAG LAST-TOKENS FIRST-KEYS PARENT|- PAGE... */
static void do_publish(struct worker_state *w, char **args, unsigned n_args)
{
        struct kvl_publish p = {.size = sizeof(p), .pages = pages, .keys = keys};
        static uint32_t carried[WORKER_MAX_WORDS];
        uint8_t parent[KVL_KEY_BYTES];
        uint32_t n_done = 0;
        int r;

        p.session = strcmp(args[0], "session") == 0 ? session : NULL;
        p.tag = strtoull(args[1], NULL, 10);
        p.last_tokens = (uint32_t)strtoul(args[2], NULL, 10);
        p.n_pages = worker_parse_pages(args + 5, n_args - 5, pages);
        if (worker_parse_keys(args + 3, 1, keys, WORKER_MAX_WORDS) != p.n_pages) {
                printf("%d as many keys as pages, please\n", -EINVAL);
                return;
        }
        if (worker_parse_keys(args + 4, 1, parent, 1))
                p.parent_key = parent;
        r = kvl_publish(w->ns, &p, carried, &n_done);
        worker_answer_pages(r, carried, n_done);
}

int worker_publish_next(struct worker_state *w, unsigned chain, unsigned index,
        struct kvl_session *of, uint32_t *ret_page)
{
        uint8_t key[KVL_KEY_BYTES], parent[KVL_KEY_BYTES];
        const struct kvl_publish p = {
                .size = sizeof(p),
                .pages = ret_page,
                .keys = key,
                .n_pages = 1,
                .parent_key = index > 0 ? parent : NULL,
                .last_tokens = w->info.page_tokens,
                .session = of,
        };
        int r = kvl_lease(w->ns, 0, 1, ret_page);

        pattern_key(chain, index, key);
        pattern_key(chain, index - 1, parent);
        for (unsigned plane = 0; plane < w->info.n_planes && r == 0; ++plane)
                r = worker_page_fill(w->ns, *ret_page, plane, 1000 * chain + index);
        return r == 0 ? kvl_publish(w->ns, &p, NULL, NULL) : r;
}

#define FILL_PAGES 1024u /* leased and published at once */

/* Pages first.. of `chain`, nothing in them, pinned after. 0 or the library's code. */
static int publish_some(
        struct worker_state *w, unsigned chain, unsigned first, uint32_t n, uint64_t tag)
{
        uint8_t parent[KVL_KEY_BYTES];
        const struct kvl_publish p = {
                .size = sizeof(p),
                .pages = pages,
                .keys = keys,
                .n_pages = n,
                .parent_key = first > 0 ? parent : NULL,
                .last_tokens = w->info.page_tokens,
                .session = session,
                .tag = tag,
        };
        int r = kvl_lease(w->ns, 0, n, pages);

        for (uint32_t i = 0; i < n; ++i)
                pattern_key(chain, first + i, keys + (size_t)i * KVL_KEY_BYTES);
        pattern_key(chain, first - 1, parent);
        if (r == 0)
                r = kvl_publish(w->ns, &p, NULL, NULL);
        return r;
}

/* publish_some(), then releases the pages. */
static int fill_some(
        struct worker_state *w, unsigned chain, unsigned first, uint32_t n, uint64_t tag)
{
        int r = publish_some(w, chain, first, n, tag);

        return r == 0 ? kvl_release(w->ns, pages, n) : r;
}

/* hold CHAIN N M: a text of N pages, which stay pinned, and M pages that stay leased */
static void do_hold(struct worker_state *w, char **args, unsigned n_args)
{
        unsigned n = (unsigned)atoi(args[1]), n_leased = (unsigned)atoi(args[2]);
        int r = 0;

        for (unsigned i = 0; i < n && r == 0; i += FILL_PAGES)
                r = publish_some(w, (unsigned)atoi(args[0]), i, MIN(n - i, FILL_PAGES), 0);
        for (unsigned i = 0; i < n_leased && r == 0; i += FILL_PAGES)
                r = kvl_lease(w->ns, 0, MIN(n_leased - i, FILL_PAGES), pages);
        worker_answer(r);
}

/* fill-chain CHAIN N TAG: a text of N pages that hold nothing, for the session that is open */
static void do_fill(struct worker_state *w, char **args, unsigned n_args)
{
        unsigned n = (unsigned)atoi(args[1]);
        int r = 0;

        for (unsigned i = 0; i < n && r == 0; i += FILL_PAGES)
                r = fill_some(w, (unsigned)atoi(args[0]), i, MIN(n - i, FILL_PAGES),
                        strtoull(args[2], NULL, 10));
        worker_answer(r);
}

/* One page more of `chain`. 0 or the library's code. */
static int talk(struct worker_state *w, unsigned chain, unsigned index)
{
        uint32_t page;
        int r = worker_publish_next(w, chain, index, session, &page);

        return r == 0 ? kvl_release(w->ns, &page, 1) : r;
}

/* session-talk CHAIN FIRST LAST: page after page, each filled with 1000 * CHAIN + its index */
static void do_talk(struct worker_state *w, char **args, unsigned n_args)
{
        unsigned chain = (unsigned)atoi(args[0]), last = (unsigned)atoi(args[2]);
        int r = 0;

        for (unsigned i = (unsigned)atoi(args[1]); i <= last && r == 0; ++i)
                r = talk(w, chain, i);
        worker_answer(r);
}

/* session-truncate FIRST LAST: pages that left */
static void do_truncate(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t n = 0;
        int r = kvl_session_truncate(
                session, strtoull(args[0], NULL, 10), strtoull(args[1], NULL, 10), &n);

        if (r)
                worker_answer(r);
        else
                printf("0 %u\n", n);
}

/* session-keep FIRST-END...: pages that left; END may be "end" */
static void do_keep(struct worker_state *w, char **args, unsigned n_args)
{
        static struct kvl_token_range ranges[KVL_SESSION_RANGES_MAX];
        uint32_t n = 0;
        int r;

        for (unsigned i = 0; i < n_args && i < KVL_SESSION_RANGES_MAX; i++) {
                char *end;

                ranges[i].first_token = strtoull(args[i], &end, 10);
                end++;
                ranges[i].end_token =
                        strcmp(end, "end") == 0 ? KVL_TEXT_END : strtoull(end, NULL, 10);
        }
        r = kvl_session_keep(session, ranges, n_args, &n);
        if (r)
                worker_answer(r);
        else
                printf("0 %u\n", n);
}

/* session-keep-every N TOKENS: the tokens of every second page of these N, which have so many each:
 * pages that left */
static void do_keep_every(struct worker_state *w, char **args, unsigned n_args)
{
        static struct kvl_token_range ranges[KVL_SESSION_RANGES_MAX];
        unsigned n_pages = (unsigned)atoi(args[0]), n = 0;
        uint64_t tokens = strtoull(args[1], NULL, 10);
        uint32_t n_left = 0;
        int r;

        for (unsigned i = 0; i < n_pages && n < KVL_SESSION_RANGES_MAX; i += 2, n++)
                ranges[n] = (struct kvl_token_range){i * tokens, (i + 1) * tokens};
        ranges[n - 1].end_token = KVL_TEXT_END;
        r = kvl_session_keep(session, ranges, n, &n_left);
        if (r)
                worker_answer(r);
        else
                printf("0 %u\n", n_left);
}

/* session-hint HINT AFTER */
static void do_hint(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(kvl_session_hint(
                session, (enum kvl_hint)atoi(args[0]), (uint32_t)strtoul(args[1], NULL, 10)));
}

/* session-close [drop] */
static void do_close(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(kvl_session_close(session, n_args > 0));
        session = NULL;
}

/* copy FROM TO */
static void do_copy(struct worker_state *w, char **args, unsigned n_args)
{
        worker_answer(kvl_page_copy(
                w->ns, (uint32_t)strtoul(args[0], NULL, 10), (uint32_t)strtoul(args[1], NULL, 10)));
}

/* invalidate-tag TAG: pages */
static void do_invalidate(struct worker_state *w, char **args, unsigned n_args)
{
        uint64_t n = 0;
        int r = kvl_invalidate_tag(w->ns, strtoull(args[0], NULL, 10), &n);

        if (r)
                worker_answer(r);
        else
                printf("0 %" PRIu64 "\n", n);
}

/* explain KEYS...: of each STATE:PAGE:CLIENT:BY */
static void do_explain(struct worker_state *w, char **args, unsigned n_args)
{
        static struct kvl_explanation why[256];
        uint32_t n = worker_parse_keys(args, n_args, keys, 256);
        int r = kvl_explain(w->ns, keys, n, why);

        if (r) {
                worker_answer(r);
                return;
        }
        printf("0");
        for (uint32_t i = 0; i < n; ++i)
                printf(" %d:%d:%" PRIu64 ":%s", (int)why[i].state, (int)why[i].page,
                        why[i].client_id, why[i].by);
        printf("\n");
}

/* tiers KEYS...: how many are cached, and how many of these are in a lower tier; doesn't count as a
 * use */
static void do_tiers(struct worker_state *w, char **args, unsigned n_args)
{
        static struct kvl_explanation why[256];
        uint32_t n = worker_parse_keys(args, n_args, keys, 256);
        unsigned n_cached = 0, n_below = 0;
        int r = kvl_explain(w->ns, keys, n, why);

        for (uint32_t i = 0; i < n && r == 0; ++i) {
                if (why[i].state != KVL_EXPLAIN_CACHED)
                        continue;
                n_cached++;
                n_below += kvl_page_tier(w->ns, why[i].page) != KVL_TIER_DEVICE;
        }
        if (r)
                worker_answer(r);
        else
                printf("0 %u %u\n", n_cached, n_below);
}

/* How many pages leases would get. */
static void do_leasable(struct worker_state *w, char **args, unsigned n_args)
{
        int r = kvl_leasable_pages(w->ns);

        if (r < 0)
                worker_answer(r);
        else
                printf("0 %d\n", r);
}

/* probe KEYS...: as tiers, of the run that begins with the first */
static void do_probe(struct worker_state *w, char **args, unsigned n_args)
{
        uint8_t tiers[256];
        uint32_t n_keys = worker_parse_keys(args, n_args, keys, 256), n = 0;
        unsigned n_below = 0;
        int r = kvl_probe(w->ns, keys, n_keys, tiers, &n);

        for (uint32_t i = 0; i < n; ++i)
                n_below += tiers[i] != KVL_TIER_DEVICE;
        if (r)
                worker_answer(r);
        else
                printf("0 %u %u\n", n, n_below);
}

/* probe-hosts MSEC KEYS...: of the run that begins with the first how many are here, and how many
 * here or elsewhere; 1: these would be loaded */
static void do_probe_hosts(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t n_keys = worker_parse_keys(args + 1, n_args - 1, keys, 256), n_here, n;
        int would_load,
                r = kvl_probe_hosts(w->ns, keys, n_keys, atoi(args[0]), &n_here, &n, &would_load);

        if (r)
                worker_answer(r);
        else
                printf("0 %u %u %d\n", n_here, n, would_load);
}

/* expect TTL KEYS... */
static void do_expect(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t n_keys = worker_parse_keys(args + 1, n_args - 1, keys, 256);

        worker_answer(kvl_expect(w->ns, keys, n_keys, (uint32_t)strtoul(args[0], NULL, 10)));
}

/* note-prefill TOKENS NSEC TIMES */
static void do_note_prefill(struct worker_state *w, char **args, unsigned n_args)
{
        uint32_t n_tokens = (uint32_t)strtoul(args[0], NULL, 10);
        uint64_t nsec = strtoull(args[1], NULL, 10);
        int r = n_args == 3 ? 0 : -EINVAL;

        for (unsigned long n = strtoul(args[2], NULL, 10); n > 0 && r == 0; n--)
                r = kvl_note_prefill(w->ns, n_tokens, nsec);
        worker_answer(r);
}

const struct worker_command worker_session_commands[] = {
        {"session-open", do_open},
        {"session-pages", do_pages},
        {"session-keys", do_keys},
        {"session-release", do_release},
        {"session-truncate", do_truncate},
        {"session-keep", do_keep},
        {"session-keep-every", do_keep_every},
        {"session-hint", do_hint},
        {"session-close", do_close},
        {"session-talk", do_talk},
        {"publish-with", do_publish},
        {"fill-chain", do_fill},
        {"hold", do_hold},
        {"copy", do_copy},
        {"invalidate-tag", do_invalidate},
        {"explain", do_explain},
        {"tiers", do_tiers},
        {"probe", do_probe},
        {"probe-hosts", do_probe_hosts},
        {"expect", do_expect},
        {"note-prefill", do_note_prefill},
        {"leasable", do_leasable},
        {NULL, NULL},
};
