/*
 * Where clients may put a namespace's arena to have it at the same place in all of them
 * (NsOpenReply.address): each namespace of the store gets a range of its own, for as long as it
 * lives. The daemon itself maps nothing there. A range is handed out again, as late as possible,
 * once its namespace is gone, which it is only when no client has it open.
 */
#ifndef KVL_CORE_ADDRESS_H
#define KVL_CORE_ADDRESS_H

#include <stdint.h>

struct store;
struct ns;

/*
 * From 32 TiB to 80 TiB: free in a process on x86-64 Linux as it starts. Programs that aren't
 * position-independent and their heap lie below 4 GiB, others and theirs above two thirds of the
 * 128 TiB (0x555555554000), mmap() goes down from the stack at the top. AddressSanitizer has its
 * shadow below 16 TiB + 2 GiB and its heap from 0x600000000000 on. ThreadSanitizer has its shadow
 * here: no common addresses with it. Where a CUDA driver puts its own ranges wasn't looked at on
 * hardware. Whatever else a process put there, it finds out at NS_OPEN, and can do without.
 */
#define ADDRESS_FIRST UINT64_C(0x200000000000)
#define ADDRESS_END   UINT64_C(0x500000000000)
#define ADDRESS_STEP  (UINT64_C(1) << 30) /* ranges are multiples of it; not tuned */

/* Bytes of the range that a namespace has, where it has one. */
uint64_t address_bytes(const struct ns *ns);

/* A range for `ns` that overlaps no other namespace's. 0: none is left, or its device's extents
 * have addresses of their own (cudaipc). Costs a look at each namespace. */
uint64_t address_take(struct store *s, const struct ns *ns);

/* The range that starts at `address` for `ns`, which had it: `address`; 0 where that is no range,
 * or another namespace has some of it. */
uint64_t address_claim(struct store *s, const struct ns *ns, uint64_t address);

#endif
