#include "daemon/core/requests/submit.h"

#include <errno.h>
#include <string.h>

#include "daemon/core/cache/lines.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/clients/request.h"
#include "daemon/core/requests/expected.h"
#include "daemon/core/requests/publish.h"
#include "daemon/core/requests/refill.h"
#include "daemon/core/sessions/session.h"
#include "daemon/core/state/feed.h"
#include "proto/status.h"

/* Notes the page that the next PUBLISH with CHAIN continues; page PAGE_NONE if it failed. */
static void set_chain(struct submit_chain *chain, const struct attach *a, int status, uint32_t page)
{
        *chain = (struct submit_chain){
                .ns_id = a->id,
                .status = status,
                .page = page,
                .generation = status == 0 ? ns_page(a->ns, page)->generation : 0,
                .with = chain->with,
        };
}

static void do_parent(struct attach *a, struct submit_chain *chain, const struct shm_submission *s)
{
        uint32_t page = session_find_parent(a, chain->with.session, s->key);

        set_chain(chain, a, page == PAGE_NONE ? KVL_STATUS_NO_PARENT : 0, page);
}

/* Returns the parent of a chained entry: 0, or why it has none. */
static int chained_parent(
        const struct attach *a, const struct submit_chain *chain, uint32_t *ret_parent)
{
        const struct page *p;

        if (chain->ns_id != a->id)
                return KVL_STATUS_NO_PARENT;
        if (chain->status != 0)
                return chain->status;
        p = ns_page(a->ns, chain->page);
        if (!p || p->generation != chain->generation)
                return KVL_STATUS_NO_PARENT;
        *ret_parent = chain->page;
        return 0;
}

static int do_publish(struct attach *a, struct submit_chain *chain, const struct shm_submission *s,
        uint64_t now_nsec, uint32_t *ret_page)
{
        struct publish_one o = {
                .page = s->page,
                .key = s->key,
                .parent = PAGE_NONE,
                .tokens = s->tokens,
                .request = s->request_id,
                .session = chain->with.session,
                .tag = chain->with.tag,
                .window_passed = s->aux & SHM_PUBLISH_PASSED,
        };
        int r = 0;

        if (a->member->read_only)
                r = -EACCES;
        else if (s->flags & SHM_PUBLISH_CHAIN)
                r = chained_parent(a, chain, &o.parent);
        if (r == 0)
                r = publish_shared(a, &o, now_nsec, ret_page, NULL);
        if (r == 0 || r == KVL_STATUS_DUPLICATE)
                set_chain(chain, a, 0, *ret_page);
        else
                set_chain(chain, a, r, PAGE_NONE);
        return r;
}

/* Entries that break a rule of token ids cost nothing but the ids. */
static void do_tokens(struct attach *a, const struct shm_submission *s)
{
        struct shm_token_ids t;

        memcpy(&t, s, sizeof(t));
        if (t.n > 0 && t.n <= SHM_TOKENS_IDS && !a->member->read_only &&
                grants_check_page(a, t.page, NULL) == 0)
                feed_note_ids(a->ns, t.page, t.first, t.ids, t.n);
}

static int do_free(struct attach *a, const struct shm_submission *s)
{
        if (a->member->read_only)
                return -EACCES;
        if (!a->member->repeats)
                return free_pages(a, s->pages, s->tokens, NULL);
        free_pages_again(a, s->pages, s->tokens);
        return 0;
}

/* Returns the rule that the entry breaks, or NULL. */
static const char *broken_rule(const struct shm_submission *s)
{
        unsigned flags = 0;

        if (s->op == SHM_OP_PUBLISH)
                flags = SHM_PUBLISH_ROOT | SHM_PUBLISH_CHAIN;
        else if (s->op == SHM_OP_FETCH)
                flags = SHM_FETCH_COPY | SHM_FETCH_DOWN;
        if (s->op < SHM_OP_PARENT || s->op > SHM_OP_LAST)
                return "ring-op";
        if (s->flags & ~flags)
                return "ring-flags";
        /* Exactly one of the two flags must be set. */
        if (s->op == SHM_OP_PUBLISH && (s->flags == 0 || s->flags == flags))
                return "ring-flags";
        if (s->op == SHM_OP_FETCH && s->flags == flags)
                return "ring-flags";
        if (s->op == SHM_OP_FREE && (s->tokens == 0 || s->tokens > SHM_FREE_PAGES))
                return "ring-free-count";
        return NULL;
}

static bool completes(uint8_t op)
{
        return op == SHM_OP_PUBLISH || op == SHM_OP_FREE || op == SHM_OP_FETCH ||
               op == SHM_OP_FETCH_PLANES;
}

/* FETCH, FETCH_PLANES. */
static int do_fetch(struct attach *a, const struct shm_submission *s, struct submit_result *ret)
{
        bool has_planes = s->op == SHM_OP_FETCH_PLANES;
        bool copies = has_planes || s->flags & SHM_FETCH_COPY;

        /* Without a target it would be a move; without planes, a copy of all planes. */
        if ((copies && s->copy.to == PAGE_NONE) || (has_planes && s->copy.n_planes == 0))
                return -EINVAL;
        ret->fetching = a;
        ret->fetch = (struct fetch_request){
                .page = s->page,
                .generation = s->aux,
                .to = copies ? s->copy.to : PAGE_NONE,
                .goes_down = s->flags & SHM_FETCH_DOWN,
        };
        if (has_planes)
                ret->fetch.planes = (struct plane_range){s->copy.first_plane, s->copy.n_planes};
        return 0;
}

static int execute(struct attach *a, struct submit_chain *chain, const struct shm_submission *s,
        uint64_t now_nsec, struct submit_result *ret)
{
        switch (s->op) {
        case SHM_OP_WITH:
                chain->with = (struct submit_with){s->ns_id, s->page, s->with.tag};
                return 0;
        case SHM_OP_PARENT:
                do_parent(a, chain, s);
                return 0;
        case SHM_OP_PUBLISH:
                return do_publish(a, chain, s, now_nsec, &ret->page);
        case SHM_OP_FREE:
                return do_free(a, s);
        case SHM_OP_TOUCH:
                ret->n_walked = touch_page(a, s->page, s->aux, s->request_id, now_nsec);
                return 0;
        case SHM_OP_EXPECT:
                ret->n_walked = expected_by_page(a, s->page, s->aux, s->expect.ttl_msec, now_nsec);
                return 0;
        case SHM_OP_REFILL:
                if (!magazine_refill(a, s->aux, now_nsec))
                        ret->violation = "magazine";
                return 0;
        case SHM_OP_TOKENS:
                do_tokens(a, s);
                return 0;
        case SHM_OP_REQUEST_END:
                request_end(a, s->request_id, s->aux, now_nsec);
                return 0;
        default:
                return do_fetch(a, s, ret);
        }
}

/* Any entry but TOKENS between a page and those chained to it breaks the chain; any entry but
 * PUBLISH, TOKENS and PARENT ends a WITH. */
static void break_chain(struct submit_chain *chain, const struct shm_submission *s, bool is_there)
{
        bool is_publish = is_there && (s->op == SHM_OP_PUBLISH || s->op == SHM_OP_TOKENS);
        bool is_with = is_publish || (is_there && s->op == SHM_OP_PARENT);

        if (!is_publish)
                *chain = (struct submit_chain){.with = chain->with};
        if (!is_with || chain->with.ns_id != s->ns_id)
                chain->with = (struct submit_with){0};
}

void submit_one(struct member *m, struct submit_chain *chain, const struct shm_submission *s,
        uint64_t now_nsec, struct submit_result *ret)
{
        struct attach *a;
        int r = -ENOENT;

        *ret = (struct submit_result){.violation = broken_rule(s), .page = s->page};
        if (ret->violation)
                return;
        a = attach_find(m, s->ns_id);
        break_chain(chain, s, a && pins_is_open(&a->share));
        if (a && pins_is_open(&a->share))
                r = execute(a, chain, s, now_nsec, ret);
        ret->completes = completes(s->op);
        ret->status = status_to_wire(r);
}

void submit_prefetch(struct member *m, const struct shm_submission *s, uint32_t n)
{
        struct attach *a = NULL;

        for (uint32_t i = 0; i < n; i++) {
                if (s[i].op != SHM_OP_PUBLISH)
                        continue;
                if (!a || a->id != s[i].ns_id)
                        a = attach_find(m, s[i].ns_id);
                if (!a)
                        continue;
                lines_prefetch_page(a->ns, s[i].page);
                lines_prefetch_key(a->ns, s[i].key);
        }
}
