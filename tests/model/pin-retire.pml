/*
 * Readers against the evictor, one page: proto/shm.h, daemon/core/records/shared.h, docs/develop/ARCHITECTURE.md
 * ("Readers and the evictor"). Everything goes on for ever: readers look keys up, clients die at
 * any moment and come back, the daemon publishes and evicts, crashes at any moment and recovers.
 *
 *   -DONE_CLIENT   both readers are threads of one client and share its counter
 *   -DNO_CRASH     the daemon doesn't crash
 *
 * The key stands for the whole line, the data for the page's bytes; the data of a page is its key.
 * What the daemon does with data here is done by the client that was granted the page; that one is
 * ordered by its ring (doorbell.pml). Slots hold no tag: every key has the same hash.
 *
 * Checked: no page is reused while it is read; what is read is what was looked up; outside of an
 * operation a page is FREE or SEALED and in its slot; no counter goes below 0.
 */
#define N_READERS 2
#define N_CPUS    3 /* the daemon is 2 */
#define DAEMON    2

#ifdef ONE_CLIENT
#define N_CLIENTS   1
#define CLIENT(cpu) 0
#else
#define N_CLIENTS   2
#define CLIENT(cpu) (cpu)
#endif

#define PIN(client) (client)
#define SLOT        2
#define STATE       3
#define KEY         4
#define DATA        5
#define N_CELLS     6
#include "memory.pml"

#define FREE     0
#define GRANTED  1
#define SEALED   2
#define RETIRING 3

chan kill[N_CPUS] = [0] of { bit }; /* ends the process, wherever it is */
bit dead[N_READERS];
bit reading[N_READERS];  /* thinks that it may */

inline add_pin(me)
{
#ifdef PIN_LOAD_STORE
        load(me, PIN(CLIENT(me)), v);
        store(me, PIN(CLIENT(me)), v + 1)
#else
        atomic {
                rmw(me, PIN(CLIENT(me)), old + 1, v);
                v = 0
        }
#endif
}

inline drop_pin(me)
{
#ifdef PIN_LOAD_STORE
        load(me, PIN(CLIENT(me)), v);
        store_release(me, PIN(CLIENT(me)), v - 1)
#else
        atomic {
                rmw(me, PIN(CLIENT(me)), old - 1, v);
                assert(v > 0);
                v = 0
        }
#endif
}

inline compare_key(me)
{
#ifdef NO_KEY_CHECK
        ours = 1
#else
        ours = (LOOK(me, KEY) == wanted)
#endif
}

inline check_state(me)
{
        d_step {
                ours = ours && (LOOK(me, STATE) == SEALED);
                reading[me] = ours
        }
}

/* pin; fence; state (acquire); key */
inline pin_and_check(me)
{
#ifdef CHECK_BEFORE_PIN
        ours = 1;
        check_state(me);
        if
        :: ours -> compare_key(me)
        :: else
        fi;
        add_pin(me);
        fence(me);
#else
        add_pin(me);
#ifndef NO_FENCE_READER
        fence(me);
#endif
#ifdef KEY_BEFORE_STATE
        compare_key(me);
        check_state(me);
#else
        ours = 1;
#ifdef NO_STATE_CHECK
        reading[me] = 1;
#else
        check_state(me);
#endif
        if
        :: ours -> compare_key(me)
        :: else
        fi;
#endif
#endif
        reading[me] = ours
}

proctype reader(byte me)
{
        byte v, wanted;
        bit ours;

start:
        {
                do
                :: atomic {
                           LOOK(me, SLOT) ->
                           if
                           :: wanted = 1
                           :: wanted = 2
                           fi
                   };
                   pin_and_check(me);
#ifdef UNPIN_BEFORE_USE
                   drop_pin(me);
#endif
                   if
                   :: ours ->
                           assert(LOOK(me, DATA) == wanted);
                           assert(LOOK(me, DATA) == wanted)
                   :: else
                   fi;
                   d_step {
                           reading[me] = 0;
                           ours = 0;
                           wanted = 0
                   };
#ifndef UNPIN_BEFORE_USE
                   drop_pin(me)
#endif
                od
        } unless {
                kill[me]?_
        };
        d_step {
                reading[me] = 0;
                v = 0;
                wanted = 0;
                ours = 0;
                dead[me] = 1
        };
        !dead[me]; /* buried: a new client */
        goto start
}

inline sum_pins()
{
        load(DAEMON, PIN(0), pins);
#if !defined(ONE_CLIENT) && !defined(SUM_ONE)
        if
        :: pins == 0 -> load(DAEMON, PIN(1), pins)
        :: else
        fi
#endif
}

inline set_free()
{
        assert(!reading[0] && !reading[1]);
        store(DAEMON, SLOT, 0);
        store(DAEMON, STATE, FREE)
}

inline evict()
{
#ifdef SUM_BEFORE_RETIRING
        sum_pins();
        store(DAEMON, STATE, RETIRING);
        fence(DAEMON);
#else
        sum_pins();
        if
        :: pins == 0 ->
                store(DAEMON, STATE, RETIRING);
#ifndef NO_FENCE_EVICTOR
                fence(DAEMON);
#endif
#ifndef NO_SUM
                sum_pins();
#endif
        :: else -> goto idle
        fi;
#endif
        if
        :: pins == 0 -> set_free()
        :: else ->
#ifndef NO_RESTORE
                store_release(DAEMON, STATE, SEALED)
#endif
        fi
}

inline publish()
{
        store(DAEMON, STATE, GRANTED);
        store(DAEMON, DATA, 0); /* half written */
        if
        :: wanted = 1
        :: wanted = 2
        fi;
        store(DAEMON, DATA, wanted);
#ifdef KEY_AFTER_SEALED
        store_release(DAEMON, STATE, SEALED);
        store(DAEMON, KEY, wanted);
#else
        store(DAEMON, KEY, wanted);
#ifdef SEALED_NO_RELEASE
        store(DAEMON, STATE, SEALED);
#else
        store_release(DAEMON, STATE, SEALED);
#endif
#endif
        store_release(DAEMON, SLOT, 1);
        wanted = 0
}

/* The process has exited, so its stores are in memory. Its pin segment goes. */
inline bury(client, first, last)
{
        d_step {
#ifdef PINS_END_AT_HANGUP
                !dead[first] ->
#else
                dead[first] && dead[last] && sb[first].n == 0 && sb[last].n == 0 ->
#endif
                mem[PIN(client)] = 0;
                dead[first] = 0;
                dead[last] = 0
        }
}

inline recover()
{
        sb[DAEMON].n == 0;
#ifdef RECOVERY_ZEROES_PINS
        d_step {
                mem[PIN(0)] = 0;
                mem[PIN(N_CLIENTS - 1)] = 0
        };
#endif
        load(DAEMON, STATE, state);
        if
        :: state == SEALED || state == RETIRING ->
#ifdef RECOVERY_FREES_RETIRING
                if
                :: state == RETIRING ->
                        set_free();
                        goto idle
                :: else
                fi;
#endif
#ifndef RECOVERY_LEAVES_RETIRING
                store(DAEMON, STATE, SEALED);
#endif
#ifndef RECOVERY_NO_SLOT
                store_release(DAEMON, SLOT, 1)
#endif
        :: else ->
                store(DAEMON, STATE, FREE);
                store(DAEMON, SLOT, 0)
        fi
}

proctype daemon()
{
        byte pins, wanted, state, slot;

start:
        {
                recover();
idle:
                do
                :: d_step {
                           pins = 0;
                           state = LOOK(DAEMON, STATE);
                           slot = LOOK(DAEMON, SLOT);
                           assert(state == FREE && !slot || state == SEALED && slot)
                   };
                   if
                   :: state == SEALED -> evict()
                   :: state == FREE -> publish()
#ifdef ONE_CLIENT
                   :: bury(0, 0, 1)
#else
                   :: bury(0, 0, 0)
                   :: bury(1, 1, 1)
#endif
                   fi
                od
        } unless {
                kill[DAEMON]?_
        };
        d_step {
                pins = 0;
                wanted = 0;
                state = 0;
                slot = 0
        };
        goto start
}

/* Ends a process at any moment. */
proctype fate()
{
end:
        do
        :: kill[0]!0
        :: kill[1]!0
#ifndef NO_CRASH
        :: kill[DAEMON]!0
#endif
        od
}

init
{
        atomic {
                run cpu_buffer(0);
                run cpu_buffer(1);
                run cpu_buffer(DAEMON);
                run reader(0);
                run reader(1);
                run daemon();
                run fate()
        }
}
