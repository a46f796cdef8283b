#include "daemon/core/sessions/session-log.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fault-point.h"
#include "base/fd.h"
#include "daemon/core/state/store.h"
#include "proto/status.h"

/* The part of a copy that each record does: sessions looked at, bytes written (and the rest of a
 * piece of SESSION_LOG_PAGES), bytes given back. Not tuned. */
#define COPY_SLOTS  64
#define COPY_BYTES  4096
#define PUNCH_BYTES (256 * 1024)

static struct session_log *log_of(const struct ns *ns)
{
        return &ns->sessions->log;
}

/* The most bytes of a session's record without pages. */
#define PUT_BYTES (sizeof(struct session_put) + SESSION_ID_MAX)

/* The most bytes of records that can be live. */
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

/* Returns the bytes of live records, or slightly more. */
static uint64_t live_bytes(const struct sessions *all)
{
        return all->n_live * PUT_BYTES + all->n_room * sizeof(struct session_log_page);
}

/* Returns the valid half: 0 or 1. */
static unsigned current_half(const struct session_log *log)
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

/* Returns the file offset of the half. */
static uint64_t start_of(const struct session_log *log, unsigned half)
{
        return SESSION_LOG_HEAD + half * log->head->half_bytes;
}

/* Returns the address of the half's next record. */
static void *at_tail(const struct session_log *log, unsigned half)
{
        return (char *)log->head + start_of(log, half) + tail_of(log, half);
}

/* ---- records --------------------------------------------------------------------------------- */

/* Returns the record's checksum. It only finds damage: no other process can write there. */
static uint32_t sum_of(const struct session_record *r)
{
        static const struct hash_seed seed = {1, 2};

        return (uint32_t)hash_bytes(seed, &r->bytes, r->bytes - sizeof(r->sum));
}

/* Makes the record at the half's tail part of the log. */
static void commit_record(struct session_log *log, unsigned half, struct session_record *r)
{
        r->sum = sum_of(r);
        set_tail(log, half, tail_of(log, half) + r->bytes);
}

static struct session_log_page name_page(const struct ns *ns, uint32_t page)
{
        return (struct session_log_page){
                page, page == PAGE_NONE ? 0 : (uint32_t)ns_page(ns, page)->generation};
}

/* Returns the number of pages that the log is to have: those of the window, then of the next
 * window. */
static uint32_t count_pages(const struct session *s)
{
        return s->window.n + s->window.n_coming;
}

static uint32_t page_at(const struct session *s, uint32_t i)
{
        return i < s->window.n ? s->window.pages[i] : s->window.coming[i - s->window.n];
}

/* Returns how many pages, at most `most`, the session's next record has, of those that the half
 * lacks. A record with pages of the window has none of the next window. `id`: the half doesn't have
 * the session at all. */
static uint32_t count_new(const struct session *s, unsigned half, uint32_t most, bool id)
{
        uint32_t from = id ? 0 : s->logged.n_pages[half];

        return MIN((from < s->window.n ? s->window.n : count_pages(s)) - from, most);
}

/* Returns the length of a record with n_pages pages. `id`: with the id. */
static uint64_t put_bytes(const struct session *s, uint32_t n_pages, bool id)
{
        return sizeof(struct session_put) + (id ? session_put_id_bytes(s->id_len) : 0) +
               n_pages * sizeof(struct session_log_page);
}

/* Writes a record of the session at the half's tail, with n of its pages from `from` on. It isn't
 * part of the log yet. */
static struct session_record *write_put(struct session_log *log, unsigned half,
        const struct session *s, uint32_t from, uint32_t n, bool id)
{
        struct session_put *r = at_tail(log, half);
        struct session_log_page *names;

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
                .id_len = (uint8_t)(id ? s->id_len : 0),
                .is_coming = s->window.n_coming > 0 && from >= s->window.n,
                .hint = (uint8_t)(s->hint | (s->told == SESSION_TOLD ? SESSION_PUT_TOLD : 0)),
                .is_truncated = s->is_truncated,
        };
        if (id) {
                memset(r + 1, 0, session_put_id_bytes(s->id_len));
                memcpy(r + 1, s->id, s->id_len);
        }
        FAULT_POINT("session-log-half-put");
        names = session_put_pages(r);
        for (uint32_t i = 0; i < n; i++)
                names[i] = name_page(s->ns, page_at(s, from + i));
        return &r->record;
}

/* Writes a record of the session's state, with at most `most` of the pages that the half lacks.
 * There is space for it. */
static void put_session(
        struct session_log *log, unsigned half, struct session *s, uint32_t most, bool id)
{
        uint32_t n = count_new(s, half, most, id);

        if (id)
                s->logged.n_pages[half] = 0;
        commit_record(log, half, write_put(log, half, s, s->logged.n_pages[half], n, id));
        s->logged.n_pages[half] += n;
}

/* Has the half space for a record? */
static bool has_room_for(const struct session_log *log, unsigned half, uint64_t bytes)
{
        return tail_of(log, half) + bytes <= log->limit_bytes;
}

/* ---- copying to the other half --------------------------------------------------------------- */

/* Gives back the memory of the unused half, from its end down to `to`. A failure (none is known)
 * costs memory until the next copy. */
static void give_back(struct session_log *log, uint64_t to)
{
        uint64_t from = log->idle_bytes;

        FAULT_POINT("session-log-punch");
        (void)fd_punch_hole(log->fd, start_of(log, !current_half(log)) + to, from - to);
        log->idle_bytes = to;
}

static void begin_copy(struct session_log *log)
{
        if (log->idle_bytes > 0)
                give_back(log, 0);
        set_tail(log, !current_half(log), 0);
        log->copy_slot = 0;
        log->is_in_slot = false;
        log->is_copying = true;
}

/* The other half has all live data: makes it the valid one. */
static void end_copy(struct session_log *log)
{
        unsigned half = current_half(log);

        FAULT_POINT("session-log-before-flip");
        atomic_store_explicit(&log->head->half, !half, memory_order_release);
        FAULT_POINT("session-log-after-flip");
        log->is_copying = false;
        log->idle_bytes = round_up_u64(tail_of(log, half), SESSION_LOG_HEAD);
        log->n_copies++;
}

/* Returns the length of the next record of a session that is being copied. */
static uint64_t piece_bytes(const struct session_log *log, const struct session *s, unsigned half)
{
        bool id = !log->is_in_slot;

        return put_bytes(s, count_new(s, half, log->piece_pages, id), id);
}

/* Writes the next record of the session that is being copied. */
static void copy_piece(struct session_log *log, struct session *s, unsigned half)
{
        put_session(log, half, s, log->piece_pages, !log->is_in_slot);
        log->is_in_slot = s->logged.n_pages[half] < count_pages(s);
        log->copy_slot += !log->is_in_slot;
        FAULT_POINT("session-log-copied");
}

/* Continues the copy, past so many slots at most, and until so many bytes are written. */
static void copy_some(struct sessions *all, uint64_t slots, uint64_t bytes)
{
        struct session_log *log = &all->log;
        unsigned half = !current_half(log);
        uint64_t before = tail_of(log, half);

        for (; slots > 0 && log->copy_slot < all->n_slots; slots--) {
                struct session *s = all->slots[log->copy_slot].session;

                if (!s || !session_is_live(s)) {
                        log->is_in_slot = false;
                        log->copy_slot++;
                        continue;
                }
                if (!has_room_for(log, half, piece_bytes(log, s, half))) {
                        begin_copy(log); /* records that went to both halves took its space */
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

/* Copies all that is live at once. A half has space for three times as much. */
static void copy_all(struct sessions *all)
{
        begin_copy(&all->log);
        copy_some(all, UINT64_MAX, UINT64_MAX);
}

/* Does some of the work that is spread over records: copying, or giving memory back. It comes
 * before a record, so that the copy has the state before or in the record. */
static void do_some_work(struct sessions *all)
{
        struct session_log *log = &all->log;
        uint64_t limit = MAX((uint64_t)SESSION_LOG_SMALL, 2 * live_bytes(all));

        if (log->is_copying)
                copy_some(all, COPY_SLOTS, COPY_BYTES);
        else if (log->idle_bytes > 0)
                give_back(log, log->idle_bytes - MIN(log->idle_bytes, (uint64_t)PUNCH_BYTES));
        else if (tail_of(log, current_half(log)) > limit)
                begin_copy(log);
}

/* Makes space for a record in both halves. */
static void make_room_for(struct sessions *all, uint64_t bytes)
{
        struct session_log *log = &all->log;

        if (!has_room_for(log, current_half(log), bytes) ||
                (log->is_copying && !has_room_for(log, !current_half(log), bytes)))
                copy_all(all);
}

/* Writes a record to the other half, too. */
static void repeat_record(struct session_log *log, const struct session_record *r)
{
        unsigned half = !current_half(log);
        void *copy = at_tail(log, half);

        memcpy(copy, r, r->bytes);
        commit_record(log, half, copy);
}

/* ---- calls of sessions ----------------------------------------------------------------------- */

static bool is_off(const struct ns *ns)
{
        return !log_of(ns)->head;
}

/* Does the other half have the slot's session already? */
static bool was_copied(const struct session_log *log, uint32_t slot)
{
        return log->is_copying && slot < log->copy_slot;
}

/* Returns the space that a record of the session needs, with at most `most` new pages. */
static uint64_t room_for(const struct session_log *log, const struct session *s, uint32_t most)
{
        unsigned half = current_half(log);
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
        do_some_work(s->ns->sessions);
        make_room_for(s->ns->sessions, room_for(log, s, most));
        put_session(log, current_half(log), s, most, !s->logged.is_there);
        /* The last piece of a session that is being copied has its present state. */
        if (was_copied(log, s->slot))
                put_session(log, !current_half(log), s, most, !s->logged.is_there);
        s->logged.is_there = true;
        s->logged.used_nsec = s->used_nsec;
}

bool session_log_coming(struct session *s)
{
        const struct session_log *log = log_of(s->ns);

        if (is_off(s->ns))
                return true;
        if (count_pages(s) > s->logged.n_pages[current_half(log)] + log->piece_pages)
                session_log_put(s);
        return count_pages(s) <= s->logged.n_pages[current_half(log)] + log->piece_pages;
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
        do_some_work(ns->sessions);
        make_room_for(ns->sessions, sizeof(*r));
        r = at_tail(log, current_half(log));
        *r = (struct session_moved){
                .record = {.bytes = sizeof(*r), .type = SESSION_RECORD_MOVED},
                .from = name_page(ns, from),
                .to = name_page(ns, to),
        };
        commit_record(log, current_half(log), &r->record);
        if (log->is_copying)
                repeat_record(log, &r->record);
}

void session_log_gone(const struct session *s)
{
        struct session_log *log = log_of(s->ns);
        struct session_record *r;

        if (is_off(s->ns) || !s->logged.is_there)
                return;
        do_some_work(s->ns->sessions);
        make_room_for(s->ns->sessions, sizeof(*r));
        r = at_tail(log, current_half(log));
        *r = (struct session_record){
                .bytes = sizeof(*r), .type = SESSION_RECORD_GONE, .slot = s->slot};
        commit_record(log, current_half(log), r);
        if (was_copied(log, s->slot) || (log->is_in_slot && s->slot == log->copy_slot))
                repeat_record(log, r);
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

/* Maps the log, and takes the fd. Returns 0 or -errno. */
static int map_log(struct session_log *log, int fd, uint64_t bytes)
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

/* Unmaps the log, and closes its fd. It is off from now on. */
static void unmap_log(struct session_log *log, uint64_t bytes)
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

        if (!keep_is_on(&ns->store->keep))
                return 0;
        fd = memfd_create_sized("kvlease-sessions", bytes);
        r = fd < 0 ? fd : map_log(log, fd, bytes);
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
        r = keep_add(&ns->store->keep, KEEP_SESSIONS, ns->records.number, log->fd, d);
        if (r < 0)
                unmap_log(log, bytes);
        FAULT_POINT("session-log-after-keep");
        return r;
}

void session_log_close(struct ns *ns)
{
        if (is_off(ns))
                return;
        unmap_log(log_of(ns), file_bytes_of(ns));
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
        r = map_log(log, fd, bytes);
        if (r < 0)
                return r;
        if (!head_is_right(ns, log->head)) {
                log->fd = -1;
                unmap_log(log, bytes);
                return -EBADMSG;
        }
        log->limit_bytes = log->head->half_bytes;
        log->idle_bytes = log->limit_bytes;
        return 0;
}

const struct session_record *session_log_next(
        const struct session_log *log, uint64_t *offset, bool *ret_damaged)
{
        unsigned half = current_half(log);
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
