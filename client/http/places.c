#include "client/http/places.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* The accepting thread waits this long for each connection sent away, whose thread has to end. Not
 * tuned, like all constants here. */
#define AWAY_NSEC (200 * NSEC_PER_USEC)
/* An additional wait for each place of SLOTS_FREE in use: the last one comes 2 s after the first,
 * and answers take less. */
#define SHORT_NSEC NSEC_PER_MSEC

/* Returns NULL: it has none, and is about to be closed. */
static struct slot *slot_of(struct MHD_Connection *c)
{
        return MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

/* Returns the bytes that were written to it and not taken. */
static uint64_t unread_of(int fd)
{
        int unread = 0;

        return ioctl(fd, SIOCOUTQ, &unread) == 0 && unread > 0 ? (uint64_t)unread : 0;
}

static void cut_off(struct places *p)
{
        uint64_t now = clock_now_nsec();
        struct slot *slot;

        if (slots_shortage(&p->slots) == 0)
                return;
        for (unsigned i = 0; i < SLOTS_ALL; i++)
                if (p->slots.all[i].fd >= 0)
                        slot_note_unread(&p->slots.all[i], unread_of(p->slots.all[i].fd), now);
        while ((slot = slots_cut_off(&p->slots, now)))
                shutdown(slot->fd, SHUT_RDWR);
}

/* Makes room after a connection has come. Returns how long the next one waits. */
static uint64_t make_room(struct places *p)
{
        struct slot *away = slots_send_away(&p->slots, clock_now_nsec());

        if (away) /* its received requests are still answered */
                shutdown(away->fd, SHUT_RD);
        cut_off(p);
        return (away ? AWAY_NSEC : 0) + slots_shortage(&p->slots) * SHORT_NSEC;
}

uint64_t places_note_connection(struct places *p, struct MHD_Connection *c, void **context,
        enum MHD_ConnectionNotificationCode what)
{
        uint64_t wait_nsec = 0;

        pthread_mutex_lock(&p->lock);
        if (what == MHD_CONNECTION_NOTIFY_STARTED) {
                int fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;

                *context = slots_enter(&p->slots, fd, clock_now_nsec());
                wait_nsec = make_room(p);
        } else if (*context) {
                slots_leave(&p->slots, *context);
                *context = NULL;
        }
        pthread_mutex_unlock(&p->lock);
        return wait_nsec;
}

void places_note_request(struct places *p, struct MHD_Connection *c)
{
        struct slot *slot = slot_of(c);
        uint64_t now = clock_now_nsec();

        pthread_mutex_lock(&p->lock);
        if (slot) {
                slot_note_unread(slot, unread_of(slot->fd), now);
                slot_ask(slot, now);
        }
        pthread_mutex_unlock(&p->lock);
}

/* Connections whose answers were being made couldn't be cut off when others came: cut off now. */
void places_note_answer(struct places *p, struct MHD_Connection *c)
{
        struct slot *slot = slot_of(c);

        pthread_mutex_lock(&p->lock);
        if (slot)
                slot_answer(slot, clock_now_nsec());
        cut_off(p);
        pthread_mutex_unlock(&p->lock);
}

void places_note_end(struct places *p, struct MHD_Connection *c)
{
        struct slot *slot = slot_of(c);

        pthread_mutex_lock(&p->lock);
        if (slot)
                slot_answered(slot);
        pthread_mutex_unlock(&p->lock);
}

void places_note_stream(struct places *p, struct MHD_Connection *c)
{
        struct slot *slot = slot_of(c);

        pthread_mutex_lock(&p->lock);
        if (slot)
                slot->is_stream = true;
        pthread_mutex_unlock(&p->lock);
}

void places_cut_off_stream(struct places *p)
{
        struct slot *slot;

        pthread_mutex_lock(&p->lock);
        slot = slots_stalled_stream(&p->slots, unread_of);
        if (slot)
                shutdown(slot->fd, SHUT_RDWR);
        pthread_mutex_unlock(&p->lock);
}

void places_init(struct places *p)
{
        pthread_mutex_init(&p->lock, NULL);
        slots_init(&p->slots);
}

void places_deinit(struct places *p)
{
        pthread_mutex_destroy(&p->lock);
}
