/*
 * Requests of daemon/core as most tests make them: with what they seldom say left out, and done at
 * once where the daemon goes in slices (task.h).
 */
#ifndef KVL_TESTS_AT_ONCE_H
#define KVL_TESTS_AT_ONCE_H

#include <stdint.h>

#include "daemon/core/life/leave.h"
#include "daemon/core/life/open.h"
#include "daemon/core/state/group.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/memory/tasks.h"
#include "daemon/core/requests/invalidate.h"
#include "daemon/core/requests/lease.h"
#include "daemon/core/sessions/session-truncate.h"

/* attach_open_with() with these options alone. */
static inline int attach_open(struct member *m, const char *name, const struct ns_layout *layout,
        const char *device_name, bool keep_page_zero, struct attach **ret_attach,
        struct detail *detail)
{
        const struct attach_options o = {.device = device_name, .keep_page_zero = keep_page_zero};

        return attach_open_with(m, name, layout, &o, ret_attach, detail);
}

/* lease_ask() for n pages, all or nothing, as long as the tenant lets them wait, and for its own
 * reservation as long as it takes. */
static inline int lease_pages(
        struct attach *a, uint32_t n, uint64_t at_nsec, uint32_t *ret_pages, struct detail *detail)
{
        const struct lease_request rq = {
                .n = n, .min = n, .max_wait_nsec = UINT64_MAX, .take_back_nsec = UINT64_MAX};
        struct lease_result result;

        return lease_ask(a, &rq, at_nsec, ret_pages, &result, detail);
}

/* Does the rest of a queued task in one slice. */
static inline void at_once_finish(struct task *task, struct tenant *t)
{
        task_remove(task, t);
        while (task->work(task, UINT64_MAX))
                ;
}

static inline void at_once_dropped(struct drop *drop)
{
}

static inline void at_once_truncated(struct session_truncation *truncation)
{
}

/* The drop was begun with this result. *ret_pages: how many pages went. */
static inline int at_once_drop(struct attach *a, struct drop *drop, int r, uint64_t *ret_pages)
{
        if (r != 0)
                return r;
        if (!drop_is_over(drop)) {
                drop_queue(drop, at_once_dropped);
                at_once_finish(&drop->task, a->ns->tenant);
        }
        *ret_pages = drop->n_pages;
        return 0;
}

/* drop_key() */
static inline int invalidate_key(
        struct attach *a, const uint8_t key[KEY_BYTES], uint64_t *ret_pages, struct detail *detail)
{
        struct drop drop;

        return at_once_drop(a, &drop, drop_key(&drop, a, key, detail), ret_pages);
}

/* drop_tag() */
static inline int invalidate_tag(
        struct attach *a, uint64_t tag, uint64_t *ret_pages, struct detail *detail)
{
        struct drop drop;

        return at_once_drop(a, &drop, drop_tag(&drop, a, tag, detail), ret_pages);
}

/* The truncation was begun with this result. *ret_left: pages that left. */
static inline int at_once_truncate(
        struct session_truncation *begun, int r, uint64_t *ret_left, struct detail *detail)
{
        struct session_truncation queued;
        const struct session_truncation *over = begun;

        if (r < 0)
                return r;
        if (!truncation_is_over(begun)) {
                truncation_queue(begun, &queued, at_once_truncated);
                at_once_finish(&queued.task, queued.ns->tenant);
                over = &queued;
        }
        if (over->result < 0)
                return detail_set(detail, over->result, "%s", over->why.text);
        *ret_left = over->n_left;
        return 0;
}

/* truncation_begin() */
static inline int session_keep(struct session *session, const struct token_range *ranges,
        uint32_t n, uint64_t *ret_left, struct detail *detail)
{
        struct session_truncation t;

        return at_once_truncate(
                &t, truncation_begin(&t, session, ranges, n, detail), ret_left, detail);
}

/* truncation_begin_ends() */
static inline int session_truncate(struct session *session, uint64_t first_tokens,
        uint64_t last_tokens, uint64_t *ret_left, struct detail *detail)
{
        struct session_truncation t;

        return at_once_truncate(&t,
                truncation_begin_ends(&t, session, first_tokens, last_tokens, detail), ret_left,
                detail);
}

/* member_leave() */
static inline void member_free(struct member *m)
{
        while (!list_is_empty(&m->attachments))
                attach_close(list_first(&m->attachments, struct attach, member_link));
        member_leave(m);
}

#endif
