/*
 * The memory that the models run on: cells of a byte each, and a store buffer in front of each CPU.
 * A store goes into the buffer and reaches memory at any later moment; a load sees the newest store
 * of its own buffer, else memory. So a load can overtake the stores before it, which is what the
 * fences of the protocols are there to prevent.
 *
 *   TSO (x86)   stores drain in order; a read-modify-write empties the buffer and acts at once
 *   -DWEAK      stores to different cells drain in any order, but a release store after all before
 *               it; the store of a read-modify-write stays in the buffer like any other, with the
 *               cell locked for all others (load-exclusive, store-exclusive)
 *
 * Loads are done in program order: a protocol has to load with acquire where that matters. What
 * breaks where it doesn't is modelled by swapping the loads.
 *
 * Before including it: N_CPUS, N_CELLS. init must `run cpu_buffer(c)` for each CPU.
 */
#define DEPTH 4 /* stores in a buffer; one more waits. Up to 4 */

typedef buffer {
        byte n;
        byte cell[DEPTH];
        byte value[DEPTH];
        bit release[DEPTH];
};

byte mem[N_CELLS];
buffer sb[N_CPUS];
#ifdef WEAK
byte locked[N_CELLS]; /* CPU + 1 whose read-modify-write is in its buffer */
#endif
hidden byte at, old; /* only inside a d_step */

/* What the CPU sees in a cell, as an expression. */
#define OWN(cpu, i, where) (sb[cpu].n > i && sb[cpu].cell[i] == where)
#define LOOK(cpu, where)                                    \
        (OWN(cpu, 3, where) -> sb[cpu].value[3]             \
                : (OWN(cpu, 2, where) -> sb[cpu].value[2]   \
                : (OWN(cpu, 1, where) -> sb[cpu].value[1]   \
                : (OWN(cpu, 0, where) -> sb[cpu].value[0] : mem[where]))))

inline append(cpu, where, what, is_release)
{
        sb[cpu].cell[sb[cpu].n] = where;
        sb[cpu].value[sb[cpu].n] = what;
        sb[cpu].release[sb[cpu].n] = is_release;
        sb[cpu].n++
}

inline load(cpu, where, ret)
{
        ret = LOOK(cpu, where)
}

inline store(cpu, where, what)
{
        d_step { sb[cpu].n < DEPTH -> append(cpu, where, what, 0) }
}

inline store_release(cpu, where, what)
{
        d_step { sb[cpu].n < DEPTH -> append(cpu, where, what, 1) }
}

inline fence(cpu)
{
        sb[cpu].n == 0
}

/* ret gets the old value; `what` is the new one and may use `old`. Release and acquire. */
#ifdef WEAK
inline rmw(cpu, where, what, ret)
{
        d_step {
                sb[cpu].n == 0 && locked[where] == 0 ->
                old = mem[where];
                append(cpu, where, what, 1);
                locked[where] = cpu + 1;
                ret = old
        }
}
#else
inline rmw(cpu, where, what, ret)
{
        d_step {
                sb[cpu].n == 0 ->
                old = mem[where];
                mem[where] = what;
                ret = old
        }
}
#endif

/* The i-th store of the buffer reaches memory. */
inline drain(cpu, i)
{
        mem[sb[cpu].cell[i]] = sb[cpu].value[i];
#ifdef WEAK
        locked[sb[cpu].cell[i]] = 0;
#endif
        at = i;
        do
        :: at + 1 < sb[cpu].n ->
                sb[cpu].cell[at] = sb[cpu].cell[at + 1];
                sb[cpu].value[at] = sb[cpu].value[at + 1];
                sb[cpu].release[at] = sb[cpu].release[at + 1];
                at++
        :: else -> break
        od;
        sb[cpu].cell[at] = 0;
        sb[cpu].value[at] = 0;
        sb[cpu].release[at] = 0;
        sb[cpu].n--
}

#ifdef WEAK
#define MAY_DRAIN(cpu, i)                                                            \
        (i < sb[cpu].n && !sb[cpu].release[i] &&                                     \
                (locked[sb[cpu].cell[i]] == 0) &&                                    \
                sb[cpu].cell[0] != sb[cpu].cell[i] &&                                \
                (i < 2 || sb[cpu].cell[1] != sb[cpu].cell[i]) &&                     \
                (i < 3 || sb[cpu].cell[2] != sb[cpu].cell[i]))
#endif

proctype cpu_buffer(byte cpu)
{
end:
        do
#ifdef WEAK
        :: d_step {
                sb[cpu].n > 0 && (locked[sb[cpu].cell[0]] == 0 ||
                        locked[sb[cpu].cell[0]] == cpu + 1) -> drain(cpu, 0)
        }
        :: d_step { MAY_DRAIN(cpu, 1) -> drain(cpu, 1) }
        :: d_step { MAY_DRAIN(cpu, 2) -> drain(cpu, 2) }
        :: d_step { MAY_DRAIN(cpu, 3) -> drain(cpu, 3) }
#else
        :: d_step { sb[cpu].n > 0 -> drain(cpu, 0) }
#endif
        od
}
