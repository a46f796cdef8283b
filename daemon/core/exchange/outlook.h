/*
 * What an import (import.h) of a page that isn't cached here would do, for people who ask why a
 * prefix isn't found. It is told from what is known: nobody is asked anything, and nothing changes.
 * Loop thread only.
 */
#ifndef KVL_CORE_EXCHANGE_OUTLOOK_H
#define KVL_CORE_EXCHANGE_OUTLOOK_H

struct detail;
struct ns;

/* On the wire, and in kvleasectl's JSON: never renamed. */
#define EXCHANGE_OUTLOOKS(X)                                                                    \
        X(ASKS, "asks")               /* it asks the store, which isn't known not to answer */  \
        X(UNREACHABLE, "unreachable") /* all of the store's nodes are left alone, or unknown */ \
        X(EPOCH, "epoch")             /* what was invalidated, the store doesn't know yet */    \
        X(BUSY, "busy")               /* as many imports are under way as may be */             \
        X(NOT_SHARED, "not-shared")   /* the namespace takes no part: exchange_has_ns() */

enum exchange_outlook {
#define X(name, text) OUTLOOK_##name,
        EXCHANGE_OUTLOOKS(X)
#undef X
                N_EXCHANGE_OUTLOOKS
};

/* "not-shared"; static. */
const char *exchange_outlook_name(enum exchange_outlook outlook);

/* `remote` is the name that the tenant's store has in the configuration, "" where it has none. *d
 * is a sentence without its beginning and its end. */
enum exchange_outlook exchange_outlook(const struct ns *ns, const char *remote, struct detail *d);

#endif
