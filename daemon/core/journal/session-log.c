#include "daemon/core/journal/session-log.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fault-point.h"
#include "base/fd.h"
#include "daemon/core/objects/store.h"
#include "proto/status.h"

/* Of what each record that is written does for a copy: sessions looked at, bytes written (and the
 * rest of a piece of SESSION_LOG_PAGES), bytes given back. Not tuned. */
#define COPY_SLOTS  64
#define COPY_BYTES  4096
#define PUNCH_BYTES (256 * 1024)

static struct session_log *log_of(const struct ns *ns)
{
        return &ns->sessions->log;
}

/* The most that a session's record has, without pages. */
#define PUT_BYTES (sizeof(struct session_put) + SESSION_ID_MAX)

/* The most that can be live, bytes. */
static uint64_t most_live(const struct ns *ns)
{
        return SESSIONS_MAX * PUT_BYTES + SESSION_WINDOWS_SHARE *
                                                  (uint64_t)ns->geometry.capacity_pages *
                                                  sizeof(struct session_log_page);
}

static uint64_t half_bytes_of(const struct ns *ns)
{
        return round_up_u64(3 * most_live(ns) + SESSION_LOG_SMALL, SESSION_LOG_HEAD);
}

static uint64_t file_bytes_of(const struct ns *ns)
{
        return SESSION_LOG_HEAD + 2 * half_bytes_of(ns);
}

/* No less than is live. */
static uint64_t live_bytes(const struct sessions *all)
{
        return all->n_live * PUT_BYTES + all->n_room * sizeof(struct session_log_page);
}

static unsigned current(const struct session_log *log)
{
        return atomic_load_explicit(&log->head->half, memory_order_relaxed) & 1;
}

static uint64_t tail_of(const struct session_log *log, unsigned half)
{
        return atomic_load_explicit(&log->head->tails[half], memory_order_relaxed);
}

static void set_tail(struct session_log *log, unsigned half, uint64_t tail)
{
        FAULT_POINT("session-log-before-tail");
        atomic_store_explicit(&log->head->tails[half], tail, memory_order_release);
        FAULT_POINT("session-log-after-tail");
}

static uint64_t start_of(const struct session_log *log, unsigned half)
{
        return SESSION_LOG_HEAD + half * log->head->half_bytes;
}

static void *at_tail(const struct session_log *log, unsigned half)
{
        return (char *)log->head + start_of(log, half) + tail_of(log, half);
}

/* ---- records --------------------------------------------------------------------------------- */

/* Against damage, not against anybody: nobody else can write there. */
static uint32_t sum_of(const struct session_record *r)
{
        static const struct hash_seed seed = {1, 2};

        return (uint32_t)hash_bytes(seed, &r->bytes, r->bytes - sizeof(r->sum));
}

/* What lies at the tail becomes part of the log. */
static void commit(struct session_log *log, unsigned half, struct session_record *r)
{
        r->sum = sum_of(r);
        set_tail(log, half, tail_of(log, half) + r->bytes);
}

static struct session_log_page name_page(const struct ns *ns, uint32_t page)
{
        return (struct session_log_page){
                page, page == PAGE_NONE ? 0 : (uint32_t)ns_page(ns, page)->generation};
}

/* The window, or what will be it: names of what is in it are written in pieces. */
static const uint32_t *pages_of(const struct session *s, uint32_t *ret_n)
{
        *ret_n = s->window.n_coming > 0 ? s->window.n_coming : s->window.n;
        return s->window.n_coming > 0 ? s->window.coming : s->window.pages;
}

/* Its pages that the half hasn't yet, at most so many. `id`: nor has it the session. */
static uint32_t count_new(const struct session *s, unsigned half, uint32_t most, bool id)
{
        uint32_t n;

        (void)pages_of(s, &n);
        return MIN(n - (id ? 0 : s->logged.n_pages[half]), most);
}

static uint64_t put_bytes(const struct session *s, uint32_t n_pages, bool id)
{
        return sizeof(struct session_put) + (id ? session_put_id_bytes(s->id_len) : 0) +
               n_pages * sizeof(struct session_log_page);
}

/* With the n pages of its window from there on. */
static struct session_record *write_put(struct session_log *log, unsigned half,
        const struct session *s, uint32_t from, uint32_t n, bool id)
{
        struct session_put *r = at_tail(log, half);
        struct session_log_page *names;
        const uint32_t *pages;
        uint32_t n_all;

        *r = (struct session_put){
                .record = {.bytes = (uint32_t)put_bytes(s, n, id),
                        .type = SESSION_RECORD_PUT,
                        .slot = s->slot},
                .tail = name_page(s->ns, session_tail(s)),
                .epoch = s->epoch,
                .n_tokens = s->n_tokens,
                .head_tokens = s->head_tokens,
                .window_token = s->window.token,
                .used_nsec = s->used_nsec,
                .expire_nsec = s->expire_nsec,
                .returns_nsec = s->returns_nsec,
                .window_first = s->window.first,
                .pages_first = s->window.first + from,
                .n_pages = n,
                .id_len = (uint16_t)(id ? s->id_len : 0),
                .hint = (uint8_t)s->hint,
                .is_truncated = s->is_truncated,
        };
        if (id) {
                memset(r + 1, 0, session_put_id_bytes(s->id_len));
                memcpy(r + 1, s->id, s->id_len);
        }
        FAULT_POINT("session-log-half-put");
        names = session_put_pages(r);
        pages = pages_of(s, &n_all);
        for (uint32_t i = 0; i < n; i++)
                names[i] = name_page(s->ns, pages[from + i]);
        return &r->record;
}

/* The half has the session as it is, with at most so many more of its pages. There is room. */
static void put(struct session_log *log, unsigned half, struct session *s, uint32_t most, bool id)
{
        uint32_t n = count_new(s, half, most, id);

        if (id)
                s->logged.n_pages[half] = 0;
        commit(log, half, write_put(log, half, s, s->logged.n_pages[half], n, id));
        s->logged.n_pages[half] += n;
}

static bool fits(const struct session_log *log, unsigned half, uint64_t bytes)
{
        return tail_of(log, half) + bytes <= log->limit_bytes;
}

/* ---- the other half -------------------------------------------------------------------------- */

/* Of a half that nobody needs: its end, down to `to`. A failure (there is none that is known) costs
 * memory until the next copy. */
static void give_back(struct session_log *log, uint64_t to)
{
        uint64_t from = log->idle_bytes;

        FAULT_POINT("session-log-punch");
        (void)fd_punch_hole(log->fd, start_of(log, !current(log)) + to, from - to);
        log->idle_bytes = to;
}

static void begin_copy(struct session_log *log)
{
        if (log->idle_bytes > 0)
                give_back(log, 0);
        set_tail(log, !current(log), 0);
        log->copy_slot = 0;
        log->is_in_slot = false;
        log->is_copying = true;
}

/* The other half has all that is live. */
static void end_copy(struct session_log *log)
{
        unsigned half = current(log);

        FAULT_POINT("session-log-before-flip");
        atomic_store_explicit(&log->head->half, !half, memory_order_release);
        FAULT_POINT("session-log-after-flip");
        log->is_copying = false;
        log->idle_bytes = round_up_u64(tail_of(log, half), SESSION_LOG_HEAD);
        log->n_copies++;
}

static uint64_t piece_bytes(const struct session_log *log, const struct session *s, unsigned half)
{
        bool id = !log->is_in_slot;

        return put_bytes(s, count_new(s, half, log->piece_pages, id), id);
}

/* Of the session whose turn it is. */
static void copy_piece(struct session_log *log, struct session *s, unsigned half)
{
        uint32_t n;

        put(log, half, s, log->piece_pages, !log->is_in_slot);
        (void)pages_of(s, &n);
        log->is_in_slot = s->logged.n_pages[half] < n;
        log->copy_slot += !log->is_in_slot;
        FAULT_POINT("session-log-copied");
}

static void copy_some(struct sessions *all, uint64_t slots, uint64_t bytes)
{
        struct session_log *log = &all->log;
        unsigned half = !current(log);
        uint64_t before = tail_of(log, half);

        for (; slots > 0 && log->copy_slot < all->n_slots; slots--) {
                struct session *s = all->slots[log->copy_slot].session;

                if (!s || !session_is_live(s)) {
                        log->is_in_slot = false;
                        log->copy_slot++;
                        continue;
                }
                if (!fits(log, half, piece_bytes(log, s, half))) {
                        begin_copy(log); /* what was repeated is too much */
                        slots = bytes = UINT64_MAX;
                        before = 0;
                        continue;
                }
                copy_piece(log, s, half);
                if (tail_of(log, half) - before >= bytes)
                        break;
        }
        if (log->copy_slot >= all->n_slots)
                end_copy(log);
}

/* All of it. It fits: a half has room for three times what can be live. */
static void copy_all(struct sessions *all)
{
        begin_copy(&all->log);
        copy_some(all, UINT64_MAX, UINT64_MAX);
}

/* Before each record, so that what is copied is what was before it, or with it. */
static void work(struct sessions *all)
{
        struct session_log *log = &all->log;
        uint64_t limit = MAX((uint64_t)SESSION_LOG_SMALL, 2 * live_bytes(all));

        if (log->is_copying)
                copy_some(all, COPY_SLOTS, COPY_BYTES);
        else if (log->idle_bytes > 0)
                give_back(log, log->idle_bytes - MIN(log->idle_bytes, (uint64_t)PUNCH_BYTES));
        else if (tail_of(log, current(log)) > limit)
                begin_copy(log);
}

/* There will be room for a record, in both halves. */
static void make_room(struct sessions *all, uint64_t bytes)
{
        struct session_log *log = &all->log;

        if (!fits(log, current(log), bytes) ||
                (log->is_copying && !fits(log, !current(log), bytes)))
                copy_all(all);
}

/* A record that was written is in the other half, too. */
static void repeat(struct session_log *log, const struct session_record *r)
{
        unsigned half = !current(log);
        void *copy = at_tail(log, half);

        memcpy(copy, r, r->bytes);
        commit(log, half, copy);
}

/* ---- what is written ------------------------------------------------------------------------- */

static bool is_off(const struct ns *ns)
{
        return !log_of(ns)->head;
}

static bool was_copied(const struct session_log *log, uint32_t slot)
{
        return log->is_copying && slot < log->copy_slot;
}

static uint64_t room_for(const struct session_log *log, const struct session *s, uint32_t most)
{
        unsigned half = current(log);
        bool id = !s->logged.is_there;
        uint32_t n = count_new(s, half, most, id);

        if (was_copied(log, s->slot))
                n = MAX(n, count_new(s, !half, most, id));
        return put_bytes(s, n, id);
}

void session_log_put(struct session *s)
{
        struct session_log *log = log_of(s->ns);
        uint32_t most = s->window.n_coming > 0 ? log->piece_pages : UINT32_MAX;

        if (is_off(s->ns))
                return;
        work(s->ns->sessions);
        make_room(s->ns->sessions, room_for(log, s, most));
        put(log, current(log), s, most, !s->logged.is_there);
        if (was_copied(log, s->slot)) /* one that is being copied is what it is by its last piece */
                put(log, !current(log), s, most, !s->logged.is_there);
        s->logged.is_there = true;
        s->logged.used_nsec = s->used_nsec;
}

bool session_log_coming(struct session *s)
{
        const struct session_log *log = log_of(s->ns);

        if (is_off(s->ns))
                return true;
        if (s->window.n_coming > s->logged.n_pages[current(log)] + log->piece_pages)
                session_log_put(s);
        return s->window.n_coming <= s->logged.n_pages[current(log)] + log->piece_pages;
}

void session_log_used(struct session *s)
{
        if (s->used_nsec - MIN(s->logged.used_nsec, s->used_nsec) >= SESSION_LOG_USED_NSEC)
                session_log_put(s);
}

void session_log_moved(struct ns *ns, uint32_t from, uint32_t to)
{
        struct session_log *log = log_of(ns);
        struct session_moved *r;

        if (is_off(ns))
                return;
        work(ns->sessions);
        make_room(ns->sessions, sizeof(*r));
        r = at_tail(log, current(log));
        *r = (struct session_moved){
                .record = {.bytes = sizeof(*r), .type = SESSION_RECORD_MOVED},
                .from = name_page(ns, from),
                .to = name_page(ns, to),
        };
        commit(log, current(log), &r->record);
        if (log->is_copying)
                repeat(log, &r->record);
}

void session_log_gone(const struct session *s)
{
        struct session_log *log = log_of(s->ns);
        struct session_record *r;

        if (is_off(s->ns) || !s->logged.is_there)
                return;
        work(s->ns->sessions);
        make_room(s->ns->sessions, sizeof(*r));
        r = at_tail(log, current(log));
        *r = (struct session_record){
                .bytes = sizeof(*r), .type = SESSION_RECORD_GONE, .slot = s->slot};
        commit(log, current(log), r);
        if (was_copied(log, s->slot) || (log->is_in_slot && s->slot == log->copy_slot))
                repeat(log, r);
}

void session_log_forget(const struct session *s)
{
        struct session_log *log = log_of(s->ns);

        if (s->slot == log->copy_slot)
                log->is_in_slot = false;
}

void session_log_rewrite(struct ns *ns)
{
        struct sessions *all = ns->sessions;

        copy_all(all);
        give_back(&all->log, 0);
        for (uint32_t i = 0; i < all->n_slots; i++) {
                struct session *s = all->slots[i].session;

                if (!s)
                        continue;
                s->logged.is_there = true;
                s->logged.used_nsec = s->used_nsec;
        }
}

/* ---- the memory ------------------------------------------------------------------------------ */

/* Mapped, with the fd taken; -errno. */
static int map(struct session_log *log, int fd, uint64_t bytes)
{
        void *base = memory_map(fd, bytes);

        if (!base)
                return -errno;
        (void)madvise(base, bytes, MADV_DONTFORK);
        log->head = base;
        log->fd = fd;
        log->piece_pages = SESSION_LOG_PAGES;
        return 0;
}

static void unmap(struct session_log *log, uint64_t bytes)
{
        (void)munmap(log->head, bytes);
        log->fd = fd_close(log->fd);
        *log = (struct session_log){.fd = -1};
}

int session_log_open(struct ns *ns, struct detail *d)
{
        struct session_log *log = log_of(ns);
        uint64_t bytes = file_bytes_of(ns);
        _cleanup_fd_ int fd = -1;
        int r;

        if (!keep_is_on(&ns_store(ns)->keep))
                return 0;
        fd = memfd_create_sized("kvlease-sessions", bytes);
        r = fd < 0 ? fd : map(log, fd, bytes);
        if (r < 0)
                return detail_set(d, r, "no log for the sessions of namespace %s: %s", ns->name,
                        status_text(r));
        fd_take(&fd);
        log->head->capacity_pages = ns->geometry.capacity_pages;
        log->head->half_bytes = log->limit_bytes = half_bytes_of(ns);
        log->head->version = SESSION_LOG_VERSION;
        FAULT_POINT("session-log-before-magic");
        log->head->magic = SESSION_LOG_MAGIC;
        FAULT_POINT("session-log-before-keep");
        r = keep_add(&ns_store(ns)->keep, KEEP_SESSIONS, ns->records.number, log->fd, d);
        if (r < 0)
                unmap(log, bytes);
        FAULT_POINT("session-log-after-keep");
        return r;
}

void session_log_close(struct ns *ns)
{
        if (is_off(ns))
                return;
        unmap(log_of(ns), file_bytes_of(ns));
}

static bool head_is_right(const struct ns *ns, const struct session_log_head *h)
{
        return h->magic == SESSION_LOG_MAGIC && h->version == SESSION_LOG_VERSION &&
               h->capacity_pages == ns->geometry.capacity_pages &&
               h->half_bytes == half_bytes_of(ns) && atomic_load(&h->half) <= 1 &&
               atomic_load(&h->tails[0]) <= h->half_bytes &&
               atomic_load(&h->tails[1]) <= h->half_bytes;
}

int session_log_map(struct ns *ns, int fd)
{
        struct session_log *log = log_of(ns);
        uint64_t bytes = file_bytes_of(ns);
        struct stat st;
        int r;

        if (fstat(fd, &st) < 0)
                return -errno;
        if ((uint64_t)st.st_size != bytes)
                return -EBADMSG;
        r = map(log, fd, bytes);
        if (r < 0)
                return r;
        if (!head_is_right(ns, log->head)) {
                log->fd = -1;
                unmap(log, bytes);
                return -EBADMSG;
        }
        log->limit_bytes = log->head->half_bytes;
        log->idle_bytes = log->limit_bytes;
        return 0;
}

const struct session_record *session_log_next(
        const struct session_log *log, uint64_t *offset, bool *ret_damaged)
{
        unsigned half = current(log);
        uint64_t left = tail_of(log, half) - *offset;
        const void *at = (const char *)log->head + start_of(log, half) + *offset;
        const struct session_record *r = at;

        *ret_damaged =
                left > 0 && (left < sizeof(*r) || r->bytes < sizeof(*r) || r->bytes % 8 != 0 ||
                                    r->bytes > left || r->sum != sum_of(r));
        if (left == 0 || *ret_damaged)
                return NULL;
        *offset += r->bytes;
        return r;
}
