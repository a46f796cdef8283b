/* Gives pages back to the daemon: pages of a call whose caller never learns of them or can't use
 * them, and pages that callers release over the socket. */
#ifndef KVL_LIB_GIVE_BACK_H
#define KVL_LIB_GIVE_BACK_H

#include <stdint.h>

struct conn_call;
struct kvl_ns;

/* [L] Releases pins of pages that were found or published. */
void give_back_pins(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/* [L] Frees leased pages. */
void give_back_leased(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/* [L] Sends a RELEASE or FREE over the socket. call NULL: no caller waits for the answer. Returns
 * as conn_start(). */
int send_release(
        struct kvl_ns *ns, struct conn_call *call, const uint32_t *pages, uint32_t n_pages);
int send_free(struct kvl_ns *ns, struct conn_call *call, const uint32_t *pages, uint32_t n_pages);

#endif
