/*
 * Why pages weren't imported from, or exported to, the store that hosts share: their names on the
 * wire (AdminExchangeDrop), in kvleasectl's JSON and in the exporter's labels. Never renamed; new
 * ones are appended.
 */
#ifndef KVL_PROTO_EXCHANGE_DROP_H
#define KVL_PROTO_EXCHANGE_DROP_H

/* X(NAME, name, what) */
#define EXCHANGE_DROPS(X)                                                              \
        X(BUSY, "busy", "as much is under way as may be")                              \
        X(NOT_WORTH, "not-worth", "computing the pages takes less time")               \
        X(NO_ROOM, "no-room", "no free page, or another client announced the key")     \
        X(LATE, "late", "the caller's deadline passed")                                \
        X(GONE, "gone", "the page had left the store, or this host")                   \
        X(DAMAGED, "damaged", "the value was not what was asked for")                  \
        X(UNREACHED, "unreached", "a node, or the network")                            \
        X(REFUSED, "refused", "the server has no memory left, or an ACL that forbids") \
        X(EPOCH, "epoch", "the namespace's epoch isn't known, or has changed")         \
        X(CALLED_OFF, "called-off", "whoever wanted the page has gone, or said so")    \
        X(NOT_FINITE, "not-finite", "a number isn't finite, and the codec can't store it")

enum exchange_drop {
#define X(name, ...) EXCHANGE_##name,
        EXCHANGE_DROPS(X)
#undef X
                N_EXCHANGE_DROPS
};

#endif
