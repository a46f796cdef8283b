/*
 * Two clients publish a page each under the same key: one becomes the key's page, the other is
 * told DUPLICATE and gets the first one's. Meanwhile the daemon evicts what isn't pinned, and may
 * crash once: what isn't completed then is executed again.
 *
 * Checked: who is told a page holds a pin on it (no counter goes below 0) and reads the right bytes;
 * a duplicate's own page stays as it is until its client frees it.
 */
#define N_CPUS 3 /* the clients are 0 and 1, and their own pages, too */
#define DAEMON 2

#define PIN(client, page) (2 * (client) + (page))
#define SUBMITTED(client) (4 + (client))
#define COMPLETED(client) (6 + (client)) /* page + 1 */
#define DATA(page)        (8 + (page))
#define N_CELLS           10
#include "memory.pml"

#define GRANTED 0
#define SEALED  1
#define FREE    2
byte state[2] = GRANTED; /* the daemon's record */
bit in_use[4];           /* by the client, under PIN() */
byte n_finished;
chan kill = [0] of { bit };

inline drop_pin(page)
{
        atomic {
                rmw(me, PIN(me, page), old - 1, v);
                assert(v > 0);
                v = 0
        }
}

proctype client(byte me)
{
        byte v, page;

        store(me, DATA(me), 1);
#ifndef PIN_AFTER_COMPLETION
        rmw(me, PIN(me, me), old + 1, v);
#endif
#ifdef SUBMIT_NO_RELEASE
        store(me, SUBMITTED(me), 1);
#else
        store_release(me, SUBMITTED(me), 1);
#endif
        atomic {
                LOOK(me, COMPLETED(me)) ->
                page = LOOK(me, COMPLETED(me)) - 1;
                in_use[PIN(me, page)] = 1
        };
#ifdef PIN_AFTER_COMPLETION
        rmw(me, PIN(me, page), old + 1, v);
#else
        if
        :: page != me ->
                /* Its own work may still use the page that nobody else will see. */
                assert(LOOK(me, DATA(me)) == 1);
                drop_pin(me)
        :: else
        fi;
#endif
        assert(LOOK(me, DATA(page)) == 1);
        assert(LOOK(me, DATA(page)) == 1);
        in_use[PIN(me, page)] = 0;
        drop_pin(page);
        n_finished++
}

/* The page becomes somebody else's. */
inline reuse(page)
{
        atomic {
                assert(!in_use[PIN(0, page)] && !in_use[PIN(1, page)]);
                state[page] = FREE
        };
        store(DAEMON, DATA(page), 2)
}

inline evict(page)
{
        fence(DAEMON);
        if
        :: state[page] == SEALED && LOOK(DAEMON, PIN(0, page)) == 0 &&
                LOOK(DAEMON, PIN(1, page)) == 0 -> reuse(page)
        :: else
        fi
}

inline complete(c, page)
{
        store_release(DAEMON, COMPLETED(c), page + 1)
}

inline execute(c)
{
        if
        :: state[c] == SEALED -> complete(c, c) /* again */
        :: state[c] != SEALED && state[1 - c] == SEALED ->
#ifdef DUPLICATE_PIN_AFTER
                complete(c, 1 - c);
                rmw(DAEMON, PIN(c, 1 - c), old + 1, v);
#else
#ifndef DUPLICATE_NO_PIN
                rmw(DAEMON, PIN(c, 1 - c), old + 1, v);
#endif
#ifdef DUPLICATE_FREES_OWN
                reuse(c);
#endif
                complete(c, 1 - c);
#endif
                v = 0
        :: else ->
                state[c] = SEALED;
                complete(c, c)
        fi
}

proctype daemon()
{
        byte v;

start:
        {
                do
                :: LOOK(DAEMON, SUBMITTED(0)) && !LOOK(DAEMON, COMPLETED(0)) ->
                        execute(0)
                :: LOOK(DAEMON, SUBMITTED(1)) && !LOOK(DAEMON, COMPLETED(1)) ->
                        execute(1)
                :: state[0] == SEALED -> evict(0)
                :: state[1] == SEALED -> evict(1)
                :: n_finished == 2 -> break
                od
        } unless {
                kill?_
        };
        if
        :: n_finished < 2 ->
                sb[DAEMON].n == 0;
                v = 0;
                goto start
        :: else
        fi
}

init
{
        atomic {
                run cpu_buffer(0);
                run cpu_buffer(1);
                run cpu_buffer(DAEMON);
                run client(0);
                run client(1);
                run daemon()
        };
end:
        kill!0
}
