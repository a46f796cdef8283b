/*
 * Explains what an import (import.h) of a page that isn't cached here would do: the reason why a
 * prefix isn't found. It uses known state only: no request is sent, and nothing changes. Loop
 * thread only.
 */
#ifndef KVL_CORE_EXCHANGE_OUTLOOK_H
#define KVL_CORE_EXCHANGE_OUTLOOK_H

struct detail;
struct ns;

/* On the wire, and in kvleasectl's JSON: never renamed. */
#define EXCHANGE_OUTLOOKS(X)                                                                    \
        X(ASKS, "asks")               /* it asks the store, which isn't known not to answer */  \
        X(UNREACHABLE, "unreachable") /* all of the store's nodes are left alone, or unknown */ \
        X(EPOCH, "epoch")             /* an invalidation isn't in the store yet */              \
        X(BUSY, "busy")               /* the limit of imports is reached */                     \
        X(NOT_SHARED, "not-shared")   /* the namespace takes no part: exchange_has_ns() */

enum exchange_outlook {
#define X(name, text) OUTLOOK_##name,
        EXCHANGE_OUTLOOKS(X)
#undef X
                N_EXCHANGE_OUTLOOKS
};

/* Returns "not-shared", for example; static. */
const char *exchange_outlook_name(enum exchange_outlook outlook);

/* `remote`: the tenant's store in the configuration, "" for none. *d gets a sentence without
 * beginning and end. */
enum exchange_outlook exchange_outlook(const struct ns *ns, const char *remote, struct detail *d);

#endif
