/*
 * The daemon moves a key from its home bucket to the one after it, to make room for another one in
 * the first, while a client looks for it. It may crash once, and what it left is corrected then. In
 * the end the key is evicted.
 *
 * Checked: the client finds the key as long as it is cached; afterwards it is in no bucket.
 */
#define N_CPUS 2
#define READER 0 /* writes nothing */
#define DAEMON 1

#define HOME    0 /* the key's slot in its home bucket */
#define NEXT    1 /* and in the one after it */
#define N_CELLS 2
#include "memory.pml"

/* In a slot. */
#define NONE 0
#define KEY  1
#define MORE 2 /* the key that needs the room */

bit is_gone; /* being evicted */
chan kill = [0] of { bit };

proctype reader()
{
        byte first, second;

#ifdef NEXT_FIRST
        load(READER, NEXT, first);
        load(READER, HOME, second);
#else
        load(READER, HOME, first);
        if
        :: first == KEY -> goto found
        :: else
        fi;
        load(READER, NEXT, second);
#endif
        assert(first == KEY || second == KEY || is_gone);
found:
        skip
}

inline move()
{
#ifdef LEAVE_FIRST
        store_release(DAEMON, HOME, MORE);
        store_release(DAEMON, NEXT, KEY)
#else
#ifdef NO_RELEASE
        store(DAEMON, NEXT, KEY);
        store(DAEMON, HOME, MORE)
#else
        store_release(DAEMON, NEXT, KEY);
        store_release(DAEMON, HOME, MORE)
#endif
#endif
}

/* Where it can be twice the first one counts. */
inline correct()
{
        if
        :: LOOK(DAEMON, HOME) == KEY && LOOK(DAEMON, NEXT) == KEY ->
#ifdef RECOVERY_KEEPS_BOTH
                skip
#else
                store_release(DAEMON, NEXT, NONE)
#endif
        :: else
        fi
}

inline evict()
{
        is_gone = 1;
        if
        :: LOOK(DAEMON, HOME) == KEY -> store_release(DAEMON, HOME, NONE)
        :: else -> store_release(DAEMON, NEXT, NONE)
        fi
}

proctype daemon()
{
        bit was_killed, is_done;

start:
        {
                if
                :: was_killed -> correct()
                :: else
                fi;
                if
                :: LOOK(DAEMON, HOME) == KEY && !is_gone -> move()
                :: LOOK(DAEMON, HOME) == KEY && !is_gone -> skip
                :: else
                fi;
#ifdef MOVE_BACK
                if
                :: LOOK(DAEMON, NEXT) == KEY ->
                        store_release(DAEMON, HOME, KEY);
                        store_release(DAEMON, NEXT, NONE)
                :: else
                fi;
#endif
                if
                :: !is_gone || LOOK(DAEMON, HOME) == KEY || LOOK(DAEMON, NEXT) == KEY -> evict()
                :: else
                fi;
                fence(DAEMON);
                assert(mem[HOME] != KEY);
                assert(mem[NEXT] != KEY);
                is_done = 1
        } unless {
                kill?_
        };
        if
        :: !is_done ->
                sb[DAEMON].n == 0;
                was_killed = 1;
                goto start
        :: else
        fi
}

init
{
        atomic {
                mem[HOME] = KEY;
                run cpu_buffer(READER);
                run cpu_buffer(DAEMON);
                run reader();
                run daemon()
        };
end:
        kill!0
}
