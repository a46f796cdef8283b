/*
 * Litmus tests of memory.pml itself: that the models can see what a missing fence does.
 *
 *   -DSB       each of two CPUs stores to its own cell and loads the other's: not both 0
 *   -DSB_RMW   the same by a read-modify-write instead of the store
 *   -DMP       one stores data, then a flag; who sees the flag sees the data
 *   -DCOUNT    both add 1 to a cell, twice: 4
 *
 * Mutations: NO_FENCE (SB, SB_RMW), NO_RELEASE (MP), LOAD_STORE (COUNT).
 */
#define N_CPUS  2
#define N_CELLS 2
#include "memory.pml"

byte seen[2], n_done;

#if defined(SB) || defined(SB_RMW)
proctype cpu(byte me)
{
        byte v;
#ifdef SB
        store(me, me, 1);
#else
        rmw(me, me, 1, v);
#endif
#ifndef NO_FENCE
        fence(me);
#endif
        load(me, 1 - me, v);
        atomic {
                seen[me] = v;
                n_done++;
                if
                :: n_done == 2 -> assert(seen[0] || seen[1])
                :: else
                fi
        }
}
#endif

#ifdef MP
proctype cpu(byte me)
{
        byte flag, data;
        if
        :: me == 0 ->
                store(me, 0, 1);
#ifdef NO_RELEASE
                store(me, 1, 1)
#else
                store_release(me, 1, 1)
#endif
        :: else ->
                load(me, 1, flag);
                load(me, 0, data);
                assert(!flag || data)
        fi
}
#endif

#ifdef COUNT
proctype cpu(byte me)
{
        byte v, i;
        do
        :: i < 2 ->
#ifdef LOAD_STORE
                load(me, 0, v);
                store(me, 0, v + 1);
#else
                rmw(me, 0, old + 1, v);
#endif
                i++
        :: else -> break
        od;
        fence(me);
        n_done++;
        n_done == 2;
        load(me, 0, v);
        assert(v == 4)
}
#endif

init
{
        atomic {
                run cpu_buffer(0);
                run cpu_buffer(1);
                run cpu(0);
                run cpu(1)
        }
}
