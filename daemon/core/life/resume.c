#include "daemon/core/life/resume.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/core/clients/attach.h"
#include "daemon/core/clients/grants.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/life/leave.h"
#include "daemon/core/memory/idle-sets.h"
#include "daemon/core/state/store.h"
#include "daemon/core/state/tenant.h"
#include "daemon/core/requests/lease.h"

static bool is_among(uint64_t frame, const uint64_t *frames, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                if (frames[i] == frame)
                        return true;
        return false;
}

static int compare_numbers(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return (x > y) - (x < y);
}

/* Did one of these LEASEs of the member lease the page? seqs: sorted. */
static bool is_leased_by(const struct attach *a, uint32_t page, const uint64_t *seqs, uint32_t n)
{
        const struct page_note *note = ns_note(a->ns, page);
        uint64_t seq = note->seq;

        return note->client == a->member->id && seq != 0 && seq != PAGE_SEQ_NONE &&
               bsearch(&seq, seqs, n, sizeof(*seqs), compare_numbers);
}

static void give_back(struct attach *a, const uint64_t *seqs, uint32_t n)
{
        uint32_t next = a->grants->head;

        while (next != PAGE_NONE) {
                uint32_t page = next;
                const struct page *p = ns_page(a->ns, page);

                next = p->next;
                if (!p->ready && !p->given_back && is_leased_by(a, page, seqs, n))
                        grants_give_back(a->grants, page);
        }
}

void member_undo(struct member *m, uint64_t *frames, uint32_t n)
{
        if (n == 0)
                return;
        list_for_each_safe (a, &m->attachments, struct attach, member_link)
                if (a->open_frame != 0 && is_among(a->open_frame, frames, n))
                        attach_close(a);
        for (uint32_t i = 0; i < n; i++)
                frames[i] = lease_seq(frames[i]);
        qsort(frames, n, sizeof(*frames), compare_numbers);
        list_for_each (a, &m->attachments, struct attach, member_link)
                give_back(a, frames, n);
}

int attach_name_mapped(struct attach *a, const uint32_t *sets, uint32_t n, struct detail *d)
{
        for (uint32_t i = 0; i < n; i++) {
                uint64_t *bits = map_find(&a->mapped, sets[i]);

                if (!bits)
                        return detail_set(d, -ESTALE,
                                "set %u of namespace %s, which this client has mapped, is gone: connect anew, as a new client",
                                sets[i], a->ns->name);
                *bits |= MAPPED_NAMED;
        }
        return 0;
}

/* Updates the state of one of the attachment's sets. */
static void keep_mapped_set(struct attach *a, struct extent_set *set)
{
        uint64_t *bits = map_find(&a->mapped, set->index);

        if (!bits)
                return;
        if (!(*bits & MAPPED_NAMED)) {
                attach_forget_mapped(a, set->index);
                return;
        }
        *bits &= ~(uint64_t)(MAPPED_NAMED | MAPPED_TOLD | MAPPED_TOLD_IDLE);
        set->recall.told = set->recall.holders_told = false;
}

/* Makes recalls continue now. */
static void hurry_recalls(struct store *s)
{
        if (s->recalls.n == 0)
                return;
        recall_poll(s);
        if (s->owner.on_recall_work)
                s->owner.on_recall_work(s->owner.data);
}

void member_resumed(struct member *m)
{
        list_for_each (a, &m->attachments, struct attach, member_link)
                for (unsigned i = 0; i < TIER_COUNT; i++)
                        list_for_each_safe (
                                set, &a->ns->tiers[i].sets_bound, struct extent_set, link)
                                keep_mapped_set(a, set);
        hurry_recalls(m->group->tenant->store);
}
