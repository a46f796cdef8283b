#include "client/exporter/slots.h"

#include <stddef.h>

void slots_init(struct slots *s)
{
        s->n_staying = 0;
        for (unsigned i = 0; i < SLOTS_ALL; i++)
                s->all[i] = (struct slot){.fd = -1};
}

struct slot *slots_enter(struct slots *s, int fd, uint64_t now_nsec)
{
        for (unsigned i = 0; i < SLOTS_ALL; i++) {
                if (s->all[i].fd >= 0)
                        continue;
                s->all[i] = (struct slot){.fd = fd, .since_nsec = now_nsec};
                s->n_staying++;
                return &s->all[i];
        }
        return NULL;
}

void slot_ask(struct slot *slot, uint64_t now_nsec)
{
        slot->is_busy = true;
        slot->since_nsec = now_nsec;
}

void slot_answered(struct slot *slot, uint64_t now_nsec)
{
        slot->is_busy = false;
        slot->since_nsec = now_nsec;
}

void slots_leave(struct slots *s, struct slot *slot)
{
        s->n_staying -= !slot->is_going;
        *slot = (struct slot){.fd = -1};
}

static bool may_go(const struct slot *slot, uint64_t now_nsec)
{
        return slot->fd >= 0 && !slot->is_going &&
               (!slot->is_busy || now_nsec - slot->since_nsec > SLOTS_ANSWER_NSEC);
}

struct slot *slots_send_away(struct slots *s, uint64_t now_nsec)
{
        struct slot *first = NULL;

        if (s->n_staying <= SLOTS_KEPT)
                return NULL;
        for (unsigned i = 0; i < SLOTS_ALL; i++)
                if (may_go(&s->all[i], now_nsec) &&
                        (!first || s->all[i].since_nsec < first->since_nsec))
                        first = &s->all[i];
        if (!first)
                return NULL;
        first->is_going = true;
        s->n_staying--;
        return first;
}
