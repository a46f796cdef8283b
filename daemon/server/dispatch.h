/*
 * From a frame to the handler of its type and back to a reply. Every request ends in exactly one
 * reply, or none where the frame said so and may. Nothing is allocated from the heap here.
 */
#ifndef KVL_SERVER_DISPATCH_H
#define KVL_SERVER_DISPATCH_H

#include <stdbool.h>

struct frame;
struct peer;

/* Checks, unpacks, handles, answers. The peer isn't freed: its flags say what is to be done. */
void dispatch_frame(struct peer *p, const struct frame *f);

#endif
