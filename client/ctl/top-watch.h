/*
 * Looks at kvleased in a thread of its own, so that a screen goes on while no answer comes.
 *
 *   idle -> (ask) -> busy -> (what came is taken) -> idle
 *
 * All functions are for the thread that started it.
 */
#ifndef KVL_CTL_TOP_WATCH_H
#define KVL_CTL_TOP_WATCH_H

#include "client/ctl/top-ask.h"

struct top_watch;

struct top_answer {
        int code;             /* CTL_OK; else why not */
        char *sentence;       /* owned; NULL: CTL_OK */
        struct top_look look; /* owned, of CTL_OK; not rated yet */
};

/* Copies the socket's path. CTL_OK, or CTL_REFUSED with a sentence printed. */
int top_watch_start(const char *path, struct top_watch **ret_watch);

/* Asks; connects first where there is no connection. Only while idle. */
void top_watch_ask(struct top_watch *w, enum top_view_id view);

/* Readable once the answer is there. */
int top_watch_fd(const struct top_watch *w);

/* The answer, once it is there. */
struct top_answer *top_watch_take(struct top_watch *w);
void top_answer_free(struct top_answer *a);

/* Ends it. While busy it can't be ended: then the thread and what it uses are left to the end of
 * the process, which is to come now. */
void top_watch_stop(struct top_watch *w);

#endif
