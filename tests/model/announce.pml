/*
 * Two clients wait for a key that a third announced, asleep on the state word of its page's line.
 * It publishes the page, or dies before; and a fourth may publish another page under the key, after
 * which the announced page may be announced for another key. All that is written here is the
 * daemon's; how submissions reach it, and how pages are read, is in other models.
 *
 * The kernel's part: FUTEX_WAIT compares and goes to sleep in one step, FUTEX_WAKE is a full fence
 * and wakes who sleeps then.
 *
 * Checked: nobody sleeps once the announcement has ended, whatever the page is used for after; who
 * was told of the end finds what was published.
 */
#define N_CPUS 3 /* the waiters are 1 and 2, and write nothing */
#define DAEMON 0

#define WORD    0 /* the announced page's state and generation */
#define KEY     1 /* in its line */
#define SLOT    2 /* of the key */
#define WORD_B  3 /* state of the other page */
#define N_CELLS 4
#include "memory.pml"

/* In WORD. AGAIN: of the next generation. */
#define PENDING    1
#define SEALED     2
#define FREE_AGAIN 3
#ifdef SAME_GENERATION
#define PENDING_AGAIN PENDING
#else
#define PENDING_AGAIN 4
#endif

/* In SLOT. */
#define NONE 0
#define A    1
#define B    2

#define MINE   1 /* the key that is waited for */
#define OTHERS 2

bit asleep[N_CPUS];
bit submitted, dead;      /* by the announcer */
bit submitted_b;          /* by the other publisher */
byte state = PENDING;     /* the daemon's record of A */
bit is_published;         /* it ended with a page under the key */

proctype waiter(byte me)
{
        byte slot, word;
        bit was_told;

again:
        load(me, SLOT, slot);
        if
        :: slot == NONE -> goto miss
        :: slot == B ->
                load(me, WORD_B, word);
                assert(word == SEALED);
                goto found
        :: slot == A
        fi;
        load(me, WORD, word);
        if
        :: word == SEALED -> goto found
        :: word == FREE_AGAIN -> goto miss
        :: word == PENDING || word == PENDING_AGAIN
        fi;
        if
        :: LOOK(me, KEY) != MINE -> goto miss
        :: LOOK(me, KEY) == MINE
        fi;
#ifdef NO_COMPARE
        asleep[me] = 1;
#else
        atomic {
                if
                :: mem[WORD] == word -> asleep[me] = 1
                :: mem[WORD] != word
                fi
        };
#endif
        !asleep[me];
        was_told = 1;
        goto again;
miss:
        /* It computes the text itself; without having been told it may be too early for that. */
        assert(!was_told || !is_published);
found:
        skip
}

inline wake()
{
#ifdef NO_WAKE
        skip
#else
        fence(DAEMON);
        d_step {
                asleep[1] = 0;
#ifndef WAKE_ONE
                asleep[2] = 0
#endif
        }
#endif
}

/* The announcement ends. */
inline end_it(what)
{
#ifdef WAKE_BEFORE_CHANGE
        wake();
#endif
#ifdef WORD_NO_RELEASE
        store(DAEMON, WORD, what);
#else
        store_release(DAEMON, WORD, what);
#endif
#ifndef WAKE_BEFORE_CHANGE
        wake()
#endif
}

inline publish_a()
{
        state = SEALED;
        is_published = 1;
        end_it(SEALED)
}

inline withdraw()
{
        state = FREE_AGAIN;
        store_release(DAEMON, SLOT, NONE);
        end_it(FREE_AGAIN)
}

inline seal_b()
{
        store_release(DAEMON, WORD_B, SEALED)
}

inline slot_for_b()
{
#ifdef SLOT_NO_RELEASE
        store(DAEMON, SLOT, B)
#else
        store_release(DAEMON, SLOT, B)
#endif
}

/* B takes the slot. */
inline publish_b()
{
        state = FREE_AGAIN;
        is_published = 1;
        seal_b();
#ifdef SLOT_AFTER_WORD
        end_it(FREE_AGAIN);
        slot_for_b()
#else
        slot_for_b();
        end_it(FREE_AGAIN)
#endif
}

inline announce_again()
{
        state = PENDING_AGAIN;
        store(DAEMON, KEY, OTHERS);
        store_release(DAEMON, WORD, PENDING_AGAIN)
}

proctype daemon()
{
        do
        :: submitted && state == PENDING -> publish_a(); break
#ifndef NOT_WITHDRAWN_AT_DEATH
        :: dead && !submitted && state == PENDING -> withdraw(); break
#endif
        :: submitted_b && state == PENDING ->
                publish_b();
                if
                :: announce_again()
                :: skip
                fi;
                break
        od
}

proctype announcer()
{
        if
        :: submitted = 1
        :: skip
        fi;
        dead = 1
}

proctype publisher()
{
        submitted_b = 1
}

init
{
        atomic {
                mem[WORD] = PENDING;
                mem[KEY] = MINE;
                mem[SLOT] = A;
                run cpu_buffer(DAEMON);
                run waiter(1);
                run waiter(2);
                run daemon();
                run announcer();
                if
                :: run publisher()
                :: skip
                fi
        }
}
