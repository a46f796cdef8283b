/*
 * Static probes (USDT) for bpftrace, perf and gdb: PROBE(provider, name, argument...).
 * docs/reference/PROBES.md has the table of all probes and their arguments; the test `probes`
 * compares it with the programs.
 *
 * A probe is one nop and a note in the file; a tracer puts a breakpoint there. Its 1 to 6 arguments
 * (bpftrace's limit) are described, not copied: the note names the register or memory where the
 * compiler has them anyway. So an argument must be at hand (a variable, a field, a constant):
 * nothing computed or called for, and no branch. For that reason structs with a name begin with it:
 * its address is the struct's.
 *
 * Arguments are integers (no bit-fields) and pointers. A probe must have no side effects: builds
 * without probes (option `probes`: without <sys/sdt.h>, or not wanted) don't evaluate it.
 */
#ifndef KVL_BASE_PROBE_H
#define KVL_BASE_PROBE_H

#ifdef KVL_PROBES

#define SDT_USE_VARIADIC
#include <sys/sdt.h>

#define PROBE(provider, name, ...) STAP_PROBEV(provider, name, __VA_ARGS__)

#else
#define PROBE(provider, name, ...) ((void)0)
#endif

#endif
