/* What becomes of a namespace's windows (kvl_window_open(), <kvlease.h>) when it is closed. */
#ifndef KVL_LIB_WINDOW_H
#define KVL_LIB_WINDOW_H

struct kvl_ns;

/* [L] Drops what the namespace's windows began: it goes away. */
void windows_cancel(struct kvl_ns *ns);

/* [L] Frees the namespace's windows, after that. */
void windows_free(struct kvl_ns *ns);

#endif
