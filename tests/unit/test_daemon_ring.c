/*
 * The daemon's end of the rings, against a client in the same process. What an entry does is
 * daemon/core's: submit_one() is replaced here (by the linker) and notes what it was given.
 */
#include "tests/unit/test-support.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/server/base/ring.h"

#define N_SUB  SHM_SUB_ENTRIES
#define N_COMP SHM_COMP_ENTRIES
#define PLENTY UINT32_MAX

/* The client: the same memory, mapped once more. */
struct client {
        struct ring ring;
        struct shm_client *shm;
        struct shm_submission *submissions;
        struct shm_completion *completions;
};

static struct {
        uint64_t n;                       /* entries executed */
        struct shm_submission last;       /* the one given last */
        uint64_t refuse_at;               /* the n-th breaks a rule; 0: none */
        struct shm_submission *scribble;  /* the ring, overwritten while an entry is executed */
        const struct submit_chain *chain; /* as given */
        uint8_t silent_op;                /* completes nothing */
        uint32_t n_walked;                /* for each */
        uint8_t fetch_op;                 /* is a FETCH */
        bool is_there;                    /* what it fetches */
        uint64_t n_begun;
} executed;

void __wrap_submit_one(struct member *m, struct submit_chain *chain, const struct shm_submission *s,
        uint64_t now_nsec, struct submit_result *ret);

void __wrap_submit_one(struct member *m, struct submit_chain *chain, const struct shm_submission *s,
        uint64_t now_nsec, struct submit_result *ret)
{
        if (executed.scribble)
                memset(executed.scribble, 0xff, N_SUB * sizeof(*executed.scribble));
        executed.n++;
        executed.last = *s;
        executed.chain = chain;
        *ret = (struct submit_result){
                .violation = executed.n == executed.refuse_at ? "test-rule" : NULL,
                .completes = s->op != executed.silent_op,
                .status = s->tokens,
                .page = s->page + 1,
                .n_walked = executed.n_walked,
        };
        if (executed.fetch_op && s->op == executed.fetch_op)
                ret->fetching = (struct attach *)&executed;
}

static bool begin_fetch(struct attach *a, const struct fetch_request *rq, uint64_t user_data,
        struct submit_result *ret)
{
        assert_ptr_equal(a, &executed);
        assert_int_equal(user_data, executed.last.user_data);
        executed.n_begun++;
        ret->completes = executed.is_there;
        return !executed.is_there;
}

static void client_open(struct client *c)
{
        int fd = -1;

        *c = (struct client){.shm = NULL};
        memset(&executed, 0, sizeof(executed));
        assert_int_equal(ring_open(&c->ring, 77, 0xb007, &fd), 0);
        c->ring.fetch = begin_fetch;
        c->shm = mmap(NULL, SHM_CLIENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(c->shm != MAP_FAILED);
        fd_close(fd);
        c->submissions = (struct shm_submission *)((char *)c->shm + c->shm->sub_offset);
        c->completions = (struct shm_completion *)((char *)c->shm + c->shm->comp_offset);
}

static void client_close(struct client *c)
{
        assert_int_equal(munmap(c->shm, SHM_CLIENT_BYTES), 0);
        ring_close(&c->ring);
        assert_false(ring_is_open(&c->ring));
        ring_close(&c->ring);
}

#define SCENE(fn, ...) TEST_ON(fn, struct client, c, client_open, client_close, ##__VA_ARGS__)

/* n entries that say their position. */
static void submit(struct client *c, uint32_t n)
{
        uint64_t tail = c->shm->sub_tail;

        for (uint32_t i = 0; i < n; i++, tail++)
                c->submissions[tail % N_SUB] = (struct shm_submission){
                        .op = SHM_OP_PUBLISH,
                        .tokens = (uint16_t)(tail % 1000),
                        .page = (uint32_t)tail,
                        .user_data = ~tail,
                };
        c->shm->sub_tail = tail;
}

/* Takes n completions, of the entries from `first` on. */
static void take(struct client *c, uint64_t first, uint32_t n)
{
        uint64_t head = c->shm->comp_head;

        assert_true(c->shm->comp_tail - head >= n);
        for (uint32_t i = 0; i < n; i++, head++) {
                const struct shm_completion *got = &c->completions[head % N_COMP];

                assert_int_equal(got->user_data, ~(first + i));
                assert_int_equal(got->status, (first + i) % 1000);
                assert_int_equal(got->page, first + i + 1);
        }
        c->shm->comp_head = head;
}

static struct ring_turn drain(struct client *c, uint32_t budget)
{
        return ring_drain(&c->ring, NULL, budget, 1, UINT64_MAX);
}

/* All of it went well. */
static void drain_all(struct client *c, uint32_t n)
{
        struct ring_turn turn = drain(c, PLENTY);

        assert_null(turn.violation);
        assert_int_equal(turn.n, n);
        assert_false(turn.more);
}

SCENE(test_order)
{
        submit(c, 3);
        drain_all(c, 3);
        assert_int_equal(executed.n, 3);
        assert_int_equal(executed.last.page, 2);
        assert_ptr_equal(executed.chain, &c->ring.chain);
        assert_int_equal(c->shm->sub_head, 3);
        assert_int_equal(c->shm->comp_tail, 3);
        take(c, 0, 3);
        /* Each once: a head that the client moves back means nothing. */
        c->shm->sub_head = 0;
        drain_all(c, 0);
        submit(c, 1);
        drain_all(c, 1);
        assert_int_equal(executed.last.page, 3);
        take(c, 3, 1);
}

/* Nothing is executed whose completion has no room, and all of it once there is. */
SCENE(test_stall)
{
        struct ring_turn turn;

        submit(c, N_SUB);
        drain_all(c, N_SUB);
        submit(c, N_SUB);
        drain_all(c, N_SUB);
        assert_int_equal(c->shm->comp_tail, N_COMP);
        submit(c, 10);
        turn = drain(c, PLENTY);
        assert_null(turn.violation);
        assert_int_equal(turn.n, 0);
        assert_false(turn.more); /* until the client rings */
        assert_true(ring_sleep(&c->ring));
        take(c, 0, 4);
        assert_false(ring_sleep(&c->ring));
        turn = drain(c, PLENTY);
        assert_int_equal(turn.n, 4);
        assert_false(turn.more);
        take(c, 4, N_COMP);
        drain_all(c, 6);
        take(c, N_COMP + 4, 6);
}

/* All submissions of a client that has exited are executed; no process takes completions. */
SCENE(test_ended)
{
        submit(c, N_SUB);
        drain_all(c, N_SUB);
        submit(c, N_SUB);
        drain_all(c, N_SUB);
        submit(c, N_SUB);
        c->ring.ended = true;
        c->shm->comp_head = 12345678; /* isn't looked at */
        assert_false(ring_sleep(&c->ring));
        drain_all(c, N_SUB);
        assert_int_equal(executed.n, 3 * N_SUB);
        assert_int_equal(c->shm->comp_tail, N_COMP);
}

/* `tail` breaks the rules after `n` entries were submitted and half of them executed. */
static void check_bad_tail(uint32_t n, uint64_t tail)
{
        struct client c;
        struct ring_turn turn;

        client_open(&c);
        submit(&c, n);
        assert_int_equal(drain(&c, n / 2).n, n / 2);
        c.shm->sub_tail = tail;
        assert_false(ring_sleep(&c.ring));
        executed.n = 0;
        turn = drain(&c, PLENTY);
        assert_string_equal(turn.violation, "ring-tail");
        assert_int_equal(turn.n, 0);
        assert_false(turn.more);
        assert_int_equal(executed.n, 0);
        client_close(&c);
}

TEST(test_bad_tails)
{
        check_bad_tail(100, 50 + N_SUB + 1); /* beyond the ring */
        check_bad_tail(100, 99);             /* back, before what was seen */
        check_bad_tail(100, 49);             /* back, before what was executed */
        check_bad_tail(100, 0);
        check_bad_tail(100, UINT64_MAX);
        check_bad_tail(0, N_SUB + 1);
        check_bad_tail(0, UINT64_C(1) << 63);
}

static void check_bad_head(uint64_t head)
{
        struct client c;
        struct ring_turn turn;

        client_open(&c);
        submit(&c, 100);
        drain_all(&c, 100);
        take(&c, 0, 50);
        submit(&c, 1);
        drain_all(&c, 1);
        submit(&c, 1);
        c.shm->comp_head = head;
        turn = drain(&c, PLENTY);
        assert_string_equal(turn.violation, "ring-head");
        assert_int_equal(executed.n, 101);
        client_close(&c);
}

TEST(test_bad_heads)
{
        check_bad_head(102); /* of a completion that isn't there */
        check_bad_head(49);  /* back */
        check_bad_head(UINT64_MAX);
}

/* Entries before a broken one are executed and reported, later ones aren't. */
SCENE(test_bad_entry)
{
        struct ring_turn turn;

        executed.refuse_at = RING_BATCH + 6;
        submit(c, 100);
        turn = drain(c, PLENTY);
        assert_string_equal(turn.violation, "test-rule");
        assert_false(turn.more);
        assert_int_equal(executed.n, RING_BATCH + 6);
        assert_int_equal(c->shm->comp_tail, RING_BATCH + 5);
        take(c, 0, RING_BATCH + 5);
}

/* Entries that the client changes while their batch is executed. */
SCENE(test_changed_after_copy)
{
        struct ring_turn turn;

        submit(c, RING_BATCH);
        executed.scribble = c->submissions;
        turn = drain(c, PLENTY);
        assert_null(turn.violation);
        assert_int_equal(turn.n, RING_BATCH);
        assert_int_equal(executed.last.page, RING_BATCH - 1);
        take(c, 0, RING_BATCH);
}

SCENE(test_daemon_sleeps)
{
        assert_true(ring_sleep(&c->ring));
        assert_int_equal(c->shm->daemon_sleeps, 1);
        c->shm->daemon_sleeps = 0; /* the client has rung */
        submit(c, 1);
        assert_false(ring_sleep(&c->ring));
        assert_int_equal(c->shm->daemon_sleeps, 0);
        drain_all(c, 1);
        assert_true(ring_sleep(&c->ring));
        assert_int_equal(c->shm->daemon_sleeps, 1);
}

SCENE(test_client_sleeps)
{
        assert_false(ring_wakes_client(&c->ring));
        c->shm->client_sleeps = 1;
        assert_true(ring_wakes_client(&c->ring));
        assert_int_equal(c->shm->client_sleeps, 0);
        assert_false(ring_wakes_client(&c->ring));
        c->shm->client_sleeps = 2; /* no such thing */
        assert_false(ring_wakes_client(&c->ring));
        c->shm->n_touches_dropped = 9;
        assert_int_equal(ring_touches_dropped(&c->ring), 9);
}

/* Entries that complete nothing are no news, but in a ring whose client may wait for room. */
SCENE(test_news)
{
        executed.silent_op = SHM_OP_PUBLISH;
        submit(c, N_SUB / 4);
        assert_false(drain(c, PLENTY).is_news);
        assert_false(drain(c, PLENTY).is_news); /* nothing was there */
        submit(c, N_SUB / 4 + 1);
        assert_true(drain(c, PLENTY).is_news);
        submit(c, N_SUB);
        assert_true(drain(c, N_SUB / 2).is_news);
        assert_true(drain(c, N_SUB / 2).is_news);
        executed.silent_op = SHM_OP_FREE;
        submit(c, 1);
        assert_true(drain(c, PLENTY).is_news);
}

/* A turn whose time is over executes one entry that may be long, or a few others. Nothing is lost,
 * and a client that waits for a position sees when it is reached. */
SCENE(test_time_is_up)
{
        const uint64_t over = 1; /* by a clock that began long ago */
        struct ring_turn turn;

        submit(c, 32);
        turn = ring_drain(&c->ring, NULL, PLENTY, 0, over);
        assert_in_range(turn.n, 1, 8);
        assert_true(turn.more && !turn.violation);
        assert_int_equal(c->shm->sub_head, turn.n);
        assert_true(ring_is_at(&c->ring, turn.n));
        assert_false(ring_is_at(&c->ring, ring_tail(&c->ring)));
        c->submissions[turn.n].op = SHM_OP_REFILL;
        assert_int_equal(ring_drain(&c->ring, NULL, PLENTY, 0, over).n, 1);
        assert_true(drain(c, PLENTY).n > 1);
        assert_true(ring_is_at(&c->ring, ring_tail(&c->ring)));
        assert_false(ring_has_any(&c->ring));
}

/* ---- what completes later ------------------------------------------------------------------- */

/* Running fetches keep their room in the ring of completions. */
SCENE(test_fetches_room)
{
        uint64_t n = 0;

        executed.fetch_op = SHM_OP_FETCH;
        for (unsigned i = 0; i < N_COMP / N_SUB; i++) {
                submit(c, N_SUB);
                for (unsigned k = 0; k < N_SUB; k++)
                        c->submissions[k].op = SHM_OP_FETCH;
                drain_all(c, N_SUB);
        }
        assert_int_equal(executed.n_begun, N_COMP);
        submit(c, 2);
        drain_all(c, 0);
        assert_true(ring_sleep(&c->ring));
        /* One is done, and taken. */
        ring_complete(&c->ring, 1, 0, 1);
        drain_all(c, 0);
        c->shm->comp_head++;
        assert_false(ring_sleep(&c->ring));
        assert_int_equal(drain(c, PLENTY).n, 1);
        for (n = 1; n < N_COMP; n++)
                ring_complete(&c->ring, n, 0, 1);
        assert_int_equal(c->shm->comp_tail - c->shm->comp_head, N_COMP);
}

TEST(test_fetches_ended)
{
        struct client c;

        client_open(&c);
        executed.fetch_op = SHM_OP_FETCH;
        submit(&c, 1);
        c.submissions[0].op = SHM_OP_FETCH;
        drain_all(&c, 1);
        c.ring.ended = true;
        submit(&c, 1);
        c.submissions[1].op = SHM_OP_FETCH;
        drain_all(&c, 1);
        assert_int_equal(executed.n_begun, 1);
        ring_complete(&c.ring, 1, 0, 1);
        assert_int_equal(c.shm->comp_tail, 0);
        assert_int_equal(c.ring.n_fetches, 0);
        client_close(&c);
        ring_complete(&c.ring, 1, 0, 1);
}
