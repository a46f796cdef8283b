/*
 * Asks kvleased in a thread of its own, so that the screen isn't blocked during waits.
 *
 *   idle -> (ask) -> busy -> (what came is taken) -> idle
 *
 * Only the thread that started it may call these functions.
 */
#ifndef KVL_CTL_TOP_WATCH_H
#define KVL_CTL_TOP_WATCH_H

#include "client/ctl/top-ask.h"

struct top_watch;

struct top_answer {
        int code;             /* CTL_OK; else the error */
        char *sentence;       /* owned; NULL: CTL_OK */
        struct top_look look; /* owned, with CTL_OK; not rated yet */
};

/* Starts it; copies the socket's path. Returns CTL_OK, or CTL_REFUSED with a sentence printed. */
int top_watch_start(const char *path, struct top_watch **ret_watch);

/* Asks; connects first if necessary. Only while idle. */
void top_watch_ask(struct top_watch *w, enum top_view_id view);

/* Returns a descriptor that is readable once the answer is there. */
int top_watch_fd(const struct top_watch *w);

/* Takes the answer, once it is there. */
struct top_answer *top_watch_take(struct top_watch *w);
void top_answer_free(struct top_answer *a);

/* Ends it. While busy it can't be ended: then the thread and its memory are left to the end of the
 * process, which must follow. */
void top_watch_stop(struct top_watch *w);

#endif
