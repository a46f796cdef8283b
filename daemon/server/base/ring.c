#include "daemon/server/base/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/fd.h"

static void fill_header(struct shm_client *shm, uint64_t client_id, uint64_t boot_epoch)
{
        shm->header = (struct shm_header){
                .magic = SHM_MAGIC,
                .version = SHM_LAYOUT_VERSION,
                .kind = SHM_CLIENT,
                .bytes = SHM_CLIENT_BYTES,
                .boot_epoch = boot_epoch,
                .owner = client_id,
        };
        shm->sub_entries = SHM_SUB_ENTRIES;
        shm->comp_entries = SHM_COMP_ENTRIES;
        shm->sub_offset = SHM_HEADER_BYTES;
        shm->comp_offset = SHM_HEADER_BYTES + SHM_SUB_ENTRIES * sizeof(struct shm_submission);
        atomic_init(&shm->last_op, SHM_OP_LAST);
        atomic_init(&shm->daemon_sleeps, 1);
}

/* Nothing in it is read. */
static int map_ring(struct ring *r, int fd)
{
        uint8_t *base = memory_map(fd, SHM_CLIENT_BYTES);
        uint8_t *submissions = base + SHM_HEADER_BYTES;

        if (!base)
                return -errno;
        *r = (struct ring){
                .shm = (struct shm_client *)(void *)base,
                .submissions = (struct shm_submission *)(void *)submissions,
                .completions =
                        (struct shm_completion *)(void *)(submissions +
                                                          SHM_SUB_ENTRIES *
                                                                  sizeof(struct shm_submission)),
                .fd = -1,
        };
        return 0;
}

int ring_open(struct ring *r, uint64_t client_id, uint64_t boot_epoch, int *ret_fd)
{
        _cleanup_fd_ int fd = memfd_create_sized("kvlease-client", SHM_CLIENT_BYTES);
        int error = fd < 0 ? fd : map_ring(r, fd);

        if (error < 0)
                return error;
        fill_header(r->shm, client_id, boot_epoch);
        *ret_fd = fd_take(&fd);
        return 0;
}

int ring_keep(struct ring *r, int fd)
{
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

        if (copy < 0)
                return -errno;
        r->fd = copy;
        return 0;
}

int ring_adopt(struct ring *r, int fd, struct client_cursors *kept)
{
        struct client_cursor cursor = client_cursors_get(kept);
        int error = map_ring(r, fd);

        if (error < 0)
                return error;
        r->fd = fd;
        r->kept = kept;
        r->repeats = true;
        r->sub_head = r->sub_tail = cursor.sub_head;
        r->comp_tail = cursor.comp_tail;
        r->comp_head = cursor.comp_tail - SHM_COMP_ENTRIES; /* as low as it can be */
        r->chain = cursor.chain;
        atomic_store_explicit(&r->shm->last_op, SHM_OP_LAST, memory_order_relaxed);
        FAULT_POINT("ring-adopt-before");
        atomic_store_explicit(&r->shm->sub_head, r->sub_head, memory_order_release);
        FAULT_POINT("ring-adopt-between");
        atomic_store_explicit(&r->shm->comp_tail, r->comp_tail, memory_order_release);
        FAULT_POINT("ring-adopt-after");
        atomic_store(&r->shm->daemon_sleeps, 0);
        return 0;
}

void ring_close(struct ring *r)
{
        if (r->shm) {
                munmap(r->shm, SHM_CLIENT_BYTES);
                fd_close(r->fd);
        }
        *r = (struct ring){0};
}

/* Reads the client's tail. Returns false if it is invalid. */
static bool see_tail(struct ring *r)
{
        uint64_t tail = atomic_load_explicit(&r->shm->sub_tail, memory_order_acquire);
        uint64_t waiting = tail - r->sub_head;

        if (waiting > SHM_SUB_ENTRIES || waiting < r->sub_tail - r->sub_head)
                return false;
        r->sub_tail = tail;
        return true;
}

/* Reads the client's head of completions. Returns false if it is invalid. */
static bool see_head(struct ring *r)
{
        uint64_t head = atomic_load_explicit(&r->shm->comp_head, memory_order_acquire);

        if (head - r->comp_head > r->comp_tail - r->comp_head)
                return false;
        r->comp_head = head;
        return true;
}

static uint64_t completion_room(const struct ring *r)
{
        if (r->ended)
                return RING_BATCH;
        return SHM_COMP_ENTRIES - (r->comp_tail - r->comp_head) - r->n_fetches;
}

static void store_completion(struct ring *r, uint64_t user_data, uint32_t status, uint32_t page)
{
        if (r->ended)
                return;
        FAULT_POINT("completion-before");
        r->completions[r->comp_tail++ % SHM_COMP_ENTRIES] = (struct shm_completion){
                .user_data = user_data,
                .status = status,
                .page = page,
        };
}

/* Stores progress for the next daemon. */
static void commit_cursor(struct ring *r)
{
        if (r->kept)
                client_cursors_commit(
                        r->kept, &(struct client_cursor){r->sub_head, r->comp_tail, r->chain, 0});
}

/* Shows the client how far it is executed. */
static void show_heads(struct ring *r)
{
        FAULT_POINT("ring-before-heads");
        atomic_store_explicit(&r->shm->sub_head, r->sub_head, memory_order_release);
        FAULT_POINT("ring-between-heads");
        atomic_store_explicit(&r->shm->comp_tail, r->comp_tail, memory_order_release);
        FAULT_POINT("ring-after-heads");
}

/* A client that takes no completions waits for no pages. */
static void begin_fetch(struct ring *r, const struct shm_submission *s, struct submit_result *ret)
{
        if (r->ended)
                return;
        r->n_fetches += r->fetch(ret->fetching, &ret->fetch, s->user_data, ret);
}

static bool is_for_living(uint8_t op)
{
        return op == SHM_OP_TOUCH || op == SHM_OP_EXPECT || op == SHM_OP_REFILL;
}

/* One of the submissions, as copied. */
static void execute_submission(struct ring *r, struct member *m, const struct shm_submission *s,
        uint64_t now_nsec, struct submit_result *ret)
{
        *ret = (struct submit_result){0};
        if (m)
                m->repeats = r->repeats;
        /* If the client has exited, its TOUCHes and EXPECTs are dropped (any may be), and a REFILL
         * would be useless: many connections can end at once. */
        if (!r->ended || !is_for_living(s->op))
                submit_one(m, &r->chain, s, now_nsec, ret);
        if (ret->fetching)
                begin_fetch(r, s, ret);
        r->repeats = false;
        r->sub_head++;
        if (!ret->violation && ret->completes)
                store_completion(r, s->user_data, ret->status, ret->page);
        commit_cursor(r);
}

/* Cheap submissions between two readings of the clock: each takes at most a microsecond, a reading
 * a twentieth of that. Not tuned. */
#define CHEAP_PER_LOOK 8

/* Pages that TOUCHes and EXPECTs walk between two readings of the clock: 0.1 us each. Not tuned. */
#define WALK_PER_LOOK 64

/* The submission was the turn's last. */
static bool is_over(
        const struct ring_turn *turn, const struct shm_submission *s, uint64_t ends_nsec)
{
        bool is_cheap = s->op == SHM_OP_PUBLISH || s->op == SHM_OP_PARENT || s->op == SHM_OP_WITH ||
                        s->op == SHM_OP_TOUCH || s->op == SHM_OP_EXPECT || s->op == SHM_OP_TOKENS;

        if (turn->violation || turn->n_walked >= RING_WALK_PAGES)
                return true;
        /* Pages walked by a TOUCH or an EXPECT count. */
        if (is_cheap && turn->n % CHEAP_PER_LOOK != 0 && turn->n_walked < WALK_PER_LOOK)
                return false;
        return ends_nsec != UINT64_MAX && clock_now_nsec() >= ends_nsec;
}

/* Executes n available submissions whose completions fit. Returns false if the turn has ended. */
static bool run_batch(struct ring *r, struct member *m, uint32_t n, uint64_t now_nsec,
        uint64_t ends_nsec, struct ring_turn *turn)
{
        bool goes_on = true;

        struct shm_submission batch[RING_BATCH];

        for (uint32_t i = 0; i < n; i++)
                batch[i] = r->submissions[(r->sub_head + i) % SHM_SUB_ENTRIES];
        /* From here on the compiler, too, may use only the copies. */
        atomic_signal_fence(memory_order_seq_cst);
        if (m)
                submit_prefetch(m, batch, n);
        for (uint32_t i = 0; i < n && goes_on; i++) {
                struct submit_result result;

                execute_submission(r, m, &batch[i], now_nsec, &result);
                turn->n++;
                turn->n_walked += result.n_walked;
                turn->violation = result.violation;
                goes_on = !is_over(turn, &batch[i], ends_nsec);
        }
        show_heads(r);
        atomic_thread_fence(memory_order_seq_cst); /* ROOM_NEWS_ENTRIES */
        return goes_on;
}

/* Submissions that can be executed now; *ret_rule is set if the client broke a rule. */
static uint64_t count_ready(struct ring *r, const char **ret_rule)
{
        if (!see_tail(r))
                *ret_rule = "ring-tail";
        else if (!r->ended && !see_head(r))
                *ret_rule = "ring-head";
        return *ret_rule ? 0 : MIN(r->sub_tail - r->sub_head, completion_room(r));
}

/*
 * Room for submissions is news if the ring was in use by this much. Otherwise a sleeping client
 * waits for completions, and a REFILL or some TOUCHes aren't worth a wakeup. A client that finds no
 * room and sleeps saw at least three quarters in use, above a published head. Each head is
 * published before the tail is read again, so that this look, at most a batch later, finds nearly
 * as much. See docs/reference/PROTOCOL.md and tests/model/doorbell.pml.
 */
#define ROOM_NEWS_ENTRIES (SHM_SUB_ENTRIES / 4)

struct ring_turn ring_drain(
        struct ring *r, struct member *m, uint32_t budget, uint64_t now_nsec, uint64_t ends_nsec)
{
        struct ring_turn turn = {0};
        uint64_t ready, was_tail = r->comp_tail;
        bool goes_on = true;

        while ((ready = count_ready(r, &turn.violation)) > 0 && turn.n < budget && goes_on) {
                uint32_t n = MIN(budget - turn.n, (uint32_t)RING_BATCH);

                turn.is_news |= r->sub_tail - r->sub_head > ROOM_NEWS_ENTRIES;
                goes_on = run_batch(
                        r, m, (uint32_t)MIN(ready, (uint64_t)n), now_nsec, ends_nsec, &turn);
        }
        turn.is_news |= r->comp_tail != was_tail;
        turn.more = ready > 0 && !turn.violation;
        return turn;
}

bool ring_is_at(struct ring *r, uint64_t position)
{
        const char *rule = NULL;

        return (int64_t)(r->sub_head - position) >= 0 || count_ready(r, &rule) == 0;
}

void ring_complete(struct ring *r, uint64_t user_data, uint32_t status, uint32_t page)
{
        if (!r->shm)
                return;
        r->n_fetches--;
        store_completion(r, user_data, status, page);
        commit_cursor(r);
        show_heads(r);
}

bool ring_sleep(struct ring *r)
{
        struct shm_client *shm = r->shm;
        uint64_t waiting, untaken;

        atomic_exchange(&shm->daemon_sleeps, 1);
        shm_fence_after_rmw();
        waiting = atomic_load_explicit(&shm->sub_tail, memory_order_relaxed) - r->sub_head;
        untaken = r->comp_tail - atomic_load_explicit(&shm->comp_head, memory_order_relaxed);
        if (waiting == 0 || (untaken + r->n_fetches >= SHM_COMP_ENTRIES && !r->ended))
                return true;
        atomic_store_explicit(&shm->daemon_sleeps, 0, memory_order_relaxed);
        return false;
}

bool ring_wakes_client(struct ring *r)
{
        _Atomic uint32_t *sleeps = &r->shm->client_sleeps;

        atomic_thread_fence(memory_order_seq_cst);
        return atomic_load_explicit(sleeps, memory_order_relaxed) == 1 &&
               atomic_exchange(sleeps, 0) == 1;
}

uint64_t ring_touches_dropped(const struct ring *r)
{
        return atomic_load_explicit(&r->shm->n_touches_dropped, memory_order_relaxed);
}
