#include "daemon/core/state/state.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fault-point.h"
#include "base/fd.h"
#include "base/hash.h"
#include "daemon/core/state/detail.h"
#include "daemon/core/state/store.h"
#include "proto/status.h"

/* Covers byte order and layout of the fields. Not secret. */
static uint32_t state_sum(const struct state_root *state)
{
        struct hash_seed seed = {STATE_MAGIC, sizeof(struct state_root)};

        return (uint32_t)hash_bytes(seed, state, offsetof(struct state_root, sum));
}

/* ---- dropping descriptors -------------------------------------------------------------------- */

uint32_t state_drop_kind(const struct keep *k, enum keep_kind kind)
{
        uint32_t n = k->ops->list(k->data, kind, NULL, 0);
        _cleanup_free_ uint32_t *numbers = n > 0 ? calloc(n, sizeof(*numbers)) : NULL;

        if (!numbers)
                return 0;
        n = MIN(n, k->ops->list(k->data, kind, numbers, n));
        for (uint32_t i = 0; i < n; i++) {
                fd_close(k->ops->take(k->data, kind, numbers[i]));
                keep_drop(k, kind, numbers[i]);
        }
        return n;
}

static const enum keep_kind all_kinds[] = {KEEP_STATE, KEEP_RECORDS, KEEP_INDEX, KEEP_INDEX_READER,
        KEEP_FEED, KEEP_FEED_READER, KEEP_SESSIONS, KEEP_EXTENT, KEEP_CANARY, KEEP_CLIENTS,
        KEEP_RING, KEEP_PROCESS, KEEP_PINS, KEEP_SOCKET_PINS};

/* Drops all descriptors that were left and not taken, except listening sockets. */
static void state_drop_kept(const struct keep *k)
{
        for (size_t i = 0; i < ARRAY_SIZE(all_kinds); i++)
                (void)state_drop_kind(k, all_kinds[i]);
}

/* ---- the root ---------------------------------------------------------------------------------
 */

static int map_root(int fd, struct state_root **ret_state)
{
        void *base = memory_map(fd, STATE_BYTES);

        if (!base)
                return -errno;
        *ret_state = base;
        return 0;
}

static void fill_root(struct state_root *state)
{
        struct hash_seed random = hash_seed_random();

        state->version = STATE_LAYOUT_VERSION;
        state->bytes = STATE_BYTES;
        atomic_store_explicit(&state->boot_epoch, random.k0 | 1, memory_order_relaxed);
        FAULT_POINT("state-before-magic");
        state->magic = STATE_MAGIC;
        state->sum = state_sum(state);
        FAULT_POINT("state-after-magic");
}

/* Checks the version first: another version gives the other fields another meaning. */
static int check_root(const struct state_root *state, struct detail *d)
{
        if (state->magic == STATE_MAGIC && state->version != STATE_LAYOUT_VERSION)
                return detail_set(d, -EINVAL,
                        "what was kept was written by a kvleased with layout version %u of its state, this one has %u: it starts empty",
                        state->version, STATE_LAYOUT_VERSION);
        if (state->magic != STATE_MAGIC || state->bytes != STATE_BYTES ||
                state->sum != state_sum(state))
                return detail_set(
                        d, -EINVAL, "the root of what was kept is damaged: kvleased starts empty");
        return 0;
}

/* Maps the root; takes the fd. Returns 0, or with the sentence: -EINVAL, it is unusable; -ENOMEM.
 */
static int adopt_root(int taken_fd, struct state_root **ret_state, struct detail *d)
{
        _cleanup_fd_ int fd = taken_fd;
        struct state_root *state = NULL;
        struct stat st;
        int r;

        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size != STATE_BYTES)
                return detail_set(d, -EINVAL,
                        "the root of what was kept isn't %d bytes of memory: kvleased starts empty",
                        STATE_BYTES);
        r = map_root(fd, &state);
        if (r < 0)
                return detail_set(
                        d, -ENOMEM, "cannot map the root of what was kept: %s", status_text(r));
        r = check_root(state, d);
        if (r < 0) {
                munmap(state, STATE_BYTES);
                return r;
        }
        *ret_state = state;
        return 0;
}

static int make_root(struct store *s, struct state_root **ret_state, struct detail *d)
{
        _cleanup_fd_ int fd = memfd_create_sized("kvlease-state", STATE_BYTES);
        int r = fd < 0 ? fd : map_root(fd, ret_state);

        if (r < 0)
                return detail_set(d, r, "no memory for what kvleased keeps: %s", status_text(r));
        fill_root(*ret_state);
        FAULT_POINT("state-before-keep");
        r = keep_add(&s->keep, KEEP_STATE, 0, fd, d);
        FAULT_POINT("state-after-keep");
        if (r < 0)
                munmap(*ret_state, STATE_BYTES);
        return r;
}

/* Is there a stored descriptor, but no root? */
static bool is_headless(const struct keep *k)
{
        for (size_t i = 0; i < ARRAY_SIZE(all_kinds); i++)
                if (k->ops->list(k->data, all_kinds[i], NULL, 0) > 0)
                        return true;
        return false;
}

/* The old root may have been taken: then state_drop_kept() misses it. */
static int replace_root(struct store *s, struct state_root **ret_state, struct detail *d)
{
        state_drop_kept(&s->keep);
        keep_drop(&s->keep, KEEP_STATE, 0);
        return make_root(s, ret_state, d);
}

static void begin_again(struct state_root *state)
{
        FAULT_POINT("restart-before-epoch");
        (void)state_next(&state->boot_epoch);
        FAULT_POINT("restart-before-count");
        (void)state_next(&state->n_restarts);
        FAULT_POINT("restart-after-count");
}

static int open_kept(
        struct store *s, struct state_root **ret_state, bool *ret_lost, struct detail *d)
{
        struct detail other = {""};
        int fd = s->keep.ops->take(s->keep.data, KEEP_STATE, 0);
        int r = fd < 0 ? -EINVAL : adopt_root(fd, ret_state, d);

        if (r == 0) {
                begin_again(*ret_state);
                return 1;
        }
        if (r != -EINVAL)
                return r;
        *ret_lost = fd >= 0 || is_headless(&s->keep);
        if (fd < 0 && *ret_lost)
                (void)detail_set(d, -EINVAL,
                        "memory was kept, but not the root that says what it is: kvleased starts empty");
        r = replace_root(s, ret_state, &other);
        if (r < 0 && d)
                *d = other;
        return r;
}

int state_open(struct store *s, bool *ret_lost, struct detail *d)
{
        struct state_root *state = &s->own_state;
        int r = 0;

        *ret_lost = false;
        if (keep_is_on(&s->keep))
                r = open_kept(s, &state, ret_lost, d);
        else
                fill_root(state);
        if (r < 0)
                return r;
        s->state = state;
        s->boot_epoch = atomic_load_explicit(&state->boot_epoch, memory_order_relaxed);
        return r;
}

int state_start_over(struct store *s, struct detail *d)
{
        struct state_root *state = NULL;
        int r = replace_root(s, &state, d);

        if (r < 0)
                return r;
        state_close(s);
        s->state = state;
        s->boot_epoch = atomic_load_explicit(&state->boot_epoch, memory_order_relaxed);
        return 0;
}

void state_close(struct store *s)
{
        if (s->state != &s->own_state)
                munmap(s->state, STATE_BYTES);
        s->state = &s->own_state;
}
