/*
 * The daemon is killed between any two stores, any number of times, also while it recovers; a client
 * publishes through its ring and a reader looks pages up all the while: daemon/core/recovery/recover.h,
 * daemon/server/wire/ring.c, docs/develop/ARCHITECTURE.md ("Restart"). Everything goes on for ever.
 *
 *   -DN_PAGES=2    instead of one page
 *   -DNO_READER    nobody reads
 *
 * The client takes a page out of its magazine, publishes it and waits for the completion. The
 * daemon fills the magazine, executes and evicts. What only daemons look at (the pages' records,
 * the ring's cursor) are plain variables, one store a step: who comes after a process that was
 * killed sees all its stores, in order, so no store buffer is in the way there. What clients see
 * lies in the memory of memory.pml. Keys and bytes are pin-retire.pml's.
 *
 * Checked: whenever the daemon is at rest, a page that was acknowledged and not evicted since is
 * there, and index and lines say of each page what its record says; a page is the client's alone
 * from the magazine to its publish; no page is freed that is read or in use; each submission is
 * completed once, with its own result, and none that was executed stays without.
 */
#ifndef N_PAGES
#define N_PAGES 1
#endif
#define N_CPUS 3
#define CLIENT 0
#define READER 1
#define DAEMON 2

#define ENTRY        0 /* the submission: page + 1 */
#define SUB_TAIL     1 /* submissions, modulo 4 */
#define COMP         2 /* the completion: RESULT() */
#define COMP_TAIL    3
#define MAGAZINE     4 /* page + 1; 0: empty */
#define LINE(p)      (5 + (p))
#define SLOT(p)      (5 + N_PAGES + (p))
#define PIN(cpu, p)  (5 + (2 + (cpu)) * N_PAGES + (p))
#define N_CELLS      (5 + 4 * N_PAGES)
#include "memory.pml"

#define FREE     0
#define GRANTED  1
#define SEALED   2
#define RETIRING 3

#define NEXT(n)           (((n) + 1) % 4)
#define RESULT(page, n)   ((page) + 1 + 4 * ((n) % 2)) /* of the n-th */
#define FAILED            15

/* The daemon's own, which outlives it. */
byte record[N_PAGES];
byte head[2], comp[2]; /* the cursor, twice */
bit selector;

/* What the checks know. */
bit owned[N_PAGES];   /* by the client: out of the magazine, not published */
bit acked[N_PAGES];   /* the client was told, and it wasn't evicted since */
bit in_use[N_PAGES];  /* by the client, which published it */
bit reading[N_PAGES]; /* by the reader */
bit online;           /* the client has found the daemon again */

chan kill = [0] of { bit };

/* ---- client ---------------------------------------------------------------------------------- */

inline drop_pin(cpu, page)
{
        atomic {
                rmw(cpu, PIN(cpu, page), old - 1, v);
                assert(v > 0);
                v = 0
        }
}

proctype client()
{
        byte v, page, n;

        do
        :: atomic {
                   LOOK(CLIENT, MAGAZINE) && sb[CLIENT].n == 0 ->
                   assert(LOOK(CLIENT, COMP_TAIL) == n);
                   rmw(CLIENT, MAGAZINE, 0, v);
                   if
                   :: v ->
                           page = v - 1;
                           v = 0;
                           assert(!owned[page] && !in_use[page] && !reading[page]);
                           owned[page] = 1
                   :: else -> goto again
                   fi
           };
           atomic {
                   rmw(CLIENT, PIN(CLIENT, page), old + 1, v);
                   v = 0
           };
           store(CLIENT, ENTRY, page + 1);
           store_release(CLIENT, SUB_TAIL, NEXT(n));
           atomic {
                   LOOK(CLIENT, COMP_TAIL) != n ->
                   assert(LOOK(CLIENT, COMP_TAIL) == NEXT(n));
                   assert(LOOK(CLIENT, COMP) == RESULT(page, n));
                   n = NEXT(n);
                   owned[page] = 0;
                   acked[page] = 1;
                   in_use[page] = 1
           };
           in_use[page] = 0;
           drop_pin(CLIENT, page);
           page = 0;
again:     skip
        od
}

/* ---- reader ---------------------------------------------------------------------------------- */

#ifndef NO_READER
proctype reader()
{
        byte v, page;

        do
        :: atomic {
                   if
                   :: LOOK(READER, SLOT(0)) -> page = 0
#if N_PAGES > 1
                   :: LOOK(READER, SLOT(1)) -> page = 1
#endif
                   fi
           };
           atomic {
                   rmw(READER, PIN(READER, page), old + 1, v);
                   v = 0
           };
           fence(READER);
           d_step {
                   reading[page] = LOOK(READER, LINE(page)) == SEALED;
                   assert(!reading[page] || !owned[page] || record[page] == SEALED)
           };
           reading[page] = 0;
           drop_pin(READER, page);
           page = 0
        od
}

#endif

/* ---- daemon ---------------------------------------------------------------------------------- */

inline grant(p)
{
#ifdef MAGAZINE_BEFORE_RECORD
        store_release(DAEMON, MAGAZINE, p + 1);
        record[p] = GRANTED;
        store(DAEMON, LINE(p), GRANTED)
#else
        record[p] = GRANTED;
        store(DAEMON, LINE(p), GRANTED);
        store_release(DAEMON, MAGAZINE, p + 1)
#endif
}

inline set_free(p)
{
        d_step {
                assert(!reading[p] && !in_use[p] && !owned[p]);
                record[p] = FREE;
                acked[p] = 0
        }
}

inline sum_pins(p)
{
        load(DAEMON, PIN(CLIENT, p), v);
        if
        :: v == 0 -> load(DAEMON, PIN(READER, p), v)
        :: else
        fi
}

inline evict(p)
{
        store(DAEMON, LINE(p), RETIRING);
        fence(DAEMON);
#ifdef FREE_BEFORE_SUM
        set_free(p);
#endif
        sum_pins(p);
        if
        :: v == 0 ->
                set_free(p); /* or last: recovery would show it again */
                store(DAEMON, SLOT(p), 0);
                store(DAEMON, LINE(p), FREE)
        :: else ->
                v = 0;
                store_release(DAEMON, LINE(p), SEALED)
        fi
}

/* The cursor: the copy that doesn't count, then which one does. */
inline move_cursor()
{
#ifdef NO_TWIN
        head[0] = NEXT(n);
        comp[0] = NEXT(n)
#else
        d_step {
                head[1 - selector] = NEXT(n);
                comp[1 - selector] = NEXT(n)
        };
        selector = 1 - selector
#endif
}

inline show_sealed(p)
{
        store_release(DAEMON, LINE(p), SEALED);
        store_release(DAEMON, SLOT(p), 1)
}

inline execute()
{
        n = head[selector];
        page = LOOK(DAEMON, ENTRY) - 1;
        result = RESULT(page, n);
#ifndef REPLAY_FAILS
        assert(record[page] == GRANTED || record[page] == SEALED);
#endif
        if
        :: record[page] == GRANTED ->
#ifdef RECORD_LAST
                show_sealed(page)
#else
                record[page] = SEALED;
                show_sealed(page)
#endif
#ifdef REPLAY_FAILS
        :: else -> result = FAILED
#else
        :: else /* it was executed before */
#endif
        fi;
#ifdef CURSOR_BEFORE_ENTRY
        move_cursor();
        store(DAEMON, COMP, result);
        store_release(DAEMON, COMP_TAIL, comp[selector])
#else
        store(DAEMON, COMP, result);
#ifdef TAIL_BEFORE_CURSOR
        store_release(DAEMON, COMP_TAIL, NEXT(n));
        move_cursor()
#else
        move_cursor();
        store_release(DAEMON, COMP_TAIL, comp[selector])
#endif
#endif
#ifdef RECORD_LAST
        ;
        record[page] = SEALED
#endif
        ;
        d_step {
                n = 0;
                page = 0;
                result = 0
        }
}

inline recover_page(p)
{
        if
#ifdef TRUSTS_LINE
        :: record[p] == SEALED && LOOK(DAEMON, LINE(p)) != SEALED ->
                set_free(p);
                store(DAEMON, SLOT(p), 0);
                store(DAEMON, LINE(p), FREE)
        :: record[p] == SEALED && LOOK(DAEMON, LINE(p)) == SEALED -> show_sealed(p)
#else
#ifdef FREES_RETIRING
        :: record[p] == SEALED && LOOK(DAEMON, LINE(p)) == RETIRING ->
                set_free(p);
                store(DAEMON, SLOT(p), 0);
                store(DAEMON, LINE(p), FREE)
        :: record[p] == SEALED && LOOK(DAEMON, LINE(p)) != RETIRING -> show_sealed(p)
#else
        :: record[p] == SEALED ->
#ifdef LEAVES_RETIRING
                store_release(DAEMON, SLOT(p), 1)
#else
#ifdef CLEARS_SLOT
                store_release(DAEMON, LINE(p), SEALED);
                store(DAEMON, SLOT(p), 0)
#else
                show_sealed(p)
#endif
#endif
#endif
#endif
        :: record[p] == GRANTED ->
#ifdef FREES_GRANTED
                record[p] = FREE;
#endif
                store(DAEMON, SLOT(p), 0);
                store(DAEMON, LINE(p), record[p])
        :: record[p] == FREE ->
                store(DAEMON, SLOT(p), 0);
#ifndef LEAVES_LINE
                store(DAEMON, LINE(p), FREE)
#endif
        fi
}

inline recover()
{
        sb[DAEMON].n == 0; /* the one before it is gone */
#ifdef ZEROES_PINS
        d_step {
                mem[PIN(CLIENT, 0)] = 0;
                mem[PIN(READER, 0)] = 0
        };
#endif
        recover_page(0);
#if N_PAGES > 1
        recover_page(1);
#endif
#ifdef NO_COMP_TAIL
        skip
#else
        store_release(DAEMON, COMP_TAIL, comp[selector])
#endif
}

#define HOLDS(p)                                                                       \
        ((!acked[p] || record[p] == SEALED) && LOOK(DAEMON, LINE(p)) == record[p] &&   \
                LOOK(DAEMON, SLOT(p)) == (record[p] == SEALED))

proctype daemon()
{
        byte v, n, page, result;

start:
        {
                recover();
                do
                :: d_step {
                           v = 0;
                           assert(HOLDS(0));
                           assert(HOLDS(N_PAGES - 1));
                           assert(LOOK(DAEMON, COMP_TAIL) == comp[selector]);
                           assert(head[selector] == comp[selector])
                   };
                   if
                   :: online && head[selector] != LOOK(DAEMON, SUB_TAIL) -> execute()
                   :: record[0] == SEALED -> evict(0)
                   :: record[0] == FREE && !LOOK(DAEMON, MAGAZINE) -> grant(0)
#if N_PAGES > 1
                   :: record[1] == SEALED -> evict(1)
                   :: record[1] == FREE && !LOOK(DAEMON, MAGAZINE) -> grant(1)
#endif
                   :: !online -> online = 1 /* the client has come back */
                   fi
                od
        } unless {
                kill?_
        };
        d_step {
                v = 0;
                n = 0;
                page = 0;
                result = 0;
                online = 0
        };
        goto start
}

proctype fate()
{
end:
        do
        :: kill!0
        od
}

init
{
        atomic {
                run cpu_buffer(CLIENT);
                run cpu_buffer(READER);
                run cpu_buffer(DAEMON);
                run client();
#ifndef NO_READER
                run reader();
#endif
                run daemon();
                run fate()
        }
}
