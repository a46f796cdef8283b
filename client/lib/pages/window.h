/* Ends a namespace's windows (kvl_window_open(), <kvlease.h>) when the namespace is closed. */
#ifndef KVL_LIB_WINDOW_H
#define KVL_LIB_WINDOW_H

struct kvl_ns;

/* [L] The namespace is being closed: drops the transfers that its windows began. */
void windows_cancel(struct kvl_ns *ns);

/* [L] Frees the namespace's windows, after windows_cancel(). */
void windows_free(struct kvl_ns *ns);

#endif
