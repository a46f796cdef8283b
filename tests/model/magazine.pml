/*
 * Pages granted ahead (daemon/core/clients/grants.h): two threads of a client claim, the daemon refills and
 * takes back, for ever; the client dies at any moment and a new one comes.
 *
 * Checked: a page has one owner at a time, no page is lost: free, in the magazine or the client's by
 * the daemon's records, and all are free when the client is gone.
 */
#define N_CPUS  3 /* the threads are 0 and 1 */
#define DAEMON  2
#define N_SLOTS 2
#ifdef WEAK
#define N_PAGES 2 /* 3 take too long */
#else
#define N_PAGES 3
#endif

#define SLOT(i) (i)
#define FREED(t) (N_SLOTS + (t)) /* of the ring: page + 1 that thread t gives back */
#define TOP     (N_SLOTS + 2)   /* only of the mutation */
#define N_CELLS (N_SLOTS + 3)
#include "memory.pml"

/* The truth: which thread may write a page; GIVEN: none any more, and it isn't free yet. */
#define NOBODY 2
#define GIVEN  3
byte holder[N_PAGES] = NOBODY;
bit is_free[N_PAGES] = 1; /* the daemon's record: FREE, else GRANTED to the client */

chan kill[2] = [0] of { bit };
bit dead[2];

inline take(me, page)
{
        assert(holder[page - 1] == NOBODY && !is_free[page - 1]);
        holder[page - 1] = me
}

/* got: page + 1, or 0 */
inline claim(me, i)
{
#ifdef CLAIM_LOAD_STORE
        load(me, SLOT(i), got);
        store(me, SLOT(i), 0);
#endif
#ifdef CLAIM_TOP_INDEX
        /* A stack; the top is moved by compare-and-swap. */
        load(me, TOP, v);
        if
        :: v > 0 ->
                load(me, SLOT(v - 1), got);
                d_step {
                        sb[me].n == 0 ->
                        if
                        :: mem[TOP] == v -> mem[TOP] = v - 1
                        :: else -> got = 0
                        fi;
                        v = 0
                }
        :: else
        fi;
#endif
        atomic {
#if !defined(CLAIM_LOAD_STORE) && !defined(CLAIM_TOP_INDEX)
                rmw(me, SLOT(i), 0, got);
#endif
                if
                :: got -> take(me, got)
                :: else
                fi
        }
}

proctype thread(byte me)
{
        byte got;
#ifdef CLAIM_TOP_INDEX
        byte v;
#endif

start:
        {
                do
                :: if
                   :: true -> claim(me, 0)
                   :: true -> claim(me, 1)
                   fi;
                   if
                   :: got ->
                           /* written, and given back */
                           atomic {
                                   assert(holder[got - 1] == me);
                                   holder[got - 1] = GIVEN
                           };
                           store_release(me, FREED(me), got);
                           got = 0;
                           LOOK(me, FREED(me)) == 0
                   :: else
                   fi
                od
        } unless {
                kill[me]?_
        };
        d_step {
                got = 0;
#ifdef CLAIM_TOP_INDEX
                v = 0;
#endif
                if
                :: holder[0] == me -> holder[0] = GIVEN
                :: else
                fi;
                if
                :: holder[1] == me -> holder[1] = GIVEN
                :: else
                fi;
#if N_PAGES > 2
                if
                :: holder[2] == me -> holder[2] = GIVEN
                :: else
                fi;
#endif
                dead[me] = 1
        };
        !dead[me];
        goto start
}

inline set_free(p, expected)
{
        d_step {
                assert(holder[p - 1] == expected && !is_free[p - 1]);
                holder[p - 1] = NOBODY;
                is_free[p - 1] = 1
        }
}

/* A free page into a slot that is empty. */
inline refill(i)
{
#ifdef CLAIM_TOP_INDEX
        atomic {
                load(DAEMON, TOP, v);
                if
                :: v == i ->
                        if
                        :: is_free[0] -> page = 1
                        :: is_free[1] -> page = 2
#if N_PAGES > 2
                        :: is_free[2] -> page = 3
#endif
                        :: else
                        fi;
                        if
                        :: page -> is_free[page - 1] = 0
                        :: else
                        fi
                :: else
                fi
        };
        if
        :: page ->
                record[i] = page;
                store(DAEMON, SLOT(i), page);
                d_step {
                        sb[DAEMON].n == 0 ->
                        if
                        :: mem[TOP] == i -> mem[TOP] = i + 1
                        :: else
                        fi
                }
        :: else
        fi;
#else
        settle(i);
        if
#ifdef REFILL_NOT_EMPTY
        :: true ->
#else
        :: record[i] == 0 ->
#endif
                atomic {
                        if
                        :: is_free[0] -> page = 1
                        :: is_free[1] -> page = 2
#if N_PAGES > 2
                        :: is_free[2] -> page = 3
#endif
                        :: else -> goto idle
                        fi;
                        is_free[page - 1] = 0;
                        record[i] = page
                };
                store_release(DAEMON, SLOT(i), page)
        :: else
        fi;
#endif
        d_step { page = 0; v = 0 }
}

/* Was it claimed meanwhile? */
inline settle(i)
{
        if
        :: record[i] && LOOK(DAEMON, SLOT(i)) == 0 -> record[i] = 0
        :: else
        fi
}

/* What nobody claimed is free again. */
inline take_back(i)
{
        if
        :: record[i] ->
#ifdef TAKE_BACK_LOAD_STORE
                load(DAEMON, SLOT(i), v);
                store(DAEMON, SLOT(i), 0);
#else
                rmw(DAEMON, SLOT(i), 0, v);
#endif
#ifdef TAKE_BACK_TRUSTS_RECORD
                v = record[i];
#endif
                if
                :: v -> set_free(v, NOBODY)
                :: else
                fi;
                d_step { record[i] = 0; v = 0 }
        :: else
        fi
}

/* A page given back: it may still be on record as lying in the magazine. */
inline take_freed(t)
{
        if
        :: LOOK(DAEMON, FREED(t)) ->
                load(DAEMON, FREED(t), v);
#ifndef FREE_WITHOUT_SETTLING
                settle(0);
                settle(1);
#endif
#ifndef CLAIM_TOP_INDEX
                assert(record[0] != v && record[1] != v);
#endif
                set_free(v, GIVEN);
                store_release(DAEMON, FREED(t), 0);
                v = 0
        :: else
        fi
}

/* The process has exited: all that is on record as the client's is free. */
inline bury()
{
        atomic {
                dead[0] && dead[1] && sb[0].n == 0 && sb[1].n == 0 && sb[DAEMON].n == 0
        };
        take_freed(0);
        take_freed(1);
#ifndef DEATH_FORGETS_MAGAZINE
        take_back(0);
        take_back(1);
#endif
        fence(DAEMON);
        d_step {
                assert(mem[SLOT(0)] == 0 && mem[SLOT(1)] == 0);
                assert(record[0] == 0 && record[1] == 0);
                assert(is_free[0] || holder[0] == GIVEN);
                assert(is_free[1] || holder[1] == GIVEN);
#if N_PAGES > 2
                assert(is_free[2] || holder[2] == GIVEN);
                is_free[2] = 1;
                holder[2] = NOBODY;
#endif
                is_free[0] = 1;
                is_free[1] = 1;
                holder[0] = NOBODY;
                holder[1] = NOBODY;
                dead[0] = 0;
                dead[1] = 0
        }
}

#define LIES(page) (LOOK(DAEMON, SLOT(0)) == page || LOOK(DAEMON, SLOT(1)) == page)
#define NOT_LOST(page) (is_free[page - 1] || holder[page - 1] != NOBODY || LIES(page))

proctype daemon()
{
        byte v, page, record[N_SLOTS];

idle:
        do
        :: d_step {
                   v = 0;
                   page = 0;
#ifndef CLAIM_TOP_INDEX
                   assert(NOT_LOST(1) && NOT_LOST(2) && (N_PAGES == 2 || NOT_LOST(N_PAGES)))
#endif
           };
           if
           :: true -> refill(0)
           :: true -> refill(1)
#ifndef CLAIM_TOP_INDEX
           :: true -> take_back(0)
           :: true -> take_back(1)
#endif
           :: true -> take_freed(0)
           :: true -> take_freed(1)
           :: bury()
           fi
        od
}

/* Ends a thread at any moment. */
proctype fate()
{
end:
        do
#ifdef CLAIM_TOP_INDEX
        :: false
#else
        :: kill[0]!0
        :: kill[1]!0
#endif
        od
}

init
{
        atomic {
                run cpu_buffer(0);
                run cpu_buffer(1);
                run cpu_buffer(DAEMON);
                run thread(0);
                run thread(1);
                run daemon();
                run fate()
        }
}
