/*
 * Pages that go back to the daemon: what a call got and its caller never learns of or can't use,
 * and what callers let go over the socket.
 */
#ifndef KVL_LIB_GIVE_BACK_H
#define KVL_LIB_GIVE_BACK_H

#include <stdint.h>

struct conn_call;
struct kvl_ns;

/* [L] Lets pins go: of pages that were found or published. */
void give_back_pins(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/* [L] Frees pages that were leased. */
void give_back_leased(struct kvl_ns *ns, const uint32_t *pages, uint32_t n_pages);

/* [L] Sends a RELEASE or FREE over the socket; call NULL: nobody waits for the answer. As
 * conn_start(). */
int send_release(
        struct kvl_ns *ns, struct conn_call *call, const uint32_t *pages, uint32_t n_pages);
int send_free(struct kvl_ns *ns, struct conn_call *call, const uint32_t *pages, uint32_t n_pages);

#endif
