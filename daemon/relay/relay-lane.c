/* A lane's thread. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macros.h"
#include "base/thread.h"
#include "daemon/relay/relay-impl.h"
#include "proto/sock.h"

/* From one attempt to connect to the next. After a refusal it is longer: an administrator has to
 * act. Not tuned. */
#define RETRY_NSEC   (200 * NSEC_PER_MSEC)
#define REFUSED_NSEC NSEC_PER_SEC

/* For READY: kvlease-exchange may be starting, and reads the files of TLS. Not tuned. */
#define GREETING_NSEC (5 * NSEC_PER_SEC)

/* kvlease-exchange ends operations at their deadline itself. This thread ends those that are late
 * by this. Not tuned. */
#define GRACE_NSEC (2 * NSEC_PER_MSEC)

/* Small values are epochs and records. Large ones are pages; further ones wait. Untouched parts
 * take no memory. Not tuned. */
#define SMALL_ARENA_BYTES (UINT64_C(64) << 20)
#define LARGE_ARENA_BYTES (UINT64_C(256) << 20)

/* ---- the connection -------------------------------------------------------------------------- */

/* kvlease-exchange is gone: all that it has ends. */
static void lose(struct relay_lane *l, int why, uint64_t retry_nsec)
{
        relay_channel_deinit(&l->channel);
        list_for_each_safe (n, &l->live, struct relay_loan, link)
                relay_loan_end(l, n, why);
        list_for_each_safe (n, &l->given_up, struct relay_loan, link)
                relay_loan_end(l, n, why);
        list_for_each_safe (n, &l->waiting, struct relay_loan, link)
                relay_loan_end(l, n, -EHOSTDOWN);
        relay_arena_deinit(&l->arena);
        l->state = RELAY_IS_AWAY;
        l->until_nsec = l->tried_nsec + retry_nsec;
}

static void note_fault(struct relay_lane *l, const char *why)
{
        if (l->index == 0)
                relay_note_fault(l->relay, why);
}

static void lose_hung(struct relay_lane *l)
{
        note_fault(l, "kvlease-exchange doesn't answer: restart it");
        lose(l, -EHOSTDOWN, RETRY_NSEC);
}

static void lose_broken(struct relay_lane *l, int why)
{
        char text[REMOTE_FAULT_BYTES];

        snprintf(text, sizeof(text), "kvlease-exchange is gone: %s",
                why == -EPROTO ? "it sent an invalid message" : strerror(-why));
        note_fault(l, text);
        lose(l, -ECONNRESET, RETRY_NSEC);
}

/* Sends the greeting. Returns 0 or -errno. */
static int greet(struct relay_lane *l)
{
        struct relay_open open;
        const size_t n_texts = l->relay->hello_bytes - sizeof(open);
        int r = relay_arena_init(&l->arena, l->index == 0 ? SMALL_ARENA_BYTES : LARGE_ARENA_BYTES);

        if (r < 0)
                return r;
        memcpy(&open, l->relay->hello, sizeof(open));
        open.lane = l->index;
        open.arena_bytes = l->arena.bytes;
        l->channel.passes_fd = l->arena.fd;
        return relay_channel_put(&l->channel, RELAY_OPEN, 0,
                (const struct iovec[]){
                        {&open, sizeof(open)}, {l->relay->hello + sizeof(open), n_texts}},
                2);
}

static void try_connect(struct relay_lane *l)
{
        char text[REMOTE_FAULT_BYTES];
        int fd = sock_connect(l->relay->socket);
        int r = fd < 0 ? fd : 0;

        l->tried_nsec = clock_now_nsec();
        if (r == 0) {
                relay_channel_init(&l->channel, fd);
                r = greet(l);
        }
        if (r < 0) {
                snprintf(text, sizeof(text), "kvlease-exchange %s at %.120s (%s): %s",
                        r == -EACCES ? "refuses connections" : "isn't reached", l->relay->socket,
                        strerror(-r),
                        r == -EACCES ? "give the socket to kvleased's user"
                                     : "start kvlease-exchange");
                note_fault(l, text);
                lose(l, -EHOSTDOWN, RETRY_NSEC);
                return;
        }
        l->state = RELAY_GREETS;
        l->until_nsec = clock_now_nsec() + GREETING_NSEC;
}

static void take_refusal(struct relay_lane *l, const struct relay_message *m)
{
        char why[REMOTE_FAULT_BYTES];

        snprintf(why, sizeof(why), "kvlease-exchange can't use it: %.*s", (int)m->head.bytes,
                (const char *)m->bytes);
        note_fault(l, why);
        lose(l, -EHOSTDOWN, REFUSED_NSEC);
}

/* Returns 0; 1: the lane is lost, and the message with it; -EPROTO. */
static int take_message(struct relay_lane *l, const struct relay_message *m)
{
        if (l->state == RELAY_GREETS && m->head.kind == RELAY_READY) {
                l->state = RELAY_IS_READY;
                if (l->index == 0)
                        relay_note_ready(l->relay);
                return 0;
        }
        if (l->state == RELAY_GREETS && m->head.kind == RELAY_REFUSED) {
                take_refusal(l, m);
                return 1;
        }
        if (l->state == RELAY_IS_READY && m->head.kind == RELAY_DONE)
                return relay_loan_take_done(l, m);
        if (l->state == RELAY_IS_READY && m->head.kind == RELAY_STATUS && l->index == 0)
                return relay_take_status(l->relay, m->bytes, m->head.bytes);
        return -EPROTO;
}

static void receive_messages(struct relay_lane *l)
{
        struct relay_message m;
        int r = relay_channel_fill(&l->channel);

        while (r == 0) {
                r = relay_channel_next(&l->channel, &m);
                if (r <= 0)
                        break;
                r = take_message(l, &m);
        }
        if (r < 0)
                lose_broken(l, r);
}

/* ---- operations ------------------------------------------------------------------------------ */

static bool is_canceled(const struct relay_loan *n)
{
        return atomic_load(&n->task->is_canceled);
}

/* Takes what the loop has submitted. Returns true if the lane has to stop. */
static bool take_inbox(struct relay_lane *l)
{
        struct list_link inbox;
        uint64_t times;
        bool is_stopping;

        (void)!read(l->event_fd, &times, sizeof(times));
        pthread_mutex_lock(&l->relay->of.lock);
        list_take_all(&l->inbox, &inbox);
        is_stopping = l->is_stopping;
        pthread_mutex_unlock(&l->relay->of.lock);
        list_for_each_safe (n, &inbox, struct relay_loan, link) {
                list_remove(&n->link);
                list_append(&l->waiting, &n->link);
                /* An earlier look may have been at the lists without it. */
                if (is_canceled(n))
                        atomic_store(&l->has_canceled, true);
        }
        return is_stopping;
}

static void cancel_some(struct relay_lane *l)
{
        if (!atomic_exchange(&l->has_canceled, false))
                return;
        list_for_each_safe (n, &l->waiting, struct relay_loan, link)
                if (is_canceled(n))
                        relay_loan_end(l, n, -ECANCELED);
        list_for_each_safe (n, &l->live, struct relay_loan, link) {
                if (!is_canceled(n))
                        continue;
                (void)relay_channel_put(&l->channel, RELAY_CANCEL, n->id, NULL, 0);
                relay_loan_give_up(l, n, -ECANCELED);
        }
}

static void send_waiting(struct relay_lane *l)
{
        list_for_each_safe (n, &l->waiting, struct relay_loan, link) {
                if (l->state != RELAY_IS_READY)
                        relay_loan_end(l, n, -EHOSTDOWN);
                else if (relay_loan_send(l, n) == -EAGAIN)
                        break;
        }
}

/* Returns when it has to be called again. */
static uint64_t expire(struct relay_lane *l, uint64_t now_nsec)
{
        const struct relay_loan *oldest;
        uint64_t next = UINT64_MAX;

        list_for_each_safe (n, &l->waiting, struct relay_loan, link) {
                if (n->deadline_nsec <= now_nsec)
                        relay_loan_end(l, n, -ETIMEDOUT);
                else
                        next = MIN(next, n->deadline_nsec);
        }
        list_for_each_safe (n, &l->live, struct relay_loan, link) {
                if (n->deadline_nsec + GRACE_NSEC <= now_nsec)
                        relay_loan_give_up(l, n, -ETIMEDOUT);
                else
                        next = MIN(next, n->deadline_nsec + GRACE_NSEC);
        }
        oldest = list_first(&l->given_up, struct relay_loan, link);
        if (!oldest)
                return next;
        if (oldest->deadline_nsec + RELAY_HUNG_NSEC <= now_nsec) {
                lose_hung(l);
                return now_nsec;
        }
        return MIN(next, oldest->deadline_nsec + RELAY_HUNG_NSEC);
}

static void work_lane(struct relay_lane *l)
{
        int r;

        if (l->state == RELAY_IS_AWAY && l->until_nsec <= clock_now_nsec())
                try_connect(l);
        if (l->state == RELAY_GREETS && l->until_nsec <= clock_now_nsec())
                lose_hung(l);
        cancel_some(l);
        send_waiting(l);
        r = l->state == RELAY_IS_AWAY ? 0 : relay_channel_flush(&l->channel);
        if (r < 0)
                lose_broken(l, r);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Waits for the connection, the loop or a time. */
static void wait_until(struct relay_lane *l, uint64_t until_nsec)
{
        struct pollfd fds[2] = {{.fd = l->event_fd, .events = POLLIN}, {.fd = l->channel.fd}};
        const uint64_t now_nsec = clock_now_nsec();
        struct timespec timeout;

        fds[1].events = (short)(POLLIN | (relay_channel_has_out(&l->channel) ? POLLOUT : 0));
        until_nsec = MAX(until_nsec, now_nsec) - now_nsec;
        until_nsec = MIN(until_nsec, 3600 * NSEC_PER_SEC);
        timeout = (struct timespec){
                (time_t)(until_nsec / NSEC_PER_SEC), (long)(until_nsec % NSEC_PER_SEC)};
        (void)ppoll(fds, l->channel.fd < 0 ? 1 : 2, &timeout, NULL);
        if (l->channel.fd >= 0 && (fds[1].revents & (POLLIN | POLLHUP | POLLERR)))
                receive_messages(l);
}

static void *run_lane(void *data)
{
        struct relay_lane *l = data;

        while (!take_inbox(l)) {
                uint64_t next;

                work_lane(l);
                next = expire(l, clock_now_nsec());
                if (l->state != RELAY_IS_READY)
                        next = MIN(next, l->until_nsec);
                else
                        next = MIN(next, relay_arena_trim(&l->arena, clock_now_nsec()));
                wait_until(l, next);
        }
        list_for_each_safe (n, &l->waiting, struct relay_loan, link)
                relay_loan_end(l, n, -ECANCELED);
        lose(l, -ECANCELED, 0);
        return NULL;
}

int relay_lane_start(struct relay_lane *l)
{
        int r;

        list_init(&l->waiting);
        list_init(&l->live);
        list_init(&l->given_up);
        list_init(&l->inbox);
        map_init(&l->by_id);
        relay_channel_init(&l->channel, -1);
        l->arena.fd = -1;
        l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (l->event_fd < 0)
                return -errno;
        r = thread_start(&l->thread, NULL, run_lane, l);
        l->is_started = r == 0;
        return r;
}

void relay_lane_wake(struct relay_lane *l)
{
        const uint64_t once = 1;

        (void)!write(l->event_fd, &once, sizeof(once));
}

void relay_lane_stop(struct relay_lane *l)
{
        if (l->is_started) {
                pthread_mutex_lock(&l->relay->of.lock);
                l->is_stopping = true;
                pthread_mutex_unlock(&l->relay->of.lock);
                relay_lane_wake(l);
                pthread_join(l->thread, NULL);
                map_deinit(&l->by_id);
        }
        fd_close(l->event_fd);
        l->event_fd = -1;
}
