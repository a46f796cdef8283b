/* Notes the connections of a server of libmicrohttpd in slots.h, which bounds them, and closes the
 * ones that it chooses. Any thread. */
#ifndef KVL_HTTP_PLACES_H
#define KVL_HTTP_PLACES_H

#include <pthread.h>

#include <microhttpd.h>

#include "client/http/slots.h"

struct places {
        pthread_mutex_t lock; /* of the slots */
        struct slots slots;
};

void places_init(struct places *p);
void places_deinit(struct places *p);

/* Notes a connection that has come, or whose descriptor is about to be closed: for
 * MHD_OPTION_NOTIFY_CONNECTION, with its context. Returns the nanoseconds that a server with a
 * thread for each connection waits before it accepts another one. */
uint64_t places_note_connection(struct places *p, struct MHD_Connection *c, void **context,
        enum MHD_ConnectionNotificationCode what);

/* Notes that the connection's request is complete; that its answer is made; and that its answer is
 * written (MHD_OPTION_NOTIFY_COMPLETED). */
void places_note_request(struct places *p, struct MHD_Connection *c);
void places_note_answer(struct places *p, struct MHD_Connection *c);
void places_note_end(struct places *p, struct MHD_Connection *c);

/* Notes that the connection's answer is an endless event stream. */
void places_note_stream(struct places *p, struct MHD_Connection *c);

/* Ends a stream that takes nothing, if there is one: its client tries again later. */
void places_cut_off_stream(struct places *p);

#endif
