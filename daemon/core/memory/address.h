/*
 * Addresses for namespaces' arenas, equal in all clients (NsOpenReply.address). Each namespace of
 * the store gets an address range of its own for its life. The daemon itself maps nothing there. A
 * range is reused, as late as possible, after its namespace was freed, which requires that no
 * client has it open.
 */
#ifndef KVL_CORE_ADDRESS_H
#define KVL_CORE_ADDRESS_H

#include <stdint.h>

struct store;
struct ns;

/*
 * From 32 TiB to 80 TiB: free in a new process on x86-64 Linux. Programs that aren't
 * position-independent and their heap lie below 4 GiB. Other programs lie above two thirds of the
 * 128 TiB (0x555555554000), and mmap() allocates downwards from the stack at the top.
 * AddressSanitizer has its shadow below 16 TiB + 2 GiB and its heap from 0x600000000000 on.
 * ThreadSanitizer has its shadow here, so it allows no common addresses. Ranges of a CUDA driver
 * weren't checked on hardware. If a process uses the range otherwise, it finds out at NS_OPEN and
 * works without a common address.
 */
#define ADDRESS_FIRST UINT64_C(0x200000000000)
#define ADDRESS_END   UINT64_C(0x500000000000)
#define ADDRESS_STEP  (UINT64_C(1) << 30) /* ranges are multiples of it; not tuned */

/* Returns the bytes of the namespace's range, if it has one. */
uint64_t address_bytes(const struct ns *ns);

/* Finds a range for `ns` that overlaps no other namespace's. Returns 0 if none is left, or if the
 * device's extents have addresses of their own (cudaipc). O(namespaces). */
uint64_t address_take(struct store *s, const struct ns *ns);

/* Claims the range at `address` for `ns`, which had it before. Returns `address`; 0: not a valid
 * range, or another namespace overlaps it. */
uint64_t address_claim(struct store *s, const struct ns *ns, uint64_t address);

#endif
