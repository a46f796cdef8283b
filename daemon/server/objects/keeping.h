/* State of the descriptor store's client in the server (daemon/server/keeping/keeping.h). */
#ifndef KVL_SERVER_OBJECTS_KEEPING_H
#define KVL_SERVER_OBJECTS_KEEPING_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

struct keeper;
struct server;

/* Callbacks of keeping, filled in by daemon/server/wiring.c. */
struct keeping_wiring {
        /* Held output may be sent now, up to keeping_passed(). */
        void (*on_passed)(struct server *s);
};

struct keeping {
        const struct keeping_wiring *wiring;
        struct keeper *keeper;  /* owned; NULL: nothing is kept */
        const char *why_not;    /* why nothing is stored although it could be; static; NULL */
        uint32_t max;           /* capacity, in descriptors */
        uint64_t ticket;        /* of the loop's last addition */
        uint32_t last_listener; /* number of KEEP_LISTENER */
        uint32_t n_released;    /* unused descriptors of the previous process */
        bool was_late;
        uv_async_t passed;
        uv_timer_t patience; /* runs while an addition isn't stored yet */
};

static inline bool keeping_is_on(const struct keeping *k)
{
        return k->keeper;
}

#endif
