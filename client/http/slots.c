#include "client/http/slots.h"

#include <stddef.h>

#include "base/macros.h"

void slots_init(struct slots *s)
{
        s->n_used = s->n_staying = s->n_cut = 0;
        for (unsigned i = 0; i < SLOTS_ALL; i++)
                s->all[i] = (struct slot){.fd = -1};
}

struct slot *slots_enter(struct slots *s, int fd, uint64_t now_nsec)
{
        for (unsigned i = 0; i < SLOTS_ALL; i++) {
                if (s->all[i].fd >= 0)
                        continue;
                s->all[i] = (struct slot){.fd = fd, .since_nsec = now_nsec, .moved_nsec = now_nsec};
                s->n_used++;
                s->n_staying++;
                return &s->all[i];
        }
        return NULL;
}

void slot_note_unread(struct slot *slot, uint64_t unread, uint64_t now_nsec)
{
        if (unread != slot->unread)
                slot->moved_nsec = now_nsec;
        slot->unread = unread;
}

void slot_ask(struct slot *slot, uint64_t now_nsec)
{
        slot->phase = SLOT_ASKED;
        if (slot->unread == 0)
                slot->since_nsec = slot->moved_nsec = now_nsec;
}

void slot_answer(struct slot *slot, uint64_t now_nsec)
{
        slot->phase = SLOT_WRITES;
        if (slot->unread == 0)
                slot->moved_nsec = now_nsec;
}

void slot_answered(struct slot *slot)
{
        slot->phase = SLOT_WAITS;
}

void slots_leave(struct slots *s, struct slot *slot)
{
        s->n_used--;
        s->n_staying -= !slot->is_going;
        s->n_cut -= slot->is_cut;
        *slot = (struct slot){.fd = -1};
}

struct slot *slots_send_away(struct slots *s, uint64_t now_nsec)
{
        struct slot *first = NULL;

        if (s->n_staying <= SLOTS_KEPT)
                return NULL;
        for (unsigned i = 0; i < SLOTS_ALL; i++) {
                struct slot *slot = &s->all[i];

                if (slot->fd >= 0 && !slot->is_going &&
                        (!first || slot->since_nsec < first->since_nsec))
                        first = slot;
        }
        if (now_nsec - first->since_nsec <= SLOTS_ASK_NSEC) /* it may still ask: more stay */
                return NULL;
        first->is_going = true;
        s->n_staying--;
        return first;
}

static struct slot *cut_slot(struct slots *s, struct slot *slot)
{
        slot->is_cut = true;
        s->n_cut++;
        return slot;
}

struct slot *slots_cut_off(struct slots *s, uint64_t now_nsec)
{
        uint64_t first_moved = now_nsec - MIN(now_nsec, SLOTS_STALL_NSEC);
        struct slot *first = NULL;

        if (s->n_used - s->n_cut <= SLOTS_ALL - SLOTS_FREE)
                return NULL;
        for (unsigned i = 0; i < SLOTS_ALL; i++) {
                struct slot *slot = &s->all[i];
                bool is_late = now_nsec - slot->since_nsec > SLOTS_ANSWER_NSEC;
                uint64_t moved = is_late ? 0 : slot->moved_nsec;

                if (slot->fd >= 0 && !slot->is_cut && slot->phase != SLOT_ASKED &&
                        moved < first_moved) {
                        first = slot;
                        first_moved = moved;
                }
        }
        return first ? cut_slot(s, first) : NULL;
}

struct slot *slots_stalled_stream(struct slots *s, uint64_t (*unread)(int fd))
{
        struct slot *stalled = NULL;

        for (unsigned i = 0; i < SLOTS_ALL; i++) {
                struct slot *slot = &s->all[i];
                uint64_t before = slot->unread;

                if (slot->fd < 0 || !slot->is_stream || slot->is_cut)
                        continue;
                slot->unread = unread(slot->fd);
                if (before > 0 && slot->unread > 0)
                        stalled = slot;
        }
        return stalled ? cut_slot(s, stalled) : NULL;
}

unsigned slots_shortage(const struct slots *s)
{
        return s->n_used > SLOTS_ALL - SLOTS_FREE ? s->n_used - (SLOTS_ALL - SLOTS_FREE) : 0;
}
