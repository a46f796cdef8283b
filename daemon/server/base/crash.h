/*
 * Signal handlers for crashes of the daemon: they record which client was being served
 * (daemon/core/state/suspect.h). Loop thread only.
 */
#ifndef KVL_SERVER_CRASH_H
#define KVL_SERVER_CRASH_H

struct store;

/*
 * From now on SIGABRT, SIGBUS, SIGFPE, SIGILL and SIGSEGV of the calling thread are noted in the
 * root of the store's state. Then they have their former effect. The handler has its own stack, as
 * the thread's may be used up. The store must stay in place until crash_unwatch().
 */
void crash_watch(struct store *s);
void crash_unwatch(void);

#endif
