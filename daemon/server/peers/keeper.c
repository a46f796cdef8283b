#include "daemon/server/peers/keeper.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/map.h"
#include "base/thread.h"
#include "daemon/core/state/detail.h"

/* LISTEN_FDNAMES= and its value: execve(2) takes strings of 32 pages, of 4 KiB at least. */
#define NAMES_MAX_BYTES (32 * 4096 - sizeof("LISTEN_FDNAMES="))

/* Delay before a failed send is tried again. The usual reason is descriptors in flight, which the
 * other end takes within microseconds. Not tuned. */
#define RETRY_MSEC 5

/* Time for which keeper_free() waits for its thread. Not tuned. */
#define END_NSEC NSEC_PER_SEC

struct order {
        struct list_link link; /* keeper.orders */
        int fd;                /* owned; -1: to be dropped */
        char name[KEEP_NAME_BYTES];
};

/* Left by the previous process. */
struct left {
        enum keep_kind kind;
        uint32_t number;
        int fd; /* owned; -1: taken */
};

struct keeper {
        struct keeper_options options;
        pthread_t thread;
        int stop_fd; /* eventfd: readable from the end on */

        pthread_mutex_t lock; /* of what follows, never held in a call that may block */
        pthread_cond_t work, news;
        struct list_link orders;
        uint64_t last;   /* ticket of the last order */
        struct map kept; /* by key_of(): the order that will drop it */
        size_t names_bytes;
        uint32_t n_kept, n_extents;
        bool stopping, ended;

        _Atomic uint64_t passed; /* all additions up to this ticket are stored */
        atomic_bool late;

        struct left *left; /* owned, the loop's; sorted where `is_sorted` */
        size_t n_left, room_left;
        bool is_sorted;
};

static uint64_t key_of(enum keep_kind kind, uint32_t number)
{
        return (uint64_t)kind << 32 | number;
}

static void order_free(struct order *o)
{
        if (o)
                fd_close(o->fd);
        free(o);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Waits before a failed send is tried again. Returns false if the keeper is ending. */
static bool try_later(const struct keeper *k)
{
        struct pollfd p = {.fd = k->stop_fd, .events = POLLIN};

        return poll(&p, 1, RETRY_MSEC) <= 0;
}

/* Sends one message. Returns false if the keeper ended first. */
static bool notify(const struct keeper *k, const char *text, int fd)
{
        while (sd_pid_notify_with_fds(0, 0, text, &fd, fd >= 0) <= 0)
                if (!try_later(k))
                        return false;
        return true;
}

/* Sends the orders and frees them; *ret_n: number of additions. Returns false if the keeper ended
 * first. */
static bool send_orders(const struct keeper *k, struct list_link *orders, unsigned *ret_n)
{
        bool are_sent = true;
        struct order *o;
        char text[64];

        *ret_n = 0;

        while ((o = list_first(orders, struct order, link))) {
                list_remove(&o->link);
                /* FDPOLL=0: the store must not drop a descriptor on hang-up. */
                snprintf(text, sizeof(text), "%s=1\nFDNAME=%s%s",
                        o->fd >= 0 ? "FDSTORE" : "FDSTOREREMOVE", o->name,
                        o->fd >= 0 ? "\nFDPOLL=0" : "");
                are_sent &= notify(k, text, o->fd);
                *ret_n += o->fd >= 0;
                order_free(o);
        }
        return are_sent;
}

/* Waits until the other end has handled all earlier messages: it closes a barrier's descriptor
 * then. Returns false if the keeper ended first. */
static bool pass_barrier(const struct keeper *k)
{
        struct pollfd p[2] = {{.fd = -1}, {.fd = k->stop_fd, .events = POLLIN}};
        bool is_sent;
        int ends[2];

        while (pipe2(ends, O_CLOEXEC) < 0)
                if (!try_later(k))
                        return false;
        is_sent = notify(k, "BARRIER=1", ends[1]);
        fd_close(ends[1]);
        p[0].fd = ends[0];
        while (is_sent && poll(p, 2, -1) < 0)
                assert(errno == EINTR);
        fd_close(ends[0]);
        return is_sent && p[0].revents & POLLHUP;
}

/* With the lock, which is given up meanwhile. */
static void batch_out_orders(struct keeper *k)
{
        uint64_t ticket = k->last;
        struct list_link orders;
        bool has_passed;
        unsigned n;

        list_take_all(&k->orders, &orders);
        pthread_mutex_unlock(&k->lock);
        has_passed = send_orders(k, &orders, &n) && (n == 0 || pass_barrier(k));
        pthread_mutex_lock(&k->lock);
        if (!has_passed)
                return;
        atomic_store(&k->passed, ticket);
        atomic_store(&k->late, false);
        pthread_cond_broadcast(&k->news);
        if (k->stopping)
                return;
        pthread_mutex_unlock(&k->lock);
        k->options.on_passed(k->options.data);
        pthread_mutex_lock(&k->lock);
}

static void *thread_main(void *data)
{
        struct keeper *k = data;

        pthread_mutex_lock(&k->lock);
        for (;;) {
                if (!list_is_empty(&k->orders))
                        batch_out_orders(k);
                else if (!k->stopping)
                        pthread_cond_wait(&k->work, &k->lock);
                else
                        break;
        }
        k->ended = true;
        pthread_cond_broadcast(&k->news);
        pthread_mutex_unlock(&k->lock);
        return NULL;
}

/* ---- from outside ---------------------------------------------------------------------------- */

static void destroy_keeper(struct keeper *k)
{
        pthread_mutex_destroy(&k->lock);
        pthread_cond_destroy(&k->work);
        pthread_cond_destroy(&k->news);
        fd_close(k->stop_fd);
        free(k);
}

int keeper_new(const struct keeper_options *o, struct keeper **ret_keeper)
{
        struct keeper *k = calloc(1, sizeof(*k));
        pthread_condattr_t attr;
        int r;

        if (!k)
                return -ENOMEM;
        k->options = *o;
        pthread_mutex_init(&k->lock, NULL);
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&k->work, &attr);
        pthread_cond_init(&k->news, &attr);
        pthread_condattr_destroy(&attr);
        list_init(&k->orders);
        map_init(&k->kept);
        k->names_bytes = o->other_names_bytes;
        k->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        r = k->stop_fd < 0 ? -errno : thread_start(&k->thread, NULL, thread_main, k);
        if (r < 0) {
                map_deinit(&k->kept);
                destroy_keeper(k);
                return r;
        }
        *ret_keeper = k;
        return 0;
}

/* With the lock. False: later than that. */
static bool wait_until(struct keeper *k, uint64_t nsec)
{
        const struct timespec until = {
                .tv_sec = (time_t)(nsec / NSEC_PER_SEC),
                .tv_nsec = (long)(nsec % NSEC_PER_SEC),
        };

        return pthread_cond_timedwait(&k->news, &k->lock, &until) == 0;
}

bool keeper_stop(struct keeper *k)
{
        uint64_t until = clock_now_nsec() + END_NSEC;
        bool has_ended;

        pthread_mutex_lock(&k->lock);
        k->stopping = true;
        pthread_cond_signal(&k->work);
        pthread_cond_broadcast(&k->news);
        if (eventfd_write(k->stop_fd, 1) < 0)
                assert(errno == EAGAIN);
        while (!k->ended && wait_until(k, until))
                ;
        has_ended = k->ended;
        pthread_mutex_unlock(&k->lock);
        if (has_ended)
                pthread_join(k->thread, NULL);
        return has_ended;
}

void keeper_free(struct keeper *k)
{
        struct list_link orders;
        struct map_slot slot;
        struct order *o;

        if (!k)
                return;
        list_take_all(&k->orders, &orders); /* orders after the end */
        while ((o = list_first(&orders, struct order, link))) {
                list_remove(&o->link);
                order_free(o);
        }
        for (size_t i = 0; map_next(&k->kept, &i, &slot);)
                free((struct order *)(uintptr_t)slot.value);
        map_deinit(&k->kept);
        for (size_t i = 0; i < k->n_left; i++)
                fd_close(k->left[i].fd);
        free(k->left);
        destroy_keeper(k);
}

/* Room for n more; with the lock. */
static int check_room(const struct keeper *k, uint64_t n, struct detail *d)
{
        const struct keeper_options *o = &k->options;

        if (k->n_kept + n > o->max)
                return detail_set(d, -EMFILE,
                        "%u descriptors of kvleased are kept for its next start, of at most %u: "
                        "raise FileDescriptorStoreMax of kvleased.service (--keep-max with kvleased --keep), or 'extent' in [device]",
                        k->n_kept, o->max);
        if (k->n_kept + n > o->max_open)
                return detail_set(d, -EMFILE,
                        "%u descriptors of kvleased are kept for its next start, which may have "
                        "%llu open files of that kind: raise LimitNOFILE of kvleased, or 'extent' in [device]",
                        k->n_kept, (unsigned long long)o->max_open);
        if (k->names_bytes + n * KEEP_NAME_BYTES > NAMES_MAX_BYTES)
                return detail_set(d, -EMFILE,
                        "%u descriptors of kvleased are kept for its next start, and the kernel "
                        "takes no longer list of their names (%zu bytes): raise 'extent' in [device]",
                        k->n_kept, NAMES_MAX_BYTES);
        return 0;
}

static struct order *order_new(enum keep_kind kind, uint32_t number)
{
        struct order *o = calloc(1, sizeof(*o));

        if (!o)
                return NULL;
        list_init(&o->link);
        o->fd = -1;
        keep_name(o->name, kind, number);
        return o;
}

/* With the lock: takes it. */
static void submit_order(struct keeper *k, struct order *o)
{
        list_append(&k->orders, &o->link);
        k->last++;
        pthread_cond_signal(&k->work);
}

/* With the lock: notes a name, so that it can be dropped without memory. Returns 0 or -ENOMEM. */
static int note_name(struct keeper *k, enum keep_kind kind, uint32_t number)
{
        uint64_t key = key_of(kind, number);
        struct order *drop = order_new(kind, number);
        int r = drop ? 0 : -ENOMEM;

        assert(!map_find(&k->kept, key));

        if (r == 0)
                r = map_put(&k->kept, key, (uint64_t)(uintptr_t)drop);
        if (r < 0) {
                free(drop);
                return r;
        }
        k->names_bytes += strlen(drop->name) + 1;
        k->n_kept++;
        k->n_extents += kind == KEEP_EXTENT;
        return 0;
}

int keeper_add(struct keeper *k, enum keep_kind kind, uint32_t number, int fd, uint64_t *ret_ticket,
        struct detail *d)
{
        struct order *o = order_new(kind, number);
        int r = -ENOMEM;

        if (!o)
                return detail_set(d, r, "kvleased has no memory to keep a descriptor");
        o->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (o->fd < 0) {
                r = detail_set(d, -errno,
                        "kvleased has no descriptor left to keep one by (%s): raise LimitNOFILE of kvleased",
                        strerror(errno));
                free(o);
                return r;
        }
        pthread_mutex_lock(&k->lock);
        r = check_room(k, 1, d);
        if (r == 0) {
                r = note_name(k, kind, number);
                if (r < 0)
                        detail_set(d, r, "kvleased has no memory to keep a descriptor");
        }
        if (r == 0) {
                submit_order(k, TAKE(o));
                if (ret_ticket)
                        *ret_ticket = k->last;
        }
        pthread_mutex_unlock(&k->lock);
        order_free(o);
        return r;
}

void keeper_drop(struct keeper *k, enum keep_kind kind, uint32_t number)
{
        uint64_t *found;

        pthread_mutex_lock(&k->lock);
        found = map_find(&k->kept, key_of(kind, number));
        if (found) {
                struct order *o = (struct order *)(uintptr_t)*found;

                map_remove(&k->kept, key_of(kind, number));
                k->names_bytes -= strlen(o->name) + 1;
                k->n_kept--;
                k->n_extents -= kind == KEEP_EXTENT;
                submit_order(k, o);
        }
        pthread_mutex_unlock(&k->lock);
}

int keeper_wait(struct keeper *k, struct detail *d)
{
        uint64_t until = clock_now_nsec() + k->options.patience_msec * NSEC_PER_MSEC, ticket;
        int r = 0;

        pthread_mutex_lock(&k->lock);
        ticket = k->last;
        while (atomic_load(&k->passed) < ticket && !atomic_load(&k->late) && !k->stopping)
                if (!wait_until(k, until) && clock_now_nsec() >= until)
                        atomic_store(&k->late, true);
        if (atomic_load(&k->passed) < ticket)
                r = detail_set(d, -ETIMEDOUT,
                        "the service manager hasn't confirmed for %u ms that it keeps descriptors",
                        k->options.patience_msec);
        pthread_mutex_unlock(&k->lock);
        return r;
}

uint64_t keeper_passed(const struct keeper *k)
{
        return atomic_load(&k->late) ? UINT64_MAX : atomic_load(&k->passed);
}

void keeper_give_up(struct keeper *k)
{
        pthread_mutex_lock(&k->lock);
        if (atomic_load(&k->passed) < k->last)
                atomic_store(&k->late, true);
        pthread_cond_broadcast(&k->news);
        pthread_mutex_unlock(&k->lock);
}

bool keeper_is_late(const struct keeper *k)
{
        return atomic_load(&k->late);
}

/* Extents that are being made aren't kept yet. */
int keeper_admit(struct keeper *k, uint64_t n_extents, uint32_t n, struct detail *d)
{
        int r;

        pthread_mutex_lock(&k->lock);
        r = check_room(k, n + n_extents - MIN(n_extents, (uint64_t)k->n_extents), d);
        pthread_mutex_unlock(&k->lock);
        return r;
}

uint32_t keeper_count(struct keeper *k)
{
        uint32_t n;

        pthread_mutex_lock(&k->lock);
        n = k->n_kept;
        pthread_mutex_unlock(&k->lock);
        return n;
}

uint32_t keeper_count_extents(struct keeper *k)
{
        uint32_t n;

        pthread_mutex_lock(&k->lock);
        n = k->n_extents;
        pthread_mutex_unlock(&k->lock);
        return n;
}

uint64_t keeper_room(const struct keeper *k)
{
        const struct keeper_options *o = &k->options;
        uint64_t names =
                (NAMES_MAX_BYTES - MIN(o->other_names_bytes, NAMES_MAX_BYTES)) / KEEP_NAME_BYTES;
        uint64_t max = MIN((uint64_t)o->max, o->max_open);

        return MIN(max, names);
}

/* ---- inherited descriptors ------------------------------------------------------------------- */

static int compare_left(const void *a, const void *b)
{
        const struct left *l = a, *m = b;
        uint64_t x = key_of(l->kind, l->number), y = key_of(m->kind, m->number);

        return x < y ? -1 : x > y;
}

static int grow_left(struct keeper *k)
{
        size_t room = MAX(2 * k->room_left, (size_t)64);
        struct left *left;

        if (k->n_left < k->room_left)
                return 0;
        left = realloc(k->left, room * sizeof(*left));
        if (!left)
                return -ENOMEM;
        k->left = left;
        k->room_left = room;
        return 0;
}

/* The service manager has several descriptors with this name, and drops all or none: it drops all,
 * and gets the first one again. */
static int keep_first(struct keeper *k, enum keep_kind kind, uint32_t number)
{
        struct detail d;

        for (size_t i = 0; i < k->n_left; i++)
                if (k->left[i].kind == kind && k->left[i].number == number) {
                        keeper_drop(k, kind, number);
                        return keeper_add(k, kind, number, k->left[i].fd, NULL, &d);
                }
        return 0;
}

int keeper_inherit(struct keeper *k, enum keep_kind kind, uint32_t number, int fd)
{
        _cleanup_fd_ int owned = fd;
        bool is_known;
        int r = grow_left(k);

        if (r < 0)
                return r;
        pthread_mutex_lock(&k->lock);
        is_known = map_find(&k->kept, key_of(kind, number));
        r = is_known ? 0 : note_name(k, kind, number);
        pthread_mutex_unlock(&k->lock);
        if (is_known)
                return keep_first(k, kind, number);
        if (r == 0)
                k->left[k->n_left++] = (struct left){kind, number, fd_take(&owned)};
        return r;
}

/* First index of a kind among sorted ones; n_left: none is of it, or of a later one. */
static size_t first_of(struct keeper *k, enum keep_kind kind, uint32_t number)
{
        size_t low = 0, high = k->n_left;

        if (!k->is_sorted && k->n_left > 0)
                qsort(k->left, k->n_left, sizeof(*k->left), compare_left);
        k->is_sorted = true;
        while (low < high) {
                size_t middle = (low + high) / 2;

                if (key_of(k->left[middle].kind, k->left[middle].number) < key_of(kind, number))
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

int keeper_take(struct keeper *k, enum keep_kind kind, uint32_t number)
{
        size_t i = first_of(k, kind, number);

        if (i == k->n_left || k->left[i].kind != kind || k->left[i].number != number ||
                k->left[i].fd < 0)
                return -ENOENT;
        return fd_take(&k->left[i].fd);
}

uint32_t keeper_list(struct keeper *k, enum keep_kind kind, uint32_t *ret_numbers, uint32_t max)
{
        uint32_t n = 0;

        for (size_t i = first_of(k, kind, 0); i < k->n_left && k->left[i].kind == kind; i++) {
                if (k->left[i].fd < 0)
                        continue;
                if (n < max)
                        ret_numbers[n] = k->left[i].number;
                n++;
        }
        return n;
}

uint32_t keeper_release_rest(struct keeper *k)
{
        uint32_t n = 0;

        for (size_t i = 0; i < k->n_left; i++) {
                if (k->left[i].fd < 0)
                        continue;
                keeper_drop(k, k->left[i].kind, k->left[i].number);
                k->left[i].fd = fd_close(k->left[i].fd);
                n++;
        }
        return n;
}
