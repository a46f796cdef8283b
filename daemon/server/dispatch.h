/*
 * Dispatches a frame to the handler of its type, and sends the reply. Every request gets exactly
 * one reply; or none, if the frame asks for none and may. Nothing is allocated from the heap here.
 */
#ifndef KVL_SERVER_DISPATCH_H
#define KVL_SERVER_DISPATCH_H

#include <stdbool.h>

struct frame;
struct peer;

/* Checks, unpacks, handles and answers a frame. Sets flags of the peer instead of freeing it. */
void dispatch_frame(struct peer *p, const struct frame *f);

#endif
