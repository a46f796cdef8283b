/* What outlives the process, as an object (daemon/server/keeping/keeping.h). */
#ifndef KVL_SERVER_OBJECTS_KEEPING_H
#define KVL_SERVER_OBJECTS_KEEPING_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

struct keeper;
struct server;

/* What keeping tells the rooms above; filled in by daemon/server/wiring.c. */
struct keeping_wiring {
        /* What was held may go out now, as far as keeping_passed() says. */
        void (*on_passed)(struct server *s);
};

struct keeping {
        const struct keeping_wiring *wiring;
        struct keeper *keeper;  /* owned; NULL: nothing is kept */
        const char *why_not;    /* nothing is kept, though it may be; static. NULL */
        uint32_t max;           /* descriptors */
        uint64_t ticket;        /* of what the loop added last */
        uint32_t last_listener; /* number of KEEP_LISTENER */
        uint32_t n_released;    /* left by the process before this one, and of no use */
        bool was_late;
        uv_async_t passed;
        uv_timer_t patience; /* runs while something isn't kept yet */
};

static inline bool keeping_is_on(const struct keeping *k)
{
        return k->keeper;
}

#endif
