/*
 * Where tracers look in: PROBE(provider, name, argument...) is a static probe (USDT), for bpftrace,
 * perf and gdb. docs/PROBES.md has the table of all of them and of their arguments; the test
 * `probes` compares it with the programs.
 *
 * A probe is one nop and a note in the file; a tracer puts a breakpoint there while it looks. Its 1
 * to 6 arguments (bpftrace reads no more) are described, not copied: the note names the register,
 * or the place in memory, where the compiler has them anyway. So only what is at hand is an
 * argument (a variable, a field, a constant): nothing that would have to be computed or called for,
 * or that costs a branch. That is why structs with a name begin with it: its address is the
 * struct's.
 *
 * Integers (no bit-fields) and pointers. Nobody changes anything at a probe: it must not be missed
 * where the build has none (option `probes`: <sys/sdt.h> isn't there, or isn't wanted), and nothing
 * of it is evaluated then.
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
