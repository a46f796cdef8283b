#include "daemon/core/cache/note-events.h"

#include "daemon/core/state/detail.h"
#include "daemon/core/state/ns.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"

static void note_event(struct ns *ns, struct event_note n)
{
        struct store *s = ns->store;

        n.tenant = ns->tenant->name;
        n.ns = ns->name;
        event_note(&s->event_log, s->now_nsec, &n);
}

/* Returns why pages are dropped, except for evictions. */
static const char *cause_name(enum drop_cause cause)
{
        switch (cause) {
        case CAUSE_NONE:
                break;
        case CAUSE_KEY:
                return "key invalidated";
        case CAUSE_TAG:
                return "tag invalidated";
        case CAUSE_SESSION:
                return "session";
        case CAUSE_NAMESPACE:
                return "namespace invalidated";
        case CAUSE_PURGE:
                return "purge";
        case CAUSE_RECALL:
                return "recall";
        case CAUSE_INCOMPLETE:
                return "set incomplete";
        case CAUSE_EXPIRED:
                return "not used";
        case CAUSE_DAMAGED:
                return "damaged";
        case CAUSE_HOST:
                return "invalidated on another host";
        case CAUSE_MISMATCH:
                return "a page held wrong numbers";
        }
        return "";
}

/* Returns why a page was evicted. */
static const char *room_reason(struct drop_reason reason, enum tier_kind tier)
{
        if (reason.cause == CAUSE_RECALL)
                return "recall";
        if (reason.by)
                return "lease";
        return tier == TIER_DEVICE ? "limit" : "tier full";
}

void note_gone(struct ns *ns, uint32_t page, struct drop_reason reason)
{
        enum tier_kind tier = tier_of_page(&ns->geometry, page);
        struct event_note n = {
                .tier = (uint8_t)(1 + tier), .pages = 1, .bytes = layout_page_bytes(&ns->layout)};

        if (reason.why == EVICT_PRESSURE) {
                n.kind = EVENT_EVICTED;
                n.reason = room_reason(reason, tier);
                n.by_tenant = reason.by ? reason.by->name : NULL;
        } else {
                n.kind = reason.cause == CAUSE_EXPIRED ? EVENT_EXPIRED : EVENT_DROPPED;
                n.reason = cause_name(reason.cause);
        }
        note_event(ns, n);
}

void note_emptied(struct ns *ns, uint64_t n, enum drop_cause cause)
{
        if (n > 0)
                note_event(ns, (struct event_note){.kind = EVENT_DROPPED,
                                       .pages = n,
                                       .bytes = n * layout_page_bytes(&ns->layout),
                                       .reason = cause_name(cause)});
}

void note_refused(struct ns *ns, uint32_t n, enum lease_reason reason, const struct detail *detail)
{
        note_event(ns, (struct event_note){.kind = EVENT_REFUSED,
                               .pages = n,
                               .bytes = n * layout_page_bytes(&ns->layout),
                               .reason = lease_reason_name(reason),
                               .detail = detail ? detail->text : NULL});
}

void note_demoted(struct ns *ns, uint32_t to)
{
        note_event(ns, (struct event_note){.kind = EVENT_DEMOTED,
                               .pages = 1,
                               .bytes = layout_page_bytes(&ns->layout),
                               .tier = (uint8_t)(1 + tier_of_page(&ns->geometry, to))});
}

void note_revoked(struct extent_set *set, const struct tenant *by, enum recall_kind kind)
{
        note_event(set->ns, (struct event_note){.kind = EVENT_REVOKED,
                                    .bytes = set->charge.bytes,
                                    .by_tenant = by ? by->name : NULL,
                                    .reason = kind == RECALL_COMPACT ? "compaction"
                                              : by                   ? "lease"
                                                                     : "recall or limit"});
}

void note_session_expired(struct ns *ns)
{
        note_event(ns, (struct event_note){.kind = EVENT_EXPIRED, .reason = "session"});
}
