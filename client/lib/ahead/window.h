/* Windows (<kvlease.h>), for those who close namespaces. */
#ifndef KVL_LIB_WINDOW_H
#define KVL_LIB_WINDOW_H

struct kvl_ns;

/* [L] The namespace goes away: what its windows began is dropped, */
void windows_cancel(struct kvl_ns *ns);

/* [L] and then they are freed. */
void windows_free(struct kvl_ns *ns);

#endif
