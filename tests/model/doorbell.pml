/*
 * Sleeping and ringing between a client and the daemon: the rings of proto/shm.h, small enough to be
 * full all the time. The client submits N_OPS entries, each of which completes or not (TOUCH), and
 * sleeps where the submission ring is full or completions are missing; the daemon sleeps where
 * there is nothing to do, or no room for the completion. A ring is a message that can't be lost.
 * Each side may also be woken once by something else.
 *
 * Checked: nobody sleeps for ever (no invalid end state: both end when all is done); entries arrive
 * whole and in order; who sees a completion has room for another submission.
 */
#define N_CPUS 2
#define CLIENT 0
#define DAEMON 1

#ifndef N_OPS
#define N_OPS 4
#endif
#define N_SUB  3 /* entries of a ring */
#define N_COMP 2

#define SUB_TAIL      0
#define SUB_HEAD      1
#define COMP_TAIL     2
#define COMP_HEAD     3
#define DAEMON_SLEEPS 4
#define CLIENT_SLEEPS 5
#define SUB(p)        (6 + (p) % N_SUB)
#define COMP(p)       (9 + (p) % N_COMP)
#define N_CELLS       11
#include "memory.pml"

chan to_daemon = [N_OPS * 2 + 2] of { bit };
chan to_client = [N_OPS * 2 + 2] of { bit };
byte n_completing; /* of the entries submitted */

/* A system call: what was stored before is in memory when the message arrives. */
inline send(me, socket)
{
        atomic { sb[me].n == 0 -> socket!1 }
}

/* Wakes the other where it sleeps. */
inline ring(me, sleeps, socket)
{
        if
        :: LOOK(me, sleeps) == 1 ->
                rmw(me, sleeps, 0, v);
                if
                :: v == 1 -> send(me, socket)
                :: else
                fi;
                v = 0
        :: else
        fi
}

/* Until there is a ring, or something else happens. */
inline wait(socket, woken)
{
        if
        :: socket?_
        :: !woken -> woken = 1
        fi
}

#define ROOM_TO_SUBMIT      (n_submitted - LOOK(CLIENT, SUB_HEAD) < N_SUB)
#define COMPLETION_IS_THERE (LOOK(CLIENT, COMP_TAIL) > n_seen)

inline submit(completes)
{
        atomic {
                store(CLIENT, SUB(n_submitted), 2 * n_submitted + completes);
                n_completing = n_completing + completes;
                n_submitted++
        };
#ifdef RING_BEFORE_TAIL
        fence(CLIENT);
        ring(CLIENT, DAEMON_SLEEPS, to_daemon);
        store_release(CLIENT, SUB_TAIL, n_submitted)
#else
#ifdef SUB_TAIL_NO_RELEASE
        store(CLIENT, SUB_TAIL, n_submitted);
#else
        store_release(CLIENT, SUB_TAIL, n_submitted);
#endif
#ifndef NO_FENCE_SUBMIT
        fence(CLIENT);
#endif
        ring(CLIENT, DAEMON_SLEEPS, to_daemon)
#endif
}

inline take_completion()
{
        atomic {
                assert(LOOK(CLIENT, COMP(n_seen)) == n_seen + 1);
                assert(LOOK(CLIENT, SUB_HEAD) > n_seen);
                n_seen++
        };
        store_release(CLIENT, COMP_HEAD, n_seen);
#ifndef NO_FENCE_ROOM
        fence(CLIENT);
#endif
#ifndef NO_RING_FOR_ROOM
        ring(CLIENT, DAEMON_SLEEPS, to_daemon)
#endif
}

#define CLIENT_HAS_WORK \
        ((n_submitted < N_OPS && ROOM_TO_SUBMIT) || COMPLETION_IS_THERE)

/* client_sleeps stays 1 until the daemon rings, also while the client is awake. */
inline client_sleep()
{
#ifdef CLIENT_LOOKS_FIRST
        if
        :: CLIENT_HAS_WORK
        :: else ->
                store(CLIENT, CLIENT_SLEEPS, 1);
                fence(CLIENT);
                wait(to_client, woken)
        fi
#else
        if
        :: LOOK(CLIENT, CLIENT_SLEEPS) == 1 -> wait(to_client, woken)
        :: else ->
                store(CLIENT, CLIENT_SLEEPS, 1);
#ifndef NO_FENCE_CLIENT_SLEEP
                fence(CLIENT);
#endif
#ifdef NO_RECHECK_CLIENT
                wait(to_client, woken)
#else
                if
                :: CLIENT_HAS_WORK
                :: else -> wait(to_client, woken)
                fi
#endif
        fi
#endif
}

proctype client()
{
        byte n_submitted, n_seen, v;
        bit woken;

        do
        :: n_submitted < N_OPS && ROOM_TO_SUBMIT ->
                if
                :: submit(0)
                :: submit(1)
                fi
        :: COMPLETION_IS_THERE -> take_completion()
        :: n_submitted == N_OPS && n_seen == n_completing -> break
        :: else -> client_sleep()
        od
}

#define ENTRY_IS_THERE   (LOOK(DAEMON, SUB_TAIL) > n_done)
#define ROOM_TO_COMPLETE (n_completed - LOOK(DAEMON, COMP_HEAD) < N_COMP)

/* In so much of the ring an entry without completion, and that room, is news: nobody waits for room
 * while less of it was in use when the daemon looked, as its last head was seen before. */
#ifdef NEWS_ONLY_WHERE_FULL
#define ROOM_IS_NEWS (LOOK(DAEMON, SUB_TAIL) - n_done == N_SUB)
#else
#define ROOM_IS_NEWS (LOOK(DAEMON, SUB_TAIL) - n_done >= N_SUB - 1)
#endif

inline wake_client()
{
#ifndef NO_FENCE_COMPLETE
        fence(DAEMON);
#endif
#ifdef RING_ONLY_FOR_COMPLETIONS
        if
        :: completes -> ring(DAEMON, CLIENT_SLEEPS, to_client)
        :: else
        fi
#else
        if
        :: completes || news -> ring(DAEMON, CLIENT_SLEEPS, to_client)
        :: else
        fi
#endif
}

/* One entry. The socket keeps what is rung, so a batch is no different. */
inline consume()
{
        news = ROOM_IS_NEWS;
#ifdef HEAD_BEFORE_COPY
        store_release(DAEMON, SUB_HEAD, n_done + 1);
#endif
        atomic {
                v = LOOK(DAEMON, SUB(n_done));
                assert(v / 2 == n_done);
                completes = v % 2;
                v = 0;
                n_done++
        };
#if !defined(HEAD_BEFORE_COPY) && !defined(COMPLETION_BEFORE_HEAD)
        store_release(DAEMON, SUB_HEAD, n_done);
#endif
        if
        :: completes ->
                atomic {
                        store(DAEMON, COMP(n_completed), n_completed + 1);
                        n_completed++
                };
#ifdef COMP_TAIL_NO_RELEASE
                store(DAEMON, COMP_TAIL, n_completed)
#else
                store_release(DAEMON, COMP_TAIL, n_completed)
#endif
        :: else
        fi;
#ifdef COMPLETION_BEFORE_HEAD
        store_release(DAEMON, SUB_HEAD, n_done);
#endif
        wake_client()
}

#ifdef SLEEP_IGNORES_ROOM
#define DAEMON_HAS_WORK (ENTRY_IS_THERE && room)
#else
#define DAEMON_HAS_WORK (ENTRY_IS_THERE && ROOM_TO_COMPLETE)
#endif

inline daemon_sleep()
{
#ifdef SLEEP_IGNORES_ROOM
        room = ROOM_TO_COMPLETE;
#endif
#ifdef DAEMON_LOOKS_FIRST
        if
        :: DAEMON_HAS_WORK
        :: else ->
                rmw(DAEMON, DAEMON_SLEEPS, 1, v);
                fence(DAEMON);
                v = 0;
                wait(to_daemon, woken)
        fi
#else
#ifdef SLEEPS_BY_STORE
        store(DAEMON, DAEMON_SLEEPS, 1);
#else
        rmw(DAEMON, DAEMON_SLEEPS, 1, v);
        v = 0;
#endif
#if !defined(NO_FENCE_DAEMON_SLEEP) && !defined(SLEEPS_BY_STORE)
        fence(DAEMON);
#endif
#ifdef NO_RECHECK_DAEMON
        wait(to_daemon, woken)
#else
        if
        :: DAEMON_HAS_WORK -> store(DAEMON, DAEMON_SLEEPS, 0)
        :: else -> wait(to_daemon, woken)
        fi
#endif
#endif
}

proctype daemon()
{
        byte n_done, n_completed, v;
        bit woken, completes, news;
#ifdef SLEEP_IGNORES_ROOM
        bit room;
#endif

        do
        :: n_done == N_OPS -> break
        :: n_done < N_OPS && ENTRY_IS_THERE && ROOM_TO_COMPLETE -> consume()
        :: else -> daemon_sleep()
        od
}

init
{
        atomic {
                mem[CLIENT_SLEEPS] = 1;
                mem[DAEMON_SLEEPS] = 1;
                run cpu_buffer(CLIENT);
                run cpu_buffer(DAEMON);
                run client();
                run daemon()
        }
}
