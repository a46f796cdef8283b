/*
 * Waiting for a key that another client is computing.
 *
 * In shared memory a waiter sleeps on the state of the line, which is PENDING. The daemon changes
 * the state at the publish, or when the announcement ends, and wakes sleepers. The waiter sends
 * nothing and takes no lock. It doesn't look at the connection: if the daemon is stopped or away,
 * or the connection over, the wait lasts until its time is up (KVL_TIMEOUT). No announcement ends
 * without a daemon, and earlier publishes can be read. A daemon may be killed between a change and
 * its wake, so waiters look again at intervals. Over the socket the daemon answers once the key's
 * state is known.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macros.h"
#include "client/lib/calls/op.h"
#include "client/lib/connection/error.h"
#include "client/lib/objects/args.h"
#include "client/lib/pages/lookup.h"
#include "proto/status.h"

#define WAIT_MAX_MSEC   600000                /* protocol */
#define LOOK_AGAIN_NSEC (100 * NSEC_PER_MSEC) /* not tuned: a look costs 0.1 us */

static int check_wait(const struct kvl_ns *ns, int timeout_msec)
{
        int r = args_check_ns(ns);

        if (r == 0 && (timeout_msec < 1 || timeout_msec > WAIT_MAX_MSEC))
                r = error_set(-EINVAL, "the timeout is %d ms, must be 1 to %d", timeout_msec,
                        WAIT_MAX_MSEC);
        return r;
}

/* ---- in shared memory --------------------------------------------------------------------------
 */

/* Sleeps until the word's value changes, or for any reason: look again. Returns 0; -ETIMEDOUT;
 * another -errno: this can't be waited for. */
static int sleep_on(const struct fast_word *word, uint64_t deadline_nsec)
{
        struct timespec until = conn_timespec(deadline_nsec);

        /* The only futex wait with an absolute timeout. Its key is the file's page: the mapping may
         * be read-only, and differ from the daemon's. */
        if (syscall(SYS_futex, word->address, FUTEX_WAIT_BITSET, word->value, &until, NULL,
                    FUTEX_BITSET_MATCH_ANY) == 0)
                return 0;
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
}

/* Returns what kvl_wait() would return now, without waiting. KVL_PENDING: wait on *ret_word. */
static int look_at_key(struct kvl_ns *ns, const uint8_t *key, struct fast_word *ret_word)
{
        static const int codes[] = {
                [FAST_MISS] = KVL_MISS, [FAST_CACHED] = 0, [FAST_PENDING] = KVL_PENDING};

        if (fast_is_stale(&ns->fast))
                return KVL_STALE;
        return codes[fast_look(&ns->fast, key, ret_word)];
}

/* Does kvl_wait() in shared memory. */
static int wait_shared(struct kvl_ns *ns, const uint8_t *key, uint64_t deadline_nsec)
{
        struct fast_word word;
        uint64_t now;
        int r;

        do {
                r = look_at_key(ns, key, &word);
                if (r != KVL_PENDING)
                        return r;
                now = clock_now_nsec();
                if (now >= deadline_nsec)
                        return KVL_TIMEOUT;
                r = sleep_on(&word, MIN(now + LOOK_AGAIN_NSEC, deadline_nsec));
        } while (r == 0 || r == -ETIMEDOUT);
        return r;
}

/* ---- over the socket ---------------------------------------------------------------------------
 */

static const struct op_type type_wait = {.msg = MSG_WAIT, .call_back = op_call_back_waited};

static Kvlease__V1__WaitRequest wait_message(
        const struct kvl_ns *ns, const uint8_t *key, uint32_t timeout_msec)
{
        Kvlease__V1__WaitRequest m = KVLEASE__V1__WAIT_REQUEST__INIT;

        m.ns_id = ns->id;
        m.key.data = (uint8_t *)key;
        m.key.len = KVL_KEY_BYTES;
        m.timeout_msec = timeout_msec;
        return m;
}

/* Waits as long as the daemon may wait, plus the connection's time-out. */
static int wait_on_socket(struct kvl_ns *ns, const uint8_t *key, uint64_t deadline_nsec)
{
        /* The time is at least a millisecond, so that the daemon is asked at all. */
        uint32_t timeout_msec = MAX(conn_msec_until(deadline_nsec), 1U);
        Kvlease__V1__WaitRequest m = wait_message(ns, key, timeout_msec);
        uint64_t deadline = client_deadline(ns->conn);
        struct op op;

        if (deadline != CONN_FOREVER)
                deadline += timeout_msec * NSEC_PER_MSEC;
        op_init(&op, ns, &type_wait, NULL, 0);
        return op_run(&op, &m.base, deadline);
}

/* ---- both --------------------------------------------------------------------------------------
 */

static int wait_key(struct kvl_ns *ns, const uint8_t *key, uint64_t deadline_nsec)
{
        if (!fast_is_open(&ns->fast))
                return wait_on_socket(ns, key, deadline_nsec);
        return error_note(wait_shared(ns, key, deadline_nsec), "");
}

int kvl_wait(struct kvl_ns *ns, const uint8_t *key, int timeout_msec)
{
        int r = check_wait(ns, timeout_msec);

        if (r == 0)
                r = args_check_keys(ns, key, 1, 1);
        return r < 0 ? r : wait_key(ns, key, conn_deadline(timeout_msec));
}

int kvl_wait_start(struct kvl_ns *ns, const uint8_t *key, int timeout_msec,
        void (*done)(struct kvl_ns *ns, int code, void *data), void *data)
{
        Kvlease__V1__WaitRequest m;
        struct fast_word word;
        struct op *op;
        int r = check_wait(ns, timeout_msec);

        if (r == 0)
                r = args_check_keys(ns, key, 1, 1);
        if (r == 0)
                r = op_new(ns, &type_wait, 0, NULL, data, &op);
        if (r < 0)
                return r;
        op->waited = done;
        if (fast_is_open(&ns->fast)) {
                r = look_at_key(ns, key, &word);
                if (r != KVL_PENDING)
                        return op_start_done(op, r);
        }
        m = wait_message(ns, key, (uint32_t)timeout_msec);
        return op_start(op, &m.base);
}

/* ---- lookup that waits -------------------------------------------------------------------------
 */

/* Number of keys of the next step. In shared memory all that are left, as looking is free. Over the
 * socket one, after a wait, as the daemon counts all keys asked for. */
static uint32_t n_next(const struct lookup *l, bool has_waited)
{
        uint32_t n_left = l->n_keys - l->n_pages;

        return has_waited && !fast_is_open(&l->ns->fast) ? 1 : n_left;
}

/* No client of this host computes the next key: asks other hosts, unless they were asked already
 * (*asks_from: the first key not asked for). *ret_n_next: keys to look up then. Returns as
 * lookup_import(). */
static int look_elsewhere(
        struct lookup *l, uint64_t deadline_nsec, uint32_t *asks_from, uint32_t *ret_n_next)
{
        uint32_t n = 1;
        int r;

        if (!l->ns->imports || l->n_pages < *asks_from)
                return KVL_MISS;
        r = lookup_import(l, deadline_nsec, &n);
        if (r == 0 || r == KVL_PENDING)
                *asks_from = l->n_pages + n;
        *ret_n_next = n;
        return r;
}

/* Follows keys as they appear. Returns 0, or why there are no more: KVL_MISS, KVL_TIMEOUT;
 * KVL_STALE, -errno. A key that was there at the wait but not at the lookup ends it, too: it is
 * being evicted. */
static int follow_keys(struct lookup *l, uint64_t deadline_nsec)
{
        uint32_t asks_from = 0, n;
        int r = lookup_extend(l, n_next(l, false));

        if (r == KVL_MISS)
                r = 0;
        while (r == 0 && l->n_pages < l->n_keys) {
                n = n_next(l, true);
                r = wait_key(l->ns, l->keys + (size_t)l->n_pages * KVL_KEY_BYTES, deadline_nsec);
                if (r == KVL_MISS)
                        r = look_elsewhere(l, deadline_nsec, &asks_from, &n);
                if (r == KVL_PENDING) /* by now: wait for it */
                        r = 0;
                else if (r == 0)
                        r = lookup_extend(l, n);
        }
        return r;
}

int kvl_lookup_wait(struct kvl_ns *ns, uint64_t request, const uint8_t *keys, uint32_t n_keys,
        int timeout_msec, uint32_t *ret_pages, uint32_t *ret_n_pages, uint64_t *ret_n_tokens,
        int *ret_is_pending)
{
        struct lookup l = {
                .ns = ns, .request = request, .keys = keys, .n_keys = n_keys, .pages = ret_pages};
        int why, r = check_wait(ns, timeout_msec);
        uint32_t n_found;

        if (r == 0)
                r = args_check_keys(ns, keys, n_keys, UINT32_MAX);
        if (r < 0)
                return r;
        if (!ret_pages || !ret_n_pages || !ret_n_tokens)
                return error_set(-EINVAL, "there is no room for what is found");
        why = follow_keys(&l, conn_deadline(timeout_msec));
        if (why < 0 || why == KVL_STALE) {
                lookup_cut(&l, 0);
                return why;
        }
        n_found = l.n_pages;
        r = lookup_end(&l);
        if (r < 0)
                return r;
        /* The next key isn't pending if it is cached, but had no room on the device. */
        if (ret_is_pending)
                *ret_is_pending = why == KVL_TIMEOUT && l.n_pages == n_found;
        if (r == 0) {
                *ret_n_pages = l.n_pages;
                *ret_n_tokens = l.n_tokens;
        }
        return error_note(r, "");
}
