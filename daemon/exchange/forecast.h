/*
 * Explains what an import (import.h) of a page that isn't cached here would do: the reason why a
 * prefix isn't found. It uses known state only: no request is sent, and nothing changes. Loop
 * thread only.
 */
#ifndef KVL_EXCHANGE_FORECAST_H
#define KVL_EXCHANGE_FORECAST_H

struct detail;
struct ns;

/* On the wire, and in kvleasectl's JSON: never renamed. */
#define EXCHANGE_FORECASTS(X)                                                                   \
        X(ASKS, "asks")               /* it asks the store, which isn't known not to answer */  \
        X(UNREACHABLE, "unreachable") /* all of the store's nodes are left alone, or unknown */ \
        X(EPOCH, "epoch")             /* an invalidation isn't in the store yet */              \
        X(BUSY, "busy")               /* the limit of imports is reached */                     \
        X(NOT_SHARED, "not-shared")   /* the namespace takes no part: exchange_has_ns() */

enum exchange_forecast {
#define X(name, text) FORECAST_##name,
        EXCHANGE_FORECASTS(X)
#undef X
                N_EXCHANGE_FORECASTS
};

/* Returns "not-shared", for example; static. */
const char *exchange_forecast_name(enum exchange_forecast forecast);

/* `remote`: the tenant's store in the configuration, "" for none. *d gets a sentence without
 * beginning and end. */
enum exchange_forecast exchange_forecast(const struct ns *ns, const char *remote, struct detail *d);

#endif
